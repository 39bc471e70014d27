"""Schedules deliveries to webhooks: after each entry of their tasks, after a backoff, and after the process that held them has died.

One thread schedules, and reads the store for that. The posts are made on other threads, one webhook at a time on each. A receiver
that hangs blocks one of these, and all webhooks of one receiver, or of unreliable receivers, get only some of them, so the others go
on. The scheduler waits for no receiver, and no run waits for the scheduler.
"""

from __future__ import annotations

import heapq
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.engine.components import Component
from a2a_sync.engine.engine import Engine
from a2a_sync.errors import AgentError, OverloadedError, TaskNotFoundError
from a2a_sync.push.delivery import Delivery, Turn
from a2a_sync.push.fairqueue import FairQueue
from a2a_sync.push.options import PushOptions
from a2a_sync.stores.base import Owner, StoredWebhook, TaskBatch, Webhooks
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.telemetry.tracing import outgoing, traced

logger: Final = get_logger(__name__)

#: The process that stored an entry most likely delivers it as well: others wait so many seconds.
_REMOTE_DELAY = 0.3
#: The webhooks of a task with many entries are checked no more often than that, in seconds.
_MIN_CHECK_INTERVAL = 0.02
#: So many tasks that other processes have written to are checked one by one; more of them by a scan.
_MAX_SINGLE_CHECKS = 50
#: Due webhooks that a scan reads at once.
_SCAN_LIMIT = 1000
#: When to retry after a fault of the store, in seconds.
_AFTER_FAULT = 5.0
#: A difference between two clocks that counts as slew, not as a step, in seconds.
_TOLERANCE = 1.0
#: After every time that a webhook can be due, in milliseconds.
_NEVER_MS = 2**62
#: How long `Outbox.close` waits for posts in progress, in seconds.
_CLOSE_TIMEOUT = 1.0


class TaskListener:
    """Requests a check of the webhooks of one task when that has new entries."""

    __slots__ = ("_mailbox", "checked_at", "local", "owner", "task_id", "trace", "waiting")

    def __init__(self, mailbox: _Mailbox, owner: Owner, task_id: str) -> None:
        self._mailbox = mailbox
        self.owner: Owner = owner
        self.task_id: str = task_id
        #: It is in the mailbox.
        self.waiting: bool = False
        #: New entries were stored by this process.
        self.local: bool = False
        #: When the task was checked, or is going to be.
        self.checked_at: float = float("-inf")
        self.trace: dict[str, str] = {}

    def offer(self, batch: TaskBatch) -> None:
        self.request_check(local=batch.local and bool(batch.entries))

    def hint(self) -> None:
        self.request_check(local=False)

    def request_check(self, *, local: bool) -> None:
        """Have the scheduler check the webhooks of the task."""
        if local:
            self.local = True
            self.trace = outgoing() or self.trace
        if not self.waiting:
            self.waiting = True
            self._mailbox.put(self)

    def fail(self, error: AgentError) -> None:
        """Nothing was stored, so nothing is pending."""

    def stop(self) -> None:
        """The outbox has a lifecycle of its own."""


class _Mailbox:
    """Work for the scheduling thread, from other threads."""

    def __init__(self) -> None:
        self.wake: threading.Event = threading.Event()
        #: No work is pending.
        self.idle: threading.Event = threading.Event()
        self.listeners: deque[TaskListener] = deque()
        self.turns: deque[tuple[StoredWebhook, Turn]] = deque()

    def put(self, listener: TaskListener) -> None:
        self.listeners.append(listener)
        self.idle.clear()
        self.wake.set()

    def end(self, webhook: StoredWebhook, turn: Turn) -> None:
        self.turns.append((webhook, turn))
        self.wake.set()


class Outbox(Component):
    """The component of `engine` that posts notifications. `count` is called with the outcome of each post.

    The webhooks that are due are read every `Limits.store_poll_interval` seconds. The thread is started by `start` and `follow`; a forked child starts its own.
    """

    def __init__(
        self, engine: Engine, webhooks: Webhooks, options: PushOptions, *, count: Callable[[str], None] | None = None
    ) -> None:
        self._store = engine.store
        self._webhooks = webhooks
        self._hub = engine.hub
        self._delivery = Delivery(
            engine.store,
            webhooks,
            options,
            reads=engine.runs.reads,
            max_history_length=engine.limits.max_history_length,
            count=count,
        )
        self._options = options
        self._poll_interval = engine.limits.store_poll_interval
        self._quotas = engine.quotas
        self._join = engine.membership.join if engine.membership is not None else None
        self._closed = False
        engine.runs.on_begun = self.follow
        # The runs write what is still to be posted, so they end first.
        engine.register(self, before=engine.runs)
        # A thread reports the end of its turn a moment before it is free for the next one.
        most = options.max_concurrent_deliveries
        self._pool = WorkerPool(threads=most, max_queued=most, max_abandoned=0, name="a2a-push")
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread and its state are the parent's."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._mailbox = _Mailbox()
        self._listeners: dict[str, TaskListener] = {}
        self._name = secrets.token_hex(4)
        # The rest is used by the scheduling thread only.
        self._queue = FairQueue(self._options.max_concurrent_deliveries, self._quotas)
        self._timers: list[tuple[float, str, Owner]] = []
        self._check_times: dict[str, float] = {}
        self._next_scan = 0.0
        #: By how much the system clock was ahead of the monotonic one at the last scan.
        self._ahead = float("inf")

    # -- from any thread --

    def start(self) -> bool:
        if self._thread is not None or self._closed:
            return True
        with self._lock:
            if self._thread is None:
                self._thread = start_thread("a2a-outbox", _schedule, weakref.ref(self), self._mailbox.wake)
            return self._thread is not None

    def follow(self, owner: Owner, task_id: str) -> None:
        """Check the webhooks of this task now, and after each entry: one was set, or a run has begun."""
        self._listen(owner, task_id).request_check(local=True)
        self.start()

    def close(self, timeout: float = 10.0) -> None:
        """Post what can be posted within a second, whatever `timeout` is, and nothing after that.

        The rest is delivered by other processes that share the store, or after the next start.
        """
        if self._thread is not None and not self._closed:
            self._mailbox.idle.wait(_CLOSE_TIMEOUT)
            self._closed = True
            self._mailbox.wake.set()
            self._thread.join(_CLOSE_TIMEOUT)
            # From here on other processes repeat the posts that are still in progress.
            try:
                self._webhooks.release(self._holder())
            except Exception:
                logger.exception("webhooks are still held; they are released when this process ends")
        self._closed = True
        self._mailbox.wake.set()
        self._pool.close()
        with self._lock:
            listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            self._hub.remove(listener.task_id, listener)

    def _listen(self, owner: Owner, task_id: str) -> TaskListener:
        with self._lock:
            listener = self._listeners.get(task_id)
            if listener is None:
                listener = self._listeners[task_id] = TaskListener(self._mailbox, owner, task_id)
                self._hub.add(task_id, listener)
        return listener

    def _stop_listening(self, task_id: str) -> None:
        with self._lock:
            listener = self._listeners.pop(task_id, None)
        if listener is not None:
            self._hub.remove(task_id, listener)

    # -- on the scheduling thread --

    def schedule(self) -> float | None:
        """Handle pending work and begin the turns that can begin; the seconds until there is more to do. None: the thread ends."""
        if self._closed:
            return None
        self._mailbox.wake.clear()
        now = time.monotonic()
        self._end_turns(now)
        self._take_requests(now)
        self._run_timers(now)
        if now >= self._next_scan or self._queue.wants_more():
            self._scan(now)
        while (webhook := self._queue.next()) is not None:
            self._begin(webhook)
        self._update_idle()
        next_ = min(self._next_scan, self._timers[0][0] if self._timers else self._next_scan)
        return max(0.0, next_ - time.monotonic())

    def _update_idle(self) -> None:
        mailbox = self._mailbox
        if self._queue.idle:
            mailbox.idle.set()
            # Work may have come in between.
            if mailbox.listeners or mailbox.turns:
                mailbox.idle.clear()

    def _run_timers(self, now: float) -> None:
        """Check the tasks whose time has come."""
        while self._timers and self._timers[0][0] <= now:
            moment, task_id, owner = heapq.heappop(self._timers)
            if self._check_times.get(task_id) == moment:
                del self._check_times[task_id]
                self._check(owner, task_id)

    def _take_requests(self, now: float) -> None:
        """Schedule the requested checks; those of other processes' entries later, and many of them as one scan."""
        remote = []
        while self._mailbox.listeners:
            listener = self._mailbox.listeners.popleft()
            # From here on it may be requested again: the check comes after this.
            listener.waiting = False
            if listener.local:
                listener.local = False
                listener.checked_at = max(now, listener.checked_at + _MIN_CHECK_INTERVAL)
                self._check_at(listener.checked_at, listener.owner, listener.task_id)
            else:
                remote.append(listener)
        if len(remote) > _MAX_SINGLE_CHECKS:
            self._next_scan = min(self._next_scan, now + _REMOTE_DELAY)
        else:
            for listener in remote:
                self._check_at(now + _REMOTE_DELAY, listener.owner, listener.task_id)

    def _check_at(self, moment: float, owner: Owner, task_id: str) -> None:
        if self._check_times.get(task_id, moment + 1) > moment:
            self._check_times[task_id] = moment
            heapq.heappush(self._timers, (moment, task_id, owner))

    def _check(self, owner: Owner, task_id: str) -> None:
        """Queue the webhooks of a task that have pending notifications; listen to the task while there may be more."""
        try:
            webhooks = self._webhooks.of_task(owner, task_id)
        except TaskNotFoundError:
            webhooks = ()
        except Exception:
            logger.exception("the webhooks of a task cannot be read; this is retried", extra={"task_id": task_id})
            self._check_at(time.monotonic() + _AFTER_FAULT, owner, task_id)
            return
        if any(webhook.open for webhook in webhooks):
            self._listen(owner, task_id)
        else:
            self._stop_listening(task_id)
        for webhook in webhooks:
            # A webhook that another process holds is left to that process, or to a scan.
            self._queue_if_due(webhook, free=webhook.holder in ("", self._holder()))

    def _scan(self, now: float) -> None:
        """Queue the due webhooks that no process delivers to, because it died or has not started yet."""
        self._next_scan = now + self._poll_interval
        ahead = time.time() - now
        try:
            # In a new process, and after the clock went back, also those that are due later: see `_queue_if_due`.
            now_ms = _now_ms() if ahead > self._ahead - _TOLERANCE else _NEVER_MS
            found = self._webhooks.due(now_ms=now_ms, limit=_SCAN_LIMIT)
        except Exception:
            logger.exception("the due webhooks cannot be read; this is retried")
            return
        self._ahead = ahead
        for webhook in found:
            self._queue_if_due(webhook, free=True)

    def _queue_if_due(self, webhook: StoredWebhook, *, free: bool) -> None:
        # A webhook in delivery is checked after its turn anyway.
        if webhook.behind and free and not self._queue.active(webhook):
            wait = (webhook.due_ms - _now_ms()) / 1000
            # A time that is further away was set before the clock went back.
            if 0 < wait <= self._options.max_backoff:
                self._check_at(time.monotonic() + wait, webhook.owner, webhook.task_id)
            else:
                self._queue.add(webhook)

    # -- turns --

    def _begin(self, webhook: StoredWebhook) -> None:
        try:
            if self._join is not None:
                self._join()
            slot = self._pool.reserve()
        except Exception as error:
            if not isinstance(error, OverloadedError):
                logger.exception("a delivery cannot begin now; it is retried", extra={"task_id": webhook.task_id})
            self._mailbox.end(webhook, Turn(_AFTER_FAULT))
            return
        listener = self._listeners.get(webhook.task_id)
        try:
            slot.submit(
                partial(self._take_turn, webhook, listener.trace if listener is not None else {}, self._mailbox)
            )
        except RuntimeError:
            logger.exception("no thread for a delivery; it is retried")
            slot.release()
            self._mailbox.end(webhook, Turn(_AFTER_FAULT))

    def _take_turn(self, webhook: StoredWebhook, trace: dict[str, str], mailbox: _Mailbox) -> None:
        """On a thread of the pool."""
        turn = Turn(_AFTER_FAULT)
        try:
            with traced("A2A push notification", trace, kind="client", task_id=webhook.task_id):
                turn = self._delivery.deliver(webhook, self._holder(), stop=lambda: self._closed)
        finally:
            mailbox.end(webhook, turn)

    def _holder(self) -> str:
        workers = self._store.workers
        return f"{workers.id}.{self._name}" if workers is not None else self._name

    def _end_turns(self, now: float) -> None:
        while self._mailbox.turns:
            webhook, turn = self._mailbox.turns.popleft()
            self._queue.end(webhook, accepted=turn.accepted)
            # Also where nothing is pending: the check decides whether to go on listening to the task.
            self._check_at(now + (turn.retry_in or 0.0), webhook.owner, webhook.task_id)


def _schedule(outbox: weakref.ref[Outbox], wake: threading.Event) -> None:
    """The scheduling thread. It does not keep an unused app alive."""
    pause: float | None = 0.0
    while True:
        wake.wait(pause)
        own = outbox()
        if own is None:
            return
        try:
            pause = own.schedule()
        except Exception:
            logger.exception("deliveries could not be scheduled; this is retried")
            pause = _AFTER_FAULT
        if pause is None:
            return
        del own


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
