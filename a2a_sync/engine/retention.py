"""When old tasks go: looks through the store now and then, and ends the streams of what was removed.

What belongs to a task, and how it is removed, the store knows.
"""

from __future__ import annotations

import math
import random
import threading
import weakref

from a2a_sync.concurrency import clock
from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.engine.hub import EventHub
from a2a_sync.limits import Limits
from a2a_sync.stores.base import Expiry, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: The first look of a process is not later than this after its start, in seconds.
_FIRST = 10.0
#: Between two looks while there is more: others want to write too.
_BREATH = 0.05

#: How long the system clock must have agreed with the monotonic one before anything is removed by age, in seconds; less for
#: limits that are shorter.
_CLOCK_HOLD = 600.0
#: The same for a clock that is behind the times in the store: they are corrected only then, because that cannot be undone.
_CORRECTION_HOLD = 86_400.0
#: Differences between the two clocks that are no step, in seconds: between two sweeps a clock is also slewed.
_TOLERANCE = 1.0


class _ClockWatch:
    """Since when the system clock has not been set, by comparing it with the monotonic clock at each sweep.

    After a step it must hold for as long as the step was wide. Not thread-safe; a race costs a wait only.
    """

    def __init__(self) -> None:
        self._now = clock.monotonic()
        self._since = self._now
        self._offset = self._trusted = self._read()

    def _read(self) -> float:
        return clock.time_ns() / 1e9 - self._now

    def look(self) -> None:
        """Compare the clocks now."""
        self._now = clock.monotonic()
        offset = self._read()
        step = offset - self._offset
        if abs(step) > _TOLERANCE:
            self._since = self._now
            logger.warning("the system clock was set by %+.0f s; tasks are removed by age when it has held", step)
        self._offset = offset
        if self.has_held(math.inf):
            self._trusted = offset

    def has_held(self, age: float, least: float = _CLOCK_HOLD) -> bool:
        """The clock can be used to judge what is `age` seconds old."""
        wanted = max(least, abs(self._offset - self._trusted))
        return self._now - self._since >= min(age, wanted)


class Sweeper:
    """Sweeps `store` every `Limits.sweep_interval` seconds on one thread, named ``a2a-sweep``, that `start` starts.

    Processes that share a store do so each at its own time.
    """

    def __init__(self, store: TaskStore, hub: EventHub, limits: Limits) -> None:
        self._store = store
        self._hub = hub
        self._limits = limits
        self._over = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock = _ClockWatch()

    def start(self) -> None:
        """Look from now on, if that has not begun."""
        if self._thread is not None or self._over:
            return
        with self._lock:
            if self._thread is None:
                self._thread = start_thread(
                    "a2a-sweep", _look, weakref.ref(self), self._stop, self._limits.sweep_interval
                )

    def sweep(self) -> bool:
        """Remove and compact some of what is too old; True when there is more.

        Nothing is, until the clock has held in this process: a clock that is set for some seconds makes no task old.

        Raises:
            StoreError: as the store says.
        """
        limits = self._limits
        self._clock.look()
        ages = [age for age in (limits.terminal_task_ttl, limits.interrupted_task_ttl) if age is not None]
        correct = self._clock.has_held(min(ages, default=_CORRECTION_HOLD), _CORRECTION_HOLD)
        swept = self._store.sweep(
            Expiry(
                now=self._before(0.0) if correct else None,
                ended=self._before(limits.terminal_task_ttl),
                waiting=self._before(limits.interrupted_task_ttl),
                replay=self._before(limits.stream_replay_window),
            )
        )
        for task_id in swept.forgotten:
            self._hub.publish(task_id, (), ended=True)
        if swept.removed or swept.compacted:
            logger.info("swept: %d tasks removed, %d logs compacted", swept.removed, swept.compacted)
        return swept.more

    def _before(self, age: float | None) -> int | None:
        if age is None or not self._clock.has_held(age):
            return None
        return clock.time_ns() // 1_000_000 - int(age * 1000)

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._over = True
        self._stop.set()


def _look(sweeper: weakref.ref[Sweeper], stop: threading.Event, seconds: float) -> None:
    """The thread. It does not keep alive an app that nobody uses any more."""
    pause = random.uniform(0.1, 1.0) * min(seconds, _FIRST)
    while not clock.wait(stop, pause):
        pause = seconds * random.uniform(0.5, 1.5)
        own = sweeper()
        if own is None:
            return
        try:
            if own.sweep():
                pause = _BREATH
        except Exception:
            logger.exception("the store could not be swept; it is tried again")
        del own
