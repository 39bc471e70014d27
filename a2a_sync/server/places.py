"""How many threads of the server open streams and blocked sends may hold, together and for each owner of tasks.

A WSGI server has a number of threads, and each of these calls holds one for as long as it lasts. If they held them all, no
task could be read or cancelled. So a few threads are left free, and no owner holds all the others: a call that would take
one too many is refused before anything is stored.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import SEND_MESSAGE, Call, Endpoint, StreamItem, owner_of, quota_owner

#: A thread that is held for longer is not waited for, and no call waits for a thread for longer. In seconds.
_SHORT = 0.5


class _Ticket:
    """One thread of the server, held by a call of `owner` or waited for: ``given`` is released when it is there."""

    __slots__ = ("given", "owner", "since")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.since = time.monotonic()
        self.given = threading.Lock()


class Places:
    """Places for `streams` streams, and for as many streams and blocked sends together as `reserve` leaves threads for.

    No owner holds more of either than `quotas` allows it. Quick calls come and go, so a call that finds no thread waits a
    moment, as long as there are threads that were taken only just now. In a forked child nothing is held.
    """

    def __init__(self, streams: int, threads: int | None = None, quotas: Quotas | None = None) -> None:
        self._most_streams = streams
        self._most: int | None = None
        self._quotas = quotas or Quotas()
        self.renew()
        if threads is not None:
            self.reserve(threads)
        renew_in_child(self)

    def renew(self) -> None:
        """Forget who holds what: that is in the parent."""
        self._lock = threading.Lock()
        #: Those that hold a thread, the longest first.
        self._held: dict[_Ticket, None] = {}
        #: Those that wait for one.
        self._line: deque[_Ticket] = deque()
        self._streams = self._quotas.share(self._most_streams, self._quotas.quota.max_open_streams)
        self._share_threads()

    def reserve(self, threads: int) -> None:
        """The server has so many threads: an eighth of them, and at least two, stay free."""
        self._most = max(1, threads - max(2, threads // 8))
        self._share_threads()

    def _share_threads(self) -> None:
        # Where their number is not known, threads are counted and never refused.
        with self._lock:
            limit = self._quotas.quota.max_open_streams
            self._threads = self._quotas.share(self._most or 0, limit)
            for ticket in self._held:
                self._threads.take(ticket.owner)

    @property
    def streams(self) -> int:
        """Open streams."""
        return self._streams.taken

    def guard(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, where calls that hold a thread of the server take a place: streams until they are closed.

        The endpoint that is returned raises `OverloadedError` where there is none.
        """

        def guarded(call: Call) -> Any:
            if call.context.gone is None:
                # From inside this process: there is no connection, and no thread of the server.
                return endpoint(call)
            if call.operation.streaming:
                leave = self.take_stream(quota_owner(owner_of(call.context)))
                try:
                    return _HeldStream(endpoint(call), leave)
                except BaseException:
                    leave()
                    raise
            if not _blocks(call):
                return endpoint(call)
            ticket = self._take(quota_owner(owner_of(call.context)))
            try:
                return endpoint(call)
            finally:
                self._leave(ticket)

        return guarded

    def take_stream(self, owner: str = "") -> Callable[[], None]:
        """A place for one stream of `owner`, held until what is returned is called (once).

        Raises:
            OverloadedError: there is none.
        """
        with self._lock:
            if not self._streams.admits(owner):
                own = self._streams.taken < self._streams.total
                raise OverloadedError(
                    f"{'this caller has' if own else 'there are'} as many open streams as may be; try again later",
                    retry_after=1.0,
                )
            self._streams.take(owner)
        try:
            ticket = self._take(owner)
        except BaseException:
            self._leave_stream(owner)
            raise

        def give_back() -> None:
            self._leave_stream(owner)
            self._leave(ticket)

        return give_back

    def _leave_stream(self, owner: str) -> None:
        with self._lock:
            self._streams.release(owner)

    # -- threads --

    def _take(self, owner: str) -> _Ticket:
        ticket = _Ticket(owner)
        with self._lock:
            if self._most is None or self._threads.admits(owner):
                self._hold(ticket)
                return ticket
            self._check_wait(owner, self._most)
            self._line.append(ticket)
            ticket.given.acquire()
        if not ticket.given.acquire(timeout=_SHORT):
            with self._lock:
                if ticket in self._line:
                    self._line.remove(ticket)
                    raise _no_thread()
        return ticket

    def _check_wait(self, owner: str, most: int) -> None:
        """Refuse a call where waiting is no use, or where enough others wait; called under the lock."""
        before = time.monotonic() - _SHORT
        slow = list(takewhile(lambda ticket: ticket.since <= before, self._held))
        if len(self._line) >= most - len(slow):
            raise _no_thread()
        own = sum(ticket.owner == owner for ticket in slow)
        if own and own >= self._threads.limit(owner):
            raise _no_thread()

    def _hold(self, ticket: _Ticket) -> None:
        ticket.since = time.monotonic()
        self._held[ticket] = None
        self._threads.take(ticket.owner)

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            del self._held[ticket]
            self._threads.release(ticket.owner)
            # Handed over, so that a call that comes just now does not take it away.
            for waiting in list(self._line):
                if self._threads.admits(waiting.owner):
                    self._line.remove(waiting)
                    self._hold(waiting)
                    waiting.given.release()


class _HeldStream:
    """A stream that holds a place until it is closed."""

    def __init__(self, stream: PolledStream, leave: Callable[[], None]) -> None:
        self._stream = stream
        self._leave: Callable[[], None] | None = leave
        self.poll = stream.poll

    @property
    def task_id(self) -> str:
        return self._stream.task_id

    @property
    def closing(self) -> StreamItem | None:
        return self._stream.closing

    def __iter__(self) -> Iterator[StreamItem]:
        return iter(self._stream)

    def close(self) -> None:
        leave, self._leave = self._leave, None
        try:
            self._stream.close()
        finally:
            if leave is not None:
                leave()


def _no_thread() -> OverloadedError:
    return OverloadedError(
        "streams and waiting calls hold as many threads of the server as they may; try again later", retry_after=1.0
    )


def _blocks(call: Call) -> bool:
    """It waits for a task on a thread of the server."""
    if call.operation is not SEND_MESSAGE:
        return False
    configuration = call.request.configuration
    return configuration is None or not configuration.return_immediately
