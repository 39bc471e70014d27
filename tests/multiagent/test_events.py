"""Events of runs that are cancelled, lost with their worker, or have slow consumers."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, Client, InputRequired, Limits, SQLiteStore, TaskState
from a2a_sync.engine.stamp import status_event
from a2a_sync.multiagent import AgentEvents
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import Owner, TaskBatch
from a2a_sync.types import Message, Role
from tests.engine import TIMEOUT, Background, Gate, eventually
from tests.engine.test_membership import LIMITS, Patient, lose, waiting_task

S = TaskState


@pytest.fixture
def watched():
    """A client of an agent around a handler, and the events of it."""
    made = []

    def make(handler, *, limits=None, **options):
        agent = Agent("tested")
        agent.message(handler)
        events, received = AgentEvents(), []
        for name in ("agent.call", "agent.message", "agent.cancel", "task.transition"):
            events.on(name, received.append)
        app = A2AApp(agent, limits=limits, **events.watch("tested"), **options)
        client = Client(app)
        made.extend((client, app))
        return client, events, received

    yield make
    for one in made:
        one.close()


def followed(client):
    """The tasks that the observer of the client's app keeps in mind."""
    return client._target._engine.hub._observers[0]._tracked


def named(received, name):
    return [event for event in received if event.name == name]


def test_a_run_that_is_cancelled_is_reported_once_and_nothing_after_it(watched):
    gate = Gate()

    def handler(message, context):
        gate.block()
        return "too late"

    client, events, received = watched(handler)
    sent = Background(lambda: client.send("go"))
    gate.wait()
    (task,) = client.list_tasks().tasks
    client.cancel_task(task.id)
    gate.open.set()
    assert sent.result().state is S.CANCELED
    assert events.flush(TIMEOUT)
    assert [event.state for event in named(received, "task.transition")] == [S.SUBMITTED, S.WORKING, S.CANCELED]
    (handled,) = named(received, "agent.message")
    assert (handled.reply, handled.state) == ("canceled", S.CANCELED)


@pytest.mark.parametrize("limits", [Limits(), Limits(max_history_part_bytes=10)], ids=["whole", "slim"])
def test_streams_and_messages_without_a_task_are_calls_too(watched, limits):
    client, events, received = watched(lambda message, context: iter(("a",)), limits=limits)
    with client.stream("go") as stream:
        list(stream)
    assert events.flush(TIMEOUT)
    assert [event.task_id for event in named(received, "agent.call")] == [stream.task.id]


def test_nothing_is_made_for_names_without_listeners():
    events = AgentEvents()
    with pytest.raises(ValueError, match=r"no event 'agent\.birth'"):
        events.on("agent.birth", print)
    received = []
    events.on("agent.call", received.append)
    assert events.off("agent.call", received.append)
    agent = Agent("x")
    agent.message(lambda message, context: "ok")
    with agent.start(**events.watch("x")):
        agent.call("hi")
    assert events.flush(TIMEOUT)
    assert received == []


def test_the_events_of_a_run_that_is_taken_over_go_on(tmp_path):
    events, seen = AgentEvents(), []
    for name in ("agent.message", "task.transition"):
        events.on(name, seen.append)
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    dying = A2AApp(Patient(), store=store, limits=LIMITS)
    with A2AApp(Patient(), store=store, limits=LIMITS, **events.watch("heir")) as heir:
        task = waiting_task(Client(dying), "hello")
        lose(dying)
        assert Client(heir).wait(task.id, timeout=60).state is S.COMPLETED
    dying.close(0)
    assert events.flush(TIMEOUT)
    assert [(event.name, event.before, event.state) for event in seen] == [
        ("task.transition", S.WORKING, S.COMPLETED),
        ("agent.message", S.UNSPECIFIED, S.COMPLETED),
    ]


def test_a_run_that_another_process_ended_is_dropped_without_a_message(watched, tmp_path):
    gate = Gate()

    def handler(message, context):
        gate.block()
        context.update("too late")

    client, events, received = watched(handler, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    task = client.send("go", return_immediately=True)
    gate.wait()
    with closing(SQLiteStore(tmp_path / "tasks.db")) as other:
        request = RunRequest(message=Message(role=Role.USER, parts=(), task_id=task.id, context_id=task.context_id))
        other.interrupt(Owner(), task.id, [status_event(request, S.CANCELED)])
    gate.open.set()
    eventually(lambda: not followed(client), "the end of the run")
    assert events.flush(TIMEOUT)
    assert [event.state for event in named(received, "task.transition")] == [S.SUBMITTED, S.WORKING]
    assert not named(received, "agent.message")


def test_an_idle_task_that_is_cancelled_is_a_transition_and_no_message(watched):
    client, events, received = watched(lambda message, context: InputRequired("?"))
    client.cancel_task(client.send("go").id)
    assert events.flush(TIMEOUT)
    assert [(event.before, event.state) for event in named(received, "task.transition")][-1] == (
        S.INPUT_REQUIRED,
        S.CANCELED,
    )
    assert len(named(received, "agent.message")) == 1
    assert not followed(client)


def test_the_next_run_of_a_task_begins_at_the_state_before_it(watched):
    client, events, received = watched(lambda message, context: InputRequired("?") if message.text == "ask" else "done")
    client.send("again", task_id=client.send("ask").id)
    assert events.flush(TIMEOUT)
    assert [(event.before, event.state) for event in named(received, "task.transition")][-2:] == [
        (S.INPUT_REQUIRED, S.WORKING),
        (S.WORKING, S.COMPLETED),
    ]


def test_when_a_call_returns_the_observers_have_seen_its_run() -> None:
    seen: list[str] = []
    returned = threading.Event()

    def observe(batch: TaskBatch) -> None:
        # The caller returns meanwhile, if it is shown the end first.
        if batch.ended and not returned.wait(0.2):
            seen.append(batch.task_id)

    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    with A2AApp(agent, observers=[observe]) as app, Client(app) as client:
        task = client.send("hi").task
        returned.set()
        assert seen == [task.id]


def test_an_observer_of_an_agent_of_a_host_sees_its_tasks_only_and_is_gone_with_it(caplog):
    host, batches = AgentHost(), []

    def observe(batch):
        batches.append(batch)
        raise ValueError("an observer that fails")

    def make(name, **options):
        agent = Agent(name)
        agent.message(lambda message, context: "ok")
        return host.add(name, agent, **options)

    with host:
        watched, other = make("watched", observers=[observe]), make("other")
        mine = Client(watched).send("hi")
        Client(other).send("hi")
        assert {batch.task_id for batch in batches} == {mine.id}
        assert mine.state is S.COMPLETED
        assert "an observer that fails" in caplog.text
        count = len(batches)
        host.remove("watched")
        Client(make("watched")).send("hi")
    assert len(batches) == count


def test_a_task_that_waits_is_not_kept_in_mind(watched):
    client, events, received = watched(lambda message, context: InputRequired("?"))
    client.send("go")
    assert not followed(client)
    assert events.flush(TIMEOUT)
    assert [event.reply for event in named(received, "agent.message")] == ["input_required"]
