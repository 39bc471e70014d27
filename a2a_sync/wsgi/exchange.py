"""One HTTP request and its response, as every binding needs them: caller, body, version and call context in; a result,
an error or a stream out.

It knows the environ, limits and content types. Which operation is meant, and in which codec, is up to the binding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote, unquote_to_bytes
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.exceptions import SecurityError
from werkzeug.sansio.utils import get_content_length, get_current_url
from werkzeug.urls import iri_to_uri
from werkzeug.wrappers import Request

from a2a_sync.auth.request import AuthRequest
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
    OverloadedError,
    RequestTooLargeError,
)
from a2a_sync.jsontext import has_many_values
from a2a_sync.limits import Limits
from a2a_sync.operations import SEND_MESSAGE, AnyOperation, CallContext, Endpoint, Principal
from a2a_sync.server.pending import PendingReply
from a2a_sync.server.responses import ResponseBudget
from a2a_sync.stores.base import SMALL_BYTES
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.wsgi.bodydeadline import BodyDeadline
from a2a_sync.wsgi.connection import BODY_READ, Connection, has_body, incoming_bodies, peer_certificate
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.pages import werkzeug_request
from a2a_sync.wsgi.pausing import PendingBody
from a2a_sync.wsgi.streaming import EVENT_STREAM, Envelope, EventStreamBody
from a2a_sync.wsgi.streaming import HEADERS as STREAM_HEADERS

logger: Final = get_logger(__name__)

#: The key of the environ under which a web framework puts the caller that it has authenticated.
PRINCIPAL = "a2a_sync.principal"
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {413: "Content Too Large"}
#: Characters that are not encoded in a path; a percent sign is part of what is encoded already.
_SAFE_IN_PATH = "/%:@!$&'()*+,;="
#: Seconds after which a send that waits for its task leaves its thread, where the server resumes responses. Where short sends need all
#: of the processor, leaving it earlier would only begin more of them at the same time.
_DEFERRED_AFTER = 0.1
#: The longest URL, in characters, that is accepted as an app's own address; cards repeat it for every interface.
_MAX_ADDRESS_LENGTH = 1024
#: The longest ``Accept`` that is read, in characters: Werkzeug needs a microsecond for each, also without credentials.
_MAX_ACCEPT_LENGTH = 2048
_ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*")
#: A body up to this size is read of a refused request too: closing the connection earlier would lose the response.
_SMALL_BODY = 64 * 1024


class BindingService(Protocol):
    """The server's half of a binding over HTTP, for all versions of one app. A row of the registry names its class."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec], http: HTTPOptions) -> None:
        """`codecs` by version, the preferred one first; `endpoint` answers the calls."""

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        """The response to a request; None where its path is none of this binding. Never raises."""


@lru_cache(1024)
def _header_name(key: str) -> str:
    """The lower-case name of the header that the environ has under `key`."""
    return key[5:].replace("_", "-").lower()


def headers_of(environ: WSGIEnvironment) -> dict[str, str]:
    """The headers of a request, by name in lower case."""
    return {_header_name(key): value for key, value in environ.items() if key.startswith("HTTP_")}


def auth_request(environ: WSGIEnvironment, headers: Mapping[str, str]) -> AuthRequest:
    """What authenticators see of a request with these headers."""
    before_proxies = environ.get("werkzeug.proxy_fix.orig") or environ
    return AuthRequest(
        headers,
        query_string=environ.get("QUERY_STRING", ""),
        peer_address=environ.get("REMOTE_ADDR", ""),
        connection_address=before_proxies.get("REMOTE_ADDR", ""),
        principal=environ.get(PRINCIPAL),
        certificate=lambda: peer_certificate(environ),
        environ=environ,
    )


@dataclass(eq=False, repr=False)
class Exchange:
    """One request, parsed once, and the means to respond to it. Used on the request's thread.

    Parameters:
        environ, start_response: of WSGI.
        connection: the client's connection.
        limits: those of the app.
        authenticate: returns the caller of a request, or raises.
        body_deadline: ends connections whose bodies take too long.
        budget: admits large bodies.
        names_owners: the call calls `CallContext.owner_found`; until then its owner is not known.
    """

    environ: WSGIEnvironment
    _start_response: StartResponse
    _connection: Connection
    _limits: Limits
    _authenticate: Callable[[AuthRequest], Principal | None]
    _body_deadline: BodyDeadline
    _budget: ResponseBudget
    _names_owners: bool = False

    def __post_init__(self) -> None:
        #: The HTTP method.
        self.method: str = self.environ["REQUEST_METHOD"]
        #: By name in lower case.
        self.headers: dict[str, str] = headers_of(self.environ)
        #: The media type of the body, in lower case; empty where the request does not have one.
        self.media_type: str = self.environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        self._principal: Principal | None = None
        #: The id of the principal, or the owner of the call once that is found.
        self._caller = ""
        self._response_headers: dict[str, str] = {}
        self._body_read = False
        #: The processor time counts for its caller, see `ResponseBudget.begin`.
        self._counted = False

    @cached_property
    def request(self) -> Request:
        """The request as Werkzeug reads it."""
        return werkzeug_request(self.environ)

    # -- the request --

    @property
    def path(self) -> str:
        """The path from the app's own address on, percent-encoded as it was sent where the server shows that."""
        return _path(self.environ)

    @property
    def query(self) -> str:
        """The query, percent-encoded."""
        return quote(self.environ.get("QUERY_STRING", "").encode("latin-1"), safe=_SAFE_IN_PATH + "?~")

    @cached_property
    def accepted(self) -> dict[str, float]:
        """The media ranges of ``Accept``, in lower case and without parameters, and their qualities (0: refused).

        Empty where the header is missing, malformed or longer than 2,048 characters: any media type is accepted then.
        """
        if len(self.headers.get("accept", "")) > _MAX_ACCEPT_LENGTH:
            return {}
        ranges = self.request.accept_mimetypes
        return {value.partition(";")[0].strip().lower(): quality for value, quality in ranges}

    @property
    def requested_version(self) -> str:
        """The protocol version that the request names, in a header or in the query; empty where it names none."""
        named: str = self.headers.get("a2a-version", "").strip()
        if named or not self.environ.get("QUERY_STRING"):
            return named
        query: str = self.environ["QUERY_STRING"]
        return parse_qs(query).get(VERSION, [""])[0].strip()

    @property
    def wants_events(self) -> bool:
        """The client accepts event streams and does not name JSON beside them."""
        named = [media_type for media_type, quality in self.accepted.items() if quality]
        return EVENT_STREAM in named and not any("json" in media_type for media_type in named)

    def authenticate(self) -> None:
        """Find out the caller: before the body is read, and before `context`.

        Raises:
            UnauthenticatedError, PermissionDeniedError, OverloadedError: the request is refused.
        """
        try:
            if PRINCIPAL in self.environ:
                # Also with None: the framework knows its callers, and this one is none of them.
                self._budget.quotas.several = True
            self._principal = self._authenticate(auth_request(self.environ, self.headers))
            if self._principal is not None:
                self._caller = self._principal.id
            self._counted = self._principal is not None or self._budget.quotas.several
            if self._counted and not self._names_owners:
                self._budget.check(self._caller)
        except AgentError:
            if 0 < (self.request.content_length or 0) <= _SMALL_BODY:
                with suppress(AgentError):  # the request is refused in any case
                    self.read_body()
            raise

    def read_body(self) -> bytes:
        """The body. One that is not declared as JSON, or is too large, is not read.

        Raises:
            ContentTypeNotSupportedError: it is not declared as JSON.
            RequestTooLargeError: it is larger than `Limits.max_body_bytes`.
            OverloadedError: there are too many large bodies at once.
            JSONParseError: it broke off or stalled.
        """
        content_type = self.media_type
        if content_type and content_type != "application/json" and not content_type.endswith("+json"):
            raise ContentTypeNotSupportedError(f"Content-Type {shown(content_type)} is not JSON; send application/json")
        most = self._limits.max_body_bytes
        length = get_content_length(self.environ.get("CONTENT_LENGTH"), self.environ.get("HTTP_TRANSFER_ENCODING"))
        if (length or 0) > most:
            raise RequestTooLargeError(
                f"the body is larger than {most} bytes (Limits.max_body_bytes of the server); send large files by URL"
            )
        if length == 0:
            return b""
        if (length or 0) > SMALL_BYTES:
            self._budget.admit(self._caller)
        ticket = None
        if self._connection.waits_for_reads:
            self._connection.limit(self._limits.body_idle_timeout)
            ticket = self._body_deadline.begin(self._connection)
            incoming_bodies.add(self._connection, 0)
        try:
            body = self._read_unsized(most + 1) if length is None else self._read(length)
        except OverloadedError:
            raise
        except Exception as error:
            # Servers raise errors of their own for malformed chunks, silence and clients that leave half-way.
            logger.info("a body could not be read: %r", error)
            raise JSONParseError("Invalid JSON: the body ended early, stalled or was not framed as announced") from None
        finally:
            if ticket is not None:
                self._body_deadline.end(ticket)
                incoming_bodies.remove(self._connection)
                self._connection.restore()
        self._body_read = self.environ[BODY_READ] = len(body) <= most
        if not self._body_read:
            raise RequestTooLargeError(
                f"the body is larger than {most} bytes (Limits.max_body_bytes of the server); send large files by URL"
            )
        # Not before: a slow client keeps nothing from others.
        if self._counted:
            expensive = len(body) > _SMALL_BODY and has_many_values(body)
            self._budget.begin(self._caller, expensive=expensive, found=not self._names_owners)
        if len(body) > SMALL_BYTES:
            self._budget.reserve(len(body), self._caller, response=False)
        return body

    def _read(self, length: int) -> bytes:
        source, waits = self.environ["wsgi.input"], self._connection.waits_for_reads
        pieces: list[bytes] = []
        left = length
        while left:
            piece: bytes = source.read(min(left, _SMALL_BODY) if waits else left)
            if not piece:
                raise EOFError(f"{length - left} bytes of {length}")
            pieces.append(piece)
            left -= len(piece)
            if waits and left:
                incoming_bodies.add(self._connection, len(piece))
        return b"".join(pieces)

    def _read_unsized(self, most: int) -> bytes:
        """A body of unknown length, cut at `most` bytes."""
        self.request.max_content_length = most
        stream, body = self.request.stream, bytearray()
        while len(body) < most and (data := stream.read(min(64 * 1024, most - len(body)))):
            body += data
            if self._connection.waits_for_reads:
                incoming_bodies.add(self._connection, len(data))
            if len(body) > SMALL_BYTES:
                self._budget.admit(self._caller)
        return bytes(body)

    def context(self, version: str, operation: AnyOperation) -> CallContext:
        """The context of a call of `operation` that is made in `version`.

        Raises:
            InvalidRequestError: the request does not show the address.
            OverloadedError: it has no body, and `ResponseBudget.begin` refuses it.
        """
        if self._counted and not self._body_read:
            self._budget.begin(self._caller, expensive=False, found=not self._names_owners)
        last = self.headers.get("last-event-id", "")
        return CallContext(
            headers=self.headers,
            principal=self._principal,
            extensions=named_extensions(self.headers, version),
            answer_headers=self._response_headers,
            version=version,
            last_event_id=int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None,
            gone=self._connection.gone,
            address=address_of(self.request) if operation.addressed else "",
            owner_found=self._count_for if self._names_owners else None,
            peer=self.environ.get("REMOTE_ADDR", ""),
            deferred_after=_DEFERRED_AFTER if self._connection.resumes and operation is SEND_MESSAGE else math.inf,
        )

    def _count_for(self, owner: str) -> None:
        self._caller = owner
        self._budget.count_for(owner)

    # -- the response --

    def answer(
        self,
        status: int,
        body: bytes,
        error: AgentError | None = None,
        media_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Iterable[bytes]:
        """A complete response. Status 204 has no body, nor have responses to HEAD.

        Parameters:
            status: the HTTP status.
            body: the bytes of the body.
            error: the error that the body holds, for its headers.
            media_type: that of the body.
            headers: sent besides those of the call.
        """
        lines = [*(headers or {}).items(), *self._response_headers.items()]
        if self.method in ("GET", "HEAD"):
            # Of one caller: the URL is the same for all, and a cache may not know by which header they differ.
            lines.append(("Cache-Control", "private, no-store"))
        if status != HTTPStatus.NO_CONTENT:
            lines += [("Content-Type", media_type), ("Content-Length", str(len(body)))]
        if error is not None and error.retry_after:
            lines.append(("Retry-After", str(max(1, round(error.retry_after)))))
        if error is not None and error.challenges:
            lines += [("WWW-Authenticate", challenge) for challenge in error.challenges]
        self._start_response(f"{status} {_PHRASES.get(status, 'Error')}", lines)
        if self._body_read or not has_body(self.environ):
            self._connection.shutdown_read()
        return [] if status == HTTPStatus.NO_CONTENT or self.method == "HEAD" else [body]

    def event(self, data: bytes) -> Iterable[bytes]:
        """A response that is a stream of one event, which is no entry of a task's log."""
        body = frame(data)
        lines = [*STREAM_HEADERS, *self._response_headers.items(), ("Content-Length", str(len(body)))]
        self._start_response("200 OK", lines)
        return [body]

    def stream(self, stream: PolledStream, envelope: Envelope, codec: Codec) -> Iterable[bytes]:
        """The response to a streaming operation; `stream` is closed with it."""
        try:
            self._start_response("200 OK", [*STREAM_HEADERS, *self._response_headers.items()])
        except BaseException:
            stream.close()
            raise
        return EventStreamBody(stream, envelope, codec, self._connection, self._limits, self._caller)

    def pending(self, reply: PendingReply, respond: Callable[[Callable[[], Any]], Iterable[bytes]]) -> Iterable[bytes]:
        """The response to a call that waits: what `respond` makes of the function that returns its result, or raises its error."""
        return PendingBody(reply, respond, self._connection, self._limits, self._caller, self._budget)

    def respond_with(self, response: WSGIApplication) -> Iterable[bytes]:
        """The response of another WSGI application, such as one of Werkzeug's."""
        return response(self.environ, self._start_response)


def address_of(request: Request) -> str:
    """The address of the app that a request was sent to: a URL with a slash at its end.

    Raises:
        InvalidRequestError: the request names no host, or one that is not served here.
    """
    try:
        if host := request.host:
            address = _address(request.scheme, host, request.root_path)
            if len(address) <= _MAX_ADDRESS_LENGTH:
                return address
            raise InvalidRequestError(f"the address of this app must have at most {_MAX_ADDRESS_LENGTH} characters")
    except SecurityError:
        raise InvalidRequestError("this host is not served here") from None
    except UnicodeError:
        pass  # such a name cannot be looked up
    raise InvalidRequestError("the request names no host that a URL could be made of")


@lru_cache(64)
def _address(scheme: str, host: str, root_path: str) -> str:
    # Cached: Werkzeug takes longer for it than for all other work on a request for the card.
    return iri_to_uri(get_current_url(scheme, host, root_path))


def _path(environ: WSGIEnvironment) -> str:
    """WSGI decodes paths, so that ``a%2Fb`` and ``a/b`` are the same; most servers show what was sent as well."""
    decoded: bytes = environ.get("PATH_INFO", "").encode("latin-1")
    sent = str(environ.get("REQUEST_URI") or environ.get("RAW_URI") or "")
    if not sent.startswith("/"):
        sent = _ORIGIN.sub("", sent) if "://" in sent else ""
    raw = sent.partition("?")[0].encode("latin-1", "replace")
    whole = unquote_to_bytes(raw)
    if not decoded.startswith(b"/") or not whole.endswith(decoded):
        # One of the two was rewritten on the way.
        return quote(decoded, safe=_SAFE_IN_PATH.replace("%", ""))
    at = before = 0
    while before < len(whole) - len(decoded):
        at += 3 if raw[at : at + 1] == b"%" and len(unquote_to_bytes(raw[at : at + 3])) == 1 else 1
        before += 1
    return quote(raw[at:], safe=_SAFE_IN_PATH)


def internal_error() -> InternalError:
    """The `incident` of a request that failed outside its call. Call it while handling the exception."""
    return incident(logger, "request failed", {"method": ""})
