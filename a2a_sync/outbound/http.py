"""HTTP requests to URLs that peers name: only to addresses that a guard allows, and within limits.

Redirects are not followed, and proxies, cookies and ``.netrc`` are not used; responses are not decompressed. The rules for URLs are
in `urlguard`. The client's own transport uses the guarded connections and the parser of ``Retry-After``.
"""

from __future__ import annotations

import _socket
import http.client
import io
import math
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from a2a_sync import urls
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import let_greenlets_run, original, patched
from a2a_sync.outbound.resolver import Address, look_up
from a2a_sync.outbound.urlguard import URLGuard

if TYPE_CHECKING:
    import urllib3

#: Idle connections: hosts, and connections of each host.
_MAX_HOSTS = 64
_MAX_IDLE_PER_HOST = 4
#: Addresses of one host that are tried.
_MAX_ADDRESSES = 4
_CHUNK_BYTES = 16 * 1024
#: Bytes of a response as they are received by `Outbound`, with interim responses, headers, the lengths of chunks and trailers.
_MAX_RECEIVED_BYTES = 2 * 1024 * 1024
#: Under gevent other greenlets run after so many bytes: to read what has arrived does not let them.
_SLICE_BYTES = 8 * 1024
_HTTPS_PORT = 443


class NoResponseError(OSError):
    """No response within the limits. The message contains no URL. ``sent``: the host may have received the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class OutboundResponse(NamedTuple):
    """A response. ``headers`` ignore case; ``complete``: all of the body arrived, within the limits."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool


class Outbound:
    """Sends requests to URLs that `guard` allows, over reused connections. Safe from many threads and across forks.

    Trusted certificates are those of the file that ``REQUESTS_CA_BUNDLE`` names, else those of certifi.
    """

    def __init__(self, guard: URLGuard) -> None:
        self._guard = guard
        renew_per_process(self)

    def renew(self) -> None:
        """Begin without connections: two processes must not share one."""
        self._pools: urllib3.PoolManager | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 10.0,
        max_bytes: int = 1024 * 1024,
    ) -> OutboundResponse:
        """Send one request and read its response, of any status. Blocks.

        Parameters:
            method: the HTTP method.
            url: the URL, which the guard checks.
            headers: headers of the request.
            body: the body; None for none.
            timeout: seconds, once each for connecting, with the lookup of the name, for sending, and for the whole response.
            max_bytes: bytes of the response's body; a longer one is cut. With its headers and everything around it a response
                has 2 MiB at most.

        Raises:
            UnsafeURLError: the guard refuses the URL, or an address of its host. No connection was made.
            NoResponseError: the network failed, or a limit was reached before the headers of the response.
        """
        from urllib3 import Timeout
        from urllib3 import exceptions as u3

        self._guard.check(url)
        read = urls.parse(url)
        failed: NoResponseError | None = None
        try:
            # The host that was checked is the one connected to: the URL is not parsed again.
            response = (
                self._pool_manager()
                .connection_from_host(read.host, read.port, read.scheme)
                .urlopen(
                    method,
                    read.target,
                    body=body,
                    headers={"Accept-Encoding": "identity", "User-Agent": "a2a-sync", **(headers or {})},
                    redirect=False,
                    retries=False,
                    assert_same_host=False,
                    timeout=Timeout(connect=timeout, read=timeout),
                    preload_content=False,
                )
            )
        except (u3.HTTPError, http.client.HTTPException, OSError) as error:
            failed = _no_response(error)
        if failed is not None:
            # Not chained: the errors of urllib3 contain URLs, which can contain secrets.
            raise failed
        try:
            content = response.read(max_bytes + 1, decode_content=False)
            return OutboundResponse(
                response.status, response.headers, content[:max_bytes], complete=len(content) <= max_bytes
            )
        except (u3.HTTPError, http.client.HTTPException, OSError):
            return OutboundResponse(response.status, response.headers, b"", complete=False)
        finally:
            # A connection whose response was read to its end is back in its pool.
            response.close()

    def close(self) -> None:
        """Close the idle connections. The object can be used again."""
        pools, self._pools = self._pools, None
        if pools is not None:
            pools.clear()

    def _pool_manager(self) -> urllib3.PoolManager:
        pools = self._pools
        if pools is None:
            import certifi
            import urllib3

            trusted = os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
            pools = urllib3.PoolManager(_MAX_HOSTS, maxsize=_MAX_IDLE_PER_HOST, ca_certs=trusted)
            pools.pool_classes_by_scheme = pool_classes(_BoundedConnection, guard=self._guard)
            self._pools = pools
        return pools


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a ``Retry-After`` header asks to wait (RFC 9110, 10.2.3); None without one that can be read."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


# -- connections --------------------------------------------------------------------------------------------------------


def pool_classes(mixin: type[GuardedConnection], **attributes: Any) -> dict[str, Any]:
    """Connection pools of urllib3 by URL scheme, whose connections derive from `mixin` and have these class attributes.

    The classes are made when they are needed, because importing urllib3 is slow.
    """
    import urllib3

    plain = type("PlainConnection", (mixin, urllib3.connection.HTTPConnection), attributes)
    secure = type("SecureConnection", (mixin, urllib3.connection.HTTPSConnection), attributes)
    return {
        "http": type("PlainPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


class GuardedConnection:
    """Mixin for connections of urllib3: they connect only to addresses that `guard` allows; without one, to any.

    `timeout` is the limit for connecting, in seconds; the resolver and all addresses of the host share it.
    """

    guard: URLGuard | None = None
    sock: Any
    timeout: Any
    port: Any
    socket_options: Any
    default_port: int
    _dns_host: str
    _handshake: _HandshakeLimit | None = None

    def connect(self) -> None:
        """Connect, with a limit for the handshake as a whole."""
        from urllib3 import exceptions as u3

        try:
            super().connect()  # type: ignore[misc]
        finally:
            handshake, self._handshake = self._handshake, None
            if handshake is not None and not handshake.end():
                raise u3.ConnectTimeoutError(self, "the handshake was not over in time")

    def _new_conn(self) -> socket.socket:
        began = time.monotonic()
        sock = self._open_socket()
        if self.default_port == _HTTPS_PORT and self.timeout is not None:
            # Where the system gives no file or no thread, only the timeout of each read holds.
            with suppress(OSError, RuntimeError):
                self._handshake = _HandshakeLimit(sock, max(0.0, began + self.timeout - time.monotonic()))
        return sock

    def _open_socket(self) -> socket.socket:
        from urllib3 import exceptions as u3

        until = math.inf if self.timeout is None else time.monotonic() + self.timeout
        # The addresses that a guard judges are the ones connected to: the name is not looked up a second time.
        resolve = look_up if self.guard is None else self.guard.addresses
        try:
            addresses = resolve(self._dns_host.strip("[]"), self.port, self.timeout)
            sock = _connect(addresses, until, self.socket_options or ())
            # As urllib3: it is the limit for each step of sending too.
            sock.settimeout(self.timeout)
            return sock
        except TimeoutError as error:
            raise u3.ConnectTimeoutError(self, "the connection was not established in time") from error
        except OSError as error:
            connection: Any = self
            raise u3.NewConnectionError(connection, f"no connection: {error.strerror or error}") from error


class _HandshakeLimit:
    """Cuts a connection after so many seconds, unless `end` is called before.

    OpenSSL reads on within one call for as long as messages arrive that it ignores: no timeout of the socket ends that, and under
    gevent no greenlet of the thread runs meanwhile. So a real thread waits, with nothing that gevent has patched.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        allocate_lock = original("_thread", "allocate_lock")
        self._over: Any = allocate_lock()
        self._over.acquire()
        #: Taken by the one of both threads that decides.
        self._decided: Any = allocate_lock()
        # The handshake takes `sock` over, and does not return the socket that replaces it.
        self._twin = _socket.socket(fileno=os.dup(sock.fileno()))
        try:
            original("_thread", "start_new_thread")(self._watch, (seconds,))
        except RuntimeError:
            self._twin.close()
            raise

    def _watch(self, seconds: float) -> None:
        if not self._over.acquire(True, seconds) and self._decided.acquire(False):
            with suppress(OSError):
                # Both directions: data that arrives at a socket which is shut down for reading only could still be read.
                self._twin.shutdown(socket.SHUT_RDWR)
        self._twin.close()

    def end(self) -> bool:
        """The handshake is over; False if the connection was cut."""
        self._over.release()
        return bool(self._decided.acquire(False))


class _BoundedConnection(GuardedConnection):
    """A connection with one time limit each for connecting, sending and the whole answer. `timeout` is that of the next step."""

    _sent_by = 0.0

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._sent_by = 0.0
        super().request(*args, **kwargs)  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        if self.sock is None:
            self.connect()
        self._sent_by = self._sent_by or time.monotonic() + self.timeout
        for at in range(0, len(data), _CHUNK_BYTES):
            self.sock.settimeout(_seconds_left(self._sent_by))
            super().send(data[at : at + _CHUNK_BYTES])  # type: ignore[misc]

    def response_class(self, sock: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
        response = FinalResponse(sock, *args, **kwargs)
        response.fp = io.BufferedReader(_DeadlineReader(sock, response.fp.detach(), time.monotonic() + self.timeout))
        return response


class FinalResponse(http.client.HTTPResponse):
    """The response after all interim ones.

    The standard library skips those with status 100 only. It would return another one (103, Early Hints) as the response, and the
    response itself for the next request of the connection, which may be of another caller.
    """

    headers: http.client.HTTPMessage

    def begin(self) -> None:
        """Read the status and the headers."""
        super().begin()
        while 100 <= self.status < 200 and self.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers = None  # type: ignore[assignment]
            super().begin()
        if self.status == http.HTTPStatus.SWITCHING_PROTOCOLS:
            # What follows is not HTTP.
            self.will_close = True


class _SlicedReader(io.RawIOBase):
    """Reads from `raw`, and lets other greenlets run between slices: a peer can send faster than its data is read."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._left = _SLICE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self._left <= 0:
            self._left = _SLICE_BYTES
            let_greenlets_run()
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def share_thread(response: http.client.HTTPResponse) -> None:
    """Under gevent: let other greenlets run while `response` is read, also those that end it; otherwise nothing."""
    if patched():
        reader: Any = response.fp
        response.fp = io.BufferedReader(_SlicedReader(reader.detach()))


class _DeadlineReader(_SlicedReader):
    """Reads from a socket until a point in time, and up to a number of bytes."""

    def __init__(self, sock: socket.socket, raw: Any, until: float) -> None:
        super().__init__(raw)
        self._sock = sock
        self._until = until
        self._received = 0

    def readinto(self, buffer: Any, /) -> int | None:
        if self._received > _MAX_RECEIVED_BYTES:
            raise OSError("the response is too large")
        self._sock.settimeout(_seconds_left(self._until))
        count = super().readinto(buffer)
        self._received += count or 0
        return count


def _seconds_left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time limit was reached")
    return left


def _connect(addresses: list[Address], until: float, options: Iterable[tuple[Any, ...]]) -> socket.socket:
    """A connection to the first of `addresses` that accepts one; the time is shared out among them."""
    failure: OSError = OSError("no address")
    addresses = addresses[:_MAX_ADDRESSES]
    for index, address in enumerate(addresses):
        sock = None
        try:
            sock = socket.socket(address.family, address.kind, address.protocol)
            for option in options:
                sock.setsockopt(*option)
            if until != math.inf:
                sock.settimeout(_seconds_left(until) / (len(addresses) - index))
            sock.connect(address.sockaddr)
            return sock
        except OSError as error:
            failure = error
            if sock is not None:
                sock.close()
    raise failure


def _no_response(error: Exception) -> NoResponseError:
    """The failure in one line without URLs, which can contain secrets."""
    from urllib3 import exceptions as u3

    if isinstance(error, u3.NewConnectionError):
        cause = error.__cause__
        return NoResponseError(
            f"could not connect: {getattr(cause, 'strerror', None) or type(cause).__name__}", sent=False
        )
    if isinstance(error, u3.ConnectTimeoutError):
        return NoResponseError("the connection was not established in time", sent=False)
    if isinstance(error, u3.SSLError):
        why = getattr(error.args[0], "verify_message", "") if error.args else ""
        return NoResponseError(
            f"no TLS connection: {why or 'the certificate or the TLS version is not accepted'}", sent=False
        )
    if isinstance(error, u3.TimeoutError) or any(isinstance(one, TimeoutError) for one in (error, *error.args)):
        return NoResponseError("no response arrived in time", sent=True)
    return NoResponseError("the connection broke before a response arrived", sent=True)
