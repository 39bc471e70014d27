"""The scripted agent: what each step does, and that a client sees the same over every way to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Artifact,
    AuthRequired,
    Failed,
    InputRequired,
    Limits,
    Message,
    PublicError,
    Rejected,
    Role,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.errors import StreamInterruptedError
from a2a_sync.testing import Cut, Hold, Pause, ScriptedAgent, outline
from tests.engine import TIMEOUT, Background

WAYS = pytest.mark.parametrize("over", ["local", "wsgi", "socket"])
WORKING = TaskStatus(state=TaskState.WORKING, message=Message(role=Role.AGENT, parts=(TextPart("half way"),)))


@dataclass
class Order:
    size: str


SCRIPTS: dict[str, tuple[Any, list[str]]] = {
    "text": ("Hello", ["working", "Hello", "completed"]),
    "chunks": (["a", "b"], ["working", "a", "b", "completed"]),
    "nothing": ([], ["working", "completed"]),
    "an event": ([TaskStatusUpdateEvent(status=WORKING), "x"], ["working", "working: half way", "x", "completed"]),
    "a function": ([lambda context: context.update("half way"), "x"], ["working", "working: half way", "x", "completed"]),
    "what a function returns": ([lambda context: context.message.text], ["working", "go", "completed"]),
    "artifacts": ([Artifact(parts=(TextPart("one"),)), Artifact(parts=(TextPart("two"),))], ["working", "one", "two", "completed"]),
    "a question": (InputRequired("Which size?"), ["working", "input-required: Which size?"]),
    "a question after chunks": (["a", InputRequired("And?")], ["working", "a", "input-required: And?"]),
    "a login": (AuthRequired("Log in"), ["working", "auth-required: Log in"]),
    "a refusal": (Rejected("not my job"), ["working", "rejected: not my job"]),
    "a failure": (["a", Failed("broke")], ["working", "a", "failed: broke"]),
    "an error for the client": (["a", PublicError("no more flour")], ["working", "a", "failed: no more flour"]),
    "a pause": (["a", Pause(0.001), "b"], ["working", "a", "b", "completed"]),
    "cuts": ([Cut(), "a", Cut(), Cut(), "b", Cut()], ["working", "a", "b", "completed"]),
}  # fmt: skip


@WAYS
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_seen_alike_over_every_way(name: str, over: str, a2a_client: Any) -> None:
    turn, expected = SCRIPTS[name]
    assert outline(a2a_client(ScriptedAgent(turn), over).stream("go")) == expected


@WAYS
def test_a_script_ends_a_send_alike_over_every_way(over: str, a2a_client: Any) -> None:
    for turn, expected in SCRIPTS.values():
        task = a2a_client(ScriptedAgent(turn), over).send("go", timeout=TIMEOUT)
        assert expected[-1].startswith(str(task.state))


def test_an_exception_is_only_logged(a2a_client: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = a2a_client(ScriptedAgent(ValueError("secret"))).send("go")
    assert task.state is TaskState.FAILED
    assert "secret" not in task.text
    assert "secret" in caplog.text


def test_data_is_an_artifact(a2a_client: Any) -> None:
    assert a2a_client(ScriptedAgent(Order("large"))).send("go").artifacts[0].parts[0].data == {"size": "large"}


@WAYS
def test_an_answer_without_a_task_is_possible(over: str, a2a_client: Any) -> None:
    expected = Message(role=Role.AGENT, parts=(TextPart("hi"),))
    with A2AApp(ScriptedAgent(expected, direct=True), limits=Limits(direct_reply_timeout=TIMEOUT)) as app:
        answer = a2a_client(app, over).send("go")
    assert isinstance(answer, Message)
    assert answer.text == "hi"


def test_each_turn_answers_one_message_and_the_last_one_all_further_ones(a2a_client: Any) -> None:
    agent = ScriptedAgent(InputRequired("Which size?"), ["One ", "pizza"], "Closed")
    client = a2a_client(agent)
    asked = client.send("pizza")
    assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
    assert client.send("large", task_id=asked.id).text == "One pizza"
    assert [client.send("again").text for _ in range(2)] == ["Closed", "Closed"]
    assert [message.text for message in agent.received] == ["pizza", "large", "again", "again"]


def test_an_error_first_and_then_the_answer(a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent(PublicError("busy"), "done"))
    assert [client.send("go").text for _ in range(2)] == ["busy", "done"]


def test_it_is_an_agent_with_a_card(a2a_client: Any) -> None:
    card = a2a_client(ScriptedAgent("x", name="pizza", description="Bakes")).card()
    assert (card.name, card.description) == ("pizza", "Bakes")


@pytest.mark.parametrize(
    "step", [InputRequired("?"), PublicError("no"), ValueError()], ids=lambda step: type(step).__name__
)
def test_nothing_follows_what_ends_a_run(step: Any) -> None:
    with pytest.raises(ValueError, match=r"turns\[1\]\[0\]: nothing follows"):
        ScriptedAgent("fine", [step, "more"])


# -- holding ------------------------------------------------------------------------------------------------------------


@WAYS
def test_a_hold_keeps_the_agent_until_it_is_released(over: str, a2a_client: Any) -> None:
    hold = Hold()
    client = a2a_client(ScriptedAgent(["a", hold, "b"]), over)
    with client.stream("go") as stream:
        assert next(stream).state is TaskState.WORKING
        assert next(stream).artifact.text == "a"
        assert hold.reached.wait(TIMEOUT)
        assert client.get_task(stream.task_id).state is TaskState.WORKING
        hold.release()
        assert outline(stream) == ["b", "completed"]


def test_a_cancel_ends_a_hold_and_a_pause(a2a_client: Any) -> None:
    for step in (Hold(), Pause(60)):
        begun, over = threading.Event(), threading.Event()

        def end(context: Any, begun: threading.Event = begun, over: threading.Event = over) -> None:
            context.on_cancel(over.set)
            begun.set()

        client = a2a_client(ScriptedAgent([end, step, "never"]))
        task = client.send("go", return_immediately=True)
        assert begun.wait(TIMEOUT)
        assert client.cancel_task(task.id).state is TaskState.CANCELED
        assert over.wait(TIMEOUT)
        assert client.get_task(task.id).text == ""


# -- cutting ------------------------------------------------------------------------------------------------------------


@WAYS
def test_a_cut_is_seen_without_retries(over: str, a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent(["a", Cut(), "b"]), over, retry=None)
    stream = client.stream("go")
    with pytest.raises(StreamInterruptedError) as caught:
        outline(stream)
    assert stream.text == "a"
    assert client.wait(caught.value.task_id, timeout=TIMEOUT).text == "ab"
    rest = client.subscribe(caught.value.task_id, last_event_id=caught.value.last_event_id)
    assert outline(rest) == ["b", "completed"]


def test_a_cut_ends_the_streams_of_its_task_only(a2a_client: Any) -> None:
    hold = Hold()
    client = a2a_client(ScriptedAgent(["a", hold, "b"], ["c", Cut(), "d"]), retry=None)
    with client.stream("one") as other:
        next(other), next(other)
        assert hold.reached.wait(TIMEOUT)
        with pytest.raises(StreamInterruptedError):
            outline(client.stream("two"))
        hold.release()
        assert outline(other) == ["b", "completed"]


def test_a_cut_ends_all_streams_of_its_task(a2a_client: Any) -> None:
    hold = Hold()
    client = a2a_client(ScriptedAgent(["a", hold, Cut(), "b"]), retry=None)
    with client.stream("go") as first:
        next(first), next(first)
        with client.subscribe(first.task_id) as second:
            assert next(second).text == "a"
            readers = [Background(lambda stream=stream: outline(stream)) for stream in (first, second)]
            hold.release()
            for reader in readers:
                with pytest.raises(StreamInterruptedError):
                    reader.result()


def test_a_send_over_http_comes_through_a_cut(a2a_wsgi_client: Any) -> None:
    with pytest.raises(StreamInterruptedError):
        a2a_wsgi_client(ScriptedAgent(["a", Cut(), "b"]), retry=None).send("go")
    assert a2a_wsgi_client(ScriptedAgent(["a", Cut(), "b"])).send("go").text == "ab"
