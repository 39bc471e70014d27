"""A client that floods a gRPC server with frames of HTTP/2, in a process of its own: ``python -m tests.hostile.http2 KIND PORT SHARE``.

It prints a line for each connection that has made its calls, or begins to send large ones, and makes them again and again until its
input ends.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable

CONNECTIONS = 4
#: Frame types and flags (RFC 9113, 6).
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
INITIAL_WINDOW_SIZE = 4
ACK, END_STREAM, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHOD = "/lf.a2a.v1.A2AService/SendMessage"
#: A reference to the newest entry of the table (RFC 7541, 6.1).
NEWEST = b"\xbe"


def field(number: int, data: bytes) -> bytes:
    """A field of a message, of wire type 2."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


#: A message without a valid role, whose text fills nearly ten megabytes.
LARGE = field(2, b"\x20\x63" + field(5, field(1, b"x" * 9_900_000)))


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str, *, indexed: bool = False) -> bytes:
    """A field of a head; ``indexed``: it becomes the newest entry of the table."""
    return (b"\x40" if indexed else b"\x00") + b"".join(_string(text.encode()) for text in (name, value))


def _string(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, written = len(data) - 127, b"\x7f"
    while rest >= 128:
        written += bytes([rest % 128 + 128])
        rest //= 128
    return written + bytes([rest]) + data


def head(path: str) -> bytes:
    """The head of a call."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "agent",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(literal(name, value) for name, value in fields.items())


HEAD = head(METHOD)


class Connection:
    """A connection that has sent its preface, and reads what the server sends."""

    def __init__(self, port: int) -> None:
        #: The calls that the server has reset.
        self.resets: list[int] = []
        #: Its settings by their numbers, how many pings it has answered, and the code with which it has closed the connection.
        self.settings: dict[int, int] = {}
        self.pongs = 0
        self.closed: int | None = None
        #: The calls that have ended, and the bytes that the server takes of the messages of each call, and of all (as call 0).
        self.ended: set[int] = set()
        self.windows: defaultdict[int, int] = defaultdict(int)
        self.changed = threading.Condition()
        self.over = False
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError), self.socket.makefile("rb") as frames:
            while head := frames.read(9):
                kind, _, stream = struct.unpack(">BBI", head[3:])
                payload = frames.read(int.from_bytes(head[:3]))
                with self.changed:
                    self._note(kind, head[4], stream, payload)
                    self.changed.notify_all()
                if kind == RST_STREAM:
                    self.resets.append(stream)
                elif kind == SETTINGS:
                    self.settings |= dict(struct.iter_unpack(">HI", payload))
                elif kind == PING and head[4] & ACK:
                    self.pongs += 1
                elif kind == PING:
                    self.send(frame(PING, ACK, 0, payload))
                elif kind == GOAWAY:
                    self.closed = int.from_bytes(payload[4:8])
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def _note(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self.windows[stream] += int.from_bytes(payload)
        if kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
            self.ended.add(stream)

    def window(self, stream: int) -> int:
        """The bytes that the server has let the client send on a stream; 0: on all together."""
        initial = self.settings.get(INITIAL_WINDOW_SIZE, 65535) if stream else 65535
        return initial + self.windows[stream]

    def upload(self, streams: list[int], message: bytes) -> None:
        """Make calls with this message at once, as fast as the server takes it, until all have ended."""
        data = memoryview(struct.pack(">BI", 0, len(message)) + message)
        sent = dict.fromkeys(streams, 0)
        for stream in streams:
            self.send(frame(HEADERS, END_HEADERS, stream, HEAD))
        whole = 0
        while True:
            with self.changed:
                left = [one for one in streams if one not in self.ended]
                size = {
                    one: min(16384, len(data) - sent[one], self.window(one) - sent[one], self.window(0) - whole)
                    for one in left
                }
                ready = max(left, key=size.__getitem__, default=0)
                if ready == 0 or self.over:
                    return
                if size[ready] <= 0:
                    self.changed.wait(1.0)
                    continue
            part = data[sent[ready] : sent[ready] + size[ready]]
            sent[ready] += size[ready]
            whole += size[ready]
            self.send(frame(DATA, END_STREAM if sent[ready] == len(data) else 0, ready, part))

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def acknowledge(self) -> None:
        """Acknowledge the settings of the server, as each client has to."""
        self.send(frame(SETTINGS, ACK, 0))


def whole(stream: int, path: str, message: bytes) -> bytes:
    """A call that is complete."""
    data = struct.pack(">BI", 0, len(message)) + message
    return frame(HEADERS, END_HEADERS, stream, head(path)) + frame(DATA, END_STREAM, stream, data)


def half_sent(stream: int) -> bytes:
    """A call whose message never ends."""
    return frame(HEADERS, END_HEADERS, stream, HEAD) + frame(DATA, 0, stream, b"\0\0\1\0\0")


def reset(stream: int) -> bytes:
    """A call that ends at once."""
    return half_sent(stream) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def references(stream: int) -> bytes:
    """A call whose head repeats an entry of four kilobytes 3,000 times in as many bytes."""
    entry = literal("x-large", "z" * 3900, indexed=True) if stream == 1 else b""
    return frame(HEADERS, END_HEADERS, stream, HEAD + entry + NEWEST * 3000)


#: The calls of a connection, by kind, and how many it makes where SHARE is 1.
KINDS: dict[str, tuple[Callable[[int], bytes], int]] = {
    "half_sent": (half_sent, 1000),
    "reset": (reset, 5000),
    "references": (references, 200),
    "unacknowledged": (references, 200),
}


def flood_large(port: int, share: float) -> None:
    """Make calls with large messages, 75 at once where `share` is 1, on one connection after another."""
    count = round(75 * share)
    for number in itertools.count():
        connection = Connection(port)
        connection.acknowledge()
        if number == 0:
            print("sent\n", end="", flush=True)
        with contextlib.suppress(OSError):
            connection.upload(list(range(1, 2 * count, 2)), LARGE)
        connection.socket.close()


def flood(kind: str, port: int, share: float) -> None:
    """Make the calls of `kind`, on one connection after another."""
    if kind == "large":
        flood_large(port, share)
    call, count = KINDS[kind]
    count = round(count * share)
    for number in itertools.count():
        connection = Connection(port)
        with contextlib.suppress(OSError):
            if kind != "unacknowledged":
                connection.acknowledge()
            for stream in range(1, 2 * count, 2):
                connection.send(call(stream))
        if number == 0:
            print("sent\n", end="", flush=True)
        # The server keeps the calls for so long.
        time.sleep(1.0)
        connection.socket.close()


def main(kind: str, port: str, share: str) -> None:
    for _ in range(CONNECTIONS):
        threading.Thread(target=flood, args=(kind, int(port), float(share)), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
