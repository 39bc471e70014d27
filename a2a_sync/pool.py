"""Threads that runs are executed on: daemon, named, bounded, started when needed.

`concurrent.futures` is not used because its threads are joined at interpreter exit and do not survive a fork. A slot is
reserved before anything is stored, so a full pool refuses a request without leaving a trace of it.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable

from a2a_sync.errors import OverloadedError

logger = logging.getLogger(__name__)

_IDLE_SECONDS = 30.0


class Slot:
    """A reserved place for one job. ``ready`` says that a thread can take the job at once."""

    __slots__ = ("_pool", "abandoned", "job", "ready")

    def __init__(self, pool: WorkerPool, ready: bool) -> None:
        self._pool = pool
        self.ready = ready
        self.abandoned = False
        self.job: Callable[[], None] = _nothing

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` on a thread of the pool, now or when one is free. Exceptions it lets out are logged."""
        self.job = job
        self._pool._start(self)

    def release(self) -> None:
        """Give the place back unused."""
        self._pool._release(self)

    def abandon(self) -> bool:
        """Give the place of a job that hangs to the next one; False when too many already linger."""
        return self._pool._abandon(self)


class WorkerPool:
    """At most `threads` jobs at once and `waiting` in line; `leftovers` abandoned ones may linger beside them.

    State belongs to one process: after a fork the child starts with an empty pool.
    """

    def __init__(self, *, threads: int, waiting: int, leftovers: int, name: str = "a2a-run") -> None:
        self._limits = (threads, waiting, leftovers)
        self._name = name
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._line: deque[Slot] = deque()
        self._numbers = itertools.count(1)
        self._taken = self._waiting = self._idle = self._lingering = 0
        self._threads: set[threading.Thread] = set()

    def _own(self) -> None:
        if self._pid != os.getpid():
            self._reset()

    @property
    def running(self) -> int:
        """Jobs on a thread now, abandoned ones apart."""
        return self._taken

    @property
    def lingering(self) -> int:
        """Abandoned jobs whose thread has not come back."""
        return self._lingering

    def reserve(self) -> Slot:
        """A place for one job.

        Raises:
            OverloadedError: all threads are taken and the line is full.
        """
        self._own()
        threads, waiting, _ = self._limits
        with self._lock:
            if self._taken < threads:
                self._taken += 1
                return Slot(self, ready=True)
            if self._waiting < waiting:
                self._waiting += 1
                return Slot(self, ready=False)
        raise OverloadedError("the agent already runs as many tasks as it may; try again later", retry_after=1.0)

    def _start(self, slot: Slot) -> None:
        with self._lock:
            if not slot.ready:
                if self._taken >= self._limits[0]:
                    self._line.append(slot)
                    return
                self._waiting -= 1
                self._taken += 1
                slot.ready = True
            self._dispatch(slot)

    def _dispatch(self, slot: Slot) -> None:
        """Hand a job to an idle thread or to a new one; called under the lock."""
        if self._idle:
            self._idle -= 1
            self._jobs.put(slot)
            return
        name = f"{self._name}-{next(self._numbers)}"
        thread = threading.Thread(target=self._work, args=(slot,), name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _release(self, slot: Slot) -> None:
        with self._lock:
            if slot.ready:
                self._free()
            else:
                self._waiting -= 1

    def _free(self) -> None:
        """A place is free: the next in line takes it; called under the lock."""
        if self._line:
            slot = self._line.popleft()
            self._waiting -= 1
            slot.ready = True
            self._dispatch(slot)
        else:
            self._taken -= 1

    def _abandon(self, slot: Slot) -> bool:
        with self._lock:
            if slot.abandoned or not slot.ready or self._lingering >= self._limits[2]:
                return False
            slot.abandoned = True
            self._lingering += 1
            self._free()
            return True

    def _next(self, done: Slot) -> Slot | None:
        """After a job: the next one in line, or None when this thread should wait for one."""
        with self._lock:
            if done.abandoned:
                self._lingering -= 1
            elif self._line:
                slot = self._line.popleft()
                self._waiting -= 1
                slot.ready = True
                return slot
            else:
                self._taken -= 1
            self._idle += 1
            return None

    def _wait(self) -> Slot | None:
        try:
            return self._jobs.get(timeout=_IDLE_SECONDS)
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
        try:
            while current is not None:
                try:
                    current.job()
                except BaseException:
                    logger.exception("a job of the pool let an exception out")
                done, done.job = current, _nothing
                current = self._next(done) or self._wait()
        finally:
            self._threads.discard(threading.current_thread())

    def close(self) -> None:
        """Let idle threads go. Running jobs end on their own."""
        if self._pid != os.getpid():
            return
        with self._lock:
            idle, self._idle = self._idle, 0
            for _ in range(idle):
                self._jobs.put(None)


def _nothing() -> None:
    """The job of a slot that has none."""
