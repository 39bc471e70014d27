"""Whatever is sent, the answer says what was wrong with it, the store is as it was and the next caller is served.

One table, against the app in process and against a real gunicorn (marked ``live``); both keep their tasks in a file, of
which complete dumps are compared.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from werkzeug.datastructures import Headers

from tests.agents.strict import make_app
from tests.live import gunicorn
from tests.wsgi import JSON_HEADERS, Answer, Peer, message, rpc

pytestmark = pytest.mark.timeout(60)

INVALID_CASES = Path(__file__).parent / "spec" / "v1-invalid-cases.json"
DEEP = 10_000


# -- the table ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A body (with the words of `Target.words` for what only the server knows) and what it gets.

    `names` must stand in the error's message. `id` is the one of the answer.
    """

    name: str
    body: bytes
    code: int
    names: str = ""
    id: Any = 1
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def not_json() -> Iterator[Case]:
    good = rpc("ListTasks", {})
    plain = {
        "nothing": b"",
        "blanks": b" \r\n\t",
        "a word": b"hello",
        "cut off": good[:-1],
        "twice": good + good,
        "single quotes": good.replace(b'"', b"'"),
        "a trailing comma": good[:-1] + b",}",
        "a comment": b"/* */" + good,
        "a bare control character": good.replace(b"ListTasks", b"List\nTasks"),
        "form data": b"jsonrpc=2.0&method=ListTasks&id=1",
        "an HTTP request": b"POST / HTTP/1.1\r\n\r\n{}",
        "zeros": b"\0" * 1000,
        "a gzip header": b"\x1f\x8b\x08\0\0\0\0\0",
    }
    for name, body in plain.items():
        yield Case(f"not JSON: {name}", body, -32700, "JSON", None)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        yield Case(encoding, good.decode().encode(encoding), -32700, "UTF-8", None)
    yield Case("latin-1", rpc("GetTask", {"id": "X"}).replace(b"X", b"\xe9"), -32700, "UTF-8", None)
    yield Case(
        "a surrogate in UTF-8", rpc("GetTask", {"id": "X"}).replace(b"X", b"\xed\xa0\x80"), -32700, "UTF-8", None
    )
    yield Case("an overlong slash", rpc("GetTask", {"id": "X"}).replace(b"X", b"\xc0\xaf"), -32700, "UTF-8", None)


def ambiguous_json() -> Iterator[Case]:
    for name, body, key in (
        ("at the top", rpc("ListTasks", {})[:-1] + b', "method": "CancelTask"}', "method"),
        ("in the params", rpc("GetTask", {"id": "FINISHED"})[:-2] + b', "id": "other"}}', "id"),
        (
            "far inside",
            rpc("SendMessage", message(metadata={"a": [{"b": 0}]})).replace(b'"b": 0', b'"b": 0, "b": 1'),
            "b",
        ),
        ("twice the same", rpc("ListTasks", {"tenant": ""}).replace(b'""', b'"", "tenant": ""'), "tenant"),
    ):
        yield Case(f"duplicate key {name}", body, -32700, f'"{key}"', None)
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400"):
        for name, params in (("a data part", data("HERE")), ("metadata", message(metadata={"n": "HERE"}))):
            body = rpc("SendMessage", params).replace(b'"HERE"', number.encode())
            yield Case(f"{number} in {name}", body, -32700, number, None)
    digits = b"7" * 5000
    yield Case(
        "5,000 digits in data", rpc("SendMessage", data("HERE")).replace(b'"HERE"', digits), -32700, "digits", None
    )
    yield Case(
        "5,000 digits as id", rpc("ListTasks", {}, 1).replace(b'"id": 1', b'"id": ' + digits), -32700, "digits", None
    )
    yield Case(
        "5,000 digits as a length",
        rpc("GetTask", {"id": "FINISHED", "historyLength": 7}).replace(b"7}", digits + b"}"),
        -32700,
        "digits",
        None,
    )
    for escape in (r"\ud800", r"\udc00", r"\udc00\ud800", r"a\uD834z"):
        for name, body in (
            ("a text", rpc("SendMessage", message("HERE"))),
            ("a key", rpc("SendMessage", message(metadata={"HERE": 1}))),
            ("a task id", rpc("GetTask", {"id": "HERE"})),
            ("the id", rpc("ListTasks", {}, "HERE")),
            ("the method", rpc("HERE", {})),
        ):
            yield Case(f"{escape} in {name}", body.replace(b"HERE", escape.encode()), -32700, "surrogate", None)


def deep_json() -> Iterator[Case]:
    shapes = {
        "arrays": b"[" * DEEP + b"]" * DEEP,
        "objects": b'{"a":' * DEEP + b"0" + b"}" * DEEP,
        "both": b'[{"a":' * DEEP + b"0" + b"}]" * DEEP,
        "101 levels": b"[" * 101 + b"]" * 101,
    }
    for name, deep in shapes.items():
        yield Case(f"deep: {name} alone", deep, -32700, "deep", None)
        yield Case(
            f"deep: {name} in data", rpc("SendMessage", data("HERE")).replace(b'"HERE"', deep), -32700, "deep", None
        )
    for name, deep in (("arrays", b"[" * DEEP), ("objects", b'{"a":' * DEEP)):
        yield Case(f"deep: {name} never closed", deep, -32700, "JSON", None)


def not_a_request() -> Iterator[Case]:
    for name, body in (("a string", b'"x"'), ("a number", b"1"), ("true", b"true"), ("null", b"null")):
        yield Case(f"{name} for a request", body, -32600, "object", None)
    for name, body in (("empty", b"[]"), ("of one", b"[%s]" % rpc("ListTasks", {})), ("of junk", b"[1, null]")):
        yield Case(f"a batch {name}", body, -32600, "Batches", None)
    value: Any
    for value in ("1.0", 2.0, "2", "2.0 ", None, 2, ["2.0"], "MISSING"):
        body = json.loads(rpc("ListTasks", {}))
        body["jsonrpc"] = value
        if value == "MISSING":
            del body["jsonrpc"]
        yield Case(f"jsonrpc {value!r}", json.dumps(body).encode(), -32600, "jsonrpc")
    for value in ("", None, 5, [], {}, True, "MISSING"):
        body = json.loads(rpc("ListTasks", {}))
        body["method"] = value
        if value == "MISSING":
            del body["method"]
        yield Case(f"method {value!r}", json.dumps(body).encode(), -32600, "method")
    for value in (1.5, 1.0, True, [], {}, [1]):
        yield Case(f"id {value!r}", rpc("ListTasks", {}, value), -32600, "id", None)
    for method in ("DoMagic", "message/sent", "sendMessage", "SendMessage ", "__class__", "a" * 5000, "\0"):
        yield Case(f"method {method[:20]!r}", rpc(method, {}), -32601)
    params: Any
    for params in ([], "abc", 5, True, [{}], 0, ""):
        yield Case(f"params {params!r}", rpc("GetTask", params), -32602, "params")


def data(value: Any) -> dict[str, Any]:
    """The params of a send with one data part."""
    return message(parts=[{"data": value}])


def without(member: str) -> dict[str, Any]:
    params = message()
    del params["message"][member]
    return params


def part(**members: Any) -> dict[str, Any]:
    return message(parts=[{"text": "fine"}, members])


def configured(**members: Any) -> dict[str, Any]:
    return {**message(), "configuration": members}


WORDS: tuple[Any, ...] = (5, 1.5, True, [], {})
OBJECTS: tuple[Any, ...] = ("x", 5, True, [])
ARRAYS: tuple[Any, ...] = ("x", 5, True, {})


def bad_sends() -> Iterator[tuple[str, dict[str, Any]]]:
    """The member that is named, and the params."""
    yield "message", {}
    yield "message", {"message": None}
    yield "message", {"Message": message()["message"]}
    for value in (*OBJECTS, ""):
        yield "message", {"message": value}
    yield "message.messageId", {"message": {}}
    yield "message.messageId", {"message": {"message_Id": "m"}}
    for member in ("messageId", "role", "parts"):
        yield f"message.{member}", without(member)
        yield f"message.{member}", {"message": {**message()["message"], member: None}}
    for value in ("", *WORDS):
        yield "message.messageId", message(messageId=value)
    for value in ("", "user", "ROLE_UNSPECIFIED", "ROLE_KING", 0, 3, -1, True, 1.5, [], {}):
        yield "message.role", message(role=value)
    for value in ([], *ARRAYS):
        yield "message.parts", message(parts=value)
    for value in (None, "x", 5, [], {}, {"txt": "x"}, {"text": None}, {"kind": "text"}):
        yield "message.parts[1]", message(parts=[{"text": "fine"}, value])
    contents = {"text": "a", "raw": "YQ==", "url": "https://x.example", "data": {}}
    for first, second in combinations(contents, 2):
        yield "message.parts[1]", part(**{first: contents[first], second: contents[second]})
    yield "message.parts[1]", part(**contents)
    for value in WORDS:
        yield "message.parts[1].text", part(text=value)
        yield "message.parts[1].url", part(url=value)
        yield "message.parts[1].raw", part(raw=value)
        yield "message.parts[1].filename", part(text="x", filename=value)
        yield "message.parts[1].mediaType", part(text="x", mediaType=value)
        yield "message.contextId", message(contextId=value)
        yield "message.taskId", message(taskId=value)
        yield "tenant", {**message(), "tenant": value}
    for value in ("not base64!", "a", "=", "YQ==YQ==", "Y\u00e9=="):
        yield "message.parts[1].raw", part(raw=value)
    for value in OBJECTS:
        yield "message.parts[1].metadata", part(text="x", metadata=value)
        yield "message.metadata", message(metadata=value)
        yield "metadata", {**message(), "metadata": value}
        yield "configuration", {**message(), "configuration": value}
        yield "configuration.taskPushNotificationConfig", configured(taskPushNotificationConfig=value)
    for value in ARRAYS:
        yield "message.extensions", message(extensions=value)
        yield "message.referenceTaskIds", message(referenceTaskIds=value)
        yield "configuration.acceptedOutputModes", configured(acceptedOutputModes=value)
    for value in (None, 5, {}):
        yield "message.extensions[0]", message(extensions=[value])
        yield "message.referenceTaskIds[1]", message(referenceTaskIds=["t", value])
        yield "configuration.acceptedOutputModes[0]", configured(acceptedOutputModes=[value])
    for value in (-1, 1.5, "x", "", "1.5", True, [], {}, 2**31, -(2**31) - 1, "9" * 11, 1e300):
        yield "configuration.historyLength", configured(historyLength=value)
    for value in ("true", "", 1, 0, [], {}):
        yield "configuration.returnImmediately", configured(returnImmediately=value)
    yield "configuration.taskPushNotificationConfig.url", configured(taskPushNotificationConfig={})
    yield "message.contextId", message(taskId="ASKED", contextId="another")
    yield "message.contextId", message(task_id="ASKED", context_id="another")


def bad_others() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The method, the member that is named, and the params."""
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        yield method, "id", {}
        for value in ("", None, *WORDS):
            yield method, "id", {"id": value}
    for value in (-1, 1.5, "x", "", True, [], {}, 2**31):
        yield "GetTask", "historyLength", {"id": "FINISHED", "historyLength": value}
        yield "ListTasks", "historyLength", {"historyLength": value}
    for value in OBJECTS:
        yield "CancelTask", "metadata", {"id": "ASKED", "metadata": value}
    for value in (0, 101, -1, 2**31, 1.5, "x", "", True, []):
        yield "ListTasks", "pageSize", {"pageSize": value}
    for value in ("working", "TASK_STATE_RUNNING", 9, -1, True, 1.5, []):
        yield "ListTasks", "status", {"status": value}
    for value in ("!!", "é", "a" * 5000, "e30", "W10", "WzEsMiwzXQ", "bnVsbA", 5, "Ww" * 2000, "FORGED", "OTHER"):
        yield "ListTasks", "pageToken", {"pageToken": value}
    yield "ListTasks", "pageToken", {"pageToken": "TOKEN", "contextId": "another filter"}
    for value in (
        "yesterday",
        "2025-01-01",
        "2025-13-01T00:00:00Z",
        "2025-01-01T00:00:00",
        "2025-01-01t00:00:00z",
        5,
        "",
    ):
        yield "ListTasks", "statusTimestampAfter", {"statusTimestampAfter": value}
    yield "ListTasks", "statusTimestampAfter", {"statusTimestampAfter": "0001-01-01T00:00:00+23:00"}
    for value in ("yes", 1, [], "true"):
        yield "ListTasks", "includeArtifacts", {"includeArtifacts": value}
    for value in WORDS:
        yield "ListTasks", "contextId", {"contextId": value}
        yield "ListTasks", "tenant", {"tenant": value}
    for method in ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
        yield method, "taskId", {"id": "x"}
        yield method, "id", {"taskId": "x"}
    yield "CreateTaskPushNotificationConfig", "url", {"taskId": "x"}
    yield "ListTaskPushNotificationConfigs", "taskId", {}


def bad_params() -> Iterator[Case]:
    for number, (member, params) in enumerate(bad_sends()):
        for method in ("SendMessage", "SendStreamingMessage"):
            yield Case(f"{method} {number} {member}", rpc(method, params, "s"), -32602, f"{member}: ", "s")
    for number, (method, member, params) in enumerate(bad_others()):
        yield Case(f"{method} {number} {member}", rpc(method, params, -1), -32602, f"{member}: ", -1)


def wrong_tasks() -> Iterator[Case]:
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        for id in ("nope", "FINISHED ", "../etc/passwd", "' OR 1=1 --", "\0", "a" * 5000, "😀"):
            yield Case(f"{method} of {id[:20]!r}", rpc(method, {"id": id}), -32001)
        yield Case(f"{method} in another tenant", rpc(method, {"id": "ASKED", "tenant": "other"}), -32001)
    yield Case("canceling a finished task", rpc("CancelTask", {"id": "FINISHED"}), -32002, "completed")
    yield Case("subscribing to a finished task", rpc("SubscribeToTask", {"id": "FINISHED"}), -32004, "completed")
    for method in ("SendMessage", "SendStreamingMessage"):
        yield Case(f"{method} to no task", rpc(method, message(taskId="nope")), -32001)
        yield Case(f"{method} to a finished task", rpc(method, message(taskId="FINISHED")), -32004, "completed")
        other = {**message(taskId="ASKED"), "tenant": "other"}
        yield Case(f"{method} to another tenant's task", rpc(method, other), -32001)
        push = configured(taskPushNotificationConfig={"url": "https://x.example"})
        yield Case(f"{method} with a webhook", rpc(method, push), -32003)
    busy = {**message(taskId="BUSY"), "configuration": {"returnImmediately": True}}
    yield Case("a message to a busy task", rpc("SendMessage", busy), -32004, "busy")


def wrong_envelopes() -> Iterator[Case]:
    good = rpc("SendMessage", message())
    yield Case("text/plain", good, -32005, "text/plain", None, headers={"Content-Type": "text/plain"})
    for version in ("", "0.3", "99.0", "1.0; drop", "é"):
        yield Case(f"version {version!r}", good, -32009, "A2A-Version: 1.0", headers={"A2A-Version": version})
    large = rpc("SendMessage", message("x" * 11_000_000))
    yield Case("11 MB", large, -32600, "10485760", None, status=413)


def from_the_protocol() -> Iterator[Case]:
    for case in json.loads(INVALID_CASES.read_text()):
        body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
        yield Case(f"spec: {case['name']}", body.encode(), case["expectCode"], id=case["expectId"])


CASES = [
    *not_json(),
    *ambiguous_json(),
    *deep_json(),
    *not_a_request(),
    *bad_params(),
    *wrong_tasks(),
    *wrong_envelopes(),
    *from_the_protocol(),
]


# -- where they are sent ------------------------------------------------------------------------------------------------


class Server(Protocol):
    """Something that answers a body."""

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer: ...


class LivePeer:
    """What a client with `requests` sees."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        named = {name: value.encode() for name, value in {**JSON_HEADERS, **(headers or {})}.items()}
        response = requests.post(self.url, data=body, headers=named, timeout=20)
        return Answer(response.status_code, Headers(list(response.headers.items())), response.content)


class Target:
    """A server with a finished task, one that waits for its client and one that runs, and the file they are in."""

    def __init__(self, server: Server, database: Path) -> None:
        self.server = server
        self.database = database
        finished = self.send("echo one")
        asked = self.send("ask")
        busy = self.result("SendMessage", {**message("wait 600"), "configuration": {"returnImmediately": True}})
        token = self.result("ListTasks", {"pageSize": 1})["nextPageToken"]
        self.words = {
            "FINISHED": finished,
            "ASKED": asked,
            "BUSY": busy["task"]["id"],
            "TOKEN": token,
            "FORGED": forged(token, "\ud800"),
            "OTHER": forged(token, 5),
        }

    def result(self, method: str, params: Any) -> Any:
        return self.server.post(rpc(method, params)).result

    def send(self, text: str) -> str:
        task_id: str = self.result("SendMessage", message(text))["task"]["id"]
        return task_id

    def filled(self, body: bytes) -> bytes:
        for word, value in self.words.items():
            body = body.replace(b'"%s"' % word.encode(), json.dumps(value).encode())
        return body

    def dump(self) -> list[str]:
        """All that is stored, as SQL, but for the heartbeats of the servers."""
        connection = sqlite3.connect(self.database)
        try:
            return [line for line in connection.iterdump() if not line.startswith('INSERT INTO "a2a_workers"')]
        finally:
            connection.close()


def forged(token: str, id: Any) -> str:
    """A page token of the server with another task id in it."""
    moment, _, mark = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps([moment, id, mark]).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module", params=["wsgi", pytest.param("gunicorn", marks=pytest.mark.live)])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    database = tmp_path_factory.mktemp("hostile") / "tasks.db"
    store = f"sqlite:///{database}"
    if request.param == "wsgi":
        with make_app(store) as app:
            yield Target(Peer(app), database)
    else:
        with gunicorn("tests.agents.strict:app", environment={"STRICT_STORE": store}) as server:
            yield Target(LivePeer(server.url), database)
            log = server.log
        assert "Traceback" not in log
        assert "request failed" not in log


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_gets_its_own_error_and_changes_nothing(case: Case, target: Target) -> None:
    before = target.dump()

    answer = target.server.post(target.filled(case.body), case.headers)

    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.status, answer.error["code"], answer.json["id"]) == (case.status, case.code, case.id)
    assert case.names in answer.error["message"]
    assert answer.error["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert len(answer.body) < 1500
    assert target.dump() == before

    good = target.result("GetTask", {"id": target.words["FINISHED"]})
    assert good["status"]["state"] == "TASK_STATE_COMPLETED"


def test_after_all_of_it_the_server_still_works(target: Target) -> None:
    before = target.result("ListTasks", {})["totalSize"]
    task_id = target.words["ASKED"]

    done = target.result("SendMessage", message("large", taskId=task_id))["task"]

    assert (done["id"], done["status"]["state"]) == (task_id, "TASK_STATE_COMPLETED")
    assert target.result("CancelTask", {"id": target.words["BUSY"]})["status"]["state"] == "TASK_STATE_CANCELED"
    assert target.result("ListTasks", {})["totalSize"] == before
