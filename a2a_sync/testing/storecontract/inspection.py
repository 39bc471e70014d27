"""Reads across all owners, for operators, and reads of many tasks."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import Any

from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import Owner, SummaryQuery, TaskStore, TaskVersion, time_ms
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    MakeStore,
    begin,
    chunk,
    done,
    message,
    next_ms,
    status,
    waiting,
)
from a2a_sync.testing.storecontract.webhooks import claimed, webhook
from a2a_sync.types import TaskState


class Versions:
    """Reads of many tasks, of any owner, and the ids of new ones."""

    def test_versions_say_how_far_each_task_has_got(self, store: Any) -> None:
        run, other = begin(store), done(store, owner=FOREIGN[0])
        task_ids = [run.head.id, other, "missing"]
        assert store.versions(task_ids) == {run.head.id: TaskVersion(3, True), other: TaskVersion(4, False)}
        store.append(run.token, [chunk(run.head.id, "one")])
        store.append(run.token, [], end=True)
        assert store.versions(task_ids)[run.head.id] == TaskVersion(4, False)
        assert store.versions([]) == {}

    def test_versions_of_many_tasks_are_read(self, store: Any) -> None:
        task_ids = [done(store) for _ in range(12)]
        missing = [f"missing {n}" for n in range(1200)]
        assert set(store.versions([*missing, *task_ids])) == set(task_ids)

    def test_ids_of_new_tasks_differ_and_fit_into_a_path(self, store: Any) -> None:
        found = {store.new_task_id(owner) for owner in (MINE, *FOREIGN) for _ in range(100)}
        assert len(found) == 400
        assert all(task_id and not set(task_id) & set("/:%?#") for task_id in found)


def stop(store: TaskStore, task_id: str, name: str, error_ms: int) -> None:
    """Settle a webhook as one whose receiver has failed too often, the last time at `error_ms`."""
    assert store.webhooks is not None
    found = claimed(store, task_id, name)
    held = replace(found, tries=3, disabled="HTTP 500 (3 tries)", error="HTTP 500", error_ms=error_ms)
    assert store.webhooks.settle(held, release=True)


class Inspections:
    """The optional part `Inspection`."""

    def test_pending_and_stopped_webhooks_are_counted_and_listed(self, store: Any) -> None:
        assert store.inspection.webhook_counts() == (0, 0, 0)
        if store.webhooks is None:
            return
        task_id = begin(store).head.id
        for name in ("behind", "stopped", "earlier"):
            store.webhooks.put(MINE, webhook(task_id, name), most=10)
        stop(store, task_id, "stopped", 20)
        stop(store, task_id, "earlier", 10)
        assert store.inspection.webhook_counts() == (1, 3, 2)
        assert [one.id for one in store.inspection.webhooks(stopped=False)] == ["behind"]
        stopped = store.inspection.webhooks(stopped=True)
        assert [(one.id, one.owner, one.error) for one in stopped] == [
            ("stopped", MINE, "HTTP 500"),
            ("earlier", MINE, "HTTP 500"),
        ]
        assert len(store.inspection.webhooks(stopped=True, size=1)) == 1

    def test_work_that_waits_and_is_under_way_is_counted(self, store: Any) -> None:
        assert store.inspection.run_counts() == (0, 0, None)
        messages = [message(f"q{n}", "hello") for n in range(2)]
        queued = [
            store.start_run(MINE, RunRequest(message=one), [one, status(one.task_id, TaskState.SUBMITTED)], create=True)
            for one in messages
        ]
        begin(store), done(store), waiting(store)
        counts = store.inspection.run_counts()
        assert counts[:2] == (2, 1)
        times = [store.head(MINE, run.head.id).status.timestamp for run in queued]
        assert counts.since_ms == min(map(time_ms, times))

    def test_workers_are_listed_with_the_number_of_their_runs(self, store: Any) -> None:
        begin(store), done(store)
        if store.workers is None:
            assert store.inspection.workers() == ()
            return
        store.workers.beat(60)
        (own,) = [worker for worker in store.inspection.workers() if worker.id == store.workers.id]
        assert (own.left, own.runs) == (False, 1)
        assert own.age_s is None or own.age_s < 30
        store.workers.leave()
        assert store.inspection.workers()[0].left

    def test_counts_are_by_owner_and_state(self, store: Any) -> None:
        assert store.inspection.counts() == {}
        for owner in (MINE, MINE, FOREIGN[0]):
            done(store, owner=owner)
        begin(store)
        assert store.inspection.counts() == {
            MINE: {TaskState.COMPLETED: 2, TaskState.WORKING: 1},
            FOREIGN[0]: {TaskState.COMPLETED: 1},
        }
        for task in store.inspection.tasks(SummaryQuery(owner=FOREIGN[0])):
            store.delete(task.owner, task.id)
        assert set(store.inspection.counts()) == {MINE}

    def test_summaries_describe_tasks_of_all_owners_newest_first(self, store: Any) -> None:
        start = next_ms()
        ended, run = done(store, owner=FOREIGN[0]), begin(store, context_id="other")
        newest, oldest = store.inspection.tasks(SummaryQuery())
        assert (newest.id, newest.owner, newest.context_id) == (run.head.id, MINE, "other")
        assert (newest.state, newest.version, newest.running) == (TaskState.WORKING, 3, True)
        assert (oldest.id, oldest.state, oldest.running, oldest.worker) == (ended, TaskState.COMPLETED, False, "")
        assert newest.worker == (store.workers.id if store.workers is not None else "")
        assert newest.position > oldest.position
        assert start <= oldest.created_ms <= newest.created_ms
        assert newest.bytes > 0

    def test_summaries_are_paged_by_position(self, store: Any) -> None:
        made = [done(store, owner=Owner("", str(n % 3))) for n in range(7)]
        found, before = [], None
        for _ in range(4):
            page = store.inspection.tasks(SummaryQuery(size=2, before=before))
            before = page[-1].position
            found += [task.id for task in page]
        assert found == made[::-1]
        assert store.inspection.tasks(SummaryQuery(size=2, before=before)) == ()

    def test_filters_of_summaries_can_be_combined(self, store: Any) -> None:
        for owner in (MINE, FOREIGN[0]):
            done(store, owner=owner)
        asking, later = waiting(store), next_ms()
        newest = done(store)

        def ids(**filters: Any) -> list[str]:
            return [task.id for task in store.inspection.tasks(SummaryQuery(**filters))]

        assert ids(state=TaskState.INPUT_REQUIRED) == [asking]
        assert ids(since_ms=later) == [newest]
        assert len(ids(until_ms=later)) == 3
        assert len(ids(owner=MINE)) == 3
        assert len(ids(owner=MINE, state=TaskState.COMPLETED)) == 2
        assert ids(owner=MINE, state=TaskState.COMPLETED, since_ms=later) == [newest]
        assert ids(owner=Owner("", "unknown")) == []

    def test_the_size_grows_with_the_tasks(self, store: Any) -> None:
        empty = store.inspection.size()
        run = begin(store)
        # Text that a store cannot compress to less than half.
        store.append(
            run.token, [chunk(run.head.id, secrets.token_urlsafe(300_000)), status(run.head.id, TaskState.COMPLETED)]
        )
        assert store.inspection.size() >= empty + 200_000


class Persistence:
    """Data over close and reopen, in stores that claim to be ``persistent``."""

    def test_everything_stored_is_there_after_close_and_reopen(self, make_store: MakeStore) -> None:
        store = make_store()
        ended, asking, run = done(store), waiting(store), begin(store)
        store.append(run.token, [chunk(run.head.id, "one")])
        if store.contexts is not None:
            store.contexts.set_state(run.token, b'{"n":1}', expected=0)
        task_ids = [ended, asking, run.head.id]
        before = [_everything(store, task_id) for task_id in task_ids]
        store.close()
        again = make_store()
        assert [_everything(again, task_id) for task_id in task_ids] == before
        if again.contexts is not None:
            assert again.contexts.state(MINE, "c").body == b'{"n":1}'
        if again.inspection is not None:
            assert sum(again.inspection.counts()[MINE].values()) == 3

    def test_a_run_goes_on_after_close_and_reopen(self, make_store: MakeStore) -> None:
        store = make_store()
        run = begin(store)
        store.close()
        again = make_store()
        again.append(run.token, [chunk(run.head.id, "one"), status(run.head.id, TaskState.COMPLETED)])
        page = again.log(MINE, run.head.id)
        assert [entry.number for entry in page.entries] == [1, 2, 3, 4, 5]
        assert not again.head(MINE, run.head.id).running

    def test_ids_and_positions_are_not_used_again(self, make_store: MakeStore) -> None:
        store = make_store()
        made = [done(store) for _ in range(3)]
        store.close()
        again = make_store()
        newest = done(again)
        assert newest not in made
        if again.inspection is not None:
            positions = [task.position for task in again.inspection.tasks(SummaryQuery())]
            assert all(later > earlier for later, earlier in itertools.pairwise(positions))


def _everything(store: Any, task_id: str) -> tuple[Any, ...]:
    page = store.log(MINE, task_id)
    entries = [(entry.number, entry.event) for entry in page.entries]
    return store.head(MINE, task_id), store.load(MINE, task_id), entries, store.request(MINE, task_id)
