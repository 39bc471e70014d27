"""Time limits for whole request bodies, against clients that send a byte now and then (slowloris).

The timeout of a socket starts again with every byte, so the bodies that are being read are checked from time to time, and the
connections of those that take too long are aborted.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from a2a_sync.concurrency.alarms import Alarm, AlarmClock
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.wsgi.connection import Abortable

logger: Final = get_logger(__name__)

#: How long after the last body the checks go on, in seconds.
_LINGER = 30.0


#: Checks the bodies of all apps of a process on one thread, however many agents there are.
_alarms = AlarmClock("a2a-bodies")


class BodyDeadline:
    """Aborts connections whose bodies take longer than `seconds`, give or take a quarter. Safe from many threads.

    To begin and to end a body costs no lock: they are checked from time to time, by an alarm that is set again while there
    are any, and for some time after the last one.
    """

    def __init__(self, seconds: float, alarms: AlarmClock = _alarms) -> None:
        self._seconds = seconds
        self._alarms = alarms
        #: The time between two checks, in seconds.
        self._interval = min(seconds / 4, _LINGER)
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: no body is being read."""
        self._lock = threading.Lock()
        self._reading: dict[object, tuple[float, Abortable]] = {}
        self._busy_at = 0.0
        self._alarm: Alarm | None = None
        #: An alarm is set.
        self.watched: bool = False

    def begin(self, connection: Abortable) -> object:
        """Start the time limit of a body that is about to be read; returns the argument of `end`."""
        ticket = object()
        self._reading[ticket] = (time.monotonic() + self._seconds, connection)
        if not self.watched:
            with self._lock:
                if not self.watched:
                    self._busy_at = time.monotonic()
                    self._set_alarm()
        return ticket

    def end(self, ticket: object) -> None:
        """The body was read, or failed."""
        self._reading.pop(ticket, None)

    def close(self) -> None:
        """Stop the checks. The object can be used again."""
        with self._lock:
            self.watched = False
            if self._alarm is not None:
                self._alarms.discard(self._alarm)

    def _set_alarm(self) -> None:
        self._alarm = self._alarms.set(time.monotonic() + self._interval, self._check)
        self.watched = True

    def _check(self) -> None:
        """Abort the connections whose time is over."""
        now = time.monotonic()
        if self._reading:
            self._busy_at = now
        for ticket, (until, connection) in list(self._reading.items()):
            if now >= until and self._reading.pop(ticket, None) is not None:
                logger.warning("a request body did not arrive within %g s; its connection is aborted", self._seconds)
                connection.abort()
        with self._lock:
            if self.watched and not self._ends(now):
                self._set_alarm()

    def _ends(self, now: float) -> bool:
        """No body has been read for a while, so there are no checks until the next one; called under the lock."""
        if now - self._busy_at <= _LINGER:
            return False
        # A body that begins after this line sets the alarm again; one that began just before did not.
        self.watched = False
        return not self._reading
