"""Clients that occupy a server: each kind sends or reads as slowly as possible, and reconnects when it is cut off."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.stopwatch import Stopwatch
from tests.wsgi import CARD, rpc


def head(length: int, *more: str, path: str = "/", verb: str = "POST") -> bytes:
    """The head of a request."""
    lines = [f"{verb} {path} HTTP/1.1", "Host: agent", "Content-Type: application/json", "A2A-Version: 1.0", *more]
    if verb == "POST":
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def call(method: str, params: object, *more: str) -> bytes:
    body = rpc(method, params)
    return head(len(body), *more) + body


@dataclass(frozen=True)
class Kind:
    """The bytes that a client sends on connecting, and those that it then sends one by one; it never reads."""

    first: bytes
    drip: bytes = b""


def kinds(task_id: str) -> Mapping[str, Kind]:
    """All kinds; `task_id` is a task with a large artifact."""
    text = head(50_000).replace(b"application/json", b"text/plain")
    return {
        "silent": Kind(b""),
        "half a head": Kind(head(20)[:-2]),
        "a head that drips": Kind(b"POST / HTTP/1.1\r\nX-Slow: ", b"x"),
        "empty lines": Kind(b"\r\n\r\n", b"\r\n"),
        "no body": Kind(head(1000)),
        "half a body": Kind(head(1000) + b"{" * 500),
        "a body that drips": Kind(head(5000) + b"{", b" "),
        "chunks that drip": Kind(
            head(0, "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"") + b"1000\r\n", b"x"
        ),
        "a refused body": Kind(head(11_000_000) + b"x" * 100_000, b"x"),
        "a body of a refused type": Kind(text + b"x" * 20_000, b"x"),
        "a body for a path that does not exist": Kind(head(50_000, path="/nowhere") + b"x" * 100, b"x"),
        "a large answer": Kind(call("GetTask", {"id": task_id})),
        # The responses are more than the system's buffers of a connection: 4 MB and more.
        "many cards": Kind(head(0, path=CARD, verb="GET") * 20_000),
        "a stream": Kind(call("SubscribeToTask", {"id": task_id}, "Last-Event-ID: 1")),
    }


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect with small receive buffers."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(address)
    connection.setblocking(False)
    return connection


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed its side."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def abandon(connection: socket.socket) -> None:
    """Reset the connection, so that no state remains in the system."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@dataclass
class SlowClient:
    """A client of one kind. One that does not reconnect has one connection, whenever the server closes it."""

    address: tuple[str, int]
    kind: Kind
    reconnects: bool = True
    connections: int = 0
    _left: bytes = field(default=b"", init=False)
    _connection: socket.socket | None = field(default=None, init=False)

    def step(self) -> None:
        """Connect if necessary, and send the next bytes."""
        if self._connection is not None and closed(self._connection):
            self.stop()
        if self.connections and not self.reconnects and self._connection is None:
            return
        try:
            if self._connection is None:
                self._connection = connect(self.address)
                self._left = self.kind.first
                self.connections += 1
            if not self._left:
                self._left = self.kind.drip
            if self._left:
                sent = self._connection.send(self._left)
                self._left = self._left[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.stop()

    @property
    def cut_off(self) -> bool:
        """Whether the server has closed the connection."""
        return self._connection is None or closed(self._connection)

    def stop(self) -> None:
        if self._connection is not None:
            abandon(self._connection)
            self._connection = None


class Crowd:
    """Clients of all kinds, driven by one thread until the block ends."""

    def __init__(self, address: tuple[str, int], kinds: Mapping[str, Kind], count: int) -> None:
        every = list(kinds.values())
        self.clients = [SlowClient(address, every[number % len(every)]) for number in range(count)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crowd", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            for client in self.clients:
                client.step()
            self._stop.wait(0.1)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        for client in self.clients:
            client.stop()


def worst_wait(action: Callable[[], object], seconds: float, server: int | None = None) -> tuple[float, int]:
    """Repeat `action` for `seconds`; return its longest duration and the number of calls.

    With the id of the process of a `server`, the time for which one of its threads waited for a processor is left out.
    """
    worst, count, until = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        watch = Stopwatch(server) if server else None
        began = time.monotonic()
        action()
        took = time.monotonic() - began
        worst, count = max(worst, took - (watch.longest_delay if watch else 0.0)), count + 1
    return worst, count
