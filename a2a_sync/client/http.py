"""The HTTP transport of the client: requests with credentials, and responses that are read within time limits.

It knows no protocol. Importing this module imports requests, so it is imported with the first client that has a URL.

Time limits: the timeouts of urllib3 bound connecting and each single wait. What they do not bound (headers, bodies and
streams that arrive slowly) is ended by an alarm that shuts the socket down for reading. That ends a blocked read at once in
every framing and over TLS. A timeout set before each read would not apply to the chunk headers that urllib3 reads, nor to a
session of the user.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import requests
import urllib3
from requests.auth import AuthBase
from urllib3 import exceptions as u3

from a2a_sync import urls
from a2a_sync.client.connections import (
    LARGE_BODY,
    TRANSFER_OBSERVER,
    Adapter,
    OpenResponse,
    Session,
    TransferObserver,
    request_unread,
    timed_body,
)
from a2a_sync.client.credentials import Auth, RefreshingAuth, check_header, make_auth
from a2a_sync.client.deadlines import Deadline, Timeout
from a2a_sync.client.errortext import error_text
from a2a_sync.client.request import ErrorContext, Frame, OutgoingRequest
from a2a_sync.concurrency.alarms import Alarm, AlarmClock
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import let_greenlets_run
from a2a_sync.errors import (
    CardAuthError,
    CertificateRefusedError,
    ConnectError,
    HTTPStatusError,
    MalformedResponseError,
    StreamInterruptedError,
    TransportError,
    TransportTimeoutError,
    UnsafeURLError,
)
from a2a_sync.outbound.http import retry_after
from a2a_sync.outbound.urlguard import URLGuard

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard

_CHUNK_BYTES = 65536
_MAX_REDIRECTS = 5
#: Channels of other transports that are kept, as many as origins of urllib3's connections.
_MAX_CHANNELS = 10


class Page(NamedTuple):
    """What is at a URL: the status of the answer, its body and its headers."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(eq=False, repr=False)
class HttpTransport:
    """Sends requests to one agent, with the user's credentials. Safe from many threads and across forks.

    Parameters:
        home: the URL that the user gave. Credentials, headers and the client certificate go to its origin only.
        auth: the credentials, as for `Client`.
        headers: headers of every request to that origin.
        timeout: limits of each request.
        alarms: ends reads at their deadline.
        session: a session of the user's, used for all requests. Those to another origin use its connections only.
        verify: as in requests; None: as the environment says.
        cert: the client certificate, as in requests.
        url_guard: checks every URL, except those that the user named.
        trace: called with each message of a call, as for `Client`.
        max_response_bytes: largest decompressed body.
    """

    home: str
    _: KW_ONLY
    auth: Auth = None
    headers: Mapping[str, str] | None = None
    timeout: Timeout
    alarms: AlarmClock
    session: requests.Session | None = None
    verify: bool | str | None = None
    cert: str | tuple[str, str] | None = None
    url_guard: URLGuard | None = None
    trace: Callable[[Frame], object] | None = None
    max_response_bytes: int

    def __post_init__(self) -> None:
        if self.url_guard is not None and self.session is not None:
            raise ValueError("url_guard needs connections of the client's own: leave session out")
        self.home, in_url = urls.split_credentials(self.home)
        if self.url_guard is not None:
            self.url_guard.check(self.home)
        #: The address for errors and logs.
        self.agent: str = urls.parse(self.home).without_query
        self.auth = in_url if self.auth is None else self.auth
        self._auth = make_auth(self.auth)
        self._headers = {name: check_header(name, value) for name, value in (self.headers or {}).items()}
        renew_per_process(self)

    @property
    def has_secrets(self) -> bool:
        """There are credentials or headers, which are not sent to other origins."""
        return self.auth is not None or bool(self._headers) or self.cert is not None

    @property
    def has_own_trust(self) -> bool:
        """It may accept certificates of servers that other clients refuse."""
        return self.verify not in (None, True) or self.session is not None

    def apply_card_security(self, card: AgentCard) -> None:
        """From now on, send credentials in the form that `card` asks for.

        Raises:
            CardAuthError: the card requires credentials that were not given.
        """
        try:
            self._auth = make_auth(self.auth, card)
        except ValueError as error:
            raise CardAuthError(str(error), phase="card", agent=self.agent) from None

    def renew(self) -> None:
        """In a forked child: a connection must not be shared by two processes."""
        #: By whether their connections are guarded.
        self._adapters: dict[bool, Adapter] = {}
        self._lock = threading.Lock()
        self._channels: dict[tuple[str, str, int], Any] = {}

    def open(self, request: OutgoingRequest) -> HttpResponse:
        """Send one request and return its response, of any status, before its body is read. Redirects are not followed.

        Raises:
            ConnectError: the request was not sent.
            TransportTimeoutError: a limit was reached.
            TransportError: the connection broke.
        """
        if not urls.may_send_credentials(self.home, request.url):
            response = self._send(request, None)
            response.credentials_withheld = self.auth is not None or self.session is not None
            return response
        request = replace(request, headers={**self._headers, **request.headers})
        auth = self._prepared_auth(request.deadline)
        response = self._send(request, auth)
        if response.status == 401 and _refreshed(auth, response.authorization):
            # A refused request had no effect: it may be sent again, once.
            response.close()
            response = self._send(request, self._prepared_auth(request.deadline))
        return response

    def _prepared_auth(self, deadline: Deadline) -> AuthBase | None:
        if isinstance(self._auth, RefreshingAuth):
            self._auth.prepare(self._post, deadline)
        return self._auth

    # -- for transports beside HTTP, which have connections of their own --

    @property
    def has_credentials(self) -> bool:
        """There are credentials, in whatever form."""
        return self.auth is not None

    def addresses(self, url: str, deadline: Deadline) -> list[Any] | None:
        """The socket addresses of `url`, checked by the guard of the client; None without a guard.

        Raises:
            UnsafeURLError: the guard refuses the URL or an address.
            OSError: the host has no address, or was not resolved within the limit for connecting, or until `deadline`.
        """
        if self.url_guard is None:
            return None
        self.url_guard.check(url)
        host, port = urls.parse(url).origin[1:]
        limit = min(deadline, Deadline.after(self.timeout.connect))
        return [address.sockaddr for address in self.url_guard.addresses(host, port, limit.left)]

    def credentials(self, url: str, deadline: Deadline) -> dict[str, str]:
        """The headers of a request to `url`, of the origin that the user named, which contain credentials.

        Raises:
            ValueError: the credentials belong to the query of a URL.
            TokenError: there is no token.
        """
        bare = requests.Request("POST", url, headers=self._headers).prepare()
        request = bare.copy()
        if (auth := self._prepared_auth(deadline)) is not None:
            request = auth(request)
        if request.url != bare.url:
            raise ValueError("the agent expects its API key in the query of a URL, which gRPC does not have")
        return {name: value for name, value in request.headers.items() if name.lower() != "content-length"}

    def channel(self, origin: tuple[str, str, int], make: Callable[[], Any]) -> Any:
        """The open channel of another transport to `origin`, made by `make` where there is none. `close` closes it.

        Those that were used last are kept. Another one is closed as soon as no call uses it.
        """
        with self._lock:
            known = self._channels.get(origin)
        # Not under the lock: it may resolve a name.
        made = make() if known is None else known
        with self._lock:
            channel = self._channels.pop(origin, made)
            self._channels[origin] = channel
            if len(self._channels) > _MAX_CHANNELS:
                # Each card of an agent may name another address. Closing the channel would end the streams on it.
                del self._channels[next(iter(self._channels))]
            return channel

    def renew_credentials(self, refused: str) -> bool:
        """The agent has refused the ``Authorization`` header `refused`; whether there are other credentials now."""
        return _refreshed(self._auth, refused)

    def _post(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> tuple[int, bytes]:
        """Post to a token server, without the credentials and headers for the agent."""
        error_context = ErrorContext("token", urls.parse(url).without_query)
        response = self._send(
            OutgoingRequest("POST", url, headers, error_context, deadline, body=body, guarded=False), None
        )
        return response.status, response.read()

    def _send(self, request: OutgoingRequest, auth: AuthBase | None) -> HttpResponse:
        error_context, deadline = request.error_context, request.deadline
        if deadline.expired:
            raise deadline_exceeded(error_context)
        if request.guarded and self.url_guard is not None:
            try:
                self.url_guard.check(request.url)
            except UnsafeURLError as unsafe:
                raise ConnectError(f"the URL {unsafe}", **error_context.fields("connect")) from None
        refused: Exception
        try:
            response = self._exchange(request, auth)
        except requests.exceptions.InvalidHeader as error:
            if isinstance(error.args[0], u3.HTTPError):
                # The response has two lengths.
                refused = transport_error(error, error_context, deadline, opening=True)
            else:
                refused = ValueError("auth returned credentials that are not valid in a header")
        except UnsafeURLError as unsafe:
            refused = ConnectError(f"could not connect: the host {unsafe}", **error_context.fields("connect"))
        except (requests.RequestException, u3.HTTPError, OSError) as error:
            refused = transport_error(error, error_context, deadline, opening=True, cert=self.cert)
        else:
            return HttpResponse(response, error_context, deadline, self.alarms, self.max_response_bytes)
        # Not chained: the errors of requests and urllib3 show URLs and headers, which can hold secrets.
        raise refused

    def _exchange(self, request: OutgoingRequest, auth: AuthBase | None) -> OpenResponse:
        body = timed_body(request.body, request.deadline)
        at_home = urls.may_send_credentials(self.home, request.url)
        options: dict[str, Any] = {
            "data": body,
            "headers": request.headers,
            "auth": auth,
            "timeout": self._limits(min(request.deadline, request.opening)),
            "verify": self.verify,
            # As credentials: not for an origin that the user has not named.
            "cert": self.cert if at_home else None,
        }
        session = self.session
        if session is None:
            adapter = self._adapter(request.guarded)
            if (response := adapter.open(request.method, request.url, **options)) is not None:
                return response
            # Cookies are state of a session, connections belong to the adapter.
            session = Session(adapter)
        elif not at_home:
            # What the user has set on it is for the agent; with `auth` requests does not read `.netrc`.
            session, options["auth"] = _without_credentials(session), lambda prepared: prepared
        return request_unread(session, request.method, request.url, **options)

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        error_context: ErrorContext,
        deadline: Deadline,
        max_bytes: int | None = None,
    ) -> Page:
        """Read `url`, and follow redirects. `max_bytes` is the size of the body, if it may be smaller than ``max_response_bytes``.

        Raises:
            TransportError: as `open`.
        """
        for redirects_left in reversed(range(_MAX_REDIRECTS + 1)):
            response = self.open(OutgoingRequest("GET", url, headers, error_context, deadline))
            target = response.location
            if target is None or not redirects_left:
                break
            response.close()
            url = _redirected(url, target, error_context)
        return Page(response.status, response.read(max_bytes), response.headers)

    def close(self) -> None:
        """Close all idle connections. A session of the user stays open."""
        adapters, self._adapters = self._adapters, {}
        for adapter in adapters.values():
            adapter.close()
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def _limits(self, deadline: Deadline) -> Any:
        total = None if deadline.left is None else max(deadline.left, 0.001)
        return urllib3.Timeout(connect=self.timeout.connect, read=self.timeout.read, total=total)

    def _adapter(self, guarded: bool) -> Adapter:
        guard = self.url_guard if guarded else None
        adapter = self._adapters.get(guard is not None)
        if adapter is None:
            self._adapters[guard is not None] = adapter = Adapter(self.alarms, guard)
        return adapter


@dataclass(eq=False, repr=False)
class HttpResponse:
    """A response whose body is read by one thread, and which any thread may close."""

    #: Credentials were not sent, because the URL has another origin.
    credentials_withheld = False
    _response: OpenResponse
    error_context: ErrorContext
    _deadline: Deadline
    _alarms: AlarmClock
    _max_bytes: int

    def __post_init__(self) -> None:
        self.status: int = self._response.status
        self.headers: Mapping[str, str] = self._response.headers
        #: The ``Authorization`` header of the request.
        self.authorization: str = self._response.authorization
        self.closed: bool = False
        self._raw = self._response.raw
        self._encoded = "Content-Encoding" in self.headers
        self._pid = os.getpid()
        self._reading = False
        self._expired = False
        self._received = 0
        self._observer = TRANSFER_OBSERVER.get()
        self._alarm: Alarm | None = None
        if self._deadline.left is not None:
            self._alarm = self._alarms.set(self._deadline.at, self._expire)

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def challenges(self) -> tuple[str, ...]:
        """The ``WWW-Authenticate`` headers."""
        return tuple(self._raw.headers.getlist("WWW-Authenticate"))

    @property
    def ok(self) -> bool:
        """The status is a success."""
        return 200 <= self.status < 300

    @property
    def location(self) -> str | None:
        """The target of a redirect; None for other responses."""
        return self.headers.get("Location") if self.status in (301, 302, 303, 307, 308) else None

    def read_some(self) -> bytes:
        """The next bytes, as soon as some arrive; ``b""`` at the end, and after `close`.

        Raises:
            TransportTimeoutError: nothing arrived for too long, or the deadline passed.
            StreamInterruptedError: the connection of a stream broke.
            TransportError: the connection broke.
        """
        self._reading = True
        broken: TransportError | None = None
        try:
            data: bytes = b"" if self.closed else self._raw.read1(_CHUNK_BYTES, decode_content=self._encoded) or b""
        except Exception as error:
            # Reading a response that another thread closes fails in many ways, also inside urllib3.
            if not self.closed:
                self._release()
                if not isinstance(error, (u3.HTTPError, http.client.HTTPException, OSError)):
                    raise
                broken = transport_error(error, self.error_context, self._deadline)
                broken.answered = self.ok
            data = b""
        finally:
            self._reading = False
        if broken is not None:
            raise broken
        if self.closed:
            self._release()
            if self._expired:
                raise deadline_exceeded(self.error_context)
            return b""
        if not data:
            self._release()
        if self._encoded:
            # What 8 KiB of the connection become, when they are decompressed, may take many seconds to read.
            let_greenlets_run()
        if self._observer is not None:
            self._show_received(self._observer, len(data))
        return data

    def _show_received(self, observer: TransferObserver, size: int) -> None:
        self._received += size
        length = "" if self._encoded else self.headers.get("Content-Length", "")
        if self._received >= LARGE_BODY:
            observer("receiving", self._received, int(length) if length.isdecimal() and len(length) < 16 else None)

    def read(self, max_bytes: int | None = None) -> bytes:
        """The whole body.

        Raises:
            MalformedResponseError: it is larger than the client's ``max_response_bytes``, or than `max_bytes`.
            TransportError: as `read_some`.
        """
        most = self._max_bytes if max_bytes is None else min(max_bytes, self._max_bytes)
        # Not a list of pieces: an answer in pieces of two bytes would take twenty times its size.
        first, rest = b"", bytearray()
        try:
            while data := self.read_some():
                if first:
                    rest += data
                else:
                    first = data
                if len(first) + len(rest) > most:
                    text = f"the answer is larger than {most} bytes"
                    if most == self._max_bytes:
                        text = f"the answer is larger than {most} bytes (max_response_bytes)"
                    raise MalformedResponseError(text, **self.error_context.fields())
        finally:
            self.close()
        return first + rest if rest else first

    def close(self) -> None:
        """Stop reading at once, even while another thread is blocked in a read."""
        if self.closed:
            return
        self.closed = True
        try:
            # Closing would wait for the reader; a shutdown ends its read. A forked child leaves the connection of its parent
            # alone.
            if self._pid == os.getpid():
                self._raw.shutdown()
        except (ValueError, RuntimeError, OSError, AttributeError):
            pass  # at its end, or without a socket
        if not self._reading:
            self._release()

    def _expire(self) -> None:
        self._expired = True
        self.close()

    def _release(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            self._alarms.cancel(alarm)
        try:
            self._response.close()
        except (ValueError, RuntimeError, OSError, AttributeError):
            pass  # closed by two threads at once

    def status_error(self, body: bytes) -> HTTPStatusError:
        """The error for an HTTP error without an A2A body; its message includes the text of the error in `body`."""
        message = f"HTTP {self.status} {http.client.responses.get(self.status, '')}".rstrip()
        if self.location is not None:
            message += f"; the redirect{self._location_text} is not followed"
        elif self.status in (401, 403):
            scheme = self.headers.get("WWW-Authenticate", "").partition(" ")[0]
            if scheme:
                message += f"; the agent asks for {scheme} credentials"
            if self.credentials_withheld:
                message += "; credentials were not sent, because the card names an address on another origin"
        if text := error_text(body, self.headers.get("Content-Type", "")):
            message += f": {text}"
        return HTTPStatusError(
            message, status_code=self.status, retry_after=self.retry_after, **self.error_context.fields()
        )

    @property
    def _location_text(self) -> str:
        try:
            return f" to {urls.parse(urls.join(self._response.url, self.location or '')).without_query}"
        except UnsafeURLError:
            return ""

    @property
    def retry_after(self) -> float | None:
        """Seconds that the server asks the client to wait; None if it does not."""
        return retry_after(self.headers)


# -- errors of requests, urllib3 and the socket -------------------------------------------------------------------------
# No text contains a URL, which can contain secrets.


def transport_error(
    error: Exception,
    error_context: ErrorContext,
    deadline: Deadline,
    *,
    opening: bool = False,
    cert: str | tuple[str, str] | None = None,
) -> TransportError:
    """The `TransportError` for an error of requests, urllib3 or the socket; `opening`: before a response began.

    `cert` is the client certificate, as in requests.
    """
    cause = _root_cause(error)
    text = _describe(cause, error_context)
    if deadline.expired:
        return deadline_exceeded(error_context)
    if isinstance(cause, ssl.SSLError) and (alert := _CERTIFICATE_ALERT.search(cause.reason or "")):
        reason = alert[1].replace("_", " ").lower()
        if reason == "certificate required":
            return CertificateRefusedError("the agent requires a client certificate", **error_context.fields())
        refused = f"the agent refused the client certificate{_expired(cert)}: {reason}"
        return CertificateRefusedError(refused, **error_context.fields())
    # First: for urllib3, a refused connection is one of its timeouts.
    if opening and _is_before_sending(error):
        return ConnectError(f"could not connect: {text}", **error_context.fields("connect"))
    if isinstance(error, (requests.ConnectTimeout, u3.ConnectTimeoutError)):
        return TransportTimeoutError("the connection was not established in time", **error_context.fields("connect"))
    if isinstance(error, (requests.ReadTimeout, u3.ReadTimeoutError)):
        return TransportTimeoutError("the agent sent nothing within the read timeout", **error_context.fields())
    if isinstance(cause, TimeoutError):
        return TransportTimeoutError("the request could not be sent in time", **error_context.fields())
    if error_context.phase == "stream":
        return StreamInterruptedError(f"the stream broke: {text}", **error_context.fields())
    return TransportError(f"the connection broke: {text}", **error_context.fields())


def _refreshed(auth: AuthBase | None, refused: str) -> bool:
    return isinstance(auth, RefreshingAuth) and auth.refresh_after_refusal(refused)


def _without_credentials(session: requests.Session) -> requests.Session:
    """A session over the connections of `session`, without its headers, cookies, parameters and credentials."""
    bare = requests.Session()
    bare.adapters, bare.verify = session.adapters, session.verify
    bare.proxies, bare.trust_env = session.proxies, session.trust_env
    return bare


def _redirected(url: str, target: str, error_context: ErrorContext) -> str:
    try:
        return urls.join(url, target)
    except UnsafeURLError as error:
        raise MalformedResponseError(f"the URL that it redirects to {error}", **error_context.fields()) from None


def deadline_exceeded(error_context: ErrorContext) -> TransportTimeoutError:
    return TransportTimeoutError("the total timeout expired", **error_context.fields())


def _is_before_sending(error: Exception) -> bool:
    """No byte of the request was sent, so it is safe to send it again."""
    if isinstance(error, (requests.exceptions.SSLError, u3.SSLError)):
        cause = _root_cause(error)
        # An alert can also be the answer to a request that was sent (TLS 1.3 asks for client certificates late).
        return not (isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""))
    if isinstance(error, (requests.exceptions.ProxyError, requests.exceptions.InvalidURL, u3.LocationValueError)):
        return True
    wrapped = getattr(error.args[0], "reason", None) if error.args else None
    return any(isinstance(one, (u3.NewConnectionError, u3.NameResolutionError)) for one in (error, wrapped))


def _root_cause(error: BaseException) -> BaseException:
    for _ in range(10):
        below = [getattr(error, "reason", None), *reversed(error.args), error.__cause__]
        inner = next((one for one in below if isinstance(one, BaseException)), None)
        if inner is None:
            break
        error = inner
    return error


#: How `ssl` reports that a server refused the certificate of the client: servers send these alerts for nothing else.
_CERTIFICATE_ALERT = re.compile("ALERT_(.*CERTIFICATE.*|UNKNOWN_CA|ACCESS_DENIED)")
#: The first certificate of a file, and the validity in its DER: two times, which have years of two digits until 2049.
_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VALIDITY = re.compile(rb"\x30\x1e\x17\x0d\d{12}Z\x17\x0d(\d{12})Z")
#: How `ssl` reports a response that is not TLS, by release of OpenSSL.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"}


def _expired(cert: str | tuple[str, str] | None) -> str:
    """When the certificate in a file expired, as a part of a sentence; ``""`` if it did not, or cannot be read."""
    try:
        pem = _PEM.search(Path(cert if isinstance(cert, str) else cert[0]).read_text("latin-1")) if cert else None
        found = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(pem[0])) if pem else None
        if found is None:
            return ""
        end = datetime.strptime(f"{found[1].decode()}+0000", "%y%m%d%H%M%S%z")
    except (OSError, ValueError):
        return ""
    return f", which expired on {end:%Y-%m-%d %H:%M:%S} UTC" if end < datetime.now(UTC) else ""


def _describe(error: BaseException, error_context: ErrorContext) -> str:
    """One line without URLs."""
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "the port does not speak TLS; use http://"
    text = _error_text(error)
    # Many servers close a connection in the wrong protocol without a response. The card is the first request.
    hints = {"http": "serves TLS, use https://", "https": "does not speak TLS, use http://"}
    closed = isinstance(error, (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError)) and "://" not in text
    if closed and error_context.phase == "card" and (hint := hints.get(error_context.agent.partition(":")[0])):
        text += f"; if this port {hint}"
    return text


def _error_text(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (http.client.HTTPException, OSError)):
        return str(error) or type(error).__name__
    return type(error).__name__
