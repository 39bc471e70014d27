"""Threads that runs are executed on: daemon, named, bounded, started when needed.

`concurrent.futures` is not used because its threads are joined at interpreter exit and do not survive a fork. A slot is
reserved before anything is stored, so a full pool refuses a request without leaving a trace of it.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.errors import OverloadedError
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: When a caller may try again where no thread may ever come back, in seconds.
_EXHAUSTED_RETRY = 30.0


class Slot:
    """A reserved place for one job of `owner`. ``ready``: a thread can take the job at once; ``extra``: one beside the pool's."""

    __slots__ = ("_pool", "abandoned", "done", "extra", "job", "owner", "ready", "stuck")

    def __init__(self, pool: WorkerPool, owner: str, ready: bool, *, extra: bool = False) -> None:
        self._pool = pool
        self.owner = owner
        self.ready = ready
        self.extra = extra
        self.abandoned = False
        self.stuck = False
        self.done = False
        self.job: Callable[[], None] = _nothing

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` on a thread of the pool, now or when one is free. Exceptions it lets out are logged.

        Raises:
            RuntimeError: the system gives no thread; the slot is still reserved.
        """
        self.job = job
        self._pool._start(self)

    def release(self) -> None:
        """Give the place back unused."""
        self._pool._release(self)

    def abandon(self) -> bool:
        """Give the place of a job that hangs to the next one; False when too many already linger.

        Harmless when the job has come back, or was abandoned before.
        """
        return self._pool._abandon(self)


class WorkerPool:
    """At most `threads` jobs at once and `waiting` in line; `leftovers` abandoned ones may linger beside them, and as many as
    `threads` whose callers wait on a thread of the pool (`reserve_nested`).

    Jobs beyond `leftovers` keep their threads; once they hold all of them, the pool refuses jobs instead of letting them wait.

    No owner holds more of either than `quotas` allows it; a free thread goes to the first job in line whose owner may have
    one more. Threads without a job end after `idle` seconds. A forked child starts with an empty pool.
    """

    def __init__(
        self,
        *,
        threads: int,
        waiting: int,
        leftovers: int,
        name: str = "a2a-run",
        idle: float = 30.0,
        quotas: Quotas | None = None,
    ) -> None:
        self._limits = (threads, waiting, leftovers)
        self._quotas = quotas or Quotas()
        self._name = name
        self._idle_seconds = idle
        self._closed = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all jobs and threads: those of a forked child's parent are not here."""
        threads, waiting, _ = self._limits
        quota = self._quotas.quota
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._line: deque[Slot] = deque()
        self._numbers = itertools.count(1)
        self._running = self._quotas.share(threads, quota.max_concurrent_runs)
        self._waiting = self._quotas.share(waiting, quota.max_queued_runs)
        self._idle = self._lingering = self._stuck = self._extra = 0

    @property
    def running(self) -> int:
        """Places that are taken, by a job or a reservation; abandoned jobs do not count."""
        return self._running.taken

    @property
    def waiting(self) -> int:
        """Reservations that wait for a place."""
        return self._waiting.taken

    @property
    def lingering(self) -> int:
        """Abandoned jobs whose thread has not come back."""
        return self._lingering

    @property
    def exhausted(self) -> bool:
        """Every thread is held by a job that should be abandoned and cannot be: a job that waits may wait for ever."""
        return self._stuck >= self._limits[0]

    def reserve(self, owner: str = "") -> Slot:
        """A place for one job of `owner`.

        Raises:
            OverloadedError: the pool is `exhausted`, or all threads that the owner may have are taken, and so are its places in the line.
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
            f"{'the agent' if full else 'this caller'} already runs as many tasks as it may; try again later",
            retry_after=1.0,
        )

    def reserve_nested(self, owner: str = "") -> Slot | None:
        """A place, ready at once, for a job whose caller waits for it on a thread of the pool; None where there is none.

        Waiting in line could take for ever, since those before may wait in the same way. Where the pool is full the job gets an
        extra thread, one for each thread of the pool at most.
        """
        with self._lock:
            if self._running.admits(owner):
                self._running.take(owner)
                return Slot(self, owner, ready=True)
            if self._extra >= self._limits[0]:
                return None
            self._extra += 1
            return Slot(self, owner, ready=True, extra=True)

    def _give_back(self, slot: Slot) -> None:
        """The place of a slot that was ready; called under the lock."""
        if slot.extra:
            self._extra -= 1
        elif slot.abandoned:
            self._lingering -= 1
        else:
            self._running.release(slot.owner)

    def _start(self, slot: Slot) -> None:
        with self._lock:
            if not slot.ready:
                if not self._running.admits(slot.owner):
                    self._line.append(slot)
                    return
                self._admit(slot)
            self._dispatch(slot)

    def _admit(self, slot: Slot) -> None:
        """Give a thread's place to a slot that waited; called under the lock."""
        self._running.take(slot.owner)
        self._waiting.release(slot.owner)
        slot.ready = True

    def _next_in_line(self) -> Slot | None:
        """The first slot in line whose owner may have a thread, admitted; called under the lock."""
        refused: set[str] = set()
        for index, slot in enumerate(self._line):
            if slot.owner in refused:
                continue
            if self._running.admits(slot.owner):
                del self._line[index]
                self._admit(slot)
                return slot
            refused.add(slot.owner)
        return None

    def _dispatch(self, slot: Slot) -> None:
        """Hand a job to an idle thread or to a new one; called under the lock."""
        if self._idle:
            self._idle -= 1
            self._jobs.put(slot)
            return
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=self._work, args=(slot,), name=name, daemon=True).start()

    def _dispatch_line(self) -> None:
        """Start what waits and may have a thread now; called under the lock."""
        while (slot := self._next_in_line()) is not None:
            try:
                self._dispatch(slot)
            except RuntimeError:
                logger.exception("no thread for a job that waits; it stays first in line until one comes back")
                self._line.appendleft(slot)
                slot.ready = False
                self._waiting.take(slot.owner)
                self._running.release(slot.owner)
                return

    def _release(self, slot: Slot) -> None:
        with self._lock:
            if slot.ready:
                self._give_back(slot)
                self._dispatch_line()
            else:
                self._waiting.release(slot.owner)

    def _abandon(self, slot: Slot) -> bool:
        with self._lock:
            if slot.abandoned or slot.done or slot.extra:
                return True
            if slot.ready and self._lingering >= self._limits[2] and not slot.stuck:
                slot.stuck = True
                self._stuck += 1
            if not slot.ready or self._lingering >= self._limits[2]:
                return False
            self._unstick(slot)
            slot.abandoned = True
            self._lingering += 1
            self._running.release(slot.owner)
            self._dispatch_line()
            return True

    def _unstick(self, slot: Slot) -> None:
        """Its thread is free, or has been given up; called under the lock."""
        if slot.stuck:
            slot.stuck = False
            self._stuck -= 1

    def _next(self, done: Slot) -> Slot | None:
        """After a job: the next one, from the line or as it comes; None when this thread should end."""
        with self._lock:
            done.done = True
            self._unstick(done)
            self._give_back(done)
            if self._line and (slot := self._next_in_line()) is not None:
                # An owner whose place is free may have one more beside it.
                self._dispatch_line()
                return slot
            if self._closed:
                return None
            self._idle += 1
        return self._wait()

    def _wait(self) -> Slot | None:
        try:
            return self._jobs.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                # A job may have been put between the time-out and the lock: then this thread was counted on.
                try:
                    return self._jobs.get_nowait()
                except queue.Empty:
                    self._idle -= 1
                    return None

    def _work(self, slot: Slot) -> None:
        current: Slot | None = slot
        while current is not None:
            try:
                current.job()
            except BaseException:
                logger.exception("a job of the pool let an exception out")
            done, done.job = current, _nothing
            current = self._next(done)

    def close(self) -> None:
        """Let threads go: idle ones now, the others when their job is done. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
            for _ in range(idle):
                self._jobs.put(None)


def _nothing() -> None:
    """The job of a slot that has none."""
