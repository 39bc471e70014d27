"""Time limits for whole request bodies, against clients that send a byte now and then (slowloris).

The timeout of a socket starts again with every byte, so one thread checks from time to time which bodies take too long, and
aborts their connections. It runs while bodies are being read.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: How long the thread waits for further bodies before it ends, in seconds.
_LINGER = 30.0


class Abortable(Protocol):
    """A connection that can be ended from another thread."""

    def abort(self) -> None: ...


class BodyDeadlineThread:
    """The thread that checks the bodies of all apps of a process: one, however many agents there are. Lazily started."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: no body is being read."""
        self._changed = threading.Condition()
        #: When a body of each was last being read.
        self._watched: dict[BodyDeadline, float] = {}
        self._runs = False

    def add(self, deadline: BodyDeadline) -> None:
        """Check `deadline` until it has been idle for a while."""
        with self._changed:
            sooner = all(deadline.interval < known.interval for known in self._watched)
            self._watched[deadline] = time.monotonic()
            deadline.watched = True
            if self._runs:
                if sooner:
                    self._changed.notify()
                return
            self._runs = True
        try:
            threading.Thread(target=self._run, name="a2a-bodies", daemon=True).start()
        except RuntimeError:
            self._runs = deadline.watched = False
            raise

    def remove(self, deadline: BodyDeadline) -> None:
        """Check it no longer. The thread ends with the last one."""
        with self._changed:
            deadline.watched = False
            if self._watched.pop(deadline, None) is not None:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._runs = False
                    return
                self._changed.wait(min(known.interval for known in self._watched))
                now = time.monotonic()
                for deadline, busy_at in list(self._watched.items()):
                    self._note(deadline, busy_at, now)
                watched = list(self._watched)
            for deadline in watched:
                deadline.abort_slow(now)

    def _note(self, deadline: BodyDeadline, busy_at: float, now: float) -> None:
        if deadline.reading:
            self._watched[deadline] = now
        elif now - busy_at > _LINGER:
            # A body that begins after this line adds the deadline again; one that began just before did not.
            deadline.watched = False
            if deadline.reading:
                deadline.watched = True
            else:
                del self._watched[deadline]


_thread = BodyDeadlineThread()


class BodyDeadline:
    """Aborts connections whose bodies take longer than `seconds`, give or take a quarter. Safe from many threads."""

    def __init__(self, seconds: float, thread: BodyDeadlineThread = _thread) -> None:
        self._seconds = seconds
        self._thread = thread
        #: The time between two checks, in seconds.
        self.interval = min(seconds / 4, _LINGER)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: no body is being read."""
        self._reading: dict[object, tuple[float, Abortable]] = {}
        self.watched = False

    @property
    def reading(self) -> bool:
        """Bodies are being read."""
        return bool(self._reading)

    def begin(self, connection: Abortable) -> object:
        """Start the time limit of a body that is about to be read; returns the argument of `end`."""
        ticket = object()
        self._reading[ticket] = (time.monotonic() + self._seconds, connection)
        if not self.watched:
            self._thread.add(self)
        return ticket

    def end(self, ticket: object) -> None:
        """The body was read, or failed."""
        self._reading.pop(ticket, None)

    def close(self) -> None:
        """Stop the checks. The object can be used again."""
        self._thread.remove(self)

    def abort_slow(self, now: float) -> None:
        """Abort the connections whose time is over."""
        for ticket, (until, connection) in list(self._reading.items()):
            if now >= until and self._reading.pop(ticket, None) is not None:
                logger.warning("a body did not come within %g seconds; its connection is aborted", self._seconds)
                connection.abort()
