"""One HTTP request and its answer, as every binding needs them: body, version, surroundings in; bytes or a stream out.

It knows ``environ``, limits and content types. Which operation is asked for, and in which codec, is the binding's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote, unquote_to_bytes
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.exceptions import SecurityError
from werkzeug.urls import iri_to_uri
from werkzeug.wrappers import Request

from a2a_sync.auth.policy import principal_in
from a2a_sync.bindings.headers import VERSION, named_extensions
from a2a_sync.bindings.sse import frame
from a2a_sync.codec import Codec
from a2a_sync.codec.fields import shown
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import (
    AgentError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidRequestError,
    JSONParseError,
    RequestTooLargeError,
)
from a2a_sync.limits import Limits
from a2a_sync.operations import Call, CallContext, Principal
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.wsgi.connection import BODY_READ, Connection, has_body
from a2a_sync.wsgi.slowbodies import SlowBodies
from a2a_sync.wsgi.streaming import EVENT_STREAM, Envelope, EventStreamBody
from a2a_sync.wsgi.streaming import HEADERS as STREAM_HEADERS

logger = get_logger(__name__)

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {413: "Content Too Large"}
#: What may stand in a path as it is; a percent sign belongs to what is encoded already.
_AS_IT_IS = "/%:@!$&'()*+,;="
#: The longest URL, in characters, that an app takes for its own address; cards repeat it for every interface.
_LONGEST_ADDRESS = 1024
_ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*")
#: A body up to this size is read even of callers who are refused: closing before it has come would cost them the answer.
_SMALL = 64 * 1024


@lru_cache(1024)
def _header_name(key: str) -> str:
    """The lower-case name of the header that stands in the environ as `key`."""
    return key[5:].replace("_", "-").lower()


class Exchange:
    """A request that was not read yet and the way to answer it. Used on the server's request thread.

    `admit` says who is calling, or refuses the request.
    `slow` is told of bodies that are read.
    """

    def __init__(
        self,
        request: Request,
        start_response: StartResponse,
        connection: Connection,
        limits: Limits,
        admit: Callable[[WSGIEnvironment], Principal | None] = principal_in,
        slow: SlowBodies | None = None,
    ) -> None:
        self._request = request
        self._start_response = start_response
        self._connection = connection
        self._limits = limits
        self._admit = admit
        self._slow = slow
        self._added: dict[str, str] = {}
        environ = request.environ
        self._read_whole = not has_body(environ)

    # -- the request --

    @property
    def verb(self) -> str:
        """The HTTP method."""
        return self._request.method

    @property
    def path(self) -> str:
        """The path from the app's own address on, percent-encoded as it came where the server tells."""
        return _path(self._request.environ)

    @property
    def query(self) -> str:
        """The query, percent-encoded."""
        return quote(self._request.query_string, safe=_AS_IT_IS + "?~")

    @property
    def media_type(self) -> str:
        """The media type of the body; empty where nothing is said."""
        return self._request.mimetype

    @property
    def accepted(self) -> dict[str, float]:
        """The media ranges of ``Accept``, in lower case and without parameters, and their qualities (0: refused).

        Empty where the header is missing or cannot be read: then any media type is accepted.
        """
        ranges = self._request.accept_mimetypes
        return {value.partition(";")[0].strip().lower(): quality for value, quality in ranges}

    def admit(self) -> None:
        """Find out who is calling: before the body is read, and before any `context`.

        Raises:
            UnauthenticatedError, PermissionDeniedError: nobody who may.
        """
        try:
            self._principal = self._admit(self._request.environ)
        except AgentError:
            if 0 < (self._request.content_length or 0) <= _SMALL:
                self._read_on()
            raise

    def _read_on(self) -> None:
        try:
            self.body()
        except AgentError:
            pass  # whatever it is, it is not for us

    def body(self) -> bytes:
        """The body; what is not JSON by its own account, or too large, is not read.

        Raises:
            ContentTypeNotSupportedError, RequestTooLargeError: so.
            JSONParseError: it broke off or stalled.
        """
        content_type = self._request.mimetype
        if content_type and content_type != "application/json" and not content_type.endswith("+json"):
            raise ContentTypeNotSupportedError(f"Content-Type {shown(content_type)} is not JSON; send application/json")
        most, length = self._limits.max_body_bytes, self._request.content_length
        if (length or 0) > most:
            raise RequestTooLargeError(f"the body is larger than {most} bytes")
        if length == 0:
            return b""
        self._connection.limit(self._limits.body_idle_timeout)
        ticket = None if self._slow is None else self._slow.begin(self._connection)
        try:
            body = self._unframed(most + 1) if length is None else self._read(length)
        except Exception as error:
            # Servers have errors of their own for malformed chunks, silence and clients that leave half-way.
            logger.info("a body could not be read: %r", error)
            raise JSONParseError("Invalid JSON: the body ended early, stalled or was not framed as announced") from None
        finally:
            if self._slow is not None:
                self._slow.end(ticket)
            self._connection.restore()
        self._read_whole = self._request.environ[BODY_READ] = len(body) <= most
        if not self._read_whole:
            raise RequestTooLargeError(f"the body is larger than {most} bytes")
        return body

    def _read(self, length: int) -> bytes:
        source = self._request.environ["wsgi.input"]
        body: bytes = source.read(length)
        while len(body) < length:
            more = source.read(length - len(body))
            if not more:
                raise EOFError(f"{len(body)} bytes of {length}")
            body += more
        return body

    def _unframed(self, most: int) -> bytes:
        """A body of unknown length; it is cut at `most` without a word."""
        self._request.max_content_length = most
        return self._request.get_data(cache=False)

    @property
    def named_version(self) -> str:
        """What the caller says of the protocol's version, in a header or in the query; empty where it says nothing."""
        request = self._request
        return request.headers.get(VERSION, "").strip() or request.args.get(VERSION, "").strip()

    @property
    def wants_events(self) -> bool:
        """The caller accepts event streams and does not name JSON beside them."""
        named = [media_type for media_type, quality in self.accepted.items() if quality]
        return EVENT_STREAM in named and not any("json" in media_type for media_type in named)

    def context(self, version: str, *, addressed: bool = False) -> CallContext:
        """What surrounds a call that is made in `version`; `addressed`: with the app's own address.

        Raises:
            InvalidRequestError: the request does not say where the app is.
        """
        headers = {_header_name(key): value for key, value in self._request.environ.items() if key.startswith("HTTP_")}
        last = headers.get("last-event-id", "")
        return CallContext(
            headers=headers,
            principal=self._principal,
            extensions=named_extensions(headers, version),
            answer_headers=self._added,
            version=version,
            last_event_id=int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None,
            gone=self._connection.gone,
            address=address_of(self._request) if addressed else "",
            peer=self._request.environ.get("REMOTE_ADDR", ""),
        )

    # -- the answer --

    def answer(
        self,
        status: int,
        body: bytes,
        error: AgentError | None = None,
        media_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Iterable[bytes]:
        """A whole answer; `error` is what it tells, if it tells one. Status 204 goes without a body, as do answers to HEAD."""
        lines = [*(headers or {}).items(), *self._added.items()]
        if status != HTTPStatus.NO_CONTENT:
            lines += [("Content-Type", media_type), ("Content-Length", str(len(body)))]
        if error is not None and error.retry_after:
            lines.append(("Retry-After", str(max(1, round(error.retry_after)))))
        if error is not None and error.challenges:
            lines += [("WWW-Authenticate", challenge) for challenge in error.challenges]
        self._start_response(f"{status} {_PHRASES.get(status, 'Error')}", lines)
        if self._read_whole:
            self._connection.read_no_more()
        return [] if status == HTTPStatus.NO_CONTENT or self.verb == "HEAD" else [body]

    def event(self, data: bytes) -> Iterable[bytes]:
        """An answer that is a stream of one event, which stands for nothing in a task's log."""
        body = frame(data)
        self._start_response("200 OK", [*STREAM_HEADERS, *self._added.items(), ("Content-Length", str(len(body)))])
        return [body]

    def stream(self, begin: Callable[[], PolledStream], envelope: Envelope, codec: Codec) -> Iterable[bytes]:
        """The answer to a streaming operation. `begin` makes the stream; what it raises passes through, unanswered."""
        stream = begin()
        try:
            self._start_response("200 OK", [*STREAM_HEADERS, *self._added.items()])
        except BaseException:
            stream.close()
            raise
        return EventStreamBody(stream, envelope, codec, self._connection, self._limits)


def address_of(request: Request) -> str:
    """Where the app is, by the account of a request to it: a URL with a slash at its end.

    Raises:
        InvalidRequestError: the request names no host, or one that is not served here.
    """
    try:
        if request.host:
            address = iri_to_uri(request.root_url)
            if len(address) <= _LONGEST_ADDRESS:
                return address
            raise InvalidRequestError(f"the address of this app must have at most {_LONGEST_ADDRESS} characters")
    except SecurityError:
        raise InvalidRequestError("this host is not served here") from None
    except UnicodeError:
        pass  # no such name can be looked up
    raise InvalidRequestError("the request names no host that a URL could be made of")


def _path(environ: WSGIEnvironment) -> str:
    """WSGI gives paths decoded, in which ``a%2Fb`` and ``a/b`` are one; most servers say besides what was sent."""
    decoded: bytes = environ.get("PATH_INFO", "").encode("latin-1")
    sent = str(environ.get("REQUEST_URI") or environ.get("RAW_URI") or "")
    if not sent.startswith("/"):
        sent = _ORIGIN.sub("", sent) if "://" in sent else ""
    raw = sent.partition("?")[0].encode("latin-1", "replace")
    whole = unquote_to_bytes(raw)
    if not decoded.startswith(b"/") or not whole.endswith(decoded):
        # Something on the way has rewritten one of the two.
        return quote(decoded, safe=_AS_IT_IS.replace("%", ""))
    at = before = 0
    while before < len(whole) - len(decoded):
        at += 3 if raw[at : at + 1] == b"%" and len(unquote_to_bytes(raw[at : at + 3])) == 1 else 1
        before += 1
    return quote(raw[at:], safe=_AS_IT_IS)


def internal_error(call: Call | None = None, *, debug: bool = False) -> InternalError:
    """The `incident` of a request. Call it while handling the exception."""
    return incident(logger, "request failed", {"method": call.operation.name if call else ""}, debug=debug)
