"""The protocol on the wire: requests are written and responses parsed here, independently of the library under test."""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from tests.wsgi import OpenAnswer

#: The limit of every wait, in seconds.
TIMEOUT = 60.0


class Name(NamedTuple):
    """The names of an operation: JSON-RPC methods of 1.0 and 0.3, verb and path (of 1.0; those of 0.3 are below /v1)."""

    method: str
    old: str
    verb: str
    path: str


NAMES = (
    Name("SendMessage", "message/send", "POST", "/message:send"),
    Name("SendStreamingMessage", "message/stream", "POST", "/message:stream"),
    Name("GetTask", "tasks/get", "GET", "/tasks/{id}"),
    Name("ListTasks", "", "GET", "/tasks"),
    Name("CancelTask", "tasks/cancel", "POST", "/tasks/{id}:cancel"),
    Name("SubscribeToTask", "tasks/resubscribe", "POST", "/tasks/{id}:subscribe"),
    Name(
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        "POST",
        "/tasks/{taskId}/pushNotificationConfigs",
    ),
    Name(
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
        "GET",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
    ),
    Name(
        "ListTaskPushNotificationConfigs",
        "tasks/pushNotificationConfig/list",
        "GET",
        "/tasks/{taskId}/pushNotificationConfigs",
    ),
    Name(
        "DeleteTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/delete",
        "DELETE",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
    ),
    Name("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "GET", "/extendedAgentCard"),
)
OPERATIONS = {name.method: name for name in NAMES}


class Refusal(NamedTuple):
    """An error of the protocol: JSON-RPC code, HTTP status, status name over HTTP+JSON, and reason."""

    code: int
    http: int
    status: str
    reason: str


#: The specification's table of errors; the reason is empty if the table has none.
REFUSALS = {
    "TaskNotFound": Refusal(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    "TaskNotCancelable": Refusal(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    "PushNotificationNotSupported": Refusal(-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperation": Refusal(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupported": Refusal(-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponse": Refusal(-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "ExtendedCardNotConfigured": Refusal(-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "ExtensionSupportRequired": Refusal(-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    "VersionNotSupported": Refusal(-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    "InvalidParams": Refusal(-32602, 400, "INVALID_ARGUMENT", ""),
    "InternalError": Refusal(-32603, 500, "INTERNAL", ""),
}
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class Site(Protocol):
    """An agent's address: sends an HTTP request and returns the response when its head has arrived."""

    def open(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> OpenAnswer:
        """Send a request. `path` begins with a slash and may have a query."""
        ...


@dataclass(frozen=True)
class Request:
    """A request before it is sent."""

    verb: str
    path: str
    body: bytes
    headers: dict[str, str]


def request(
    operation: str,
    params: Mapping[str, Any] | None,
    *,
    rest: bool,
    version: str,
    id: Any = "c-1",
    headers: Mapping[str, str | None] | None = None,
) -> Request:
    """A request of an operation. `headers` override the defaults; None removes one."""
    usual: dict[str, str | None] = {"Content-Type": "application/json", "A2A-Version": version, **(headers or {})}
    name = OPERATIONS[operation]
    if not rest:
        call: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": name.method if version == "1.0" else name.old}
        body = json.dumps(call if params is None else {**call, "params": params}).encode()
        return Request("POST", "/", body, _given(usual))
    left = dict(params or {})
    prefix = "/v1" if version == "0.3" else ""
    path = prefix + re.sub(r"\{(\w+)\}", lambda found: quote(str(left.pop(found[1])), safe=""), name.path)
    if version == "0.3" and operation == "GetExtendedAgentCard":
        path = "/v1/card"
    if name.verb == "POST":
        return Request("POST", path, json.dumps(left).encode(), _given(usual))
    query = urlencode({key: json.dumps(value) if isinstance(value, bool) else value for key, value in left.items()})
    return Request(name.verb, f"{path}?{query}" if query else path, b"", _given({**usual, "Content-Type": None}))


def _given(headers: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if value is not None}


@dataclass(frozen=True, repr=False)
class Reply:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    rest: bool

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip()

    @cached_property
    def json(self) -> Any:
        """The JSON of the body; None for an empty body."""
        assert self.body, f"an answer of status {self.status} without a body"
        if self.media_type == "text/event-stream":
            # Some servers of 0.3 send errors as a stream of one event.
            return json.loads("".join(re.findall(r"^data: ?(.*)$", self.body.decode(), re.MULTILINE)))
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:600]!r}"

    @property
    def result(self) -> Any:
        """The result in a successful response."""
        if self.rest:
            assert self.status in (200, 201, 204), self
            return self.json if self.body else None
        assert self.status == 200, self
        assert "result" in self.json, self
        assert "error" not in self.json, self
        return self.json["result"]

    @property
    def error(self) -> dict[str, Any]:
        """The error in a response, in the form of its binding."""
        assert "error" in self.json, self
        assert "result" not in self.json, self
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def details(self) -> list[dict[str, Any]]:
        """The typed details of an error."""
        details: list[dict[str, Any]] = self.error.get("details" if self.rest else "data") or []
        return details

    @property
    def info(self) -> dict[str, Any]:
        """The ErrorInfo among the details."""
        found = [detail for detail in self.details if detail.get("@type") == ERROR_INFO]
        assert len(found) == 1, self
        return found[0]

    def refuses(self, name: str) -> None:
        """Assert that this is the error `name` of the specification in the form of its binding."""
        wanted = REFUSALS[name]
        if self.rest:
            said = (self.status, self.error["code"], self.error["status"])
            assert said == (wanted.http, wanted.http, wanted.status), self
        else:
            assert (self.status, self.error["code"]) == (200, wanted.code), self
        if wanted.reason:
            assert self.info["reason"] == wanted.reason, self


@dataclass(frozen=True)
class Frame:
    """A server-sent event: its fields in order."""

    fields: tuple[tuple[str, str], ...]

    def values(self, name: str) -> list[str]:
        return [value for field_name, value in self.fields if field_name == name]

    @property
    def json(self) -> Any:
        """The JSON of the data."""
        return json.loads("\n".join(self.values("data")))


@dataclass
class Events:
    """A stream that is read event by event; the caller closes it. Comments are skipped; they wake the reader, so that its time limit holds."""

    answer: OpenAnswer
    rest: bool
    raw: bytes = b""
    _left: str = ""
    _decoder: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")())

    def frames(self) -> Iterator[Frame]:
        """The events up to the end; fails if none arrives within `TIMEOUT` seconds."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            piece = self.answer.chunk()
            if not piece:
                assert not self._left.strip(), f"the stream ends within an event: {self._left!r}"
                return
            self.raw += piece
            self._left += self._decoder.decode(piece)
            *blocks, self._left = re.split(r"\r\n\r\n|\n\n", self._left)
            for block in blocks:
                frame = _frame(block)
                if frame is not None:
                    yield frame
                    deadline = time.monotonic() + TIMEOUT
            assert time.monotonic() < deadline, f"no event within {TIMEOUT} seconds"

    def results(self) -> Iterator[Any]:
        """The content of the events without the envelope of JSON-RPC."""
        for frame in self.frames():
            value = frame.json
            assert "error" not in value, value
            yield value if self.rest else value["result"]

    def all(self) -> list[Any]:
        """The remaining events to the end; then the stream is closed."""
        with self:
            return list(self.results())

    def close(self) -> None:
        self.answer.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _frame(block: str) -> Frame | None:
    """The event in a block, or None if it has only comments."""
    fields = []
    for line in block.replace("\r\n", "\n").removeprefix("\ufeff").split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields.append((name, value.removeprefix(" ")))
    return Frame(tuple(fields)) if any(name == "data" for name, _ in fields) else None
