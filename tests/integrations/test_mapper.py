"""The events of a run as those of a task: the table, nested runs, and what they add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync import Artifact, Message, Role, TaskArtifactUpdateEvent, TaskState, TextPart
from a2a_sync.integrations.mapper import Mapper, RunEvent, RunEventType, ToolCall, ToolResult
from a2a_sync.lifecycle import Fold, IllegalTransition
from a2a_sync.types import TaskStatusUpdateEvent

S = TaskState
START, END, SAID = RunEvent("run_start"), RunEvent("run_end"), RunEvent("message_start", message_id="m")
SUM = RunEvent(
    "tool_call_result",
    tool_call=ToolCall(id="c1", name="sum", arguments='{"a": 2}'),
    tool_result=ToolResult(tool_call_id="c1", content="5"),
)


def word(text: str) -> RunEvent:
    return RunEvent("message_delta", message_id="m", delta=text)


def states(events: Any) -> list[Any]:
    return [event.status.state if isinstance(event, TaskStatusUpdateEvent) else event.artifact.name for event in events]


def test_a_run_is_working_and_then_completed_with_what_was_said_last() -> None:
    mapper = Mapper("t", "c")
    events = list(mapper.map_stream([START, SAID, word("Let me see"), SUM, SAID, word("It is "), word("5."), END]))
    assert states(events) == [S.WORKING, "sum", S.COMPLETED]
    assert {(event.task_id, event.context_id) for event in events} == {("t", "c")}
    message = events[-1].status.message
    assert (message.text, message.role, message.task_id, message.context_id) == ("It is 5.", Role.AGENT, "t", "c")
    assert [message.text for message in mapper.said] == ["Let me see"]
    assert events[-1].status.timestamp.tzinfo is not None


def test_a_run_without_words_completes_without_a_message() -> None:
    assert [event.status.message for event in Mapper().map_stream([START, END])] == [None, None]


def test_only_the_outermost_run_of_nested_ones_begins_and_ends_the_task() -> None:
    mapper = Mapper()
    assert [mapper.map_event(event) is not None for event in [START, START, SAID, word("inner"), END, END]] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert mapper.state is S.COMPLETED


def test_an_error_at_any_depth_fails_the_task_and_nothing_follows() -> None:
    mapper = Mapper()
    error = RunEvent("run_error", error=ValueError("no rates"))
    events = list(mapper.map_stream([START, START, error, word("more"), END, END, SUM]))
    assert states(events) == [S.WORKING, S.FAILED]
    assert events[-1].status.message.text == "no rates"


@pytest.mark.parametrize("error", [None, "", ValueError()])
def test_an_error_without_words_is_unknown(error: Any) -> None:
    assert Mapper().map_event(RunEvent("run_error", error=error)).status.message.text == "unknown error"


def test_the_result_of_a_tool_is_an_artifact_named_after_the_tool() -> None:
    event = Mapper().map_event(SUM)
    assert isinstance(event, TaskArtifactUpdateEvent)
    artifact = event.artifact
    assert (artifact.name, artifact.description, artifact.text) == ("sum", "Tool execution result", "5")
    assert artifact.metadata == {"tool_call_id": "c1", "tool_name": "sum", "is_error": False}
    assert event.last_chunk


def test_a_result_whose_call_is_missing_is_one_all_the_same() -> None:
    lone = RunEvent("tool_call_result", tool_result=ToolResult(tool_call_id="c1", content="no", is_error=True))
    artifact = Mapper().map_event(lone).artifact
    assert artifact.metadata == {"tool_call_id": "c1", "tool_name": "", "is_error": True}
    assert Mapper().map_event(RunEvent("tool_call_result")) is None


SILENT = set(RunEventType) - {"run_start", "run_end", "run_error", "tool_call_result"}


@pytest.mark.parametrize("kind", [*sorted(SILENT), "state_snapshot", "something new"])
def test_of_everything_else_the_client_hears_nothing(kind: str) -> None:
    mapper = Mapper()
    mapper.map_event(START)
    assert mapper.map_event(RunEvent(kind, delta="a")) is None
    assert mapper.state is S.WORKING


def test_ids_are_made_up_where_none_are_given() -> None:
    one, other = Mapper(), Mapper("t")
    assert one.task_id
    assert one.context_id
    assert (other.task_id, other.context_id != one.context_id) == ("t", True)
    assert one.state is S.SUBMITTED


def test_every_status_has_a_method_of_its_name() -> None:
    mapper = Mapper("t")
    events_sent = [mapper.submitted(), mapper.working(), mapper.input_required("Which size?"), mapper.working()]
    assert states(events_sent) == [S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.WORKING]
    assert events_sent[2].status.message.text == "Which size?"
    assert Mapper().completed().status.message is None
    assert Mapper().failed("broken").status.message.text == "broken"
    assert Mapper().canceled().status.message is None
    said = Message(role=Role.USER, parts=(TextPart("hi"),), message_id="m")
    completed = Mapper("t", "c").completed(said).status.message
    assert (completed.role, completed.task_id, completed.message_id) == (Role.AGENT, "t", "m")


def test_a_task_that_has_ended_ends_no_other_way() -> None:
    mapper = Mapper()
    mapper.canceled()
    with pytest.raises(IllegalTransition, match="canceled"):
        mapper.completed()


def test_the_task_so_far_has_state_message_artifacts_and_a_history_that_is_given() -> None:
    mapper = Mapper("t", "c")
    assert (mapper.create_task().id, mapper.create_task().state) == ("t", S.SUBMITTED)
    mapper.map_event(SUM)
    assert (mapper.create_task().state, mapper.create_task().context_id) == (S.SUBMITTED, "c")
    mapper.input_required("Which size?")
    said = Message(role=Role.USER, parts=(TextPart("hi"),))
    task = mapper.create_task([said])
    assert (task.state, task.text, task.history) == (S.INPUT_REQUIRED, "Which size?", (said,))
    assert [artifact.name for artifact in task.artifacts] == ["sum"]


def test_complete_is_the_task_at_its_end_with_artifacts_besides_its_own() -> None:
    mapper = Mapper("t", "c")
    list(mapper.map_stream([START, SUM, SAID, word("It is 5.")]))
    task = mapper.complete(artifacts=[Artifact(name="chart", parts=(TextPart("5"),))])
    assert (task.id, task.context_id, task.state) == ("t", "c", S.COMPLETED)
    assert [artifact.name for artifact in task.artifacts] == ["sum", "chart"]
    assert task.status.message is not None
    assert task.status.message.text == "It is 5."


def test_complete_of_a_run_that_failed_is_the_failed_task() -> None:
    mapper = Mapper()
    mapper.map_event(RunEvent("run_error", error="no rates"))
    assert (mapper.complete().state, mapper.complete().text) == (S.FAILED, "no rates")


EVENTS = st.lists(
    st.one_of(
        st.sampled_from([START, END, SAID, SUM, RunEvent("step_start"), RunEvent("run_error", error="e")]),
        st.text(max_size=3).map(word),
    ),
    max_size=12,
)


@given(EVENTS)
def test_the_events_add_up_to_the_task(events: list[RunEvent]) -> None:
    mapper, fold = Mapper("t", "c"), Fold()
    for event in mapper.map_stream(events):
        fold.apply(event)
    events_sent, task = fold.task(), mapper.create_task()
    if events_sent is not None and events_sent.state is not S.UNSPECIFIED:
        assert (events_sent.status, events_sent.artifacts) == (task.status, task.artifacts)
    assert task.state is mapper.state


@given(EVENTS)
def test_nothing_that_was_said_in_a_run_is_lost(events: list[RunEvent]) -> None:
    words = [event for event in events if event.type in ("message_start", "message_delta")]
    mapper = Mapper()
    ended = list(mapper.map_stream([START, *words, END]))[-1]
    said = [*mapper.said, *([ended.status.message] if ended.status.message else [])]
    assert "".join(message.text for message in said) == "".join(event.delta for event in words)
