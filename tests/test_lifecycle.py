from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync.lifecycle import (
    TRANSITIONS,
    ArtifactFold,
    Entry,
    Fold,
    IllegalTransition,
    check,
    ends_run,
    pauses,
)
from a2a_sync.operations import StreamItem
from a2a_sync.types import (
    Artifact,
    DataPart,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

S = TaskState


def status(state, **members):
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=state), **members)


def chunk(text, artifact_id="a", *, append=True, last=False, **members):
    parts = (TextPart(text),) if isinstance(text, str) else tuple(text)
    artifact = Artifact(artifact_id=artifact_id, parts=parts, **members)
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append, last_chunk=last)


def said(text):
    return Message(role=Role.USER, parts=(TextPart(text),), message_id=text)


def folded(*events, task=None):
    fold = Fold(task)
    for event in events:
        fold.apply(event)
    return fold.task()


TASK = Task(id="t", context_id="c", status=TaskStatus(state=S.WORKING))

# -- which transitions are legal (spec 3.1.6, 5.3) ----------------------------------------------------------------------

#: The table once more, as a person would draw it: from every open state to every state that means something.
OPEN = (S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED)
REACHABLE = (*OPEN[1:], S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED)
LEGAL = {(S.UNSPECIFIED, S.SUBMITTED)} | {(before, after) for before in OPEN for after in REACHABLE}


@pytest.mark.parametrize("after", S)
@pytest.mark.parametrize("before", S)
def test_a_status_event_leads_only_where_the_table_says(before, after):
    if (before, after) in LEGAL:
        assert check(before, [status(after)]) is after
    else:
        with pytest.raises(IllegalTransition):
            check(before, [status(after)])


@pytest.mark.parametrize("state", S)
def test_messages_and_artifacts_are_taken_until_the_task_has_ended(state):
    for event in (said("x"), chunk("x"), chunk("x", append=False)):
        if state.terminal:
            with pytest.raises(IllegalTransition, match=f"the task is {state}; nothing can follow"):
                check(state, [event])
        else:
            assert check(state, [event]) is state


def test_the_table_has_a_row_for_every_state():
    assert set(TRANSITIONS) == set(S)


def test_several_events_are_checked_one_after_the_other():
    assert (
        check(S.UNSPECIFIED, [status(S.SUBMITTED), status(S.WORKING), chunk("x"), status(S.COMPLETED)]) is S.COMPLETED
    )
    with pytest.raises(IllegalTransition, match="cannot go from submitted to submitted"):
        check(S.UNSPECIFIED, [status(S.SUBMITTED), status(S.SUBMITTED)])
    with pytest.raises(IllegalTransition, match="the task is completed; nothing can follow"):
        check(S.WORKING, [status(S.COMPLETED), chunk("late")])


def test_nothing_changes_nothing():
    assert all(check(state, []) is state for state in S)


def test_an_artifact_without_parts_is_refused():
    with pytest.raises(IllegalTransition, match="at least one part"):
        check(S.WORKING, [chunk(())])


# -- what an entry means for runs and waiters ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", S)
def test_a_run_ends_with_its_task_or_with_a_question(state):
    assert ends_run(status(state)) is (state.terminal or state is S.INPUT_REQUIRED)
    assert pauses(status(state)) is (state.terminal or state.interrupted)


@pytest.mark.parametrize("event", [said("x"), chunk("x", last=True)])
def test_messages_and_artifacts_neither_end_nor_pause(event):
    assert not ends_run(event)
    assert not pauses(event)


def test_streams_carry_all_entries_but_messages():
    assert not Entry(1, said("x")).streamed
    assert Entry(2, status(S.WORKING)).streamed
    assert Entry(3, chunk("x")).streamed


@pytest.mark.parametrize("event", [said("x"), status(S.WORKING), chunk("x")])
def test_an_entry_of_a_store_decodes_its_event_once_when_that_is_needed(event):
    decoded = []
    entry = Entry.read(
        3, type(event), lambda: decoded.append(event) or event, {}, 7, size=5, role=getattr(event, "role", None)
    )
    item = StreamItem.of(entry)
    whole = Entry(3, event)
    assert (entry.kind, entry.role, entry.streamed) == (whole.kind, whole.role, whole.streamed)
    assert (entry.number, entry.at_ms, entry.size, item.number) == (3, 7, 5, 3)
    assert decoded == []
    assert item.event is event
    assert entry == whole
    assert repr(entry) == repr(whole)
    assert decoded == [event]
    with pytest.raises(AttributeError, match="Entry has no attribute 'other'"):
        _ = entry.other


# -- what events add up to ----------------------------------------------------------------------------------------------


def test_nothing_is_no_task_and_a_lone_message_names_none():
    assert folded() is None
    assert folded(said("hello")) is None


def test_the_first_event_names_the_task():
    assert folded(status(S.WORKING)) == TASK
    assert folded(chunk("x")) == replace(
        TASK, status=TaskStatus(state=S.UNSPECIFIED), artifacts=(Artifact(artifact_id="a", parts=(TextPart("x"),)),)
    )


def test_a_name_once_known_stays():
    stray = TaskStatusUpdateEvent(task_id="other", context_id="other", status=TaskStatus(state=S.WORKING))
    assert folded(status(S.SUBMITTED), stray) == TASK


def test_an_event_without_names_takes_the_task_s():
    nameless = TaskStatusUpdateEvent(status=TaskStatus(state=S.COMPLETED))
    assert folded(nameless, task=TASK) == replace(TASK, status=TaskStatus(state=S.COMPLETED))


def test_a_snapshot_replaces_all_that_was_known():
    snapshot = Task(id="t", context_id="c", status=TaskStatus(state=S.COMPLETED), history=(said("only"),))
    assert folded(status(S.WORKING), chunk("x"), said("y"), snapshot) == snapshot


def test_a_status_replaces_the_last_one_and_merges_its_metadata():
    first, second = status(S.WORKING, metadata={"a": 1, "b": 1}), status(S.COMPLETED, metadata={"b": 2})
    task = folded(first, second, task=replace(TASK, metadata={"z": 0}))
    assert task.status == second.status
    assert task.metadata == {"z": 0, "a": 1, "b": 2}


def test_messages_are_kept_in_their_order():
    assert [message.text for message in folded(said("1"), status(S.WORKING), said("2")).history] == ["1", "2"]


def texts(task):
    return {artifact.artifact_id: [part.text for part in artifact.parts] for artifact in task.artifacts}


def test_appended_chunks_are_parts_of_one_artifact():
    assert texts(folded(chunk("a", append=False), chunk("b"), chunk("c", last=True))) == {"a": ["a", "b", "c"]}


def test_an_artifact_that_is_not_appended_replaces_its_namesake_in_place():
    task = folded(chunk("1", "a"), chunk("2", "b"), chunk("3", "a"), chunk("new", "a", append=False))
    assert texts(task) == {"a": ["new"], "b": ["2"]}
    assert [artifact.artifact_id for artifact in task.artifacts] == ["a", "b"]


def test_an_append_to_an_unknown_artifact_makes_it():
    assert texts(folded(chunk("x", "unseen", append=True))) == {"unseen": ["x"]}


def test_an_empty_last_chunk_ends_an_artifact_and_adds_nothing():
    assert texts(folded(chunk("a", append=False), chunk("", last=True))) == {"a": ["a"]}


@pytest.mark.parametrize(
    "event",
    [
        chunk("", append=True, last=False),
        chunk((TextPart(""), TextPart("")), last=True),
        chunk((DataPart(""),), last=True),
        chunk(" ", last=True),
    ],
)
def test_only_a_lone_empty_text_in_a_last_chunk_is_an_end_marker(event):
    task = folded(chunk("a", append=False), event)
    assert task.artifacts[0].parts == (TextPart("a"), *event.artifact.parts)


def test_an_end_marker_that_makes_an_artifact_is_kept_as_its_part():
    assert texts(folded(chunk("", last=True))) == {"a": [""]}


def test_an_end_marker_may_still_name_things():
    task = folded(chunk("a", append=False, name="old"), chunk("", last=True, metadata={"done": True}, name="new"))
    (artifact,) = task.artifacts
    assert artifact == Artifact(artifact_id="a", parts=(TextPart("a"),), name="new", metadata={"done": True})


def test_an_append_adds_to_what_is_said_of_the_artifact():
    first = chunk("a", append=False, name="n", description="d", metadata={"x": 1, "y": 1}, extensions=("e1",))
    more = chunk("b", metadata={"y": 2}, extensions=("e1", "e2"))
    (artifact,) = folded(first, more).artifacts
    assert (artifact.name, artifact.description) == ("n", "d")
    assert artifact.metadata == {"x": 1, "y": 2}
    assert artifact.extensions == ("e1", "e2")


def test_a_task_that_was_handed_out_does_not_change_afterwards():
    fold = Fold(TASK)
    fold.apply(chunk("a", append=False))
    fold.apply(status(S.WORKING, metadata={"k": 1}))
    before = fold.task()
    fold.apply(chunk("b"))
    fold.apply(said("x"))
    fold.apply(status(S.COMPLETED, metadata={"k": 2}))
    assert texts(before) == {"a": ["a"]}
    assert (before.history, before.status.state, before.metadata) == ((), S.WORKING, {"k": 1})


def test_a_snapshot_that_was_folded_from_does_not_change():
    snapshot = replace(TASK, artifacts=(chunk("a").artifact,), metadata={"k": 1})
    folded(chunk("b"), status(S.COMPLETED, metadata={"k": 2}), task=snapshot)
    assert texts(snapshot) == {"a": ["a"]}
    assert snapshot.metadata == {"k": 1}


def test_an_artifact_fold_knows_its_ids():
    fold = ArtifactFold([chunk("x", "a").artifact])
    fold.apply(chunk("y", "b"))
    assert "a" in fold
    assert "b" in fold
    assert "c" not in fold
    assert [artifact.artifact_id for artifact in fold.artifacts()] == ["a", "b"]


# -- any way of folding gives the same task -----------------------------------------------------------------------------

CHUNKS = st.builds(
    chunk,
    st.sampled_from(["", "x", "y"]),
    st.sampled_from(["a", "b"]),
    append=st.booleans(),
    last=st.booleans(),
    name=st.sampled_from(["", "n"]),
    metadata=st.dictionaries(st.sampled_from("kl"), st.integers(0, 3), max_size=2),
    extensions=st.lists(st.sampled_from(["e1", "e2"]), max_size=2, unique=True).map(tuple),
)
STATUSES = st.builds(
    status, st.sampled_from(S), metadata=st.dictionaries(st.sampled_from("kl"), st.integers(0, 3), max_size=2)
)
LOGS = st.lists(CHUNKS | STATUSES | st.sampled_from("123").map(said), max_size=12)


@given(LOGS, st.data())
def test_any_split_into_snapshot_and_events_folds_to_the_same_task(log, data):
    whole = folded(*log, task=TASK)
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=3).map(sorted))
    task = TASK
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        task = folded(*log[start:end], task=task)
    assert task == whole


@given(LOGS)
def test_folding_one_by_one_and_all_at_once_agree(log):
    task = TASK
    for event in log:
        task = folded(event, task=task)
    assert task == folded(*log, task=TASK)


@given(LOGS)
def test_replaying_from_a_snapshot_in_the_middle_of_a_stream_agrees(log):
    for cut in range(len(log) + 1):
        assert folded(chunk("stale", "z"), folded(*log[:cut], task=TASK), *log[cut:]) == folded(*log, task=TASK)
