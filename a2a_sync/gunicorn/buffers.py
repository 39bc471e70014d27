"""What the worker of `a2a_sync.gunicorn` keeps of a connection: a request that arrives, and bytes that its client has not read.

Nothing here waits on the main thread, and nothing knows gunicorn.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from a2a_sync.wsgi.connection import RESET

#: The largest head of a request, in bytes; larger ones are refused (HTTP 431).
_MAX_HEAD_BYTES = 64 * 1024
#: Bytes that the framing of a chunked body may have besides the body itself.
_CHUNK_OVERHEAD = 64 * 1024
#: The longest line with the size of a chunk, in bytes.
_MAX_CHUNK_LINE = 8190
#: The most bytes of trailers after a chunked body.
_MAX_TRAILER_BYTES = 16 * 1024
#: A write waits while more than so many bytes of earlier ones are not sent: an event stream must not run ahead of its client.
_HIGH_WATER = 64 * 1024
#: Bytes that are read or written in one step of the main thread, so that no connection holds it up.
STEP = 1024 * 1024

# With the end of the line before: a search for it is ten times as fast as one with ``^`` and MULTILINE.
_CHUNKED = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECT = re.compile(rb"\n(expect:[ \t]*100-continue[ \t]*\r\n)", re.IGNORECASE)


class IncomingRequest:
    """The bytes of one request as they arrive. It finds the end of the request and leaves everything else to gunicorn's parser.

    ``complete``: a thread can take it. ``whole``: all of it is here, so that nothing more is read from the socket. A body of
    more than `max_body_bytes` is not awaited: the application decides by its announced length.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body = max_body_bytes
        self.data = bytearray()
        self.started = self.heard = time.monotonic()
        #: Where the body begins; 0 as long as the head is not complete.
        self.head_end = 0
        self.complete = self.whole = self.head_too_large = False
        #: The client waits for ``100 Continue`` before it sends the body.
        self.awaits_continue = False
        self._end: int | None = None
        # In a chunked body: where the next line with a size begins, or None in the trailers.
        self._next_size: int | None = 0
        self._trailers = 0

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self.heard = time.monotonic()
        searched = max(0, len(self.data) - 3)
        self.data += data
        if not self.head_end:
            if self.data and self.data[0] in b"\r\n":
                # Empty lines before a request are passed over (RFC 9112 section 2.2).
                self.data = self.data.lstrip(b"\r\n")
                searched = 0
            at = self.data.find(b"\r\n\r\n", searched)
            if at < 0:
                self.head_too_large = self.complete = len(self.data) > _MAX_HEAD_BYTES
                return
            self._read_head(at + 4)
        if not self.complete:
            self._find_end()

    def end(self) -> None:
        """Nothing more will arrive."""
        self.complete = self.whole = True

    def _read_head(self, end: int) -> None:
        head = bytes(self.data[: end - 2])
        lengths = _content_lengths(head)
        if _CHUNKED.search(head):
            self._next_size = end
        elif not lengths:
            self._end = end
        elif len(lengths) > 1 or not (length := lengths.pop()).isdigit() or len(length) > 15:
            self.end()  # the parser refuses it
        elif int(length) > self._max_body:
            self.complete = True
        else:
            self._end = end + int(length)
        self.head_end = end
        if not self.complete and self._end != end and (expected := _EXPECT.search(head)):
            self.awaits_continue = True
            self._cut(*expected.span(1))

    def _cut(self, start: int, end: int) -> None:
        """Take a line out of the head: what it asks for is done."""
        del self.data[start:end]
        size = end - start
        self.head_end -= size
        if self._end is not None:
            self._end -= size
        else:
            self._next_size = self.head_end

    def _find_end(self) -> None:
        if self._end is None:
            self._read_chunks()
        elif len(self.data) >= self._end:
            self.end()

    def _read_chunks(self) -> None:
        """Go on from line to line; a body that is not well formed, or too large, is as complete as it needs to be."""
        while self._next_size is not None:
            if self._next_size > len(self.data):
                break
            at = self.data.find(b"\r\n", self._next_size)
            if at < 0:
                if len(self.data) - self._next_size > _MAX_CHUNK_LINE:
                    self.end()
                break
            digits = bytes(self.data[self._next_size : at]).partition(b";")[0].strip()
            try:
                size = int(digits, 16) if len(digits) <= 16 else -1
            except ValueError:
                size = -1
            if size < 0:
                self.end()
                return
            if size:
                self._next_size = at + 2 + size + 2
            else:
                self._next_size, self._trailers = None, at + 2
        if self._next_size is None:
            # From the line break before them, so that no trailers and their end look alike.
            begin = self._trailers - 2
            limit = begin + _MAX_TRAILER_BYTES
            if self.data.find(b"\r\n\r\n", begin, limit) >= 0 or len(self.data) >= limit:
                self.end()
        if len(self.data) - self.head_end > self._max_body + _CHUNK_OVERHEAD:
            self.end()


def _content_lengths(head: bytes) -> set[bytes]:
    """The values of ``Content-Length``. Linear in the size of the head: the main thread serves all connections."""
    lines = [line for line in head.lower().split(b"\r\n")[1:] if line.startswith(b"content-length")]
    pairs = (line.partition(b":") for line in lines)
    return {value.strip(b" \t") for name, _, value in pairs if name.rstrip(b" \t") == b"content-length"}


class ClientSocket(socket.socket):
    """A connection: what its client does not read at once is parked and sent by the main thread.

    `on_park` is called, on the thread that writes, when there is something to send. Blocking calls wait for `timeout` seconds
    at most.
    """

    #: The application may write an answer of any size in one piece: no thread waits for it.
    buffers_writes = True

    def __init__(self, accepted: socket.socket, on_park: Callable[[], None], timeout: float) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._on_park = on_park
        self._timeout = timeout
        self._changed = threading.Condition()
        self._parked: deque[memoryview] = deque()
        self._broken = False
        self.parked_bytes = 0
        #: When the client last took something of what is parked.
        self.progress = 0.0
        #: The whole request was received: for its parser the connection ends here.
        self.received = False
        self.settimeout(None)

    def settimeout(self, value: float | None) -> None:
        """As of every socket, but that there is always a limit: the main thread relies on it that no call on it blocks."""
        super().settimeout(self._timeout if value is None else value)

    def setblocking(self, flag: bool) -> None:
        """Nothing changes: there is always a limit, and the main thread reads and writes the descriptor, which never waits."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        return b"" if self.received else super().recv(size, flags)

    # -- on the thread of a request --

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send as much of `data` as the client takes now, and park the rest.

        Raises:
            TimeoutError: the client has not taken enough of what was parked before.
            BrokenPipeError: the connection was given up.
        """
        view = memoryview(data if isinstance(data, bytes) else bytes(data))
        with self._changed:
            self._await(_HIGH_WATER)
            if not self._parked:
                view = view[self._write(view) :]
            if not view:
                return
            first = not self._parked
            if first:
                self.progress = time.monotonic()
            self._parked.append(view)
            self.parked_bytes += len(view)
        if first:
            self._on_park()

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        with self._changed:
            self._await(0)
        return super().sendfile(file, offset, count)

    def _await(self, most: int) -> None:
        """Wait until at most so many bytes are parked. Called with the lock held."""
        if self.parked_bytes > most and not self._changed.wait_for(
            lambda: self.parked_bytes <= most, self.gettimeout()
        ):
            raise TimeoutError("the client does not read")
        if self._broken:
            raise BrokenPipeError(errno.EPIPE, "the connection was given up")

    def _write(self, view: memoryview) -> int:
        sent = 0
        try:
            while sent < len(view):
                sent += os.write(self.fileno(), view[sent : sent + STEP])
        except BlockingIOError:
            pass
        return sent

    # -- on the main thread --

    def flush(self) -> bool:
        """Send what the client takes now; True when nothing is left.

        Raises:
            OSError: the connection has ended.
        """
        with self._changed:
            left = STEP
            while self._parked and left > 0:
                view = self._parked[0]
                sent = self._write(view[:left])
                if not sent:
                    break
                left -= sent
                self.progress = time.monotonic()
                self.parked_bytes -= sent
                if sent == len(view):
                    self._parked.popleft()
                else:
                    self._parked[0] = view[sent:]
            if self.parked_bytes <= _HIGH_WATER:
                self._changed.notify_all()
            return not self._parked

    def abort(self) -> None:
        """Give the connection up, with what is parked."""
        with self._changed:
            self._broken = True
            self._parked.clear()
            self.parked_bytes = 0
            self._changed.notify_all()
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended
