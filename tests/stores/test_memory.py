"""The contract over `MemoryStore`, and what only it promises."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import timedelta

import pytest

from a2a_sync.stores.base import TaskQuery
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.testing.storecontract import StoreContract
from a2a_sync.testing.storecontract.making import MINE, NOON, begin, chunk, done, message, status
from a2a_sync.types import Role, TaskState, new_id


class TestMemoryStore(StoreContract):
    # Its data end with it. These tests are not collected, because none may be skipped here.
    test_everything_stored_is_there_after_close_and_reopen = None
    test_a_run_goes_on_after_close_and_reopen = None
    test_ids_and_positions_are_not_used_again = None

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
