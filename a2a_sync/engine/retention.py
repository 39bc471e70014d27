"""Removes and compacts old tasks at intervals, and ends the streams of those that were removed.

What belongs to a task, and how it is removed, is the business of the store.
"""

from __future__ import annotations

import math
import random
from typing import Final

from a2a_sync.concurrency import clock
from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.engine.components import Component
from a2a_sync.engine.hub import EventHub
from a2a_sync.limits import Limits
from a2a_sync.stores.base import Expiry, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: The first sweep of a process follows at most so many seconds after its start.
_FIRST = 10.0
#: Between two sweeps while there is more to remove, so that other writers get their turn, in seconds.
_PAUSE = 0.05

#: How long the system clock must have agreed with the monotonic one before tasks are removed by age, in seconds; less for
#: shorter limits.
_CLOCK_HOLD = 600.0
#: The same before times in the store that lie in the future are corrected, because that cannot be undone.
_CORRECTION_HOLD = 86_400.0
#: Differences between the two clocks that count as slew, not as a step, in seconds.
_TOLERANCE = 1.0


class _ClockWatch:
    """Since when the system clock has not been stepped, found by comparing it with the monotonic clock at each sweep.

    After a step it must be stable for as long as the step was wide. Not thread-safe; a race costs a wait only.
    """

    def __init__(self) -> None:
        self._now = clock.monotonic()
        self._since = self._now
        self._offset = self._trusted = self._read()

    def _read(self) -> float:
        return clock.time_ns() / 1e9 - self._now

    def compare(self) -> None:
        """Compare the clocks now."""
        self._now = clock.monotonic()
        offset = self._read()
        step = offset - self._offset
        if abs(step) > _TOLERANCE:
            self._since = self._now
            logger.warning("the system clock was stepped by %+.0f s; tasks are removed by age once it is stable", step)
        self._offset = offset
        if self.is_stable_for(math.inf):
            self._trusted = offset

    def is_stable_for(self, age: float, least: float = _CLOCK_HOLD) -> bool:
        """The clock has been stable for long enough to judge an age of `age` seconds."""
        wanted = max(least, abs(self._offset - self._trusted))
        return self._now - self._since >= min(age, wanted)


class Sweeper(Component):
    """Sweeps `store` every `Limits.sweep_interval` seconds on a thread named ``a2a-sweep``.

    Each process that shares a store does so, at its own times.
    """

    def __init__(self, store: TaskStore, hub: EventHub, limits: Limits) -> None:
        self._store = store
        self._hub = hub
        self._limits = limits
        self._sweeps = Periodic("a2a-sweep", self._sweep, retry=limits.sweep_interval, aging=True)
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: nothing is known of its clocks yet."""
        self._clock = _ClockWatch()

    def start(self) -> bool:
        return self._sweeps.start(random.uniform(0.1, 1.0) * min(self._limits.sweep_interval, _FIRST))

    def _sweep(self) -> float:
        return _PAUSE if self.sweep() else self._limits.sweep_interval * random.uniform(0.5, 1.5)

    def sweep(self) -> bool:
        """Remove and compact some of the tasks that are too old; True when there are more.

        No task counts as old until the clock was stable in this process: a clock that is wrong for some seconds removes nothing.

        Raises:
            StoreError: from the store.
        """
        swept = self._store.sweep(self._expiry())
        for task_id in swept.evicted:
            self._hub.removed(task_id)
        if swept.removed or swept.compacted:
            logger.info("swept: %d tasks removed, %d logs compacted", swept.removed, swept.compacted)
        return swept.more

    def _expiry(self) -> Expiry:
        limits = self._limits
        self._clock.compare()
        ages = [age for age in (limits.terminal_task_ttl, limits.interrupted_task_ttl) if age is not None]
        correct = self._clock.is_stable_for(min(ages, default=_CORRECTION_HOLD), _CORRECTION_HOLD)
        return Expiry(
            now=self._before(0.0) if correct else None,
            ended=self._before(limits.terminal_task_ttl),
            waiting=self._before(limits.interrupted_task_ttl),
            replay=self._before(limits.stream_replay_window),
        )

    def _before(self, age: float | None) -> int | None:
        if age is None or not self._clock.is_stable_for(age):
            return None
        return clock.time_ns() // 1_000_000 - int(age * 1000)

    def close(self, timeout: float = 10.0) -> None:
        self._sweeps.stop()
