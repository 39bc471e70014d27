"""HTTP as the client needs it: bytes out, bytes in, promptly and never for longer than allowed.

What the bytes mean is not known. Loading this room loads requests, so it is loaded with the first client that has a URL.

How limits are kept: urllib3's time-outs bound connecting and every single wait. What they do not bound (headers, bodies
and streams that drip) is ended by an alarm that shuts the socket down for reading, which ends a blocked read at once in
every framing and over TLS; a time-out set before each read would neither reach into urllib3's reading of chunk headers
nor work with a user's own session.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.auth import AuthBase
from urllib3 import exceptions as u3

from a2a_sync import urls
from a2a_sync.client.cards import Page
from a2a_sync.client.connections import Adapter, Session, timed_body
from a2a_sync.client.credentials import checked_header, display, may_know, split_credentials
from a2a_sync.client.deadlines import NEVER, Alarm, AlarmClock, Deadline, Timeout
from a2a_sync.client.errortext import error_text
from a2a_sync.client.failures import Where as Where
from a2a_sync.client.failures import failure, timed_out
from a2a_sync.client.placing import Auth, as_auth
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import (
    CardAuthError,
    ConnectError,
    HTTPStatusError,
    MalformedResponseError,
    TransportError,
    UnsafeURLError,
)
from a2a_sync.outbound.urlguard import URLGuard

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard

#: The largest answer that is not a stream, in bytes.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_PIECE = 65536
_REDIRECTS = 5


class HttpTransport:
    """Requests to one agent, with its credentials. Safe from many threads and across forks.

    `home` is the address that the user gave: credentials and headers of the user go to its origin and to no other.
    """

    def __init__(
        self,
        home: str,
        *,
        auth: Auth = None,
        headers: Mapping[str, str] | None = None,
        timeout: Timeout,
        alarms: AlarmClock,
        session: requests.Session | None = None,
        verify: bool | str | None = None,
        cert: str | tuple[str, str] | None = None,
        url_guard: URLGuard | None = None,
    ) -> None:
        if url_guard is not None and session is not None:
            raise ValueError("url_guard needs connections of the client's own: leave session out")
        self.home, in_url = split_credentials(home)
        if url_guard is not None:
            url_guard.check(self.home)
        #: The address as it may be shown.
        self.agent = display(self.home)
        self._given = in_url if auth is None else auth
        self._auth = as_auth(self._given)
        self._headers = {name: checked_header(name, value) for name, value in (headers or {}).items()}
        self._timeout = timeout
        self._alarms = alarms
        self._session = session
        self._verify = verify
        self._cert = cert
        self._guard = url_guard
        #: By whether they lead only where the guard allows.
        self._adapters: dict[bool, Adapter] = {}
        renew_in_child(self)

    @property
    def has_secrets(self) -> bool:
        """There are credentials or headers that another origin would not be given."""
        return self._given is not None or bool(self._headers) or self._cert is not None

    def heed(self, card: AgentCard) -> None:
        """From here on, send credentials as `card` wants them.

        Raises:
            CardAuthError: there are none that it asks for.
        """
        try:
            self._auth = as_auth(self._given, card)
        except ValueError as error:
            raise CardAuthError(str(error), phase="card", agent=self.agent) from None

    def renew(self) -> None:
        """In a forked child: a connection must not be used by two processes."""
        self._adapters = {}

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        where: Where,
        deadline: Deadline,
        opening: Deadline = NEVER,
        body: bytes | None = None,
        guarded: bool = True,
    ) -> HttpAnswer:
        """Send one request; its answer, of whatever status, with the body still to be read. Redirects are not followed.

        `deadline` is for all of it, `opening` for the time until the body begins. `guarded`: a card, or what was read elsewhere,
        names the URL; else it is the user's own.

        Raises:
            ConnectError: the request was not sent.
            TransportTimeoutError: a limit ran out.
            TransportError: the connection broke.
        """
        if not may_know(self.home, url):
            answer = self._send(method, url, headers, body, None, where, deadline, opening, guarded=guarded)
            answer.withheld = self._given is not None
            return answer
        auth = self._auth
        headers = {**self._headers, **headers}
        self._make_ready(auth, deadline)
        answer = self._send(method, url, headers, body, auth, where, deadline, opening)
        retry_with = getattr(auth, "retry_with", None) if answer.status == 401 else None
        if retry_with is not None and retry_with(answer.authorization):
            # What was refused has done nothing: it may be sent again, once.
            answer.close()
            self._make_ready(auth, deadline)
            answer = self._send(method, url, headers, body, auth, where, deadline, opening)
        return answer

    def _make_ready(self, auth: AuthBase | None, deadline: Deadline) -> None:
        if (ready := getattr(auth, "ready", None)) is not None:
            ready(self._post, deadline)

    def _post(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> tuple[int, bytes]:
        """Send a body to a server of another kind, with nothing of ours."""
        answer = self._send(
            "POST", url, headers, body, None, Where("token", display(url)), deadline, NEVER, guarded=False
        )
        return answer.status, answer.read()

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        auth: AuthBase | None,
        where: Where,
        deadline: Deadline,
        opening: Deadline,
        *,
        guarded: bool = True,
    ) -> HttpAnswer:
        if deadline.expired:
            raise timed_out(where)
        if guarded and self._guard is not None:
            try:
                self._guard.check(url)
            except UnsafeURLError as unsafe:
                raise ConnectError(f"the URL {unsafe}", **where.marks("connect")) from None
        refused: Exception
        try:
            response = self._requests_session(guarded).request(
                method,
                url,
                data=timed_body(body, deadline),
                headers=dict(headers),
                auth=auth,
                timeout=self._limits(min(deadline, opening)),
                stream=True,
                allow_redirects=False,
                verify=self._verify,
                # As with credentials: an origin that the user has not named gets none.
                cert=self._cert if self._cert is not None and may_know(self.home, url) else None,
            )
        except requests.exceptions.InvalidHeader:
            refused = ValueError("auth gave credentials that cannot stand in a header")
        except (requests.RequestException, u3.HTTPError, OSError) as error:
            refused = failure(error, where, deadline)
        else:
            return HttpAnswer(response, where, deadline, self._alarms)
        # Not chained: the errors of requests and urllib3 show URLs and headers, which can hold secrets.
        raise refused

    def get(self, url: str, *, headers: Mapping[str, str], where: Where, deadline: Deadline) -> Page:
        """What is at `url`, redirects followed.

        Raises:
            TransportError: as `open`.
        """
        for redirects_left in reversed(range(_REDIRECTS + 1)):
            answer = self.open("GET", url, headers=headers, where=where, deadline=deadline)
            target = answer.location
            if target is None or not redirects_left:
                break
            answer.close()
            try:
                url = urls.join(url, target)
            except UnsafeURLError as error:
                raise MalformedResponseError(f"the address that it redirects to {error}", **where.marks()) from None
        return Page(answer.status, answer.read(), answer.headers)

    def close(self) -> None:
        """Close the connections that are kept. A session that was handed in stays open."""
        adapters, self._adapters = self._adapters, {}
        for adapter in adapters.values():
            adapter.close()

    def _limits(self, deadline: Deadline) -> Any:
        total = None if deadline.left is None else max(deadline.left, 0.001)
        return urllib3.Timeout(connect=self._timeout.connect, read=self._timeout.read, total=total)

    def _requests_session(self, guarded: bool) -> requests.Session:
        """A session for one request: cookies and redirects are a session's shared state, connections are the adapter's."""
        if self._session is not None:
            return self._session
        guard = self._guard if guarded else None
        adapter = self._adapters.get(guard is not None)
        if adapter is None:
            self._adapters[guard is not None] = adapter = Adapter(self._alarms, guard)
        return Session(adapter)


class HttpAnswer:
    """An answer whose body is read by one thread and may be closed by any."""

    #: Credentials were not sent, because the address is of another origin.
    withheld = False

    def __init__(self, response: requests.Response, where: Where, deadline: Deadline, alarms: AlarmClock) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.where = where
        self.closed = False
        self._response = response
        self._raw: Any = response.raw
        self._deadline = deadline
        self._alarms = alarms
        self._pid = os.getpid()
        self._reading = False
        self._expired = False
        self._alarm: Alarm | None = None
        if deadline.left is not None:
            self._alarm = alarms.set(deadline.at, self._expire)

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def authorization(self) -> str:
        """What the request said in ``Authorization``."""
        sent: str = self._response.request.headers.get("Authorization", "")
        return sent

    @property
    def challenges(self) -> tuple[str, ...]:
        """What the server says of how to authenticate."""
        return tuple(self._raw.headers.getlist("WWW-Authenticate"))

    @property
    def ok(self) -> bool:
        """A status of success."""
        return 200 <= self.status < 300

    @property
    def location(self) -> str | None:
        """Where a redirect leads."""
        return self.headers.get("Location") if self.status in (301, 302, 303, 307, 308) else None

    def read_some(self) -> bytes:
        """The next bytes as soon as there are any; ``b""`` at the end, and after `close`.

        Raises:
            TransportTimeoutError: nothing came for too long, or the deadline has passed.
            StreamInterruptedError: the connection of a stream broke.
            TransportError: the connection broke.
        """
        self._reading = True
        broken: TransportError | None = None
        try:
            data: bytes = b"" if self.closed else self._raw.read1(_PIECE, decode_content=True) or b""
        except Exception as error:
            # A response that another thread closes fails in many ways, also inside of urllib3.
            if not self.closed:
                self._release()
                if not isinstance(error, (u3.HTTPError, http.client.HTTPException, OSError)):
                    raise
                broken = failure(error, self.where, self._deadline)
                broken.answered = self.ok
            data = b""
        finally:
            self._reading = False
        if broken is not None:
            raise broken
        if self.closed:
            self._release()
            if self._expired:
                raise timed_out(self.where)
            return b""
        if not data:
            self._release()
        return data

    def read(self) -> bytes:
        """The whole body.

        Raises:
            MalformedResponseError: it is larger than `MAX_ANSWER_BYTES`.
            TransportError: as `read_some`.
        """
        pieces = []
        size = 0
        try:
            while data := self.read_some():
                pieces.append(data)
                size += len(data)
                if size > MAX_ANSWER_BYTES:
                    raise MalformedResponseError(
                        f"the answer is larger than {MAX_ANSWER_BYTES} bytes", **self.where.marks()
                    )
        finally:
            self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Stop reading, at once, also where another thread is blocked in a read."""
        if self.closed:
            return
        self.closed = True
        try:
            # Closing would wait for the reader; shutting down ends its read. A forked child leaves the connection alone:
            # the parent still reads from it.
            if self._pid == os.getpid():
                self._raw.shutdown()
        except (ValueError, RuntimeError, OSError, AttributeError):
            pass  # at its end already, or no socket
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
            pass  # closed by two threads at a time

    def status_error(self, body: bytes) -> HTTPStatusError:
        """The error for an answer that is an HTTP error and not A2A; its message has what `body` says."""
        message = f"HTTP {self.status} {http.client.responses.get(self.status, '')}".rstrip()
        if self.location is not None:
            message += f"; the redirect{self._shown_location} is not followed"
        elif self.status in (401, 403):
            scheme = self.headers.get("WWW-Authenticate", "").partition(" ")[0]
            if scheme:
                message += f"; the agent asks for {scheme} credentials"
            if self.withheld:
                message += "; credentials were not sent, because the card names an address of another origin"
        if said := error_text(body, self.headers.get("Content-Type", "")):
            message += f": {said}"
        return HTTPStatusError(message, status=self.status, retry_after=self.retry_after, **self.where.marks())

    @property
    def _shown_location(self) -> str:
        try:
            return f" to {display(urls.join(self._response.url, self.location or ''))}"
        except UnsafeURLError:
            return ""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server wants to be asked again."""
        value = self.headers.get("Retry-After", "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            return None
