"""Who may hold a thread of the server: open streams, and sends that wait for their answer.

A WSGI server has a number of threads, and each of these holds one for as long as it lasts. If they held them all, nobody
could look at a task or cancel one. So a few threads are left free: what would take one of them is refused before
anything is stored.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from a2a_sync.errors import OverloadedError
from a2a_sync.fork import renew_in_child
from a2a_sync.operations import SEND_MESSAGE, Call, Endpoint

#: Whoever holds a thread for longer is not waited for, and nobody waits for a thread for longer. In seconds.
_SHORT = 0.5


class Places:
    """Places for `streams` streams, and for as many streams and blocked sends together as `reserve` leaves threads for.

    Quick calls come and go, so who finds all threads held waits a moment, as long as there is somebody to wait for who
    came only just now. In a forked child nothing is held.
    """

    def __init__(self, streams: int, threads: int | None = None) -> None:
        self._most_streams = streams
        self._most: int | None = None
        if threads is not None:
            self.reserve(threads)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget who holds what: that is in the parent."""
        self._lock = threading.Lock()
        #: Since when threads are held, the longest first.
        self._held: dict[object, float] = {}
        #: Who waits for one; the lock is released when it is there.
        self._line: deque[threading.Lock] = deque()
        self.streams = 0

    def reserve(self, threads: int) -> None:
        """The server has so many threads: an eighth of them, and at least two, stay free."""
        self._most = max(1, threads - max(2, threads // 8))

    # -- streams --

    def take_stream(self) -> Callable[[], None]:
        """A place for one stream, held until what is returned is called (once).

        Raises:
            OverloadedError: there is none.
        """
        with self._lock:
            if self.streams >= self._most_streams:
                raise OverloadedError("as many streams are open as may be; try again later", retry_after=1.0)
            self.streams += 1
        try:
            leave = self._take()
        except BaseException:
            self._leave_stream()
            raise

        def give_back() -> None:
            self._leave_stream()
            leave()

        return give_back

    def _leave_stream(self) -> None:
        with self._lock:
            self.streams -= 1

    # -- sends --

    def guard(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, where calls that block a thread of the server hold a place meanwhile."""

        def guarded(call: Call) -> Any:
            if not _blocks(call):
                return endpoint(call)
            leave = self._take()
            try:
                return endpoint(call)
            finally:
                leave()

        return guarded

    # -- threads --

    def _take(self) -> Callable[[], None]:
        ticket = threading.Lock()
        with self._lock:
            most = self._most
            if most is None or len(self._held) < most:
                self._held[ticket] = time.monotonic()
                return lambda: self._leave(ticket)
            before = time.monotonic() - _SHORT
            slow = sum(1 for _ in takewhile(lambda since: since <= before, self._held.values()))
            if len(self._line) >= most - slow:
                raise _no_thread()
            self._line.append(ticket)
            ticket.acquire()
        if not ticket.acquire(timeout=_SHORT):
            with self._lock:
                if ticket in self._line:
                    self._line.remove(ticket)
                    raise _no_thread()
        return lambda: self._leave(ticket)

    def _leave(self, ticket: object) -> None:
        with self._lock:
            del self._held[ticket]
            if self._line:
                # Handed over, so that nobody who comes just now takes it away.
                following = self._line.popleft()
                self._held[following] = time.monotonic()
                following.release()


def _no_thread() -> OverloadedError:
    return OverloadedError(
        "streams and waiting calls hold as many threads of the server as they may; try again later", retry_after=1.0
    )


def _blocks(call: Call) -> bool:
    """It waits for a task on a thread of the server; calls from inside this process have no connection."""
    if call.operation is not SEND_MESSAGE or call.context.gone is None:
        return False
    configuration = call.request.configuration
    return configuration is None or not configuration.return_immediately
