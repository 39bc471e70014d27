"""What the stream of one task tells: its events, and the task they add up to.

The rules of when a stream has ended and when it was cut are here, for whatever the events come from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from a2a_sync import jsontext
from a2a_sync.client.deadlines import Alarm, AlarmClock
from a2a_sync.codec import by_version
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.gevent import at_home
from a2a_sync.errors import MalformedResponseError, StreamInterruptedError, TransportError, TransportTimeoutError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.lifecycle import Fold, ends_run
from a2a_sync.operations import EventStream, StreamItem
from a2a_sync.types import (
    Artifact,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from a2a_sync.client import resume as _resume
else:
    _resume = LazyModule("a2a_sync.client.resume")

#: How long a server may take to end a stream after its last event (it must, spec 3.1.2). Waiting for it keeps the
#: connection usable for the next call.
_GRACE = 2.0
#: The largest task that the events of a stream may add up to, in bytes of its JSON: that of an answer which is not a stream.
MAX_TASK_BYTES = 64 * 1024 * 1024


class Place(NamedTuple):
    """How far a stream has come.

    ``begun``: it has told something. ``idle``: nothing since it was last opened. ``ended``: by its server, without an error.
    """

    task_id: str
    last_event_id: int | None
    state: TaskState
    begun: bool
    idle: bool
    ended: bool


def lacks_answer(task: Task) -> bool:
    """The task has completed, or waits for its client, and neither an artifact nor a message of the agent says why."""
    answered = task.state is TaskState.COMPLETED or task.state.interrupted
    return answered and not task.artifacts and task.answer_message is None


class CannotBeFollowed(StreamInterruptedError):
    """The stream was cut, and its agent lets nobody follow a task that works: only looking at it now and then is left."""


class TaskStream(Closes):
    """Iterates over the events of one task (`Task`, `TaskStatusUpdateEvent`, `TaskArtifactUpdateEvent`), or over the one
    `Message` of an agent that answers without a task.

    A stream that is cut while its task works is opened again (see `Retry`), and every event comes once and in order: it
    goes on after the last number that it has seen. Where the agent numbers nothing, or does not keep what was missed, it
    goes on with a snapshot, a `Task` that stands for all that was before; `resynchronised` marks it.

    Some agents store an answer that they do not stream. Where a stream ends with a task that has completed, or waits for its
    client, without an artifact or a message, the client asks for the task once; what it finds is the last event, marked as well.

    Iterate on one thread; `close` from any thread ends it at once. Leaving a ``with`` block closes it too; the task
    itself goes on.

    Raises (from the iteration):
        AgentError: the agent sent an error.
        StreamInterruptedError: the stream was cut while the task still worked, and could not be taken up again.
        TransportTimeoutError: a limit ran out.
        MalformedResponseError: the events add up to a task of more than 64 MiB of JSON.

    These name the task and, in ``last_event_id``, the place where `Client.subscribe` can go on.
    """

    def __init__(
        self,
        source: EventStream,
        *,
        agent: str,
        alarms: AlarmClock,
        task_id: str = "",
        last_event_id: int | None = None,
        resumption: _resume.Resumption | None = None,
        stored: Callable[[str], Task | None] | None = None,
    ) -> None:
        #: The number of the last event that had one: where a new stream can go on.
        self.last_event_id = last_event_id
        #: The answer of an agent that answers without a task.
        self.message: Message | None = None
        self.task_id = task_id
        self.context_id = ""
        #: Where the task stands, as far as is known.
        self.state = TaskState.UNSPECIFIED
        #: The text that the last event added to the artifacts. The event that completes an artifact may repeat all of it, so
        #: this is what a program prints that shows a stream.
        self.new_text = ""
        #: A `Task` came by, so the events add up to all of it.
        self.complete = False
        #: The event that came last is a snapshot in place of events that were missed: what was pieced together from the
        #: events before it begins anew with it.
        self.resynchronised = False
        self._source = source
        self._items = iter(source)
        self._agent = agent
        self._alarms = alarms
        self._resumption = resumption
        self._stored = stored  # how to get the task that the agent has stored; None once that was done
        self._snapshot = False  # the last event was a whole task
        self._texts: dict[str, list[str]] = {}
        self._fold = Fold()
        self._folded: Task | None = None
        self._changed = False
        self._size = 0  # of the task, in bytes: at least what it is
        self._measure_at = MAX_TASK_BYTES
        self._begun = False
        self._idle = True  # nothing has come since the stream was opened (again)
        self._joining = False  # it was opened again, and its first event is still to come
        self._floor: int | None = None  # what is numbered up to this was seen before the stream was opened again
        self._last = False  # the agent has said that nothing follows
        self._over = False  # nothing can follow
        self._closed = threading.Event()
        self._alarm: Alarm | None = None

    def __iter__(self) -> Iterator[StreamResponse]:
        return self

    @at_home
    def __next__(self) -> StreamResponse:
        while not self._closed.is_set():
            try:
                item = self._next_item()
            except (StreamInterruptedError, TransportTimeoutError) as error:
                if self._over:
                    if (answer := self._end()) is not None:
                        return answer
                elif isinstance(error, CannotBeFollowed):
                    self.close()
                    error.last_event_id = self.last_event_id
                    raise
                else:
                    self._reopen(error)
                continue
            except BaseException:
                self.close()
                raise
            if item is not None:
                self._take(item)
                return item.event
            if self._over or self.state.paused:
                if (answer := self._end()) is not None:
                    return answer
            else:
                self._reopen(self._cut(), ended=True)
        raise StopIteration

    def _next_item(self) -> StreamItem | None:
        """The next one to show; None when the source has ended."""
        while (item := next(self._items, None)) is not None:
            if not self._last and self._is_news(item):
                return item
        return None

    def _end(self) -> Task | None:
        """Close; or, once, the stored task where what was streamed lacks the answer that it has."""
        stored, self._stored = self._stored, None
        task = self.task
        if stored is None or task is None or self._snapshot or not lacks_answer(task):
            self.close()
            return None
        found = stored(task.id)
        if found is None or found.state is not task.state or lacks_answer(found) or self._closed.is_set():
            self.close()
            return None
        self._take(StreamItem(found))
        self.resynchronised = True
        return found

    def _cut(self) -> StreamInterruptedError:
        """The source has ended without an error, and too early."""
        known = f"while the task was {self.state}" if self._begun else "before it told anything"
        return StreamInterruptedError(
            f"the stream ended {known}", phase="stream", agent=self._agent, task_id=self.task_id
        )

    # -- after a cut --

    def _reopen(self, cut: TransportError, *, ended: bool = False) -> None:
        """Go on with a new source, unless the stream was closed meanwhile.

        Raises:
            AgentError, TransportError: there is none; the stream is closed.
        """
        if self._closed.is_set():
            return
        try:
            if self._resumption is None:
                raise cut
            place = Place(self.task_id, self.last_event_id, self.state, self._begun, self._idle, ended)
            source = self._resumption.reopen(place, cut, self._closed)
        except BaseException as error:
            self.close()
            if isinstance(error, TransportError):
                error.last_event_id = self.last_event_id
            raise
        if source is None:
            return
        self._cancel_alarm()
        self._source.close()
        self._source, self._items = source, iter(source)
        self._floor = self.last_event_id
        self._joining, self._idle = self._begun, True
        if self._closed.is_set():
            source.close()

    def _is_news(self, item: StreamItem) -> bool:
        """It is to be shown: it does not repeat what was shown, before the stream was opened again or just now."""
        self.resynchronised = False
        if item.last and item.number is not None and item.number == self.last_event_id:
            # Said once more, because it is only now known to be the last one.
            self._last = self._over = True
            return False
        if not self._joining:
            return self._floor is None or item.number is None or item.number > self._floor
        self._joining = False
        if isinstance(item.event, Task):
            return self._is_other_task(item.event, item.number)
        if self._floor is None and self._resumption is not None:
            # Neither a number nor a snapshot: nobody knows what lies between.
            snapshot = StreamItem(self._resumption.look(self.task_id))
            self._items, self._joining = chain((snapshot, item), self._items), True
            return False
        return self._is_news(item)

    def _is_other_task(self, snapshot: Task, number: int | None) -> bool:
        """A snapshot differs from what the events add up to: something was missed."""
        # Its numbers, if it has any, may begin anew.
        self._floor, self.last_event_id = None, number
        task = self.task
        known = task is not None and (task.status, task.artifacts) == (snapshot.status, snapshot.artifacts)
        if snapshot.state.interrupted:
            # The run that this stream tells of has ended while it was cut; what follows would be the next one's.
            self._over = True
            self._source.close()
        self.resynchronised = not known
        return not known

    # -- what the events tell --

    def _take(self, item: StreamItem) -> None:
        event = item.event
        self._begun, self._idle = True, False
        self._snapshot = isinstance(event, Task)
        if item.number is not None:
            self.last_event_id = item.number
        if isinstance(event, Message):
            self.context_id = event.context_id or self.context_id
            if not self.task_id:
                self.message = event
        else:
            self.task_id = (event.id if isinstance(event, Task) else event.task_id) or self.task_id
            self.context_id = event.context_id or self.context_id
            self.complete = self.complete or isinstance(event, Task)
            if isinstance(event, (Task, TaskStatusUpdateEvent)):
                self.state = event.status.state
        self.new_text = self._added(event)
        self._fold.apply(event)
        self._changed = True
        self._bound(item)
        self._last = item.last
        if self._last or self.message is not None or self.state.terminal:
            self._over = True
            self.end_within(_GRACE)
        elif isinstance(event, TaskStatusUpdateEvent):
            self._over = ends_run(event)

    def _added(self, event: StreamResponse) -> str:
        match event:
            case Task():
                return "".join(self._added_to(artifact) for artifact in event.artifacts)
            case TaskArtifactUpdateEvent():
                return self._added_to(event.artifact, append=event.append, last=event.last_chunk)
            case Message() if not self.task_id:
                return event.text
        return ""

    def _added_to(self, artifact: Artifact, *, append: bool = False, last: bool = False) -> str:
        text, pieces = artifact.text, self._texts.setdefault(artifact.artifact_id, [])
        if append:
            pieces.append(text)
            return text
        known = "".join(pieces)
        self._texts[artifact.artifact_id] = [text]
        # A stream that joined late knows the end of an artifact only.
        return "" if last and known and text.endswith(known) else text.removeprefix(known)

    def end_within(self, seconds: float) -> None:
        """Read what is still on its way and then end, without waiting for the server longer than that."""
        if self._alarm is None:
            self._alarm = self._alarms.set(time.monotonic() + seconds, self._source.close)

    @property
    def task(self) -> Task | None:
        """The task so far; None before anything named one."""
        if self._changed:
            self._changed = False
            self._folded = self._fold.task()
        return self._folded

    @property
    def result(self) -> Task | Message | None:
        """The task so far, or the message of an agent that answers without one."""
        return self.message if self.message is not None else self.task

    @property
    def text(self) -> str:
        """The text of `result` so far."""
        result = self.result
        return "" if result is None else result.text

    @property
    def closed(self) -> bool:
        """Nothing will come any more."""
        return self._closed.is_set()

    @at_home
    def close(self) -> None:
        """Stop listening, from any thread; a thread that waits for an event ends its iteration. Idempotent."""
        self._closed.set()
        self._cancel_alarm()
        self._source.close()

    def _bound(self, item: StreamItem) -> None:
        """See that the task stays within bounds, for an agent may send pieces without end.

        Raises:
            MalformedResponseError: it does not; the stream is closed.
        """
        self._size = item.size if isinstance(item.event, Task) else self._size + item.size
        if self._size <= self._measure_at:
            return
        # What was sent is more than what is kept: artifacts are replaced, and statuses too.
        self._size = len(jsontext.dumps(by_version("1.0").dump(self.task))) if self.task is not None else 0
        self._measure_at = max(MAX_TASK_BYTES, self._size + MAX_TASK_BYTES // 8)
        if self._size > MAX_TASK_BYTES:
            self.close()
            raise MalformedResponseError(
                f"the task is larger than {MAX_TASK_BYTES} bytes",
                phase="stream",
                agent=self._agent,
                task_id=self.task_id,
            )

    def _cancel_alarm(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            self._alarms.cancel(alarm)

    def __repr__(self) -> str:
        return f"<TaskStream task={self.task_id!r} {self.state}{' closed' if self.closed else ''}>"


class OneEvent:
    """One result as an `EventStream`: from agents that do not stream."""

    def __init__(self, event: StreamResponse) -> None:
        self._event = event

    def __iter__(self) -> Iterator[StreamItem]:
        return iter((StreamItem(self._event),))

    def close(self) -> None:
        """Nothing is open."""
