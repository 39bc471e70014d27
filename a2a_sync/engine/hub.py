"""Who hears of new log entries: waiters, streams, anything that follows a task.

The log is the truth and this room only rings the bell. `publish` hands entries to local listeners without ever blocking;
a listener that missed some (a full queue, a hint without entries, a gap in the numbers) reads the log after its cursor.
No user code and no store call happens under a lock of this room.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Protocol

from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import AgentError, TaskNotFoundError
from a2a_sync.lifecycle import Entry, Fold, ends_run, pauses
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import LOG_PAGE_BYTES, Owner, TaskStore
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Role, Task

logger = get_logger(__name__)

#: Entries that a `Waiter` keeps: enough for a quick run, and a long one costs no memory.
_KEPT = 64


class Listener(Protocol):
    """Hears of every batch published for one task. No method may block, raise or call a store."""

    def offer(self, entries: Sequence[Entry], ended: bool) -> None: ...

    def fail(self, error: AgentError) -> None: ...

    def stop(self) -> None: ...


class EventHub:
    """Listeners of this process by task id. A forked child starts without any."""

    def __init__(self) -> None:
        self._closed = False
        #: Called with the task's id after each batch that this process appended: how other processes hear of it.
        self.tell_others: Callable[[str], None] | None = None
        self.renew()
        renew_in_child(self)

    @property
    def listened_to(self) -> bool:
        """Somebody waits for something."""
        return bool(self._listeners)

    def renew(self) -> None:
        """Forget all listeners: those of a forked child's parent are not here."""
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    def add(self, task_id: str, listener: Listener) -> None:
        """Let `listener` hear of `task_id` from now on."""
        with self._lock:
            self._listeners[task_id] = (*self._listeners.get(task_id, ()), listener)
        if self._closed:
            listener.stop()

    def remove(self, task_id: str, listener: Listener) -> None:
        """Stop. Removing twice is harmless."""
        with self._lock:
            left = tuple(known for known in self._listeners.get(task_id, ()) if known is not listener)
            if left:
                self._listeners[task_id] = left
            else:
                self._listeners.pop(task_id, None)

    def listeners(self, task_id: str) -> tuple[Listener, ...]:
        """Who listens to a task now."""
        return self._listeners.get(task_id, ())

    def publish(self, task_id: str, entries: Sequence[Entry], *, ended: bool) -> None:
        """Tell the listeners of a task what was just appended; `ended` says that no run holds its token now."""
        for listener in self._listeners.get(task_id, ()):
            listener.offer(entries, ended)
        if self.tell_others is not None:
            self.tell_others(task_id)

    def hint(self, task_id: str | None = None) -> None:
        """Something may have happened to a task (None: to any of them): its listeners look at the log."""
        for one in [task_id] if task_id is not None else list(self._listeners):
            for listener in self.listeners(one):
                listener.offer((), True)

    def fail(self, task_id: str, error: AgentError) -> None:
        """Tell the listeners of a task that its run is over and that its end could not be stored."""
        for listener in self.listeners(task_id):
            listener.fail(error)

    def stop(self, *, but: Collection[str] = ()) -> None:
        """Wake all who wait and end all streams that are open now, but for those of some tasks."""
        with self._lock:
            known = [listeners for task_id, listeners in self._listeners.items() if task_id not in but]
        for listener in chain.from_iterable(known):
            listener.stop()

    def close(self) -> None:
        """Nothing will be published any more: wake all who wait and end all streams, now and later ones. Idempotent."""
        with self._lock:
            self._closed = True
        self.stop()


class Waiter(Closes):
    """Wakes one thread when a task pauses (or, with `ended`, when its run has ended).

    A hint like all of this room: what it tells may belong to an earlier run, so look at the store before you believe it.
    """

    __slots__ = ("_ended_only", "_error", "_heard", "_hub", "_signal", "_task_id", "stopped")

    def __init__(self, hub: EventHub, task_id: str, *, ended: bool = False) -> None:
        self._hub = hub
        self._task_id = task_id
        self._ended_only = ended
        self._error: AgentError | None = None
        self._heard: list[Entry] = []
        #: This process will not tell anything more, though the task may go on.
        self.stopped = False
        self._signal = threading.Lock()
        self._signal.acquire()
        hub.add(task_id, self)

    def offer(self, entries: Sequence[Entry], ended: bool) -> None:
        if len(self._heard) < _KEPT:
            self._heard += entries
        if ended or (not self._ended_only and any(pauses(entry.event) for entry in entries)):
            self._wake()

    def task(self) -> Task | None:
        """The task as far as it was told of from its first entry on; None where its beginning is only in the store."""
        fold = Fold()
        for place, entry in enumerate(list(self._heard), 1):
            if entry.number != place:
                return None
            fold.apply(entry.event)
        return fold.task()

    def fail(self, error: AgentError) -> None:
        self._error = error
        self._wake()

    def stop(self) -> None:
        self.stopped = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:
            pass  # it was set already

    def wait(self, timeout: float) -> bool:
        """Block for at most `timeout` seconds; True when it happened. May be called again.

        Raises:
            AgentError: the run is over and its end could not be stored.
        """
        woken = self._signal.acquire(timeout=timeout)
        if self._error is not None:
            raise self._error
        return woken

    def close(self) -> None:
        """Stop listening."""
        self._hub.remove(self._task_id, self)


class Subscription:
    """A bounded queue of batches for one follower of one task."""

    __slots__ = ("_error", "_hub", "_missed", "_queue", "_task_id", "stopped")

    def __init__(self, hub: EventHub, task_id: str, *, size: int) -> None:
        self._hub = hub
        self._task_id = task_id
        self._queue: queue.Queue[tuple[Sequence[Entry], bool] | None] = queue.Queue(size)
        self._missed = False
        self._error: AgentError | None = None
        #: Nothing will be published any more.
        self.stopped = False
        hub.add(task_id, self)

    def offer(self, entries: Sequence[Entry], ended: bool) -> None:
        try:
            self._queue.put_nowait((entries, ended))
        except queue.Full:
            self.hint()

    def fail(self, error: AgentError) -> None:
        self._error = error
        self.wake()

    def stop(self) -> None:
        self.stopped = True
        self.wake()

    def take(self, timeout: float) -> tuple[list[Entry], bool, bool]:
        """Wait for at most `timeout` seconds: entries, whether the run ended, whether something was missed.

        Raises:
            AgentError: the run is over and its end could not be stored; what came before was taken already.
        """
        entries: list[Entry] = []
        ended = False
        try:
            waits = timeout > 0 and not (self._missed or self.stopped or self._error is not None)
            batch = self._queue.get(waits, timeout)
            while batch is not None:
                entries += batch[0]
                ended = batch[1]
                batch = self._queue.get_nowait()
        except queue.Empty:
            pass
        if self._error is not None and not entries:
            raise self._error
        # Cleared before the log is read, and set only after an append: what is missed from here on is read there.
        missed, self._missed = self._missed, False
        return entries, ended, missed

    def hint(self) -> None:
        """Something was appended that is not in the queue: the next `take` says that something was missed."""
        self._missed = True
        self.wake()

    def wake(self) -> None:
        """End a `take` that is blocked right now."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            pass  # then nobody is blocked

    def close(self) -> None:
        self._hub.remove(self._task_id, self)


class TaskEventStream:
    """A task's events from a cursor on, each exactly once and in order; an `EventStream`.

    It is the stream of one run: the one that is going on, or, on an idle task, the next one. It ends behind the entry
    that ends that run, and otherwise when the run has freed its token; of what follows it shows nothing, however late
    it is read. Nothing is read from the store while the published numbers join on. `poll` and iteration belong to one
    thread; `close` to any.
    """

    def __init__(
        self,
        store: TaskStore,
        scope: Owner,
        task_id: str,
        subscription: Subscription,
        *,
        cursor: int,
        running: bool,
        first: StreamItem | None = None,
    ) -> None:
        self.task_id = task_id
        self._store = store
        self._scope = scope
        self._subscription = subscription
        self._cursor = cursor
        self._idle = not running
        self._first = first
        self._asked: StreamItem | None = None
        #: The entry that the run ended with, where it did not say so itself: a request to authorise.
        self.closing: StreamItem | None = None
        self._behind = False
        self._ended = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Nothing will come any more."""
        return self._closed

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """What has come within `timeout` seconds (maybe nothing), or None when the stream has ended.

        Raises:
            AgentError: the log cannot be read, or the run's end could not be stored. The stream has ended.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return [first]
        if self._ended or self._closed:
            self.close()
            return None
        try:
            return self._catch_up() if self._behind else self._take(timeout)
        except AgentError:
            self._ended = True
            raise
        except Exception:
            self._ended = True
            raise incident(logger, "a log cannot be read", {"task_id": self.task_id}) from None

    def _take(self, timeout: float) -> list[StreamItem]:
        entries, ended, missed = self._subscription.take(timeout)
        fresh = [entry for entry in entries if entry.number > self._cursor]
        joined = all(entry.number == self._cursor + place for place, entry in enumerate(fresh, 1))
        if missed or not joined or self._subscription.stopped:
            return self._catch_up()
        items = self._accept(fresh)
        if ended and not self._ended:
            # An end without the entry that says so may be that of the run before: the log knows.
            items += self._catch_up()
        return items

    def _catch_up(self) -> list[StreamItem]:
        """One page of the log after the cursor; more than that is left to the next poll."""
        try:
            page = self._store.log(self._scope, self.task_id, after=self._cursor, max_bytes=LOG_PAGE_BYTES)
        except TaskNotFoundError:
            self._ended = True
            return []
        if self._cursor < page.compacted:
            # What came next is not kept any more; whoever comes back gets a snapshot.
            self._ended = True
            return []
        items = self._accept(page.entries)
        self._behind = bool(page.entries) and self._cursor < page.version
        if not self._behind and (self._subscription.stopped or not (page.running or self._idle)):
            self._ended = True
            self.closing = None if page.running else self._asked
        return items

    def _accept(self, entries: Sequence[Entry]) -> list[StreamItem]:
        items = []
        for entry in entries:
            if self._asked is not None and isinstance(entry.event, Message) and entry.event.role is Role.USER:
                # With its question: the message begins the next run.
                self._ended, self.closing = True, self._asked
                break
            self._cursor = entry.number
            self._idle = False
            if entry.streamed:
                items.append(StreamItem(entry.event, entry.number, entry.encoded))
                self._asked = items[-1] if pauses(entry.event) and not ends_run(entry.event) else None
            if ends_run(entry.event):
                self._ended = True
                break
        return items

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(1.0)) is not None:
            yield from items

    def close(self) -> None:
        self._closed = True
        self._subscription.close()
        self._subscription.wake()


class SingleItemStream:
    """The stream of an agent that answered with a message and no task (spec 3.1.2)."""

    closing = None
    task_id = ""

    def __init__(self, item: StreamItem) -> None:
        self._item: StreamItem | None = item

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """The item, then None."""
        item, self._item = self._item, None
        return None if item is None else [item]

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(0)) is not None:
            yield from items

    def close(self) -> None:
        self._item = None


class PolledStream(Protocol):
    """A stream that can be asked for what has come so far, and for its task ("" without one): what a server needs."""

    @property
    def task_id(self) -> str: ...
    @property
    def closing(self) -> StreamItem | None: ...

    def poll(self, timeout: float) -> list[StreamItem] | None: ...

    def __iter__(self) -> Iterator[StreamItem]: ...

    def close(self) -> None: ...
