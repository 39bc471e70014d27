"""Time limits of a client, and the clock that enforces them.

The timeout of a socket restarts with every byte, so a peer that sends slowly can block a reader without end. What has to end at
a point in time is therefore ended by an `AlarmClock` on another thread. This module knows neither HTTP nor the protocol.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: Seconds after which the thread of an `AlarmClock` ends if there is no alarm.
_IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Limits of a client, in seconds; None is no limit.

    Parameters:
        connect: until the connection is established (for each address of the host), and for each step of sending a request.
        read: until the response begins, and then between two reads. Servers send a keepalive on idle streams (this library
            every 15 s), so a longer silence means that the server is gone.
        total: for a whole call.
    """

    connect: float | None = 5.0
    read: float | None = 75.0
    total: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"Timeout.{item.name} takes seconds, not {type(value).__name__}")
            if value is not None and not value > 0:
                raise ValueError(f"Timeout.{item.name} must be positive, not {value!r}")

    @classmethod
    def of(cls, value: Timeout | float | None) -> Timeout:
        """`value` itself; a number is the total limit, None means the defaults.

        Raises:
            TypeError: it is something else, such as the pair of seconds that requests takes.
            ValueError: it is not positive.
        """
        if isinstance(value, Timeout):
            return value
        check_seconds(value)
        return cls(total=value)


def check_seconds(timeout: object) -> None:
    """Raises `TypeError` if `timeout` is neither None nor a number, `ValueError` if it is negative."""
    if timeout is None:
        return
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout takes seconds, not {type(timeout).__name__}; Timeout(…) is an argument of Client")
    if timeout < 0:
        raise ValueError(f"timeout must be positive, not {timeout!r}")


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point in time (monotonic seconds) at which something must end; infinity is no limit."""

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """`seconds` from now; None: never."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds until then, at least 0; None without a limit."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """The deadline has passed."""
        return time.monotonic() >= self.at


#: No limit.
NEVER = Deadline()


class Alarm:
    """A function that an `AlarmClock` will call. ``fired``: it was called."""

    __slots__ = ("act", "fired")

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act
        self.fired = False


class AlarmClock:
    """Calls functions at points in time, on one daemon thread, which runs while there are alarms.

    The functions must not block: they close or shut down something that another thread waits for. Alarms may be set and
    cancelled on any thread. A forked child has no alarms.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: start without alarms."""
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._cancelled = 0
        self._running = False
        self._closed = False

    def set(self, when: float, act: Callable[[], None]) -> Alarm:
        """Call `act` at `when` (monotonic seconds), or at once if that has passed."""
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
                # The caller fails, because nothing would end it; the next alarm starts a thread or fails too.
                self._running, alarm.act = False, None
                raise
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Do not call the function; it may be running, or have run."""
        alarm.act = None
        with self._changed:
            self._cancelled += 1
            if self._cancelled > 64 and self._cancelled > len(self._alarms) // 2:
                # Most alarms are cancelled long before their time, and must not accumulate until then.
                self._alarms = [entry for entry in self._alarms if entry[2].act is not None]
                heapq.heapify(self._alarms)
                self._cancelled = 0

    def close(self) -> None:
        """Discard all alarms and end the thread. The clock can be used again."""
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
        """Wait for the next alarm; None if there has been none for a while."""
        with self._changed:
            while not self._closed:
                left = self._alarms[0][0] - time.monotonic() if self._alarms else _IDLE_SECONDS
                if left <= 0:
                    return heapq.heappop(self._alarms)[2]
                if not self._changed.wait(min(left, 3600.0)) and not self._alarms:
                    break
            self._running = self._closed = False
            return None
