"""Which of the processes that share a store are alive, and what happens to the runs of those that are not.

A lease belongs to a worker, not to a run: each process that runs something increments its heartbeat count in the shared store,
and the others monitor the count by their own monotonic clocks. A worker whose count stands still for too long is dead; each of
its runs is then passed to `on_lost`. Clocks of two machines are never compared, and what a worker writes after a long pause is
refused, because its tokens are gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.gevent import on_native_thread, original
from a2a_sync.engine.components import Component
from a2a_sync.errors import OverloadedError
from a2a_sync.stores.base import HeldRun, Workers
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: A worker is dead when its count stood still for so many of its beats.
_MISSED_BEATS = 2.0
#: How long `close` waits for each of its threads, in seconds.
_JOIN_TIMEOUT = 2.0


class WorkerMembership(Component):
    """This process as one of the workers of a store: its heartbeat, and the monitor of the others.

    The heart beats on a thread of its own (under gevent a real one), so that neither handlers nor a takeover delay it. The
    monitor runs on another thread from `start` on, and takes runs over until `drain`.

    Parameters:
        on_lost: called for each run of a dead worker, on the thread of the monitor; a run for which it raises is offered again.
        beat: seconds between two heartbeats.
    """

    def __init__(self, workers: Workers, on_lost: Callable[[HeldRun], None], *, beat: float) -> None:
        self._workers = workers
        self._on_lost = on_lost
        self._beat = beat
        self._closed = False
        self._monitor = Periodic("a2a-leases", self._check, retry=beat)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: it becomes a worker of its own."""
        self._lock = threading.Lock()
        # Held until the heart stops: a real thread can wait for a real lock only.
        self._beating = original("_thread", "allocate_lock")()
        self._beating.acquire()
        self._heart: threading.Thread | None = None
        self._joined = False
        #: Of each other worker: its count, and when that was new.
        self._seen: dict[str, tuple[int, float]] = {}
        #: When this worker's heart beat last, and since when without a break.
        self._beaten = self._steady = float("-inf")

    def start(self) -> bool:
        """Start the monitor of the other workers."""
        return self._monitor.start(self._beat)

    def join(self) -> None:
        """Become one of the workers, if that has not happened: needed before this process takes a token.

        Raises:
            StoreError: the store cannot be written.
        """
        if not self._joined:
            self._workers.beat()
            self._note_beat(time.monotonic())
            with self._lock:
                if not self._joined and not self._closed:
                    heart = partial(on_native_thread, self._keep_beating)
                    self._heart = threading.Thread(target=heart, name="a2a-heart", daemon=True)
                    self._heart.start()
                    self._joined = True
        self.start()

    def _keep_beating(self) -> None:
        while not self._beating.acquire(timeout=self._beat):
            try:
                self._workers.beat()
            except Exception:
                logger.exception("heartbeat failed; it is retried")
            else:
                self._note_beat(time.monotonic())

    def _note_beat(self, now: float) -> None:
        if now - self._beaten > _MISSED_BEATS * self._beat:
            self._steady = now
        self._beaten = now

    def _check(self) -> float:
        now = time.monotonic()
        beats = self._workers.beats()
        beats.pop(self._workers.id, None)
        if beats:
            # A process that could not write its own heartbeat cannot judge those of others.
            self.join()
        self._seen = {worker: self._seen.get(worker, (count, now)) for worker, count in beats.items()}
        for worker, count in beats.items():
            known, since = self._seen[worker]
            if count != known and count >= 0:
                self._seen[worker] = (count, now)
            elif count < 0 or self._is_dead(since, now):
                self._reap(worker, left=count < 0)
        return self._beat

    def _is_dead(self, since: float, now: float) -> bool:
        """A count that stands still since then is a death: this worker's own heart beat all the time meanwhile.

        Else all were held up alike: by a lock on the store, or because the machine slept.
        """
        patience = _MISSED_BEATS * self._beat
        return now - self._beaten <= patience < now - max(since, self._steady)

    def _reap(self, worker: str, *, left: bool) -> None:
        """Pass on the runs of a dead worker, then deregister it; what fails is tried again at the next beat."""
        runs = self._workers.runs_of(worker)
        if runs:
            logger.warning("worker %s %s with %d runs", worker, "left" if left else "died", len(runs))
        complete = True
        for run in runs:
            try:
                self._on_lost(run._replace(left=left))
            except OverloadedError as error:
                logger.info("a lost run waits: %s", error, extra={"task_id": run.token.task_id})
                complete = False
            except Exception:
                logger.exception("a lost run could not be taken over", extra={"task_id": run.token.task_id})
                complete = False
        if complete:
            self._workers.deregister(worker)
            self._seen.pop(worker, None)

    def drain(self) -> None:
        """Take over no more runs; the heart goes on beating."""
        self._monitor.stop()

    def close(self, timeout: float = 10.0) -> None:
        """Leave the workers: what this one still holds may be taken over at once."""
        self._halt()
        if self._joined:
            self._joined = False
            try:
                self._workers.leave()
            except Exception:
                logger.exception("this worker could not deregister; the others will detect its loss")

    def _halt(self) -> None:
        with self._lock:
            heart, self._heart = self._heart, None
            if not self._closed:
                self._closed = True
                self._beating.release()
        self._monitor.stop(_JOIN_TIMEOUT)
        if heart is not None:
            heart.join(_JOIN_TIMEOUT)
