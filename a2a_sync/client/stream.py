"""What the stream of one task tells: its events, and the task they add up to.

The rules of when a stream has ended and when it was cut are here, for whatever the events come from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType

from a2a_sync.client.timeouts import Alarm, AlarmClock
from a2a_sync.errors import StreamInterrupted, TransportTimeout
from a2a_sync.lifecycle import Fold
from a2a_sync.operations import EventStream, StreamItem
from a2a_sync.types import Message, StreamResponse, Task, TaskState, TaskStatusUpdateEvent

#: How long a server may take to end a stream after its last event (it must, spec 3.1.2). Waiting for it keeps the
#: connection usable for the next call.
_GRACE = 2.0


class TaskStream:
    """Iterates over the events of one task (`Task`, `TaskStatusUpdateEvent`, `TaskArtifactUpdateEvent`), or over the one
    `Message` of an agent that answers without a task.

    Iterate on one thread; `close` from any thread ends it at once. Leaving a ``with`` block closes it too; the task
    itself goes on.

    Raises (from the iteration):
        A2AError: the agent sent an error.
        StreamInterrupted: the stream was cut while the task still worked; it names the task.
        TransportTimeout: a limit ran out; it names the task.
    """

    def __init__(self, source: EventStream, *, agent: str, alarms: AlarmClock, task_id: str = "") -> None:
        #: The number of the last event that had one: where a new stream can go on.
        self.last_event_id: int | None = None
        #: The answer of an agent that answers without a task.
        self.message: Message | None = None
        self.task_id = task_id
        self.context_id = ""
        #: Where the task stands, as far as is known.
        self.state = TaskState.UNSPECIFIED
        #: A `Task` came by, so the events add up to all of it.
        self.complete = False
        self._source = source
        self._items = iter(source)
        self._agent = agent
        self._alarms = alarms
        self._fold = Fold()
        self._folded: Task | None = None
        self._changed = False
        self._last = False  # the agent has said that nothing follows
        self._closed = threading.Event()
        self._alarm: Alarm | None = None

    def __iter__(self) -> Iterator[StreamResponse]:
        return self

    def __next__(self) -> StreamResponse:
        if self._closed.is_set():
            raise StopIteration
        try:
            item = next(self._items, None)
            while item is not None and self._last:
                item = next(self._items, None)
        except (StreamInterrupted, TransportTimeout):
            if self._closed.is_set() or self.state.terminal or self._last:
                item = None  # nothing could have followed
            else:
                self.close()
                raise
        except BaseException:
            self.close()
            raise
        if item is None:
            self._end()
            raise StopIteration
        self._take(item)
        return item.event

    def _take(self, item: StreamItem) -> None:
        event = item.event
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
        self._fold.apply(event)
        self._changed = True
        self._last = item.last
        if self._last or self.message is not None or self.state.terminal:
            self.end_within(_GRACE)

    def _end(self) -> None:
        """The source has ended without an error."""
        closed = self._closed.is_set()
        self.close()
        if closed or self._last or self.message is not None or self.state.paused:
            return
        known = f"while the task was {self.state}" if self.task_id else "before it told anything"
        raise StreamInterrupted(f"the stream ended {known}", phase="stream", agent=self._agent, task_id=self.task_id)

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

    def close(self) -> None:
        """Stop listening, from any thread; a thread that waits for an event ends its iteration. Idempotent."""
        self._closed.set()
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            self._alarms.cancel(alarm)
        self._source.close()

    def __enter__(self) -> TaskStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
