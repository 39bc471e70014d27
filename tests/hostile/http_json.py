"""The tables of bad input as HTTP+JSON says it: what is bad in a body there, and what can be bad in a path or a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from a2a_sync import errors as e
from tests.hostile import Case

SENDS = {"SendMessage": "/message:send", "SendStreamingMessage": "/message:stream"}
#: What a code of JSON-RPC is called here.
_BY_CODE = {
    cls.code: cls
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
    """A request and what it gets. Words of `Target.words` stand in for what only the server knows, in the body only."""

    name: str
    verb: str
    path: str
    error: type[e.A2AError]
    names: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0

    @property
    def http_status(self) -> int:
        return self.status or self.error.http_status


def in_bodies(cases: Iterable[Case]) -> Iterator[PathCase]:
    """Those of JSON-RPC that are about a body, or about the params of a send."""
    for case in cases:
        error = e.RequestTooLargeError if case.status == 413 else _BY_CODE.get(case.code)
        if error is None:
            continue
        path, body = "/message:send", case.body
        if error not in (e.JSONParseError, e.RequestTooLargeError):
            call = json.loads(case.body)
            if call.get("method") not in SENDS or not isinstance(call.get("params"), dict):
                continue
            path, body = SENDS[call["method"]], json.dumps(call["params"]).encode()
        if body.strip():  # no body at all is an empty request
            yield PathCase(f"body: {case.name}", "POST", path, error, case.names, body, case.headers)


def in_paths() -> Iterator[PathCase]:
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
        yield PathCase(f"id {id[:20]}", "GET", f"/tasks/{id}", e.TaskNotFoundError)
        yield PathCase(f"tenant and id {id[:20]}", "GET", f"/{id}/tasks/{id}", e.TaskNotFoundError)
        yield PathCase(f"cancel {id[:20]}", "POST", f"/tasks/{id}:cancel", e.TaskNotFoundError)
        yield PathCase(f"subscribe {id[:20]}", "GET", f"/tasks/{id}:subscribe", e.TaskNotFoundError)
    for verb, path in (("PUT", "/tasks/x"), ("DELETE", "/tasks"), ("GET", "/message:send"), ("PATCH", "/a/tasks")):
        yield PathCase(f"{verb} {path}", verb, path, e.MethodNotFoundError, "allowed", status=405)


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


def cases(table: Iterable[Case]) -> Iterator[PathCase]:
    yield from in_bodies(table)
    yield from in_paths()
    yield from in_queries()
