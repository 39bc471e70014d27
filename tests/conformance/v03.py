"""Section G: protocol 0.3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import G, Level, Way
from tests.conformance.system import Speaker, message_v03, new_name
from tests.conformance.wire import NAMES, Reply
from tests.engine import eventually

_INVALID = Path(__file__).parent.parent / "spec" / "v0_3-invalid-cases.json"
CARD_PATH = "/.well-known/agent-card.json"
_STATES = {
    "submitted",
    "working",
    "input-required",
    "completed",
    "canceled",
    "failed",
    "rejected",
    "auth-required",
    "unknown",
}


def send(at: Speaker, text: str, *parts: Any, **members: Any) -> Reply:
    """message/send."""
    return at.ask("SendMessage", message_v03(text, *parts, **members))


def task(at: Speaker, text: str, *parts: Any, **members: Any) -> dict[str, Any]:
    """The task in the response to message/send."""
    result: dict[str, Any] = send(at, text, *parts, **members).result
    assert result["kind"] == "task", result
    return result


def begin(at: Speaker, text: str) -> str:
    """The id of a running task."""
    id: str = task(at, text, configuration={"blocking": False})["id"]
    return id


def release(at: Speaker, gate: str) -> None:
    """Release the runs that hold at `gate`."""
    send(at, f"release {gate}")


def parts_of(found: dict[str, Any]) -> list[Any]:
    """All parts of a task's artifacts."""
    return [part for artifact in found.get("artifacts", ()) for part in artifact["parts"]]


def code(reply: Reply) -> int:
    number: int = reply.error["code"]
    return number


def assert_is_message(value: dict[str, Any]) -> None:
    assert value["kind"] == "message"
    assert value["messageId"]
    assert value["role"] in ("user", "agent")
    for part in value["parts"]:
        assert_is_part(part)


def assert_is_part(part: dict[str, Any]) -> None:
    """Assert the requirements of the schema."""
    contents = {"text": str, "file": dict, "data": dict}
    assert isinstance(part[part["kind"]], contents[part["kind"]])
    assert part.keys() <= {"kind", part["kind"], "metadata"}
    if part["kind"] == "file":
        assert len({"bytes", "uri"} & part["file"].keys()) == 1
        assert part["file"].keys() <= {"bytes", "uri", "name", "mimeType"}


def assert_is_task(value: dict[str, Any]) -> None:
    assert value["kind"] == "task"
    assert value["id"]
    assert value["contextId"]
    assert_is_status(value["status"])
    for turn in value.get("history", ()):
        assert_is_message(turn)
    for artifact in value.get("artifacts", ()):
        assert_is_artifact(artifact)


def assert_is_status(value: dict[str, Any]) -> None:
    assert value["state"] in _STATES
    if "message" in value:
        assert_is_message(value["message"])


def assert_is_artifact(value: dict[str, Any]) -> None:
    assert value["artifactId"]
    assert "kind" not in value
    for part in value["parts"]:
        assert_is_part(part)


def assert_is_event(value: dict[str, Any]) -> None:
    """Assert that this is a task, a message, or an event with its kind and required members."""
    kind = value["kind"]
    if kind in ("task", "message"):
        {"task": assert_is_task, "message": assert_is_message}[kind](value)
        return
    assert value["taskId"]
    assert value["contextId"]
    if kind == "status-update":
        assert isinstance(value["final"], bool)
        assert_is_status(value["status"])
    else:
        assert kind == "artifact-update"
        assert_is_artifact(value["artifact"])


# -- the card -----------------------------------------------------------------------------------------------------------


def card(at: Speaker, **headers: str) -> dict[str, Any]:
    """The card for a client of 0.3."""
    reply = at.exchange("GET", CARD_PATH, b"", headers)
    assert (reply.status, reply.media_type) == (200, "application/json")
    found: dict[str, Any] = reply.json
    return found


@G.line("V03-CARD-01", Level.MUST, "the card has all required members")
def the_card_is_complete(at: Speaker) -> None:
    for one in (card(at), card(at, **{"A2A-Version": "0.3"}), card(at.on("old"))):
        assert one["protocolVersion"].startswith("0.3")
        for name in ("name", "description", "url", "version"):
            assert isinstance(one[name], str)
        assert isinstance(one["capabilities"], dict)
        assert one["defaultInputModes"]
        assert one["defaultOutputModes"]
        assert all({"id", "name", "description", "tags"} <= skill.keys() for skill in one["skills"])
        assert one["skills"]


@G.line("V03-CARD-02", Level.MUST, "the preferred transport is declared and served at the card's URL")
def the_preferred_transport_is_spoken(at: Speaker) -> None:
    one = card(at)
    assert one["preferredTransport"] == "JSONRPC"
    assert_is_task(at.at_url(one["url"]).ask("SendMessage", message_v03("echo")).result)


@G.line("V03-CARD-04", Level.SHOULD, "the preferred transport is repeated among the others")
def the_preferred_transport_is_repeated(at: Speaker) -> None:
    one = card(at)
    assert {"url": one["url"], "transport": one["preferredTransport"]} in one["additionalInterfaces"]


@G.line("V03-CARD-05", Level.MUST_NOT, "a URL has no conflicting transports")
def addresses_do_not_conflict(at: Speaker) -> None:
    one, id = card(at), task(at, "echo")["id"]
    for interface in one["additionalInterfaces"]:
        if (interface["url"], interface["transport"]) != (one["url"], one["preferredTransport"]):
            # Both transports have the same URL, which the specification allows.
            rest = at.at_url(interface["url"]).by(Way.REST_03)
            assert interface["transport"] == "HTTP+JSON"
            assert rest.ask("GetTask", {"id": id}).result["id"] == id


@G.line("V03-CARD-06", Level.CHOICE, "the card is also at the path of 0.2")
def the_card_is_at_the_old_path(at: Speaker) -> None:
    found = at.exchange("GET", "/.well-known/agent.json")
    assert found.status == 200
    assert found.json["url"]
    assert found.json == card(at)


# -- JSON-RPC -----------------------------------------------------------------------------------------------------------


@G.line("V03-RPC-01", Level.MUST, "the envelope is JSON-RPC 2.0 with the request's id")
def the_envelope_is_json_rpc(at: Speaker) -> None:
    for id in ("a", 7, 0):
        for reply in (at.ask("GetTask", {"id": UNKNOWN}, id), at.ask("SendMessage", message_v03("echo"), id)):
            assert reply.media_type == "application/json"
            assert reply.json["jsonrpc"] == "2.0"
            assert (reply.json["id"], type(reply.json["id"])) == (id, type(id))
            assert len({"result", "error"} & reply.json.keys()) == 1


def _try(at: Speaker, number: int) -> None:
    found = [case for case in json.loads(_INVALID.read_text()) if case["expectCode"] == number]
    assert found
    for case in found:
        body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
        for version in (None, "0.3"):
            reply = at.post(body.encode(), A2A_Version=version)
            assert (reply.status, code(reply), reply.json["id"]) == (200, number, case["expectId"]), case["name"]


@G.line("V03-RPC-02", Level.MUST, "a body that is not JSON is a parse error with HTTP status 200")
def what_is_not_json(at: Speaker) -> None:
    _try(at, -32700)


@G.line("V03-RPC-03", Level.MUST, "JSON that is not a request is an invalid request")
def what_is_no_request(at: Speaker) -> None:
    _try(at, -32600)


@G.line("V03-RPC-04", Level.MUST, "an unknown method is not found; tasks/list is one")
def unknown_methods_are_not_found(at: Speaker) -> None:
    _try(at, -32601)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {}}
    assert code(at.post(json.dumps(body).encode())) == -32601


@G.line("V03-RPC-05", Level.MUST, "params of the wrong form are invalid")
def params_that_do_not_fit(at: Speaker) -> None:
    _try(at, -32602)
    for params in ({"": 1}, {}, {"id": 5}, {"id": ""}):
        assert code(at.ask("GetTask", params)) == -32602
        assert code(at.ask("SendMessage", params)) == -32602


@G.line("V03-RPC-06", Level.MUST, "methods are named category/action")
def methods_are_known(at: Speaker) -> None:
    names = [name for name in NAMES if name.old]
    assert len(names) == 10
    for name in names:
        reply = at.ask(name.method, {"id": UNKNOWN, "taskId": UNKNOWN})
        assert "result" in reply.json or code(reply) in (-32001, -32600, -32602, -32003, -32004, -32007), name


# -- sending ------------------------------------------------------------------------------------------------------------


@G.line("V03-SEND-01", Level.MUST, "the response is a bare task or message with its kind")
def an_answer_is_bare(at: Speaker) -> None:
    assert_is_task(send(at, "echo", {"kind": "data", "data": {"a": 1}}).result)
    answer = send(at.on("direct"), "say").result
    assert_is_message(answer)
    assert answer["role"] == "agent"


@G.line("V03-SEND-02", Level.MUST, "a message continues its task")
def a_message_goes_on_with_its_task(at: Speaker) -> None:
    asked = task(at, "ask")
    assert asked["status"]["state"] == "input-required"
    answered = task(at, "large", taskId=asked["id"], contextId=asked["contextId"])
    assert (answered["id"], answered["contextId"]) == (asked["id"], asked["contextId"])
    assert answered["status"]["state"] == "completed"


@G.line("V03-SEND-03", Level.MUST, "a terminal task accepts no further messages")
def an_ended_task_takes_no_message(at: Speaker) -> None:
    assert code(send(at, "echo", taskId=task(at, "echo")["id"])) == -32004


@G.line("V03-SEND-04", Level.MUST, "a message to an unknown task is refused")
def a_message_to_an_unknown_task(at: Speaker) -> None:
    assert code(send(at, "echo", taskId=UNKNOWN)) == -32001


@G.line("V03-SEND-05", Level.MUST, "files and data are transferred unchanged")
def files_and_data_come_through(at: Speaker) -> None:
    parts = [
        {"kind": "text", "text": "na\u00efve \U0001f355", "metadata": {"a": 1}},
        {"kind": "file", "file": {"bytes": "+/8=", "name": "two", "mimeType": "image/png"}},
        {"kind": "file", "file": {"uri": "https://example.com/a", "mimeType": "image/png"}},
        {"kind": "data", "data": {"a": [1, None, {"b": 2.5}]}},
    ]
    assert parts_of(task(at, "echo", *parts)) == parts


@G.line("V03-SEND-06", Level.SDK, "a message without parts is refused")
def parts_are_needed(at: Speaker) -> None:
    assert code(send(at, "", parts=[])) == -32602


@G.line("V03-SEND-07", Level.SDK, "a part of an unknown kind is refused")
def unknown_kinds_are_refused(at: Speaker) -> None:
    assert code(send(at, "", parts=[{"kind": "hologram", "hologram": "x"}])) in (-32602, -32603)


@G.line("V03-SEND-08", Level.CHOICE, "a send waits unless blocking is false")
def a_send_waits(at: Speaker) -> None:
    gate = new_name()
    running = task(at, f"hold {gate}", configuration={"blocking": False})
    assert running["status"]["state"] in ("submitted", "working")
    other = new_name()
    waits = [
        at.in_background(lambda members=members: task(at, f"hold {other}", **members))
        for members in ({}, {"configuration": {}}, {"configuration": {"blocking": True}})
    ]
    release(at, gate)
    ended = eventually(lambda: (found := get(at, running["id"]))["status"]["state"] == "completed" and found, "an end")
    assert parts_of(ended) == [{"kind": "text", "text": f"hold {gate}"}]
    assert all(wait.waiting for wait in waits)
    release(at, other)
    assert {wait.result()["status"]["state"] for wait in waits} == {"completed"}


def get(at: Speaker, id: str, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = at.ask("GetTask", {"id": id, **members}).result
    return found


@G.line("V03-SEND-09", Level.MUST, "historyLength limits the history")
def the_history_is_bounded(at: Speaker) -> None:
    asked = task(at, "ask")
    task(at, "large", taskId=asked["id"])
    whole = get(at, asked["id"])["history"]
    assert len(whole) >= 3
    assert get(at, asked["id"], historyLength=2)["history"] == whole[-2:]
    assert len(task(at, "echo", configuration={"historyLength": 1})["history"]) == 1


@G.line("V03-SEND-10", Level.CHOICE, "data that is not an object is accepted")
def other_data_is_accepted(at: Speaker) -> None:
    found = task(at, "echo", {"kind": "data", "data": [1, 2]})
    assert found["status"]["state"] == "completed"
    assert_is_task(found)


@G.line("V03-SEND-11", Level.MUST, "references to other tasks are accepted, known or not")
def references_are_accepted(at: Speaker) -> None:
    ids = [task(at, "echo")["id"], UNKNOWN]
    (part,) = parts_of(task(at, "report", referenceTaskIds=ids))
    assert part["data"]["references"] == ids


# -- tasks --------------------------------------------------------------------------------------------------------------


@G.line("V03-TASK-01", Level.MUST, "tasks/get returns the task")
def tasks_get_gives_the_task(at: Speaker) -> None:
    sent = task(at, "count 3")
    found = get(at, sent["id"])
    assert_is_task(found)
    assert (found["id"], found["status"], found["artifacts"]) == (sent["id"], sent["status"], sent["artifacts"])


@G.line("V03-TASK-02", Level.MUST, "tasks/get of an unknown task is refused")
def tasks_get_of_the_unknown(at: Speaker) -> None:
    assert code(at.ask("GetTask", {"id": UNKNOWN})) == -32001


@G.line("V03-TASK-03", Level.MUST, "tasks/cancel returns the canceled task")
def tasks_cancel_gives_the_task(at: Speaker) -> None:
    canceled = at.ask("CancelTask", {"id": begin(at, f"hold {new_name()}")}).result
    assert_is_task(canceled)
    assert canceled["status"]["state"] == "canceled"


@G.line("V03-TASK-04", Level.MUST, "tasks/cancel of an unknown or terminal task is refused")
def tasks_cancel_of_what_is_not_there(at: Speaker) -> None:
    assert code(at.ask("CancelTask", {"id": UNKNOWN})) == -32001
    assert code(at.ask("CancelTask", {"id": task(at, "echo")["id"]})) == -32002


# -- errors -------------------------------------------------------------------------------------------------------------


@G.line("V03-ERR-01", Level.MUST, "errors have the codes of the table")
def codes_are_those_of_the_table(at: Speaker) -> None:
    ended = task(at, "echo")["id"]
    replies = [
        at.ask("GetTask", {"id": UNKNOWN}),
        at.ask("CancelTask", {"id": ended}),
        send(at, "echo", taskId=ended),
        at.ask("SubscribeToTask", {"id": ended}),
    ]
    assert [code(reply) for reply in replies] == [-32001, -32002, -32004, -32004]
    assert {reply.status for reply in replies} == {200}
