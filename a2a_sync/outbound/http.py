"""HTTP requests that a server makes for a peer: to addresses that its guard lets pass, within limits, and no further.

No redirects are followed, no proxies used, no cookies kept, no ``.netrc`` read, and an answer is never unpacked. What a
webhook or a key set means is not known here; why a URL is refused, `urlguard` knows.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from a2a_sync import urls
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.outbound.urlguard import Address, URLGuard

if TYPE_CHECKING:
    import urllib3

#: Connections that are kept: hosts, and for each of them.
_HOSTS = 64
_EACH = 4
#: Addresses of one host that are tried.
_TRIES = 4
_PIECE = 16 * 1024


class NoAnswer(OSError):
    """No answer came, or none within the limits. The message shows no URL. ``sent``: the host may have got the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class OutboundAnswer(NamedTuple):
    """What came back. ``headers`` do not mind case; ``whole`` says that all of the body came, within the limits."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


class Outbound:
    """Sends requests to where `guard` allows. Safe from many threads and across forks; connections are used again.

    `ca_certs` is a file of trusted certificates; by default the one named by ``REQUESTS_CA_BUNDLE``, else certifi's.
    """

    def __init__(self, guard: URLGuard, *, ca_certs: str | None = None) -> None:
        self._guard = guard
        self._ca_certs = ca_certs
        self._pools: urllib3.PoolManager | None = None
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: a connection must not be used by two processes."""
        self._pools = None

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 10.0,
        most: int = 1024 * 1024,
    ) -> OutboundAnswer:
        """Send one request and read its answer, of whatever status. Blocks.

        Parameters:
            timeout: seconds, once each for connecting, for sending and for all of the answer, however slowly it drips. Looking
                a name up takes as long as the system's resolver does.
            most: bytes of the answer's body; what is longer is cut.

        Raises:
            UnsafeURLError: the guard refuses the URL, or an address that it leads to. Nothing was connected to.
            NoAnswer: the network failed, or time ran out before the head of the answer was there.
        """
        from urllib3 import Timeout
        from urllib3 import exceptions as u3

        self._guard.check(url)
        read = urls.parse(url)
        failed: NoAnswer | None = None
        try:
            # The host that was judged is the one connected to: nothing else reads the URL.
            answer = (
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
            failed = _no_answer(error)
        if failed is not None:
            # Not chained: the errors of urllib3 show URLs, which can hold secrets.
            raise failed
        try:
            content = answer.read(most + 1, decode_content=False)
            return OutboundAnswer(answer.status, answer.headers, content[:most], whole=len(content) <= most)
        except (u3.HTTPError, http.client.HTTPException, OSError):
            return OutboundAnswer(answer.status, answer.headers, b"", whole=False)
        finally:
            # A connection whose answer was read to its end has gone back by now.
            answer.close()

    def close(self) -> None:
        """Close the connections that are kept. The object can be used again."""
        pools, self._pools = self._pools, None
        if pools is not None:
            pools.clear()

    def _pool_manager(self) -> urllib3.PoolManager:
        pools = self._pools
        if pools is None:
            import certifi
            import urllib3

            trusted = self._ca_certs or os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
            pools = urllib3.PoolManager(_HOSTS, maxsize=_EACH, ca_certs=trusted)
            pools.pool_classes_by_scheme = _pool_classes(self._guard)
            self._pools = pools
        return pools


def _pool_classes(guard: URLGuard) -> dict[str, Any]:
    """Connections for both schemes that lead only where `guard` says, and keep time. Built late: urllib3 loads slowly."""
    import urllib3

    class Plain(_Guarded, urllib3.connection.HTTPConnection):  # type: ignore[misc]
        pass

    class Secure(_Guarded, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
        pass

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    Plain.guard = Secure.guard = guard
    return {"http": PlainPool, "https": SecurePool}


class _Guarded:
    """What the connections of both schemes have in common. `timeout` is that of the step that comes next."""

    guard: URLGuard
    sock: Any
    timeout: Any
    port: Any
    socket_options: Any
    _dns_host: str
    _sent_by = 0.0

    def _new_conn(self) -> socket.socket:
        from urllib3 import exceptions as u3

        until = time.monotonic() + self.timeout
        try:
            # What is looked up here is what is connected to: nobody asks a name server twice.
            addresses = self.guard.addresses(self._dns_host, self.port)
            return _connected(addresses, until, self.socket_options or ())
        except TimeoutError as error:
            raise u3.ConnectTimeoutError(self, "the connection did not stand in time") from error
        except OSError as error:
            connection: Any = self
            raise u3.NewConnectionError(connection, f"no connection: {error.strerror or error}") from error

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._sent_by = 0.0
        super().request(*args, **kwargs)  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        self._sent_by = self._sent_by or time.monotonic() + self.timeout
        for at in range(0, len(data), _PIECE):
            self.sock.settimeout(_left(self._sent_by))
            super().send(data[at : at + _PIECE])  # type: ignore[misc]

    def response_class(self, sock: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(sock, *args, **kwargs)
        answer.fp = io.BufferedReader(_Timed(sock, answer.fp.detach(), time.monotonic() + self.timeout))
        return answer


class _Timed(io.RawIOBase):
    """What a socket receives until a point in time."""

    def __init__(self, sock: socket.socket, raw: Any, until: float) -> None:
        self._sock = sock
        self._raw = raw
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(_left(self._until))
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("time ran out")
    return left


def _connected(addresses: list[Address], until: float, options: Iterable[tuple[Any, ...]]) -> socket.socket:
    """A connection to the first of `addresses` that takes one."""
    failure: OSError = OSError("no address")
    for address in addresses[:_TRIES]:
        sock = None
        try:
            sock = socket.socket(address.family, address.kind, address.protocol)
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(_left(until))
            sock.connect(address.sockaddr)
            return sock
        except OSError as error:
            failure = error
            if sock is not None:
                sock.close()
    raise failure


def _no_answer(error: Exception) -> NoAnswer:
    """What went wrong, in one line that shows no URL: a URL can hold secrets."""
    from urllib3 import exceptions as u3

    if isinstance(error, u3.NewConnectionError):
        below = error.__cause__
        return NoAnswer(f"could not connect: {getattr(below, 'strerror', None) or type(below).__name__}", sent=False)
    if isinstance(error, u3.ConnectTimeoutError):
        return NoAnswer("the connection did not stand in time", sent=False)
    if isinstance(error, u3.SSLError):
        return NoAnswer("no TLS connection: the certificate or the protocol is not accepted", sent=False)
    if isinstance(error, u3.TimeoutError) or any(isinstance(below, TimeoutError) for below in (error, *error.args)):
        return NoAnswer("no answer came in time", sent=True)
    return NoAnswer("the connection broke before an answer came", sent=True)
