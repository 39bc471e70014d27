"""The tables of invalid input for HTTP+JSON: bodies, paths and queries.

0.3 has its own dialect and table here; bodies in the dialect of JSON-RPC are refused with the same errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from a2a_sync import errors as e
from tests.hostile import ARRAYS, OBJECTS, WORDS, Case, v03, v10

SENDS = {
    "SendMessage": "/message:send",
    "SendStreamingMessage": "/message:stream",
    "message/send": "/v1/message:send",
    "message/stream": "/v1/message:stream",
}
OLD = {"A2A-Version": "0.3"}
#: The HTTP+JSON errors by their JSON-RPC codes.
_BY_CODE = {
    cls.jsonrpc_code: cls
    for cls in (
        e.JSONParseError,
        e.InvalidParamsError,
        e.TaskNotFoundError,
        e.UnsupportedOperationError,
        e.ContentTypeNotSupportedError,
        e.VersionNotSupportedError,
        e.PushNotificationNotSupportedError,
    )
}


@dataclass(frozen=True)
class PathCase:
    """A request and the expected error. Words of `Target.words` in the body are replaced by values that only the server knows."""

    name: str
    verb: str
    path: str
    error: type[e.AgentError]
    names: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0

    @property
    def http_status(self) -> int:
        return self.status or self.error.http_status


def in_bodies(cases: Iterable[Case], send: str) -> Iterator[PathCase]:
    """The cases of JSON-RPC about a body or the params of a send; bodies that are not JSON are sent to `send`."""
    for case in cases:
        error = e.RequestTooLargeError if case.status == 413 else _BY_CODE.get(case.code)
        if error is None:
            continue
        path, body = send, case.body
        if error not in (e.JSONParseError, e.RequestTooLargeError):
            call = json.loads(case.body)
            if call.get("method") not in SENDS or not isinstance(call.get("params"), dict):
                continue
            path, body = SENDS[call["method"]], json.dumps(call["params"]).encode()
        if body.strip():  # an empty body is an empty request
            yield PathCase(f"body: {case.name}", "POST", path, error, case.names, body, case.headers)


def in_paths(prefix: str, headers: Mapping[str, str]) -> Iterator[PathCase]:
    ids = (
        "none",
        "a%2Fb",
        "%00",
        "%F0%9F%8D%95",
        "x" * 1500,
        "..%2F..%2Fetc",
        "'%20or%201=1",
        "a:b",
        ":cancel",
        "%25ff",
    )
    for id in ids:
        for verb, path in (
            ("GET", f"/tasks/{id}"),
            ("POST", f"/tasks/{id}:cancel"),
            ("GET", f"/tasks/{id}:subscribe"),
        ):
            error = e.InvalidParamsError if id == "%00" else e.TaskNotFoundError
            yield PathCase(f"{verb} {prefix}{path[:30]}", verb, prefix + path, error, headers=headers)
        if not prefix:
            error = e.InvalidParamsError if id == "%00" else e.TaskNotFoundError
            yield PathCase(f"tenant and id {id[:20]}", "GET", f"/{id}/tasks/{id}", error)
    for verb, path in (("PUT", "/tasks/x"), ("DELETE", "/tasks"), ("GET", "/message:send"), ("PATCH", "/tasks")):
        wrong, path = e.MethodNotFoundError, prefix + path
        yield PathCase(f"{verb} {path}", verb, path, wrong, "allowed", headers=headers, status=405)
    for path in ("/nothing", "/tasks/a/b", "/message", "/tasks/x/pushNotificationConfigs/a/b"):
        yield PathCase(prefix + path, "GET", prefix + path, e.MethodNotFoundError, "nothing", headers=headers)


def in_queries() -> Iterator[PathCase]:
    bad = {
        "pageSize": ("ten", "1.5", "0x1", "-1", "0", "101", "1e3", "9" * 3000, "%00", "1&pageSize=2", "1&page_size=1"),
        "historyLength": ("-1", "one", "null", "[]", "99999999999"),
        "status": ("busy", "TASK_STATE_", "99", "-1", "task_state_working", "%F0%9F%8D%95"),
        "includeArtifacts": ("yes", "1", "TRUE", "null"),
        "statusTimestampAfter": ("yesterday", "2025-13-01T00:00:00Z", "0", "2025-01-01T00:00:00"),
        "pageToken": ("x", "AAAA", "%00", "x" * 3000),
    }
    for name, values in bad.items():
        for value in values:
            yield PathCase(f"{name}={value[:20]}", "GET", f"/tasks?{name}={value}", e.InvalidParamsError, name)


def in_old_queries() -> Iterator[PathCase]:
    for value in ("-1", "one", "null", "[]", "99999999999", "1&history_length=1"):
        path = f"/v1/tasks/none?historyLength={value}"
        yield PathCase(f"0.3 historyLength={value}", "GET", path, e.InvalidParamsError, "historyLength", headers=OLD)


# -- the dialect of 0.3 -------------------------------------------------------------------------------------------------


def said(**members: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "echo hi"}], **members}}


def part(**members: Any) -> dict[str, Any]:
    return said(content=[{"text": "fine"}, members])


def configured(**members: Any) -> dict[str, Any]:
    return {**said(), "configuration": members}


def old_messages() -> Iterator[tuple[str, Any]]:
    """The member in the error, and the body of a send."""
    yield "message", {}
    for value in (*OBJECTS, ""):
        yield "message", {"message": value}
    for member in ("messageId", "role", "content"):
        yield f"message.{member}", said(**{member: None})
    for value in ("", *WORDS):
        yield "message.messageId", said(messageId=value)
    for value in ("", "user", "USER", "ROLE_SYSTEM", 0, 3, -1, True, 1.5, [], {}):
        yield "message.role", said(role=value)
    for value in ([], *ARRAYS):
        yield "message.content", said(content=value)
    for value in WORDS:
        yield "message.contextId", said(contextId=value)
        yield "message.taskId", said(taskId=value)
    for value in OBJECTS:
        yield "message.metadata", said(metadata=value)
        yield "metadata", {**said(), "metadata": value}
    for value in ARRAYS:
        yield "message.extensions", said(extensions=value)
    yield "message.contextId", said(taskId="ASKED", contextId="another")


def old_parts() -> Iterator[tuple[str, Any]]:
    one = "message.content[1]"
    for value in (None, "x", 5, [], {}, {"txt": "x"}, {"raw": "YQ=="}):
        yield one, said(content=[{"text": "fine"}, value])
    yield one, part(text="x", data={"data": {}})
    yield f"{one}.text", part(text=None)
    for value in WORDS:
        yield f"{one}.text", part(text=value)
        yield f"{one}.file.fileWithUri", part(file={"fileWithUri": value})
        yield f"{one}.file.fileWithBytes", part(file={"fileWithBytes": value})
        yield f"{one}.file.mimeType", part(file={"fileWithBytes": "YQ==", "mimeType": value})
        yield f"{one}.file.name", part(file={"fileWithBytes": "YQ==", "name": value})
    for value in ("not base64!", "a", "=", "YQ==YQ=="):
        yield f"{one}.file.fileWithBytes", part(file={"fileWithBytes": value})
    yield f"{one}.file", part(file={})
    yield f"{one}.file", part(file={"fileWithBytes": "YQ==", "fileWithUri": "https://x.example"})
    for value in OBJECTS:
        yield f"{one}.file", part(file=value)
        yield f"{one}.data", part(data=value)
        yield f"{one}.metadata", part(text="x", metadata=value)
    for value in ("x", 5, True):
        yield f"{one}.data.data", part(data={"data": value})
    yield f"{one}.data.data", part(data={})


def old_configurations() -> Iterator[tuple[str, Any]]:
    for value in OBJECTS:
        yield "configuration", {**said(), "configuration": value}
        yield "configuration.pushNotification", configured(pushNotification=value)
    for value in ARRAYS:
        yield "configuration.acceptedOutputModes", configured(acceptedOutputModes=value)
    for value in (-1, 1.5, "x", "", True, [], {}, 2**31, "9" * 11):
        yield "configuration.historyLength", configured(historyLength=value)
    for value in ("true", "", 1, 0, [], {}):
        yield "configuration.blocking", configured(blocking=value)
    yield "configuration.pushNotification.url", configured(pushNotification={})


def old_bodies() -> Iterator[PathCase]:
    table = [*old_messages(), *old_parts(), *old_configurations()]
    for number, (member, value) in enumerate(table):
        for path in ("/v1/message:send", "/v1/message:stream"):
            body = json.dumps(value).encode()
            name = f"0.3 {path} {number} {member}"
            yield PathCase(name, "POST", path, e.InvalidParamsError, f"{member}: ", body, OLD)
    hooks = "/v1/tasks/none/pushNotificationConfigs"
    for member, value in (
        ("pushNotificationConfig", {}),
        ("config", {"config": 5}),
        ("config.pushNotificationConfig.url", {"config": {"pushNotificationConfig": {}}}),
        ("configId", {"configId": 5, "pushNotificationConfig": {"url": "u"}}),
    ):
        body = json.dumps(value).encode()
        yield PathCase(f"0.3 webhook {member}", "POST", hooks, e.InvalidParamsError, f"{member}: ", body, OLD)
    ended = json.dumps(said(taskId="FINISHED")).encode()
    nowhere = json.dumps(said(taskId="nope")).encode()
    hooked = json.dumps(configured(pushNotification={"url": "https://x.example"})).encode()
    for path in ("/v1/message:send", "/v1/message:stream"):
        yield PathCase(
            f"0.3 {path} to a finished task", "POST", path, e.UnsupportedOperationError, "completed", ended, OLD
        )
        yield PathCase(f"0.3 {path} to no task", "POST", path, e.TaskNotFoundError, "", nowhere, OLD)
        yield PathCase(f"0.3 {path} with a webhook", "POST", path, e.PushNotificationNotSupportedError, "", hooked, OLD)
    for query, names in (("pageSize=0", "pageSize"), ("pageToken=x", "pageToken"), ("status=working", "status")):
        error = e.InvalidParamsError
        yield PathCase(f"0.3 a list {query}", "GET", f"/v1/tasks?{query}", error, names, headers=OLD)
    for version in ("1.0", "2.0", "x"):
        wrong = {"A2A-Version": version}
        error = e.VersionNotSupportedError
        yield PathCase(f"0.3 under {version}", "GET", "/v1/tasks/x", error, "A2A-Version: 0.3", headers=wrong)


def cases() -> Iterator[PathCase]:
    yield from in_bodies(v10.cases(), "/message:send")
    yield from in_paths("", {})
    yield from in_queries()
    yield from in_bodies(v03.cases(), "/v1/message:send")
    yield from in_paths("/v1", OLD)
    yield from in_old_queries()
    yield from old_bodies()
