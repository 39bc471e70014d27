"""The budget of server threads for open streams and blocking sends, in total and for each owner of tasks.

A WSGI server has a number of threads, and each of these calls holds one until it ends. If they held all of them, no task
could be read or cancelled. So some threads stay free, and no owner holds all the others: a call beyond that is refused before
anything is stored. Where a stream can wait for its events without a thread, it holds one only while it opens.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import (
    SEND_MESSAGE,
    AnyCall,
    Call,
    Endpoint,
    StreamItem,
    owner_of,
    quota_owner,
)
from a2a_sync.server.pending import CallerGone, PendingReply, changed, within
from a2a_sync.types import SendMessageRequest

#: The longest wait for a thread, and how long a thread is held at most by a call that is worth waiting for, in seconds.
_MAX_WAIT = 0.5
#: Seconds after which a send is deferred while calls wait for a thread.
_SHORT_WAIT = 0.005
#: Seconds after which a caller beyond its share gets no further call to wait: the threads that these would hold are for other callers.
_MAX_DELAY = 0.05
#: The same for sends that are deferred: they hold a thread for a moment only.
_MAX_DEFERRED_DELAY = 0.25


class _Ticket:
    """A call of `owner` that holds a thread of the server, or waits for one; ``granted`` is released when it is available."""

    __slots__ = ("granted", "owner", "since")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.since = time.monotonic()
        #: None while it has not waited: hardly any ticket does.
        self.granted: threading.Lock | None = None


class ThreadBudget:
    """Admits `streams` open streams, and as many streams and blocking sends together as `reserve` leaves threads for.

    No owner holds more of either than `quotas` allows. A call that finds no thread waits for a moment, as long as some of the
    threads are held by calls that have only just begun. In a forked child nothing is held.
    """

    def __init__(self, streams: int, threads: int | None = None, quotas: Quotas | None = None) -> None:
        self._max_streams = streams
        self._max_threads: int | None = None
        self._quotas = quotas or Quotas()
        renew_per_process(self)
        if threads is not None:
            self.reserve(threads)

    def renew(self) -> None:
        """In a forked child: the streams and calls are those of the parent."""
        self._lock = threading.Lock()
        #: The tickets that hold a thread, the oldest first.
        self._held: dict[_Ticket, None] = {}
        #: The tickets that wait for one.
        self._queue: deque[_Ticket] = deque()
        self._streams = self._quotas.share(self._max_streams, self._quotas.quota.max_open_streams)
        self._share_threads()

    def reserve(self, threads: int) -> None:
        """Set the number of the server's threads: an eighth of them, and at least two, stay free."""
        self._max_threads = _unreserved(threads)
        self._share_threads()

    def limit_connections(self, connections: int) -> None:
        """Set how many connections the server accepts at once: an eighth of them, and at least two, stay free of streams.

        A stream that holds no thread still occupies its connection. Called before there are streams.
        """
        self._max_streams = min(self._max_streams, _unreserved(connections))
        self._streams.total = self._max_streams

    def _share_threads(self) -> None:
        # Without a known number of threads, they are counted and never refused.
        with self._lock:
            limit = self._quotas.quota.max_open_streams
            self._threads = self._quotas.share(self._max_threads or 0, limit)
            for ticket in self._held:
                self._threads.take(ticket.owner)

    @property
    def streams(self) -> int:
        """Open streams."""
        return self._streams.taken

    def guard(self, endpoint: Endpoint) -> Endpoint:
        """Wrap `endpoint`: blocking sends hold a thread of the server until they return, streams until ``close`` or ``notify``.

        A send that may be deferred counts as an open stream too, and holds a thread until `PendingReply.release_thread`. Calls of
        a transport without threads of its own (`CallContext.threaded`) hold none. The returned endpoint raises `OverloadedError`
        where no thread or no place is left.
        """

        def guarded(call: Call[Any, Any]) -> Any:
            if call.context.gone is None:
                # A call inside the process holds no thread of the server.
                return endpoint(call)
            if call.operation.streaming:
                return self._stream(endpoint, call)
            return self._send(endpoint, call) if _blocks(call) else endpoint(call)

        return guarded

    def _stream(self, endpoint: Endpoint, call: Call[Any, Any]) -> Any:
        context = call.context
        ticket = self._take_stream(quota_owner(owner_of(context)), threaded=context.threaded, gone=context.gone)
        stream = within(_unless_it_returns(partial(self._release_stream, ticket)), endpoint, call)
        return changed(
            stream,
            lambda stream: _BudgetedStream(
                stream, partial(self._release, ticket), partial(self._release_stream, ticket)
            ),
        )

    def _send(self, endpoint: Endpoint, call: Call[Any, Any]) -> Any:
        owner, context = quota_owner(owner_of(call.context)), call.context
        if context.deferred_after == math.inf:
            ticket = self._take(owner, gone=context.gone)
            try:
                return endpoint(call)
            finally:
                self._release(ticket)
        # It counts as a stream of one event.
        ticket = self._take_stream(owner, threaded=context.threaded, delay=_MAX_DEFERRED_DELAY, gone=context.gone)
        if self._queue:
            # Others wait for its thread.
            call = replace(call, context=replace(context, deferred_after=min(context.deferred_after, _SHORT_WAIT)))
        result = within(_finally(partial(self._release_stream, ticket)), endpoint, call)
        if isinstance(result, PendingReply):
            result.release_thread = partial(self._release, ticket)
        return result

    def take_stream(self, owner: str = "") -> Callable[[], None]:
        """Take a place and a thread for one stream of `owner`; the returned function releases them (once).

        Raises:
            OverloadedError: no stream or no thread is left.
        """
        return partial(self._release_stream, self._take_stream(owner, threaded=True))

    def _take_stream(
        self, owner: str, *, threaded: bool, delay: float = _MAX_DELAY, gone: Callable[[], bool] | None = None
    ) -> _Ticket:
        with self._lock:
            if not self._streams.admits(owner):
                own = self._streams.taken < self._streams.total
                calls = "open streams" if threaded else "open streams and blocking sends"
                raise OverloadedError(
                    f"Too many {calls}{' of this caller' if own else ''}; retry later",
                    retry_after=1.0,
                )
            self._streams.take(owner)
        if not threaded:
            return _Ticket(owner)
        try:
            return self._take(owner, delay, gone)
        except BaseException:
            with self._lock:
                self._streams.release(owner)
            raise

    def _release_stream(self, ticket: _Ticket) -> None:
        with self._lock:
            self._streams.release(ticket.owner)
        self._release(ticket)

    # -- threads --

    def _take(self, owner: str, delay: float = _MAX_DELAY, gone: Callable[[], bool] | None = None) -> _Ticket:
        ticket = _Ticket(owner)
        with self._lock:
            if self._max_threads is None or self._threads.admits(owner):
                self._hold(ticket)
                return ticket
            if gone is not None and gone():
                # Its response is not read, and connections that are cut off again and again would occupy all threads.
                raise CallerGone()
            self._check_wait(owner, self._max_threads, delay)
            granted = ticket.granted = threading.Lock()
            granted.acquire()
            self._queue.append(ticket)
        if not granted.acquire(timeout=_MAX_WAIT):
            with self._lock:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                    raise _no_thread()
        return ticket

    def _check_wait(self, owner: str, most: int, delay: float) -> None:
        """Refuse a call for which no thread would become free, or that would wait behind too many others; called under the lock.

        `delay` is how long the first waiting call of the owner may have waited.
        """
        now = time.monotonic()
        first = next((ticket for ticket in self._queue if ticket.owner == owner), None)
        if first is not None and first.since <= now - delay and (owner or self._quotas.several):
            raise _no_thread()
        before = now - _MAX_WAIT
        slow = list(takewhile(lambda ticket: ticket.since <= before, self._held))
        if len(self._queue) >= most - len(slow):
            raise _no_thread()
        own = sum(ticket.owner == owner for ticket in slow)
        if own and own >= self._threads.limit(owner):
            raise _no_thread()

    def _hold(self, ticket: _Ticket) -> None:
        ticket.since = time.monotonic()
        self._held[ticket] = None
        self._threads.take(ticket.owner)

    def _release(self, ticket: _Ticket) -> None:
        """Release the thread of a call, if it holds one."""
        with self._lock:
            if ticket not in self._held:
                return
            del self._held[ticket]
            self._threads.release(ticket.owner)
            # Handed over directly, so that a call that arrives now does not take it first.
            for waiting in list(self._queue):
                if self._threads.admits(waiting.owner):
                    self._queue.remove(waiting)
                    self._hold(waiting)
                    if waiting.granted is not None:
                        waiting.granted.release()


@contextmanager
def _finally(release: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        release()


@contextmanager
def _unless_it_returns(undo: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        undo()
        raise


class _BudgetedStream:
    """A stream that counts as open until it is closed, and holds a thread until then or until its reader is notified of events.

    Parameters:
        stream: the stream itself.
        release_thread: releases its thread; does nothing the second time.
        release: releases its place, and the thread if it still has one.
    """

    def __init__(self, stream: PolledStream, release_thread: Callable[[], None], release: Callable[[], None]) -> None:
        self._stream = stream
        self._release_thread = release_thread
        self._release: Callable[[], None] | None = release
        self.poll = stream.poll

    def notify(self, callback: Callable[[], None]) -> None:
        """As `PolledStream.notify`. No thread waits for events from now on."""
        self._release_thread()
        self._stream.notify(callback)

    @property
    def task_id(self) -> str:
        return self._stream.task_id

    @property
    def closing(self) -> StreamItem | None:
        return self._stream.closing

    def __iter__(self) -> Iterator[StreamItem]:
        return iter(self._stream)

    def close(self) -> None:
        release, self._release = self._release, None
        try:
            self._stream.close()
        finally:
            if release is not None:
                release()


def _unreserved(count: int) -> int:
    """How many of `count` threads or connections one kind of calls may hold."""
    return max(1, count - max(2, count // 8))


def _no_thread() -> OverloadedError:
    return OverloadedError(
        "Too many open streams and blocking sends for the threads of this server; retry later", retry_after=1.0
    )


def _blocks(call: AnyCall) -> bool:
    """The call waits for a task on a thread of the server."""
    if call.operation is not SEND_MESSAGE or not isinstance(call.request, SendMessageRequest):
        return False
    configuration = call.request.configuration
    return configuration is None or not configuration.return_immediately
