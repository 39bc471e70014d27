"""The socket under a WSGI request, where the server shows it: whether the client has closed it, and time limits of writes.

Servers pass the socket in ``environ`` (gunicorn, Werkzeug). Where they do not, keepalive comments detect a lost client.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from a2a_sync.auth.request import PeerCertificate
from a2a_sync.concurrency.fork import renew_per_process

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

#: The value of ``SO_LINGER`` with which closing a connection resets it.
RESET = struct.pack("ii", 1, 0)
_SOCKET_KEYS = ("gunicorn.socket", "werkzeug.socket")
_GONE_KEYS = ("a2a_sync.gone", "waitress.client_disconnected")
#: The key in the environ of a request whose body was read to its end.
BODY_READ = "a2a_sync.body_read"
#: A response is written in pieces of this many bytes, each with a time limit of its own.
_PIECE = 256 * 1024
#: Up to this many bytes of an unread request body are read without waiting, so that the connection can be kept; parts of
#: responses up to this size are not counted.
_SMALL_BODY = 64 * 1024
_NO_WAIT = 0.0
#: The short names of attributes in a distinguished name (RFC 4514, section 3).
_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "emailAddress": "emailAddress",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}


def _native_poll() -> Any:
    """The unpatched `select.poll`: gevent's does not know RDHUP, and a poll of zero seconds never waits."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("select"):
        return monkey.get_original("select", "poll")
    return getattr(select, "poll", None)


_RDHUP = getattr(select, "POLLRDHUP", 0)
_HANGUP = _RDHUP | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


def _first(environ: WSGIEnvironment, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in environ:
            return environ[key]
    return None


def _asks_to_close(environ: WSGIEnvironment) -> bool:
    connection = environ.get("HTTP_CONNECTION")
    if not connection:
        return environ.get("SERVER_PROTOCOL") == "HTTP/1.0"
    options = {option.strip().lower() for option in connection.split(",")}
    return "close" in options or (environ.get("SERVER_PROTOCOL") == "HTTP/1.0" and "keep-alive" not in options)


class Connection:
    """The client's connection during one request. `stopping` returns whether the app is closed."""

    __slots__ = (
        "_abort",
        "_client_gone",
        "_closes_after",
        "_limited",
        "_socket",
        "_stopping",
        "_timeout_before",
        "resumes",
        "waits_for_reads",
        "waits_for_writes",
    )

    def __init__(self, environ: WSGIEnvironment, stopping: Callable[[], bool]) -> None:
        self._socket: socket.socket | None = _first(environ, _SOCKET_KEYS)
        self._closes_after = self._socket is not None and _asks_to_close(environ)
        self._client_gone: Callable[[], bool] | None = _first(environ, _GONE_KEYS)
        host_stops: Callable[[], bool] | None = environ.get("a2a_sync.stopping")
        self._stopping = stopping if host_stops is None else lambda: stopping() or host_stops()
        #: Of a server without a socket, whose writes wait for the client.
        self._abort: Callable[[], None] | None = getattr(self._client_gone, "abort", None)
        shown = self._socket is not None
        #: A write blocks until the client has read: the server shows its socket and does not buffer, or shows `abort`.
        self.waits_for_writes: bool = self._abort is not None or (shown and not self._shows("buffers_writes"))
        #: A read may wait for the client: the server shows its socket and has not received the whole request.
        self.waits_for_reads: bool = shown and not self._shows("received")
        #: The server resumes a body that has paused: see `a2a_sync.wsgi.pausing`.
        self.resumes: bool = shown and self._shows("resumes")
        self._limited = False
        self._timeout_before: float | None = None

    @property
    def has_socket(self) -> bool:
        """The server shows the socket of the connection."""
        return self._socket is not None

    def limit_body(
        self, environ: WSGIEnvironment, body: Iterable[bytes], seconds: float, on_read: Callable[[], None] | None = None
    ) -> Iterable[bytes]:
        """`body`, of which the client must read every piece within `seconds`, where writes wait for the client.

        `on_read` is called when the client has read the first part of it, or where writes do not wait.
        """
        if self.waits_for_writes:
            return LimitedBody(environ, body, self, seconds, on_read)
        if on_read is not None:
            on_read()
        return body

    def gone(self) -> bool:
        """The client has closed its side, or the server is stopping. Neither waits nor reads."""
        return self._stopping() or self.closed()

    def closed(self) -> bool:
        """The client has closed its side, as far as the server shows it."""
        if self._client_gone is not None:
            return bool(self._client_gone())
        return self._socket is not None and is_closed(self._socket)

    def limit(self, seconds: float) -> None:
        """Let each read from a silent client, and each write to one that does not read, fail after `seconds`.

        `restore` undoes it.
        """
        if self._socket is not None and not self._limited:
            try:
                self._timeout_before = self._socket.gettimeout()
                self._socket.settimeout(seconds)
                self._limited = True
            except OSError:
                pass  # it is closed, which `closed` reports

    def restore(self) -> None:
        """Restore the timeout that the socket had before `limit`, for the next request on it."""
        if self._socket is not None and self._limited:
            self._limited = False
            try:
                self._socket.settimeout(self._timeout_before)
            except OSError:
                pass

    def abort(self) -> None:
        """Reset the connection; what is still on its way is lost. From any thread."""
        if self._abort is not None:
            self._abort()
        if self._socket is not None:
            with suppress(OSError):  # it has ended
                # Closing resets it then: what the client has not read would stay in the memory of the system.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self._socket.shutdown(socket.SHUT_RDWR)

    def shutdown_read(self) -> None:
        """Where the client closes after this response: do not wait for anything that it might still send.

        Gunicorn lingers on its main thread for every connection that it closes, up to two seconds each, and accepts no
        other meanwhile. Only for requests that were read whole: else the client may lose the end of its response.
        """
        if self._closes_after:
            self._shutdown(socket.SHUT_RD)

    def shutdown_write(self) -> None:
        """End the response so that the client does not use the connection again. Not with TLS.

        The server must still see what the client goes on sending of this request, or it would parse it as the next one.
        """
        self._shutdown(socket.SHUT_WR)

    def _shutdown(self, how: int) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it has ended
                if not hasattr(self._socket, "getpeercert"):
                    self._socket.shutdown(how)

    def _shows(self, name: str) -> bool:
        """Whether the server's socket has a true attribute of this name."""
        try:
            return bool(getattr(self._socket, name, False))
        except OSError:  # every attribute of a closed socket of gevent
            return False


def is_closed(sock: socket.socket) -> bool:
    """Whether either side has closed the connection, as far as the system shows it. Neither waits nor reads."""
    if (poll := _native_poll()) is None:
        return False
    try:
        number = sock.fileno()
        if number < 0:
            return True
        poller = poll()
        poller.register(number, _RDHUP)
        return any(mask & _HANGUP for _, mask in poller.poll(0))
    except (OSError, ValueError):
        return True


class Abortable(Protocol):
    """A connection that can be ended from any thread."""

    def abort(self) -> None: ...


class HeldBytes:
    """The bytes that this process holds for clients that read or send slowly: at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the bytes are the parent's."""
        self._lock = threading.Lock()
        #: Bytes by connection, the first to be aborted first.
        self._bytes: OrderedDict[Abortable, int] = OrderedDict()
        self._total = 0

    def add(self, connection: Abortable, size: int) -> None:
        """Count `size` more bytes of `connection`, and abort other connections where there are too many."""
        with self._lock:
            self._bytes[connection] = self._bytes.get(connection, 0) + size
            self._total += size
            surplus = []
            while self._total > self.max_bytes and len(self._bytes) > 1:
                stalled, its_size = self._bytes.popitem(last=False)
                self._total -= its_size
                surplus.append(stalled)
        for stalled in surplus:
            stalled.abort()

    def progress(self, connection: Abortable) -> None:
        """The client has read a piece."""
        with self._lock:
            if connection in self._bytes:
                self._bytes.move_to_end(connection)

    def remove(self, connection: Abortable) -> None:
        """The response was written or the body received, or could not be."""
        with self._lock:
            self._total -= self._bytes.pop(connection, 0)


#: Large responses, where the server does not buffer; the connection that has read nothing for longest is aborted first.
unsent_responses: Final = HeldBytes(128 * 1024 * 1024)
#: Bodies of requests that are being received, where the server does not receive them first; the oldest is aborted first.
incoming_bodies: Final = HeldBytes(64 * 1024 * 1024)


@dataclass(eq=False, repr=False, slots=True)
class LimitedBody:
    """The body of a response, of which the client must read every piece within `seconds`.

    Its writes fail when the client reads nothing for that long. A request body that was not read is not awaited. For servers
    whose writes wait (`Connection.waits_for_writes`).
    """

    _environ: WSGIEnvironment
    _body: Iterable[bytes]
    _connection: Connection
    _seconds: float
    _on_read: Callable[[], None] | None
    _written_at: float | None = None

    def __iter__(self) -> Iterator[bytes]:
        self._connection.limit(self._seconds)
        for data in self._body:
            if len(data) > _SMALL_BODY:
                unsent_responses.add(self._connection, len(data))
            for start in range(0, len(data), _PIECE):
                if start:
                    unsent_responses.progress(self._connection)
                self._written_at = time.monotonic()
                yield data if len(data) <= _PIECE else data[start : start + _PIECE]
            self._written_at = None
            self._was_read()

    def _was_read(self) -> None:
        unsent_responses.remove(self._connection)
        on_read, self._on_read = self._on_read, None
        if on_read is not None:
            on_read()

    def close(self) -> None:
        """Called by the server when the response was written, or could not be."""
        self._was_read()
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._connection.restore()
            since = self._written_at
            if since is not None and time.monotonic() - since >= self._seconds * 0.9:
                # A server that closes connections gracefully would wait for this client once more.
                self._connection.abort()
            elif self._connection.has_socket and has_body(self._environ) and not self._environ.get(BODY_READ):
                self._finish_input()

    def _finish_input(self) -> None:
        """Read what the client has sent of its body; what has not arrived is not awaited, and its connection is closed."""
        length = self._environ.get("CONTENT_LENGTH", "")
        if length.isdecimal() and int(length) <= _SMALL_BODY:
            self._connection.limit(_NO_WAIT)
            try:
                if len(self._environ["wsgi.input"].read(int(length))) == int(length):
                    return
            except Exception:  # servers raise errors of their own for what does not come  # nosec B110
                pass
            finally:
                self._connection.restore()
        self._connection.shutdown_write()


def has_body(environ: WSGIEnvironment) -> bool:
    """The request announces a body."""
    return environ.get("CONTENT_LENGTH", "") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ


def peer_certificate(environ: WSGIEnvironment) -> PeerCertificate | None:
    """The client certificate that the server has verified; None where it asked for none, or did not verify it.

    The server's socket is asked first, then ``SSL_CLIENT_VERIFY`` and ``SSL_CLIENT_S_DN``.
    """
    try:
        ask = getattr(_first(environ, _SOCKET_KEYS), "getpeercert", None)
        details = ask() if ask is not None else None
    except (OSError, ValueError):
        details = None  # the connection is closed
    if details:
        return PeerCertificate(_distinguished_name(details), details)
    if environ.get("SSL_CLIENT_VERIFY") == "SUCCESS":
        return PeerCertificate(str(environ.get("SSL_CLIENT_S_DN", "")))
    return None


def _distinguished_name(certificate: dict[str, Any]) -> str:
    """The subject of `certificate` (RFC 4514). No two subjects have the same text."""
    return ",".join(
        "+".join(f"{_ATTRIBUTES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    value = re.sub(r'[,+"\\<>;=]|^[ #]| $', r"\\\g<0>", value)
    return re.sub(r"[\0-\x1f\x7f]", lambda found: f"\\{ord(found[0]):02X}", value)
