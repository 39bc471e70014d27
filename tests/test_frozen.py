"""What other programs depend on and a refactoring must not change.

- the structure of every answer on the wire: paths, statuses, header names, members, codes and reasons, but not the texts
  of messages (``tests/frozen/wire.json``);
- files of `SQLiteStore` (``tests/frozen/tasks.sqlite3`` was written by commit 0d81730 with `use` below, and
  ``tests/frozen/tasks.json`` has the tasks as that commit read them);
- names that are not Python's: URNs, HTTP headers, environ keys, environment variables, metrics, entry points, loggers.

A test that fails here shows a change that users, peers or operators notice. If it is intended, describe it in
``docs/changelog.md`` and change the expected value with it; ``python -m tests.test_frozen`` writes ``wire.json`` again.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import a2a_sync
from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    DataPart,
    InputRequired,
    Limits,
    PublicError,
    PushOptions,
    Rejected,
    URLGuard,
    errors,
)
from a2a_sync.errors import AgentError
from tests.engine import eventually
from tests.frameworks import without_framework
from tests.wsgi import Peer, message, message_v03, rpc

DATA = Path(__file__).parent / "frozen"
PACKAGE = Path(a2a_sync.__file__).parent
#: The handler of a streamed answer continues once the first event has been read, so that all others follow as events.
STREAM_BEGAN = threading.Event()
HOOK = "https://192.0.2.1/hook"
VERSIONS = ("1.0", "0.3")
METHODS = {
    "1.0": {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "list": "ListTasks",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
        "set": "CreateTaskPushNotificationConfig",
        "read": "GetTaskPushNotificationConfig",
        "configs": "ListTaskPushNotificationConfigs",
        "delete": "DeleteTaskPushNotificationConfig",
        "card": "GetExtendedAgentCard",
    },
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "list": "tasks/list",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
        "set": "tasks/pushNotificationConfig/set",
        "read": "tasks/pushNotificationConfig/get",
        "configs": "tasks/pushNotificationConfig/list",
        "delete": "tasks/pushNotificationConfig/delete",
        "card": "agent/getAuthenticatedExtendedCard",
    },
}


class Frozen(Agent):
    name = "frozen"
    description = "Answers each command in one way"
    skills = [AgentSkill(id="obey", name="Obey", description="Follows commands", tags=["test"])]

    def handle_message(self, message: Any, context: Any) -> Any:
        return getattr(self, f"do_{message.text}")(context) if len(context.history) == 1 else "thanks"

    def do_text(self, context: Any) -> str:
        return "a text"

    def do_pieces(self, context: Any) -> Iterator[Any]:
        STREAM_BEGAN.wait(60)
        context.update("half way")
        yield "one "
        yield "two"
        yield DataPart({"three": [3, None]})

    def do_ask(self, context: Any) -> InputRequired:
        return InputRequired("Which size?")

    def do_refuse(self, context: Any) -> Rejected:
        return Rejected("not this")

    def do_fail(self, context: Any) -> None:
        raise PublicError("broken")


def make_app(store: str | None = None, **options: Any) -> A2AApp:
    forever = Limits(terminal_task_ttl=None, interrupted_task_ttl=None, stream_replay_window=None)
    push = PushOptions(url_guard=URLGuard(allow=["192.0.2.1"]), sender=lambda request: None)
    return A2AApp(Frozen(), store=store, url="http://agent.test", push=push, limits=forever, **options)


# -- the wire ----------------------------------------------------------------------------------------------------------


class Wire:
    """Sends requests and keeps the structure of each answer under a name."""

    def __init__(self, app: A2AApp) -> None:
        self.peer = Peer(app)
        self.seen: dict[str, Any] = {}

    def request(
        self,
        name: str,
        verb: str,
        path: str,
        payload: Any = None,
        version: str = "1.0",
        headers: dict[str, str] | None = None,
    ) -> Any:
        sent = payload if isinstance(payload, bytes) else b"" if payload is None else json.dumps(payload).encode()
        given = {"A2A-Version": version, **({"Content-Type": "application/json"} if sent else {}), **(headers or {})}
        STREAM_BEGAN.clear()
        with self.peer.open(verb, path, sent, given) as answer:
            kind = answer.headers.get("Content-Type", "")
            streamed = kind.startswith("text/event-stream")
            body = answer.chunk() if streamed else b""
            STREAM_BEGAN.set()
            body += b"".join(answer.chunks)
        content: Any = None
        if streamed:
            blocks = body.decode().split("\n\n")
            content = steady(
                [[_line(line) for line in block.split("\n")] for block in blocks if block and block[0] != ":"]
            )
        elif body:
            content = json.loads(body) if "json" in kind else "<text>"
        assert name not in self.seen
        self.seen[name] = {
            "status": answer.status,
            "type": kind,
            "headers": sorted(answer.headers.keys()),
            "body": structure(content),
        }
        return content

    def call(self, name: str, version: str, operation: str, params: Any) -> Any:
        body = rpc(METHODS[version].get(operation, operation), params)
        return self.request(f"{version} JSON-RPC {name}", "POST", "/", body, version)


def _line(line: str) -> Any:
    field, _, value = line.partition(": ")
    return {field: json.loads(value) if value[:1] == "{" else value}


def steady(events: list[Any]) -> list[Any]:
    """`events` without what depends on when the stream began: the numbers, the state in the first event and its change."""
    kept = [
        event
        for event in events
        if "message" in (text := json.dumps(event).lower()) or '"status' not in text or "working" not in text
    ]
    for event in kept:
        event[0] = {"id": "<number>"} if "id" in event[0] else event[0]
    return json.loads(
        re.sub(r'"state": "[A-Za-z_]*(working|submitted)"', '"state": "<begun>"', json.dumps(kept), flags=re.I)
    )


def structure(value: Any, name: str = "") -> Any:
    """`value` without what differs from one run to the next, and without the texts of errors."""
    if isinstance(value, dict):
        texts = {"message", "description"} if {"code", "message"} <= value.keys() or "field" in value else set()
        return {key: "<text>" if key in texts else structure(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [structure(one, name) for one in value]
    if isinstance(value, str):
        if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", value):
            return "<time>"
        if re.fullmatch(r"[0-9a-f]{32}", value):
            return "<id>"
        value = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>", value)
        if name in {"nextPageToken", "version"} and len(value) > 8:
            return "<opaque>"
    return value


def params_of(version: str, text: str, **members: Any) -> Any:
    return message(text, **members) if version == "1.0" else message_v03(text, **members)


def task_of(version: str, content: Any) -> Any:
    return content.get("task", content)


def record(app: A2AApp) -> dict[str, Any]:
    """Every operation over both bindings in both versions, and the ways in which a request is refused."""
    wire = Wire(app)
    for verb, path in [
        ("GET", "/.well-known/agent-card.json"),
        ("GET", "/.well-known/agent.json"),
        ("HEAD", "/.well-known/agent-card.json"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/nowhere"),
        ("OPTIONS", "/"),
        ("DELETE", "/"),
    ]:
        wire.request(f"{verb} {path}", verb, path)
    for version in VERSIONS:
        record_jsonrpc(wire, version)
        record_http(wire, version)
    return wire.seen


def record_jsonrpc(wire: Wire, version: str) -> None:
    send = {command: params_of(version, command) for command in ("text", "ask", "refuse", "fail")}
    tasks = {
        command: task_of(version, wire.call(f"send {command}", version, "send", params)["result"])["id"]
        for command, params in send.items()
    }
    wire.call("stream", version, "stream", params_of(version, "pieces"))
    wire.call("stream again", version, "stream", params_of(version, "text", taskId=tasks["text"]))
    ended, asking = tasks["text"], tasks["ask"]
    wire.call("get", version, "get", {"id": ended, "historyLength": 1})
    wire.call("get nothing", version, "get", {"id": "missing"})
    wire.call("get without id", version, "get", {})
    wire.call("list", version, "list", {"pageSize": 1} if version == "1.0" else {})
    wire.call("cancel", version, "cancel", {"id": asking})
    wire.call("cancel the ended", version, "cancel", {"id": ended})
    wire.call("subscribe to the ended", version, "subscribe", {"id": ended})
    if version == "1.0":
        where = {"taskId": ended, "id": "c"}
        wire.call("set", version, "set", {"taskId": ended, "id": "c", "url": HOOK, "token": "t"})
    else:
        where = {"id": ended, "pushNotificationConfigId": "c"}
        config = {"taskId": ended, "pushNotificationConfig": {"id": "c", "url": HOOK, "token": "t"}}
        wire.call("set", version, "set", config)
    wire.call("read", version, "read", where)
    wire.call("configs", version, "configs", {"taskId": ended} if version == "1.0" else {"id": ended})
    wire.call("delete", version, "delete", where)
    wire.call("read deleted", version, "read", where)
    wire.call("extended card", version, "card", {} if version == "1.0" else None)
    wire.call("send to the ended", version, "send", params_of(version, "text", taskId=ended))
    wire.call("send without parts", version, "send", params_of(version, "text", parts=[]))
    wire.call("send a wrong type", version, "send", {"message": 7})
    wire.call("unknown method", version, "Nothing", {})
    for name, body in {"no JSON": b"{", "no object": b"[]", "no method": b'{"jsonrpc": "2.0", "id": 1}'}.items():
        wire.request(f"{version} JSON-RPC {name}", "POST", "/", body, version)
    wire.request(f"{version} JSON-RPC media type", "POST", "/", b"x", version, {"Content-Type": "text/plain"})
    if version == "1.0":
        wire.request("JSON-RPC version 9.9", "POST", "/", rpc("GetTask", {"id": ended}), "9.9")


def record_http(wire: Wire, version: str) -> None:
    base = "" if version == "1.0" else "/v1"

    def ask(name: str, verb: str, path: str, body: Any = None) -> Any:
        return wire.request(f"{version} HTTP {name}", verb, base + path, body, version)

    def send(text: str, **members: Any) -> Any:
        if version == "1.0":
            return message(text, **members)
        return {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": text}], **members}}

    tasks = {
        command: task_of(version, ask(f"send {command}", "POST", "/message:send", send(command)))["id"]
        for command in ("text", "ask", "refuse", "fail")
    }
    ended, asking = tasks["text"], tasks["ask"]
    ask("stream", "POST", "/message:stream", send("pieces"))
    ask("get", "GET", f"/tasks/{ended}?historyLength=1")
    ask("get nothing", "GET", "/tasks/missing")
    ask("list", "GET", "/tasks?pageSize=1")
    ask("list a wrong number", "GET", "/tasks?pageSize=many")
    ask("cancel", "POST", f"/tasks/{asking}:cancel", {})
    ask("cancel the ended", "POST", f"/tasks/{ended}:cancel", {})
    ask("subscribe to the ended", "GET", f"/tasks/{ended}:subscribe")
    configs = f"/tasks/{ended}/pushNotificationConfigs"
    config = {"id": "c", "url": HOOK, "token": "t"}
    ask(
        "set",
        "POST",
        configs,
        config if version == "1.0" else {"config": {"pushNotificationConfig": config}, "configId": "c"},
    )
    ask("read", "GET", f"{configs}/c")
    ask("configs", "GET", configs)
    ask("delete", "DELETE", f"{configs}/c")
    ask("read deleted", "GET", f"{configs}/c")
    ask("extended card", "GET", "/extendedAgentCard" if version == "1.0" else "/card")
    ask("send to the ended", "POST", "/message:send", send("text", taskId=ended))
    ask("send without a message", "POST", "/message:send", {})
    ask("wrong verb", "PUT", f"/tasks/{ended}")
    ask("unknown path", "GET", "/tasks/a/b/c/d")
    ask("no JSON", "POST", "/message:send", b"{")


@pytest.fixture(scope="module")
def wire() -> Iterator[dict[str, Any]]:
    app = make_app()
    try:
        yield record(app)
    finally:
        app.close()


FROZEN_WIRE: dict[str, Any] = json.loads(text.read_text()) if (text := DATA / "wire.json").exists() else {}


@pytest.mark.parametrize("name", FROZEN_WIRE)
def test_an_answer_has_the_structure_that_it_had(name: str, wire: dict[str, Any]) -> None:
    assert wire[name] == FROZEN_WIRE[name]


def test_every_recorded_answer_is_compared(wire: dict[str, Any]) -> None:
    assert list(wire) == list(FROZEN_WIRE)


#: Class, JSON-RPC code, HTTP status over HTTP+JSON and over JSON-RPC, gRPC status, reason.
ERRORS = """
AgentError -32603 500 200 INTERNAL INTERNAL_ERROR
JSONParseError -32700 400 200 INVALID_ARGUMENT PARSE_ERROR
InvalidRequestError -32600 400 200 INVALID_ARGUMENT INVALID_REQUEST
RequestTooLargeError -32600 413 413 RESOURCE_EXHAUSTED REQUEST_TOO_LARGE
MethodNotFoundError -32601 404 200 NOT_FOUND METHOD_NOT_FOUND
InvalidParamsError -32602 400 200 INVALID_ARGUMENT INVALID_PARAMS
InternalError -32603 500 200 INTERNAL INTERNAL_ERROR
OverloadedError -32000 429 429 RESOURCE_EXHAUSTED RESOURCE_EXHAUSTED
UnavailableError -31503 503 503 UNAVAILABLE UNAVAILABLE
UnauthenticatedError -31401 401 401 UNAUTHENTICATED UNAUTHENTICATED
PermissionDeniedError -31403 403 403 PERMISSION_DENIED UNAUTHORIZED
TaskNotFoundError -32001 404 200 NOT_FOUND TASK_NOT_FOUND
TaskNotCancelableError -32002 400 200 FAILED_PRECONDITION TASK_NOT_CANCELABLE
PushNotificationNotSupportedError -32003 400 200 FAILED_PRECONDITION PUSH_NOTIFICATION_NOT_SUPPORTED
UnsupportedOperationError -32004 400 200 FAILED_PRECONDITION UNSUPPORTED_OPERATION
ContentTypeNotSupportedError -32005 400 200 INVALID_ARGUMENT CONTENT_TYPE_NOT_SUPPORTED
InvalidAgentResponseError -32006 500 200 INTERNAL INVALID_AGENT_RESPONSE
ExtendedAgentCardNotConfiguredError -32007 400 200 FAILED_PRECONDITION EXTENDED_AGENT_CARD_NOT_CONFIGURED
ExtensionSupportRequiredError -32008 400 200 FAILED_PRECONDITION EXTENSION_SUPPORT_REQUIRED
VersionNotSupportedError -32009 400 200 FAILED_PRECONDITION VERSION_NOT_SUPPORTED
"""


def test_codes_statuses_and_reasons_of_errors() -> None:
    found = {
        f"{cls.__name__} {cls.jsonrpc_code} {cls.http_status} {cls.rpc_http_status} {cls.grpc_status} {cls.reason}"
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, AgentError)
    }
    assert found == set(ERRORS.split("\n")) - {""}


# -- stored files ------------------------------------------------------------------------------------------------------


def use(app: A2AApp) -> None:
    """Leave tasks of each kind in the store of `app`: of both versions, ended, waiting for an answer, with a webhook."""
    wire = Wire(app)
    for version in VERSIONS:
        record_jsonrpc(wire, version)
        wire.call("one that waits", version, "send", params_of(version, "ask", contextId="shared"))
        waiting = wire.call("one with a webhook", version, "send", params_of(version, "ask"))["result"]
        config = {"id": "hook", "url": HOOK, "token": "secret"}
        where = {"taskId": task_of(version, waiting)["id"]}
        wire.call(
            "hook",
            version,
            "set",
            {**where, **config} if version == "1.0" else {**where, "pushNotificationConfig": config},
        )


def stored(app: A2AApp) -> dict[str, Any]:
    """All tasks as GetTask shows them, with their webhooks."""
    peer = Peer(app)
    listed = peer.call("ListTasks", {"pageSize": 100}).result
    assert listed["totalSize"] == len(listed["tasks"])
    ids = [task["id"] for task in listed["tasks"]]
    return {
        id: {
            "task": peer.call("GetTask", {"id": id}).result,
            "webhooks": peer.call("ListTaskPushNotificationConfigs", {"taskId": id}).result,
        }
        for id in ids
    }


@pytest.fixture
def old_app(tmp_path: Path) -> Iterator[A2AApp]:
    shutil.copy(DATA / "tasks.sqlite3", tmp_path / "tasks.sqlite3")
    app = make_app(f"sqlite:///{tmp_path}/tasks.sqlite3")
    try:
        yield app
    finally:
        app.close()


def test_an_sqlite_file_of_an_older_commit_is_served_unchanged(old_app: A2AApp) -> None:
    assert stored(old_app) == json.loads((DATA / "tasks.json").read_text())


def test_a_task_in_an_older_file_is_continued(old_app: A2AApp) -> None:
    expected = json.loads((DATA / "tasks.json").read_text())
    waiting = [id for id, one in expected.items() if one["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"]
    assert len(waiting) == 4
    peer = Peer(old_app)
    for id in waiting:
        task = peer.call("SendMessage", message("large", taskId=id)).result["task"]
        assert (task["status"]["state"], task["artifacts"][0]["parts"][0]["text"]) == ("TASK_STATE_COMPLETED", "thanks")
    assert len(stored(old_app)) == len(expected)


# -- names -------------------------------------------------------------------------------------------------------------

#: Extensions, and marks in metadata and in notifications.
URNS = {
    "urn:a2a-sync:ask:1",
    "urn:a2a-sync:chat:1",
    "urn:a2a-sync:console:link",
    "urn:a2a-sync:console:open",
    "urn:a2a-sync:console:remote",
    "urn:a2a-sync:idempotent-send:1",
    "urn:a2a-sync:interrupt:1",
    "urn:a2a-sync:push:disabled",
    "urn:a2a-sync:push:shortened",
    "urn:a2a-sync:usage:1",
}
HEADERS = {
    "A2A-Extensions",
    "A2A-Version",
    "X-A2A-Extensions",
    "X-A2A-Notification-Id",
    "X-A2A-Notification-Signature",
    "X-A2A-Notification-Token",
}
#: Keys of the WSGI environ. ``submitted_as`` is a key of stored metadata.
ENVIRON_KEYS = {
    "a2a_sync.body_read",
    "a2a_sync.console_path",
    "a2a_sync.gone",
    "a2a_sync.mount",
    "a2a_sync.principal",
    "a2a_sync.stopping",
    "a2a_sync.submitted_as",
}
ENVIRONMENT_VARIABLES = {
    "A2A_SYNC_AUTH",
    "A2A_SYNC_CERT",
    "A2A_SYNC_CONFIG",
    "A2A_SYNC_PROFILE",
    "A2A_SYNC_CONSOLE",
    "A2A_SYNC_CONSOLE_KEY",
    "A2A_SYNC_CONSOLE_SETTINGS",
    "A2A_SYNC_DEBUG",
    "A2A_SYNC_GRPC",
    "A2A_SYNC_GRPC_BEHIND_PROXY",
    "A2A_SYNC_GRPC_CA",
    "A2A_SYNC_GRPC_CERT",
    "A2A_SYNC_GRPC_KEY",
    "A2A_SYNC_GRPC_REFLECTION",
    "A2A_SYNC_GRPC_THREADS",
    "A2A_SYNC_GRPC_URL",
    "A2A_SYNC_HOOK_TOKEN",
    "A2A_SYNC_PIN_WORKERS",
    "A2A_SYNC_STORE",
    "A2A_SYNC_TARGET",
    "A2A_SYNC_URL",
}
#: Samples of ``/metrics`` after a send and a call that failed; without buckets and times of creation.
METRICS = {
    'a2a_call_seconds_count{operation="GetTask"}',
    'a2a_call_seconds_sum{operation="GetTask"}',
    'a2a_calls_total{operation="GetTask",outcome="TASK_NOT_FOUND"}',
    'a2a_call_seconds_count{operation="SendMessage"}',
    'a2a_call_seconds_sum{operation="SendMessage"}',
    'a2a_calls_total{operation="SendMessage",outcome="ok"}',
    "a2a_run_seconds_count",
    "a2a_run_seconds_sum",
    "a2a_outbox_entries",
    'a2a_outbox_webhooks{state="behind"}',
    'a2a_outbox_webhooks{state="stopped"}',
    "a2a_runs_active",
    "a2a_runs_lingering",
    "a2a_runs_queued",
    'a2a_runs_total{outcome="returned"}',
    "a2a_store_heartbeat_seconds",
    "a2a_store_oldest_wait_seconds",
    'a2a_store_tasks{state="submitted"}',
    'a2a_store_tasks{state="working"}',
    "a2a_store_up",
    'a2a_store_workers{state="alive"}',
    'a2a_store_workers{state="late"}',
    'a2a_store_workers{state="lost"}',
    "a2a_streams_open",
}
ENTRY_POINTS = {
    "console_scripts: a2a-sync = a2a_sync.cli:main",
    "pytest11: a2a_sync.testing.plugin = a2a_sync.testing.plugin",
}
#: One logger for each folder, so that moving a function between modules changes no configuration of logging.
LOGGERS = {
    "a2a_sync.agent",
    "a2a_sync.auth",
    "a2a_sync.client",
    "a2a_sync.concurrency",
    "a2a_sync.console",
    "a2a_sync.engine",
    "a2a_sync.grpc",
    "a2a_sync.integrations",
    "a2a_sync.multiagent",
    "a2a_sync.push",
    "a2a_sync.server",
    "a2a_sync.signing",
    "a2a_sync.webhooks",
    "a2a_sync.wsgi",
}


def literals(pattern: str) -> set[str]:
    """The string literals of the package that match `pattern` as a whole."""
    return {text for text in all_literals() if re.fullmatch(pattern, text)}


@cache
def all_literals() -> set[str]:
    nodes = chain.from_iterable(ast.walk(ast.parse(path.read_text())) for path in PACKAGE.rglob("*.py"))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_urns() -> None:
    assert literals(r"urn:a2a-sync:[\w:-]+") == URNS


def test_http_header_names() -> None:
    assert literals(r"(X-)?A2A-[A-Za-z-]+") == HEADERS


def test_environ_keys() -> None:
    found = literals(r"a2a_sync\.\w+")
    assert {key for key in found if find_spec(key) is None} == ENVIRON_KEYS


def test_environment_variables() -> None:
    assert literals(r"A2A_[A-Z0-9_]+") == ENVIRONMENT_VARIABLES


def test_metric_names_and_labels() -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra prometheus")
    app = make_app(metrics=importlib.import_module("a2a_sync.server.metrics").Metrics())
    try:
        peer = Peer(app)
        peer.call("SendMessage", message("text"))
        peer.call("GetTask", {"id": "missing"})
        # The code of a run returns after its task has ended.
        eventually(lambda: 'outcome="returned"' in peer.request("GET", "/metrics").body.decode(), "the run's return")
        lines = peer.request("GET", "/metrics").body.decode().splitlines()
    finally:
        app.close()
    samples = {line.rpartition(" ")[0] for line in lines if line[0] != "#"}
    assert {one for one in samples if "_bucket" not in one and "_created" not in one} == METRICS


def test_entry_points() -> None:
    setup = configparser.ConfigParser()
    setup.read(PACKAGE.parent / "setup.cfg")
    found = {f"{group}: {' '.join(lines.split())}" for group, lines in setup["options.entry_points"].items()}
    assert found == ENTRY_POINTS


LIST_LOGGERS = """
import importlib, json, logging, sys
for module in json.load(sys.stdin):
    importlib.import_module(module)
found = logging.Logger.manager.loggerDict
print(json.dumps([name for name in found if name.startswith("a2a_sync") and isinstance(found[name], logging.Logger)]))
"""


@pytest.mark.slow
def test_logger_names() -> None:
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    # What `a2a-sync serve` loads in a worker process: these read its environment, and one applies gevent's patches.
    names = [".".join(path.parts) for path in paths if not path.name.startswith(("__main__", "served"))]
    modules = [name for name in names if name not in without_framework()]
    done = subprocess.run(
        [sys.executable, "-c", LIST_LOGGERS],
        input=json.dumps([module.removesuffix(".__init__") for module in modules]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(json.loads(done.stdout)) == LOGGERS - without_framework()


if __name__ == "__main__":
    app = make_app()
    (DATA / "wire.json").write_text(json.dumps(record(app), indent=1, sort_keys=False) + "\n")
    app.close()
    sys.exit()
