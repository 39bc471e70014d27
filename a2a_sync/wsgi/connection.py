"""The socket under a WSGI request, as far as the server shows it: has the client gone, and how long may a write take.

Servers hand the socket over in ``environ`` (gunicorn, Werkzeug); where they do not, heartbeats find a lost client.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

#: The value of ``SO_LINGER`` with which closing a connection resets it.
RESET = struct.pack("ii", 1, 0)
_KEYS = ("gunicorn.socket", "werkzeug.socket")
#: In the environ of a request whose body was read to its end.
BODY_READ = "a2a_sync.body_read"
#: An answer is written in pieces of so many bytes, each with a time limit of its own.
_PIECE = 256 * 1024
#: Up to so many bytes of a body that the app did not read are taken, and not awaited, so that the connection can be kept.
_SMALL = 64 * 1024
_NO_WAIT = 0.0
_SAYS_GONE = ("a2a_sync.gone", "waitress.client_disconnected")


def _native_poll() -> Any:
    """The unpatched `select.poll`: gevent's own does not know RDHUP, and a poll of zero seconds never waits."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("select"):
        return monkey.get_original("select", "poll")
    return getattr(select, "poll", None)


_RDHUP = getattr(select, "POLLRDHUP", 0)
_GONE = _RDHUP | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


def _first(environ: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in environ:
            return environ[key]
    return None


def _asks_to_close(environ: dict[str, Any]) -> bool:
    connection = environ.get("HTTP_CONNECTION")
    if not connection:
        return environ.get("SERVER_PROTOCOL") == "HTTP/1.0"
    said = {word.strip().lower() for word in connection.split(",")}
    return "close" in said or (environ.get("SERVER_PROTOCOL") == "HTTP/1.0" and "keep-alive" not in said)


class Connection:
    """The client's end of one request."""

    __slots__ = ("_asked_to_close", "_before", "_limited", "_said_gone", "_socket", "_stopping")

    def __init__(self, environ: dict[str, Any], stopping: Callable[[], bool]) -> None:
        self._asked_to_close = _asks_to_close(environ)
        self._socket: socket.socket | None = _first(environ, _KEYS)
        self._said_gone: Callable[[], bool] | None = _first(environ, _SAYS_GONE)
        host_stops: Callable[[], bool] | None = environ.get("a2a_sync.stopping")
        self._stopping = stopping if host_stops is None else lambda: stopping() or host_stops()
        self._limited = False
        self._before: float | None = None

    def gone(self) -> bool:
        """The client has closed its side, or the server is stopping. Never waits and never reads."""
        return self._stopping() or self.closed()

    def closed(self) -> bool:
        """The client has closed its side, as far as can be told."""
        if self._said_gone is not None:
            return bool(self._said_gone())
        poll = _native_poll()
        if self._socket is None or poll is None:
            return False
        try:
            number = self._socket.fileno()
            if number < 0:
                return True
            poller = poll()
            poller.register(number, _RDHUP)
            return any(mask & _GONE for _, mask in poller.poll(0))
        except (OSError, ValueError):
            return True

    @property
    def waits_for_writes(self) -> bool:
        """A write holds the thread until the client has read: the server shows its socket and does not buffer."""
        return self._socket is not None and not getattr(self._socket, "buffers_writes", False)

    def limit(self, seconds: float) -> None:
        """Let a read from a client that is silent, or a write to one that does not read, fail after `seconds`.

        `restore` undoes it.
        """
        if self._socket is not None and not self._limited:
            try:
                self._before = self._socket.gettimeout()
                self._socket.settimeout(seconds)
                self._limited = True
            except OSError:
                pass  # it is closed, which `closed` tells

    def cut(self) -> None:
        """End the connection, whatever is still on its way."""
        if self._socket is not None:
            try:
                # Closing resets it then: what the client has not read would stay in the system's memory.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    def read_no_more(self) -> None:
        """Where the client asked for no more than this answer: let nothing wait for what it might still send.

        Gunicorn lingers on its main thread for every connection that it closes, up to two seconds each, and answers nobody
        meanwhile. To be called when the request was read whole, else the client may lose the end of its answer.
        """
        if self._asked_to_close and self._socket is not None:
            try:
                if not hasattr(self._socket, "getpeercert"):
                    self._socket.shutdown(socket.SHUT_RD)
            except OSError:
                pass  # it has ended

    def restore(self) -> None:
        """Give the socket the time-out back that `limit` found, for the next request on it."""
        if self._socket is not None and self._limited:
            self._limited = False
            try:
                self._socket.settimeout(self._before)
            except OSError:
                pass

    def shutdown_write(self) -> None:
        """Tell the client that nothing follows this answer: its connection cannot be used again. Not with TLS.

        The server must still see what the client goes on sending as part of this request, or it would take it for the next one.
        """
        if self._socket is not None and not hasattr(self._socket, "getpeercert"):
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has ended


class LimitedBody:
    """The body of an answer, of which a client must take every piece within `seconds`; see `limited`."""

    __slots__ = ("_body", "_connection", "_environ", "_handed_over", "_seconds")

    def __init__(self, environ: WSGIEnvironment, body: Iterable[bytes], connection: Connection, seconds: float) -> None:
        self._environ = environ
        self._body = body
        self._connection = connection
        self._seconds = seconds
        self._handed_over: float | None = None

    def __iter__(self) -> Iterator[bytes]:
        self._connection.limit(self._seconds)
        for data in self._body:
            for start in range(0, len(data), _PIECE):
                self._handed_over = time.monotonic()
                yield data if len(data) <= _PIECE else data[start : start + _PIECE]
            self._handed_over = None

    def close(self) -> None:
        """Called by the server when the answer was written, or could not be."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._connection.restore()
            since = self._handed_over
            if since is not None and time.monotonic() - since >= self._seconds * 0.9:
                # A server that ends connections politely would wait for this client once more.
                self._connection.cut()
            elif has_body(self._environ) and not self._environ.get(BODY_READ):
                self._finish_input()

    def _finish_input(self) -> None:
        """Take what the client has sent of its body; what has not arrived is not awaited, and its connection is closed."""
        length = self._environ.get("CONTENT_LENGTH", "")
        if length.isdigit() and int(length) <= _SMALL:
            self._connection.limit(_NO_WAIT)
            try:
                if len(self._environ["wsgi.input"].read(int(length))) == int(length):
                    return
            except Exception:  # servers have errors of their own for what does not come  # nosec B110
                pass
            finally:
                self._connection.restore()
        self._connection.shutdown_write()


def has_body(environ: WSGIEnvironment) -> bool:
    """The request announces a body."""
    return environ.get("CONTENT_LENGTH", "") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ


def limited(environ: WSGIEnvironment, body: Iterable[bytes], seconds: float) -> Iterable[bytes]:
    """`body`, whose writes fail when the client reads nothing for `seconds`; a request body that was not read is not awaited.

    For servers that hold a thread while they write, and show their socket; elsewhere `body` itself.
    """
    connection = Connection(environ, lambda: False)
    return LimitedBody(environ, body, connection, seconds) if connection.waits_for_writes else body
