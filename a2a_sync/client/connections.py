"""Below requests: sessions without memory, and connections that keep time while headers drip and bodies are sent."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict

from a2a_sync import urls
from a2a_sync.client.deadlines import AlarmClock, Deadline
from a2a_sync.errors import UnsafeURLError
from a2a_sync.outbound.urlguard import URLGuard

#: Idle connections kept per client.
POOL = 64
#: Origins whose settings in the environment are remembered.
_MOST_ORIGINS = 64
#: Bodies from this size on are sent in pieces, each with the time-out for connecting, all within the deadline.
_LARGE_BODY = 256 * 1024


class Session(requests.Session):
    """For one request: so no cookies are kept. It follows no redirects; its connections belong to the adapter."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapters["http://"] = self.adapters["https://"] = adapter
        self._environments = adapter.environments
        self._guarded = adapter.guarded

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """What the environment says of proxies and certificates: read once per origin, for it takes long to read."""
        origin = urls.parse(url).origin
        known: Any = self._environments.get(origin)
        if known is None:
            known = super().merge_environment_settings(url, proxies, stream, verify, cert)
            if len(self._environments) >= _MOST_ORIGINS:
                self._environments.clear()
            self._environments[origin] = known
        if self._guarded:
            # A proxy would look names up by itself.
            return {**known, "proxies": {}}
        return dict(known)

    def prepare_request(self, request: Any) -> requests.PreparedRequest:
        """As requests does it; of what it would merge in, at six times the cost, this session has default headers only."""
        # No `.netrc` either: it would answer for hosts that nobody has named here.
        headers = CaseInsensitiveDict({**self.headers})
        headers.update(request.headers)
        prepared = requests.PreparedRequest()
        prepared.prepare(method=request.method, url=request.url, headers=headers, data=request.data, auth=request.auth)
        return prepared

    def get_redirect_target(self, resp: requests.Response) -> None:
        # Also where requests only wants to know: it would read the body of the redirect, however long that is.
        return None


class Adapter(HTTPAdapter):
    """Connections whose answers must begin in time as a whole: headers may drip too."""

    def __init__(self, alarms: AlarmClock, guard: URLGuard | None = None) -> None:
        self._pools = _pools(alarms, guard)
        self.guarded = guard is not None
        #: What the environment says for each origin.
        self.environments: dict[Any, Any] = {}
        super().__init__(pool_connections=POOL, pool_maxsize=POOL)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """The host to connect to is the one that was judged: requests would read the URL once more, in its own way."""
        _, settings = super().build_connection_pool_key_attributes(request, verify, cert)
        scheme, host, port = urls.parse(request.url).origin
        return {"scheme": scheme, "host": host, "port": port}, settings

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        if type(manager) is urllib3.ProxyManager:
            manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(alarms: AlarmClock, guard: URLGuard | None) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    def getresponse(connection: Any, wait: Callable[[], Any]) -> Any:
        sock: socket.socket | None = connection.sock
        if connection.timeout is None or sock is None:
            return wait()
        alarm = alarms.set(time.monotonic() + connection.timeout, partial(_shut, sock))
        try:
            return wait()
        finally:
            alarms.cancel(alarm)
            if alarm.fired:
                # Whatever it came to: headers that end too early pass for complete ones.
                raise TimeoutError("the headers of the answer did not come in time")

    def connect(connection: Any, plainly: Callable[[], socket.socket]) -> socket.socket:
        return plainly() if guard is None else _connected(connection, guard)

    class Plain(urllib3.connection.HTTPConnection):
        response_class = _Response

        def _new_conn(self) -> socket.socket:
            return connect(self, super()._new_conn)

        def getresponse(self) -> Any:
            return getresponse(self, super().getresponse)

    class Secure(urllib3.connection.HTTPSConnection):
        response_class = _Response

        def _new_conn(self) -> socket.socket:
            return connect(self, super()._new_conn)

        def getresponse(self) -> Any:
            return getresponse(self, super().getresponse)

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _connected(connection: Any, guard: URLGuard) -> socket.socket:
    """A connection to one of the addresses that `guard` has judged: a name is looked up once."""
    failure: Exception = OSError("no address")
    try:
        for address in guard.addresses(connection._dns_host, connection.port):
            try:
                return urllib3.util.connection.create_connection(
                    address.sockaddr[:2], connection.timeout, socket_options=connection.socket_options
                )
            except OSError as error:
                failure = error
    except (UnsafeURLError, OSError) as error:
        failure = error
    if isinstance(failure, TimeoutError):
        raise urllib3.exceptions.ConnectTimeoutError(connection, "the connection did not stand in time") from failure
    raise urllib3.exceptions.NewConnectionError(connection, "no connection") from failure


class _Response(http.client.HTTPResponse):
    """An answer whose headers are complete: the standard library takes a connection that breaks for their end."""

    def begin(self) -> None:
        fp, self.fp = self.fp, _Lines(self.fp)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = fp


#: How an answer begins that refuses a request without TLS.
_TLS_ALERT = b"\x15\x03"


class _Lines:
    """The lines of a head."""

    def __init__(self, fp: Any) -> None:
        self._fp = fp

    def readline(self, limit: int = -1, /) -> bytes:
        line: bytes = self._fp.readline(limit)
        if line.startswith(_TLS_ALERT):
            raise http.client.RemoteDisconnected("the port speaks TLS; use https://")
        if not line.endswith(b"\n") and len(line) != limit:
            raise http.client.RemoteDisconnected("the answer ended within its head")
        return line

    def close(self) -> None:
        self._fp.close()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # closed meanwhile


def timed_body(body: bytes | None, deadline: Deadline) -> bytes | io.BytesIO | None:
    """`body` as requests takes it, so that sending it ends at the deadline."""
    return body if body is None or len(body) < _LARGE_BODY else _LargeBody(body, deadline)


class _LargeBody(io.BytesIO):
    """A body that urllib3 sends piece by piece: a socket's time-out would bound the sending of all of it at once."""

    def __init__(self, body: bytes, deadline: Deadline) -> None:
        super().__init__(body)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        if self._deadline.expired:
            raise TimeoutError("the deadline passed while the request was sent")
        return super().read(size)
