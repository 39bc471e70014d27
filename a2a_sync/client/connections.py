"""Sessions and connections below requests: without cookies, and with time limits for headers and large bodies.

`Adapter.open` sends a request without requests, over the connections that requests would use: preparing the request and wrapping
its response take requests twice as long as urllib3 takes for the exchange itself. Only what goes through a proxy of the
environment is sent by a `Session`.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.structures import CaseInsensitiveDict
from requests.utils import default_headers, select_proxy

from a2a_sync import urls
from a2a_sync.client.deadlines import Deadline
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.outbound.http import FinalResponse, GuardedConnection, pool_classes, share_thread
from a2a_sync.outbound.urlguard import URLGuard

#: Idle connections per client.
MAX_IDLE_CONNECTIONS = 64
#: Origins whose environment settings are cached.
_MAX_ORIGINS = 64
#: Bodies from this size on are sent in chunks, each with the timeout for connecting, all within the deadline.
LARGE_BODY = 256 * 1024
#: Lines of a response before its body. The standard library skips any number of interim responses.
_MAX_HEAD_LINES = 1000
#: Called in the context of a call that waits for the head of a response, with a function that ends the wait from any thread, and
#: with None when the wait is over.
HEAD_OBSERVER: Final[ContextVar[Callable[[Callable[[], None] | None], None] | None]] = ContextVar(
    "head_observer", default=None
)
#: What requests adds to a request.
_DEFAULT_HEADERS = dict(default_headers())


class Session(requests.Session):
    """A session for one request, so that no cookies are stored. Its connections belong to the adapter."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapters["http://"] = self.adapters["https://"] = adapter
        self._environments = adapter.environments
        self._guarded = adapter.guarded

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Proxies and certificates of the environment, cached by origin because reading them is slow."""
        origin = urls.parse(url).origin
        known: Any = self._environments.get(origin)
        if known is None:
            known = super().merge_environment_settings(url, proxies, stream, verify, cert)
            if self._guarded:
                # A proxy would resolve names itself.
                known["proxies"] = {}
            _bound(self._environments)
            self._environments[origin] = known
        return dict(known)

    def prepare_request(self, request: Any) -> requests.PreparedRequest:
        """As in requests, without merging session settings, which takes six times as long and of which there are none."""
        # `.netrc` is not read either: it has credentials for hosts that the user has not named here.
        return _prepare(request.method, request.url, request.headers, request.data, request.auth)

    def get_redirect_target(self, resp: requests.Response) -> None:
        # requests would read the body of a redirect, however long it is.
        return None


def request_unread(session: requests.Session, method: str, url: str, **options: Any) -> OpenResponse:
    """Send one request with `session`, and leave the body of the response unread. Redirects are not followed.

    requests reads the body of a redirect nevertheless, without a limit of size or time. So it does not see where one leads.
    """
    target: dict[str, str] = {}

    def hide_target(response: requests.Response, **_: Any) -> None:
        if "Location" in response.headers:
            target["Location"] = response.headers.pop("Location")

    # Hooks of a request replace those of its session.
    own: Any = session.hooks.get("response", [])
    hooks = {"response": [*([own] if callable(own) else own), hide_target]}
    response = session.request(method, url, **options, stream=True, allow_redirects=False, hooks=hooks)
    response.headers.update(target)
    if response.status_code < 200:
        # An interim response, see `FinalResponse`: what follows must not be taken for the response to another request.
        response.close()
    return OpenResponse.of(response)


def _prepare(method: str, url: str, headers: Mapping[str, str], data: Any, auth: Any) -> requests.PreparedRequest:
    merged = CaseInsensitiveDict(_DEFAULT_HEADERS)
    merged.update(headers)
    prepared = requests.PreparedRequest()
    prepared.prepare(method=method, url=url, headers=merged, data=data, auth=auth)
    return prepared


def _bound(cache: dict[Any, Any]) -> None:
    """Limit a cache by origin before it grows."""
    if len(cache) >= _MAX_ORIGINS:
        cache.clear()


class OpenResponse(NamedTuple):
    """A response whose body is unread.

    Parameters:
        status: its HTTP status.
        headers: its headers; names ignore case.
        raw: the response of urllib3, or what an adapter of the user returns as one.
        url: the URL of the request.
        authorization: the ``Authorization`` header of the request.
        close: releases the connection.
    """

    status: int
    headers: Mapping[str, str]
    raw: Any
    url: str
    authorization: str
    close: Callable[[], None]

    @classmethod
    def of(cls, response: requests.Response) -> OpenResponse:
        """A response of requests."""
        sent = response.request.headers.get("Authorization", "")
        return cls(response.status_code, response.headers, response.raw, response.url, sent, response.close)


def _close(raw: urllib3.BaseHTTPResponse) -> None:
    # As requests: a body that was not read to its end closes the connection.
    raw.close()
    raw.release_conn()


class Adapter(HTTPAdapter):
    """Pools of connections whose responses must begin in time as a whole; headers may arrive slowly too."""

    def __init__(self, alarms: AlarmClock, guard: URLGuard | None = None) -> None:
        self._pools = pool_classes(_Connection, alarms=alarms, guard=guard)
        self.guarded: bool = guard is not None
        #: Settings of the environment by origin.
        self.environments: dict[Any, Any] = {}
        self._direct: dict[Any, Any] = {}
        super().__init__(pool_connections=MAX_IDLE_CONNECTIONS, pool_maxsize=MAX_IDLE_CONNECTIONS)

    def open(
        self,
        method: str,
        url: str,
        *,
        data: Any,
        headers: Mapping[str, str],
        auth: AuthBase | None,
        timeout: urllib3.Timeout,
        verify: bool | str | None,
        cert: Any,
    ) -> OpenResponse | None:
        """Send one request as a `Session` would; None where it has to go through a proxy, and was not sent.

        Parameters:
            method: the HTTP method.
            url: the URL.
            data: the body, as `timed_body` returns it.
            headers: headers of the request, beside those that requests adds.
            auth: changes the request.
            timeout: limits of the connection.
            verify: as in requests.
            cert: as in requests.

        Raises:
            urllib3.exceptions.HTTPError, OSError: no response arrived.
        """
        if auth is not None:
            prepared = _prepare(method, url, headers, data, auth)
            url, sent = prepared.url or url, dict(prepared.headers)
        else:
            by_name = {name.lower(): (name, value) for name, value in (*_DEFAULT_HEADERS.items(), *headers.items())}
            sent = dict(by_name.values())
            if data is not None:
                sent["Content-Length"] = str(len(data))
        pool = self._direct_pool(url, verify, cert)
        if pool is None:
            return None
        raw = pool.urlopen(
            method,
            urls.parse(url).target,
            body=data,
            headers=sent,
            redirect=False,
            retries=False,
            assert_same_host=False,
            timeout=timeout,
            preload_content=False,
            decode_content=False,
        )
        return OpenResponse(raw.status, raw.headers, raw, url, sent.get("Authorization", ""), partial(_close, raw))

    def _direct_pool(self, url: str, verify: bool | str | None, cert: Any) -> Any:
        """The connections to the origin of `url`; None where the environment names a proxy for it."""
        known = urls.parse(url).origin, cert
        found = self._direct.get(known, self)
        if found is self:
            settings = Session(self).merge_environment_settings(url, {}, True, verify, cert)
            found = None
            if not select_proxy(url, settings["proxies"]):
                verify, cert = settings["verify"], settings["cert"]
                request = requests.Request("GET", url).prepare()
                found = self.get_connection_with_tls_context(request, verify, cert=cert)
                self.cert_verify(found, url, verify, cert)
            # The manager of the pools keeps as many, so those found here are open.
            _bound(self._direct)
            self._direct[known] = found
        return found

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """Connect to the host that was checked; requests would parse the URL again, with another parser."""
        _, settings = super().build_connection_pool_key_attributes(request, verify, cert)
        scheme, host, port = urls.parse(request.url).origin
        return {"scheme": scheme, "host": host, "port": port}, settings

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        if type(manager) is urllib3.ProxyManager:
            manager.pool_classes_by_scheme = self._pools
        return manager


class _Connection(GuardedConnection):
    """A connection whose response must begin within `timeout` as a whole: headers may arrive one by one."""

    alarms: AlarmClock
    _held: list[bytes] | None = None

    def request(self, method: str, url: str, body: Any = None, *args: Any, **options: Any) -> None:
        # The head and a small body are sent at once: two system calls, and two reads of the server, are a tenth of a short call.
        self._held = [] if isinstance(body, bytes) else None
        try:
            super().request(method, url, body, *args, **options)  # type: ignore[misc]
            whole = b"".join(self._held or ())
        finally:
            self._held = None
        if whole:
            self.send(whole)

    def send(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            return
        try:
            super().send(data)  # type: ignore[misc]
        except (ssl.SSLEOFError, ConnectionError):
            _raise_alert(self.sock)
            raise

    @property
    def response_class(self) -> type[http.client.HTTPResponse]:
        return _Response

    def getresponse(self) -> Any:
        sock: socket.socket | None = self.sock
        observe = HEAD_OBSERVER.get()
        if observe is None or sock is None:
            return self._read_head(sock)
        observe(partial(_shutdown_read, sock))
        try:
            return self._read_head(sock)
        finally:
            observe(None)

    def _read_head(self, sock: socket.socket | None) -> Any:
        if self.timeout is None or sock is None:
            return super().getresponse()  # type: ignore[misc]
        alarm = self.alarms.set(time.monotonic() + self.timeout, partial(_shutdown_read, sock))
        try:
            return super().getresponse()  # type: ignore[misc]
        finally:
            self.alarms.cancel(alarm)
            if alarm.fired:
                # Whatever was read: headers that end early would be taken for complete ones.
                raise TimeoutError("the headers of the response did not arrive in time")


class _Response(FinalResponse):
    """A response with complete headers: the standard library takes a broken connection for the end of the headers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        share_thread(self)

    def begin(self) -> None:
        fp, self.fp = self.fp, _HeaderLines(self.fp)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = fp


#: The first bytes of a response that refuses a request without TLS.
_TLS_ALERT = b"\x15\x03"


class _HeaderLines:
    """The lines of the response's head, and of the interim responses before it (``100 Continue``)."""

    def __init__(self, fp: Any) -> None:
        self._fp = fp
        self._left = _MAX_HEAD_LINES

    def readline(self, limit: int = -1, /) -> bytes:
        line: bytes = self._fp.readline(limit)
        self._left -= 1
        if self._left < 0:
            # A socket that was shut down for reading still returns what arrives: no time limit would end this.
            raise http.client.HTTPException("too many interim responses")
        if line.startswith(_TLS_ALERT):
            raise http.client.RemoteDisconnected("the port speaks TLS; use https://")
        if not line.endswith(b"\n") and len(line) != limit:
            raise http.client.RemoteDisconnected("the response ended within its headers")
        return line

    def close(self) -> None:
        self._fp.close()


def _raise_alert(sock: socket.socket | None) -> None:
    """Raise the alert with which the server has refused a broken connection, where one has arrived before the end."""
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.recv(1)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            raise
    except OSError:
        pass


def _shutdown_read(sock: socket.socket) -> None:
    with suppress(OSError):  # closed already
        sock.shutdown(socket.SHUT_RD)


def timed_body(body: bytes | None, deadline: Deadline) -> bytes | io.BytesIO | None:
    """`body` for requests, so that sending it ends at the deadline."""
    return body if body is None or len(body) < LARGE_BODY else _LargeBody(body, deadline)


#: Called with ``sending`` or ``receiving``, the bytes of a large body so far, and all of its bytes; None where that is unknown.
TransferObserver: TypeAlias = Callable[[str, int, int | None], None]
#: The observer of the requests and responses of this context, called on the thread that sends or reads.
TRANSFER_OBSERVER: Final[ContextVar[TransferObserver | None]] = ContextVar("transfer_observer", default=None)


class _LargeBody(io.BytesIO):
    """A body that urllib3 sends in chunks: the timeout of a socket would bound the sending of all of it."""

    def __len__(self) -> int:
        return self.getbuffer().nbytes

    def __init__(self, body: bytes, deadline: Deadline) -> None:
        super().__init__(body)
        self._deadline = deadline
        self._observer = TRANSFER_OBSERVER.get()
        self._sent = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if self._deadline.expired:
            raise TimeoutError("the deadline passed while the request was sent")
        data = super().read(size)
        if self._observer is not None:
            self._sent += len(data)
            self._observer("sending", self._sent, len(self))
        return data
