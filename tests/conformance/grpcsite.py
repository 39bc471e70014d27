"""An agent over gRPC as a site, so that the checks of JSON-RPC reach it too.

A request of JSON-RPC becomes a call, and its messages or its status become the answer. ProtoJSON of protobuf's own library converts
the messages. What is no request of an operation is sent to the HTTP site of the same agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc import error_details_pb2, status_pb2
from werkzeug.datastructures import Headers

from a2a_sync.bindings import protobuf
from tests.conformance.wire import REFUSALS, TIMEOUT, Site
from tests.wsgi import OpenAnswer

STREAMS = ("SendStreamingMessage", "SubscribeToTask")
#: Headers of HTTP that are no metadata.
_NOT_SENT = {"content-type", "content-length", "accept", "host"}


#: The required members of a page of tasks.
_EMPTY = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}


class GrpcSite:
    """The agent at `address` (``host:port``); `http` is its site of HTTP."""

    def __init__(self, address: str, http: Site) -> None:
        self.channel = grpc.insecure_channel(address)
        self._http = http

    def open(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> OpenAnswer:
        if (method, path) != ("POST", "/"):
            return self._http.open(method, path, body, headers)
        call = json.loads(body)
        metadata = {name.lower(): value for name, value in (headers or {}).items() if name.lower() not in _NOT_SENT}
        return self._answer(call, tuple(metadata.items()))

    def _answer(self, call: dict[str, Any], metadata: tuple[tuple[str, str], ...]) -> OpenAnswer:
        row = protobuf.methods("1.0")[call["method"]]
        data = ParseDict(call.get("params") or {}, row.request()).SerializeToString()
        envelope = {"jsonrpc": "2.0", "id": call["id"]}
        try:
            if call["method"] in STREAMS:
                messages = self.channel.unary_stream(row.path)(data, metadata=metadata, timeout=TIMEOUT)
                # An error in place of a stream comes before the first message.
                first = next(messages, None)
                known = messages.initial_metadata()
                return _answer(known, "text/event-stream", _events(envelope, row.response, first, messages), messages)
            answer, sent = self.channel.unary_unary(row.path).with_call(data, metadata=metadata, timeout=TIMEOUT)
            result = _shown(row.response, answer)
            return _answer(sent.initial_metadata(), "application/json", _one({**envelope, "result": result}))
        except grpc.RpcError as error:
            return _answer((), "application/json", _one({**envelope, "error": error_of(error)}))

    def call(
        self, operation: str, request: Any = b"", *, version: str = "1.0", metadata: Mapping[str, str] | None = None
    ) -> Outcome:
        """Call the method of an operation with a message, as bytes or ProtoJSON, and read its whole answer."""
        row = protobuf.methods(version)[operation]
        data = request if isinstance(request, bytes) else ParseDict(request, row.request()).SerializeToString()
        sent = tuple((metadata or {}).items())
        messages = self.channel.unary_stream(row.path)(data, metadata=sent, timeout=TIMEOUT)
        answers: list[Any] = []
        try:
            # A method with one answer has the same frames as a stream of one message.
            answers.extend(row.response.FromString(one) for one in messages)
        except grpc.RpcError:
            pass  # the outcome has the code
        return Outcome(messages, answers)

    def close(self) -> None:
        self.channel.close()


class Outcome:
    """What came of a call: its messages, its code and its status."""

    def __init__(self, call: Any, messages: list[Any]) -> None:
        self.messages = messages
        self.code: str = call.code().name
        self.text: str = call.details() or ""
        self.headers = dict(call.initial_metadata())
        trailing = dict(call.trailing_metadata())
        data = trailing.get(protobuf.STATUS_DETAILS)
        self.status = None if data is None else status_pb2.Status.FromString(data)

    @property
    def message(self) -> Any:
        """The only message of a call that has succeeded."""
        assert self.code == "OK", (self.code, self.text)
        (message,) = self.messages
        return message

    @property
    def info(self) -> Any:
        """The ErrorInfo of a call that has failed."""
        assert self.status is not None, (self.code, self.text)
        (info,) = [one for one in self.details if isinstance(one, error_details_pb2.ErrorInfo)]
        return info

    @property
    def details(self) -> list[Any]:
        """The details of the status, as messages of google.rpc."""
        found = []
        for detail in self.status.details if self.status else ():
            name = detail.type_url.rpartition(".")[2]
            message = getattr(error_details_pb2, name)()
            assert detail.Unpack(message)
            found.append(message)
        return found


def error_of(error: Any) -> dict[str, Any]:
    """The error of a failed call in the form of JSON-RPC, if its code, reason and status belong together in the specification."""
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing[protobuf.STATUS_DETAILS])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    details = [MessageToDict(detail) for detail in status.details]
    reasons = {detail["reason"] for detail in details if "reason" in detail}
    codes = [
        one.code
        for one in REFUSALS.values()
        if one.status == error.code().name and (not one.reason or one.reason in reasons)
    ]
    return {"code": codes[0] if codes else 0, "message": status.message, "data": details}


def _answer(metadata: Any, media_type: str, chunks: Iterator[bytes], messages: Any = None) -> OpenAnswer:
    headers = Headers([(name, value) for name, value in metadata if isinstance(value, str)])
    headers["Content-Type"] = media_type
    return OpenAnswer(200, headers, chunks, _Cancelling(messages))


def _one(value: Any) -> Iterator[bytes]:
    yield json.dumps(value).encode()


def _events(envelope: dict[str, Any], kind: Any, first: bytes | None, messages: Any) -> Iterator[bytes]:
    data = first
    try:
        while data is not None:
            event = {**envelope, "result": _shown(kind, data)}
            yield f"data: {json.dumps(event)}\n\n".encode()
            data = next(messages, None)
    except grpc.RpcError as error:
        event = {**envelope, "error": error_of(error)}
        yield f"data: {json.dumps(event)}\n\n".encode()


def _shown(kind: Any, data: bytes) -> Any:
    value = MessageToDict(kind.FromString(data))
    # Members that the proto requires; protobuf has no difference between absent and empty ones.
    return {**_EMPTY, **value} if kind.DESCRIPTOR.name == "ListTasksResponse" else value


class _Cancelling:
    """Cancels a call when the answer is closed."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def __iter__(self) -> Iterator[bytes]:
        raise TypeError("read the answer")

    def close(self) -> None:
        if self._messages is not None:
            self._messages.cancel()
