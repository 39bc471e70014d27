"""One HTTP request and its answer, as every binding needs them: body, version, surroundings in; bytes or a stream out.

It knows ``environ``, limits and content types. Which operation is asked for, and in which codec, is the binding's business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request

from a2a_sync.bindings.headers import VERSION, named_extensions
from a2a_sync.bindings.jsonrpc import EventEnvelope
from a2a_sync.bindings.sse import frame
from a2a_sync.codec import Codec
from a2a_sync.connection import Connection
from a2a_sync.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    JSONParseError,
    OverloadedError,
    RequestTooLargeError,
)
from a2a_sync.events import PolledStream
from a2a_sync.limits import Limits
from a2a_sync.logs import get_logger
from a2a_sync.operations import Call, CallContext, Principal
from a2a_sync.streaming import HEADERS as STREAM_HEADERS
from a2a_sync.streaming import EventStreamBody
from a2a_sync.types import new_id

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

logger = get_logger(__name__)

_STATUS = {200: "200 OK", 413: "413 Content Too Large", 429: "429 Too Many Requests"}


class Exchange:
    """A request that was not read yet and the way to answer it. Used on the server's request thread.

    `streams` holds a place for each stream that may be open at once.
    """

    def __init__(
        self,
        request: Request,
        start_response: StartResponse,
        connection: Connection,
        limits: Limits,
        streams: threading.BoundedSemaphore,
    ) -> None:
        self._request = request
        self._start_response = start_response
        self._connection = connection
        self._limits = limits
        self._streams = streams

    # -- the request --

    def body(self) -> bytes:
        """The body; what is not JSON by its own account, or too large, is not read.

        Raises:
            ContentTypeNotSupportedError, RequestTooLargeError: so.
            JSONParseError: it broke off or stalled.
        """
        content_type = self._request.mimetype
        if content_type and content_type != "application/json" and not content_type.endswith("+json"):
            raise ContentTypeNotSupportedError(f"Content-Type {content_type} is not JSON; send application/json")
        most, length = self._limits.body, self._request.content_length
        if (length or 0) > most:
            raise RequestTooLargeError(f"the body is larger than {most} bytes")
        self._connection.limit(self._limits.read_deadline)
        try:
            body = self._unframed(most + 1) if length is None else self._read(length)
        except Exception as error:
            # Servers have errors of their own for malformed chunks, silence and clients that leave half-way.
            logger.info("a body could not be read: %r", error)
            raise JSONParseError("Invalid JSON: the body ended early, stalled or was not framed as announced") from None
        finally:
            self._connection.restore()
        if len(body) > most:
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
        """The caller takes event streams, and no JSON beside them."""
        accepted = self._request.headers.get("Accept", "").lower()
        return "text/event-stream" in accepted and "json" not in accepted

    def context(self, version: str) -> CallContext:
        """What surrounds a call that is made in `version`."""
        headers = {
            key[5:].replace("_", "-").lower(): value
            for key, value in self._request.environ.items()
            if key.startswith("HTTP_")
        }
        last = headers.get("last-event-id", "")
        return CallContext(
            headers=headers,
            principal=_principal(self._request.environ.get("a2a_sync.principal")),
            extensions=named_extensions(headers, version),
            version=version,
            last_event_id=int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None,
            gone=self._connection.gone,
        )

    # -- the answer --

    def answer(self, status: int, body: bytes, error: A2AError | None = None) -> Iterable[bytes]:
        """A whole answer; `error` is what it tells, if it tells one."""
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if error is not None and error.retry_after:
            headers.append(("Retry-After", str(max(1, round(error.retry_after)))))
        self._start_response(_STATUS.get(status, f"{status} Error"), headers)
        return [body]

    def event(self, data: bytes) -> Iterable[bytes]:
        """An answer that is a stream of one event, which stands for nothing in a task's log."""
        body = frame(data)
        self._start_response("200 OK", [*STREAM_HEADERS, ("Content-Length", str(len(body)))])
        return [body]

    def stream(self, begin: Callable[[], PolledStream], envelope: EventEnvelope, codec: Codec) -> Iterable[bytes]:
        """The answer to a streaming operation. `begin` makes the stream; what it raises passes through, unanswered.

        Raises:
            OverloadedError: as many streams are open as may be.
        """
        if not self._streams.acquire(blocking=False):
            raise OverloadedError("as many streams are open as may be; try again later", retry_after=1.0)
        try:
            stream = begin()
        except BaseException:
            self._streams.release()
            raise
        self._start_response("200 OK", list(STREAM_HEADERS))
        return EventStreamBody(stream, envelope, codec, self._connection, self._limits, self._streams.release)


def _principal(said: Principal | str | None) -> Principal | None:
    """Who the host of this app says is calling (see `hosts`)."""
    if isinstance(said, str):
        return Principal(id=said) if said else None
    return said


def internal_error(call: Call | None = None) -> InternalError:
    """An error that says nothing but an id; the log says the rest under it. Call it while handling the exception."""
    incident = new_id()[-8:]
    logger.exception("request failed (id %s)", incident, extra={"method": call.operation.name if call else ""})
    return InternalError(f"internal error (id {incident})")
