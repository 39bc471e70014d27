"""System E: additions of system C's onboarding notes. The ids are those of docs/reference/feature-comparison.md."""

from __future__ import annotations

import configparser
import json
import re
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
    Task,
    TaskState,
    TaskStream,
    TextPart,
)
from a2a_sync import operations as op
from a2a_sync.bindings import jsonrpc
from a2a_sync.card import create_agent_card
from a2a_sync.engine.hub import EventHub
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.integrations.runners import AgentRunnerExecutor, RunResult
from a2a_sync.lifecycle import Fold
from a2a_sync.server.handler import RequestHandler
from a2a_sync.testing import wsgi_session
from a2a_sync.types import StreamResponse, from_dict
from tests.engine import TIMEOUT, Gate, eventually, texts
from tests.parity.test_c import MESSAGE, TYPES
from tests.parity.wire import HEADERS, ONCE, STREAMING, app_of, handler, send_params
from tests.push.receiver import LOOPBACK, receiving
from tests.test_layers import layer, modules
from tests.wsgi import rpc

S = TaskState
PACKAGE = Path(a2a_sync.__file__).parent


#: Representative objects of each concern, and its module.
CONCERNS = {
    "types": (Message, Task, TextPart, TaskState),
    "card": (a2a_sync.AgentCard, a2a_sync.AgentSkill),
    "errors": (UnsupportedOperationError,),
    "operations": (op.Operation, op.Call),
    "bindings.jsonrpc": (jsonrpc.read_request, jsonrpc.write_result),
    "engine.hub": (EventHub,),
    "agent.executor": (a2a_sync.RequestContext, a2a_sync.AgentExecutor),
    "server.handler": (RequestHandler,),
    "lifecycle": (Fold,),
    "stores.memory": (a2a_sync.MemoryStore,),
    "wsgi.app": (A2AApp,),
}


@pytest.mark.parametrize("concern", CONCERNS)
def test_e1_each_concern_has_a_separate_module(concern):
    assert {thing.__module__ for thing in CONCERNS[concern]} == {f"a2a_sync.{concern}"}


def test_e1_every_module_has_a_layer():
    for name in modules():
        assert layer(name) >= 0


def test_e2_functions_of_parts_states_tasks_events_webhooks_and_requests(make):
    parts = [part.to_dict("0.3") for part in MESSAGE.parts]
    assert Message.from_dict({**MESSAGE.to_dict("0.3"), "parts": parts}, "0.3").parts == MESSAGE.parts
    assert (S.REJECTED.terminal, S.AUTH_REQUIRED.terminal) == (True, False)
    gate = Gate()
    with Client(make(lambda message, context: gate.block() or "ok")) as client:
        task = client.send("hi", return_immediately=True)
        assert task.state in (S.SUBMITTED, S.WORKING)
        assert texts(task.history) == ["user: hi"]
        gate.open.set()
        client.wait(task.id, timeout=TIMEOUT)
    assert from_dict(StreamResponse, TYPES["task"].to_dict("0.3"), "0.3") == TYPES["task"]
    app = A2AApp(make(handler), push=LOOPBACK, limits=Limits(store_poll_interval=0.2))
    with receiving() as receiver, app, Client(app) as client:
        assert isinstance(client.send("hi", push_config=receiver.url), Task)
        assert receiver.await_posts(lambda posts: posts)


def test_e3_streaming_methods_return_a_stream_with_event_ids(wire):
    app = wire(handler)
    with Client(app_of(app)) as client, client.stream("stream") as stream:
        assert isinstance(stream, TaskStream)
        events = list(stream)
    assert [type(event).__name__ for event in events] == [
        "Task",
        *["TaskArtifactUpdateEvent"] * 3,
        "TaskStatusUpdateEvent",
    ]
    with app.stream("message/stream", send_params("stream"), headers=HEADERS) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        frames = list(answer.frames())
    # The event id lets a client resume the stream.
    assert [frame.id for frame in frames] == sorted({frame.id for frame in frames})
    assert [frame.json["result"]["kind"] for frame in frames] == ["task", *["artifact-update"] * 3, "status-update"]
    assert app.request("GET", OLD_CARD).status == 200


def test_e4_the_steps_of_a_send(wire):
    seen = []

    def look(message, context):
        seen.append((context.task.state, texts(context.history)))
        return InputRequired("?") if message.text == "ask" else "ok"

    app = wire(look)
    assert app.call("message/send", {"message": {}}).error["code"] == -32602
    assert seen == []
    task = app.call("message/send", send_params("ask")).result
    wrong = send_params("go", taskId=task["id"], contextId="another")
    assert app.call("message/send", wrong).error["code"] == -32602
    assert app.call("message/send", send_params("go", taskId=task["id"])).result["status"]["state"] == "completed"
    assert seen == [(S.WORKING, ["user: ask"]), (S.WORKING, ["user: ask", "agent: ?", "user: go"])]


def test_e5_a_stream_starts_before_the_run_has_ended(wire):
    gate = Gate()
    app = wire(lambda message, context: gate.block() or "ok")
    with app.stream("message/stream", send_params("go"), headers=HEADERS) as stream:
        frames = stream.frames()
        assert next(frames).json["result"]["status"]["state"] in ("submitted", "working")
        gate.open.set()
        assert list(frames)[-1].json["result"]["status"]["state"] == "completed"


def test_e6_the_method_determines_whether_the_response_is_a_stream(wire):
    app = wire(handler)
    accepting = {**HEADERS, "Accept": "application/json, text/event-stream"}
    task = app.call("message/send", send_params("ask")).result
    for method in ONCE:
        params = send_params("hi") if method == "message/send" else {"id": task["id"], "pushNotificationConfigId": "p"}
        if method != "tasks/cancel":
            answer = app.post(rpc(method, params), accepting)
            assert answer.headers["Content-Type"] == "application/json", method
    for method, params in zip(STREAMING, (send_params("hi"), {"id": task["id"]}), strict=True):
        with app.stream(method, params, headers=accepting) as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream"), method
            assert next(stream.frames()).json["result"]["kind"] == "task"
    assert app.post(rpc("tasks/cancel", {"id": task["id"]}), accepting).headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("id", ["a", 7, None])
def test_e7_each_event_of_a_stream_has_the_id_of_its_request(wire, id):
    app = wire(handler)
    with app.stream("message/stream", send_params("stream"), id=id, headers=HEADERS) as stream:
        answers = [frame.json for frame in stream.frames()]
    assert {answer["id"] for answer in answers} == {id}
    assert [answer["result"]["kind"] for answer in answers] == ["task", *["artifact-update"] * 3, "status-update"]


def test_e8_an_exception_in_a_run_ends_the_task_and_its_streams(make):
    def broken(message, context):
        yield "a"
        raise SystemExit

    with Client(make(broken)) as client:
        with client.stream("go") as stream:
            list(stream)
        assert stream.state is S.FAILED
        with pytest.raises(UnsupportedOperationError):
            client.subscribe(stream.task.id)


def test_e9_nested_calls_are_not_visible_and_a_question_interrupts_the_task(make):
    def inner(message, context):
        return "secret plan"

    helper = make(inner, "helper")

    def outer(message, context):
        helper.call("plan")
        return InputRequired("Shall I?") if message.text == "ask" else "done"

    agent = make(outer, "outer")
    with agent.stream("ask") as stream:
        events = list(stream)
    task = agent.get_task(stream.task.id)
    assert (task.state, texts(task.history)) == (S.INPUT_REQUIRED, ["user: ask", "agent: Shall I?"])
    assert "secret" not in "".join(one.to_json() for one in (*events, task))
    assert [known.id for known in Client(agent).list_tasks().tasks] == [task.id]


class Framework:
    """An agent of a framework, which runs on chat messages; `answer` returns its result."""

    def __init__(self, answer):
        self.given = []
        self._answer = answer

    def run(self, messages):
        self.given.append([(message["role"], message["content"]) for message in messages])
        return self._answer(messages)


def bridged(answer):
    agent = Framework(answer)
    card = create_agent_card("bridged", "An agent of a framework", skills={"x": "X"})
    return agent, A2AApp(AgentRunnerExecutor(agent), card=card)


def test_e9_system_prompts_and_repeated_messages_are_not_sent():
    def answer(messages):
        inside = [{"role": "system", "content": "secret"}, {"role": "developer", "content": "secret"}]
        return RunResult(messages=[*inside, *messages, {"role": "assistant", "content": "hello"}])

    agent, app = bridged(answer)
    with app, Client(app) as client:
        task = client.send("hi")
        task = client.get_task(task.id)
    assert (task.state, task.text) == (S.COMPLETED, "hello")
    assert texts(task.history) == ["user: hi", "agent: hello"]
    assert [artifact.name for artifact in task.artifacts] == ["result"]
    assert "secret" not in task.to_json()
    assert agent.given == [[("user", "hi")]]


def test_e9_a_question_of_a_bridged_agent_is_answered_in_the_next_run():
    agent, app = bridged(lambda messages: InputRequired("Size?") if len(messages) == 1 else "done")
    with app, Client(app) as client:
        asked = client.send("pizza")
        assert (asked.state, asked.status.message.text, asked.artifacts) == (S.INPUT_REQUIRED, "Size?", ())
        assert client.send("large", task_id=asked.id).state is S.COMPLETED
    assert agent.given[1] == [("user", "pizza"), ("assistant", "Size?"), ("user", "large")]


def test_e9_an_exception_of_a_bridged_agent_fails_the_task_without_its_text():
    def answer(messages):
        raise ValueError("secret")

    _, app = bridged(answer)
    with app, Client(app) as client:
        task = client.send("go")
    assert (task.state, "secret" in task.to_json()) == (S.FAILED, False)


def test_e10_an_idle_stream_sends_keepalive_comments(wire):
    gate = Gate()
    app = wire(
        lambda message, context: gate.block() or "ok",
        limits=Limits(stream_keepalive_interval=0.02, disconnect_check_interval=0.01),
    )
    with app.stream("message/stream", send_params("go"), headers=HEADERS) as stream:
        beat = next(frame for frame in stream.frames() if frame.field("data") is None)
        assert beat.lines == (": heartbeat",)
        gate.open.set()
        assert b"completed" in b"".join(iter(stream.chunk, b""))


OLD_CARD = "/.well-known/agent.json"


def test_e11_the_card_at_the_old_path_has_the_capabilities(wire):
    can = wire(handler, push=LOOPBACK).request("GET", OLD_CARD).json
    cannot = wire(handler).request("GET", OLD_CARD).json
    assert [card["capabilities"].get("pushNotifications", False) for card in (can, cannot)] == [True, False]
    assert (can["capabilities"]["streaming"], can["protocolVersion"][:3]) == (True, "0.3")
    assert can["url"].startswith("http://agent.test")
    mute = create_agent_card("mute", "Does not stream", skills={"x": "X"}, streaming=False)
    with A2AApp(AgentRunnerExecutor(Framework(str)), card=mute) as app:
        card = wsgi_session(app).get(f"http://agent.test{OLD_CARD}", timeout=TIMEOUT).json()
    assert not card["capabilities"]["streaming"]


def test_e11_the_old_path_is_not_served_without_0_3(wire):
    modern = wire(handler, protocol_versions=("1.0",))
    assert modern.request("GET", OLD_CARD).status == 404
    assert modern.request("GET", "/.well-known/agent-card.json").status == 200


def keys(value):
    """The names of all members of a JSON value, recursively."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", TYPES)
def test_e12_names_are_camel_case_and_objects_have_their_kind(name):
    written = json.loads(json.dumps(TYPES[name].to_dict("0.3")))
    assert not [key for key in keys(written) - {"k"} if "_" in key]
    kinds = ("message", "task", "status-update", "artifact-update")
    assert written.get("kind") == (name if name in kinds else None)
    assert type(TYPES[name]).from_dict(written, "0.3") == TYPES[name]


def test_e12_a_closed_stream_is_unsubscribed_and_waits_are_limited(make):
    gate = Gate()
    app = A2AApp(make(lambda message, context: gate.block() or "ok"), limits=Limits(disconnect_check_interval=0.01))
    with app, Client(app) as client:
        with client.stream("go") as stream:
            task_id = next(iter(stream)).id
            assert app.open_streams == 1
        eventually(lambda: app.open_streams == 0)
        with pytest.raises(a2a_sync.TransportTimeoutError):
            client.wait(task_id, timeout=0.05)
        gate.open.set()
        assert client.wait(task_id, timeout=TIMEOUT).text == "ok"


def test_e12_any_store_and_any_path_can_be_used(make, sqlite):
    for store in (None, "memory:", sqlite()):
        with A2AApp(make(handler), store=store) as app, Client(app) as client:
            assert client.get_task(client.send("hi").id).text == "echo: hi"
    with pytest.raises(ValueError, match="store must be"):
        A2AApp(make(handler), store="no-such-store://")
    with A2AApp(make(handler), url="http://agent.test/deep/in/here") as app:
        assert app.agent_card().supported_interfaces[0].url.startswith("http://agent.test/deep/in/here")


def test_e13_the_ci_runs_tests_linter_and_type_checker():
    project = PACKAGE.parent
    script = (project / ".ci" / "run").read_text()
    assert {"make test", "make check", "make lint", "make types"} <= set(re.findall(r"make \w+", script))
    types = configparser.ConfigParser()
    types.read(project / "setup.cfg")
    assert (types["mypy"].getboolean("strict"), types["mypy"]["files"]) == (True, "a2a_sync")
    makefile = (project / "Makefile").read_text()
    for command in ("/ruff check .", "/ruff format --check .", "/mypy\n"):
        assert command in makefile


@pytest.mark.parametrize("name", ["auth", "client", "codec", "lifecycle", "push", "stores", "types", "wsgi"])
def test_e13_every_module_has_tests(name):
    tests = PACKAGE.parent / "tests"
    assert (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()
    assert list((tests / name).glob("test_*.py")) or (tests / f"test_{name}.py").exists()


def test_e13_importing_starts_no_thread():
    code = """
import threading
from a2a_sync.multiagent import AgentRegistry, AgentServer
print(threading.active_count())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "1"
