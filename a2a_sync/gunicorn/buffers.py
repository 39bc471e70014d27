"""Buffers for the worker of `a2a_sync.gunicorn`: an incoming request, and response bytes that the client has not read.

Methods that the main thread calls never block. The module is independent of gunicorn.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from a2a_sync.wsgi.connection import RESET

#: The largest head of a request, in bytes; a larger one is refused with HTTP 431.
MAX_HEAD_BYTES = 64 * 1024
#: The most bytes of framing (chunk sizes, line breaks) in a chunked body, in addition to its content.
_CHUNK_OVERHEAD = 64 * 1024
#: The longest chunk-size line, in bytes.
_MAX_CHUNK_LINE = 8190
#: The most chunks in a body, besides one for each `CHUNK_BYTES` bytes: parsing a chunk takes as long as reading kilobytes.
MAX_SMALL_CHUNKS = 10_000
CHUNK_BYTES = 64
#: The parser gets a chunked body in pieces of this many bytes: it copies what it holds several times for each chunk.
_PIECE = 8 * 1024
#: The most bytes of trailers after a chunked body.
_MAX_TRAILER_BYTES = 16 * 1024
#: A write blocks while more than this many bytes of earlier writes are unsent: an event stream must not run ahead of
#: its client.
_HIGH_WATER = 64 * 1024
#: Bytes that the main thread reads or writes per connection and turn, so that no connection delays the others.
STEP = 1024 * 1024

_NOTHING = memoryview(b"")

# The pattern includes the preceding line break: the search is ten times as fast as with ``^`` and MULTILINE.
_CHUNKED = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_EXPECT = re.compile(rb"\n(expect:[ \t]*100-continue[ \t]*\r\n)", re.IGNORECASE)


class IncomingRequest:
    """The bytes of one request as they arrive. It finds the end of the request; gunicorn's parser does everything else.

    ``complete``: the request can be passed to a thread. ``whole``: all of its bytes have arrived, so that nothing more
    is read from the socket. A body with an announced length above `max_body_bytes` is not buffered; the application
    decides whether to read it.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body = max_body_bytes
        self.data: bytearray = bytearray()
        self.started: float = time.monotonic()
        self.last_received: float = self.started
        #: Offset of the body; 0 until the head is complete.
        self.head_end: int = 0
        self.complete: bool = False
        self.whole: bool = False
        self.head_too_large: bool = False
        self.too_many_chunks: bool = False
        #: Whether the client waits for ``100 Continue`` before it sends the body.
        self.awaits_continue: bool = False
        self._end: int | None = None
        # In a chunked body: offset of the next chunk-size line; None in the trailers.
        self._next_size: int | None = 0
        self._chunks = 0
        self._trailers = 0

    def feed(self, data: bytes) -> None:
        """Append received bytes and search for the end of the request."""
        self.last_received = time.monotonic()
        searched = max(0, len(self.data) - 3)
        self.data += data
        if not self.head_end:
            if self.data.startswith((b"\r", b"\n")):
                # Empty lines before a request are ignored (RFC 9112 section 2.2).
                self.data, searched = self.data.lstrip(b"\r\n"), 0
            at = self.data.find(b"\r\n\r\n", searched)
            if at < 0:
                self.head_too_large = self.complete = len(self.data) > MAX_HEAD_BYTES
                return
            if at > MAX_HEAD_BYTES:
                self.head_too_large = self.complete = True
                return
            self._read_head(at + 4)
        if not self.complete:
            self._find_end()

    @property
    def first_piece(self) -> int:
        """How many bytes the parser gets at first; it reads the others from the socket."""
        return self.head_end + _PIECE if self.head_end and self._end is None else len(self.data)

    def end(self) -> None:
        """Mark the request as complete: no more bytes will be read for it."""
        self.complete = self.whole = True

    def _read_head(self, end: int) -> None:
        head = bytes(self.data[: end - 2])
        lengths = _content_lengths(head)
        if _CHUNKED.search(head):
            self._next_size = end
        elif not lengths:
            self._end = end
        elif len(lengths) > 1 or not (length := lengths.pop()).isdigit():
            self.end()  # the parser refuses it
        elif len(digits := length.lstrip(b"0")) > 15 or int(digits or b"0") > self._max_body:
            self.complete = True
        else:
            self._end = end + int(digits or b"0")
        self.head_end = end
        if not self.complete and self._end != end and (expected := _EXPECT.search(head)):
            self.awaits_continue = True
            self._remove_expect(*expected.span(1))

    def _remove_expect(self, start: int, end: int) -> None:
        """Remove the ``Expect`` line from the head, because the worker handles it itself."""
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
        """Continue with the next chunk-size lines.

        A malformed or too large body counts as complete: gunicorn or the app refuses it.
        """
        while self._next_size is not None:
            if self._next_size > len(self.data):
                break
            at = self.data.find(b"\r\n", self._next_size)
            if at < 0:
                if len(self.data) - self._next_size > _MAX_CHUNK_LINE:
                    self.end()
                break
            digits = bytes(self.data[self._next_size : at]).partition(b";")[0].strip()
            size = int(digits, 16) if _CHUNK_SIZE.fullmatch(digits) else -1
            if size < 0:
                self.end()
                return
            self._chunks += 1
            if self._chunks > MAX_SMALL_CHUNKS + (len(self.data) - self.head_end) // CHUNK_BYTES:
                self.too_many_chunks = self.complete = True
                return
            if size:
                self._next_size = at + 2 + size + 2
            else:
                self._next_size, self._trailers = None, at + 2
        if self._next_size is None:
            # Search from the preceding line break, so that an empty trailer section also ends with two line breaks.
            begin = self._trailers - 2
            limit = begin + _MAX_TRAILER_BYTES
            if self.data.find(b"\r\n\r\n", begin, limit) >= 0 or len(self.data) >= limit:
                self.end()
        if len(self.data) - self.head_end > self._max_body + _CHUNK_OVERHEAD:
            self.end()


def connection_limit(configured: int) -> int:
    """The most connections of a worker: a quarter of the files that the process may open is left for the application."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return configured if files == resource.RLIM_INFINITY else min(configured, max(1, files * 3 // 4))


def is_whole(data: bytes) -> bool:
    """Whether `data` holds a whole request. Also False for requests whose end only `IncomingRequest` can find."""
    end = data.find(b"\r\n\r\n") + 4
    head = data[:end].lower()
    if end < 4 or b"\ntransfer-encoding" in head:
        return False
    at = head.find(b"\ncontent-length")
    if at < 0:
        return True
    after = head[at + 15 :]
    length = after[1 : after.find(b"\r")].strip(b" \t")
    return after[:1] == b":" and length.isdigit() and len(length) < 16 and end + int(length) <= len(data)


def _content_lengths(head: bytes) -> set[bytes]:
    """The distinct values of ``Content-Length``, in linear time because the main thread serves all connections."""
    lines = [line for line in head.lower().split(b"\r\n")[1:] if line.startswith(b"content-length")]
    pairs = (line.partition(b":") for line in lines)
    return {value.strip(b" \t") for name, _, value in pairs if name.rstrip(b" \t") == b"content-length"}


def _rest(view: memoryview, done: int) -> memoryview:
    """`view` after its first `done` bytes. It keeps at most four times its own size in memory."""
    rest, whole = view[done:], cast(bytes, view.obj)
    return memoryview(bytes(rest)) if 4 * len(rest) < len(whole) else rest


class ClientSocket(socket.socket):
    """The socket of a client: bytes that the client does not read immediately are parked and sent by the main thread.

    `on_park` is called on the writing thread when the first bytes are parked. Blocking calls wait at most `timeout`
    seconds.
    """

    #: The application may write a response of any size in one call, which does not wait until the client has read it.
    buffers_writes = True
    #: A paused body is resumed. The worker sets it for the connections that it serves itself.
    resumes = False

    def __init__(self, accepted: socket.socket, on_park: Callable[[], None], timeout: float) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._on_park = on_park
        self._timeout = timeout
        self._lock = threading.Lock()
        # Most connections never park anything, and each of these needs as much memory as all other attributes together.
        self._changed: threading.Condition | None = None
        self._parked: deque[memoryview] | None = None
        self._broken = False
        self.parked_bytes: int = 0
        #: Monotonic time at which the client last accepted parked bytes.
        self.progress: float = 0.0
        #: Whether the whole request was received; reads by the parser then return end of file.
        self.received = False
        self._unparsed = _NOTHING
        self.settimeout(None)

    def settimeout(self, value: float | None) -> None:
        """Set the timeout in seconds.

        None sets that of the connection: without one, reads of the main thread would block.
        """
        super().settimeout(self._timeout if value is None else value)

    def setblocking(self, flag: bool) -> None:
        """Do nothing: the socket always has a timeout, and its descriptor stays non-blocking for the main thread."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        if self._unparsed:
            data, self._unparsed = bytes(self._unparsed[:size]), _rest(self._unparsed, size)
            return data
        return b"" if self.received else super().recv(size, flags)

    def unread(self, data: bytes) -> None:
        """Let the next reads return `data`, which was received before."""
        self._unparsed = memoryview(data) if data else _NOTHING

    def take_unread(self) -> bytes:
        """The rest of the bytes given to `unread`."""
        data, self._unparsed = bytes(self._unparsed), _NOTHING
        return data

    def read_now(self, size: int) -> bytes:
        """The bytes that have arrived, at most about `size`; empty at the end of file.

        Raises:
            BlockingIOError: none have arrived.
            OSError: the connection is broken.
        """
        return os.read(self.fileno(), size)

    def write_now(self, data: bytes) -> None:
        """Write what the client accepts of `data` now.

        Raises:
            OSError: it accepts nothing now, or the connection is broken.
        """
        os.write(self.fileno(), data)

    def end_writing(self) -> None:
        """Let the client read the end of file.

        Raises:
            OSError: the connection is broken.
        """
        self.shutdown(socket.SHUT_WR)

    # -- on the thread of a request --

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send as much of `data` as the client accepts now, and park the rest.

        Raises:
            BrokenPipeError: the connection was aborted, or the client has not read enough of the bytes parked before.
        """
        # Only this thread parks bytes; while none are parked, no other thread writes.
        sent = 0 if self._parked or self._broken else self._write(data)
        if sent == len(data):
            return
        view = _rest(memoryview(data if isinstance(data, bytes) else bytes(data)), sent)
        with self._lock:
            self._wait_until_sent(_HIGH_WATER)
            if not self._parked:
                view = _rest(view, self._write(view))
            if not view:
                return
            first = not self._parked
            if first:
                self.progress = time.monotonic()
            if self._parked is None:
                self._parked = deque()
            self._parked.append(view)
            self.parked_bytes += len(view)
        if first:
            self._on_park()

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        with self._lock:
            self._wait_until_sent(0)
        return super().sendfile(file, offset, count)

    @property
    def full(self) -> bool:
        """Whether the next write would wait for the client."""
        return self.parked_bytes > _HIGH_WATER

    def _wait_until_sent(self, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` bytes are parked. The lock must be held."""
        if self.parked_bytes > limit_bytes:
            if self._changed is None:
                self._changed = threading.Condition(self._lock)
            if not self._changed.wait_for(lambda: self.parked_bytes <= limit_bytes, self.gettimeout()):
                # As when the connection was aborted: gunicorn logs no traceback of it.
                raise BrokenPipeError(errno.EPIPE, "the client does not read")
        if self._broken:
            raise BrokenPipeError(errno.EPIPE, "the connection was aborted")

    def _write(self, data: bytes | memoryview) -> int:
        """Write what the client accepts now; returns the number of bytes."""
        try:
            return os.write(self.fileno(), data)
        except BlockingIOError:
            return 0

    # -- on the main thread --

    def flush(self) -> bool:
        """Send the parked bytes that the client accepts now. Returns True when none are left.

        Raises:
            OSError: the connection is broken.
        """
        with self._lock:
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
                    self._parked[0] = _rest(view, sent)
            if self._changed is not None and self.parked_bytes <= _HIGH_WATER:
                self._changed.notify_all()
            return not self._parked

    def abort(self) -> None:
        """Reset the connection and discard its parked bytes. Writes then raise `BrokenPipeError`."""
        with self._lock:
            self._broken = True
            self._parked = None
            self.parked_bytes = 0
            if self._changed is not None:
                self._changed.notify_all()
        with suppress(OSError):  # already closed
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.shutdown(socket.SHUT_RDWR)


class TLSClientSocket(ClientSocket):
    """As `ClientSocket`, over TLS: what is parked is encrypted, and the handshake is a part of reading."""

    def __init__(
        self, accepted: socket.socket, on_park: Callable[[], None], timeout: float, tls: ssl.SSLContext
    ) -> None:
        super().__init__(accepted, on_park, timeout)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = self._ended = False

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The verified certificate of the client, as of `ssl.SSLSocket`."""
        return self._tls.getpeercert(binary_form)

    def read_now(self, size: int) -> bytes:
        while not self._ended:
            data = self._decrypt(os.read(self.fileno(), size))
            if data:
                return data
        return b""

    def write_now(self, data: bytes) -> None:
        self._tls.write(data)
        super().write_now(self._outgoing.read())

    def end_writing(self) -> None:
        with suppress(OSError):  # the client has not closed its end, or the handshake is not over
            self._tls.unwrap()
        if self._outgoing.pending:
            super().write_now(self._outgoing.read())
        super().end_writing()

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        while not (self._unparsed or self.received or self._ended):
            self.unread(self._decrypt(socket.socket.recv(self, _PIECE)))
        return super().recv(size, flags) if self._unparsed else b""

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        view, pieces = memoryview(data), []
        # OpenSSL keeps a buffer of the size of the largest piece for as long as the connection is open.
        for start in range(0, len(view), _HIGH_WATER):
            self._tls.write(view[start : start + _HIGH_WATER])
            pieces.append(self._outgoing.read())
        super().sendall(b"".join(pieces), flags)

    def _decrypt(self, data: bytes) -> bytes:
        """All that can be read when `data` has arrived.

        Raises:
            OSError: it is not TLS, the client is not admitted, or it does not read the answer to its handshake.
        """
        if data:
            self._incoming.write(data)
        else:
            self._ended = True
        pieces = []
        try:
            if not self._established:
                self._tls.do_handshake()
                self._established = True
            while piece := self._tls.read(STEP):
                pieces.append(piece)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        finally:
            if self._outgoing.pending:
                # Of the handshake, or the reason why it failed.
                self._write_all(self._outgoing.read())
        return b"".join(pieces)

    def _write_all(self, data: bytes) -> None:
        if self._write(data) < len(data):
            raise BrokenPipeError(errno.EPIPE, "the client does not read the answer to its handshake")
