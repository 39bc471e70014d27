"""Endpoints over HTTP: one call is one request, whose response is a result or a stream.

`WireEndpoint` is the base of the endpoints of all bindings, which write requests and read responses. `FailoverEndpoint` calls
the next address of an agent when one cannot be connected to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from a2a_sync import urls
from a2a_sync.bindings.headers import VERSION, extension_headers
from a2a_sync.bindings.sse import BlockSource, CutStream, EventReader, MalformedStream
from a2a_sync.client.credentials import check_header
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.http import HttpResponse, HttpTransport
from a2a_sync.client.request import ErrorContext, Frame, OutgoingRequest, masked_headers
from a2a_sync.client.stream import single_event_stream
from a2a_sync.codec import Codec, DecodeError
from a2a_sync.errors import (
    AgentError,
    ConnectError,
    MalformedResponseError,
    StreamInterruptedError,
    TransportError,
    TransportTimeoutError,
)
from a2a_sync.operations import IDEMPOTENCY_KEY, AnyCall, Call, Endpoint, RequestT, ResultT, StreamItem
from a2a_sync.telemetry import tracing
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, StreamResponse, Task

logger: Final = get_logger(__name__)


class HttpRequest(NamedTuple):
    """The part of an HTTP request that a binding writes."""

    verb: str
    url: str
    body: bytes | None

    def __repr__(self) -> str:
        return f"HttpRequest({self.verb!r}, {urls.parse(self.url).without_query!r})"


class WireEndpoint:
    """Calls the agent at `url` in the version of `codec`. Safe from many threads.

    Raises (from a call, and from the streams it returns):
        AgentError: the error of the agent.
        TransportError: no usable response arrived.
        ValueError: the request cannot be written as JSON.
    """

    #: The media type of requests, and those accepted in responses.
    media_type = "application/json"
    accepts = "application/json"
    #: Returns the results that must be verified, after verifying them, and None for all others.
    verify_result: Callable[[AnyCall, Any], Any] | None = None

    def __init__(self, http: HttpTransport, url: str, codec: Codec) -> None:
        self._http = http
        self._url = url
        self._agent = urls.parse(url).without_query
        self._trusted = urls.may_send_credentials(http.home, url)
        self._codec = codec

    # -- of a binding --

    def _write_request(self, call: AnyCall) -> HttpRequest:
        raise NotImplementedError

    def _read_answer(self, body: bytes, status: int) -> Any:
        """The JSON of a result; raises the agent's error, or `DecodeError`."""
        raise NotImplementedError

    def _read_event(self, data: str, name: str) -> Any:
        """The JSON of one element of a stream; raises as `_read_answer`."""
        raise NotImplementedError

    # -- calls --

    def __call__(self, call: Call[Any, Any]) -> Any:
        operation = call.operation
        error_context = ErrorContext("stream" if operation.streaming else "send", self._agent, call.task_id)
        deadlines = Deadline.after(call.context.timeout), Deadline.after(call.context.opening)
        response = self._send(call, error_context, *deadlines)
        if call.context.answer_headers is not None:
            call.context.answer_headers.update({name.lower(): text for name, text in response.headers.items()})
        if operation.streaming and response.ok and response.content_type == "text/event-stream":
            return WireEventStream(response, self._codec, self._read_event, self._trace_events)
        body = response.read()
        if self._http.trace is not None:
            self._http.trace(Frame(False, "", self._url, {}, body, response.status))
        result = self._load_result(call, self._result(response, body), error_context)
        return single_event_stream(result) if operation.streaming else result

    def _load_result(self, call: AnyCall, value: Any, error_context: ErrorContext) -> Any:
        try:
            verified = None if self.verify_result is None else self.verify_result(call, value)
            return self._codec.load_result(call.operation, value) if verified is None else verified
        except DecodeError as error:
            raise _malformed(error, error_context) from None

    def _send(self, call: AnyCall, error_context: ErrorContext, deadline: Deadline, opening: Deadline) -> HttpResponse:
        return self._open(self._write_request(call), call, error_context, deadline, opening)

    def _open(
        self, request: HttpRequest, call: AnyCall, error_context: ErrorContext, deadline: Deadline, opening: Deadline
    ) -> HttpResponse:
        headers = self._headers(call, request)
        if self._http.trace is not None:
            self._http.trace(Frame(True, request.verb, request.url, masked_headers(headers), request.body or b""))
        return self._http.open(
            OutgoingRequest(request.verb, request.url, headers, error_context, deadline, opening, request.body)
        )

    def _trace_events(self, data: str) -> None:
        if self._http.trace is not None:
            self._http.trace(Frame(False, "", self._url, {}, data.encode()))

    def _headers(self, call: AnyCall, request: HttpRequest) -> dict[str, str]:
        headers = {**self._context_headers(call), "Accept": self.accepts}
        if request.body is not None:
            headers["Content-Type"] = self.media_type
        if call.operation.streaming:
            headers["Accept"] = f"text/event-stream, {self.accepts}"
            headers["Accept-Encoding"] = "identity"  # proxies and libraries buffer compressed streams
        return headers

    def _context_headers(self, call: AnyCall) -> dict[str, str]:
        """What every transport sends of the context of a call."""
        context = call.context
        headers = {**tracing.outgoing(), **self._call_headers(context.headers), VERSION: self._codec.version}
        if context.extensions:
            headers.update(dict.fromkeys(extension_headers(self._codec.version), ", ".join(context.extensions)))
        if context.last_event_id is not None:
            headers["Last-Event-ID"] = str(context.last_event_id)
        return headers

    def _call_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a call. They may be secret, so another origin than the user's gets the idempotency key only."""
        for name, value in headers.items():
            check_header(name, value)
        return headers if self._trusted else {name: headers[name] for name in (IDEMPOTENCY_KEY,) if name in headers}

    def _result(self, response: HttpResponse, body: bytes) -> Any:
        """The JSON of the result in `body`. The body decides, not the HTTP status, on which servers differ (spec 9.5)."""
        try:
            result = self._read_answer(body, response.status)
        except AgentError as error:
            if error.retry_after is None:
                error.retry_after = response.retry_after
            error.challenges = response.challenges
            raise
        except DecodeError as error:
            raise (_not_readable(response, error) if response.ok else response.status_error(body)) from None
        if not response.ok:
            raise response.status_error(body)
        return result


def _not_readable(response: HttpResponse, error: DecodeError) -> MalformedResponseError:
    kind = response.content_type or "without a Content-Type"
    return MalformedResponseError(f"{error} (HTTP {response.status}, {kind})", **response.error_context.fields())


def _malformed(error: DecodeError, error_context: ErrorContext) -> MalformedResponseError:
    return MalformedResponseError(f"the answer is not valid: {error}", **error_context.fields())


@dataclass(eq=False, repr=False)
class WireEventStream:
    """The events of one streaming response. Iterate on one thread; close from any.

    `read` returns the JSON of an event, and `trace` is called with the text of each.
    """

    _response: HttpResponse
    _codec: Codec
    _read: Callable[[str, str], Any]
    _trace: Callable[[str], None]

    def __iter__(self) -> Iterator[StreamItem]:
        try:
            for data, event_id, name in EventReader(BlockSource(self._response.read_some)):
                if data:
                    self._trace(data)
                    yield self._item(data, event_id, name)
        except DecodeError as error:
            raise _malformed(error, self._response.error_context) from None
        except MalformedStream as error:
            raise MalformedResponseError(str(error), **self._response.error_context.fields()) from None
        except CutStream as error:
            if not self._response.closed:
                raise StreamInterruptedError(str(error), **self._response.error_context.fields()) from None
        finally:
            self._response.close()

    def _item(self, data: str, event_id: str | None, name: str) -> StreamItem:
        # An error that the agent sends within the stream is raised.
        value = self._read(data, name)
        event = self._codec.load_event(value)
        note_task(event, self._response.error_context)
        return StreamItem(event, _event_number(event_id), last=self._codec.ends_stream(value), size=len(data))

    def close(self) -> None:
        """Close the connection at once, even while another thread waits for an event. The task continues."""
        self._response.close()


def note_task(event: StreamResponse, error_context: ErrorContext) -> None:
    """Remember the task of a stream for errors."""
    if isinstance(event, Task):
        error_context.task_id = event.id
    elif not isinstance(event, Message):
        error_context.task_id = event.task_id or error_context.task_id


def _event_number(event_id: str | None) -> int | None:
    """The number in an event id; None for the ids of servers that do not number their events."""
    return int(event_id) if event_id and event_id.isascii() and event_id.isdigit() and len(event_id) < 19 else None


class FailoverEndpoint:
    """Calls the first of `endpoints` that accepts a connection, and starts with it the next time (spec 5.2).

    Only requests that were not sent are sent elsewhere. `cards.fallback_interfaces` selects the addresses. Safe from many
    threads.

    Raises (from a call):
        TransportError: the failure of the first endpoint, if none accepts a connection.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._first = 0

    def __call__(self, call: Call[RequestT, ResultT]) -> ResultT:
        first: TransportError | None = None
        count, begin = len(self._endpoints), self._first
        deadline, opening = Deadline.after(call.context.timeout), Deadline.after(call.context.opening)
        for index in ((begin + step) % count for step in range(count)):
            try:
                result = self._endpoints[index](call)
            except (ConnectError, TransportTimeoutError) as error:
                if not isinstance(error, ConnectError) and error.phase != "connect":
                    raise
                logger.warning("%s cannot be reached: %s", error.agent, error.message)
                first = first or error
                call = replace(call, context=replace(call.context, timeout=deadline.left, opening=opening.left))
                continue
            self._first = index
            return result
        assert first is not None
        raise first
