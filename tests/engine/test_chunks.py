"""Pieces of streamed text are stored behind the run that emits them: in order, complete, and never published before."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import PublicError, SQLiteStore, TaskState
from a2a_sync.engine.chunks import MAX_QUEUED, ChunkWriter, is_text_chunk
from a2a_sync.errors import StoreError
from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.stores.base import RunToken
from a2a_sync.types import Artifact, DataPart, TaskArtifactUpdateEvent, TextPart
from tests.engine import TIMEOUT, Gate, Served, collect, eventually, in_child


class Recorder(SQLiteStore):
    """Records the number of pieces of each append. `gate` blocks the first one; `failures` are raised, one each."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.appends: list[int] = []
        self.gate: Gate | None = None
        self.failures: list[Exception] = []

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, **options: Any
    ) -> tuple[Entry, ...]:
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.block()
        if self.failures:
            raise self.failures.pop(0)
        self.appends.append(sum(isinstance(event, TaskArtifactUpdateEvent) for event in events))
        return super().append(token, events, end=end, **options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Recorder]:
    store = Recorder(tmp_path / "tasks.db")
    yield store
    store.close()


def piece(text: str = "x") -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(TextPart(text),)), append=True)


def stored_text(served: Served, task_id: str) -> str:
    return "".join(artifact.text for artifact in served.get(task_id).artifacts)


# -- what is queued -----------------------------------------------------------------------------------------------------


def test_only_a_short_plain_piece_of_text_is_queued() -> None:
    assert is_text_chunk([piece()])
    artifact = Artifact(artifact_id="a", parts=(TextPart("x"),))
    for events in (
        [],
        [piece(), piece()],
        [piece("x" * 20_000)],
        [TaskArtifactUpdateEvent(artifact=artifact, metadata={"a": 1})],
        [TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(TextPart("x"),), metadata={"a": 1}))],
        [TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(TextPart("x", metadata={"a": 1}),)))],
        [TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(TextPart("x"), TextPart("y"))))],
        [TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(DataPart({}),)))],
    ):
        assert not is_text_chunk(events)


def test_pieces_that_are_emitted_during_an_append_are_stored_together_by_the_next_one(store: Recorder) -> None:
    first_append = store.gate = Gate()

    def handler(message: Any, context: Any) -> Iterator[str]:
        yield "0 "
        first_append.wait()
        yield from (f"{number} " for number in range(1, 6))
        first_append.open.set()

    served = Served(handler, store=store)
    events = collect(served.stream())
    assert store.appends[0] == 1
    assert len(store.appends) <= 3
    texts = [item.event.artifact.text for item in events if isinstance(item.event, TaskArtifactUpdateEvent)]
    # Every piece is an event of its own, also where several were stored together.
    assert texts[:6] == ["0 ", "1 ", "2 ", "3 ", "4 ", "5 "]
    numbers = [item.number for item in events[1:]]
    assert numbers == sorted(set(numbers))
    served.close()


def test_a_piece_is_stored_and_published_while_its_handler_waits(store: Recorder) -> None:
    gate = Gate()

    def handler(message: Any, context: Any) -> Iterator[str]:
        yield "before"
        gate.block()

    served = Served(handler, store=store)
    stream = served.stream()
    (first,) = eventually(lambda: stream.poll(1.0), "the task")
    (chunk,) = eventually(lambda: stream.poll(1.0), "the piece")
    assert chunk.event.artifact.text == "before"
    assert stored_text(served, first.event.id) == "before"
    gate.open.set()
    served.quiet()
    served.close()


def test_a_handler_waits_when_too_many_of_its_pieces_are_queued(store: Recorder) -> None:
    append = store.gate = Gate()
    emitted: list[int] = []

    def handler(message: Any, context: Any) -> None:
        for number in range(2 * MAX_QUEUED):
            context.emit(piece())
            emitted.append(number)

    served = Served(handler, store=store, task_store_timeout=0)
    sending = served.in_background()
    append.wait()
    eventually(lambda: len(emitted) >= MAX_QUEUED - 1, "a full queue")
    assert len(emitted) < MAX_QUEUED
    append.open.set()
    assert sending.result().artifacts[0].text == "x" * 2 * MAX_QUEUED
    assert max(store.appends) <= MAX_QUEUED
    served.close()


def test_a_run_reads_what_it_has_emitted(store: Recorder) -> None:
    read: list[str] = []

    def handler(message: Any, context: Any) -> None:
        context.emit(piece("mine"))
        read.append(context.task.artifacts[0].text)

    served = Served(handler, store=store)
    served.send()
    assert read == ["mine"]
    served.close()


# -- failures -----------------------------------------------------------------------------------------------------------


def test_an_error_of_the_store_is_raised_by_the_next_emit_and_nothing_is_lost(store: Recorder) -> None:
    caught: list[StoreError] = []

    def handler(message: Any, context: Any) -> None:
        store.failures.append(StoreError("the disk is full"))
        context.emit(piece("0"))
        eventually(lambda: not store.failures, "the failed append")
        for number in range(1, 4):
            while True:
                try:
                    context.emit(piece(str(number)))
                except StoreError as error:
                    caught.append(error)
                else:
                    break

    served = Served(handler, store=store, task_store_timeout=0)
    task = served.send()
    assert [str(error) for error in caught] == ["the disk is full"]
    assert (task.state, task.artifacts[0].text) == (TaskState.COMPLETED, "0123")
    served.close()


def test_a_handler_that_does_not_handle_the_error_fails_and_its_pieces_are_kept(store: Recorder) -> None:
    def handler(message: Any, context: Any) -> Iterator[str]:
        store.failures.append(StoreError("the disk is full"))
        yield "0"
        eventually(lambda: not store.failures, "the failed append")
        yield "1"

    served = Served(handler, store=store, task_store_timeout=0)
    task = served.send()
    assert task.state is TaskState.FAILED
    assert "disk" not in task.status.message.text
    assert stored_text(served, task.id) == "0"
    served.close()


def test_pieces_before_an_exception_of_the_handler_are_stored(store: Recorder) -> None:
    def handler(message: Any, context: Any) -> Iterator[str]:
        yield "kept "
        yield "too"
        raise PublicError("no more flour")

    served = Served(handler, store=store)
    task = served.send()
    assert (task.state, task.status.message.text) == (TaskState.FAILED, "no more flour")
    assert stored_text(served, task.id) == "kept too"
    served.close()


def test_a_task_that_grows_too_large_fails_with_the_reason(store: Recorder) -> None:
    def handler(message: Any, context: Any) -> Iterator[str]:
        while True:
            yield "x" * 1000

    served = Served(handler, store=store, max_task_bytes=20_000, max_body_bytes=10_000)
    task = served.send()
    assert task.state is TaskState.FAILED
    assert "a task may hold 20000 bytes" in task.status.message.text
    served.close()


def test_a_run_whose_task_was_canceled_stops_at_its_next_piece(store: Recorder) -> None:
    gate, stopped = Gate(), threading.Event()

    def handler(message: Any, context: Any) -> Iterator[str]:
        try:
            yield "first"
            gate.block()
            while True:
                yield "late"
        finally:
            stopped.set()

    served = Served(handler, store=store)
    task_id = served.begin()
    gate.wait()
    eventually(lambda: stored_text(served, task_id), "the first piece")
    assert served.cancel(task_id).state is TaskState.CANCELED
    gate.open.set()
    assert stopped.wait(TIMEOUT)
    served.quiet()
    assert stored_text(served, task_id) == "first"
    served.close()


def test_a_run_is_stopped_by_the_refusal_of_its_queued_piece(store: Recorder, tmp_path: Path) -> None:
    gate, stopped = Gate(), threading.Event()

    def handler(message: Any, context: Any) -> Iterator[str]:
        try:
            gate.block()
            yield "late"
            context.sleep(TIMEOUT)
        finally:
            stopped.set()

    served = Served(handler, store=store)
    other = Served(handler, store=SQLiteStore(tmp_path / "tasks.db"))
    task_id = served.begin()
    gate.wait()
    # Another app over the same file, with no connection to the first one but the file.
    other.app._engine.hub.pubsub = None
    assert other.cancel(task_id).state is TaskState.CANCELED
    gate.open.set()
    assert stopped.wait(TIMEOUT)
    served.quiet()
    other.close()
    other.store.close()
    served.close()


# -- the thread ---------------------------------------------------------------------------------------------------------


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "a2a-chunks"]


def test_the_thread_ends_with_close_and_starts_again_when_needed() -> None:
    eventually(lambda: not threads(), "the end of earlier threads")
    writer, called = ChunkWriter(), threading.Event()
    assert not threads()
    for _ in range(2):
        assert writer.schedule(called.set)
        assert called.wait(TIMEOUT)
        called.clear()
        writer.close()
        eventually(lambda: not threads(), "the end of the thread")


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    writer, called = ChunkWriter(), threading.Event()
    assert writer.schedule(called.set)
    assert called.wait(TIMEOUT)

    def child() -> None:
        called = threading.Event()
        assert writer.schedule(called.set)
        assert called.wait(TIMEOUT)

    in_child(child)
    writer.close()


def test_without_a_thread_the_run_stores_its_pieces_itself(store: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.engine.chunks.start_thread", lambda *arguments: None)

    def handler(message: Any, context: Any) -> Iterator[str]:
        yield from "abc"

    served = Served(handler, store=store)
    assert served.send().artifacts[0].text == "abc"
    assert store.appends[:3] == [1, 1, 1]
    served.close()


def test_the_thread_keeps_no_run_alive() -> None:
    writer, called = ChunkWriter(), threading.Event()

    class Flush:
        def __call__(self) -> None:
            called.set()

    flush = Flush()
    gone = weakref.ref(flush)
    assert writer.schedule(flush)
    assert called.wait(TIMEOUT)
    del flush
    eventually(lambda: gone() is None, "the release of the function")
    writer.close()
