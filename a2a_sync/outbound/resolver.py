"""Name resolution with a time limit, which the resolver of the system does not have.

A name whose servers do not answer keeps a thread for as long as the system tries them: ten seconds for each server by default, and
nothing cancels that. So a thread of its own looks each name up, and calls that need the same name meanwhile share it.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import on_native_thread, original

#: As `socket.getaddrinfo`.
Resolver: TypeAlias = Callable[..., Iterable[tuple[Any, Any, int, str, Any]]]

#: Lookups at once in a process that have threads of their own; beyond it a call waits as long as the resolver.
_MAX_LOOKUPS = 128


class Address(NamedTuple):
    """An address to connect to: the arguments of `socket.socket` and `socket.socket.connect`."""

    family: int
    kind: int
    protocol: int
    sockaddr: Any


class _Lookup:
    """One call of a resolver, which several threads may wait for."""

    def __init__(self, resolve: Resolver, host: str, port: int) -> None:
        self.arguments: Any = (resolve, host, port)
        self._ended = threading.Event()
        self._found: list[Any] = []
        self._error: Exception | None = None

    def run(self) -> None:
        resolve, host, port = self.arguments
        try:
            self._found = list(resolve(host, port, 0, socket.SOCK_STREAM))
        except Exception as error:
            self._error = error
        finally:
            _lookups.end(self)
            self._ended.set()

    def result(self, timeout: float | None) -> list[Any]:
        if not self._ended.wait(timeout):
            raise TimeoutError("was not resolved in time")
        if self._error is not None:
            raise self._error
        return self._found


class _Lookups:
    """The lookups in progress in this process."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the threads of the parent's lookups do not exist."""
        self._lock = threading.Lock()
        self._running: dict[Any, _Lookup] = {}

    def begin(self, resolve: Resolver, host: str, port: int) -> _Lookup:
        """The lookup of these arguments that is in progress, or a new one."""
        lookup = _Lookup(resolve, host, port)
        with self._lock:
            found = self._running.get(lookup.arguments)
            if found is not None:
                return found
            threaded = len(self._running) < _MAX_LOOKUPS
            if threaded:
                self._running[lookup.arguments] = lookup
        if not threaded or start_thread("a2a-lookup", lookup.run) is None:
            lookup.run()
        return lookup

    def end(self, lookup: _Lookup) -> None:
        with self._lock:
            if self._running.get(lookup.arguments) is lookup:
                del self._running[lookup.arguments]


_lookups: Final = _Lookups()


def look_up(host: str, port: int, timeout: float | None = None, resolve: Resolver | None = None) -> list[Address]:
    """The addresses of `host`, by `resolve` or the resolver of the system. Blocks for at most `timeout` seconds, if it is given.

    Raises:
        TimeoutError: the resolver did not return in time. It goes on, in the background.
        OSError: the resolver failed, or the host has no address.
    """
    resolve = resolve or _system
    if timeout is None or _is_address(host):
        found = list(resolve(host, port, 0, socket.SOCK_STREAM))
    else:
        found = _lookups.begin(resolve, host, port).result(timeout)
    if not found:
        raise OSError("the host has no address")
    return [Address(family, kind, protocol, sockaddr) for family, kind, protocol, _, sockaddr in found]


def _system(host: str, *arguments: Any) -> Any:
    """The resolver of the system. Under gevent it is called on a real thread, because gevent's own has ten for the process."""
    look = partial(original("socket", "getaddrinfo"), host, *arguments)
    return look() if _is_address(host) else on_native_thread(look)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
