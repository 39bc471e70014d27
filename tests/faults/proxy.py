"""A proxy between client and server that fails on command: it cuts, resets, half-closes or stalls connections.

It forwards bytes, and parses only enough HTTP to recognise the request that a cut applies to and the ends of events in the
response.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

_TIMEOUT = 60.0
_STREAMS = b"text/event-stream"


@dataclass(frozen=True)
class Cut:
    """The end of one response: after a number of whole events, or of octets (0: after the request).

    `how`: close both connections, reset them, close only the direction of the response, or stop forwarding.
    """

    events: int | None = None
    octets: int | None = None
    how: Literal["close", "reset", "half", "stall"] = "close"

    def end(self, answer: bytes) -> int | None:
        """The number of octets of `answer` to forward, or None to continue."""
        if self.octets is not None:
            return self.octets if len(answer) >= self.octets else None
        place = 0
        for _ in range(self.events or 0):
            data = answer.find(b"\ndata: ", place)
            end = answer.find(b"\n\n", data)
            if data < 0 or end < 0:
                return None
            place = end + 2
        return place


class Proxy:
    """Forwards to `target`. A new target applies to new connections; None refuses them.

    Each request that contains `match` consumes one of `cuts`; by default, requests for streams.
    """

    def __init__(self, target: tuple[str, int] | None, *, match: bytes = _STREAMS) -> None:
        self.target = target
        self.cuts: deque[Cut] = deque()
        self.match = match
        #: The number of matching requests.
        self.matched = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn(self._accept)

    def _spawn(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="test-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.target is None:
                    raise ConnectionRefusedError
                server = socket.create_connection(self.target, timeout=60)
            except OSError:
                _end(client, reset=True)
                client.close()
                continue
            for one in (client, server):
                one.settimeout(_TIMEOUT)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += client, server
            _Line(self, client, server).start(self._spawn)

    def next_cut(self) -> Cut | None:
        self.matched += 1
        return self.cuts.popleft() if self.cuts else None

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(_TIMEOUT)
        self._listener.close()
        for one in self._sockets:
            _end(one)
        for thread in self._threads:
            thread.join(_TIMEOUT)
            assert not thread.is_alive(), "a thread of the proxy does not end"


class _Line:
    """Two connections forwarded to each other by one thread per direction; the last thread closes both."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._cut: Cut | None = None
        self._answer = b""
        self._directions = [self._forward_requests, self._forward_answers]

    def start(self, spawn: Callable[[Callable[[], None]], None]) -> None:
        for direction in list(self._directions):
            spawn(partial(self._run, direction))

    def _run(self, direction: Callable[[], None]) -> None:
        with suppress(OSError):
            direction()
        self._directions.remove(direction)
        if not self._directions:
            # The number of a closed socket is reused immediately, so no thread may use it afterwards.
            self._client.close()
            self._server.close()

    def _forward_requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(65536):
                if self._proxy.match in data:
                    self._answer, self._cut = b"", self._proxy.next_cut()
                self._server.sendall(data)
        # A client that closes its side has disconnected.
        _end(self._server)
        _end(self._client)

    def _forward_answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(65536):
                if self._cut is not None and self._is_cut(self._cut, data):
                    return
                self._client.sendall(data)
        _end(self._client)

    def _is_cut(self, cut: Cut, data: bytes) -> bool:
        """Forward the part of a cut response; return True when it is complete."""
        sent, self._answer = len(self._answer), self._answer + data
        end = cut.end(self._answer)
        if end is None:
            return False
        self._client.sendall(self._answer[sent:end])
        if cut.how == "half":
            self._client.shutdown(socket.SHUT_WR)
        elif cut.how != "stall":
            _end(self._client, reset=cut.how == "reset")
            _end(self._server, reset=cut.how == "reset")
        return True


def _end(one: socket.socket, *, reset: bool = False) -> None:
    """Wake the thread that reads from a connection; the last thread closes it."""
    with suppress(OSError):
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Closing sends the reset; no data may precede it.
        one.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)


@contextmanager
def proxy(target: tuple[str, int] | None, *cuts: Cut, match: bytes = _STREAMS) -> Iterator[Proxy]:
    """A proxy with the given cuts."""
    one = Proxy(target, match=match)
    one.cuts.extend(cuts)
    try:
        yield one
    finally:
        one.close()
