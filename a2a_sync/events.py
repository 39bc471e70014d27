"""Who hears of new log entries: waiters, streams, anything that follows a task.

The log is the truth and this room only rings the bell. `publish` hands entries to local listeners without ever blocking;
a listener that missed some (a full queue, a hint without entries, a gap in the numbers) reads the log after its cursor.
No user code and no store call happens under a lock of this room.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from a2a_sync.errors import A2AError, TaskNotFoundError
from a2a_sync.lifecycle import Entry, pauses
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import Scope, TaskStore


class Listener(Protocol):
    """Hears of every batch published for one task. Neither method may block, raise or call a store."""

    def offer(self, entries: Sequence[Entry], ended: bool) -> None: ...

    def fail(self, error: A2AError) -> None: ...


class EventHub:
    """Listeners of this process by task id."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    def add(self, task_id: str, listener: Listener) -> None:
        """Let `listener` hear of `task_id` from now on."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            self._listeners[task_id] = (*self._listeners.get(task_id, ()), listener)

    def remove(self, task_id: str, listener: Listener) -> None:
        """Stop. Removing twice is harmless."""
        with self._lock:
            left = tuple(known for known in self._listeners.get(task_id, ()) if known is not listener)
            if left:
                self._listeners[task_id] = left
            else:
                self._listeners.pop(task_id, None)

    def publish(self, task_id: str, entries: Sequence[Entry], *, ended: bool) -> None:
        """Tell the listeners of a task what was just appended; `ended` says that no run holds its token now."""
        for listener in self._listeners.get(task_id, ()):
            listener.offer(entries, ended)

    def fail(self, task_id: str, error: A2AError) -> None:
        """Tell the listeners of a task that its run is over and that its end could not be stored."""
        for listener in self._listeners.get(task_id, ()):
            listener.fail(error)


class Waiter:
    """Wakes one thread when a task pauses (or, with `ended`, when its run has ended).

    A hint like all of this room: what it tells may belong to an earlier run, so look at the store before you believe it.
    """

    __slots__ = ("_ended_only", "_error", "_hub", "_signal", "_task_id")

    def __init__(self, hub: EventHub, task_id: str, *, ended: bool = False) -> None:
        self._hub = hub
        self._task_id = task_id
        self._ended_only = ended
        self._error: A2AError | None = None
        self._signal = threading.Lock()
        self._signal.acquire()
        hub.add(task_id, self)

    def offer(self, entries: Sequence[Entry], ended: bool) -> None:
        if ended or (not self._ended_only and any(pauses(entry.event) for entry in entries)):
            self._wake()

    def fail(self, error: A2AError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:
            pass  # it was set already

    def wait(self, timeout: float) -> bool:
        """Block for at most `timeout` seconds; True when it happened. May be called again.

        Raises:
            A2AError: the run is over and its end could not be stored.
        """
        woken = self._signal.acquire(timeout=timeout)
        if self._error is not None:
            raise self._error
        return woken

    def close(self) -> None:
        """Stop listening."""
        self._hub.remove(self._task_id, self)

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscription:
    """A bounded queue of batches for one follower of one task."""

    __slots__ = ("_error", "_hub", "_missed", "_queue", "_task_id")

    def __init__(self, hub: EventHub, task_id: str, *, size: int) -> None:
        self._hub = hub
        self._task_id = task_id
        self._queue: queue.Queue[tuple[Sequence[Entry], bool] | None] = queue.Queue(size)
        self._missed = False
        self._error: A2AError | None = None
        hub.add(task_id, self)

    def offer(self, entries: Sequence[Entry], ended: bool) -> None:
        try:
            self._queue.put_nowait((entries, ended))
        except queue.Full:
            self._missed = True

    def fail(self, error: A2AError) -> None:
        self._error = error
        self.wake()

    def take(self, timeout: float) -> tuple[list[Entry], bool, bool]:
        """Wait for at most `timeout` seconds: entries, whether the run ended, whether something was missed.

        Raises:
            A2AError: the run is over and its end could not be stored.
        """
        entries: list[Entry] = []
        ended = False
        try:
            batch = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
            while batch is not None:
                entries += batch[0]
                ended = batch[1]
                batch = self._queue.get_nowait()
        except queue.Empty:
            pass
        if self._error is not None:
            raise self._error
        missed, self._missed = self._missed, False
        return entries, ended, missed

    def hint(self) -> None:
        """Something was appended elsewhere: the next `take` says that something was missed."""
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

    It ends when the run that is going on (or, on an idle task, the next one) has freed its token. Nothing is read from
    the store while the published numbers join on. `poll` and iteration belong to one thread; `close` to any.
    """

    def __init__(
        self,
        store: TaskStore,
        scope: Scope,
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
        self._ended = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Nothing will come any more."""
        return self._closed

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """What has come within `timeout` seconds (maybe nothing), or None when the stream has ended.

        Raises:
            StoreError: the log cannot be read.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return [first]
        if self._ended or self._closed:
            self.close()
            return None
        entries, ended, missed = self._subscription.take(timeout)
        fresh = [entry for entry in entries if entry.number > self._cursor]
        joined = all(entry.number == self._cursor + place for place, entry in enumerate(fresh, 1))
        # An end that comes with nothing new may be that of the run before: the log knows.
        if missed or not joined or (ended and not fresh):
            return self._catch_up()
        self._ended = ended
        return self._accept(fresh)

    def _catch_up(self) -> list[StreamItem] | None:
        items: list[StreamItem] = []
        while True:
            try:
                page = self._store.log(self._scope, self.task_id, after=self._cursor)
            except TaskNotFoundError:
                self.close()
                return items or None
            items += self._accept(page.entries)
            if not page.entries or self._cursor >= page.version:
                self._ended = not page.running and not self._idle
                return items

    def _accept(self, entries: Sequence[Entry]) -> list[StreamItem]:
        if entries:
            self._cursor = entries[-1].number
            self._idle = False
        return [StreamItem(e.event, e.number, e.encoded) for e in entries if e.streamed]

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(1.0)) is not None:
            yield from items

    def close(self) -> None:
        self._closed = True
        self._subscription.close()
        self._subscription.wake()


class SingleItemStream:
    """The stream of an agent that answered with a message and no task (spec 3.1.2)."""

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
    """A stream that can be asked for what has come so far: what a server needs to send heartbeats in between."""

    def poll(self, timeout: float) -> list[StreamItem] | None: ...

    def __iter__(self) -> Iterator[StreamItem]: ...

    def close(self) -> None: ...
