"""What is told of runs that other things happen to: cancels, deaths of workers, takers that come late."""

from __future__ import annotations

import pytest

from a2a_sync import A2AApp, Agent, AgentEvents, Client, InputRequired, Limits, SQLiteStore, TaskState
from a2a_sync.engine.stamp import status_event
from a2a_sync.multiagent.events import ObservedStore
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HeldRun, Owner, RunRevoked
from a2a_sync.types import Message, Role, TextPart
from tests.engine import PATIENCE, Background, Gate

S = TaskState


@pytest.fixture
def watched():
    """A client of an agent around a handler, and what is told of it."""
    made = []

    def make(handler, *, limits=None, **options):
        agent = Agent("tested")
        agent.message(handler)
        events, told = AgentEvents(), []
        for name in ("agent.call", "agent.message", "agent.cancel", "task.transition"):
            events.on(name, told.append)
        app = A2AApp(agent, limits=limits, **events.watch("tested", **options))
        client = Client(app)
        made.extend((client, app, app.store))
        return client, events, told

    yield make
    for one in made:
        one.close()


def named(told, name):
    return [event for event in told if event.name == name]


def test_a_run_that_is_cancelled_is_told_once_and_nothing_after_it(watched):
    gate = Gate()

    def handler(message, context):
        gate.here()
        return "too late"

    client, events, told = watched(handler)
    sent = Background(lambda: client.send("go"))
    gate.wait()
    (task,) = client.list_tasks().tasks
    client.cancel_task(task.id)
    gate.open.set()
    assert sent.result().state is S.CANCELED
    assert events.flush(PATIENCE)
    assert [event.state for event in named(told, "task.transition")] == [S.SUBMITTED, S.WORKING, S.CANCELED]
    (handled,) = named(told, "agent.message")
    assert (handled.reply, handled.state) == ("canceled", S.CANCELED)


@pytest.mark.parametrize("limits", [Limits(), Limits(max_history_part_bytes=10)], ids=["whole", "slim"])
def test_streams_and_messages_without_a_task_are_calls_too(watched, limits):
    client, events, told = watched(lambda message, context: iter(("a",)), limits=limits)
    with client.stream("go") as stream:
        list(stream)
    assert events.flush(PATIENCE)
    assert [event.task_id for event in named(told, "agent.call")] == [stream.task.id]


def test_nothing_is_made_for_names_that_nobody_wants():
    events = AgentEvents()
    with pytest.raises(ValueError, match=r"no event 'agent\.birth'"):
        events.on("agent.birth", print)
    told = []
    events.on("agent.call", told.append)
    assert events.off("agent.call", told.append)
    agent = Agent("x")
    agent.message(lambda message, context: "ok")
    with agent.start(**events.watch("x")):
        agent.call("hi")
    assert events.flush(PATIENCE)
    assert told == []


def test_the_events_of_a_run_that_is_taken_over_go_on(tmp_path):
    told = []
    mine = ObservedStore(SQLiteStore(tmp_path / "tasks.db"), told.append)
    other = SQLiteStore(tmp_path / "tasks.db")
    request = RunRequest(message=Message(role=Role.USER, parts=(TextPart("x"),), task_id="t", context_id="c"))
    started = other.start_run(Owner(), request, [request.message, status_event(request, S.SUBMITTED)], create=True)
    mine.workers.beat()
    adopted = mine.workers.adopt(HeldRun(Owner(), started.token), request, [status_event(request, S.WORKING)])
    mine.append(adopted.token, [status_event(request, S.COMPLETED)], end=True)
    assert [(event.name, event.state) for event in told] == [
        ("task.transition", S.COMPLETED),
        ("agent.message", S.COMPLETED),
    ]
    assert mine.shared
    mine.close()
    other.close()


def test_a_run_that_lost_its_task_is_forgotten(tmp_path):
    told = []
    store = ObservedStore(SQLiteStore(tmp_path / "tasks.db"), told.append)
    request = RunRequest(message=Message(role=Role.USER, parts=(TextPart("x"),), task_id="t", context_id="c"))
    started = store.start_run(Owner(), request, [request.message, status_event(request, S.SUBMITTED)], create=True)
    store._store.interrupt(Owner(), "t", [status_event(request, S.CANCELED)])  # by another process
    with pytest.raises(RunRevoked):
        store.append(started.token, [status_event(request, S.COMPLETED)], end=True)
    assert not store._observer.knows("t")
    store.close()


def test_a_task_that_waits_is_not_kept_in_mind(watched):
    client, events, told = watched(lambda message, context: InputRequired("?"))
    client.send("go")
    assert not client._target.store._observer._seen
    assert events.flush(PATIENCE)
    assert [event.reply for event in named(told, "agent.message")] == ["input_required"]
