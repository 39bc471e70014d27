"""Deletion and eviction of tasks, and bounds of tasks and bytes."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import COMPACT_FROM, Owner, OwnerFull, RunRevoked, StoreQuota, TaskFull, TaskQuery
from a2a_sync.testing.storecontract.making import (
    MINE,
    NOON,
    MakeStore,
    begin,
    chunk,
    done,
    ids,
    message,
    resume,
    status,
    waiting,
)
from a2a_sync.types import TaskState


class Eviction:
    """Part of `StoreContract`; see the module."""

    def test_a_deleted_task_is_not_found_and_its_id_can_be_used_again(self, store: Any) -> None:
        run = begin(store, task_id="t")
        kept = begin(store)
        store.append(run.token, [chunk("t", str(n), append=n > 0) for n in range(200)])
        store.load(MINE, "t")
        store.delete(MINE, "t")
        for call in (store.head, store.load, store.log, store.delete, store.request):
            with pytest.raises(TaskNotFoundError):
                call(MINE, "t")
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk("t", "late")])
        assert ids(store, TaskQuery()) == [kept.head.id]
        assert begin(store, task_id="t").head.version == 3
        assert store.load(MINE, "t").task.artifacts == ()
        assert len(store.log(MINE, "t").entries) == 3

    def test_a_new_task_has_no_data_of_a_deleted_one(self, store: Any) -> None:
        for text in ("old", "new"):
            run = begin(store)
            task_id = run.head.id
            store.append(run.token, [chunk(task_id, text, append=n > 0) for n in range(200 if text == "old" else 100)])
            for _ in range(2):
                (artifact,) = store.load(MINE, task_id).task.artifacts
                assert {part.text for part in artifact.parts} == {text}
            store.delete(MINE, task_id)

    def test_above_the_bound_the_tasks_that_ended_first_are_evicted_first(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=5)
        open_ = begin(store, at=NOON)
        interrupted = waiting(store)
        ended = [done(store, at=NOON + timedelta(seconds=n)) for n in range(8)]
        page = store.list(MINE, TaskQuery())
        assert page.total == 5
        assert {task.id for task in page.tasks} == {open_.head.id, interrupted, *ended[-3:]}
        with pytest.raises(TaskNotFoundError):
            store.log(MINE, ended[0])

    def test_where_no_task_has_ended_those_that_waited_longest_are_evicted(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=3)
        interrupted = [waiting(store, at=NOON + timedelta(seconds=n)) for n in range(6)]
        assert ids(store, TaskQuery()) == interrupted[:2:-1]

    def test_a_task_that_ends_in_the_step_that_creates_it_does_not_evict_itself(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=2)
        asked = [waiting(store) for _ in range(2)]
        sent = message("t")
        started = store.start_run(MINE, RunRequest(message=sent), [sent, status("t", TaskState.COMPLETED)], create=True)
        assert started.evicted == (asked[0],)
        assert set(ids(store, TaskQuery())) == {"t", asked[1]}

    def test_a_task_with_a_run_is_never_evicted(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=2)
        runs = [begin(store) for _ in range(6)]
        for run in runs:
            store.append(run.token, [chunk(run.head.id, "still here")])
        for n, run in enumerate(runs):
            store.append(
                run.token, [status(run.head.id, TaskState.COMPLETED, at=NOON + timedelta(seconds=n))], end=True
            )
        for _ in range(4):
            done(store, at=NOON + timedelta(minutes=1))
        assert store.list(MINE, TaskQuery()).total == 2

    def test_the_bound_counts_the_tasks_of_all_owners(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=4)
        owners = [Owner("", str(n)) for n in range(10)]
        for n, owner in enumerate(owners):
            done(store, owner=owner, at=NOON + timedelta(seconds=n))
        assert [store.list(owner, TaskQuery()).total for owner in owners] == [0] * 6 + [1] * 4

    def test_at_the_bound_the_oldest_task_of_the_owner_with_most_tasks_is_evicted(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=20)
        other = Owner("", "other")
        ended = done(store, owner=other, at=NOON)
        interrupted = waiting(store, owner=other)
        # Clients choose their tenants, so tenants are not separate owners; nor are the agents of one host.
        greedy = [Owner("", "greedy"), *(Owner(f"tenant {n}", "greedy") for n in range(3)), Owner("", "echo\x1fgreedy")]
        made = [(owner, done(store, owner=owner)) for _ in range(41) for owner in greedy]
        assert set(ids(store, TaskQuery(), other)) == {interrupted, ended}
        assert sum(store.list(owner, TaskQuery()).total for owner in greedy) == 18
        for owner, task_id in made[-18:]:
            assert store.head(owner, task_id)

    def test_an_owner_whose_tasks_were_deleted_is_not_the_largest_any_more(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=14)
        shrunk, larger, largest = (Owner("", name) for name in ("shrunk", "larger", "largest"))
        for task_id in [done(store, owner=shrunk) for _ in range(9)][1:]:
            store.delete(shrunk, task_id)
        for owner, count in ((largest, 7), (larger, 6)):
            for _ in range(count):
                done(store, owner=owner)
        done(store, owner=Owner("", "new"))
        assert [store.list(owner, TaskQuery()).total for owner in (shrunk, larger, largest)] == [1, 6, 6]

    def test_of_owners_with_equally_many_tasks_the_first_one_is_evicted_from(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=3)
        for name in ("c", "a", "b"):
            done(store, owner=Owner("", name))
            time.sleep(0.002)  # a store may order tasks by milliseconds
        done(store, owner=Owner("", "d"))
        assert [store.list(Owner("", name), TaskQuery()).total for name in "abcd"] == [1, 1, 0, 1]

    def test_an_owner_whose_tasks_all_run_is_skipped_by_eviction(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=6)
        runs = [begin(store, owner=Owner("", "busy")) for _ in range(4)]
        for _ in range(2):
            done(store, owner=Owner("", "other"))
        newest = done(store, owner=Owner("", "third"))
        assert store.list(Owner("", "busy"), TaskQuery()).total == len(runs)
        assert store.list(Owner("", "other"), TaskQuery()).total == 1
        assert store.head(Owner("", "third"), newest)

    def test_a_quota_of_tasks_evicts_the_oldest_of_the_owner_only(self, store: Any) -> None:
        quota = StoreQuota(max_tasks=5)
        other = [done(store, owner=Owner("", "other")) for _ in range(3)]
        interrupted = waiting(store)
        mine = []
        for _ in range(8):
            run = begin(store, quota=quota)
            store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
            mine.append(run.head.id)
        assert set(ids(store, TaskQuery())) == {interrupted, *mine[-4:]}
        assert set(ids(store, TaskQuery(), Owner("", "other"))) == set(other)
        runs = [begin(store, quota=quota) for _ in range(5)]
        assert (interrupted,) in [run.evicted for run in runs]
        assert begin(store, quota=quota).head.running
        assert store.list(MINE, TaskQuery()).total == 6

    # -- bytes --

    def test_the_bytes_of_a_task_are_limited(self, store: Any) -> None:
        quota = StoreQuota(max_task_bytes=100_000)
        with pytest.raises(TaskFull):
            begin(store, task_id="t", text="x" * 100_000, quota=quota)
        with pytest.raises(TaskNotFoundError):
            store.head(MINE, "t")

    def test_the_bytes_of_a_task_are_limited_in_all_its_runs(self, store: Any) -> None:
        quota = StoreQuota(max_task_bytes=100_000)
        run = begin(store, task_id="t", text="x" * 20_000, quota=quota)
        store.append(run.token, [chunk("t", "x" * 50_000)], max_task_bytes=100_000)
        for _ in range(2):
            with pytest.raises(TaskFull):
                store.append(run.token, [chunk("t", "x" * 40_000, append=True)], max_task_bytes=100_000)
        assert store.head(MINE, "t").version == 4
        store.append(run.token, [status("t", TaskState.INPUT_REQUIRED)], end=True)
        with pytest.raises(TaskFull):
            resume(store, "t", text="x" * 40_000, quota=quota)
        assert not store.head(MINE, "t").running
        again = resume(store, "t", text="x" * 5_000, quota=quota)
        with pytest.raises(TaskFull):
            store.append(again.token, [chunk("t", "x" * 40_000)], max_task_bytes=100_000)

    def test_an_event_that_ends_a_task_is_stored_without_a_bound(self, store: Any) -> None:
        run = begin(store, task_id="t", text="x" * 80_000, quota=StoreQuota(max_task_bytes=100_000))
        failed = status("t", TaskState.FAILED, text="y" * 40_000)
        store.append(run.token, [failed], end=True)
        assert store.load(MINE, "t").task.state is TaskState.FAILED

    def test_a_quota_of_bytes_evicts_the_oldest_tasks_of_the_owner(self, store: Any) -> None:
        quota = StoreQuota(max_bytes=200_000)
        other = begin(store, owner=Owner("", "other"), text="x" * 300_000)
        ended = []
        for n in range(12):
            run = begin(store, text="x" * 30_000, at=NOON + timedelta(seconds=n), quota=quota)
            store.append(run.token, [status(run.head.id, TaskState.COMPLETED, at=NOON + timedelta(seconds=n))])
            ended.append(run.head.id)
        assert ids(store, TaskQuery()) == ended[:-7:-1]
        large = begin(store, task_id="large", text="x" * 150_000, quota=quota)
        assert ids(store, TaskQuery()) == [ended[-1], "large"]
        assert store.head(Owner("", "other"), other.head.id)
        store.append(large.token, [status("large", TaskState.INPUT_REQUIRED)], end=True)
        assert begin(store, task_id="more", text="x" * 100_000, quota=quota).evicted == ("large",)

    def test_a_quota_of_bytes_evicts_neither_a_task_with_a_run_nor_the_one_that_continues(self, store: Any) -> None:
        quota = StoreQuota(max_bytes=200_000)
        large = begin(store, task_id="large", text="x" * 150_000, quota=quota)
        with pytest.raises(OwnerFull):
            begin(store, task_id="more", text="x" * 150_000, quota=quota)
        with pytest.raises(TaskNotFoundError):
            store.head(MINE, "more")
        store.append(large.token, [status("large", TaskState.INPUT_REQUIRED)], end=True)
        # A task is not evicted for its own next message.
        with pytest.raises(OwnerFull):
            resume(store, "large", text="x" * 100_000, quota=quota)
        assert store.head(MINE, "large").status.state is TaskState.INPUT_REQUIRED

    def test_a_quota_of_bytes_counts_appended_deleted_and_compacted_entries(self, store: Any) -> None:
        quota = StoreQuota(max_bytes=1_000_000)
        run = begin(store, task_id="t", quota=quota)
        for n in range(COMPACT_FROM):
            store.append(run.token, [chunk("t", "x" * 14_000, append=n > 0)])
        store.append(run.token, [status("t", TaskState.COMPLETED)], end=True)
        kept = begin(store, task_id="kept", quota=quota)
        with pytest.raises(OwnerFull):
            # The eviction of `t` is not enough.
            begin(store, text="x" * 1_100_000, quota=quota)
        store.append(kept.token, [status("kept", TaskState.INPUT_REQUIRED)], end=True)
        if "t" in ids(store, TaskQuery()):
            store.delete(MINE, "t")
        for _ in range(3):
            run = begin(store, task_id="u", text="x" * 900_000, quota=quota)
            assert set(ids(store, TaskQuery())) == {"kept", "u"}
            store.delete(MINE, "u")

    def test_a_closed_store_opens_again_when_it_is_used(self, store: Any) -> None:
        task_id = done(store)
        for _ in range(2):
            store.close()
        assert store.head(MINE, task_id).version == 4
        done(store)
