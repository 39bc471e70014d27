"""Threads that runs are executed on: daemon, named, bounded, started when needed.

`concurrent.futures` is not used because its threads are joined at interpreter exit and do not survive a fork. A slot is
reserved before anything is stored, so a request that a full pool refuses leaves nothing behind.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import patched
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.errors import OverloadedError
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: When a caller may retry where no thread may ever return, in seconds.
_EXHAUSTED_RETRY = 30.0


class Slot:
    """A reservation for one job of `owner`. ``ready``: a thread is free for it; ``extra``: a thread beside those of the pool."""

    __slots__ = ("_pool", "abandoned", "done", "extra", "job", "owner", "ready", "stuck")

    def __init__(self, pool: WorkerPool, owner: str, ready: bool, *, extra: bool = False) -> None:
        self._pool = pool
        self.owner: str = owner
        self.ready: bool = ready
        self.extra: bool = extra
        self.abandoned: bool = False
        self.stuck: bool = False
        self.done: bool = False
        self.job: Callable[[], None] = _nothing

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` on a thread of the pool, now or when one is free. Exceptions it lets out are logged.

        Raises:
            RuntimeError: the system gives no thread; the slot is still reserved.
        """
        self.job = job
        self._pool._start(self)

    def release(self) -> None:
        """Cancel the reservation."""
        self._pool._release(self)

    def abandon(self) -> bool:
        """Free the slot of a job that hangs for the next one; False when too many such jobs linger already.

        Does nothing when the job has returned, or was abandoned before.
        """
        return self._pool._abandon(self)


@dataclass(eq=False, repr=False, kw_only=True)
class WorkerPool:
    """Runs jobs on daemon threads. A forked child starts with an empty pool.

    A free thread goes to the first queued job whose owner may have one more. As many extra threads as `threads` run jobs whose
    callers wait on a thread of the pool (`reserve_nested`).

    Parameters:
        threads: jobs at once.
        max_queued: jobs in the queue.
        max_abandoned: jobs that hang and may linger beside the others. Further ones keep their threads; once they hold all of
            them, the pool refuses jobs.
        name: prefix of the names of the threads.
        idle: seconds after which a thread without a job ends.
        quotas: bounds what each owner holds of threads and queue.
        preempts: its threads may interrupt another thread of the same core when they become runnable.
    """

    threads: int
    max_queued: int
    max_abandoned: int
    name: str = "a2a-run"
    idle: float = 30.0
    quotas: Quotas | None = None
    preempts: bool = True

    def __post_init__(self) -> None:
        self._closed = False
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: jobs and threads are the parent's."""
        quotas = self.quotas or Quotas()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._queue: deque[Slot] = deque()
        self._numbers = itertools.count(1)
        self._running = quotas.share(self.threads, quotas.quota.max_concurrent_runs)
        self._waiting = quotas.share(self.max_queued, quotas.quota.max_queued_runs)
        self._idle = self._stuck = self._extra = 0
        #: Abandoned jobs that have not returned.
        self.lingering: int = 0

    @property
    def running(self) -> int:
        """Slots in use, by a job or a reservation, without those of abandoned jobs."""
        return self._running.taken

    @property
    def waiting(self) -> int:
        """Reservations that wait for a thread."""
        return self._waiting.taken

    @property
    def exhausted(self) -> bool:
        """Every thread is held by a job that hangs and cannot be abandoned, so a queued job may wait for ever."""
        return self._stuck >= self.threads

    def reserve(self, owner: str = "") -> Slot:
        """A slot for one job of `owner`.

        Raises:
            OverloadedError: the pool is `exhausted`, or the owner uses all the threads and the part of the queue that it may have.
        """
        with self._lock:
            if self._running.admits(owner):
                self._running.take(owner)
                return Slot(self, owner, ready=True)
            if self.exhausted:
                raise OverloadedError(
                    "every thread of the agent is held by a run past its time limit; try another server, or again later",
                    retry_after=_EXHAUSTED_RETRY,
                )
            if self._waiting.admits(owner):
                self._waiting.take(owner)
                return Slot(self, owner, ready=False)
            full = self._waiting.taken >= self._waiting.total
        raise OverloadedError(
            f"{'the agent' if full else 'this caller'} has reached its limit of running and queued tasks; retry later",
            retry_after=1.0,
        )

    def reserve_nested(self, owner: str = "") -> Slot | None:
        """A slot, ready at once, for a job whose caller waits for it on a thread of the pool; None where there is none.

        In the queue it could wait for ever, since the jobs before it may wait in the same way. Where the pool is full the job gets
        an extra thread, one for each thread of the pool at most.
        """
        with self._lock:
            if self._running.admits(owner):
                self._running.take(owner)
                return Slot(self, owner, ready=True)
            if self._extra >= self.threads:
                return None
            self._extra += 1
            return Slot(self, owner, ready=True, extra=True)

    def _give_back(self, slot: Slot) -> None:
        """Free the thread of a slot that was ready; called under the lock."""
        if slot.extra:
            self._extra -= 1
        elif slot.abandoned:
            self.lingering -= 1
        else:
            self._running.release(slot.owner)

    def _start(self, slot: Slot) -> None:
        with self._lock:
            if not slot.ready:
                if not self._running.admits(slot.owner):
                    self._queue.append(slot)
                    return
                self._admit(slot)
            self._dispatch(slot)

    def _admit(self, slot: Slot) -> None:
        """Give a thread to a queued slot; called under the lock."""
        self._running.take(slot.owner)
        self._waiting.release(slot.owner)
        slot.ready = True

    def _next_queued(self) -> Slot | None:
        """The first queued slot whose owner may have a thread, admitted; called under the lock."""
        refused: set[str] = set()
        for index, slot in enumerate(self._queue):
            if slot.owner in refused:
                continue
            if self._running.admits(slot.owner):
                del self._queue[index]
                self._admit(slot)
                return slot
            refused.add(slot.owner)
        return None

    def _dispatch(self, slot: Slot) -> None:
        """Pass a job to an idle thread or to a new one; called under the lock."""
        if self._idle:
            self._idle -= 1
            self._jobs.put(slot)
            return
        name = f"{self.name}-{next(self._numbers)}"
        threading.Thread(target=self._work, args=(slot,), name=name, daemon=True).start()

    def _dispatch_queued(self) -> None:
        """Start the queued jobs that may have a thread now; called under the lock."""
        while (slot := self._next_queued()) is not None:
            try:
                self._dispatch(slot)
            except RuntimeError:
                logger.exception("no thread for a queued job; it stays first in the queue until another job returns")
                self._queue.appendleft(slot)
                slot.ready = False
                self._waiting.take(slot.owner)
                self._running.release(slot.owner)
                return

    def _release(self, slot: Slot) -> None:
        with self._lock:
            if slot.ready:
                self._give_back(slot)
                self._dispatch_queued()
            else:
                self._waiting.release(slot.owner)

    def _abandon(self, slot: Slot) -> bool:
        with self._lock:
            if slot.abandoned or slot.done or slot.extra:
                return True
            if slot.ready and self.lingering >= self.max_abandoned and not slot.stuck:
                slot.stuck = True
                self._stuck += 1
            if not slot.ready or self.lingering >= self.max_abandoned:
                return False
            self._unstick(slot)
            slot.abandoned = True
            self.lingering += 1
            self._running.release(slot.owner)
            self._dispatch_queued()
            return True

    def _unstick(self, slot: Slot) -> None:
        """Its thread is free, or abandoned; called under the lock."""
        if slot.stuck:
            slot.stuck = False
            self._stuck -= 1

    def _next(self, done: Slot) -> Slot | None:
        """The next job after `done`, from the queue or a new one; None when this thread should end."""
        with self._lock:
            done.done = True
            self._unstick(done)
            self._give_back(done)
            if self._queue and (slot := self._next_queued()) is not None:
                # The owner of the finished job may have one more.
                self._dispatch_queued()
                return slot
            if self._closed:
                return None
            self._idle += 1
        return self._wait()

    def _wait(self) -> Slot | None:
        try:
            return self._jobs.get(timeout=self.idle)
        except queue.Empty:
            with self._lock:
                # A job may have been put between the timeout and the lock, for this thread.
                try:
                    return self._jobs.get_nowait()
                except queue.Empty:
                    self._idle -= 1
                    return None

    def _work(self, slot: Slot) -> None:
        if not self.preempts:
            _never_preempt()
        current: Slot | None = slot
        while current is not None:
            try:
                current.job()
            except BaseException:
                logger.exception("a job of the pool let an exception out")
            done, done.job = current, _nothing
            current = self._next(done)

    def close(self) -> None:
        """End the threads: idle ones now, the others after their job. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
            for _ in range(idle):
                self._jobs.put(None)


def _never_preempt() -> None:
    """On Linux, give this thread, and what it starts, the scheduling policy ``SCHED_BATCH`` (sched(7))."""
    if sys.platform == "linux" and not patched():
        # A sandbox may forbid it.
        with suppress(OSError):
            # Another policy is the choice of the operator.
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _nothing() -> None:
    """The job of a slot without one."""
