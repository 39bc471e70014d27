"""One task, two clients with different protocol versions: each sees the other's changes in its own version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync import (
    Client,
    DataPart,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a_sync.errors import TaskNotCancelableError, UnsupportedOperationError
from a2a_sync.types import Role

pytestmark = pytest.mark.timeout(60)

MakeClientOf = Callable[..., Client]
#: A version, and a binding if it is not the first one in the card.
OLD_REST = "0.3 HTTP+JSON"
PAIRS = [("1.0", "0.3"), ("0.3", "1.0"), ("1.0", OLD_REST), (OLD_REST, "0.3")]
pairs = pytest.mark.parametrize(
    ("first", "second"), PAIRS, ids=["1.0-first", "0.3-first", "0.3-rest-second", "0.3-rest-first"]
)


def text_of(task: Task | Message) -> str:
    assert isinstance(task, Task)
    return task.text


@pairs
def test_a_task_created_in_one_version_is_read_in_the_other(
    first: str, second: str, make_client_of: MakeClientOf
) -> None:
    with make_client_of(*first.split()) as maker, make_client_of(*second.split()) as reader:
        made = maker.send("count 3")
        assert isinstance(made, Task)
        read = reader.get_task(made.id)
        assert read == maker.get_task(made.id)
        assert (read.state, read.text) == (TaskState.COMPLETED, "1 2 3 ")


@pairs
def test_a_running_task_is_followed_in_both_and_cancelled_in_the_other(
    first: str, second: str, make_client_of: MakeClientOf
) -> None:
    with make_client_of(*first.split()) as maker, make_client_of(*second.split()) as other:
        stream = maker.stream("wait")
        events: list[Any] = [next(stream)]
        task_id = events[0].id
        followed: list[Any] = []
        begun = threading.Event()

        def follow() -> None:
            with other.subscribe(task_id) as subscription:
                for event in subscription:
                    followed.append(event)
                    begun.set()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert begun.wait(60)
        cancelled = other.cancel_task(task_id)
        events += list(stream)
        thread.join(60)

        assert cancelled.state is TaskState.CANCELED
        assert isinstance(followed[0], Task)
        # Events are equal in both versions.
        updates = [event for event in events if isinstance(event, TaskStatusUpdateEvent)]
        heard = [event for event in followed if isinstance(event, TaskStatusUpdateEvent)]
        assert heard == updates[-len(heard) :]
        assert updates[-1].status == cancelled.status
        with pytest.raises(TaskNotCancelableError):
            maker.cancel_task(task_id)


@pairs
def test_a_question_asked_in_one_version_is_answered_in_the_other(
    first: str, second: str, make_client_of: MakeClientOf
) -> None:
    with make_client_of(*first.split()) as asking, make_client_of(*second.split()) as answering:
        asked = asking.send("ask")
        assert isinstance(asked, Task)
        done = answering.send("large", task_id=asked.id)
        assert text_of(done) == "ask / Which size? / large"
        with pytest.raises(UnsupportedOperationError):
            asking.send("too late", task_id=asked.id)


@pairs
def test_both_versions_stream_the_same_events(first: str, second: str, make_client_of: MakeClientOf) -> None:
    with make_client_of(*first.split()) as one, make_client_of(*second.split()) as other:
        for client in (one, other):
            with client.stream("count 5") as stream:
                events = list(stream)
            chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
            assert [chunk.append for chunk in chunks] == [False, *[True] * 4, False]
            assert [chunk.last_chunk for chunk in chunks] == [*[False] * 5, True]
            # Event ids are positions in the log in both versions, so a stream can be resumed in either.
            assert stream.last_event_id is not None
            assert stream.task is not None
            stored = other.get_task(stream.task_id)
            assert (stored.artifacts, stored.status) == (stream.task.artifacts, stream.task.status)


@pairs
def test_a_stream_cut_in_one_version_is_resumed_in_the_other(
    first: str, second: str, make_client_of: MakeClientOf
) -> None:
    with make_client_of(*first.split()) as one, make_client_of(*second.split()) as other:
        with one.stream("count 5") as stream:
            received = [next(stream) for _ in range(4)]
            text = stream.text
            after = stream.last_event_id
            task_id = stream.task_id
        one.wait(task_id, timeout=20)
        with other.subscribe(task_id, last_event_id=after) as rest:
            for event in rest:
                received.append(event)
                text += rest.new_text
    assert text == "1 2 3 4 5 "
    chunks = [event.artifact.text for event in received if isinstance(event, TaskArtifactUpdateEvent)]
    assert chunks == ["1 ", "2 ", "3 ", "4 ", "5 ", text]


@pytest.mark.parametrize("old", ["0.3", OLD_REST])
def test_values_that_0_3_cannot_represent_are_wrapped(old: str, make_client_of: MakeClientOf) -> None:
    message = Message(role=Role.USER, parts=(DataPart([1, None, "x"]), DataPart(None), DataPart({"a": 1})))
    with make_client_of(*old.split()) as sender, make_client_of("1.0") as reader:
        task = sender.send(message)
        assert isinstance(task, Task)
        for client in (sender, reader):
            (sent, *_) = client.get_task(task.id).history
            assert [part.data for part in sent.parts if isinstance(part, DataPart)] == [[1, None, "x"], None, {"a": 1}]
            assert not any(part.metadata for part in sent.parts)


def test_the_client_selects_the_newest_version_by_default(make_client_of: MakeClientOf) -> None:
    with make_client_of(None) as client:
        client.send("echo x")
        assert [one.protocol_version for one in client.card().supported_interfaces] == ["1.0", "1.0", "0.3", "0.3"]
        assert client.list_tasks(page_size=1).tasks
