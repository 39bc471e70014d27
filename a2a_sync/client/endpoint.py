"""What the endpoints over HTTP have in common: one call is one request, whose answer is a result or a stream.

A binding adds how a request is written and how an answer is read. Codecs and the HTTP transport have their own rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from a2a_sync.bindings.headers import VERSION, extension_headers
from a2a_sync.bindings.sse import BlockSource, CutStream, EventReader, MalformedStream
from a2a_sync.client.credentials import checked_header, display, may_know
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.http import HttpAnswer, HttpTransport, Where
from a2a_sync.client.stream import OneEvent
from a2a_sync.codec import Codec, DecodeError
from a2a_sync.errors import AgentError, MalformedResponseError, StreamInterruptedError
from a2a_sync.operations import IDEMPOTENCY_KEY, Call, StreamItem
from a2a_sync.telemetry import tracing
from a2a_sync.types import Message, Task


class HttpRequest(NamedTuple):
    """A request, but for what surrounds the call."""

    verb: str
    url: str
    body: bytes | None

    def __repr__(self) -> str:
        return f"HttpRequest({self.verb!r}, {display(self.url)!r})"


class WireEndpoint:
    """Calls the agent at `url` in the version of `codec`. Safe from many threads.

    Raises (from a call, and from the streams it returns):
        AgentError: the agent's own error.
        TransportError: no usable answer came back.
        ValueError: JSON cannot say the request.
    """

    #: The media type of what is sent, and those that are understood.
    media_type = "application/json"
    accepts = "application/json"
    #: Reads results that have to be trusted; raises where they may not be, gives None for all others.
    vet: Callable[[Call, Any], Any] | None = None

    def __init__(self, http: HttpTransport, url: str, codec: Codec) -> None:
        self._http = http
        self._url = url
        self._agent = display(url)
        self._trusted = may_know(http.home, url)
        self._codec = codec

    # -- what a binding says --

    def _request(self, call: Call) -> HttpRequest:
        raise NotImplementedError

    def _read_answer(self, body: bytes, status: int) -> Any:
        """The JSON of a result; raises the agent's error, or `DecodeError`."""
        raise NotImplementedError

    def _read_event(self, data: str, name: str) -> Any:
        """The JSON of one element of a stream; raises as `_read_answer`."""
        raise NotImplementedError

    # -- calls --

    def __call__(self, call: Call) -> Any:
        operation = call.operation
        where = Where("stream" if operation.streaming else "send", self._agent, call.task_id)
        deadlines = Deadline.after(call.context.timeout), Deadline.after(call.context.opening)
        answer = self._ask(call, where, *deadlines)
        if call.context.answer_headers is not None:
            call.context.answer_headers.update({name.lower(): text for name, text in answer.headers.items()})
        if operation.streaming and answer.ok and answer.content_type == "text/event-stream":
            return WireEventStream(answer, self._codec, self._read_event)
        value = self._result(answer, answer.read())
        vet = self.vet
        result = _load(lambda: vet(call, value), where) if vet is not None else None
        if result is None:
            result = _load(lambda: self._codec.load_result(operation, value), where)
        return OneEvent(result) if operation.streaming else result

    def _ask(self, call: Call, where: Where, deadline: Deadline, opening: Deadline) -> HttpAnswer:
        return self._open(self._request(call), call, where, deadline, opening)

    def _open(
        self, request: HttpRequest, call: Call, where: Where, deadline: Deadline, opening: Deadline
    ) -> HttpAnswer:
        headers = self._headers(call, request)
        return self._http.open(
            request.verb,
            request.url,
            body=request.body,
            headers=headers,
            where=where,
            deadline=deadline,
            opening=opening,
        )

    def _headers(self, call: Call, request: HttpRequest) -> dict[str, str]:
        context = call.context
        headers = {
            **tracing.outgoing(),
            **self._given(context.headers),
            VERSION: self._codec.version,
            "Accept": self.accepts,
        }
        if request.body is not None:
            headers["Content-Type"] = self.media_type
        if call.operation.streaming:
            headers["Accept"] = f"text/event-stream, {self.accepts}"
            headers["Accept-Encoding"] = "identity"  # a compressed stream waits in buffers on its way
        if context.extensions:
            headers.update(dict.fromkeys(extension_headers(self._codec.version), ", ".join(context.extensions)))
        if context.last_event_id is not None:
            headers["Last-Event-ID"] = str(context.last_event_id)
        return headers

    def _given(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a call, which may be secret: another origin than the user's gets none but the protocol's own."""
        for name, value in headers.items():
            checked_header(name, value)
        return headers if self._trusted else {name: headers[name] for name in (IDEMPOTENCY_KEY,) if name in headers}

    def _result(self, answer: HttpAnswer, body: bytes) -> Any:
        """The result in an answer: its body tells, whatever the HTTP status (servers disagree on it, spec 9.5)."""
        try:
            result = self._read_answer(body, answer.status)
        except AgentError as error:
            if error.retry_after is None:
                error.retry_after = answer.retry_after
            error.challenges = answer.challenges
            raise
        except DecodeError as error:
            if not answer.ok:
                raise answer.status_error(body) from None
            kind = answer.content_type or "without a Content-Type"
            raise MalformedResponseError(f"{error} (HTTP {answer.status}, {kind})", **answer.where.marks()) from None
        if not answer.ok:
            raise answer.status_error(body)
        return result


def _load(load: Any, where: Where) -> Any:
    try:
        return load()
    except DecodeError as error:
        raise MalformedResponseError(f"the answer is not valid: {error}", **where.marks()) from None


class WireEventStream:
    """The events of one streaming answer. Iterate on one thread; close from any. `read` gives the JSON in an event."""

    def __init__(self, answer: HttpAnswer, codec: Codec, read: Callable[[str, str], Any]) -> None:
        self._answer = answer
        self._codec = codec
        self._read = read

    def __iter__(self) -> Iterator[StreamItem]:
        try:
            for data, own_id, name in EventReader(BlockSource(self._answer.read_some)):
                if not data:
                    continue
                value = self._value(data, name)
                event = self._event(value)
                yield StreamItem(event, _number(own_id), last=self._codec.ends_stream(value), size=len(data))
        except MalformedStream as error:
            raise MalformedResponseError(str(error), **self._answer.where.marks()) from None
        except CutStream as error:
            if not self._answer.closed:
                raise StreamInterruptedError(str(error), **self._answer.where.marks()) from None
        finally:
            self._answer.close()

    def _value(self, data: str, name: str) -> Any:
        """What one event carries; an error that the agent sent in the middle of the stream is raised."""
        return _load(lambda: self._read(data, name), self._answer.where)

    def _event(self, value: Any) -> Any:
        where = self._answer.where
        event = _load(lambda: self._codec.load_event(value), where)
        if isinstance(event, Task):
            where.task_id = event.id
        elif not isinstance(event, Message):
            where.task_id = event.task_id or where.task_id
        return event

    def close(self) -> None:
        """Hang up, at once, also while another thread waits for an event. The task goes on."""
        self._answer.close()


def _number(own_id: str | None) -> int | None:
    """An event's number; servers that count differently (or not) send ids that are none."""
    return int(own_id) if own_id and own_id.isascii() and own_id.isdigit() and len(own_id) < 19 else None
