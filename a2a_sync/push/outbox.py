"""When webhooks are told: after each entry of their tasks, after a pause, and after the process that told them has died.

One thread decides, and looks at the store for it; the posts are made on others, one webhook at a time on each. A webhook
whose receiver hangs takes one of them, and all those of one receiver, or of receivers in trouble, only some: so the rest
goes on. Nothing here waits for a receiver, and no run waits for anything here.
"""

from __future__ import annotations

import heapq
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import EventHub
from a2a_sync.errors import AgentError, OverloadedError, TaskNotFoundError
from a2a_sync.lifecycle import Entry
from a2a_sync.limits import Limits
from a2a_sync.push.delivery import Delivery, Turn
from a2a_sync.push.line import Line
from a2a_sync.stores.base import Owner, TaskStore
from a2a_sync.stores.webhooks import StoredWebhook
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.telemetry.tracing import outgoing, traced

logger = get_logger(__name__)

#: Another process that tells of an entry is most likely the one that tells the webhooks too: it gets so many seconds.
_OTHERS_FIRST = 0.3
#: A task that tells of many entries is looked at no more often than that, in seconds.
_BREATH = 0.02
#: Tasks that others tell of are looked at one by one, up to so many.
_MANY = 50
#: Webhooks that are read at once of those that are due.
_SCAN = 1000
#: When to look again after a fault of the store, in seconds.
_AFTER_FAULT = 5.0
#: How long `Outbox.close` waits for the posts that go on, in seconds.
_FAREWELL = 1.0


class _Ear:
    """Listens to one task for the outbox."""

    __slots__ = ("_inbox", "looked", "near", "scope", "task_id", "trace", "waiting")

    def __init__(self, inbox: _Inbox, scope: Owner, task_id: str) -> None:
        self._inbox = inbox
        self.scope = scope
        self.task_id = task_id
        #: It is in the inbox.
        self.waiting = False
        #: What was heard came from this process.
        self.near = False
        #: When it was looked at, or is going to be.
        self.looked = float("-inf")
        self.trace: dict[str, str] = {}

    def offer(self, entries: Sequence[Entry], ended: bool) -> None:
        self.call(near=bool(entries))

    def call(self, *, near: bool) -> None:
        """Have the task looked at."""
        if near:
            self.near = True
            self.trace = outgoing() or self.trace
        if not self.waiting:
            self.waiting = True
            self._inbox.put(self)

    def fail(self, error: AgentError) -> None:
        """Nothing was stored, so there is nothing to tell."""

    def stop(self) -> None:
        """The outbox is closed by itself."""


class _Inbox:
    """What the deciding thread has to look at, put there by others."""

    def __init__(self) -> None:
        self.bell = threading.Event()
        #: There is nothing to do right now.
        self.quiet = threading.Event()
        self.ears: deque[_Ear] = deque()
        self.turns: deque[tuple[StoredWebhook, Turn]] = deque()

    def put(self, ear: _Ear) -> None:
        self.ears.append(ear)
        self.quiet.clear()
        self.bell.set()

    def end(self, webhook: StoredWebhook, turn: Turn) -> None:
        self.turns.append((webhook, turn))
        self.bell.set()


class Outbox:
    """See the module. `enter` makes this process known as one that is alive, where the store is shared.

    The thread is started by `start` and `follow`; a forked child starts its own.
    """

    def __init__(
        self,
        store: TaskStore,
        hub: EventHub,
        delivery: Delivery,
        limits: Limits,
        quotas: Quotas,
        *,
        enter: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._hub = hub
        self._delivery = delivery
        self._limits = limits
        self._quotas = quotas
        self._enter = enter
        self._closed = False
        # A thread tells that its turn has ended a moment before it takes the next one.
        most = limits.push_deliveries
        self._pool = WorkerPool(threads=most, waiting=most, leftovers=0, name="a2a-push")
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._inbox = _Inbox()
        self._ears: dict[str, _Ear] = {}
        self._name = secrets.token_hex(4)
        # From here on known to the deciding thread only.
        self._line = Line(self._limits.push_deliveries, self._quotas)
        self._timers: list[tuple[float, str, Owner]] = []
        self._set: dict[str, float] = {}
        self._next_scan = 0.0

    # -- from any thread --

    def start(self) -> None:
        """Tell what there is to tell from now on, if that has not begun. Cheap then."""
        if self._thread is not None or self._closed:
            return
        with self._lock:
            if self._thread is None:
                self._thread = start_thread("a2a-outbox", _decide, weakref.ref(self), self._inbox.bell)

    def follow(self, scope: Owner, task_id: str) -> None:
        """A webhook of this task was set, or a run on it has begun: look at it now, and listen to it."""
        self._listen(scope, task_id).call(near=True)
        self.start()

    def close(self, timeout: float = _FAREWELL) -> None:
        """Tell nothing any more, after at most `timeout` seconds in which what can be told now is told. Idempotent.

        What is left is told by others that share the store, or after the next start.
        """
        if self._thread is not None and not self._closed:
            self._inbox.quiet.wait(timeout)
            self._closed = True
            self._inbox.bell.set()
            self._thread.join(_FAREWELL)
            # What is still posted is told again by somebody else, from here on.
            try:
                self._store.webhooks.release(self._holder())
            except Exception:
                logger.exception("webhooks are still held; they are free when this process ends")
        self._closed = True
        self._inbox.bell.set()
        self._pool.close()
        with self._lock:
            ears, self._ears = self._ears, {}
        for ear in ears.values():
            self._hub.remove(ear.task_id, ear)

    def _listen(self, scope: Owner, task_id: str) -> _Ear:
        with self._lock:
            ear = self._ears.get(task_id)
            if ear is None:
                ear = self._ears[task_id] = _Ear(self._inbox, scope, task_id)
                self._hub.add(task_id, ear)
        return ear

    def _ignore(self, task_id: str) -> None:
        with self._lock:
            ear = self._ears.pop(task_id, None)
        if ear is not None:
            self._hub.remove(task_id, ear)

    # -- the deciding thread --

    def decide(self) -> float | None:
        """Look at what has come, and begin the turns that can begin; how long nothing more can be done. None: the end."""
        if self._closed:
            return None
        self._inbox.bell.clear()
        now = time.monotonic()
        self._end_turns(now)
        self._hear(now)
        while self._timers and self._timers[0][0] <= now:
            moment, task_id, scope = heapq.heappop(self._timers)
            if self._set.get(task_id) == moment:
                del self._set[task_id]
                self._look(scope, task_id)
        if now >= self._next_scan:
            self._scan(now)
        self._begin_turns()
        self._note_quiet()
        next_ = min(self._next_scan, self._timers[0][0] if self._timers else self._next_scan)
        return max(0.0, next_ - time.monotonic())

    def _note_quiet(self) -> None:
        inbox = self._inbox
        if self._line.idle:
            inbox.quiet.set()
            # What came in between was not counted.
            if inbox.ears or inbox.turns:
                inbox.quiet.clear()

    def _hear(self, now: float) -> None:
        """Have the tasks looked at that something was heard of; those of other processes later, and many of them by a scan."""
        far = []
        while self._inbox.ears:
            ear = self._inbox.ears.popleft()
            # From here on it may come again: it is looked at later than this.
            ear.waiting = False
            if ear.near:
                ear.near = False
                ear.looked = max(now, ear.looked + _BREATH)
                self._look_at(ear.looked, ear.scope, ear.task_id)
            else:
                far.append(ear)
        if len(far) > _MANY:
            self._next_scan = min(self._next_scan, now + _OTHERS_FIRST)
        else:
            for ear in far:
                self._look_at(now + _OTHERS_FIRST, ear.scope, ear.task_id)

    def _look_at(self, moment: float, scope: Owner, task_id: str) -> None:
        if self._set.get(task_id, moment + 1) > moment:
            self._set[task_id] = moment
            heapq.heappush(self._timers, (moment, task_id, scope))

    def _look(self, scope: Owner, task_id: str) -> None:
        """Find out which webhooks of a task are to be told something, and when; listen as long as there may be more."""
        try:
            webhooks = self._store.webhooks.of_task(scope, task_id)
        except TaskNotFoundError:
            webhooks = ()
        except Exception:
            logger.exception("the webhooks of a task cannot be read; it is tried again", extra={"task_id": task_id})
            self._look_at(time.monotonic() + _AFTER_FAULT, scope, task_id)
            return
        if any(webhook.open for webhook in webhooks):
            self._listen(scope, task_id)
        else:
            self._ignore(task_id)
        for webhook in webhooks:
            # What another one holds is that one's business, or a scan's.
            self._consider(webhook, free=webhook.holder in ("", self._holder()))

    def _scan(self, now: float) -> None:
        """Find what nobody tells: others have died, and this process was not always here."""
        self._next_scan = now + self._limits.store_poll_interval
        try:
            found = self._store.webhooks.due(now_ms=_now_ms(), limit=_SCAN)
        except Exception:
            logger.exception("the webhooks that are due cannot be read; it is tried again")
            return
        for webhook in found:
            self._consider(webhook, free=True)

    def _consider(self, webhook: StoredWebhook, *, free: bool) -> None:
        # After its turn it is looked at again in any case.
        if webhook.behind and free and not self._line.active(webhook):
            # A clock that was wrong makes nobody wait for longer than that.
            wait = min((webhook.due_ms - _now_ms()) / 1000, self._limits.push_longest_pause)
            if wait > 0:
                self._look_at(time.monotonic() + wait, webhook.scope, webhook.task_id)
            else:
                self._line.add(webhook)

    # -- turns --

    def _begin_turns(self) -> None:
        while (webhook := self._line.next()) is not None:
            self._begin(webhook)

    def _begin(self, webhook: StoredWebhook) -> None:
        try:
            if self._enter is not None:
                self._enter()
            slot = self._pool.reserve()
        except Exception as error:
            if not isinstance(error, OverloadedError):
                logger.exception("a webhook cannot be told now; it is tried again", extra={"task_id": webhook.task_id})
            self._inbox.end(webhook, Turn(_AFTER_FAULT))
            return
        ear = self._ears.get(webhook.task_id)
        try:
            slot.submit(partial(self._take_turn, webhook, ear.trace if ear is not None else {}, self._inbox))
        except RuntimeError:
            logger.exception("no thread to tell a webhook; it is tried again")
            slot.release()
            self._inbox.end(webhook, Turn(_AFTER_FAULT))

    def _take_turn(self, webhook: StoredWebhook, trace: dict[str, str], inbox: _Inbox) -> None:
        """On a thread of the pool."""
        turn = Turn(_AFTER_FAULT)
        try:
            with traced("A2A push notification", trace, kind="client", task_id=webhook.task_id):
                turn = self._delivery.take_turn(webhook, self._holder(), stop=lambda: self._closed)
        finally:
            inbox.end(webhook, turn)

    def _holder(self) -> str:
        workers = self._store.workers
        return f"{workers.id}.{self._name}" if workers is not None else self._name

    def _end_turns(self, now: float) -> None:
        while self._inbox.turns:
            webhook, turn = self._inbox.turns.popleft()
            self._line.end(webhook, took=turn.took)
            # Also where nothing is left to tell: whether anything can come any more is to be seen.
            self._look_at(now + (turn.again or 0.0), webhook.scope, webhook.task_id)


def _decide(outbox: weakref.ref[Outbox], bell: threading.Event) -> None:
    """The thread. It does not keep alive an app that nobody uses any more."""
    pause: float | None = 0.0
    while True:
        bell.wait(pause)
        own = outbox()
        if own is None:
            return
        try:
            pause = own.decide()
        except Exception:
            logger.exception("the webhooks could not be looked after; it is tried again")
            pause = _AFTER_FAULT
        if pause is None:
            return
        del own


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
