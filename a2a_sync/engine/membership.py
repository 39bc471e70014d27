"""Which of the processes that share a store are alive, and what happens to the runs of those that are not.

A lease belongs to a worker, not to a run: each process that runs something renews its own lease in the shared store at each
heartbeat, by the clock of the store. It also looks whether the lease of another one is over, which an index answers. The first
process that finds a dead worker claims it and passes each of its runs to `on_lost`; the claim is a lease as well, so the worker
is found again if its reaper dies. Then the worker is removed. It may still store a run, with a statement that waited for a lock
when it died, or because it was only stopped for a while: so workers that hold runs and are missing are added again each half minute.
Clocks of two machines are never compared, and what a worker writes after a long pause is refused, because its tokens are gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import on_native_thread, original
from a2a_sync.engine.components import Component
from a2a_sync.errors import OverloadedError
from a2a_sync.stores.base import HeldRun, LostWorker, Workers
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: The length of a lease: a worker is dead when it has missed so many of its beats.
_LEASE_BEATS = 2.0
#: The clock of the store was set where it goes off the own one by more than half a beat, and by more than so many seconds,
#: between two beats. Less may be a slow answer.
_CLOCK_TOLERANCE = 1.0
#: Seconds between two searches for runs of workers that were removed.
_MISSING_INTERVAL = 30.0
#: How long a run waits for a heartbeat that is late, in seconds, and how often it looks.
_BEAT_WAIT, _BEAT_POLL = 1.0, 0.02
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
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: it becomes a worker of its own."""
        self._lock = threading.Lock()
        # Held until the heart stops: a real thread can wait for a real lock only.
        self._beating = original("_thread", "allocate_lock")()
        self._beating.acquire()
        self._heart: threading.Thread | None = None
        self._joined = False
        #: When this worker's heart beat last, and since when without a break, while the clock of the store was not set.
        self._beaten = self._steady = float("-inf")
        #: By how much the clock of the store was ahead of the own one at the last beat.
        self._ahead = 0.0
        #: When to search again for runs of workers that were removed.
        self._missing_at = float("-inf")

    def start(self) -> bool:
        """Start the monitor of the other workers."""
        return self._monitor.start(self._beat)

    def join(self) -> None:
        """Become one of the workers, if that has not happened: needed before this process takes a token.

        A process whose lease is over may have been removed from them, and renews it first.

        Raises:
            StoreError: the store cannot be written.
            OverloadedError: the lease is over, and the heartbeat that renews it takes long.
        """
        if not self._joined or time.monotonic() - self._beaten > self.lease:
            self._renew_lease()
        if not self._joined:
            with self._lock:
                if not self._joined and not self._closed:
                    heart = partial(on_native_thread, self._keep_beating)
                    self._heart = threading.Thread(target=heart, name="a2a-heart", daemon=True)
                    self._heart.start()
                    self._joined = True
        self.start()

    def _renew_lease(self) -> None:
        deadline = time.monotonic() + _BEAT_WAIT
        while not self.beat() and time.monotonic() - self._beaten > self.lease:
            if time.monotonic() > deadline:
                raise OverloadedError("the store does not answer heartbeats; try again later", retry_after=1.0)
            time.sleep(_BEAT_POLL)

    def beat(self) -> bool:
        """Renew the lease of this process, on any thread; False where another thread is doing that.

        Raises:
            StoreError: the store cannot be written.
        """
        at = self._workers.beat(self.lease)
        if at is not None:
            self._note_beat(time.monotonic(), at)
        return at is not None

    def _keep_beating(self) -> None:
        while not self._beating.acquire(timeout=self._beat):
            try:
                self.beat()
            except Exception:
                logger.exception("heartbeat failed; it is retried")

    def _note_beat(self, now: float, at: float) -> None:
        """A beat has returned `now`, and was stored when the clock of the store showed `at`."""
        set_by = abs(at - now - self._ahead)
        if now - self._beaten > self.lease or set_by > max(self._beat / 2, _CLOCK_TOLERANCE):
            self._steady = now
        self._beaten, self._ahead = now, at - now

    def _check(self) -> float:
        if (now := time.monotonic()) >= self._missing_at:
            self._workers.register_missing(self.lease)
            self._missing_at = now + _MISSING_INTERVAL
        if not self._joined and self._workers.has_others():
            # A process that could not write its own heartbeat cannot judge those of others.
            self.join()
        while self._joined and not self._closed:
            asked = time.monotonic()
            lost = self._workers.claim_lost(self._beat, now=self._time_of_store())
            # A claim that waited for a connection was judged by a time before the newest leases, which looked like those of another clock.
            late = time.monotonic() - asked > self.lease
            if lost is None or not (lost.left or (not late and self._clock_is_steady())):
                break
            self._reap(lost)
        return self._beat

    def _clock_is_steady(self) -> bool:
        """Whether a lease that seemed over is: the clock of the store was not set since the last beat."""
        return self.beat() and self._time_of_store() is not None

    def _time_of_store(self) -> float | None:
        """The time by which leases are judged; None while this worker cannot judge.

        That is so until its own heart has beaten for the length of a lease: if the store was locked or unreachable, or the
        machine slept, all were held up alike, and after its clock was set each worker has to beat once. The time is continued
        from the last beat: a clock that was set since then has no effect.
        """
        # Read before the rest, which a beat changes first: the new value is never used with the old ones.
        ahead, now = self._ahead, time.monotonic()
        return now + ahead if now - self._beaten <= self.lease < now - self._steady else None

    def _reap(self, worker: LostWorker) -> None:
        """Pass on the runs of a claimed worker, then deregister it; what fails is tried again at the end of the claim."""
        runs = self._workers.runs_of(worker.id)
        if runs:
            logger.warning("worker %s %s with %d runs", worker.id, "left" if worker.left else "died", len(runs))
        passed_on = [self._pass_on(run._replace(left=worker.left)) for run in runs]
        if all(passed_on):
            self._workers.deregister(worker.id)

    @property
    def lease(self) -> float:
        """The seconds after its last heartbeat at which a worker is dead."""
        return _LEASE_BEATS * self._beat

    def _pass_on(self, run: HeldRun) -> bool:
        try:
            self._on_lost(run)
        except OverloadedError as error:
            logger.info("a lost run waits: %s", error, extra={"task_id": run.token.task_id})
            return False
        except Exception:
            logger.exception("a lost run could not be taken over", extra={"task_id": run.token.task_id})
            return False
        return True

    def drain(self) -> None:
        """Take over no more runs; the heart continues to beat."""
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
