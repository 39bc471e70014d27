"""The state that the tasks of a context share."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from a2a_sync.stores.base import (
    MEMORY,
    Owner,
    OwnerFull,
    RunRevoked,
    RunToken,
    StateConflict,
    StoredState,
    StoreQuota,
    TaskQuery,
    pending_name,
)
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    NOON,
    MakeStore,
    begin,
    concurrently,
    done,
    expire_all,
    ids,
    resume,
    status,
    waiting,
)
from a2a_sync.types import TaskState

NOTHING = StoredState(b"{}", 0)


def keep(store: Any, body: bytes = b'{"n":1}', *, owner: Owner = MINE, context_id: str = "c") -> str:
    """Complete a task whose run sets the state of its context; returns the id of the task."""
    run = begin(store, owner=owner, context_id=context_id)
    store.contexts.set_state(run.token, body, expected=store.contexts.state(owner, context_id).version)
    store.append(run.token, [status(run.head.id, TaskState.COMPLETED, context_id=context_id)])
    return run.head.id


def count_up(store: Any, token: RunToken, times: int) -> None:
    """Increment the state `times` times, with a retry after each conflict."""
    current = store.contexts.state(MINE, "c")
    for _ in range(times):
        while True:
            try:
                store.contexts.set_state(token, b"%d" % (int(current.body) + 1), expected=current.version)
            except StateConflict as conflict:
                current = conflict.current
            else:
                break
        current = store.contexts.state(MINE, "c")


class Contexts:
    """Part of `StoreContract`; see the module."""

    def test_a_state_that_was_never_set_is_empty(self, store: Any) -> None:
        begin(store)
        assert store.contexts.state(MINE, "c") == NOTHING
        assert store.contexts.state(MINE, "unknown") == NOTHING

    def test_a_state_is_kept_for_all_tasks_of_the_context(self, store: Any) -> None:
        keep(store, b'{"size":"large"}')
        assert store.contexts.state(MINE, "c") == StoredState(b'{"size":"large"}', 1)
        keep(store, b'{"size":"small"}')
        assert store.contexts.state(MINE, "c") == StoredState(b'{"size":"small"}', 2)

    def test_each_context_has_a_separate_state(self, store: Any) -> None:
        keep(store, b"1", context_id="c")
        keep(store, b"2", context_id="d")
        assert store.contexts.state(MINE, "c").body == b"1"
        assert store.contexts.state(MINE, "d").body == b"2"

    @pytest.mark.parametrize("owner", FOREIGN)
    def test_contexts_of_two_owners_with_one_id_are_separate(self, store: Any, owner: Owner) -> None:
        keep(store, b"mine")
        assert store.contexts.state(owner, "c") == NOTHING
        keep(store, b"theirs", owner=owner)
        assert store.contexts.state(MINE, "c") == StoredState(b"mine", 1)
        assert store.contexts.state(owner, "c") == StoredState(b"theirs", 1)

    def test_a_write_that_expects_another_version_gets_the_current_state(self, store: Any) -> None:
        run = begin(store)
        keep(store, b"first")
        for wrong in (0, 2):
            with pytest.raises(StateConflict) as caught:
                store.contexts.set_state(run.token, b"second", expected=wrong)
            assert caught.value.current == StoredState(b"first", 1)
        store.contexts.set_state(run.token, b"second", expected=1)
        assert store.contexts.state(MINE, "c") == StoredState(b"second", 2)

    def test_of_concurrent_writes_with_one_expected_version_one_succeeds(self, store: Any) -> None:
        runs = [begin(store) for _ in range(8)]
        set_state = store.contexts.set_state
        results = concurrently(*[partial(set_state, run.token, run.head.id.encode(), expected=0) for run in runs])
        assert [type(result) for result in results if result is not None] == [StateConflict] * 7
        winner = runs[results.index(None)]
        assert store.contexts.state(MINE, "c") == StoredState(winner.head.id.encode(), 1)

    def test_concurrent_increments_of_one_state_are_not_lost(self, store: Any) -> None:
        runs = [begin(store) for _ in range(4)]
        store.contexts.set_state(runs[0].token, b"0", expected=0)
        results = concurrently(*[partial(count_up, store, run.token, 25) for run in runs])
        assert results == [None] * 4
        assert store.contexts.state(MINE, "c") == StoredState(b"100", 101)

    def test_a_run_that_has_ended_cannot_set_the_state(self, store: Any) -> None:
        over, interrupted, deleted = begin(store), begin(store), begin(store)
        store.append(over.token, [], end=True)
        resume(store, over.head.id)
        store.interrupt(MINE, interrupted.head.id, [status(interrupted.head.id, TaskState.CANCELED)])
        store.delete(MINE, deleted.head.id)
        for run in (over, interrupted, deleted):
            with pytest.raises(RunRevoked):
                store.contexts.set_state(run.token, b"late", expected=0)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_a_state_is_removed_with_the_last_task_of_its_context(self, store: Any) -> None:
        first, second = keep(store, b"1"), keep(store, b"2")
        store.delete(MINE, first)
        assert store.contexts.state(MINE, "c") == StoredState(b"2", 2)
        store.delete(MINE, second)
        assert store.contexts.state(MINE, "c") == NOTHING
        done(store)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_tasks_of_other_owners_and_contexts_do_not_retain_a_state(self, store: Any) -> None:
        task_id = keep(store)
        done(store, context_id="d")
        done(store, owner=FOREIGN[0])
        store.delete(MINE, task_id)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_retention_removes_a_state_with_the_last_task(self, store: Any) -> None:
        keep(store)
        waiting(store)
        assert store.sweep(expire_all(ended=True)).removed == 1
        assert store.contexts.state(MINE, "c").version == 1
        assert store.sweep(expire_all(waiting=True)).removed == 1
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_a_state_is_removed_when_its_task_is_evicted(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=2)
        keep(store, context_id="old")
        for context_id in ("new", "newer"):
            keep(store, context_id=context_id)
        assert store.contexts.state(MINE, "old") == NOTHING
        assert store.contexts.state(MINE, "newer").version == 1

    def test_the_values_of_a_context_are_independent(self, store: Any) -> None:
        run = begin(store)
        for body, name in ((b'{"a":1}', ""), (b"\x00\xff", MEMORY), (b"x", "other")):
            store.contexts.set_state(run.token, body, expected=0, name=name)
        store.contexts.set_state(run.token, b"", expected=1, name=MEMORY)
        assert store.contexts.state(MINE, "c") == StoredState(b'{"a":1}', 1)
        assert store.contexts.state(MINE, "c", MEMORY) == StoredState(b"", 2)
        assert store.contexts.state(MINE, "c", "other") == StoredState(b"x", 1)
        assert store.contexts.state(MINE, "c", "unknown") == NOTHING
        with pytest.raises(StateConflict) as caught:
            store.contexts.set_state(run.token, b"y", expected=0, name="other")
        assert caught.value.current == StoredState(b"x", 1)

    def test_all_values_of_a_context_are_removed_with_its_last_task(self, store: Any) -> None:
        run = begin(store)
        for name in ("", MEMORY, "other"):
            store.contexts.set_state(run.token, b"x", expected=0, name=name)
        store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
        assert store.contexts.state(MINE, "c", "other") == StoredState(b"x", 1)
        store.delete(MINE, run.head.id)
        for name in ("", MEMORY, "other"):
            assert store.contexts.state(MINE, "c", name) == NOTHING

    def test_a_pending_value_is_removed_when_its_task_ends_or_is_removed(self, store: Any) -> None:
        kept, completed, canceled, deleted = runs = [begin(store) for _ in range(4)]
        for run in runs:
            store.contexts.set_state(run.token, b"x", expected=0, name=pending_name(run.head.id))
        for run in (kept, deleted):
            store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])
        store.append(completed.token, [status(completed.head.id, TaskState.COMPLETED)])
        store.interrupt(MINE, canceled.head.id, [status(canceled.head.id, TaskState.CANCELED)])
        store.delete(MINE, deleted.head.id)
        found = [store.contexts.state(MINE, "c", pending_name(run.head.id)).version for run in runs]
        assert found == [1, 0, 0, 0]

    def test_a_quota_of_bytes_counts_pending_values_until_they_are_removed(self, store: Any) -> None:
        quota = StoreQuota(max_bytes=100_000)
        for _ in range(3):
            run = begin(store, quota=quota)
            store.contexts.set_state(run.token, b"x" * 60_000, expected=0, name=pending_name(run.head.id))
            store.append(run.token, [status(run.head.id, TaskState.COMPLETED)])
        begin(store, text="x" * 80_000, quota=quota)

    def test_a_quota_of_bytes_evicts_no_more_tasks_than_their_contexts_need(self, store: Any) -> None:
        """Almost all bytes of these tasks are the states of their contexts, which are removed with them."""
        quota = StoreQuota(max_bytes=200_000)
        made = []
        for n in range(8):
            at, context_id = NOON + timedelta(seconds=n), f"c{n}"
            run = begin(store, context_id=context_id, at=at, quota=quota)
            store.contexts.set_state(run.token, b"[%s]" % (b"1" * 60_000), expected=0)
            ended = status(run.head.id, TaskState.COMPLETED, context_id=context_id, at=at)
            store.append(run.token, [ended], end=True)
            made.append(run.head.id)
        assert ids(store, TaskQuery()) == made[:-5:-1]

    def test_the_list_of_a_context_follows_added_and_deleted_tasks(self, store: Any) -> None:
        first = [done(store) for _ in range(3)]
        done(store, context_id="d")
        for task_id in first:
            assert task_id in ids(store, TaskQuery(context_id="c"))
            store.delete(MINE, task_id)
            assert task_id not in ids(store, TaskQuery(context_id="c"))
        assert ids(store, TaskQuery(context_id="c")) == []
        assert ids(store, TaskQuery(context_id="c"), FOREIGN[0]) == []
        again = done(store)
        assert ids(store, TaskQuery(context_id="c")) == [again]

    def test_a_quota_of_bytes_counts_the_states_of_contexts(self, store: Any) -> None:
        quota = StoreQuota(max_bytes=100_000)
        for _ in range(3):
            run = begin(store, task_id="t", quota=quota)
            for version in range(3):
                store.contexts.set_state(run.token, b"[%s]" % (b"1" * 60_000), expected=version)
            with pytest.raises(OwnerFull):
                begin(store, text="x" * 50_000, quota=quota)
            begin(store, task_id="u", text="x" * 10_000, quota=quota)
            store.delete(MINE, "t")
            store.delete(MINE, "u")
