"""The load generator: keep-alive connections with one request at a time, and a check of every response.

One thread and one selector, so that it stays on one core. It implements as much of HTTP/1.1 as these servers use. Requests
and checks are in `exchanges`.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

_READ = selectors.EVENT_READ
_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class WrongAnswer(Exception):
    """A server's response failed its check."""


class Exchange(NamedTuple):
    """The bytes of a request, and the check of the response's body, which raises if it fails."""

    request: bytes
    check: Callable[[bytearray], None]


@dataclass
class Sample:
    """The results of one stretch of load, in seconds; `firsts` are times to the first event of a stream.

    `answers` includes the warm-up; `cpu` is the server's processor time per response, if measured.
    """

    seconds: float = 0.0
    answers: int = 0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        """The median latency."""
        return statistics.median(self.latencies)

    @property
    def p99(self) -> float:
        """The 99th percentile of the latency."""
        return sorted(self.latencies)[int(len(self.latencies) * 0.99)]

    @property
    def first(self) -> float:
        """The median time to the first event."""
        return statistics.median(self.firsts)


_buffer = bytearray(1 << 20)


class _Connection:
    """A connection and its current exchange."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.exchange: Exchange | None = None

    def begin(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.unsent = memoryview(exchange.request)
        self.received = bytearray()
        self.body_at = self.ends_at = 0
        self.first: float | None = None
        self.started = time.perf_counter()
        self.write()

    def write(self) -> None:
        try:
            self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass

    def read(self) -> bool:
        """Process received bytes; return whether the response is complete."""
        size = self.socket.recv_into(_buffer)
        if not size:
            raise WrongAnswer(f"the server closed the connection after {bytes(self.received[:500])!r}")
        self.received += memoryview(_buffer)[:size]
        if not self.body_at and not self._read_head():
            return False
        if self.first is None and (self.ends_at or self.received.find(b"data:", self.body_at) >= 0):
            self.first = time.perf_counter()
        return len(self.received) >= self.ends_at if self.ends_at else self.received.endswith(b"0\r\n\r\n")

    def _read_head(self) -> bool:
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self.received[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise WrongAnswer(bytes(self.received[:500]).decode("latin1"))
        self.body_at = end + 4
        _, found, length = head.partition(b"content-length:")
        if found:
            self.ends_at = self.body_at + int(length.split(b"\r\n")[0])
        return True

    def body(self) -> bytearray:
        """The body of a complete response."""
        if self.ends_at:
            del self.received[: self.body_at]
            return self.received
        body, at = bytearray(), self.body_at
        while True:
            line = self.received.index(b"\r\n", at)
            size = int(self.received[at:line], 16)
            if not size:
                return body
            body += memoryview(self.received)[line + 2 : line + 2 + size]
            at = line + size + 4


def drive(
    port: int,
    ask: Callable[[], Exchange],
    *,
    connections: int,
    seconds: float = 2.0,
    exchanges: int | None = None,
    warm: float = 0.3,
    limit: float = 60.0,
    on_all_begun: Callable[[], None] | None = None,
) -> Sample:
    """Send requests for `seconds`, or a number of `exchanges` without warm-up, over `connections` connections.

    Exchanges that start in the first `warm` seconds are checked and not counted. `on_all_begun` is called once when every
    connection has received its first event.

    Raises:
        WrongAnswer: a response was wrong, or the load took longer than `limit` seconds.
    """
    sample = Sample()
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    counted_from = begun if exchanges is not None else begun + warm
    until = begun + limit if exchanges is not None else counted_from + seconds
    left = exchanges if exchanges is not None else 1 << 62
    waiting = connections
    active = 0

    def start(connection: _Connection) -> None:
        nonlocal left, active
        if left <= 0 or time.perf_counter() >= until:
            selector.unregister(connection.socket)
            connection.socket.close()
            return
        left -= 1
        active += 1
        connection.begin(ask())
        selector.modify(connection.socket, _BOTH if connection.unsent else _READ, connection)

    def finish(connection: _Connection) -> None:
        nonlocal active
        now = time.perf_counter()
        active -= 1
        assert connection.exchange is not None
        connection.exchange.check(connection.body())
        sample.answers += 1
        if connection.started >= counted_from:
            sample.latencies.append(now - connection.started)
            sample.firsts.append((connection.first or now) - connection.started)

    for _ in range(connections):
        connection = _Connection(("127.0.0.1", port))
        selector.register(connection.socket, _READ, connection)
        start(connection)
    while active:
        if time.perf_counter() > begun + limit:
            raise WrongAnswer(f"{active} answers did not come within {limit:g} seconds")
        for key, mask in selector.select(1.0):
            connection = key.data
            if mask & selectors.EVENT_WRITE:
                connection.write()
                if not connection.unsent:
                    selector.modify(connection.socket, _READ, connection)
            if mask & _READ:
                had_begun = connection.first is not None
                complete = connection.read()
                if on_all_begun is not None and not had_begun and connection.first is not None:
                    waiting -= 1
                    if waiting == 0:
                        on_all_begun()
                if complete:
                    finish(connection)
                    start(connection)
    sample.seconds = time.perf_counter() - counted_from
    return sample
