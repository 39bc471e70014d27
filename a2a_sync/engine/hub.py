"""Publication of new log entries inside one process: to blocked calls, streams, and everything else that follows a task.

The log is the truth; a publication only says that it has grown. `EventHub.publish` passes entries to local listeners without
blocking. A listener that missed some (a full queue, a hint without entries, a gap in the numbers) reads the log after its
cursor. No user code and no store is called under a lock of this module.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.engine.tail import Tail
from a2a_sync.errors import AgentError, StoreError, TaskNotFoundError
from a2a_sync.lifecycle import Entry, Fold, ends_run, pauses
from a2a_sync.operations import StreamItem
from a2a_sync.sizes import entry_size
from a2a_sync.stores.base import LOG_PAGE_BYTES, LogPage, Owner, PubSub, TaskBatch, TaskStore
from a2a_sync.telemetry.incidents import call_error
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Role, Task, TaskState, TaskStatusUpdateEvent

logger: Final = get_logger(__name__)

_T = TypeVar("_T")

#: Entries that a `Waiter` keeps: enough for a short run, while a long one costs no memory.
_KEPT = 64
#: How long streams wait for a store that cannot be reached, and the pauses between their attempts, in seconds.
_OUTAGE = 30.0
_PAUSES = (0.5, 1.0)


#: Gets the batches of all tasks that this process stores, on the thread that stored them.
Observer: TypeAlias = Callable[[TaskBatch], None]


class Listener(Protocol):
    """Gets the batches of one task. No method may block, raise or call a store."""

    def offer(self, batch: TaskBatch) -> None: ...

    def hint(self) -> None:
        """Something may have happened that was not offered: the log has it."""

    def fail(self, error: AgentError) -> None: ...

    def stop(self) -> None: ...


class EventHub:
    """Listeners of this process by task id. A forked child starts without any."""

    def __init__(self) -> None:
        self._closed = False
        #: Carries what this process stores to the others; set before the first listener is added.
        self.pubsub: PubSub | None = None
        self._observers: tuple[Observer, ...] = ()
        renew_per_process(self)

    @property
    def has_listeners(self) -> bool:
        """At least one task has a listener."""
        return bool(self._listeners)

    @property
    def followed(self) -> tuple[str, ...]:
        """The tasks that have listeners."""
        return tuple(self._listeners)

    def renew(self) -> None:
        """In a forked child: the listeners are the parent's."""
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        #: Of tasks with several listeners that read the log.
        self._tails: dict[str, Tail] = {}

    def add(self, task_id: str, listener: Listener) -> None:
        """Pass each batch of `task_id` to `listener` from now on; those of other processes while there is a subscription."""
        with self._lock:
            self._listeners[task_id] = (*self._listeners.get(task_id, ()), listener)
        if self._closed:
            listener.stop()

    def remove(self, task_id: str, listener: Listener) -> bool:
        """Undo `add`; False: it was undone before."""
        with self._lock:
            known = self._listeners.get(task_id, ())
            left = () if known == (listener,) else tuple([one for one in known if one is not listener])
            if left:
                self._listeners[task_id] = left
            else:
                self._listeners.pop(task_id, None)
            if len(left) < 2:
                self._tails.pop(task_id, None)
        return len(left) < len(known)

    def subscribe(self, task_id: str) -> None:
        """Receive what other processes store for a task, until `unsubscribe` is called as often."""
        if self.pubsub is not None:
            self.pubsub.subscribe(task_id)

    def unsubscribe(self, task_id: str) -> None:
        """Undo one `subscribe`."""
        if self.pubsub is not None:
            self.pubsub.unsubscribe(task_id)

    def listeners(self, task_id: str) -> tuple[Listener, ...]:
        """The listeners of a task."""
        return self._listeners.get(task_id, ())

    def observe(self, observer: Observer) -> None:
        """Call `observer` with every batch from now on. It must not block; what it raises is logged."""
        self._observers = (*self._observers, observer)

    def publish(
        self,
        owner: Owner,
        task_id: str,
        entries: Sequence[Entry],
        *,
        before: TaskState = TaskState.UNSPECIFIED,
        ended: bool = False,
    ) -> None:
        """Pass what was just appended to a task (see `TaskBatch`) to the observers, its listeners and the other processes."""
        listeners = self._listeners.get(task_id)
        if listeners or self._observers or self.pubsub is not None:
            batch = TaskBatch(owner, task_id, entries, before, ended)
            # Before the listeners: when a call returns, the observers have seen what it did.
            for observer in self._observers:
                self._show(observer, batch)
            # It has the longest way to go. No other process follows a task that was not stored before.
            if self.pubsub is not None and not (entries and entries[0].number == 1):
                self.pubsub.publish(batch)
            if listeners:
                if self._tails:
                    self.note_publication(task_id)
                for listener in listeners:
                    listener.offer(batch)

    @staticmethod
    def _show(observer: Observer, batch: TaskBatch) -> None:
        try:
            observer(batch)
        except Exception:
            logger.exception("an observer of tasks failed", extra={"task_id": batch.task_id})

    def removed(self, task_id: str) -> None:
        """A task was removed from the store: its listeners in all processes read the log and find it gone."""
        self.hint(task_id)
        if self.pubsub is not None:
            self.pubsub.publish(TaskBatch(Owner(), task_id, ended=True))

    def receive(self, task_id: str, batch: TaskBatch | None) -> None:
        """Pass what another process has stored to the listeners of its task; without a batch they read the log."""
        if batch is None:
            self.hint(task_id)
            return
        batch = batch._replace(local=False)
        self.note_publication(task_id)
        for listener in self.listeners(task_id):
            listener.offer(batch)

    def hint(self, task_id: str | None = None) -> None:
        """Entries may have been added to a task (None: to any task): its listeners read the log."""
        for one in [task_id] if task_id is not None else list(self._listeners):
            self.note_publication(one)
            for listener in self.listeners(one):
                listener.hint()

    def note_publication(self, task_id: str) -> None:
        """What streams have read of a task's log may no longer be all of it."""
        if (tail := self._tails.get(task_id)) is not None:
            tail.note_publication()

    def read_log(self, task_id: str, after: int, load: Callable[[], LogPage]) -> LogPage:
        """The page of a task's log that `load` reads for a listener, or that another listener has read since it grew.

        Raises:
            Exception: that of `load`.
        """
        with self._lock:
            several = len(self._listeners.get(task_id, ())) > 1
            tail = self._tails.setdefault(task_id, Tail()) if several else None
        return load() if tail is None else tail.read(after, load)

    def fail(self, task_id: str, error: AgentError) -> None:
        """Fail the listeners of a task whose run is over, because its end could not be stored."""
        for listener in self.listeners(task_id):
            listener.fail(error)

    def stop(self, *, but: Collection[str] = ()) -> None:
        """Wake all waiters and end all streams that are open now, except those of the tasks in `but`."""
        with self._lock:
            known = {task_id: listeners for task_id, listeners in self._listeners.items() if task_id not in but}
        for task_id, listeners in known.items():
            self.note_publication(task_id)
            for listener in listeners:
                listener.stop()

    def close(self) -> None:
        """Publish nothing more: wake all waiters and end all streams, present and later ones. Idempotent."""
        with self._lock:
            self._closed = True
        self.stop()


class Signal:
    """Wakes one thread, or a call without one. ``task_id`` is ``""`` where there is no task."""

    __slots__ = ("_error", "_signal", "on_wake", "task_id")

    def __init__(self, task_id: str = "") -> None:
        self.task_id: str = task_id
        #: Called after each wake-up; it does not block or raise.
        self.on_wake: Callable[[], None] | None = None
        self._error: AgentError | None = None
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        """Wake what waits now, or next."""
        if self._signal.locked():
            try:
                self._signal.release()
            except RuntimeError:
                pass  # another thread has set it meanwhile
        if self.on_wake is not None:
            self.on_wake()

    def hint(self) -> None:
        """As `wake`."""
        self.wake()

    def fail(self, error: AgentError) -> None:
        """Raise `error` where a call waits now, or next."""
        self._error = error
        self.wake()

    def wait(self, timeout: float) -> bool:
        """Block for at most `timeout` seconds; True after a wake-up. May be called again.

        Raises:
            AgentError: that of `fail`.
        """
        woken = self._signal.acquire(timeout=timeout)
        if self._error is not None:
            raise self._error
        return woken


class Wait(NamedTuple):
    """What a call waits for.

    Parameters:
        waiter: wakes when the call may go on.
        until: the monotonic time at which it goes on in any case.
    """

    waiter: Signal
    until: float


#: A call in steps: before each wait it yields what for, and is sent the seconds that it may block; it returns its result.
Steps: TypeAlias = Generator[Wait, float, _T]


class Waiter(Signal, Closes):
    """Wakes one thread when a task pauses (or, with `ended`, when its run has ended).

    A wake-up is a hint: it may belong to an earlier run, so the store has the last word. With ``subscribe=False`` the task is not
    stored yet, so that no other process knows it; call `subscribe` when it is.
    """

    __slots__ = ("_ended_only", "_entries", "_hub", "_subscribed", "stopped")

    def __init__(self, hub: EventHub, task_id: str, *, ended: bool = False, subscribe: bool = True) -> None:
        super().__init__(task_id)
        self._hub = hub
        self._ended_only = ended
        self._subscribed = False
        self._entries: list[Entry] = []
        #: This process publishes nothing more, though the task may go on.
        self.stopped: bool = False
        hub.add(task_id, self)
        if subscribe:
            self.subscribe()

    def subscribe(self) -> None:
        """Receive what other processes store for the task. Idempotent."""
        if not self._subscribed:
            self._subscribed = True
            self._hub.subscribe(self.task_id)

    def offer(self, batch: TaskBatch) -> None:
        if len(self._entries) < _KEPT:
            self._entries += batch.entries
        if batch.ended:
            self.hint()
        elif not self._ended_only:
            for entry in batch.entries:
                if pauses(entry.event):
                    self.hint()

    def task(self) -> Task | None:
        """The task as its entries give it from the first one on; None where some of them are only in the store."""
        fold = Fold()
        for place, entry in enumerate(list(self._entries), 1):
            if entry.number != place:
                return None
            fold.apply(entry.event)
        return fold.task()

    def stop(self) -> None:
        self.stopped = True
        self.hint()

    def close(self) -> None:
        """Remove the waiter from the hub. Idempotent."""
        if self._hub.remove(self.task_id, self) and self._subscribed:
            self._hub.unsubscribe(self.task_id)


class Subscription(Signal):
    """A queue of batches for one stream of one task, bounded in their number and their bytes.

    It holds `LOG_PAGE_BYTES`, besides the first batch that its reader has waited for: a reader that is slow reads the log instead. A
    `queue.SimpleQueue` would need 2 KB more on gevent. ``on_wake`` is called after each change that `take` would return.
    """

    __slots__ = ("_batches", "_bytes", "_hub", "_missed", "_size", "_waited_for", "stopped")

    def __init__(self, hub: EventHub, task_id: str, *, size: int) -> None:
        super().__init__(task_id)
        self._hub = hub
        self._batches: list[TaskBatch] = []
        self._size = size
        self._bytes = 0
        #: The reader has taken everything, and gets the next batch at once.
        self._waited_for = False
        self._missed = False
        #: Nothing will be published any more.
        self.stopped: bool = False
        hub.add(task_id, self)
        hub.subscribe(task_id)

    def offer(self, batch: TaskBatch) -> None:
        # Writers that come at once may each go past the bounds by one.
        fits = self._waited_for
        if fits:
            self._waited_for = False
        elif len(self._batches) < self._size and self._bytes < LOG_PAGE_BYTES:
            self._bytes += sum(map(entry_size, batch.entries))
            fits = self._bytes <= LOG_PAGE_BYTES
        if fits:
            self._batches.append(batch)
            self.wake()
        else:
            self.hint()

    def stop(self) -> None:
        self.stopped = True
        self.wake()

    def take(self, timeout: float) -> tuple[list[Entry], bool, bool]:
        """Wait at most `timeout` seconds; the entries, whether the run has ended, and whether entries were missed.

        Raises:
            AgentError: the run is over and its end could not be stored; what came before was taken already.
        """
        waits = self._waited_for = timeout > 0 and not (
            self._batches or self._missed or self.stopped or self._error is not None
        )
        # Cleared before the batches are read and set only after a change, so nothing is missed between the two.
        self._signal.acquire(timeout=timeout if waits else 0)
        entries: list[Entry] = []
        ended = False
        # A writer may append meanwhile.
        count = len(self._batches)
        for batch in self._batches[:count]:
            entries += batch.entries
            ended = batch.ended
        del self._batches[:count]
        self._bytes = 0
        self._waited_for = not count
        if self._error is not None and not entries:
            raise self._error
        # The same holds for the log.
        missed, self._missed = self._missed, False
        return entries, ended, missed

    def hint(self) -> None:
        """Entries were appended that are not in the queue: the next `take` reports them as missed."""
        self._missed = True
        self.wake()

    def catch_up(self) -> None:
        """As `hint`, and the log is read again for it: another process may have stored entries that are not known here."""
        self._hub.note_publication(self.task_id)
        self.hint()

    def read_log(self, after: int, load: Callable[[], LogPage]) -> LogPage:
        """See `EventHub.read_log`."""
        return self._hub.read_log(self.task_id, after, load)

    def close(self) -> None:
        if self._hub.remove(self.task_id, self):
            self._hub.unsubscribe(self.task_id)


@dataclass(eq=False, repr=False)
class TaskEventStream:
    """A task's events from a cursor on, each exactly once and in order; an `EventStream`.

    It is the stream of one run: the present one or, on an idle task, the next one. It ends after the entry that ends that
    run, or when the run has freed its token; it shows nothing of later runs, however late it is read. The store is not read
    while the published numbers are consecutive. `poll` and iteration are for one thread, `close` for any.

    Parameters:
        store, owner, task_id: the task.
        subscription: its listener, which receives what is published from now on.
        cursor: the number of the last entry that the reader has.
        running: a run holds the task.
        first: is returned before the entries.
    """

    _store: TaskStore
    _owner: Owner
    task_id: str
    _subscription: Subscription
    _: KW_ONLY
    cursor: int
    running: InitVar[bool]
    first: StreamItem | None = None

    def __post_init__(self, running: bool) -> None:
        self._idle = not running
        self._asked: StreamItem | None = None
        #: The entry that the run ended with, where that entry does not end a run by itself: ``auth-required``.
        self.closing: StreamItem | None = None
        self._behind = False
        #: Since when the store cannot be reached; None: it can.
        self._failing_since: float | None = None
        self._ended = False
        #: No further event will come.
        self.closed: bool = False

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """The events of the next `timeout` seconds, or None when the stream has ended; ``[]``: there are none yet.

        Raises:
            AgentError: the log cannot be read, or the run's end could not be stored. The stream has ended. A store that cannot
                be reached is tried again for half a minute.
        """
        if self.first is not None:
            first, self.first = self.first, None
            return [first]
        while not (self._ended or self.closed):
            items = self._read(timeout)
            if items or not self._behind or self._failing_since is not None:
                if self._ended and not items:
                    self._subscription.wake()  # the end follows
                return items
        self.close()
        return None

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback` from now on when ``poll(0)`` may return something else than ``[]``, on any thread.

        It must not block or raise, and is not called for what is there already.
        """
        self._subscription.on_wake = callback

    def _read(self, timeout: float) -> list[StreamItem]:
        try:
            items = self._catch_up() if self._behind else self._take(timeout)
        except AgentError:
            self._ended = True
            raise
        except Exception as error:
            if isinstance(error, StoreError) and error.transient and self._may_try_again(timeout):
                return []
            self._ended = True
            raise call_error(logger, "a log cannot be read", {"task_id": self.task_id}) from None
        self._failing_since = None
        return items

    def _may_try_again(self, timeout: float) -> bool:
        """Wait a little, as the store cannot be reached; False: that has lasted too long."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        self._behind = True
        # The store has made several attempts already.
        time.sleep(min(timeout, random.uniform(*_PAUSES)))
        return now - self._failing_since < _OUTAGE

    def _take(self, timeout: float) -> list[StreamItem]:
        entries, ended, missed = self._subscription.take(timeout)
        fresh = [entry for entry in entries if entry.number > self.cursor]
        if missed or self._subscription.stopped:
            return self._catch_up()
        for number, entry in enumerate(fresh, self.cursor + 1):
            if entry.number != number:
                return self._catch_up()
        items = self._accept(fresh)
        if ended and not self._ended:
            # An end without an entry that ends the run may be that of the run before: the log has the answer.
            items += self._catch_up()
        return items

    def _catch_up(self) -> list[StreamItem]:
        """One page of the log after the cursor; the next poll reads on."""
        try:
            page = self._subscription.read_log(self.cursor, self._load)
        except TaskNotFoundError:
            page = None
        if page is None or self.cursor < page.compacted:
            # Deleted, or the next entries were compacted away; a client that comes back gets a snapshot.
            self._ended = True
            return []
        items = self._accept(page.entries)
        self._behind = bool(page.entries) and self.cursor < page.version
        if not self._behind and (self._subscription.stopped or not (page.running or self._idle)):
            self._ended = True
            self.closing = None if page.running else self._asked
        return items

    def _load(self) -> LogPage:
        return self._store.log(self._owner, self.task_id, after=self.cursor, max_bytes=LOG_PAGE_BYTES)

    def _accept(self, entries: Sequence[Entry]) -> list[StreamItem]:
        items = []
        for entry in entries:
            kind = entry.kind
            if self._asked is not None and issubclass(kind, Message) and entry.role is Role.USER:
                # The request to authorise ended the run, and this message begins the next one.
                self._ended, self.closing = True, self._asked
                break
            self.cursor = entry.number
            self._idle = False
            if issubclass(kind, Message):
                self._ended = False
            elif issubclass(kind, TaskStatusUpdateEvent):
                event = entry.event
                items.append(StreamItem(event, entry.number, entry.encoded))
                self._ended = ends_run(event)
                self._asked = items[-1] if pauses(event) and not self._ended else None
            else:
                items.append(StreamItem.of(entry))
                self._ended, self._asked = False, None
            if self._ended:
                break
        return items

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(1.0)) is not None:
            yield from items

    def close(self) -> None:
        self.closed = True
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

    def notify(self, callback: Callable[[], None]) -> None:
        """Nothing follows that `poll` would not return now."""

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(0)) is not None:
            yield from items

    def close(self) -> None:
        self._item = None


class PolledStream(Protocol):
    """A stream that a server can poll. ``task_id`` is ``""`` where there is no task.

    A server that calls ``notify`` keeps no thread for the stream: from then on it polls when its callback is called.
    """

    @property
    def task_id(self) -> str: ...
    @property
    def closing(self) -> StreamItem | None: ...

    def poll(self, timeout: float) -> list[StreamItem] | None: ...

    def notify(self, callback: Callable[[], None]) -> None: ...

    def __iter__(self) -> Iterator[StreamItem]: ...

    def close(self) -> None: ...
