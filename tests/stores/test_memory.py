"""The contract over `MemoryStore`, and what only it promises."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from datetime import timedelta

import pytest

from a2a_sync.stores.base import COMPACT_FROM, RunToken, TaskQuery
from a2a_sync.stores.memory import MemoryStore, packing, records
from a2a_sync.testing.storecontract import StoreContract
from a2a_sync.testing.storecontract.making import MINE, NOON, begin, chunk, done, expire_all, long, message, status
from a2a_sync.testing.storecontract.webhooks import ids_of, webhook
from a2a_sync.types import DataPart, Role, TaskState, new_id


class TestMemoryStore(StoreContract):
    # Its data end with it. These tests are not collected, because none may be skipped here.
    test_everything_stored_is_there_after_close_and_reopen = None
    test_a_run_goes_on_after_close_and_reopen = None
    test_ids_and_positions_are_not_used_again = None
    # Nor is it shared between processes.
    test_a_worker_is_lost_when_its_lease_is_over_and_is_claimed_once = None
    test_a_claim_ends_so_that_a_worker_is_not_lost_with_its_reaper = None
    test_a_worker_that_beats_again_is_no_longer_lost = None
    test_a_worker_that_has_left_is_lost_at_once = None
    test_a_lease_from_before_the_clock_was_set_back_is_over = None
    test_a_lost_worker_is_listed_until_its_reaper_removes_it = None
    test_a_worker_that_stores_a_run_after_it_was_removed_is_lost_again = None

    @pytest.fixture
    def make_store(self):
        return MemoryStore

    @pytest.mark.parametrize("part", ["contexts", "webhooks", "inspection"])
    def test_the_store_has_the_part(self, make_store, part):
        super().test_the_store_has_the_part(make_store, part)


def test_a_memory_store_is_not_shared_and_refuses_a_bound_of_nothing():
    assert MemoryStore().workers is None
    with pytest.raises(ValueError, match="max_tasks"):
        MemoryStore(max_tasks=0)


def test_a_webhook_that_is_set_while_a_log_is_compacted_is_kept():
    store = MemoryStore()
    task_id = long(store)
    record = store._tasks[task_id]
    compacted = record.compact()
    store.webhooks.put(MINE, webhook(task_id), most=1)
    assert store._replace(record, compacted)
    assert ids_of(store, task_id) == ["w"]
    store.webhooks.delete(MINE, task_id, "w")
    assert ids_of(store, task_id) == []


def test_a_small_task_takes_less_than_two_and_a_half_kilobytes():
    store = MemoryStore()

    def answer() -> None:
        context_id = new_id()
        run = begin(store, context_id=context_id, at=NOON + timedelta(), text="Ada, please")
        task_id = run.head.id
        store.append(
            run.token,
            [
                chunk(task_id, "Hello, Ada!", artifact_id=new_id()),
                message(task_id, "Hello, Ada!", context_id=context_id, role=Role.AGENT),
                status(task_id, TaskState.COMPLETED, context_id=context_id, at=NOON + timedelta()),
            ],
            end=True,
        )

    answer()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            answer()
        used = (tracemalloc.get_traced_memory()[0] - before) / 1000
    finally:
        tracemalloc.stop()
    assert 500 < used < 2500


def test_the_garbage_collector_traverses_one_object_of_a_task():
    store = MemoryStore()
    done(store)

    def traversed() -> int:
        # Tuples of atomic values are dropped level by level.
        for _ in range(3):
            gc.collect()
        return len(gc.get_objects())

    before = traversed()
    for _ in range(200):
        done(store)
    assert traversed() - before < 200 * 1.5


def test_deleted_tasks_leave_nothing_behind():
    store = MemoryStore()
    done(store)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            store.delete(MINE, done(store))
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert left < 100_000
    assert store.list(MINE, TaskQuery()).total == 1


def long_history(store: MemoryStore, task_id: str, context_id: str, token: RunToken, upto: int) -> list[str]:
    """The texts of the history after as many messages as are missing to `upto`."""
    known = store.load(MINE, task_id).task.history
    for number in range(len(known), upto):
        store.append(token, [message(task_id, f"message {number}", context_id=context_id, role=Role.AGENT)])
    return [one.text for one in store.load(MINE, task_id).task.history]


def test_a_long_history_that_was_read_before_is_complete_after_each_append():
    store = MemoryStore()
    run = begin(store, context_id="c-1", text="message 0")
    for upto in (10, 40, 41, 100):
        read = long_history(store, run.head.id, "c-1", run.token, upto)
        assert read == [f"message {number}" for number in range(upto)]
    newest = store.load(MINE, run.head.id, history=60).task.history
    assert [one.text for one in newest] == [f"message {number}" for number in range(40, 100)]


def test_an_older_head_does_not_see_messages_that_were_read_for_a_newer_one():
    store = MemoryStore()
    run = begin(store, context_id="c-1", text="message 0")
    long_history(store, run.head.id, "c-1", run.token, 50)
    record = store._find(MINE, run.head.id)
    before = record.head
    long_history(store, run.head.id, "c-1", run.token, 60)

    assert len(store._histories.read(record, before)) == 50
    assert len(store._histories.read(record, record.head)) == 60


def test_the_messages_of_a_removed_task_are_not_kept():
    store = MemoryStore()
    for task in range(20):
        run = begin(store, context_id=f"c-{task}", text="message 0")
        long_history(store, run.head.id, f"c-{task}", run.token, 40)
    assert len(store._histories._kept) == 8
    store.append(run.token, [status(run.head.id, TaskState.COMPLETED, context_id="c-19")], end=True)

    store.delete(MINE, run.head.id)

    assert run.head.id not in store._histories._kept


@pytest.mark.slow
def test_a_page_of_a_long_log_costs_no_more_than_the_entries_that_it_has(monkeypatch):
    """Each page of 64 KiB unpacked and measured all entries that followed: a stream of 150 large ones took half a minute."""
    store, count = MemoryStore(), 100
    run = begin(store, task_id="t")
    store.append(run.token, [chunk("t", "x" * 1000, artifact_id=f"a{number}") for number in range(count)])
    unpacked = []
    monkeypatch.setattr(records, "unpack", lambda *packed: unpacked.append(packed) or packing.unpack(*packed))
    page = store.log(MINE, "t", max_bytes=5_000)
    assert 1 < len(page.entries) < 10
    assert unpacked == []
    assert page.entries[-1].event.artifact.text == "x" * 1000
    assert len(unpacked) == 1


def test_large_data_is_kept_as_json_when_it_was_read_and_when_it_was_compacted():
    store = MemoryStore()
    run = begin(store, context_id="c-1", text="message 0")
    tracemalloc.start()
    try:
        for number in range(COMPACT_FROM):
            data = DataPart({f"{number}-{key}": key for key in range(2000)})
            sent = replace(message(run.head.id, context_id="c-1", role=Role.AGENT), parts=(data,))
            store.append(run.token, [sent])
        store.append(run.token, [status(run.head.id, TaskState.COMPLETED, context_id="c-1")], end=True)
        size = store._find(MINE, run.head.id).bytes
        for compact in (False, True):
            if compact:
                assert store.sweep(expire_all(replay=True)).compacted == 1
            assert store.load(MINE, run.head.id).task.history[-1].parts[0] == data
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1.5 * size
    finally:
        tracemalloc.stop()
