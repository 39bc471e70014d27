"""Bodies that drip: a client that sends a byte now and then is never silent, and holds a thread of the server for days.

A socket's own time-out begins anew with every byte. So who reads a body says so here, and one thread looks now and then for
those that take too long and cuts their connections. It lives while there are bodies to be read.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from a2a_sync.fork import renew_in_child
from a2a_sync.logs import get_logger

logger = get_logger(__name__)

#: How long the thread stays without a body to watch, in seconds.
_LINGER = 30.0


class Cuttable(Protocol):
    """A connection that can be ended from another thread."""

    def cut(self) -> None: ...


class SlowBodies:
    """Cuts connections whose bodies take longer than `most` seconds, give or take a quarter. Safe from many threads."""

    def __init__(self, most: float) -> None:
        self._most = most
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: nobody reads here."""
        self._reading: dict[object, tuple[float, Cuttable]] = {}
        self._changed = threading.Condition()
        self._watched = False
        self._closed = False

    def begin(self, connection: Cuttable) -> object:
        """A body is going to be read; `end` takes what this gives."""
        ticket = object()
        self._reading[ticket] = (time.monotonic() + self._most, connection)
        if not self._watched:
            self._start()
        return ticket

    def end(self, ticket: object) -> None:
        """It was read, or will not be."""
        self._reading.pop(ticket, None)

    def close(self) -> None:
        """End the thread. The object can be used again."""
        with self._changed:
            self._closed = self._watched
            self._changed.notify_all()

    def _start(self) -> None:
        with self._changed:
            if self._watched:
                return
            self._watched, self._closed = True, False
        threading.Thread(target=self._watch, name="a2a-bodies", daemon=True).start()

    def _watch(self) -> None:
        idle_since = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait(min(self._most / 4, _LINGER))
                if self._reading:
                    idle_since = time.monotonic()
                if self._closed or time.monotonic() - idle_since > _LINGER:
                    # Whoever comes from here on starts another one; who has come just now did not.
                    self._watched = False
                    if self._closed or not self._reading:
                        return
                    self._watched = True
            self._cut_slow_ones()

    def _cut_slow_ones(self) -> None:
        now = time.monotonic()
        for ticket, (until, connection) in list(self._reading.items()):
            if now >= until and self._reading.pop(ticket, None) is not None:
                logger.warning("a body did not come within %g seconds; its connection is cut", self._most)
                connection.cut()
