"""System E: what the onboarding notes of system C add to it. The ids are those of docs/reference/parity.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import a2a_sync
from a2a_sync import (
    A2AApp,
    Client,
    InputRequired,
    Limits,
    Message,
    Role,
    Task,
    TaskState,
    TextPart,
    UnsupportedOperationError,
)
from a2a_sync import operations as op
from a2a_sync.bindings import jsonrpc
from a2a_sync.bindings.sse import comment, frame
from a2a_sync.codec import by_version
from a2a_sync.testing import wsgi_session
from tests.engine import PATIENCE, Gate, eventually, texts
from tests.parity.test_c import MESSAGE, TYPES
from tests.parity.wire import CODEC, HEADERS, handler, said
from tests.push.receiver import LOOPBACK, receiving
from tests.test_layers import FLOORS

S = TaskState
PACKAGE = Path(a2a_sync.__file__).parent


def test_e1_each_concern_has_a_room_of_its_own():
    rooms = {room for floor in FLOORS for room in floor}
    assert {
        "types",
        "card",
        "errors",
        "operations",
        "bindings.jsonrpc",
        "events",
        "executor",
        "push",
        "handler",
    } <= rooms
    assert {"stores.memory", "app", "lifecycle", "codec"} <= rooms
    for floor in FLOORS:
        for room in floor:
            path = PACKAGE / room.replace(".", "/")
            assert path.with_suffix(".py").exists() or path.is_dir()


def test_e2_parts_states_tasks_events_webhooks_and_requests_have_their_functions(make):
    parts = [CODEC.dump(part) for part in MESSAGE.parts]
    assert tuple(CODEC.load(Message, {**CODEC.dump(MESSAGE), "parts": parts}).parts) == MESSAGE.parts
    assert (S.REJECTED.terminal, S.AUTH_REQUIRED.terminal) == (True, False)
    gate = Gate()
    with Client(make(lambda message, context: gate.here() or "ok")) as client:
        task = client.send("hi", return_immediately=True)
        assert task.state in (S.SUBMITTED, S.WORKING)
        assert texts(task.history) == ["user: hi"]
        gate.open.set()
        client.wait(task.id, timeout=PATIENCE)
    assert CODEC.load_event(CODEC.dump_event(TYPES["task"])) == TYPES["task"]
    assert jsonrpc.read_request(b'{"jsonrpc":"2.0","id":1,"method":"m"}').method == "m"
    app = A2AApp(make(handler), push=LOOPBACK, limits=Limits(poll=0.2))
    with receiving() as receiver, app, Client(app) as client:
        assert isinstance(client.send("hi", push_config=receiver.url), Task)
        assert receiver.await_posts(lambda posts: posts)


def message_of(text):
    return Message(role=Role.USER, parts=(TextPart(text),))


def test_e3_a_stream_is_what_a_streaming_method_returns_and_the_server_sends_it(make):
    with A2AApp(make(handler)) as app:
        call = op.Call(op.SEND_STREAMING_MESSAGE, op.SEND_STREAMING_MESSAGE.request(message=message_of("stream")))
        stream = app.endpoint()(call)
        assert isinstance(stream, op.EventStream)
        assert all(item.number is not None for item in stream)
        session = wsgi_session(app)
        assert session.get("http://agent.test/.well-known/agent.json", timeout=PATIENCE).status_code == 200


def test_e4_a_send_is_checked_prepared_run_and_collected_in_order(wire):
    seen = []

    def look(message, context):
        seen.append((context.task.state, texts(context.history)))
        return InputRequired("?") if message.text == "ask" else "ok"

    app = wire(look)
    assert app.call("message/send", {"message": {}}).error["code"] == -32602
    assert seen == []
    task = app.call("message/send", said("ask")).result
    wrong = said("go", taskId=task["id"], contextId="another")
    assert app.call("message/send", wrong).error["code"] == -32602
    assert app.call("message/send", said("go", taskId=task["id"])).result["status"]["state"] == "completed"
    assert seen == [(S.WORKING, ["user: ask"]), (S.WORKING, ["user: ask", "agent: ?", "user: go"])]


def test_e5_a_stream_begins_before_its_run_has_ended(wire):
    gate = Gate()
    app = wire(lambda message, context: gate.here() or "ok")
    with app.stream("message/stream", said("go"), headers=HEADERS) as stream:
        frames = stream.frames()
        assert next(frames).json["result"]["status"]["state"] in ("submitted", "working")
        gate.open.set()
        assert list(frames)[-1].json["result"]["status"]["state"] == "completed"


def test_e6_methods_that_answer_once_and_those_that_stream_are_rows_of_one_table():
    streaming = {operation.name for operation in op.OPERATIONS.values() if operation.streaming}
    assert streaming == {"SendStreamingMessage", "SubscribeToTask"}
    for version in ("1.0", "0.3"):
        codec = by_version(version)
        rows = [row for row in op.OPERATIONS.values() if (version, row.name) != ("0.3", "ListTasks")]
        assert all(codec.operation(codec.method(row)) is row for row in rows)


@pytest.mark.parametrize("id", ["a", 7, None])
def test_e7_each_event_of_a_stream_is_an_answer_with_the_id_of_its_request(wire, id):
    app = wire(handler)
    with app.stream("message/stream", said("stream"), id=id, headers=HEADERS) as stream:
        answers = [frame.json for frame in stream.frames()]
    assert {answer["id"] for answer in answers} == {id}
    assert [answer["result"]["kind"] for answer in answers] == ["task", *["artifact-update"] * 3, "status-update"]


def test_e8_a_run_that_breaks_leaves_neither_a_task_nor_a_listener_hanging(make):
    def broken(message, context):
        yield "a"
        raise SystemExit

    with Client(make(broken)) as client:
        with client.stream("go") as stream:
            list(stream)
        assert stream.state is S.FAILED
        with pytest.raises(UnsupportedOperationError):
            client.subscribe(stream.task.id)


def test_e9_what_an_agent_calls_for_itself_is_not_seen_and_a_question_hands_control_back(make):
    def inner(message, context):
        return "secret plan"

    helper = make(inner, "helper")

    def outer(message, context):
        helper.call("plan")
        return InputRequired("Shall I?") if message.text == "ask" else "done"

    task = make(outer, "outer").call("ask")
    assert (task.state, texts(task.history)) == (S.INPUT_REQUIRED, ["user: ask", "agent: Shall I?"])
    assert "secret" not in repr(task)


def test_e10_a_silent_stream_says_that_it_lives_in_comments(wire):
    assert comment("heartbeat") == b": heartbeat\n\n"
    assert frame(b"{}", 3) == b"id: 3\ndata: {}\n\n"
    gate = Gate()
    app = wire(lambda message, context: gate.here() or "ok", limits=Limits(heartbeat=0.02, tick=0.01))
    with app.stream("message/stream", said("go"), headers=HEADERS) as stream:
        beat = next(frame for frame in stream.frames() if frame.field("data") is None)
        assert beat.lines == (": heartbeat",)
        gate.open.set()
        assert b"completed" in b"".join(iter(stream.chunk, b""))


def test_e11_the_card_at_the_old_path_says_what_the_agent_can_do(wire):
    card = wire(handler, push=LOOPBACK).request("GET", "/.well-known/agent.json").json
    assert (card["capabilities"]["streaming"], card["capabilities"]["pushNotifications"]) == (True, True)
    assert card["url"].startswith("http://agent.test")


def test_e12_what_people_stumble_over_is_taken_care_of(make, sqlite):
    # Names in both directions, and a kind on everything that has one.
    assert json.loads(json.dumps(CODEC.dump(MESSAGE)))["referenceTaskIds"] == ["r"]
    assert all(CODEC.dump(TYPES[name])["kind"] == name for name in ("message", "task", "status-update"))
    # Who leaves is forgotten, without anybody waiting for it.
    gate = Gate()
    app = A2AApp(make(lambda message, context: gate.here() or "ok"), limits=Limits(tick=0.01))
    with app, Client(app) as client:
        with client.stream("go") as stream:
            task_id = next(iter(stream)).id
        eventually(lambda: app.open_streams == 0)
        # Ends that never come are bounded.
        with pytest.raises(a2a_sync.TransportTimeout):
            client.wait(task_id, timeout=0.05)
        gate.open.set()
        assert client.wait(task_id, timeout=PATIENCE).text == "ok"
    # Any store will do, and any path.
    for store in (None, "memory:", sqlite()):
        with A2AApp(make(handler), store=store) as other, Client(other) as client:
            assert client.send("hi").text == "echo: hi"
    with pytest.raises(ValueError, match="store must be"):
        A2AApp(make(handler), store="no-such-store://")


def test_e13_the_tests_mirror_the_code_and_linter_and_types_are_gates():
    project = PACKAGE.parent
    config = (project / "pyproject.toml").read_text() + (project / "setup.cfg").read_text()
    assert all(gate in config for gate in ("ruff", "mypy", "strict", "pytest"))
    tests = {path.stem for path in (project / "tests").rglob("test_*.py")}
    mirrored = {"agent", "app", "handler", "execution", "events", "lifecycle", "types", "layers", "registry"}
    assert {f"test_{name}" for name in mirrored} <= tests


def test_e13_importing_starts_nothing():
    code = "import threading, a2a_sync; a2a_sync.AgentRegistry, a2a_sync.AgentServer; print(threading.active_count())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "1"
