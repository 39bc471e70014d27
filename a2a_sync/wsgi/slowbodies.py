"""Bodies that drip: a client that sends a byte now and then is never silent, and holds a thread of the server for days.

A socket's own time-out begins anew with every byte. So who reads a body says so here, and one thread looks now and then for
those that take too long and cuts their connections. It lives while there are bodies to be read.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: How long the thread stays without a body to watch, in seconds.
_LINGER = 30.0


class Cuttable(Protocol):
    """A connection that can be ended from another thread."""

    def cut(self) -> None: ...


class Watch:
    """The thread that looks at the bodies of all apps of a process: one, however many agents there are. Lazily started."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: nobody reads here."""
        self._changed = threading.Condition()
        self._watched: dict[SlowBodies, float] = {}
        self._runs = False

    def add(self, bodies: SlowBodies) -> None:
        """Look at `bodies` from now on, until it was idle for a while."""
        with self._changed:
            sooner = all(bodies.look < known.look for known in self._watched)
            self._watched[bodies] = time.monotonic()
            bodies.watched = True
            if self._runs:
                if sooner:
                    self._changed.notify()
                return
            self._runs = True
        try:
            threading.Thread(target=self._run, name="a2a-bodies", daemon=True).start()
        except RuntimeError:
            self._runs = bodies.watched = False
            raise

    def remove(self, bodies: SlowBodies) -> None:
        """Look at it no more. Where it was the last one, the thread ends."""
        with self._changed:
            bodies.watched = False
            if self._watched.pop(bodies, None) is not None:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._runs = False
                    return
                self._changed.wait(min(known.look for known in self._watched))
                now = time.monotonic()
                for bodies, busy_at in list(self._watched.items()):
                    self._note(bodies, busy_at, now)
                watched = list(self._watched)
            for bodies in watched:
                bodies.cut_slow_ones(now)

    def _note(self, bodies: SlowBodies, busy_at: float, now: float) -> None:
        if bodies.reading:
            self._watched[bodies] = now
        elif now - busy_at > _LINGER:
            # Whoever comes from here on asks to be watched again; who has come just now did not.
            bodies.watched = False
            if bodies.reading:
                bodies.watched = True
            else:
                del self._watched[bodies]


_watch = Watch()


class SlowBodies:
    """Cuts connections whose bodies take longer than `most` seconds, give or take a quarter. Safe from many threads."""

    def __init__(self, most: float, watch: Watch = _watch) -> None:
        self._most = most
        self._watch = watch
        #: How often to look, in seconds.
        self.look = min(most / 4, _LINGER)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: nobody reads here."""
        self._reading: dict[object, tuple[float, Cuttable]] = {}
        self.watched = False

    @property
    def reading(self) -> bool:
        """Bodies are being read."""
        return bool(self._reading)

    def begin(self, connection: Cuttable) -> object:
        """A body is going to be read; `end` takes what this gives."""
        ticket = object()
        self._reading[ticket] = (time.monotonic() + self._most, connection)
        if not self.watched:
            self._watch.add(self)
        return ticket

    def end(self, ticket: object) -> None:
        """It was read, or will not be."""
        self._reading.pop(ticket, None)

    def close(self) -> None:
        """Watch no more. The object can be used again."""
        self._watch.remove(self)

    def cut_slow_ones(self, now: float) -> None:
        """Cut those whose time is over."""
        for ticket, (until, connection) in list(self._reading.items()):
            if now >= until and self._reading.pop(ticket, None) is not None:
                logger.warning("a body did not come within %g seconds; its connection is cut", self._most)
                connection.cut()
