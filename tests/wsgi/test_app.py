"""The WSGI application: paths, methods, bodies, versions, ids and errors, as any HTTP client meets them."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, DataPart, Limits, MemoryStore, Message, RequestContext
from a2a_sync.card import AgentCapabilities
from a2a_sync.errors import StoreError
from a2a_sync.operations import OPERATIONS
from a2a_sync.stores.base import Owner, TaskQuery
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import CARD, Answer, CountingInput, Peer, message, rpc

pytestmark = pytest.mark.timeout(60)

MakePeer = Callable[..., Peer]


@pytest.fixture
def make_peer() -> Iterator[MakePeer]:
    """Builds apps over the scenario agent, and closes them in the end."""
    apps: list[A2AApp] = []

    def make(agent: Any = None, limits: Limits | None = None, **options: Any) -> Peer:
        app = A2AApp(agent or ScenarioAgent(), limits=limits or Limits(disconnect_check_interval=0.05), **options)
        apps.append(app)
        return Peer(app)

    yield make
    for app in apps:
        app.close(0)


@pytest.fixture
def peer(make_peer: MakePeer) -> Peer:
    return make_peer()


def code(answer: Answer) -> int:
    number: int = answer.error["code"]
    return number


def tasks(store: MemoryStore) -> int:
    return store.list(Owner(), TaskQuery()).total


# -- paths and methods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/"])
def test_the_endpoint_answers_with_and_without_its_slash(path: str, peer: Peer) -> None:
    answer = peer.post(rpc("ListTasks"), environ={"PATH_INFO": path, "SCRIPT_NAME": "/a2a"})

    assert answer.status == 200
    assert answer.result == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert answer.headers["Content-Type"] == "application/json"
    assert int(answer.headers["Content-Length"]) == len(answer.body)


@pytest.mark.parametrize("path", ["/x", "/.well-known", CARD + "/", "//", "/\0", "/message:sent", "/a/../b", "/Ã©"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_without_anything_gets_the_path_of_the_card(method: str, path: str, peer: Peer) -> None:
    answer = peer.request(method, environ={"PATH_INFO": path})

    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/json"
    error = answer.json["error"]
    assert (error["code"], error["status"], error["details"][0]["reason"]) == (404, "NOT_FOUND", "METHOD_NOT_FOUND")
    assert CARD in error["message"]


@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [("/", ["GET", "PUT", "PATCH", "DELETE"], "POST, OPTIONS"), (CARD, ["POST", "DELETE"], "GET, HEAD, OPTIONS")],
)
def test_another_method_gets_the_allowed_methods(path: str, methods: list[str], allowed: str, peer: Peer) -> None:
    for method in methods:
        answer = peer.request(method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json["error"] == {
            "code": 405,
            "message": f"{method} is not answered here; allowed: {allowed}",
        }


@pytest.mark.parametrize(("path", "status"), [("/", 405), ("/x", 404), (CARD, 200)])
def test_head_never_has_a_body(path: str, status: int, peer: Peer) -> None:
    answer = peer.request("HEAD", path)

    assert (answer.status, answer.body) == (status, b"")


@pytest.mark.parametrize(("path", "allowed"), [("/", "POST, OPTIONS"), (CARD, "GET, HEAD, OPTIONS")])
def test_options_names_the_methods_and_nothing_else(path: str, allowed: str, peer: Peer) -> None:
    answer = peer.request("OPTIONS", path)

    assert (answer.status, answer.body, answer.headers["Allow"]) == (204, b"", allowed)


# -- content types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/a2a+json",
        "application/vnd.example+json;v=1",
        "",
        ";;;",
    ],
)
def test_json_under_any_of_its_names_is_read(content_type: str, peer: Peer) -> None:
    assert peer.call("ListTasks", headers={"Content-Type": content_type}).result["totalSize"] == 0


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "jsonish"],
)
def test_another_content_type_is_refused_unread(content_type: str, peer: Peer) -> None:
    body = CountingInput(rpc("ListTasks"))
    answer = peer.call("ListTasks", headers={"Content-Type": content_type}, environ={"wsgi.input": body})

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32005, None)
    assert "application/json" in answer.error["message"]
    assert body.pulled == 0


def test_an_announced_charset_changes_nothing(peer: Peer) -> None:
    answer = peer.post(rpc("ListTasks").decode().encode("utf-16"), {"Content-Type": "application/json; charset=utf-16"})

    assert code(answer) == -32700


# -- bodies -------------------------------------------------------------------------------------------------------------

LIMIT = 2000


def padded(size: int) -> bytes:
    """A call of `size` bytes."""
    body = rpc("ListTasks")
    return body + b" " * (size - len(body))


@pytest.fixture
def limited(make_peer: MakePeer) -> Peer:
    return make_peer(limits=Limits(max_body_bytes=LIMIT))


def chunked(body: io.BytesIO, **more: Any) -> dict[str, Any]:
    """The environ of a body that comes in chunks; the server says that it ends it."""
    return {"wsgi.input": body, "CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked", **more}


def test_a_body_as_large_as_may_be_is_read(limited: Peer) -> None:
    assert limited.post(padded(LIMIT)).result["totalSize"] == 0


def test_a_larger_body_is_refused_unread(limited: Peer) -> None:
    body = CountingInput(padded(LIMIT + 1))
    answer = limited.post(body.getvalue(), environ={"wsgi.input": body})

    assert (answer.status, code(answer), answer.json["id"]) == (413, -32600, None)
    assert str(LIMIT) in answer.error["message"]
    assert answer.error["data"][0]["reason"] == "REQUEST_TOO_LARGE"
    assert body.pulled == 0


def test_a_chunked_body_is_read(limited: Peer) -> None:
    body = CountingInput(padded(LIMIT))

    assert limited.post(b"", environ=chunked(body, **{"wsgi.input_terminated": True})).result["totalSize"] == 0


def test_a_chunked_body_is_read_up_to_the_limit_and_no_further(make_peer: MakePeer) -> None:
    limited = make_peer(limits=Limits(max_body_bytes=300_000))
    body = CountingInput(padded(5_000_000))
    answer = limited.post(b"", environ=chunked(body, **{"wsgi.input_terminated": True}))

    assert (answer.status, code(answer), answer.json["id"]) == (413, -32600, None)
    assert body.pulled <= 300_000 + 65_536


def test_a_chunked_body_that_the_server_does_not_end_is_not_read(limited: Peer) -> None:
    body = CountingInput(padded(LIMIT))
    answer = limited.post(b"", environ=chunked(body))

    assert (code(answer), body.pulled) == (-32700, 0)


@pytest.mark.parametrize("announced", ["20", "5000", "-5", "abc", "0", "1e3", ""])
def test_an_announced_length_that_is_a_lie_is_bad_input(announced: str) -> None:
    body = CountingInput(padded(100))
    answer = Peer(A2AApp(ScenarioAgent()), valid=False).post(
        b"", environ={"wsgi.input": body, "CONTENT_LENGTH": announced}
    )

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32700, None)
    assert body.pulled <= 100


class Broken(io.BytesIO):
    """A body that breaks off the way servers say it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(b"{")
        self.error = error

    def read(self, size: int | None = -1, /) -> bytes:
        raise self.error


@pytest.mark.parametrize("error", [OSError("secret"), TimeoutError(), ValueError("secret"), EOFError()])
@pytest.mark.parametrize("terminated", [True, False])
def test_a_body_that_breaks_off_is_bad_input(error: Exception, terminated: bool, peer: Peer) -> None:
    environ = {"wsgi.input": Broken(error), "CONTENT_LENGTH": "100"}
    answer = peer.post(b"", environ={**environ, "wsgi.input_terminated": True} if terminated else environ)

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32700, None)
    assert "secret" not in answer.body.decode()


# -- ids and envelopes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["a", "", 'é\u2028"', "1", 7, 0, -1, 2**70, None])
def test_an_id_comes_back_as_it_was(id: Any, peer: Peer) -> None:
    for answer in (peer.call("ListTasks", id=id), peer.call("GetTask", {}, id=id), peer.call("Nope", id=id)):
        assert answer.json["jsonrpc"] == "2.0"
        assert answer.json["id"] == id
        assert type(answer.json["id"]) is type(id)


def test_a_missing_id_is_answered_under_null(peer: Peer) -> None:
    answer = peer.post(b'{"jsonrpc": "2.0", "method": "ListTasks"}')

    assert (answer.json["id"], answer.result["totalSize"]) == (None, 0)


@pytest.mark.parametrize("id", ["1.5", "1.0", "1e2", "true", "[]", "{}"])
def test_an_id_of_another_type_is_no_request(id: str, peer: Peer) -> None:
    answer = peer.post(b'{"jsonrpc": "2.0", "id": %s, "method": "ListTasks"}' % id.encode())

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32600, None)
    assert "id" in answer.error["message"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_batch_is_refused_as_a_whole(count: int, peer: Peer) -> None:
    answer = peer.post(b"[%s]" % b",".join([rpc("SendMessage", message())] * count))

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32600, None)
    assert "Batches" in answer.error["message"]
    assert peer.call("ListTasks").result["totalSize"] == 0


@pytest.mark.parametrize("params", [b"", b', "params": null', b', "params": {}'])
def test_params_may_be_left_out_where_nothing_is_required(params: bytes, peer: Peer) -> None:
    answer = peer.post(b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"%s}' % params)

    assert answer.result["totalSize"] == 0


def test_every_operation_has_its_method(peer: Peer) -> None:
    for method in OPERATIONS:
        assert peer.call(method, {}).json.get("error", {}).get("code") != -32601


# -- errors -------------------------------------------------------------------------------------------------------------


def finished(peer: Peer) -> str:
    task_id: str = peer.call("SendMessage", message()).result["task"]["id"]
    return task_id


ERRORS: list[tuple[int, str, str, Any]] = [
    (-32600, "INVALID_REQUEST", "", None),
    (-32601, "METHOD_NOT_FOUND", "Nope", {}),
    (-32602, "INVALID_PARAMS", "GetTask", {}),
    (-32001, "TASK_NOT_FOUND", "GetTask", {"id": "nope"}),
    (-32002, "TASK_NOT_CANCELABLE", "CancelTask", {"id": "{finished}"}),
    (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", "ListTaskPushNotificationConfigs", {"taskId": "nope"}),
    (-32004, "UNSUPPORTED_OPERATION", "SubscribeToTask", {"id": "{finished}"}),
    (-32004, "UNSUPPORTED_OPERATION", "GetExtendedAgentCard", {}),
]


@pytest.mark.parametrize(("expected", "reason", "method", "params"), ERRORS)
def test_every_error_has_its_code_its_reason_and_the_id(
    expected: int, reason: str, method: str, params: Any, peer: Peer
) -> None:
    if params and params.get("id") == "{finished}":
        params = {"id": finished(peer)}
    answer = peer.call(method, params, id="the-id")

    assert (answer.status, code(answer), answer.json["id"]) == (200, expected, "the-id")
    assert answer.headers["Content-Type"] == "application/json"
    info, *details = answer.error["data"]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == (reason, "a2a-protocol.org")
    assert all(isinstance(value, str) for value in info.get("metadata", {}).values())
    assert all(detail["@type"].startswith("type.googleapis.com/google.rpc.") for detail in details)


def test_a_bad_member_is_named_in_the_message_and_in_the_details(peer: Peer) -> None:
    params = message()
    params["message"]["parts"].append({"text": 5})
    answer = peer.call("SendMessage", params)

    assert code(answer) == -32602
    assert answer.error["message"] == "message.parts[1].text: expected a string, got a number"
    assert answer.error["data"][1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts[1].text", "description": "expected a string, got a number"}],
    }


class Failing(MemoryStore):
    """A store that cannot be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def list(self, scope: Owner, query: TaskQuery) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("secret"), StoreError("secret"), KeyError("secret"), OSError("secret")])
def test_a_fault_of_the_server_says_nothing_but_an_id_that_the_log_explains(
    error: Exception, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="a2a_sync"):
        answer = make_peer(store=Failing(error)).call("ListTasks", id=5)

    assert (answer.status, code(answer), answer.json["id"]) == (200, -32603, 5)
    assert "secret" not in answer.body.decode()
    incident = re.search(r"\(id (\w+)\)", answer.error["message"])
    assert incident
    assert incident.group(1) in caplog.text
    assert "secret" in caplog.text
    assert "Traceback" in caplog.text


def test_an_answer_that_json_cannot_say_is_a_fault_that_leaks_nothing(
    make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent("nan", description="Not a number")

    @agent.message
    def answer_nan(message: Message, context: RequestContext) -> DataPart:
        return DataPart({"secret": float("nan")})

    with caplog.at_level(logging.ERROR, logger="a2a_sync"):
        answer = make_peer(agent).call("SendMessage", message())

    assert answer.status == 200
    assert "secret" not in answer.body.decode()
    assert "internal error (id " in answer.body.decode()


def test_what_a_handler_raises_stays_in_the_log(make_peer: MakePeer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="a2a_sync"):
        answer = make_peer().call("SendMessage", message("fail"))

    assert answer.result["task"]["status"]["state"] == "TASK_STATE_FAILED"
    assert "secret" not in answer.body.decode()
    assert "secret-in-the-exception" in caplog.text


# -- capacity -----------------------------------------------------------------------------------------------------------


def assert_overloaded(answer: Answer) -> None:
    assert (answer.status, code(answer), answer.json["id"]) == (429, -32000, "busy")
    assert int(answer.headers["Retry-After"]) >= 1
    info, retry = answer.error["data"]
    assert info["reason"] == "RESOURCE_EXHAUSTED"
    assert retry == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a_run_too_many_is_refused_and_leaves_no_trace(method: str, make_peer: MakePeer) -> None:
    store = MemoryStore()
    peer = make_peer(
        limits=Limits(max_concurrent_runs=1, max_queued_runs=0, disconnect_check_interval=0.05), store=store
    )
    at_once = {"configuration": {"returnImmediately": True}}
    running = peer.call("SendMessage", {**message("wait"), **at_once}).result["task"]["id"]

    assert_overloaded(peer.call(method, message(), id="busy"))
    assert tasks(store) == 1

    assert peer.call("CancelTask", {"id": running}).result["status"]["state"] == "TASK_STATE_CANCELED"


def test_a_freed_place_is_taken_by_the_next_run(make_peer: MakePeer) -> None:
    peer = make_peer(limits=Limits(max_concurrent_runs=1, max_queued_runs=1, disconnect_check_interval=0.05))
    running = peer.call("SendMessage", {**message("wait"), "configuration": {"returnImmediately": True}}).result
    answers: list[Answer] = []
    waiting = threading.Thread(target=lambda: answers.append(peer.call("SendMessage", message())))
    waiting.start()

    peer.call("CancelTask", {"id": running["task"]["id"]})
    waiting.join(60)

    assert [answer.result["task"]["status"]["state"] for answer in answers] == ["TASK_STATE_COMPLETED"]


def test_a_closed_app_takes_no_more_work_and_still_returns_its_tasks() -> None:
    store = MemoryStore()
    app = A2AApp(ScenarioAgent(), store=store)
    peer = Peer(app)
    task_id = finished(peer)
    app.close(0)
    app.close(0)

    assert_overloaded(peer.call("SendMessage", message(), id="busy"))
    assert peer.call("GetTask", {"id": task_id}).result["status"]["state"] == "TASK_STATE_COMPLETED"
    assert tasks(store) == 1


def test_a_blocking_send_whose_client_left_frees_its_thread_and_the_task_goes_on(make_peer: MakePeer) -> None:
    store = MemoryStore()
    peer = make_peer(store=store)
    answer = peer.call("SendMessage", message("wait"), environ={"waitress.client_disconnected": lambda: True})

    assert answer.status == 429
    (task,) = store.list(Owner(), TaskQuery()).tasks
    assert task.state == "working"


# -- building -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [("0.2",), ("1.0", "9.9"), ()])
def test_an_app_with_a_version_that_is_not_spoken_cannot_be_built(versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="version"):
        A2AApp(ScenarioAgent(), protocol_versions=versions)


@pytest.mark.parametrize(
    ("bindings", "versions"),
    [(("GRPC",), ("1.0",)), ((), ("1.0",)), (("HTTP+JSON", "GRPC"), ("0.3",)), ("JSONRPC", ("1.0",))],
)
def test_an_app_without_a_binding_that_it_can_serve_cannot_be_built(bindings: Any, versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"binding|nothing is left to serve"):
        A2AApp(ScenarioAgent(), protocol_bindings=bindings, protocol_versions=versions)


@pytest.mark.parametrize("store", ["mysql://x", "sqlite://", 7])
def test_an_app_with_a_store_that_is_not_known_cannot_be_built(store: Any) -> None:
    with pytest.raises(ValueError, match="store"):
        A2AApp(ScenarioAgent(), store=store)


def test_what_push_takes_is_said_where_it_is_something_else() -> None:
    with pytest.raises(TypeError, match=r"push takes True, False or PushOptions\(…\), not a str"):
        A2AApp(ScenarioAgent(), push="https://hooks.example.com/")


def test_an_app_whose_card_says_so_does_not_stream() -> None:
    agent = ScenarioAgent()
    card = replace(agent.describe(), capabilities=AgentCapabilities(streaming=False))
    with A2AApp(agent, card=card, extended_card=agent.describe()) as app:
        peer = Peer(app)

        assert peer.request("GET", CARD).json["capabilities"]["streaming"] is False
        assert peer.call("GetExtendedAgentCard").result["capabilities"]["streaming"] is False
        for method, params in (("SendStreamingMessage", message()), ("SubscribeToTask", {"id": "any"})):
            assert peer.call(method, params).error["code"] == -32004
        assert peer.call("SendMessage", message()).result["task"]["artifacts"]


def test_an_executor_needs_a_card() -> None:
    class Executor:
        def execute(self, context: RequestContext) -> None: ...

    with pytest.raises(TypeError, match="card="):
        A2AApp(Executor())


def test_building_and_closing_an_app_starts_no_thread() -> None:
    before = set(threading.enumerate())
    with A2AApp(ScenarioAgent()) as app:
        assert Peer(app).request("GET", CARD).status == 200
    assert set(threading.enumerate()) <= before


def test_the_errors_of_http_are_json_for_every_method(peer: Peer) -> None:
    for method, path in (("GET", "/"), ("POST", CARD)):
        answer = peer.request(method, path)
        assert set(json.loads(answer.body)["error"]) == {"code", "message"}
