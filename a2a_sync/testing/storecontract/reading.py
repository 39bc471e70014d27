"""Reads: the log, and the task that is folded from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HEAD_BYTES, LargeResult, TaskBusy, TaskQuery, TaskStore
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    NOON,
    begin,
    chunk,
    done,
    message,
    next_ms,
    pages,
    resume,
    status,
)
from a2a_sync.types import Artifact, DataPart, FilePart, Message, Role, TaskArtifactUpdateEvent, TaskState, TextPart

#: Every kind of content.
PARTS = (
    TextPart("a\u0000b \U0001f40d", metadata={"k": {"deep": [1, 2.5, None, True]}}, filename="f", media_type="t/x"),
    FilePart(raw=bytes(range(256)), filename="b.bin", media_type="application/octet-stream"),
    FilePart(url="https://example.com/x?y=%20"),
    DataPart({"n": 10**15, "list": [], "none": None}),
    DataPart(None),
)
SENT = Message(
    role=Role.USER,
    parts=PARTS,
    message_id="m",
    task_id="t",
    context_id="c",
    metadata={"m": 1},
    extensions=("https://example.com/e",),
    reference_task_ids=("r1", "r2"),
)
MADE = TaskArtifactUpdateEvent(
    task_id="t",
    context_id="c",
    artifact=Artifact(parts=PARTS, artifact_id="a", name="n", description="d", metadata={"x": "y"}, extensions=("e",)),
    last_chunk=True,
    metadata={"z": 0},
)


def log_pages(store: TaskStore, task_id: str, **bounds: int) -> list[Any]:
    """All pages of a log, read with these bounds."""
    found: list[Any] = []
    while not found or found[-1].entries[-1].number < found[-1].version:
        found.append(store.log(MINE, task_id, after=found[-1].entries[-1].number if found else 0, **bounds))
    return found


class Reading:
    """Part of `StoreContract`; see the module."""

    # -- the log --------------------------------------------------------------------------------------------------------

    def test_numbers_ascend_by_one_and_are_never_used_again(self, store: Any) -> None:
        run = begin(store)
        task_id, numbers = run.head.id, [entry.number for entry in run.entries]
        numbers += [entry.number for entry in store.append(run.token, [chunk(task_id, "1"), chunk(task_id, "2")])]
        with pytest.raises(TaskBusy):
            resume(store, task_id)
        numbers += [entry.number for entry in store.append(run.token, [message(task_id, role=Role.AGENT)], end=True)]
        numbers += [entry.number for entry in resume(store, task_id).entries]
        numbers += [entry.number for entry in store.interrupt(MINE, task_id, [status(task_id, TaskState.FAILED)])]
        assert numbers == list(range(1, 10))
        assert store.head(MINE, task_id).version == 9
        assert [entry.number for entry in store.log(MINE, task_id).entries] == numbers

    def test_the_log_is_read_in_pages_after_a_cursor(self, store: Any) -> None:
        run = begin(store)
        store.append(run.token, [chunk(run.head.id, str(n), append=n > 0) for n in range(20)])
        whole = store.log(MINE, run.head.id)
        assert (whole.version, whole.state, whole.running) == (23, TaskState.WORKING, True)
        found = log_pages(store, run.head.id, limit=7)
        assert all(1 <= len(page.entries) <= 7 for page in found)
        read = [entry for page in found for entry in page.entries]
        assert tuple(read) == whole.entries
        assert [entry.event.artifact.text for entry in read[3:]] == [str(n) for n in range(20)]

    def test_a_page_of_the_log_is_limited_in_bytes_but_has_one_entry(self, store: Any) -> None:
        run = begin(store)
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, "x" * 10_000, append=n > 0) for n in range(20)])
        store.append(run.token, [chunk(task_id, "x" * 100_000), chunk(task_id, "y")])
        whole = store.log(MINE, task_id)
        assert store.log(MINE, task_id, max_bytes=10**6) == whole
        found = log_pages(store, task_id, max_bytes=50_000)
        assert {(page.version, page.running) for page in found} == {(whole.version, True)}
        assert [entry for page in found for entry in page.entries] == list(whole.entries)
        sizes = [sum(len(e.event.artifact.text) for e in page.entries if e.number > 3) for page in found]
        assert all(size < 50_000 or size == 100_000 for size in sizes)
        assert len(sizes) < 12

    def test_a_log_with_large_events_after_a_cursor_is_refused(self, store: Any) -> None:
        run = begin(store, text="x" * 300_000)
        task_id, large = run.head.id, "x" * 100_000
        store.append(run.token, [chunk(task_id, large), chunk(task_id, large, append=True)])
        store.append(run.token, [chunk(task_id, "x" * 60_000, append=True), chunk(task_id, "y", append=True)])
        whole = store.log(MINE, task_id)
        assert store.log(MINE, task_id, refuse_above=250_000) == whole
        assert store.log(MINE, task_id, after=4, refuse_above=150_000).entries == whole.entries[4:]
        for bounds in ({}, {"limit": 0}, {"limit": 1}, {"after": 3}):
            with pytest.raises(LargeResult) as caught:
                store.log(MINE, task_id, refuse_above=150_000, **bounds)
            assert 200_000 <= caught.value.size < 201_000
        store.append(run.token, [message(task_id, text=large, role=Role.AGENT)], end=True)
        assert len(store.log(MINE, task_id, after=4, refuse_above=150_000).entries) == 4

    def test_entries_have_the_time_at_which_they_were_stored(self, store: Any) -> None:
        begun = next_ms()
        run = begin(store)
        between = next_ms()
        store.append(run.token, [chunk(run.head.id, "1"), status(run.head.id, TaskState.COMPLETED)])
        times = [entry.at_ms for entry in store.log(MINE, run.head.id).entries]
        assert begun <= times[0] <= times[2] <= between <= times[3] == times[4] <= next_ms()
        assert [entry.at_ms for entry in store.log(MINE, run.head.id, after=2, limit=2).entries] == times[2:4]

    def test_nothing_follows_the_last_entry_or_a_cursor_beyond_it(self, store: Any) -> None:
        task_id = done(store)
        done(store)
        for after in (4, 5, 10**6):
            page = store.log(MINE, task_id, after=after)
            assert (page.entries, page.version, page.state, page.running) == ((), 4, TaskState.COMPLETED, False)
        assert store.log(MINE, task_id, after=-1) == store.log(MINE, task_id)

    def test_every_kind_of_content_is_read_as_it_was_written(self, store: Any) -> None:
        asked = status("t", TaskState.INPUT_REQUIRED, text="Which size?", metadata={"asked": True})
        events: list[LogEvent] = [SENT, status("t", TaskState.WORKING, at=None), MADE, asked]
        run = store.start_run(MINE, RunRequest(message=SENT), events[:2], create=True)
        store.append(run.token, events[2:])
        assert [entry.event for entry in store.log(MINE, "t").entries] == events
        task = store.load(MINE, "t").task
        assert task.history == (SENT,)
        assert task.artifacts == (MADE.artifact,)
        assert task.status == store.head(MINE, "t").status == asked.status
        assert store.list(MINE, TaskQuery(artifacts=True)).tasks == (task,)

    # -- the folded task ------------------------------------------------------------------------------------------------

    def test_a_limited_history_has_the_newest_messages(self, store: Any) -> None:
        run = begin(store, text="0")
        for n in range(1, 6):
            store.append(run.token, [chunk(run.head.id, "x"), message(run.head.id, str(n), role=Role.AGENT)])

        def texts(history: int | None) -> list[str]:
            return [one.text for one in store.load(MINE, run.head.id, history=history).task.history]

        assert texts(None) == texts(6) == texts(100) == ["0", "1", "2", "3", "4", "5"]
        assert texts(2) == ["4", "5"]
        assert texts(1) == ["5"]
        assert texts(0) == []

    def test_artifacts_are_folded_in_the_order_of_their_first_chunk(self, store: Any) -> None:
        run = begin(store)
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, "b1", artifact_id="b"), chunk(task_id, "a1")])
        store.append(run.token, [chunk(task_id, "b2", artifact_id="b", append=True), chunk(task_id, "new")])
        stored = store.load(MINE, task_id, history=0)
        assert [(a.artifact_id, [part.text for part in a.parts]) for a in stored.task.artifacts] == [
            ("b", ["b1", "b2"]),
            ("a", ["new"]),
        ]
        assert (stored.version, stored.running) == (7, True)
        assert store.load(MINE, task_id, artifacts=False).task.artifacts == ()

    def test_many_chunks_fold_to_the_same_artifact_at_every_read(self, store: Any) -> None:
        run = begin(store)
        task_id, written = run.head.id, 0
        for size in (10, 90, 1, 200, 1, 64):
            store.append(run.token, [chunk(task_id, f"{n} ", append=n > 0) for n in range(written, written + size)])
            written += size
            for _ in range(2):
                task = store.load(MINE, task_id).task
                assert task.artifacts[0].text == "".join(f"{n} " for n in range(written))
                assert len(task.artifacts[0].parts) == written
        store.append(run.token, [chunk(task_id, "replaced"), chunk(task_id, "other", artifact_id="b")], end=True)
        assert [artifact.text for artifact in store.load(MINE, task_id).task.artifacts] == ["replaced", "other"]

    def test_metadata_of_status_events_is_merged_into_that_of_the_task(self, store: Any) -> None:
        run = begin(store)
        task_id = run.head.id
        first: dict[str, Any] = {"a": 1, "b": {"x": 1}}
        others: tuple[dict[str, Any], ...] = ({"b": [2]}, {"c": None})
        store.append(run.token, [status(task_id, TaskState.WORKING, metadata=first)])
        store.append(run.token, [status(task_id, TaskState.WORKING, metadata=metadata) for metadata in others])
        store.append(run.token, [chunk(task_id, "x")], end=True)
        expected = {"a": 1, "b": [2], "c": None}
        assert store.head(MINE, task_id).metadata == expected
        assert store.load(MINE, task_id).task.metadata == expected
        assert store.list(MINE, TaskQuery()).tasks[0].metadata == expected
        assert resume(store, task_id).head.metadata == expected

    def test_a_returned_object_does_not_change_with_later_writes(self, store: Any) -> None:
        run = begin(store)
        before, head = store.load(MINE, run.head.id), store.head(MINE, run.head.id)
        store.append(
            run.token, [chunk(run.head.id, "x"), status(run.head.id, TaskState.COMPLETED, metadata={"a": 1})], end=True
        )
        assert before.task.state is head.status.state is TaskState.WORKING
        assert before.task.artifacts == ()
        assert before.task.metadata == head.metadata == {}

    def test_a_history_is_cut_to_the_messages_that_fit(self, store: Any) -> None:
        run = begin(store, task_id="t", text="0" * 20_000)
        store.append(run.token, [chunk("t", "x" * 30_000)])
        for n in range(1, 6):
            store.append(run.token, [message("t", str(n) * 20_000)])

        def contents(**options: Any) -> str:
            task = store.load(MINE, "t", **options).task
            return "".join(one.parts[0].text[0] for one in task.history) + (" a" if task.artifacts else "")

        assert contents(max_bytes=1_000_000) == contents() == "012345 a"
        assert contents(max_bytes=95_000) == "345 a"
        assert contents(max_bytes=95_000, artifacts=False) == "2345"
        assert contents(max_bytes=95_000, history=2) == "45 a"
        assert contents(max_bytes=10) == " a"

    def test_a_read_of_more_bytes_than_allowed_is_refused(self, store: Any) -> None:
        for n in range(2):
            run = begin(store, task_id=f"t{n}", text="x" * 20_000, at=NOON + timedelta(seconds=n))
            store.append(run.token, [chunk(run.head.id, "x" * 20_000)])
        assert store.load(MINE, "t0", refuse_above=100_000) == store.load(MINE, "t0")
        with pytest.raises(LargeResult) as caught:
            store.load(MINE, "t0", refuse_above=30_000)
        assert 40_000 <= caught.value.size < 50_000
        everything = TaskQuery(artifacts=True)
        assert store.list(MINE, replace(everything, refuse_above=100_000)) == store.list(MINE, everything)
        with pytest.raises(LargeResult) as caught:
            store.list(MINE, replace(everything, refuse_above=60_000))
        assert 80_000 <= caught.value.size < 100_000
        assert len(store.list(MINE, replace(everything, refuse_above=60_000, size=1)).tasks) == 1

    def test_a_search_among_more_tasks_than_allowed_is_refused(self, store: Any) -> None:
        for n in range(20):
            begin(store, task_id=f"t{n}", context_id="large")
        begin(store, owner=FOREIGN[0])
        failed, later = {"state": TaskState.FAILED}, {"since_ms": next_ms() + 86_400_000}
        for filters in (failed, later, {"context_id": "large", **failed}, {"context_id": "large", **later}):
            wanted = TaskQuery(**filters)
            assert store.list(MINE, replace(wanted, refuse_above=20 * HEAD_BYTES)).total == 0
            with pytest.raises(LargeResult) as caught:
                store.list(MINE, replace(wanted, refuse_above=20 * HEAD_BYTES - 1, max_bytes=1_000_000))
            assert caught.value.size == 1_000_000
            assert store.list(MINE, wanted).total == 0

    def test_a_search_in_a_small_context_is_not_refused(self, store: Any) -> None:
        for n in range(30):
            begin(store, task_id=f"t{n}", context_id="large")
        begin(store, task_id="s", context_id="small")
        bounded = TaskQuery(size=1, refuse_above=30 * HEAD_BYTES - 1)
        for context_id, total in (("small", 1), ("none", 0), ("", 31)):
            assert store.list(MINE, replace(bounded, context_id=context_id)).total == total

    def test_a_page_ends_early_at_its_byte_limit(self, store: Any) -> None:
        made = []
        for n in range(7):
            run = begin(store, text="x" * 20_000, at=NOON + timedelta(seconds=n))
            store.append(run.token, [chunk(run.head.id, "x" * 50_000)])
            made.append(run.head.id)
        large = begin(store, text="x" * 20_000, at=NOON + timedelta(seconds=9))
        for _ in range(5):
            store.append(large.token, [message(large.head.id, "y" * 20_000)])
        made.append(large.head.id)
        assert pages(store, 50, max_bytes=70_000) == [made[7:], made[6:3:-1], made[3:0:-1], made[:1]]
        first = store.list(MINE, TaskQuery(max_bytes=70_000))
        assert (len(first.tasks[0].history), first.total) == (3, 8)
        assert [len(page) for page in pages(store, 50, max_bytes=80_000, artifacts=True)] == [1] * 8
        assert pages(store, 50, max_bytes=70_000, history=0) == [made[::-1]]
        assert pages(store, 50, max_bytes=10_000_000, artifacts=True) == [made[::-1]]
