"""The socket under a WSGI request, as far as the server shows it: has the client gone, and how long may a write take.

Servers hand the socket over in ``environ`` (gunicorn, Werkzeug); where they do not, heartbeats find a lost client.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from typing import Any

_KEYS = ("gunicorn.socket", "werkzeug.socket")
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


def peer_certificate(environ: dict[str, Any]) -> dict[str, Any]:
    """The client's certificate, as `ssl` tells it, if the server asked for one and has verified it; else nothing."""
    ask = getattr(_first(environ, _KEYS), "getpeercert", None)
    try:
        return (ask() if ask is not None else None) or {}
    except (OSError, ValueError):
        return {}  # it is closed


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
