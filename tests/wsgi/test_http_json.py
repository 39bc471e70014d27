"""HTTP+JSON as a caller without a library sees it: paths, verbs, media types, versions, errors and streams."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Limits
from a2a_sync.bindings.routes import Route, routes_of
from a2a_sync.operations import Principal
from a2a_sync.wsgi.options import HTTPOptions
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import CARD, JSON_HEADERS, Answer, OpenAnswer, Peer, message, message_v03, rpc

pytestmark = pytest.mark.timeout(60)

A2A = "application/a2a+json"
PLAIN = "application/json"
V10 = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def app() -> Iterator[A2AApp]:
    with A2AApp(ScenarioAgent(), limits=Limits(disconnect_check_interval=0.05, max_body_bytes=5000)) as app:
        yield app


@pytest.fixture(scope="module")
def peer(app: A2AApp) -> Peer:
    return Peer(app)


def get(peer: Peer, path: str, verb: str = "GET", **headers: str) -> Answer:
    return peer.request(verb, path, headers={**V10, **{key.replace("_", "-"): text for key, text in headers.items()}})


def post(peer: Peer, path: str, value: Any = None, **headers: str) -> Answer:
    body = b"" if value is None else json.dumps(value).encode()
    return peer.post(body, {key.replace("_", "-"): text for key, text in headers.items()}, path=path)


def send(peer: Peer, text: str = "echo hi", prefix: str = "", **members: Any) -> Any:
    answer = post(peer, f"{prefix}/message:send", {**message(text), **members})
    assert answer.status == 200
    return answer.json["task"]


def start(peer: Peer, text: str = "wait") -> str:
    """The id of a task that runs."""
    task_id: str = send(peer, text, configuration={"returnImmediately": True})["id"]
    return task_id


def subscribed(peer: Peer, task_id: str, verb: str = "POST", **headers: str) -> OpenAnswer:
    named = {**V10, **{key.replace("_", "-"): text for key, text in headers.items()}}
    return peer.open(verb, f"/tasks/{task_id}:subscribe", headers=named)


def refusal(answer: Answer, status: int, reason: str) -> str:
    """The message of an error, which is complete."""
    error = answer.json["error"]
    assert (answer.status, error["code"], error["details"][0]["reason"]) == (status, status, reason)
    assert error["details"][0]["domain"] == "a2a-protocol.org"
    text: str = error["message"]
    return text


# -- operations ---------------------------------------------------------------------------------------------------------


def test_where_there_is_nothing_to_say_the_answer_is_an_empty_object() -> None:
    with A2AApp(ScenarioAgent(), push=True) as app:
        peer = Peer(app)
        path = f"/tasks/{send(peer)['id']}/pushNotificationConfigs"
        assert post(peer, path, {"id": "a", "url": "https://hooks.test/a"}).status == 200
        answer = get(peer, f"{path}/a", "DELETE")
        assert (answer.status, answer.json) == (200, {})


def test_a_task_is_sent_got_and_listed(peer: Peer) -> None:
    task = send(peer, "echo Ada")
    assert task["artifacts"][0]["parts"] == [{"text": "echo: Ada"}]

    got = get(peer, f"/tasks/{task['id']}?historyLength=0").json
    listed = get(peer, f"/tasks?contextId={task['contextId']}&includeArtifacts=true&pageSize=5").json

    assert got == peer.call("GetTask", {"id": task["id"], "historyLength": 0}).result
    assert "history" not in got
    assert ([one["id"] for one in listed["tasks"]], listed["totalSize"]) == ([task["id"]], 1)


def test_both_bindings_have_the_same_tasks(peer: Peer) -> None:
    task = peer.call("SendMessage", message()).result["task"]

    assert get(peer, f"/tasks/{task['id']}").json == task


@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
def test_a_task_is_cancelled_with_and_without_a_body(body: bytes, peer: Peer) -> None:
    task_id = start(peer)
    answer = peer.request("POST", f"/tasks/{task_id}:cancel", body, JSON_HEADERS)

    assert answer.json["status"]["state"] == "TASK_STATE_CANCELED"
    again = peer.request("POST", f"/tasks/{task_id}:cancel", body, JSON_HEADERS)
    refusal(again, 400, "TASK_NOT_CANCELABLE")


def test_a_tenant_in_the_path_has_tasks_of_its_own(peer: Peer) -> None:
    task_id = send(peer, prefix="/acme")["id"]

    assert get(peer, f"/acme/tasks/{task_id}").json["id"] == task_id
    assert get(peer, f"/tasks/{task_id}?tenant=acme").json["id"] == task_id
    assert peer.call("GetTask", {"id": task_id, "tenant": "acme"}).result["id"] == task_id
    for path in (f"/tasks/{task_id}", f"/other/tasks/{task_id}", f"/other/tasks/{task_id}?tenant=acme"):
        refusal(get(peer, path), 404, "TASK_NOT_FOUND")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("number", range(len(routes_of("1.0"))))
def test_every_row_of_the_table_is_served(number: int, version: str, peer: Peer) -> None:
    route: Route = routes_of(version)[number]
    path = "/" + route.path.replace("{id}", "none").replace("{taskId}", "none")
    for verb in route.verbs:
        headers = {**JSON_HEADERS, "A2A-Version": version}
        answer = peer.request(verb, path, b"{}" if verb == "POST" else b"", headers)
        assert answer.status != 405
        error = answer.json.get("error", {"details": [{"reason": "INVALID_PARAMS"}]})
        assert error["details"][0]["reason"] in {
            "INVALID_PARAMS",
            "TASK_NOT_FOUND",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
            "UNSUPPORTED_OPERATION",
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        }


def test_the_host_names_the_caller(app: A2AApp) -> None:
    peer = Peer(app)
    body = json.dumps(message()).encode()
    ada = {"a2a_sync.principal": Principal(id="ada")}
    task = peer.post(body, path="/message:send", environ=ada).json["task"]

    assert peer.request("GET", f"/tasks/{task['id']}", headers=V10, environ=ada).status == 200
    refusal(get(peer, f"/tasks/{task['id']}"), 404, "TASK_NOT_FOUND")


# -- paths --------------------------------------------------------------------------------------------------------------


def test_an_encoded_slash_belongs_to_an_id(peer: Peer) -> None:
    refusal(get(peer, "/tasks/a%2Fb"), 404, "TASK_NOT_FOUND")
    assert (
        get(peer, "/tasks/a/b")
        .json["error"]["message"]
        .startswith("there is nothing at '/tasks/a/b'; the card is at /.w")
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"REQUEST_URI": "/agents/x/tasks/a%2Fb:cancel?x=%2F", "SCRIPT_NAME": "/agents/x"},
        {"REQUEST_URI": "http://agent.test/agents/x/tasks/a%2Fb:cancel", "SCRIPT_NAME": "/agents/x"},
        {"REQUEST_URI": "/a%67ents/x/tasks/a%2Fb:cancel", "SCRIPT_NAME": "/agents/x"},
        {"REQUEST_URI": "", "RAW_URI": "/tasks/a%2Fb:cancel"},
        {"REQUEST_URI": "/tasks/a%2Fb:cancel", "SCRIPT_NAME": "/added/by/a/proxy"},
    ],
)
def test_what_was_sent_is_read_wherever_the_app_is_mounted(environ: dict[str, str], peer: Peer) -> None:
    answer = peer.request("POST", "/", b"", V10, {"PATH_INFO": "/tasks/a/b:cancel", **environ})

    refusal(answer, 404, "TASK_NOT_FOUND")


@pytest.mark.parametrize("sent", ["", "/quite/another", "*", "http://agent.test"])
def test_without_what_was_sent_the_decoded_path_has_to_do(sent: str, peer: Peer) -> None:
    known = {"REQUEST_URI": sent, "RAW_URI": sent}

    refusal(peer.request("GET", "/", headers=V10, environ={**known, "PATH_INFO": "/tasks/a b%"}), 404, "TASK_NOT_FOUND")
    assert peer.request("GET", "/", headers=V10, environ={**known, "PATH_INFO": "/tasks/a/b"}).status == 404


def test_a_path_that_is_not_utf_8_is_bad_input(peer: Peer) -> None:
    environ = {"PATH_INFO": "/tasks/\xff", "REQUEST_URI": "/tasks/%ff"}

    assert "id" in refusal(peer.request("GET", "/", headers=V10, environ=environ), 400, "INVALID_PARAMS")


@pytest.mark.parametrize(
    ("path", "verb", "allowed"),
    [
        ("/message:send", "GET", "POST, OPTIONS"),
        ("/tasks", "DELETE", "GET, HEAD, OPTIONS"),
        ("/tasks/x:cancel", "PUT", "POST, OPTIONS"),
        ("/acme/tasks/x:subscribe", "HEAD", "POST, GET, OPTIONS"),
    ],
)
def test_another_verb_gets_the_allowed_ones(path: str, verb: str, allowed: str, peer: Peer) -> None:
    answer = get(peer, path, verb)

    assert (answer.status, answer.headers["Allow"]) == (405, allowed)
    if verb != "HEAD":
        assert refusal(answer, 405, "METHOD_NOT_FOUND") == f"{verb} is not answered here; allowed: {allowed}"


def test_options_names_the_verbs_and_head_has_no_body(peer: Peer) -> None:
    options = get(peer, "/tasks", "OPTIONS")
    assert (options.status, options.body, options.headers["Allow"]) == (204, b"", "GET, HEAD, OPTIONS")
    head, whole = get(peer, "/tasks?pageSize=1", "HEAD"), get(peer, "/tasks?pageSize=1")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", whole.headers["Content-Length"])


def test_the_app_s_other_pages_are_where_they_were(peer: Peer) -> None:
    assert get(peer, CARD).json["name"] == "scenario"
    assert get(peer, "/healthz").status == 200
    assert get(peer, "/readyz").status == 200
    assert peer.post(rpc("ListTasks")).status == 200


def test_an_app_may_serve_one_binding_only() -> None:
    with A2AApp(ScenarioAgent(), protocol_bindings=("JSONRPC",)) as app:
        assert get(Peer(app), "/tasks").json["error"]["message"].startswith("there is nothing at '/tasks'")
    with A2AApp(ScenarioAgent(), protocol_bindings=("HTTP+JSON",)) as app:
        assert get(Peer(app), "/tasks").json["tasks"] == []
        assert Peer(app).post(rpc("ListTasks")).status == 404
    with A2AApp(ScenarioAgent(), protocol_versions=("0.3",)) as app:
        assert get(Peer(app), "/tasks").status == 404
        assert get(Peer(app), "/v1/tasks/none", A2A_Version="0.3").json["code"] == -32001
    with A2AApp(ScenarioAgent(), protocol_versions=("1.0",)) as app:
        # The word has no other meaning here, so it is a tenant like others.
        assert get(Peer(app), "/v1/tasks").json["tasks"] == []


# -- media types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "media_type"),
    [
        ({}, A2A),
        ({"Accept": "*/*"}, A2A),
        ({"Accept": A2A}, A2A),
        ({"Accept": "application/*;q=0.5"}, A2A),
        ({"Accept": PLAIN}, PLAIN),
        ({"Accept": "text/html, Application/JSON;q=0.9"}, PLAIN),
        ({"Content-Type": PLAIN}, PLAIN),
        ({"Content-Type": "application/json; charset=utf-8"}, PLAIN),
        ({"Content-Type": A2A}, A2A),
        ({"Content-Type": A2A, "Accept": PLAIN}, PLAIN),
        ({"Content-Type": PLAIN, "Accept": A2A}, A2A),
        ({"Content-Type": PLAIN, "Accept": "*/*"}, PLAIN),
        ({"Accept": f"{A2A}, {PLAIN}"}, PLAIN),
        ({"Accept": f"{A2A}, {PLAIN};q=0.5"}, A2A),
        ({"Accept": f"{PLAIN};q=0.1, {A2A};q=0.2"}, A2A),
        ({"Accept": f"{PLAIN};q=0, {A2A}"}, A2A),
        ({"Accept": f"{A2A};q=0, */*"}, PLAIN),
        ({"Accept": f"{PLAIN}; charset=utf-8"}, PLAIN),
        ({"Accept": "text/event-stream"}, PLAIN),
        ({"Accept": "Text/Event-Stream;q=0.9, */*;q=0.1"}, PLAIN),
        ({"Accept": f"text/event-stream, {A2A}"}, A2A),
        ({"Accept": f"text/event-stream, {A2A}, {PLAIN}"}, PLAIN),
        ({"Accept": "text/event-stream;q=0, */*"}, A2A),
        ({"Accept": "text/html"}, PLAIN),
        ({"Accept": "text/html, */*;q=0.8"}, A2A),
        ({"Accept": "application/xml, */*;q=0"}, PLAIN),
        ({"Accept": "no media type"}, PLAIN),
    ],
)
def test_the_media_type_is_the_caller_s(headers: dict[str, str], media_type: str, peer: Peer) -> None:
    sent = peer.request("POST", "/message:send", json.dumps(message()).encode(), {**V10, **headers})
    refused = peer.request("POST", "/message:send", b"{}", {**V10, **headers})

    assert (sent.status, sent.headers["Content-Type"]) == (200, media_type)
    assert (refused.status, refused.headers["Content-Type"]) == (400, media_type)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, A2A),
        ("*/*", A2A),
        ("text/event-stream", PLAIN),
        ("text/event-stream, */*", PLAIN),
        (f"text/event-stream, {PLAIN}", PLAIN),
        (f"text/event-stream, {A2A}", A2A),
    ],
)
def test_the_error_of_a_streaming_request_has_a_media_type_that_its_caller_accepts(
    accept: str | None, media_type: str, peer: Peer
) -> None:
    headers = {**V10, "Content-Type": A2A, **({"Accept": accept} if accept else {})}
    refused = [
        (peer.request("POST", "/message:stream", b"{}", headers), 400),
        (peer.request("POST", "/message:stream", b"{", headers), 400),
        (peer.request("POST", "/message:stream", b"", {**headers, "Content-Type": "text/plain"}), 400),
        (peer.request("DELETE", "/message:stream", b"", headers), 405),
        (peer.request("POST", "/tasks/none:subscribe", b"", headers), 404),
        (peer.request("GET", "/tasks/none:subscribe", b"", headers), 404),
    ]

    for answer, status in refused:
        assert (answer.status, answer.headers["Content-Type"]) == (status, media_type)
        assert answer.json["error"]["message"]


def test_a_setting_stands_over_it() -> None:
    with A2AApp(ScenarioAgent(), http=HTTPOptions(response_media_type=PLAIN)) as app:
        assert get(Peer(app), "/tasks", Accept=A2A).headers["Content-Type"] == PLAIN


def test_a_body_that_is_not_json_by_its_own_account_is_refused(peer: Peer) -> None:
    refusal(post(peer, "/message:send", message(), Content_Type="text/plain"), 400, "CONTENT_TYPE_NOT_SUPPORTED")


# -- versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.0.3", " 1.0 "])
def test_the_version_is_named_in_a_header_or_in_the_query(version: str, peer: Peer) -> None:
    assert peer.request("GET", "/tasks", headers={"A2A-Version": version}).status == 200
    assert peer.request("GET", "/tasks?A2A-Version=1.0").status == 200


@pytest.mark.parametrize("version", ["", "0.3", "2.0", "1", "abc"])
def test_another_version_gets_the_header_to_send(version: str, peer: Peer) -> None:
    text = refusal(peer.request("GET", "/tasks", headers={"A2A-Version": version}), 400, "VERSION_NOT_SUPPORTED")

    assert "'A2A-Version: 1.0'" in text


# -- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("pageSize=ten", "pageSize"),
        ("pageSize=0", "pageSize"),
        ("status=busy", "status"),
        ("historyLength=-1", "history"),
    ],
)
def test_a_bad_parameter_is_named(query: str, names: str, peer: Peer) -> None:
    answer = get(peer, "/tasks?" + query)

    assert names in refusal(answer, 400, "INVALID_PARAMS")
    (bad,) = answer.json["error"]["details"][1]["fieldViolations"]
    assert (answer.json["error"]["status"], bad["field"].startswith(names)) == ("INVALID_ARGUMENT", True)


def test_bad_bodies_are_refused_with_their_statuses(peer: Peer) -> None:
    def refused(body: bytes, status: int, reason: str) -> str:
        return refusal(peer.post(body, path="/message:send"), status, reason)

    refused(b"{", 400, "PARSE_ERROR")
    refused(b"[]", 400, "INVALID_REQUEST")
    assert "message" in refused(b"{}", 400, "INVALID_PARAMS")
    assert "5000" in refused(b" " * 5001, 413, "REQUEST_TOO_LARGE")


def test_an_unknown_task_is_not_found(peer: Peer) -> None:
    answer = get(peer, "/tasks/none")

    refusal(answer, 404, "TASK_NOT_FOUND")
    assert answer.json["error"]["status"] == "NOT_FOUND"


def test_a_fault_of_the_server_says_an_id_and_nothing_else() -> None:
    def faulty(endpoint: Any) -> Any:
        def call(call: Any) -> Any:
            raise RuntimeError("secret")

        return call

    with A2AApp(ScenarioAgent(), interceptors=[faulty]) as app:
        text = refusal(get(Peer(app), "/tasks"), 500, "INTERNAL_ERROR")
    assert text.startswith("internal error (id ")


# -- streams ------------------------------------------------------------------------------------------------------------


def test_a_stream_is_bare_events_with_the_numbers_of_the_log(peer: Peer) -> None:
    body = json.dumps(message("count 3")).encode()
    with peer.open("POST", "/message:stream", body, JSON_HEADERS) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        frames = [frame for frame in answer.frames() if frame.field("data")]

    kinds = [next(iter(frame.json)) for frame in frames]
    assert kinds == ["task", "statusUpdate", *["artifactUpdate"] * 4, "statusUpdate"]
    numbers = [frame.id for frame in frames]
    assert None not in numbers
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]


@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_a_subscription_takes_either_verb_and_goes_on_where_it_was_cut(verb: str, peer: Peer) -> None:
    task_id = start(peer)
    with subscribed(peer, task_id, verb) as answer:
        first = next(frame for frame in answer.frames() if frame.field("data"))
    assert first.json["task"]["id"] == task_id

    with subscribed(peer, task_id, verb, Last_Event_ID=str(first.id)) as answer:
        post(peer, f"/tasks/{task_id}:cancel")
        rest = [frame.json for frame in answer.frames() if frame.field("data")]
    assert [next(iter(event)) for event in rest][-1] == "statusUpdate"
    assert "task" not in rest[0]


def test_a_stream_that_is_refused_is_plain_json(peer: Peer) -> None:
    task_id = send(peer)["id"]

    refusal(post(peer, f"/tasks/{task_id}:subscribe", Accept="text/event-stream"), 400, "UNSUPPORTED_OPERATION")
    refusal(get(peer, "/tasks/none:subscribe"), 404, "TASK_NOT_FOUND")


def test_an_error_in_the_middle_of_a_stream_is_an_event_of_its_own() -> None:
    class Failing:
        def poll(self, timeout: float) -> Any:
            raise RuntimeError("secret")

        def close(self) -> None:
            pass

    with A2AApp(ScenarioAgent(), interceptors=[lambda endpoint: lambda call: Failing()]) as app:
        body = json.dumps(message()).encode()
        with Peer(app).open("POST", "/message:stream", body, JSON_HEADERS) as answer:
            (frame,) = [frame for frame in answer.frames() if frame.field("data")]
    assert (frame.field("event"), frame.id) == ("error", None)
    assert frame.json["error"]["details"][0]["reason"] == "INTERNAL_ERROR"
    assert "secret" not in json.dumps(frame.json)


# -- protocol 0.3 -------------------------------------------------------------------------------------------------------


def old(peer: Peer, verb: str, path: str, value: Any = None, **headers: str) -> Answer:
    """What is answered to a client of 0.3, which names no version."""
    body = b"" if value is None else json.dumps(value).encode()
    sent = {"Content-Type": PLAIN} if verb == "POST" else {}
    return peer.request(verb, path, body, {**sent, **{key.replace("_", "-"): text for key, text in headers.items()}})


def said(text: str = "echo hi", **members: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": text}], **members}}


def old_refusal(answer: Answer, status: int, code: int, reason: str) -> str:
    """The message of an error, which has all that the readers of 0.3 look for."""
    assert answer.headers["Content-Type"] == PLAIN
    assert (answer.json["code"], answer.json["message"]) == (code, answer.json["error"]["message"])
    return refusal(answer, status, reason)


def test_in_0_3_a_task_is_sent_got_and_cancelled_in_the_words_of_its_proto(peer: Peer) -> None:
    sent = old(peer, "POST", "/v1/message:send", said("echo Ada"))
    assert (sent.status, sent.headers["Content-Type"]) == (200, PLAIN)
    task = sent.json["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["history"][0]["content"] == [{"text": "echo Ada"}]
    assert old(peer, "GET", f"/v1/tasks/{task['id']}").json == task
    assert len(old(peer, "GET", f"/v1/tasks/{task['id']}?history_length=1").json["history"]) == 1

    configured = {**said("wait"), "configuration": {"acceptedOutputModes": ["text/plain"]}}
    task_id = old(peer, "POST", "/v1/message:send", configured).json["task"]["id"]
    cancelled = old(peer, "POST", f"/v1/tasks/{task_id}:cancel", {"name": f"tasks/{task_id}"}).json
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELLED"
    again = old(peer, "POST", f"/v1/tasks/{task_id}:cancel")
    old_refusal(again, 400, -32002, "TASK_NOT_CANCELABLE")


def test_a_body_in_the_other_dialect_of_0_3_is_answered_in_this_one(peer: Peer) -> None:
    answer = old(peer, "POST", "/v1/message:send", message_v03("echo Ada"))

    assert answer.json["task"]["history"][0]["role"] == "ROLE_USER"


@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_in_0_3_streams_have_the_numbers_of_the_log_and_an_end(verb: str, peer: Peer) -> None:
    body = json.dumps(said("wait")).encode()
    with peer.open("POST", "/v1/message:stream", body, {"Content-Type": PLAIN}) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        frames = (frame for frame in answer.frames() if frame.field("data"))
        first = next(frames)
        task_id = first.json["task"]["id"]
        with peer.open(verb, f"/v1/tasks/{task_id}:subscribe", headers={"Last-Event-ID": str(first.id)}) as other:
            old(peer, "POST", f"/v1/tasks/{task_id}:cancel")
            followed = [(frame.id, frame.json) for frame in other.frames() if frame.field("data")]
        rest = [(frame.id, frame.json) for frame in frames]
    assert followed == rest
    assert [event["statusUpdate"].get("final", False) for _, event in rest] == [*[False] * (len(rest) - 1), True]


def test_in_0_3_webhooks_are_set_listed_and_deleted() -> None:
    with A2AApp(ScenarioAgent(), push=True) as app:
        peer = Peer(app)
        task_id = old(peer, "POST", "/v1/message:send", said()).json["task"]["id"]
        path = f"/v1/tasks/{task_id}/pushNotificationConfigs"
        hook = {"url": "https://hooks.example.com/a", "token": "t"}
        set = old(peer, "POST", path, {"parent": f"tasks/{task_id}", "configId": "a", "config": config_of(hook)})
        name = f"tasks/{task_id}/pushNotificationConfigs/a"
        assert set.json == {"name": name, "pushNotificationConfig": {"id": "a", **hook}}
        assert old(peer, "GET", f"{path}/a").json == set.json
        assert old(peer, "GET", path).json == {"configs": [set.json]}
        assert old(peer, "DELETE", f"{path}/a").status == 200
        old_refusal(old(peer, "GET", f"{path}/a"), 404, -32001, "TASK_NOT_FOUND")


def config_of(hook: dict[str, Any]) -> dict[str, Any]:
    return {"pushNotificationConfig": hook}


def test_tasks_are_listed_in_0_3_in_the_words_of_its_proto(peer: Peer) -> None:
    context_id = "listed-in-0.3"
    tasks = [old(peer, "POST", "/v1/message:send", said(contextId=context_id)).json["task"]]
    tasks.append(old(peer, "POST", "/v1/message:send", said("ask", contextId=context_id)).json["task"])
    where = f"/v1/tasks?contextId={context_id}"

    first = old(peer, "GET", f"{where}&pageSize=1&historyLength=0")
    rest = old(peer, "GET", f"{where}&page_size=1&pageToken={first.json['nextPageToken']}&includeArtifacts=true")
    waiting = old(peer, "GET", f"{where}&status=TASK_STATE_INPUT_REQUIRED")
    later = old(peer, "GET", f"{where}&statusTimestampAfter=2100-01-01T00:00:00Z")

    assert (first.status, first.headers["Content-Type"]) == (200, PLAIN)
    assert [first.json["totalSize"], first.json["pageSize"], rest.json["nextPageToken"]] == [2, 1, ""]
    found = [*first.json["tasks"], *rest.json["tasks"]]
    assert [one["id"] for one in found] == [task["id"] for task in reversed(tasks)]
    assert {"artifacts", "history"}.isdisjoint(found[0])
    assert (found[1]["status"], found[1]["artifacts"]) == (tasks[0]["status"], tasks[0]["artifacts"])
    assert found[1]["history"][0]["role"] == "ROLE_USER"
    assert [one["id"] for one in waiting.json["tasks"]] == [tasks[1]["id"]]
    assert later.json["tasks"] == []


def test_a_bad_parameter_of_a_list_in_0_3_is_named(peer: Peer) -> None:
    for query, name in (("pageSize=x", "pageSize"), ("status=done", "status"), ("pageToken=x", "pageToken")):
        assert name in old_refusal(old(peer, "GET", f"/v1/tasks?{query}"), 400, -32602, "INVALID_PARAMS")


@pytest.mark.parametrize("version", ["1.0", "2.0", "x"])
def test_a_path_of_0_3_is_of_no_other_version_and_of_no_tenant(version: str, peer: Peer) -> None:
    for path in ("/v1/tasks/none", "/v1/tasks"):
        answer = old(peer, "GET", path, A2A_Version=version)
        assert "'A2A-Version: 0.3'" in old_refusal(answer, 400, -32009, "VERSION_NOT_SUPPORTED")
    assert old(peer, "GET", "/v%31/tasks", A2A_Version="1.0").status == 404
    # Elsewhere than in front of a path the word has no other meaning.
    assert get(peer, "/tasks?tenant=v1").json["tasks"] == []


@pytest.mark.parametrize("version", ["", "0.3", "0.3.0"])
def test_a_client_of_0_3_may_name_its_version(version: str, peer: Peer) -> None:
    old_refusal(old(peer, "GET", "/v1/tasks/none", A2A_Version=version), 404, -32001, "TASK_NOT_FOUND")


def test_a_refusal_in_0_3_names_the_member_as_it_was_sent(peer: Peer) -> None:
    answer = old(peer, "POST", "/v1/message:send", said(content=[{"file": {"fileWithBytes": "?"}}]))

    text = old_refusal(answer, 400, -32602, "INVALID_PARAMS")
    assert text == "message.content[0].file.fileWithBytes: is not base64"
    assert "message" in old_refusal(old(peer, "POST", "/v1/message:send", {}), 400, -32602, "INVALID_PARAMS")
    environ = {"PATH_INFO": "/v1/tasks/\xff", "REQUEST_URI": "/v1/tasks/%ff"}
    assert "id" in old_refusal(peer.request("GET", "/", environ=environ), 400, -32602, "INVALID_PARAMS")


def test_a_path_of_0_3_that_is_unknown_is_an_error_for_its_readers(peer: Peer) -> None:
    old_refusal(old(peer, "GET", "/v1/nothing"), 404, -32601, "METHOD_NOT_FOUND")


def test_a_wrong_verb_in_0_3_gets_the_allowed_ones(peer: Peer) -> None:
    answer = old(peer, "GET", "/v1/message:send")

    old_refusal(answer, 405, -32601, "METHOD_NOT_FOUND")
    assert answer.headers["Allow"] == "POST, OPTIONS"


def test_a_setting_of_media_types_is_for_1_0() -> None:
    with A2AApp(ScenarioAgent(), http=HTTPOptions(response_media_type=A2A)) as app:
        assert old(Peer(app), "GET", "/v1/tasks/none").headers["Content-Type"] == PLAIN


RAW = b"\0\xff of 8 b"
ONCE = base64.b64encode(RAW).decode()
TWICE = base64.b64encode(ONCE.encode()).decode()
#: The official Python client of 0.3 sends the user agent of its HTTP library.
OFFICIAL = "python-httpx/0.28.1"


def sent_files(peer: Peer, *files: str, agent: str) -> Any:
    """The task of a send with `files`, as they are in JSON; its artifact is the content of all of them."""
    content = [{"text": "file"}, *({"file": {"fileWithBytes": one}} for one in files)]
    answer = old(peer, "POST", "/v1/message:send", said(content=content), User_Agent=agent)
    assert answer.status == 200, answer.json
    return answer.json["task"]


def copy_in(task: Any) -> str:
    file: str = task["artifacts"][0]["parts"][0]["file"]["fileWithBytes"]
    return file


def stored(peer: Peer, task: Any) -> bytes:
    """The content that the agent was given."""
    return base64.b64decode(peer.call("GetTask", {"id": task["id"]}).result["artifacts"][0]["parts"][0]["raw"])


def test_the_official_python_client_of_0_3_which_encodes_files_twice_is_served_by_default(peer: Peer) -> None:
    task = sent_files(peer, TWICE, agent=OFFICIAL)
    assert stored(peer, task) == RAW
    assert [part["file"]["fileWithBytes"] for part in task["history"][0]["content"][1:]] == [TWICE]

    again = [old(peer, "GET", f"/v1/tasks/{task['id']}", User_Agent=agent).json for agent in (OFFICIAL, "node")]
    listed = old(peer, "GET", f"/v1/tasks?contextId={task['contextId']}&includeArtifacts=true", User_Agent=OFFICIAL)
    assert [copy_in(one) for one in (task, *again, *listed.json["tasks"])] == [TWICE, TWICE, ONCE, TWICE]

    body = json.dumps(said(content=[{"text": "file"}, {"file": {"fileWithBytes": TWICE}}])).encode()
    with peer.open("POST", "/v1/message:stream", body, {"User-Agent": OFFICIAL}) as answer:
        frames = [str(frame.lines) for frame in answer.frames()]
    assert sum(TWICE in frame for frame in frames) >= 2
    assert not any(ONCE in frame for frame in frames)


@pytest.mark.parametrize(
    ("files", "agent"),
    [
        ([ONCE], OFFICIAL),
        ([TWICE, ONCE], OFFICIAL),
        ([base64.b64encode(b"YQ").decode()], OFFICIAL),
        ([base64.b64encode(b"a-_8").decode()], OFFICIAL),
        ([TWICE], "node"),
        ([TWICE], ""),
        ([TWICE], f"other {OFFICIAL}"),
    ],
)
def test_files_are_decoded_once_unless_the_caller_is_known_and_all_of_them_decode_twice(
    files: list[str], agent: str, peer: Peer
) -> None:
    task = sent_files(peer, *files, agent=agent)

    raw = b"".join(base64.b64decode(one) for one in files)
    assert stored(peer, task) == raw
    assert copy_in(task) == base64.b64encode(raw).decode()


def test_in_1_0_and_over_json_rpc_files_of_the_same_caller_are_decoded_once(peer: Peer) -> None:
    parts = [{"text": "file"}, {"raw": TWICE}]
    body = {**message(), "message": {**message()["message"], "parts": parts}}
    rest = post(peer, "/message:send", body, User_Agent=OFFICIAL, A2A_Version="1.0").json["task"]
    assert rest["artifacts"][0]["parts"][0]["raw"] == TWICE

    kinds = [{"kind": "text", "text": "file"}, {"kind": "file", "file": {"bytes": TWICE}}]
    params = {"message": {**message_v03("file")["message"], "parts": kinds}}
    headers = {"User-Agent": OFFICIAL, "Content-Type": PLAIN}
    answer = peer.request("POST", "/", rpc("message/send", params), headers).json["result"]
    assert answer["artifacts"][0]["parts"][0]["file"]["bytes"] == TWICE


def test_a_function_says_which_callers_encode_files_twice_in_place_of_the_known_ones() -> None:
    with A2AApp(
        ScenarioAgent(), http=HTTPOptions(double_base64_clients=lambda headers: headers.get("user-agent") == "mine")
    ) as app:
        peer = Peer(app)
        mine, official = (sent_files(peer, TWICE, agent=agent) for agent in ("mine", OFFICIAL))
        assert (stored(peer, mine), copy_in(mine)) == (RAW, TWICE)
        assert (stored(peer, official), copy_in(official)) == (ONCE.encode(), TWICE)
        content = [{"text": "file"}, {"file": {"fileWithBytes": base64.b64encode(b"\xff").decode()}}]
        text = old_refusal(
            old(peer, "POST", "/v1/message:send", said(content=content), User_Agent="mine"),
            400,
            -32602,
            "INVALID_PARAMS",
        )
        assert "encoded twice" in text
