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

from a2a_sync.fork import renew_in_child
from a2a_sync.logs import get_logger
from a2a_sync.stores.base import HeldRun, Workers

logger = get_logger(__name__)

#: A worker is dead when its count stood still for so many of its beats.
_PATIENCE = 2.0


class Leases:
    """This process's heartbeat, and its eye on the others'. On one thread, which `keep` starts.

    `on_lost` is called on that thread for each run of a dead worker; a run for which it raises is offered again.
    `beat` is in seconds.
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
        self._thread: threading.Thread | None = None
        self._entered = False
        #: Of each other worker: its count, and when that was new.
        self._seen: dict[str, tuple[int, float]] = {}

    def watch(self) -> None:
        """Look after the others from now on, if that has not begun."""
        if self._thread is None and not self._closed:
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._run, name="a2a-leases", daemon=True)
                    self._thread.start()

    def enter(self) -> None:
        """Be counted among the workers: to be called before this process takes its first token.

        Raises:
            StoreError: the store cannot be written.
        """
        if not self._entered:
            self._workers.beat()
            self._entered = True
        self.watch()

    def _run(self) -> None:
        while not self._stop.wait(self._beat):
            try:
                self._once()
            except Exception:
                logger.exception("heartbeat failed; it is tried again")

    def _once(self) -> None:
        if self._entered:
            self._workers.beat()
        now = time.monotonic()
        beats = self._workers.beats()
        beats.pop(self._workers.id, None)
        self._seen = {worker: self._seen.get(worker, (count, now)) for worker, count in beats.items()}
        for worker, count in beats.items():
            known, since = self._seen[worker]
            if count != known and count >= 0:
                self._seen[worker] = (count, now)
            elif count < 0 or now - since > _PATIENCE * self._beat:
                self._bury(worker, left=count < 0)

    def _bury(self, worker: str, *, left: bool) -> None:
        """Hand the runs of a worker on, then forget it; whatever fails is tried again at the next beat."""
        runs = self._workers.runs_of(worker)
        if runs:
            logger.warning("worker %s %s with %d runs", worker, "left" if left else "died", len(runs))
        complete = True
        for run in runs:
            try:
                self._on_lost(run)
            except Exception:
                logger.exception("a lost run could not be taken over", extra={"task_id": run.token.task_id})
                complete = False
        if complete:
            self._workers.dismiss(worker)
            self._seen.pop(worker, None)

    def close(self) -> None:
        """Leave: what this worker still holds may be taken over at once. Idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)
        if self._entered:
            self._entered = False
            try:
                self._workers.leave()
            except Exception:
                logger.exception("this worker could not leave; the others find out")
