"""Ends runs that take too long or fall silent, and ends again what the store would not take the first time."""

from __future__ import annotations

import threading

from a2a_sync.concurrency import clock
from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.pool import Slot
from a2a_sync.engine.run import Run
from a2a_sync.limits import Limits
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: A watchdog without runs to watch leaves after so many seconds.
_IDLE_SECONDS = 30.0
#: Of so many starts at most it is looked up whether the store took them after all: it may be broken for hours.
_UNCERTAIN = 1000


class Watchdog:
    """One thread, named ``a2a-watchdog``, while there is something to watch. A forked child starts without any."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        bounds = [limit for limit in (limits.run_timeout, limits.run_idle_timeout) if limit]
        self._tick = max(0.005, min([1.0, *(limit / 4 for limit in bounds)]))
        self._bounded = bool(bounds)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all runs: those of a forked child's parent go on there."""
        self._lock = threading.Lock()
        self._runs: dict[Run, Slot | None] = {}
        self._unstored: dict[Run, None] = {}
        self._lingering: set[Run] = set()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def watch(self, run: Run, slot: Slot | None) -> None:
        """Keep the time limits of `run`; past them the place of its thread, `slot`, is given to the next one."""
        if self._bounded:
            self._runs[run] = slot
            self._start()

    def came_back(self, run: Run) -> None:
        """The thread of `run` has returned. Its end is tried again if the store did not take it."""
        self._runs.pop(run, None)
        self._lingering.discard(run)
        if run.unstored and (run.started is not None or len(self._unstored) < _UNCERTAIN):
            self._unstored[run] = None
            self._start()

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = start_thread("a2a-watchdog", self._run)

    def _run(self) -> None:
        last_busy = clock.monotonic()
        while not clock.wait(self._stop, self._tick):
            now = clock.monotonic()
            if self._runs or self._unstored:
                last_busy = now
                self._look(now)
            elif now - last_busy > _IDLE_SECONDS and self._may_leave():
                return

    def _may_leave(self) -> bool:
        with self._lock:
            # In this order: a run is entered before it asks for a watchdog, so it is seen here or it starts the next.
            own, self._thread = self._thread, None
            if not (self._runs or self._unstored):
                return True
            self._thread = own
            return False

    def _look(self, now: float) -> None:
        for run, slot in list(self._runs.items()):
            reason = self._overdue(run, now)
            if reason and self.finish(run, reason):
                self._abandon(run, slot)
        self._end_unstored()

    def _end_unstored(self) -> None:
        for run in list(self._unstored):
            stored = self.finish(run, run.unstored)
            self._unstored.pop(run, None)
            if not stored:
                # The store is still broken, so the others wait too: each of them may take the time of a locked file.
                self._unstored[run] = None
                return

    def _overdue(self, run: Run, now: float) -> str:
        """Why the run must end, or ``""``. Waiting for a thread does not count."""
        if run.began is None or run.last_event is None:
            return ""
        longest, silent = self._limits.run_timeout, self._limits.run_idle_timeout
        if longest and now - run.began > longest:
            return f"the run took longer than its limit of {longest:g} seconds"
        if silent and now - run.last_event > silent:
            return f"the run was silent for longer than its limit of {silent:g} seconds"
        return ""

    def finish(self, run: Run, reason: str) -> bool:
        """Fail the task of `run` and tell its code to stop; False when the store did not take it."""
        try:
            if not run.cancel_event.is_set() or run.unstored:
                run.finish(reason)
        except Exception:
            logger.exception("a run could not be ended", extra={"task_id": run.request.task_id})
            return False
        return True

    def _abandon(self, run: Run, slot: Slot | None) -> None:
        """The thread may never come back; its place goes to the next run."""
        if slot is not None and not slot.abandon() and run not in self._lingering:
            self._lingering.add(run)
            extra = {"task_id": run.request.task_id}
            logger.error("too many runs linger past their limit; this one keeps its place", extra=extra)

    def close(self) -> None:
        """Try once more to end what the store did not take, then stop. Idempotent."""
        self._end_unstored()
        self._stop.set()
