"""The endpoint that speaks gRPC (spec 10). Needs the extra ``grpc``, and is imported with the first interface of that binding."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from a2a_sync import urls
from a2a_sync.bindings import protobuf
from a2a_sync.bindings.sse import MAX_EVENT_BYTES
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.endpoint import WireEndpoint, note_task
from a2a_sync.client.http import HttpTransport, deadline_exceeded
from a2a_sync.client.request import ErrorContext
from a2a_sync.codec import Codec, DecodeError
from a2a_sync.errors import (
    AgentError,
    ConnectError,
    InvalidRequestError,
    MalformedResponseError,
    RequestTooLargeError,
    StreamInterruptedError,
    TransportError,
    TransportTimeoutError,
    UnauthenticatedError,
    UnsafeURLError,
    UnsupportedOperationError,
)
from a2a_sync.jsontext import MAX_ANSWER_KEYS
from a2a_sync.operations import SEND_STREAMING_MESSAGE, AnyCall, StreamItem

#: Seconds for which the answer to a keepalive ping is awaited.
_KEEPALIVE_TIMEOUT = 10.0
_CHANNEL_OPTIONS = {
    "grpc.max_send_message_length": -1,
    # Channels share connections otherwise, also those of clients with other credentials.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_retries": 0,
    "grpc.enable_http_proxy": 0,
    "grpc.keepalive_timeout_ms": int(_KEEPALIVE_TIMEOUT * 1000),
    # Milliseconds between two attempts to connect; gRPC's own pauses grow to two minutes, in which every call fails.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
}
#: What gRPC says of a connection that was not made: the request was not sent.
_NOT_CONNECTED = (
    "failed to connect",
    "dns resolution failed",
    "errors resolving",
    "address lookup failed",
    "connections to all backends failing",
)
#: Among these, what it says of connections that were accepted and then cut, as a proxy cuts them whose server restarts.
_CUT_WHILE_CONNECTING = ("connection reset", "socket closed", "broken pipe", "end of file", "settings frame")
#: What it says of calls that the other side ended without a status of gRPC.
_RESET = "RST_STREAM"
_BROKEN_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
#: What gRPC says of a message beyond the limit, after ``CLIENT: `` where this process received it.
_TOO_LARGE = "Received message larger than max"
#: What it says of a compressed message beyond the limit. Requests of this library are not compressed.
_EXPANDED_TOO_LARGE = "Decompressed message larger than max"
_PORTS = {"http": 80, "https": 443}


class GrpcEndpoint(WireEndpoint):
    """See `WireEndpoint`. `url` is that of an interface, with the scheme ``http`` (not encrypted) or ``https``."""

    def __init__(self, http: HttpTransport, url: str, codec: Codec) -> None:
        super().__init__(http, url, codec)
        self._methods = protobuf.methods(codec.version)
        self._origin = urls.parse(url).origin

    def __call__(self, call: AnyCall) -> Any:
        operation = call.operation
        method = self._methods.get(operation.name)
        if method is None:
            raise UnsupportedOperationError(f"Protocol {self._codec.version} has no {operation.name} over gRPC")
        request = self._codec.dump_request(operation, call.request)
        outgoing = _Outgoing(
            call,
            method,
            protobuf.encode_request(operation.name, request, self._codec.version),
            ErrorContext("stream" if operation.streaming else "send", self._agent, call.task_id),
            Deadline.after(call.context.timeout),
        )
        send = self._open_stream if operation.streaming else self._call
        metadata = self._metadata(outgoing)
        try:
            return send(outgoing, metadata)
        except UnauthenticatedError:
            # A refused request had no effect: it may be sent again, once.
            if not (self._trusted and self._http.renew_credentials(metadata.get("authorization", ""))):
                raise
            return send(outgoing, self._metadata(outgoing))

    # -- calls --

    def _call(self, out: _Outgoing, metadata: Mapping[str, str]) -> Any:
        limit = min(out.deadline, out.opening, Deadline.after(self._http.timeout.read))
        failed: Exception
        try:
            data, sent = (
                self._channel(out)
                .unary_unary(out.method.path)
                .with_call(out.data, timeout=limit.left, metadata=_pairs(metadata))
            )
        except grpc.RpcError as error:
            failed = self._error(error, out.error_context, out.deadline)
        else:
            _note_headers(out.call, sent.initial_metadata())
            return self._parse_result(out, data)
        # Not chained: the errors of gRPC show metadata, which can hold secrets.
        raise failed

    def _parse_result(self, out: _Outgoing, data: bytes | None) -> Any:
        if data is None:
            raise _malformed("the call ended without a message", out.error_context)
        if len(data) > (limit_bytes := self._http.max_response_bytes):
            raise _malformed(f"it is larger than {limit_bytes} bytes (max_response_bytes)", out.error_context)
        try:
            message = protobuf.parse(data, out.method.response, max_keys=MAX_ANSWER_KEYS)
            value = protobuf.decode_result(out.call.operation.name, message, self._codec.version)
        except InvalidRequestError as error:
            raise _malformed(error.message, out.error_context) from None
        return self._load_result(out.call, value, out.error_context)

    def _open_stream(self, out: _Outgoing, metadata: Mapping[str, str]) -> GrpcEventStream:
        messages = self._channel(out).unary_stream(out.method.path)(
            out.data, timeout=out.deadline.left, metadata=((protobuf.EVENT_NUMBERS, "1"), *_pairs(metadata))
        )
        to_error = partial(self._error, error_context=out.error_context, deadline=out.deadline)
        stream = GrpcEventStream(messages, self._codec, self._http, out.error_context, to_error)
        # An error of the call, in place of a stream, comes before the first event.
        stream.read_first(min(out.opening, Deadline.after(self._http.timeout.read)))
        _note_headers(out.call, messages.initial_metadata())
        return stream

    def _metadata(self, out: _Outgoing) -> dict[str, str]:
        headers = dict(self._http.credentials(self._url, out.deadline)) if self._trusted else {}
        return {name.lower(): value for name, value in {**headers, **self._context_headers(out.call)}.items()}

    # -- the channel --

    def _channel(self, out: _Outgoing) -> Any:
        return self._http.channel(self._origin, partial(self._connect, out))

    def _connect(self, out: _Outgoing) -> Any:
        """A channel, which connects with its first call."""
        options = self._channel_options()
        target = self._check_addresses(options, out)
        if self._origin[0] == "http":
            return grpc.insecure_channel(target, tuple(options.items()))
        return grpc.secure_channel(target, self._tls(), tuple(options.items()))

    def _channel_options(self) -> dict[str, Any]:
        timeout = self._http.timeout
        options: dict[str, Any] = dict(_CHANNEL_OPTIONS)
        options["grpc.max_receive_message_length"] = max(self._http.max_response_bytes, MAX_EVENT_BYTES)
        if timeout.read is not None:
            options["grpc.keepalive_time_ms"] = int(timeout.read * 1000)
        if timeout.connect is not None:
            options["grpc.min_reconnect_backoff_ms"] = int(timeout.connect * 1000)
        return options

    def _check_addresses(self, options: dict[str, Any], out: _Outgoing) -> str:
        """The target of a channel. With a guard it lists addresses, and `options` get the name of the host."""
        scheme, host, port = self._origin
        try:
            checked = self._http.addresses(self._url, min(out.deadline, out.opening))
        except (UnsafeURLError, OSError) as error:
            raise ConnectError(f"could not connect: the host {error}", **out.error_context.fields("connect")) from None
        if checked is None:
            return f"dns:///{_with_port(host, port)}"
        options["grpc.default_authority"] = host if port == _PORTS[scheme] else _with_port(host, port)
        options["grpc.ssl_target_name_override"] = host
        # Connections are made to the addresses that were checked, whatever the name resolves to later.
        family = "ipv6" if len(checked[0]) == 4 else "ipv4"
        same = [address for address in checked if len(address) == len(checked[0])]
        return f"{family}:" + ",".join(_with_port(address[0], port) for address in same)

    def _tls(self) -> Any:
        verify, cert = self._http.verify, self._http.cert if self._trusted else None
        if verify is False:
            raise ValueError("verify=False: gRPC always verifies certificates; give the path of a CA file")
        bundle = verify if isinstance(verify, str) else os.environ.get("REQUESTS_CA_BUNDLE")
        roots = Path(bundle).read_bytes() if bundle else None
        if cert is None:
            return grpc.ssl_channel_credentials(roots)
        certificate, key = (cert, cert) if isinstance(cert, str) else cert
        return grpc.ssl_channel_credentials(roots, Path(key).read_bytes(), Path(certificate).read_bytes())

    # -- errors --

    def _error(self, error: Any, error_context: ErrorContext, deadline: Deadline) -> AgentError | TransportError:
        """The error for a failed call."""
        code, text = error.code(), error.details() or ""
        trailing = tuple(error.trailing_metadata() or ())
        status = dict(trailing).get(protobuf.STATUS_DETAILS)
        if status is None and (found := _error_of_grpc(code, text, error_context, deadline)) is not None:
            return found
        if code is grpc.StatusCode.UNAUTHENTICATED and not self._trusted and self._http.has_credentials:
            text += "; credentials were not sent, because the card names an address on another origin"
        refused = protobuf.decode_status(code.name, text, status, self._codec)
        refused.challenges = tuple(value for name, value in trailing if name == "www-authenticate")
        return refused


class _Outgoing:
    """A call as it is sent: its method, its bytes, the context of its errors, and its limits."""

    def __init__(
        self, call: AnyCall, method: protobuf.Method, data: bytes, error_context: ErrorContext, deadline: Deadline
    ) -> None:
        self.call = call
        self.method = method
        self.data = data
        self.error_context = error_context
        self.deadline = deadline
        self.opening = Deadline.after(call.context.opening)


@dataclass(eq=False, repr=False)
class GrpcEventStream:
    """The events of one streaming call. Iterate on one thread; close from any. `to_error` makes the error of a failed call."""

    messages: Any
    codec: Codec
    http: HttpTransport
    error_context: ErrorContext
    to_error: Callable[[Any], Exception]

    def __post_init__(self) -> None:
        self._first: bytes | None = None
        #: Seconds of silence after which the stream is broken; None where the server sends no heartbeats.
        self._silence: float | None = None
        self._closed = False

    def read_first(self, limit: Deadline) -> None:
        """Wait for the first message until `limit`.

        Raises:
            AgentError, TransportError: the call failed.
        """
        self._first = self._read(limit)
        if any(name == protobuf.EVENT_NUMBERS for name, _ in self.messages.initial_metadata()):
            self._silence = self.http.timeout.read

    def _read(self, limit: Deadline) -> bytes | None:
        """The next message; None at the end, and after `close`."""
        alarm = None if limit.left is None else self.http.alarms.set(limit.at, self.messages.cancel)
        failed: Exception
        try:
            message: bytes = next(self.messages)
            return message
        except StopIteration:
            return None
        except grpc.RpcError as error:
            if self._closed:
                return None
            if alarm is not None and alarm.fired:
                failed = TransportTimeoutError(
                    "the agent sent nothing within the read timeout", **self.error_context.fields()
                )
            else:
                failed = self.to_error(error)
        finally:
            if alarm is not None:
                self.http.alarms.cancel(alarm)
        raise failed

    def __iter__(self) -> Iterator[StreamItem]:
        try:
            data, self._first = self._first, None
            while data is not None:
                # A message without a member is a heartbeat.
                if data:
                    yield self._item(data)
                data = self._read(Deadline.after(self._silence))
        finally:
            self.close()

    def _item(self, data: bytes) -> StreamItem:
        name, version = SEND_STREAMING_MESSAGE.name, self.codec.version
        try:
            message = protobuf.parse(data, protobuf.methods(version)[name].response, max_keys=MAX_ANSWER_KEYS)
            value = protobuf.decode_result(name, message, version)
            event = self.codec.load_event(value)
        except (DecodeError, InvalidRequestError) as error:
            raise _malformed(str(error), self.error_context) from None
        note_task(event, self.error_context)
        last = self.codec.ends_stream(value)
        return StreamItem(event, protobuf.event_number(data), last=last, size=len(data))

    def close(self) -> None:
        """Cancel the call at once, even while another thread waits for an event. The task continues."""
        self._closed = True
        self.messages.cancel()


def _pairs(metadata: Mapping[str, str]) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of a call as gRPC takes it: the values of names that end in ``-bin`` are bytes."""
    return tuple((name, value.encode() if name.endswith("-bin") else value) for name, value in metadata.items())


def _note_headers(call: AnyCall, metadata: Any) -> None:
    if call.context.answer_headers is not None:
        call.context.answer_headers.update({name: value for name, value in metadata if isinstance(value, str)})


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _malformed(text: str, error_context: ErrorContext) -> MalformedResponseError:
    return MalformedResponseError(f"the answer is not valid: {text}", **error_context.fields())


def _error_of_grpc(
    code: Any, text: str, error_context: ErrorContext, deadline: Deadline
) -> AgentError | TransportError | None:
    """The error for a status that gRPC itself gives a call, here or in the server; None for one of the agent."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        if deadline.expired:
            return deadline_exceeded(error_context)
        return TransportTimeoutError("the agent sent nothing within the read timeout", **error_context.fields())
    if code in _BROKEN_CODES or _RESET in text:
        return _broken(text, error_context)
    if f"CLIENT: {_TOO_LARGE}" in text or _EXPANDED_TOO_LARGE in text:
        return _malformed(text, error_context)
    if _TOO_LARGE in text:
        return RequestTooLargeError(f"the agent accepts no request of this size: {text}")
    return None


def _broken(text: str, error_context: ErrorContext) -> TransportError:
    words = text.lower()
    if any(phrase in words for phrase in _NOT_CONNECTED) and not any(cut in words for cut in _CUT_WHILE_CONNECTING):
        return ConnectError(f"could not connect: {text}", **error_context.fields("connect"))
    if error_context.phase == "stream":
        return StreamInterruptedError(f"the stream broke: {text}", **error_context.fields())
    return TransportError(f"the connection broke: {text}", **error_context.fields())
