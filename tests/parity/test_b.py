"""System B: agents as functions of a task, and a registry of them. The ids are those of docs/reference/feature-comparison.md."""

from __future__ import annotations

import gc
import os
import threading
import types

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AgentError,
    AgentSkill,
    Artifact,
    Client,
    DataPart,
    Limits,
    Message,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    TextPart,
    URLGuard,
)
from a2a_sync.auth import ApiKeyAuth, BearerAuth
from a2a_sync.auth.schemes import BasicAuth
from a2a_sync.card import create_agent_card
from a2a_sync.errors import (
    InvalidParamsError,
    OverloadedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnsafeURLError,
    UnsupportedOperationError,
)
from a2a_sync.multiagent import AgentNotFoundError, AgentRegistry, AgentServer, get_task_result
from a2a_sync.testing import wsgi_session
from tests.client.peer import peer
from tests.engine import TIMEOUT, Background, Gate, eventually

S = TaskState
CARD = create_agent_card("elsewhere", "A remote agent", skills={"fly": "Flies"}, url="http://127.0.0.1:9/")


def echo(task):
    return task.with_artifact(f"echo: {task.message.text}", name="result")


# -- the card -----------------------------------------------------------------------------------------------------------


def test_b1_a_card_has_defaults():
    card = create_agent_card("finder", "Finds things", skills={"find": "Finds a thing"})
    assert (card.name, card.description, card.version) == ("finder", "Finds things", "1.0.0")
    assert [skill.id for skill in card.skills] == ["find"]
    assert not card.capabilities.push_notifications
    assert CARD.supported_interfaces[0].url == "http://127.0.0.1:9/"


def test_b2_a_skill_has_media_types_and_needs_no_tags():
    skill = AgentSkill.of("see", "Sees", input_modes=["image/png"], output_modes=["text/plain"])
    assert (skill.id, skill.name, skill.input_modes, skill.output_modes) == (
        "see",
        "See",
        ("image/png",),
        ("text/plain",),
    )


# -- the task -----------------------------------------------------------------------------------------------------------


def test_b3_the_members_of_an_agent_task(server):
    task = server(echo).submit_task("hi", id="t1", session_id="s1", metadata={"k": "v"})
    assert (task.id, task.session_id, task.message.text, task.messages) == ("t1", "s1", "hi", (task.message,))
    assert [(artifact.name, artifact.parts) for artifact in task.artifacts] == [("result", (TextPart("echo: hi"),))]
    assert (task.status.state, task.status.timestamp.tzinfo is not None) == (S.COMPLETED, True)


def test_b4_both_spellings_of_canceled_are_accepted_and_one_is_written(server):
    assert TaskState("cancelled") is TaskState("canceled") is S.CANCELED
    assert str(TaskState("cancelled")) == "canceled"
    assert {"submitted", "working", "completed", "failed", "input-required"} <= set(S)
    declined = server(lambda task: task.with_status("cancelled")).submit_task("x")
    assert declined.state is S.CANCELED


def test_b5_a_successful_run_has_three_status_entries(server):
    task = server(echo).submit_task("hi")
    assert [status.state for status in task.status_history] == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    assert task.status_history[-1] == task.status
    times = [status.timestamp for status in task.status_history]
    assert times == sorted(times)
    assert [message.text for message in task.history] == ["hi"]


# -- the server ---------------------------------------------------------------------------------------------------------


def test_b6_an_executor_returns_the_task_with_artifacts_and_messages(server):
    def executor(task):
        return task.with_message("working on it").with_artifact("a").with_artifact(DataPart({"n": 1}), name="data")

    task = server(executor).submit_task("go")
    assert (task.state, task.artifacts[0].text, task.artifact("data").parts[0].data) == (S.COMPLETED, "a", {"n": 1})
    assert [(turn.role, turn.text) for turn in task.messages] == [(Role.USER, "go"), (Role.AGENT, "working on it")]
    assert server(lambda task: task).submit_task("go").state is S.COMPLETED


def test_b6_an_exception_fails_the_task_with_its_text(server, caplog):
    def executor(task):
        raise ValueError("no luck")

    task = server(executor).submit_task("go")
    assert (task.state, task.status.message.text) == (S.FAILED, "no luck")
    assert "Traceback" in caplog.text
    nothing = server(lambda task: None).submit_task("go")
    assert (nothing.state, nothing.text) == (S.FAILED, "the executor returned NoneType, not the task")


def test_b7_submit_returns_the_finished_task_and_refuses_a_used_id(server):
    runs = []
    one = server(lambda task: runs.append(task.id) or echo(task))
    task = one.submit_task("hi", id="t1")
    assert (task.state, task.id, runs) == (S.COMPLETED, "t1", ["t1"])
    assert one.submit_task("hi", id="t1") == task
    with pytest.raises(InvalidParamsError):
        one.submit_task("something else", id="t1")
    assert runs == ["t1"]
    assert one.submit_task("hi").id != one.submit_task("hi").id


def test_b7_a_cancelled_or_interrupted_task_is_not_completed_later(server):
    gate = Gate()

    def executor(task):
        if task.message.text == "ask":
            return task.with_status("input-required", "Which?")
        gate.block()
        return echo(task)

    one = server(executor)
    assert (one.submit_task("ask").state, one.submit_task("ask").text) == (S.INPUT_REQUIRED, "Which?")
    running = Background(lambda: one.submit_task("go", id="t"))
    gate.wait()
    assert one.cancel_task("t")
    gate.open.set()
    assert running.result().state is S.CANCELED
    assert eventually(lambda: one.app.running == 0)
    assert (one.get_task("t").state, one.get_task("t").artifacts) == (S.CANCELED, ())


def test_b8_a_cancel_reaches_the_executor_and_returns_whether_it_had_an_effect(server):
    gate, stopped = Gate(), threading.Event()

    def executor(task):
        gate.reached.set()
        eventually(lambda: task.cancelled)
        stopped.set()
        return task

    one = server(executor)
    running = Background(lambda: one.submit_task("go", id="t"))
    gate.wait()
    assert one.cancel_task("t") is True
    assert stopped.wait(TIMEOUT)
    assert running.result().state is S.CANCELED
    assert (one.cancel_task("t"), one.cancel_task("unknown")) == (False, False)
    done = server(echo)
    done.submit_task("go", id="t")
    assert done.cancel_task("t") is False


def test_b9_tasks_and_card_can_be_read_and_an_interrupted_task_continued(server):
    def executor(task):
        if len(task.messages) == 1:
            return task.with_status("input-required", "Which size?")
        return task.with_artifact(f"One {task.messages[-1].text} {task.message.text}")

    one = server(executor)
    assert (one.get_task("unknown"), one.get_agent_card().name) == (None, "tested")
    asked = one.submit_task("pizza", id="t")
    assert one.get_task("t") == asked
    done = one.send_message("t", "large")
    assert (done.id, done.state, done.text) == ("t", S.COMPLETED, "One large pizza")
    with pytest.raises(TaskNotFoundError):
        one.send_message("unknown", "large")
    with pytest.raises(UnsupportedOperationError, match="completed"):
        one.send_message("t", "more")


def test_b9_a_server_can_be_called_over_http(sqlite):
    store = sqlite()
    with AgentServer(CARD, echo, store=store) as one:
        one.submit_task("hi", id="t1")
        with Client("http://agent.test", session=wsgi_session(one.app)) as client:
            assert client.send("there").text == "echo: there"
    with AgentServer(CARD, echo, store=store) as again:
        assert again.get_task("t1").text == "echo: hi"


def test_b10_each_state_emits_one_event_in_order_under_both_spellings(server):
    def executor(task):
        if task.message.text == "fail":
            raise ValueError("no luck")
        return task.with_status("input-required") if task.message.text == "ask" else echo(task)

    one, received = server(executor), []
    names = ("submitted", "working", "completed", "failed", "canceled", "cancelled")
    for name in names:
        one.on(f"task:{name}", lambda event, name=name: received.append((event.task_id, name)))
    one.on("task:failed", lambda event: received.append(event.status.message.text))
    one.submit_task("go", id="a")
    assert received == [("a", "submitted"), ("a", "working"), ("a", "completed")]
    one.submit_task("fail", id="b")
    assert received[3:] == [("b", "submitted"), ("b", "working"), ("b", "failed"), "no luck"]
    one.submit_task("ask", id="c")
    one.cancel_task("c")
    assert received[7:] == [("c", "submitted"), ("c", "working"), ("c", "canceled"), ("c", "cancelled")]
    with pytest.raises(ValueError, match="finished"):
        one.on("task:finished", print)


def test_b10_an_exception_of_a_listener_does_not_affect_the_task(server, caplog):
    one, received = server(echo), []

    def bad(event):
        raise RuntimeError("listener")

    one.on("task:working", bad)
    one.on("task:completed", lambda event: received.append(event.task_id))
    assert one.submit_task("go", id="t").state is S.COMPLETED
    assert received == ["t"]
    assert "a listener for task:working failed" in caplog.text
    assert not one.off("task:completed", bad)
    assert one.off("task:working", bad)


# -- the registry -------------------------------------------------------------------------------------------------------


def test_b11_a_registry_lists_describes_finds_and_calls_agents_by_name(server):
    with AgentRegistry(url_guard=None) as registry:
        registry.register("one", server(echo))
        registry.register("two", server(lambda task: task.with_artifact("two")))
        assert registry.list_agents() == ["one", "two"]
        assert registry.get_agent_card("one").name == "tested"
        assert registry.get_agent_card("unknown") is None
        assert registry.find_agents_with_skill("test") == ["one", "two"]
        assert registry.find_agents_with_skill("tes") == []
        task = registry.submit_task("one", "hi")
        assert task.text == "echo: hi"
        assert registry.get_task("one", task.id).id == task.id
        message = Message(role=Role.USER, parts=(TextPart("hi"),))
        assert registry.submit_task("two", message).text == "two"
        with pytest.raises(AgentNotFoundError, match="Agent not found: unknown"):
            registry.submit_task("unknown", "hi")
        registry.register("one", server(lambda task: task.with_artifact("another")))
        assert (registry.submit_task("one", "hi").text, registry.list_agents()) == ("another", ["one", "two"])


def made(text, name=""):
    return Artifact(name=name, parts=(TextPart(text) if text else DataPart(1),))


def said(text):
    return Message(role=Role.AGENT, parts=(TextPart(text),))


def task_of(artifacts=(), history=(), status=None):
    return Task(
        id="t", status=TaskStatus(state=S.COMPLETED, message=status), artifacts=tuple(artifacts), history=tuple(history)
    )


RESULTS = {
    "named": (task_of([made("r", "result"), made("x", "notes")]), "r"),  # as documented; the original's source differs
    "out": (task_of([made("r", "result"), made("o", "out")]), "o"),
    "named without text": (task_of([made("", "result"), made("x", "notes")]), "x"),
    "last artifact": (task_of([made("a"), made("b"), made("")]), "b"),
    "agent message": (task_of([made("")], [said("h"), said("i")]), "i"),
    "status": (task_of(status=said("s")), "s"),
    "nothing": (task_of(), None),
}


@pytest.mark.parametrize("step", RESULTS)
def test_b12_the_sources_of_a_task_result_have_an_order(step):
    task, found = RESULTS[step]
    assert get_task_result(task) == found


def test_b13_remote_agents_expire_without_a_heartbeat(server):
    now = [100.0]
    with AgentRegistry(url_guard=None, expiry=30, clock=lambda: now[0]) as registry:
        registry.register("local", server(echo))
        registry.register("far", CARD)
        registry.register("old", CARD, age=29)
        assert registry.list_remote_agents() == ["far", "old"]
        assert registry.get_agent_card("far") == CARD
        assert registry.find_agents_with_skill("fly") == ["far", "old"]
        now[0] += 2
        assert registry.list_agents() == ["local", "far"]
        assert registry.touch("far") is True
        assert (registry.touch("old"), registry.touch("local"), registry.touch("unknown")) == (False, False, False)
        now[0] += 29
        assert registry.list_remote_agents() == ["far"]
        now[0] += 2
        assert registry.expire() == ["far", "old"]
        assert (registry.unregister("far"), registry.unregister("local"), registry.unregister("local")) == (
            False,
            True,
            False,
        )


def test_b14_the_first_or_an_always_on_agent_is_selected():
    steady = create_agent_card("steady", "An always-on agent", skills={"fly": "Flies"}, url="http://127.0.0.1:9/")
    with AgentRegistry(url_guard=None) as registry:
        assert registry.find_best_agent("fly") is None
        registry.register("first", CARD)
        registry.register("second", CARD)
        assert (registry.find_best_agent("fly"), registry.select_agent(["second", "first"])) == ("first", "second")
        registry.register("steady", steady)
        assert registry.find_best_agent("fly") == registry.resolve(skill="fly") == "steady"
        assert registry.resolve(agent="second") == "second"
        with pytest.raises(AgentNotFoundError):
            registry.select_agent([])
        with pytest.raises(ValueError, match="either agent or skill, not both"):
            registry.resolve(agent="first", skill="fly")
        with pytest.raises(ValueError, match="an agent or a skill"):
            registry.resolve()
        with pytest.raises(AgentNotFoundError, match="swim"):
            registry.resolve(skill="swim")
    with AgentRegistry(url_guard=None, choose=lambda agents: agents[-1]) as registry:
        registry.register("first", CARD)
        registry.register("last", CARD)
        assert registry.find_best_agent("fly") == "last"


def test_b15_an_error_of_a_remote_agent_is_a_failed_task(server):
    def broken(asked, line):
        line.answer(b"out of order", 503)

    with AgentRegistry(url_guard=None) as registry, peer(broken) as far:
        registry.register("far", "http://agent.test///", session=wsgi_session(server(echo).app))
        assert registry.submit_task("far", "hi").text == "echo: hi"
        card = create_agent_card("broken", "Broken", skills={"x": "X"}, url=far.url)
        registry.register("broken", card, retry=None)
        task = registry.submit_task("broken", "hi", metadata={"k": "v"})
        assert (task.state, dict(task.metadata)) == (S.FAILED, {"k": "v", "agent": "broken"})
        assert "503" in task.text
        assert get_task_result(task) == task.text


def test_b15_a_timeout_of_a_remote_agent_is_a_failed_task():
    with AgentRegistry(url_guard=None) as registry, peer(lambda asked, line: line.pause()) as far:
        registry.register("slow", create_agent_card("slow", "Slow", skills={"x": "X"}, url=far.url), retry=None)
        task = registry.submit_task("slow", "hi", timeout=0.1)
        assert task.state is S.FAILED
        assert "timed out" in task.text
        assert "slow" in task.text


# -- limits and authentication ------------------------------------------------------------------------------------------


def test_b16_a_repeated_message_is_run_once_per_caller(make):
    runs, gate = [], Gate()

    def handler(message, context):
        runs.append((context.user.id, message.text))
        if message.text == "hold":
            gate.block()
        return "ok"

    auth = BearerAuth({"one": "a", "two": "b"})
    with A2AApp(make(handler), auth=auth) as app:
        card = app.agent_card("http://agent.test/")
        one, two = (Client(card, session=wsgi_session(app), auth=token, retry=None) for token in ("one", "two"))
        with one, two:
            first = one.send("hi", idempotency_key="m1")
            assert one.send("hi", idempotency_key="m1").id == first.id
            assert runs == [("a", "hi")]
            with pytest.raises(InvalidParamsError):
                one.send("other", idempotency_key="m1")
            assert two.send("hi", idempotency_key="m1").id != first.id
            assert runs == [("a", "hi"), ("b", "hi")]
            with pytest.raises(TaskNotFoundError):
                two.get_task(first.id)
            # The same while the first run is active.
            held = Background(lambda: one.send("hold", idempotency_key="m2"))
            gate.wait()
            task_id = one.list_tasks(page_size=1).tasks[0].id
            assert one.send("hold", idempotency_key="m2", return_immediately=True).id == task_id
            gate.open.set()
            assert held.result().id == task_id
    assert runs == [("a", "hi"), ("b", "hi"), ("a", "hold")]


def test_b16_requests_are_limited(make):
    gate = Gate()
    limits = Limits(max_concurrent_runs=1, max_queued_runs=0, max_body_bytes=2000, max_message_parts=2)
    with A2AApp(make(lambda message, context: gate.block() or "ok"), limits=limits) as app:
        card = app.agent_card("http://agent.test/")
        with Client(card, session=wsgi_session(app), retry=None) as client:
            held = Background(lambda: client.send("hold"))
            gate.wait()
            with pytest.raises(OverloadedError):
                client.send("one too many")
            gate.open.set()
            assert held.result().text == "ok"
            assert client.send(["a", "b"]).text == "ok"
            with pytest.raises(InvalidParamsError, match="parts"):
                client.send(["a", "b", "c"])
            with pytest.raises(AgentError) as refused:
                client.send("x" * 2000)
            assert refused.value.http_status == 413


def reachable_from(thing):
    """The strings and bytes that are reachable from an object, including closures."""
    seen, waiting, found = set(), [thing], []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes):
            found.append(one if isinstance(one, bytes) else one.encode())
        elif isinstance(one, types.FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        else:
            waiting += gc.get_referents(one)
    return found


SCHEMES = {
    "bearer": lambda secret: BearerAuth({secret: "peer"}),
    "key": lambda secret: ApiKeyAuth({secret: "peer"}, header="X-Key"),
    "basic": lambda secret: BasicAuth({"peer": secret}),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_b17_no_secret_is_stored(scheme):
    auth = SCHEMES[scheme]("-".join(["s3cret", scheme]))
    kept = reachable_from(auth)
    assert b"X-Key" in kept or scheme != "key"
    assert not [text for text in kept if b"s3cret" in text]
    assert "s3cret" not in repr(auth)


def test_b17_secrets_from_the_environment_identify_callers(make, monkeypatch):
    monkeypatch.setenv("ONE", "s3cret")
    monkeypatch.setenv("TWO", "other")
    auth = BearerAuth({os.environ["ONE"]: "one", os.environ["TWO"]: "two"})
    with A2AApp(make(lambda message, context: context.user.id), auth=auth) as app:
        card = app.agent_card("http://agent.test/")
        with Client(card, session=wsgi_session(app), auth=lambda: os.environ["PEER"]) as client:
            for name, peer_id in (("ONE", "one"), ("TWO", "two")):
                monkeypatch.setenv("PEER", os.environ[name])
                assert client.send("caller id").text == peer_id
            for wrong in ("s3cre", "s3crets", "S3CRET", "x"):
                monkeypatch.setenv("PEER", wrong)
                with pytest.raises((UnauthenticatedError, PermissionDeniedError)):
                    client.send("caller id")


def test_b17_private_addresses_are_refused():
    for url in ("http://127.0.0.1/hook", "http://10.0.0.1/hook", "http://169.254.169.254/", "http://[::1]/"):
        with pytest.raises(UnsafeURLError):
            URLGuard().check(url)


def test_b18_a_run_has_a_time_limit_and_the_agent_decides_on_permissions(make):
    def handler(message, context):
        if context.user is None:
            raise PermissionDeniedError("only for known callers")
        return "ok"

    assert make(handler).call("go").text == "only for known callers"

    def endless(message, context):
        context.sleep(TIMEOUT)

    agent = Agent("endless", description="Never ends")
    agent.message(endless)
    with agent.start(limits=Limits(run_timeout=0.05, disconnect_check_interval=0.02)):
        task = agent.call("go")
    assert task.state is S.FAILED


def test_b19_both_spellings_of_canceled_are_members():
    assert TaskState.CANCELLED is TaskState.CANCELED is TaskState("cancelled") is TaskState("canceled")
    status = TaskStatus(state=TaskState.CANCELLED)
    assert [status.to_dict(version)["state"] for version in ("0.3", "1.0")] == ["canceled", "TASK_STATE_CANCELED"]
