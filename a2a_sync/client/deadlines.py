"""How long a client waits, and the clock that ends a wait which would go on.

A socket's own time-out restarts with every byte, so a peer that drips keeps a reader for ever. What has to be over at a
point in time is therefore ended from outside, by an `AlarmClock`. This room knows neither HTTP nor the protocol.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from a2a_sync.concurrency.fork import renew_in_child

logger = logging.getLogger(__name__)

#: How long the thread of an `AlarmClock` stays without an alarm to wait for, in seconds.
_LINGER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Limits of a client, in seconds; None is no limit.

    Parameters:
        connect: until the connection stands (for each address of the host), and for each step of sending a request.
        idle: until the answer begins, and between two signs of life after that. Servers send a heartbeat on silent
            streams (ours every 15 s), so a longer silence means that nobody is there.
        overall: for a whole call, whatever happens in between.
    """

    connect: float | None = 5.0
    read: float | None = 75.0
    total: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not value > 0:
                raise ValueError(f"Timeout.{item.name} must be positive, not {value!r}")

    @classmethod
    def of(cls, value: Timeout | float | None) -> Timeout:
        """`value` itself; a number is the overall limit, None is the defaults."""
        return value if isinstance(value, Timeout) else cls(total=value)


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point in time (monotonic seconds) by which something has to be over; infinity: no limit."""

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """`seconds` from now; None: never."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds that are left (at least 0), None for no limit."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """It is over."""
        return time.monotonic() >= self.at


#: No limit.
NEVER = Deadline()


class Alarm:
    """One call that an `AlarmClock` has been asked for. ``fired`` says that it was made."""

    __slots__ = ("act", "fired")

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act
        self.fired = False


class AlarmClock:
    """Calls functions at points in time, on one daemon thread that lives while there is something to wait for.

    The functions must not block: they close or shut down something that another thread waits for. Any thread may set
    and cancel. After a fork the child starts with no alarms.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew without alarms, in a forked child."""
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._cancelled = 0
        self._running = False
        self._closed = False

    def set(self, when: float, act: Callable[[], None]) -> Alarm:
        """Call `act` at `when` (monotonic seconds), at once where that has passed."""
        alarm = Alarm(act)
        with self._changed:
            heapq.heappush(self._alarms, (when, next(self._order), alarm))
            start = not self._running
            self._running, self._closed = True, False
            if self._alarms[0][2] is alarm and not start:
                self._changed.notify()
        if start:
            try:
                threading.Thread(target=self._run, name="a2a-alarms", daemon=True).start()
            except RuntimeError:
                # The call fails, for nobody would end it; the next one finds a thread or fails as well.
                self._running, alarm.act = False, None
                raise
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Do not call it. It may be running right now, or have run."""
        alarm.act = None
        with self._changed:
            self._cancelled += 1
            if self._cancelled > 64 and self._cancelled > len(self._alarms) // 2:
                # Most alarms are cancelled long before their time: they must not pile up until then.
                self._alarms = [entry for entry in self._alarms if entry[2].act is not None]
                heapq.heapify(self._alarms)
                self._cancelled = 0

    def close(self) -> None:
        """Forget all alarms and end the thread. The clock can be used again."""
        with self._changed:
            self._alarms.clear()
            self._closed = self._running
            self._changed.notify()

    def _run(self) -> None:
        while (alarm := self._next()) is not None:
            act, alarm.act = alarm.act, None
            if act is None:
                continue
            alarm.fired = True
            try:
                act()
            except Exception:
                logger.exception("an alarm failed")

    def _next(self) -> Alarm | None:
        """Wait for the next alarm; None when there has been none for a while."""
        with self._changed:
            while not self._closed:
                left = self._alarms[0][0] - time.monotonic() if self._alarms else _LINGER
                if left <= 0:
                    return heapq.heappop(self._alarms)[2]
                if not self._changed.wait(min(left, 3600.0)) and not self._alarms:
                    break
            self._running = self._closed = False
            return None
