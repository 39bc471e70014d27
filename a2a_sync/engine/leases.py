"""Who of several processes is alive, and what happens to the runs of those that are not.

A lease belongs to a worker, not to a run: each process that runs something counts its heartbeats up in the shared store,
and the others watch the count with their own monotonic clock. A count that stands still for too long is a dead worker;
each of its runs is then handed to `on_lost`. Nothing is ever decided by comparing clocks, and what a worker that was
only asleep writes later is refused, because its tokens are gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.gevent import on_native_thread, original
from a2a_sync.stores.base import HeldRun, Workers
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: A worker is dead when its count stood still for so many of its beats.
_PATIENCE = 2.0


class Leases:
    """This process's heartbeat, and its eye on the others'. On two threads, which `watch` and `enter` start.

    The heart beats on a thread of its own (under gevent a real one), so that neither handlers nor the care for others
    hold it up. `on_lost` is called on the other thread for each run of a dead worker; a run for which it raises is
    offered again. `beat` is in seconds.
    """

    def __init__(self, workers: Workers, on_lost: Callable[[HeldRun], None], *, beat: float) -> None:
        self._workers = workers
        self._on_lost = on_lost
        self._beat = beat
        self._closed = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in a forked child, as a worker of its own."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        # Held until the heart shall stop: a real thread can wait for a real lock only.
        self._beating = original("_thread", "allocate_lock")()
        self._beating.acquire()
        self._threads: list[threading.Thread] = []
        self._watching = self._entered = False
        #: Of each other worker: its count, and when that was new.
        self._seen: dict[str, tuple[int, float]] = {}
        #: When this worker's heart beat last, and since when without a break.
        self._beaten = self._steady = float("-inf")

    def watch(self) -> None:
        """Look after the others from now on, if that has not begun."""
        if not self._watching:
            with self._lock:
                if not self._watching and not self._closed:
                    self._start("a2a-leases", self._look_on)
                    self._watching = True

    def enter(self) -> None:
        """Be counted among the workers: to be called before this process takes its first token.

        Raises:
            StoreError: the store cannot be written.
        """
        if not self._entered:
            self._workers.beat()
            self._note_beat(time.monotonic())
            with self._lock:
                if not self._entered and not self._closed:
                    self._start("a2a-heart", on_native_thread, self._keep_beating)
                    self._entered = True
        self.watch()

    def _start(self, name: str, target: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _keep_beating(self) -> None:
        while not self._beating.acquire(timeout=self._beat):
            try:
                self._workers.beat()
            except Exception:
                logger.exception("heartbeat failed; it is tried again")
            else:
                self._note_beat(time.monotonic())

    def _note_beat(self, now: float) -> None:
        if now - self._beaten > _PATIENCE * self._beat:
            self._steady = now
        self._beaten = now

    def _look_on(self) -> None:
        while not self._stop.wait(self._beat):
            try:
                self._look()
            except Exception:
                logger.exception("the other workers could not be looked after; it is tried again")

    def _look(self) -> None:
        now = time.monotonic()
        beats = self._workers.beats()
        beats.pop(self._workers.id, None)
        if beats:
            # Who judges others must know that it could have beaten itself.
            self.enter()
        self._seen = {worker: self._seen.get(worker, (count, now)) for worker, count in beats.items()}
        for worker, count in beats.items():
            known, since = self._seen[worker]
            if count != known and count >= 0:
                self._seen[worker] = (count, now)
            elif count < 0 or self._is_dead(since, now):
                self._bury(worker, left=count < 0)

    def _is_dead(self, since: float, now: float) -> bool:
        """A count that stands still since then is a death: this worker's own heart beat all the time meanwhile.

        Else all were held up alike: by a lock on the store, or because the machine slept.
        """
        patience = _PATIENCE * self._beat
        return now - self._beaten <= patience < now - max(since, self._steady)

    def _bury(self, worker: str, *, left: bool) -> None:
        """Hand the runs of a worker on, then forget it; whatever fails is tried again at the next beat."""
        runs = self._workers.runs_of(worker)
        if runs:
            logger.warning("worker %s %s with %d runs", worker, "left" if left else "died", len(runs))
        complete = True
        for run in runs:
            try:
                self._on_lost(run._replace(left=left))
            except Exception:
                logger.exception("a lost run could not be taken over", extra={"task_id": run.token.task_id})
                complete = False
        if complete:
            self._workers.dismiss(worker)
            self._seen.pop(worker, None)

    def resign(self) -> None:
        """Take nothing over any more; the heart goes on beating. Idempotent."""
        self._stop.set()

    def close(self) -> None:
        """Leave: what this worker still holds may be taken over at once. Idempotent."""
        self._halt()
        if self._entered:
            self._entered = False
            try:
                self._workers.leave()
            except Exception:
                logger.exception("this worker could not leave; the others find out")

    def _halt(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, []
            if not self._closed:
                self._closed = True
                self._stop.set()
                self._beating.release()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(2.0)
