"""The stream of one task: its events, the task that they add up to, and how it is resumed when it is cut.

Whether a stream has ended or was cut is decided here, for events from any source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, NoReturn, Protocol

from a2a_sync import jsontext
from a2a_sync.client.deadlines import NEVER, Deadline
from a2a_sync.client.retry import ClientClosedError, RetryLoop, SubscriptionRefusedError, describe, is_transient
from a2a_sync.codec import by_version
from a2a_sync.concurrency.alarms import Alarm, AlarmClock
from a2a_sync.concurrency.closing import Closes, ClosingIterable
from a2a_sync.concurrency.gevent import run_on_gevent_hub
from a2a_sync.display import Displayed
from a2a_sync.errors import (
    AgentError,
    InvalidParamsError,
    MalformedResponseError,
    MethodNotFoundError,
    OverloadedError,
    StreamInterruptedError,
    TaskNotFoundError,
    TransportError,
    TransportTimeoutError,
    UnsupportedOperationError,
)
from a2a_sync.lifecycle import Fold, ends_run
from a2a_sync.operations import EventStream, StreamItem
from a2a_sync.sizes import task_size
from a2a_sync.types import (
    Artifact,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

#: Seconds that a server may take to end a stream after its last event (it must end it, spec 3.1.2). Waiting for the end
#: keeps the connection usable for the next call.
_END_GRACE = 2.0
#: How agents answer a subscription to a task that has just ended, or when they do not stream. Those after the first are used
#: by agents of protocol 0.3. GetTask shows which it is.
SUBSCRIPTION_REFUSALS = (UnsupportedOperationError, MethodNotFoundError, InvalidParamsError, TaskNotFoundError)


class StreamPosition(NamedTuple):
    """How far a stream has been read.

    ``started``: an event has arrived. ``idle``: no event has arrived since the stream was last opened. ``ended``: the server ended
    the stream without an error.
    """

    task_id: str
    last_event_id: int | None
    state: TaskState
    started: bool
    idle: bool
    ended: bool


def lacks_answer(task: Task) -> bool:
    """The task has completed or waits for input, without an artifact or a message of the agent that says why."""
    answered = task.state is TaskState.COMPLETED or task.state.interrupted
    return answered and not task.artifacts and task.answer_message is None


class TaskStream(Displayed, Closes):
    """An iterator over the events of one task (`Task`, `TaskStatusUpdateEvent`, `TaskArtifactUpdateEvent`), or over the one
    `Message` of an agent that answers without a task.

    A stream that is cut while its task works is opened again (see `Retry`) after the last event id that was read, so each
    event is returned once and in order. If the agent does not number its events, or no longer has the missed ones, the stream
    continues with a snapshot: a `Task` that replaces all events before it. `resynchronised` marks a snapshot.

    Some agents store an answer without streaming it. If a stream ends with a task that has completed or waits for input, and has
    neither an artifact nor a message, the client reads the task once; the result is the last event, which is marked too.

    Iterate on one thread; `close` may be called from any thread and ends the iteration at once. Leaving a ``with`` block closes
    the stream. The task itself continues.

    Parameters:
        source: the events as they arrive.
        agent: the address of the agent, for errors.
        alarms: ends the stream after its last event.
        task_id: the id of the task, if it is known.
        last_event_id: the event after which `source` resumes.
        resumption: opens the stream again after a cut; None does not.
        read_stored: reads the task that the agent has stored.

    Raises (from the iteration):
        AgentError: the agent sent an error.
        StreamInterruptedError: the stream was cut while the task worked, and could not be resumed.
        TransportTimeoutError: a limit was reached.
        MalformedResponseError: the events add up to a task of more than the client's ``max_task_bytes``.

    These carry the id of the task and, in ``last_event_id``, the event after which `Client.subscribe` can resume.
    """

    def __init__(
        self,
        source: EventStream,
        *,
        agent: str,
        alarms: AlarmClock,
        task_id: str = "",
        last_event_id: int | None = None,
        resumption: Resumption | None = None,
        read_stored: Callable[[str], Task | None] | None = None,
        max_task_bytes: int,
    ) -> None:
        #: The id of the last numbered event: a new stream can resume after it.
        self.last_event_id = last_event_id
        #: The answer of an agent that answers without a task.
        self.message: Message | None = None
        self.task_id: str = task_id
        self.context_id: str = ""
        #: The last known state of the task.
        self.state: TaskState = TaskState.UNSPECIFIED
        #: The text that the last event added to the artifacts. The event that completes an artifact may repeat all of its text;
        #: this is the part to print.
        self.new_text: str = ""
        #: A `Task` has arrived, so the events add up to the whole task.
        self.complete: bool = False
        #: The last event is a snapshot in place of missed events: what was assembled from earlier events starts again with it.
        self.resynchronised: bool = False
        self._source = source
        self._items = iter(source)
        self._agent = agent
        self._alarms = alarms
        self._resumption = resumption
        self._read_stored = read_stored  # reads the stored task; None once that was done
        self._snapshot = False  # the last event was a whole task
        self._received = 0  # the bytes of all events so far
        self._max_task_bytes = max_task_bytes
        self._texts: dict[str, list[str]] = {}
        self._fold = Fold()
        self._folded_task: Task | None = None
        self._changed = False
        self._size = 0  # of the task, in bytes: at least its real size
        self._next_measurement = max_task_bytes
        self._started = False
        self._idle = True  # no event since the stream was opened, or opened again
        self._just_reopened = False  # opened again, and its first event has not arrived
        self._returned_before: int | None = (
            None  # events up to this id were returned before the stream was opened again
        )
        self._marked_last = False  # the agent has said that nothing follows
        self._finished = False  # nothing can follow
        self._closed = threading.Event() if resumption is None else resumption.retries.closed
        self._alarm: Alarm | None = None

    def __iter__(self) -> Iterator[StreamResponse]:
        return self

    @run_on_gevent_hub
    def __next__(self) -> StreamResponse:
        while not self._closed.is_set():
            try:
                item = self._next_item()
            except (StreamInterruptedError, TransportTimeoutError) as error:
                if self._finished:
                    if (answer := self._end()) is not None:
                        return answer
                elif isinstance(error, SubscriptionRefusedError):
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
                self._apply(item)
                return item.event
            if self._finished or self.state.paused:
                if (answer := self._end()) is not None:
                    return answer
            else:
                self._reopen(self._cut_error(), ended=True)
        raise StopIteration

    def _next_item(self) -> StreamItem | None:
        """The next item to return; None when the source has ended."""
        while (item := next(self._items, None)) is not None:
            if not self._marked_last and self._is_new(item):
                return item
        return None

    def _end(self) -> Task | None:
        """Close the stream; or return the stored task once, if the stream lacks an answer that the stored task has."""
        read_stored, self._read_stored = self._read_stored, None
        task = self.task
        if read_stored is None or task is None or self._snapshot or not lacks_answer(task):
            self.close()
            return None
        found = read_stored(task.id)
        if found is None or found.state is not task.state or lacks_answer(found) or self._closed.is_set():
            self.close()
            return None
        self._apply(StreamItem(found, size=task_size(found)))
        self.resynchronised = True
        return found

    def _cut_error(self) -> StreamInterruptedError:
        """The error for a source that has ended without an error, and too early."""
        known = f"while the task was {self.state}" if self._started else "before its first event"
        return StreamInterruptedError(
            f"the stream ended {known}", phase="stream", agent=self._agent, task_id=self.task_id
        )

    # -- after a cut --

    def _reopen(self, cut: TransportError, *, ended: bool = False) -> None:
        """Continue with a new source, unless the stream was closed meanwhile.

        Raises:
            AgentError, TransportError: the stream could not be resumed; it is closed.
        """
        if self._closed.is_set():
            return
        try:
            if self._resumption is None:
                raise cut
            position = StreamPosition(self.task_id, self.last_event_id, self.state, self._started, self._idle, ended)
            source = self._resumption.reopen(position, cut)
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
        self._returned_before = self.last_event_id
        self._just_reopened, self._idle = self._started, True
        if self._closed.is_set():
            source.close()

    def _is_new(self, item: StreamItem) -> bool:
        """The item is to be returned: it repeats no event, neither the last one nor one from before the cut."""
        self.resynchronised = False
        if item.last and item.number is not None and item.number == self.last_event_id:
            # Sent once more, because the server knows only now that it is the last one.
            self._marked_last = self._finished = True
            return False
        if not self._just_reopened:
            return self._returned_before is None or item.number is None or item.number > self._returned_before
        self._just_reopened = False
        if isinstance(item.event, Task):
            return self._resynchronise(item.event, item.number)
        if self._returned_before is None and self._resumption is not None:
            # Neither an event id nor a snapshot: events may be missing in between.
            task = self._resumption.get_task(self.task_id)
            snapshot = StreamItem(task, size=task_size(task))
            self._items, self._just_reopened = chain((snapshot, item), self._items), True
            return False
        return self._is_new(item)

    def _resynchronise(self, snapshot: Task, number: int | None) -> bool:
        """Continue from a snapshot; whether it differs from what the events add up to, so that events were missed."""
        # Its event ids, if it has any, may start again.
        self._returned_before, self.last_event_id = None, number
        task = self.task
        known = task is not None and (task.status, task.artifacts) == (snapshot.status, snapshot.artifacts)
        if snapshot.state.interrupted:
            # The run that this stream follows ended during the cut; what follows would belong to the next one.
            self._finished = True
            self._source.close()
        self.resynchronised = not known
        return not known

    # -- the state that the events add up to --

    def _apply(self, item: StreamItem) -> None:
        event = item.event
        self._started, self._idle = True, False
        self._snapshot = isinstance(event, Task)
        self._received += item.size
        if item.number is not None:
            self.last_event_id = item.number
        self.context_id = event.context_id or self.context_id
        if not isinstance(event, Message):
            self._apply_to_task(event)
        elif not self.task_id:
            self.message = event
        self.new_text = self._added_text(event)
        self._fold.apply(event)
        self._changed = True
        self._check_size(item)
        self._marked_last = item.last
        if self._marked_last or self.message is not None or self.state.terminal:
            self._finished = True
            self.end_within(_END_GRACE)
        elif isinstance(event, TaskStatusUpdateEvent):
            self._finished = ends_run(event)

    def _apply_to_task(self, event: Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        self.task_id = (event.id if isinstance(event, Task) else event.task_id) or self.task_id
        self.complete = self.complete or isinstance(event, Task)
        if isinstance(event, (Task, TaskStatusUpdateEvent)):
            self.state = event.status.state

    def _added_text(self, event: StreamResponse) -> str:
        match event:
            case Task():
                # An agent may send snapshots without end: what one does not have is not kept.
                known = self._texts
                self._texts = {one.artifact_id: known.get(one.artifact_id, []) for one in event.artifacts}
                return "".join(self._text_added_to(artifact) for artifact in event.artifacts)
            case TaskArtifactUpdateEvent():
                return self._text_added_to(event.artifact, append=event.append, last=event.last_chunk)
            case Message() if not self.task_id:
                return event.text
        return ""

    def _text_added_to(self, artifact: Artifact, *, append: bool = False, last: bool = False) -> str:
        text, pieces = artifact.text, self._texts.setdefault(artifact.artifact_id, [])
        if append:
            pieces.append(text)
            return text
        known = "".join(pieces)
        self._texts[artifact.artifact_id] = [text]
        # A stream that joined late has only the end of an artifact.
        return "" if last and known and text.endswith(known) else text.removeprefix(known)

    def end_within(self, seconds: float) -> None:
        """Read the events that are still on the way, and end the stream after `seconds` if the server has not ended it."""
        if self._alarm is None:
            self._alarm = self._alarms.set(time.monotonic() + seconds, self._source.close)

    @property
    def task(self) -> Task | None:
        """The task so far; None before an event has named one."""
        if self._changed:
            self._changed = False
            self._folded_task = self._fold.task()
        return self._folded_task

    @property
    def result(self) -> Task | Message | None:
        """The task so far, or the message of an agent that answers without a task."""
        return self.message if self.message is not None else self.task

    @property
    def text(self) -> str:
        """The text of `result` so far."""
        result = self.result
        return "" if result is None else result.text

    @property
    def closed(self) -> bool:
        """Whether the stream returns no further events."""
        return self._closed.is_set()

    @run_on_gevent_hub
    def close(self) -> None:
        """End the stream, from any thread; a thread that waits for an event ends its iteration. Idempotent."""
        self._closed.set()
        self._cancel_alarm()
        self._source.close()

    def close_within(self, seconds: float) -> None:
        """`close` after so many seconds."""
        self._alarms.set(time.monotonic() + seconds, self.close)

    def _check_size(self, item: StreamItem) -> None:
        """Keep the task within bounds: an agent may send events without end.

        Raises:
            MalformedResponseError: the task is too large; the stream is closed.
        """
        self._size = item.size if isinstance(item.event, Task) else self._size + item.size
        if self._size <= self._next_measurement:
            return
        # More is received than kept: artifacts and statuses are replaced. Messages are kept, also before the task is known.
        task = self.task
        self._size = self._size if task is None else len(jsontext.dumps(by_version("1.0").dump(task)))
        most = self._max_task_bytes
        self._next_measurement = max(most, self._size + most // 8)
        if self._size > most:
            self._refuse(f"the task is larger than {most} bytes (max_task_bytes)")

    def _check_received(self, tasks: int) -> None:
        """Keep the events within bounds, for callers that keep them all: `tasks` times the size of the largest task.

        Raises:
            MalformedResponseError: they have more; the stream is closed.
        """
        most = tasks * self._max_task_bytes
        if self._received > most:
            self._refuse(f"the events have more than {most} bytes")

    def _refuse(self, text: str) -> NoReturn:
        self.close()
        raise MalformedResponseError(text, phase="stream", agent=self._agent, task_id=self.task_id)

    def _cancel_alarm(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            self._alarms.cancel(alarm)

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        facts = [("state", str(self.state)), ("task", self.task_id), ("", "closed" if self.closed else "open")]
        result = self.result
        return "Stream", [fact for fact in facts if fact[0]], [] if result is None else [result]

    def _ipython_display_(self) -> None:
        """Show the stream in the cell of a notebook while its events arrive, to its end, and then the result."""
        from a2a_sync.client.notebook import show_live

        show_live(self)

    def __repr__(self) -> str:
        return f"<TaskStream task={self.task_id!r} {self.state}{' closed' if self.closed else ''}>"


def single_event_stream(event: StreamResponse) -> EventStream:
    """One result as a stream: the answer of an agent that does not stream, or a stored task."""
    return ClosingIterable((StreamItem(event),), lambda: None)


# -- resuming -----------------------------------------------------------------------------------------------------------


class StreamCalls(Protocol):
    """The calls that resume a stream; `Link` has them."""

    @property
    def agent(self) -> str: ...

    @property
    def version(self) -> str: ...

    def get_task(self, task_id: str, deadline: Deadline, opening: Deadline = NEVER) -> Task: ...

    def open_subscription(
        self, task_id: str, deadline: Deadline, last_event_id: int | None = None, opening: Deadline = NEVER
    ) -> EventStream: ...


@dataclass(eq=False)
class Resumption:
    """Opens one stream again after each cut; used on the thread that iterates the stream.

    Parameters:
        link: makes the calls.
        deadline: the limit of the whole stream.
        retries: the loop that bounds each interruption, with the policy `RESUME`.
        repeat: sends the message again, if the agent deduplicates it; its argument is the limit until the answer begins.
        is_send: the stream answers a message, and is no subscription.
    """

    link: StreamCalls
    deadline: Deadline
    retries: RetryLoop
    repeat: Callable[[Deadline], EventStream] | None = None
    is_send: bool = False
    _opened: float = field(default=0.0, init=False)
    #: How often in a row the stream was opened and ended without an event.
    _silent_ends: int = field(default=0, init=False)

    def reopen(self, position: StreamPosition, cut: TransportError) -> EventStream | None:
        """The stream from `position`, or from a snapshot of the task; None if the stream was closed meanwhile.

        Raises:
            StreamInterruptedError: the stream cannot be resumed, or not within the time for retries.
            TransportTimeoutError: the total limit was reached.
            AgentError, TransportError: the last failure of an attempt.
        """
        if not position.started and self.is_send and self.repeat is None:
            if self.link.version == "0.3":
                self._check_task_exists(position.task_id)
            # Whether the message has arrived is unknown.
            raise cut
        stood = time.monotonic() - self._opened if self._opened else 0.0
        if not position.idle or stood > self.retries.retry.max_backoff:
            # A new interruption: events arrived, or the agent was connected and had none to send. The pauses grow on where
            # it was connected briefly: an agent may send an event and end the stream for ever.
            self.retries.backoff.reset(pauses=stood > self.retries.retry.max_backoff)
        # Without event ids a break means no less than an end: some servers break a stream instead of refusing it.
        silent = position.idle and self._opened and (position.ended or position.last_event_id is None)
        self._silent_ends = self._silent_ends + 1 if silent else 0
        self.retries.task_id = position.task_id
        try:
            stream = self.retries.run(lambda opening: self._open(position, opening), after=cut)
        except ClientClosedError:
            return None
        self._opened = time.monotonic()
        return stream

    def get_task(self, task_id: str) -> Task:
        """The current state of the task.

        Raises:
            StreamInterruptedError: it could not be read now.
            TransportTimeoutError: the total limit was reached.
        """
        try:
            return self.link.get_task(task_id, self.deadline, self.retries.opening)
        except (TransportError, OverloadedError) as error:
            if not is_transient(error):
                raise
            self.retries.check_deadline(error)
            text = f"the state of the task could not be read ({describe(error)})"
            raise StreamInterruptedError(text, phase="stream", agent=self.link.agent, task_id=task_id) from error

    def _check_task_exists(self, task_id: str) -> None:
        """Raise the error for a message to a task that does not exist.

        The official server of 0.3 cannot refuse a stream over HTTP+JSON; it breaks the stream instead.
        """
        if task_id:
            with suppress(TransportError, OverloadedError):
                self.get_task(task_id)

    def _open(self, position: StreamPosition, opening: Deadline) -> EventStream:
        if not position.started and self.repeat is not None:
            return self.repeat(opening)
        numbered = position.last_event_id is not None
        # One silent end may be a cut, in a framing that does not distinguish the two; with event ids a second attempt is
        # worthwhile. Without them, a subscription to a task that waits for input would wait with it.
        if self._silent_ends > numbered or (position.state.interrupted and not numbered):
            task = self.get_task(position.task_id)
            if task.state.paused:
                return single_event_stream(task)
        try:
            stream = self.link.open_subscription(position.task_id, self.deadline, position.last_event_id, opening)
        except SUBSCRIPTION_REFUSALS as refusal:
            return self._final_state(position, refusal)
        return ClosingIterable(self._subscription(stream, position), stream.close)

    def _subscription(self, stream: EventStream, position: StreamPosition) -> Iterator[StreamItem]:
        """The items of a stream that was opened again. Agents of protocol 0.3 send a refusal as its first event."""
        items = iter(stream)
        try:
            first = next(items, None)
        except SUBSCRIPTION_REFUSALS as refusal:
            stream.close()
            items = iter(self._final_state(position, refusal))
            first = next(items, None)
        if first is not None:
            yield first
            yield from items

    def _final_state(self, position: StreamPosition, refusal: AgentError) -> EventStream:
        """The state of a task whose subscription was refused, as the last event."""
        task = self.get_task(position.task_id)
        if task.state.paused:
            return single_event_stream(task)
        raise SubscriptionRefusedError(
            f"the stream was cut, and the agent refuses a subscription to the task ({refusal})",
            phase="stream",
            agent=self.link.agent,
            task_id=position.task_id,
        ) from refusal
