"""Agents and workflows of frameworks as executors: what they are given, and what clients see of their runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    AgentExecutor,
    Client,
    DataPart,
    InputRequired,
    Message,
    PublicError,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.card import create_agent_card
from a2a_sync.integrations.chat_messages import to_chat_messages
from a2a_sync.integrations.mapper import RunEvent, ToolCall, ToolResult
from a2a_sync.integrations.runners import AgentRunnerExecutor, RunResult, WorkflowExecutor, workflow_input
from a2a_sync.multiagent import get_task_result
from tests.engine import TIMEOUT

S = TaskState
CARD = create_agent_card("runner", "Runs", skills={"run": "Runs"})
CALL = {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}
SUM = RunEvent(
    "tool_call_result", tool_call=ToolCall(id="c1", name="sum"), tool_result=ToolResult(tool_call_id="c1", content="5")
)


class Answers:
    """An agent with `run` only."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.given: list[Any] = []

    def run(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        self.given.append((messages, options))
        return self.answer(messages) if callable(self.answer) else self.answer


class Emits:
    """An agent or workflow with `run_stream` only."""

    def __init__(self, *events: Any) -> None:
        self.events = events
        self.given: list[Any] = []
        self.closed = threading.Event()

    def run_stream(self, given: Any, **options: Any) -> Iterator[RunEvent]:
        self.given.append(given)
        # Kept, so that it is not closed by the garbage collector.
        self.running = self._run()
        return self.running

    def _run(self) -> Iterator[RunEvent]:
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event() if callable(event) else event
        finally:
            self.closed.set()


def said(*texts: str) -> list[RunEvent]:
    return [event for text in texts for event in (RunEvent("message_start"), RunEvent("message_delta", delta=text))]


@pytest.fixture
def serve():
    """A client of an executor."""
    made: list[Any] = []

    def serve(executor: AgentExecutor) -> Client:
        app = A2AApp(executor, card=CARD)
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, message: Any = "hi", **options: Any) -> Task:
    task = client.send(message, timeout=TIMEOUT, **options)
    assert isinstance(task, Task)
    return client.get_task(task.id)


# -- run ----------------------------------------------------------------------------------------------------------------


def test_the_agent_is_given_chat_messages_and_options_and_its_text_is_the_result(serve: Any) -> None:
    agent = Answers("hello")
    task = send(serve(AgentRunnerExecutor(agent, temperature=0)))
    assert agent.given == [([{"role": "user", "content": "hi"}], {"temperature": 0})]
    assert (task.state, task.text, task.artifacts[0].name) == (S.COMPLETED, "hello", "result")
    assert [message.text for message in task.history] == ["hi", "hello"]
    # Clients that read artifacts and status would have the answer twice.
    assert task.status.message is None


def test_the_messages_of_the_run_become_the_history_but_for_those_of_the_system(serve: Any) -> None:
    def answer(chats: list[dict[str, Any]]) -> Any:
        chats += [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {"role": "user", "content": "a reminder that the framework makes"},
        ]
        ask = {"role": "assistant", "content": "It is 5. More?"}
        return RunResult(messages=[{"role": "system", "content": "secret"}, *chats, ask])

    agent = Answers(answer)
    shown = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
        {"role": "assistant", "content": "It is 5. More?"},
    ]
    task = send(serve(AgentRunnerExecutor(agent)))
    assert to_chat_messages(task.history) == shown
    assert task.text == "It is 5. More?"


def test_what_the_run_was_given_is_not_repeated(serve: Any) -> None:
    class Briefed(AgentRunnerExecutor):
        def prompt(self, context: Any) -> list[dict[str, Any]]:
            return [{"role": "system", "content": "Be brief."}, *super().prompt(context)]

    def answer(chats: list[dict[str, Any]]) -> Any:
        if len(chats) == 2:
            return InputRequired("Which size?")
        return RunResult("5", [*chats, {"role": "assistant", "content": "Five."}])

    agent = Answers(answer)
    client = serve(Briefed(agent))
    asked = send(client)
    task = send(client, "large", task_id=asked.id)
    assert agent.given[0][0][0] == {"role": "system", "content": "Be brief."}
    assert [message.text for message in task.history] == ["hi", "Which size?", "large", "Five.", "5"]
    assert task.text == "5"


def test_a_question_is_asked_and_its_answer_goes_on(serve: Any) -> None:
    agent = Answers(lambda chats: "a large one" if len(chats) > 1 else InputRequired("Which size?"))
    client = serve(AgentRunnerExecutor(agent))
    asked = send(client, "pizza")
    assert (asked.state, asked.text) == (S.INPUT_REQUIRED, "Which size?")
    assert send(client, "large", task_id=asked.id).text == "a large one"
    assert [chat["content"] for chat in agent.given[1][0]] == ["pizza", "Which size?", "large"]


def test_an_exception_fails_the_task_and_only_a_public_text_is_shown(serve: Any) -> None:
    def fail(error: Exception) -> Any:
        raise error

    hidden = send(serve(AgentRunnerExecutor(Answers(lambda chats: fail(ValueError("secret"))))))
    shown = send(serve(AgentRunnerExecutor(Answers(lambda chats: fail(PublicError("no rates"))))))
    assert (hidden.state, "secret" in hidden.text) == (S.FAILED, False)
    assert (shown.state, shown.text) == (S.FAILED, "no rates")


def test_an_async_agent_is_run_too(serve: Any) -> None:
    class Later:
        async def run(self, messages: list[dict[str, Any]]) -> str:
            return f"{len(messages)} later"

    assert send(serve(AgentRunnerExecutor(Later()))).text == "1 later"


@pytest.mark.parametrize("make", [AgentRunnerExecutor, WorkflowExecutor])
def test_what_cannot_run_is_refused_at_once(make: Any) -> None:
    with pytest.raises(TypeError, match="object has n"):
        make(object())


# -- run_stream ---------------------------------------------------------------------------------------------------------


def test_a_run_with_events_is_a_task_with_results_of_tools_and_all_that_was_said(serve: Any) -> None:
    agent = Emits(RunEvent("run_start"), *said("Let me see"), SUM, *said("It is 5."), RunEvent("run_end"))
    with serve(AgentRunnerExecutor(agent)).stream("2 + 3?") as stream:
        shown = list(stream)
    states = [event.status.state for event in shown if isinstance(event, (Task, TaskStatusUpdateEvent))]
    assert (states.count(S.WORKING), states[-1]) == (1, S.COMPLETED)
    assert sum(isinstance(event, TaskArtifactUpdateEvent) for event in shown) == 2
    client = serve(AgentRunnerExecutor(agent))
    task = send(client, "2 + 3?")
    assert [artifact.name for artifact in task.artifacts] == ["sum", "result"]
    assert [message.text for message in task.history] == ["2 + 3?", "Let me see", "It is 5."]
    assert get_task_result(task) == "It is 5."
    assert agent.given[0] == [{"role": "user", "content": "2 + 3?"}]


def test_a_run_that_stops_without_an_end_is_completed_with_what_it_said(serve: Any) -> None:
    assert send(serve(AgentRunnerExecutor(Emits(*said("half"))))).text == "half"
    assert send(serve(AgentRunnerExecutor(Emits()))).state is S.COMPLETED


def test_an_error_event_fails_the_task_and_closes_the_run(serve: Any) -> None:
    agent = Emits(RunEvent("run_start"), RunEvent("run_error", error="no rates"), *said("more"))
    task = send(serve(AgentRunnerExecutor(agent)))
    assert (task.state, task.text, task.artifacts) == (S.FAILED, "no rates", ())
    assert agent.closed.wait(TIMEOUT)


def test_a_cancelled_run_is_closed_at_its_next_event(serve: Any) -> None:
    go_on = threading.Event()

    def wait() -> RunEvent:
        go_on.wait(TIMEOUT)
        return RunEvent("step_start")

    def too_late() -> RunEvent:
        went_on.append(True)
        return RunEvent("run_end")

    went_on: list[bool] = []
    agent = Emits(RunEvent("run_start"), SUM, wait, too_late)
    client = serve(AgentRunnerExecutor(agent))
    with client.stream("hi") as stream:
        for _ in stream:
            if stream.task is not None and stream.task.artifacts:
                break
        client.cancel_task(stream.task_id)
    go_on.set()
    assert agent.closed.wait(TIMEOUT)
    task = client.get_task(stream.task_id)
    assert (task.state, [artifact.name for artifact in task.artifacts]) == (S.CANCELED, ["sum"])
    assert not went_on


def test_an_async_run_is_followed_too(serve: Any) -> None:
    class Later:
        async def run_stream(self, messages: list[dict[str, Any]]) -> AsyncIterator[RunEvent]:
            for event in said("later"):
                yield event

    assert send(serve(AgentRunnerExecutor(Later()))).text == "later"


# -- workflows ----------------------------------------------------------------------------------------------------------


def test_a_workflow_is_given_text_data_and_metadata_and_what_comes_later_wins(serve: Any) -> None:
    flow = Emits(RunEvent("run_start"), *said("done"), RunEvent("run_end"))
    message = Message(
        role=Role.USER,
        parts=(TextPart("go"), DataPart({"a": 1, "b": 1}), DataPart([1]), DataPart({"b": 2, "c": 2})),
        metadata={"c": 3},
    )
    task = send(serve(WorkflowExecutor(flow)), message)
    assert flow.given == [{"query": "go", "a": 1, "b": 2, "c": 3}]
    assert (task.state, task.text) == (S.COMPLETED, "done")


def test_a_message_without_text_is_no_query() -> None:
    assert workflow_input(Message(role=Role.USER, parts=(DataPart({"a": 1}),))) == {"a": 1}


def test_a_workflow_that_fails_in_a_nested_run_has_failed(serve: Any) -> None:
    flow = Emits(
        RunEvent("run_start"), RunEvent("run_start"), RunEvent("run_error", error="step 2"), RunEvent("run_end")
    )
    assert send(serve(WorkflowExecutor(flow))).text == "step 2"
