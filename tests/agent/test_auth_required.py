"""An agent that asks its client to authorise something (spec 7.6): what streams say, and how the task goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, AuthRequired, Client, TaskStatus, TaskStatusUpdateEvent
from a2a_sync.agent.executor import RequestContext
from a2a_sync.codec import by_version
from a2a_sync.operations import StreamItem
from a2a_sync.testing import wsgi_session
from a2a_sync.types import TaskState
from tests.engine import eventually
from tests.wsgi import Peer, message, message_v03, rpc

URL = "http://agent.test"


def returning() -> Agent:
    agent = Agent("returning")

    @agent.message
    def handle(message: Any, context: RequestContext) -> Any:
        return "in" if message.text == "done" else AuthRequired("sign in at https://id.example.com/")

    return agent


class Yielding:
    """The same a level below: the last thing it says is that it waits."""

    def execute(self, context: RequestContext) -> Iterator[Any]:
        if context.message.text == "done":
            return
        asked = TaskStatus(state=TaskState.AUTH_REQUIRED, message=context.agent_message("sign in"))
        yield TaskStatusUpdateEvent(status=asked)


class GoingOn:
    """Asks, and goes on by itself when it has been authorised elsewhere."""

    def execute(self, context: RequestContext) -> Iterator[Any]:
        asked = TaskStatus(state=TaskState.AUTH_REQUIRED, message=context.agent_message("sign in"))
        yield TaskStatusUpdateEvent(status=asked)
        yield TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.COMPLETED))


CARD = AgentCard(name="low", description="", version="1")
AGENTS = {"returned": (returning(), None), "yielded": (Yielding(), CARD)}
BOTH = pytest.mark.parametrize(("agent", "card"), AGENTS.values(), ids=AGENTS)


def events_v03(peer: Peer, text: str = "go", **members: Any) -> list[Any]:
    headers = {"Content-Type": "application/json"}
    with peer.open("POST", "/", rpc("message/stream", message_v03(text, **members)), headers) as stream:
        return list(stream.events())


@BOTH
def test_in_0_3_the_last_event_of_the_stream_says_that_it_is_the_last(agent: Any, card: Any) -> None:
    with A2AApp(agent, card=card) as app:
        events = events_v03(Peer(app))

    assert events[-1]["status"]["state"] == "auth-required"
    assert [event["final"] for event in events if event["kind"] == "status-update"][-1] is True


@BOTH
def test_in_1_0_nothing_is_said_twice(agent: Any, card: Any) -> None:
    with A2AApp(agent, card=card) as app, Peer(app).stream("SendStreamingMessage", message("go")) as stream:
        states = [event["statusUpdate"]["status"]["state"] for event in stream.events() if "statusUpdate" in event]

    assert states.count("TASK_STATE_AUTH_REQUIRED") == 1


def test_a_run_that_goes_on_says_it_once_and_does_not_end_there() -> None:
    with A2AApp(GoingOn(), card=CARD) as app:
        updates = [event for event in events_v03(Peer(app)) if event["kind"] == "status-update"]

    assert [(one["status"]["state"], one["final"]) for one in updates][-2:] == [
        ("auth-required", False),
        ("completed", True),
    ]


@BOTH
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_client_sees_it_once_authorises_and_goes_on(agent: Any, card: Any, version: str) -> None:
    with A2AApp(agent, card=card) as app, Client(URL, session=wsgi_session(app), protocol_version=version) as client:
        with client.stream("go") as stream:
            states = [event.status.state for event in stream if isinstance(event, TaskStatusUpdateEvent)]
        task = client.send("go on", task_id=stream.task_id)
        done = client.send("done", task_id=stream.task_id)

    assert states.count(TaskState.AUTH_REQUIRED) == 1
    assert (task.state, done.state) == (TaskState.AUTH_REQUIRED, TaskState.COMPLETED)  # type: ignore[union-attr]


@BOTH
def test_a_stream_that_is_read_late_ends_where_its_run_did(agent: Any, card: Any) -> None:
    """The next run has begun and ended before the events of the first one are read."""
    with A2AApp(agent, card=card) as app:
        peer = Peer(app)
        with peer.open(
            "POST", "/", rpc("message/stream", message_v03("go")), {"Content-Type": "application/json"}
        ) as late:
            task = peer.call("ListTasks", {}).result["tasks"][0]["id"]
            eventually(
                lambda: peer.call("GetTask", {"id": task}).result["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
            )
            assert peer.call("SendMessage", message("done", taskId=task)).result["task"]["id"] == task
            events = list(late.events())

    assert events[-1]["status"]["state"] == "auth-required"
    assert events[-1]["final"] is True


def test_both_dialects_of_0_3_say_it() -> None:
    event = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=TaskState.AUTH_REQUIRED))
    for codec in (by_version("0.3"), by_version("0.3", "HTTP+JSON")):
        ending = codec.encode_end(StreamItem(event, 7))
        assert ending is not None
        assert codec.ends_stream(json.loads(ending))
    assert by_version("1.0").encode_end(StreamItem(event, 7)) is None
