"""Ends runs past their time limits, and retries to end runs whose end the store refused."""

from __future__ import annotations

from typing import Final

from a2a_sync.concurrency import clock
from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.engine.jobs import Reservation
from a2a_sync.engine.run import Run
from a2a_sync.limits import Limits
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: The thread ends after so many seconds without runs.
_IDLE_SECONDS = 30.0
#: For so many failed starts at most it is checked whether the store has them after all: it may be broken for hours.
_UNCERTAIN = 1000


class Watchdog:
    """Checks runs on one thread, named ``a2a-watchdog``, while there are any. A forked child starts without any."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        bounds = [limit for limit in (limits.run_timeout, limits.run_idle_timeout) if limit]
        self._interval = max(0.005, min([1.0, *(limit / 4 for limit in bounds)]))
        self._bounded = bool(bounds)
        self._checks = Periodic("a2a-watchdog", self._check, retry=self._interval, aging=True)
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the runs are the parent's."""
        self._runs: dict[Run, Reservation | None] = {}
        self._unstored: dict[Run, None] = {}
        self._lingering: set[Run] = set()
        #: When there was a run for the last time; None before the first check.
        self._last_busy: float | None = None

    def watch(self, run: Run, slot: Reservation | None) -> None:
        """Enforce the time limits of `run`; past them its `slot` in the pool is given to the next run."""
        if self._bounded:
            self._runs[run] = slot
            self._checks.start(self._interval)

    def run_returned(self, run: Run) -> None:
        """The thread of `run` has returned. Where the store refused its end, that is retried."""
        self._runs.pop(run, None)
        self._lingering.discard(run)
        if run.unstored and (run.started is not None or len(self._unstored) < _UNCERTAIN):
            self._unstored[run] = None
            self._checks.start(self._interval)

    def knows(self, task_id: str) -> bool:
        """Whether the end of a run of this task is still to be stored."""
        return any(run.request.task_id == task_id for run in list(self._unstored))

    def _check(self) -> float | None:
        now = clock.monotonic()
        if self._runs or self._unstored or self._last_busy is None:
            self._last_busy = now
        elif now - self._last_busy > _IDLE_SECONDS:
            self._last_busy = None
            return None
        for run, slot in list(self._runs.items()):
            reason = self._overdue(run, now)
            if reason and self.finish(run, reason):
                self._abandon(run, slot)
        self._end_unstored()
        return self._interval

    def _end_unstored(self) -> None:
        for run in list(self._unstored):
            stored = self.finish(run, run.unstored)
            self._unstored.pop(run, None)
            if not stored:
                # The store still fails, so the others wait: each attempt may take as long as a locked file is waited for.
                self._unstored[run] = None
                return

    def _overdue(self, run: Run, now: float) -> str:
        """Why the run must end, or ``""``. The time in the queue for a thread does not count."""
        if run.began is None or run.last_event is None:
            return ""
        if run.started is None and not run.direct and not run.over:
            # Its caller is about to store its task. Where that fails, the run is over, and its code may still hang.
            return ""
        longest, silent = self._limits.run_timeout, self._limits.run_idle_timeout
        if longest and now - run.began > longest:
            return f"the run took longer than its limit of {longest:g} seconds"
        if silent and now - run.last_event > silent:
            return f"the run was silent for longer than its limit of {silent:g} seconds"
        return ""

    def finish(self, run: Run, reason: str) -> bool:
        """Fail the task of `run` and stop its code; False where the store failed."""
        try:
            if not run.cancel_event.is_set() or run.unstored:
                run.finish(reason)
        except Exception:
            logger.exception("a run could not be ended", extra={"task_id": run.request.task_id})
            return False
        return True

    def _abandon(self, run: Run, slot: Reservation | None) -> None:
        """Give the slot to the next run: the thread may never return."""
        if slot is not None and not slot.abandon() and run not in self._lingering:
            self._lingering.add(run)
            extra = {"task_id": run.request.task_id}
            logger.error("too many runs linger past their limit; this one keeps its thread", extra=extra)

    def close(self) -> None:
        """Retry once to store the ends that failed, then stop. Idempotent."""
        self._end_unstored()
        self._checks.stop()
