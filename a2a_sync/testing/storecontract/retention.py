"""Retention: which tasks a sweep removes and which logs it compacts."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import RunRequest, SendKey
from a2a_sync.stores.base import COMPACT_FROM, Expiry, RunRevoked, SentRun, SweepResult, TaskQuery, TaskStore
from a2a_sync.testing.storecontract.making import (
    MINE,
    MakeStore,
    begin,
    chunk,
    concurrently,
    done,
    expire_all,
    ids,
    long,
    message,
    next_ms,
    resume,
    send,
    status,
    waiting,
)
from a2a_sync.types import Message, TaskState

NOTHING = SweepResult(removed=0, compacted=0, more=False)


def seen(store: TaskStore, task_id: str) -> list[Any]:
    """The results of all reads of a task except its log."""
    return [
        store.load(MINE, task_id),
        store.load(MINE, task_id, history=1),
        store.load(MINE, task_id, history=0, artifacts=False),
        store.list(MINE, TaskQuery(artifacts=True)),
        store.list(MINE, TaskQuery(history=1)),
        store.request(MINE, task_id),
        store.head(MINE, task_id).status,
        store.head(MINE, task_id).version,
        store.head(MINE, task_id).metadata,
    ]


class Retention:
    """Part of `StoreContract`; see the module."""

    # -- age ------------------------------------------------------------------------------------------------------------

    def test_nothing_is_removed_where_nothing_expires(self, store: Any) -> None:
        made = {done(store), waiting(store), begin(store).head.id, long(store)}
        assert store.sweep(Expiry()) == NOTHING
        assert store.sweep(Expiry(ended=0, waiting=0, replay=0)) == NOTHING
        assert set(ids(store, TaskQuery())) == made

    def test_the_key_of_a_send_outlives_compaction_and_is_removed_with_its_task(self, store: Any) -> None:
        run = send(store, "k")
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, f"{n} ", append=n > 0) for n in range(2 * COMPACT_FROM)])
        store.append(run.token, [status(task_id, TaskState.COMPLETED)])
        assert store.sweep(expire_all(replay=True)).compacted == 1
        assert store.sent(MINE, "k") == SentRun(task_id, run.head.version, "print")
        assert store.sweep(expire_all(ended=True)).removed == 1
        assert store.sent(MINE, "k") is None
        assert send(store, "k").head.id != task_id

    def test_each_class_expires_separately_and_a_task_with_a_run_never(self, store: Any) -> None:
        ended, asking, running = done(store), waiting(store), begin(store).head.id
        assert store.sweep(expire_all(ended=True)).removed == 1
        assert set(ids(store, TaskQuery())) == {asking, running}
        swept = store.sweep(expire_all(waiting=True))
        assert (swept.removed, swept.evicted) == (1, (asking,))
        assert ids(store, TaskQuery()) == [running]
        assert store.sweep(expire_all(ended=True, waiting=True, replay=True)) == NOTHING
        for task_id in (ended, asking):
            with pytest.raises(TaskNotFoundError):
                store.head(MINE, task_id)

    def test_tasks_that_ended_before_the_time_are_removed_and_later_ones_kept(self, store: Any) -> None:
        old, moment, new = done(store), next_ms(), done(store)
        assert store.sweep(Expiry(ended=moment)).removed == 1
        assert ids(store, TaskQuery()) == [new]
        assert old != new

    def test_the_age_is_that_of_the_newest_run_and_not_of_the_status(self, store: Any) -> None:
        # The status that `done` writes is old, but the run has just ended.
        moment, task_id = next_ms(), done(store)
        assert store.sweep(Expiry(ended=moment)) == NOTHING
        asking, moment = waiting(store), next_ms()
        run = resume(store, asking)
        store.append(run.token, [status(asking, TaskState.INPUT_REQUIRED)])
        assert store.sweep(Expiry(waiting=moment)) == NOTHING
        assert set(ids(store, TaskQuery())) == {task_id, asking}

    def test_a_waiting_task_that_was_cancelled_expires_as_an_ended_one(self, store: Any) -> None:
        task_id = waiting(store)
        store.interrupt(MINE, task_id, [status(task_id, TaskState.CANCELED)])
        assert store.sweep(expire_all(waiting=True)) == NOTHING
        swept = store.sweep(expire_all(ended=True))
        assert (swept.removed, swept.evicted) == (1, ())

    def test_a_sweep_is_bounded_and_reports_that_there_is_more(self, store: Any) -> None:
        for _ in range(25):
            done(store)
        sweeps: list[SweepResult] = []
        while not sweeps or sweeps[-1].more:
            sweeps.append(store.sweep(expire_all(ended=True), limit=10))
        assert sum(swept.removed for swept in sweeps) == 25
        assert max(swept.removed for swept in sweeps) == 10
        assert len(sweeps) <= 4
        assert store.list(MINE, TaskQuery()).total == 0

    def test_a_removed_task_leaves_no_data(self, store: Any) -> None:
        sent = message("t")
        request = RunRequest(message=sent, key=SendKey("k", "print"))
        run = store.start_run(MINE, request, [sent, status("t", TaskState.WORKING)], create=True)
        store.append(run.token, [chunk("t", "old", append=n > 0) for n in range(200)], end=True)
        store.load(MINE, "t")
        assert store.sweep(expire_all(replay=True)).compacted == 1
        assert store.sweep(expire_all(waiting=True)).removed == 1
        assert store.sent(MINE, "k") is None
        again = store.start_run(MINE, request, [sent, status("t", TaskState.WORKING)], create=True)
        assert (again.head.version, again.head.compacted) == (2, 0)
        assert store.load(MINE, "t").task.artifacts == ()
        assert [entry.number for entry in store.log(MINE, "t").entries] == [1, 2]

    def test_an_evicted_task_is_reported_if_it_waited_for_its_client(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=2)
        done(store)
        asking = waiting(store)
        assert begin(store).evicted == ()
        assert begin(store).evicted == (asking,)

    def test_a_run_that_ended_while_the_clock_was_wrong_counts_as_ended_now(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = time.time_ns() + 10**18
        with monkeypatch.context() as patch:
            patch.setattr("time.time_ns", lambda: wrong)
            patch.setattr("time.time", lambda: wrong / 1e9)
            asking, ended = waiting(store), done(store)
        tomorrow = next_ms() + 86_400_000
        assert store.sweep(Expiry(ended=tomorrow, waiting=tomorrow)) == NOTHING
        assert store.sweep(Expiry(now=next_ms(), ended=next_ms() - 1000, waiting=next_ms() - 1000)) == NOTHING
        assert set(ids(store, TaskQuery())) == {asking, ended}
        assert store.sweep(Expiry(now=next_ms(), ended=tomorrow, waiting=tomorrow)).removed == 2

    # -- compaction -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", [TaskState.COMPLETED, TaskState.INPUT_REQUIRED])
    def test_a_compacted_task_reads_as_before(self, store: Any, end: TaskState) -> None:
        task_id = long(store, end=end)
        done(store)
        before, version = seen(store, task_id), store.head(MINE, task_id).version
        assert store.sweep(expire_all(replay=True)) == SweepResult(removed=0, compacted=1, more=False)
        assert seen(store, task_id) == before
        assert store.head(MINE, task_id).compacted == version
        page = store.log(MINE, task_id)
        assert [(entry.number, entry.event.text) for entry in page.entries if isinstance(entry.event, Message)] == [
            (1, "hello"),
            (version - 1, "done"),
        ]
        assert (len(page.entries), page.version, page.compacted, page.running) == (2, version, version, False)
        assert store.log(MINE, task_id, after=1, limit=1).entries == page.entries[1:]
        assert store.log(MINE, task_id, after=version).entries == ()
        assert store.sweep(expire_all(replay=True)) == NOTHING

    def test_a_short_log_stays_as_it_is(self, store: Any) -> None:
        task_id = done(store)
        entries = store.log(MINE, task_id).entries
        assert store.sweep(expire_all(replay=True)) == NOTHING
        assert store.log(MINE, task_id).entries == entries
        assert store.head(MINE, task_id).compacted == 0

    def test_a_log_is_not_compacted_before_it_expires_or_during_a_run(self, store: Any) -> None:
        moment, task_id = next_ms(), long(store)
        assert store.sweep(Expiry(replay=moment)) == NOTHING
        run = begin(store)
        store.append(run.token, [chunk(run.head.id, "x", append=n > 0) for n in range(200)])
        assert store.sweep(expire_all(replay=True)).compacted == 1
        assert store.head(MINE, task_id).compacted > 0
        assert store.head(MINE, run.head.id).compacted == 0
        assert len(store.log(MINE, run.head.id).entries) == 203

    def test_a_task_continues_after_its_log_was_compacted(self, store: Any) -> None:
        task_id = long(store, end=TaskState.INPUT_REQUIRED)
        expected = ["0 ", "2 "]
        for turn in range(3):
            store.sweep(expire_all(replay=True))
            compacted = store.head(MINE, task_id).compacted
            assert compacted == store.head(MINE, task_id).version
            run = resume(store, task_id, text=f"turn {turn}")
            assert [entry.number for entry in run.entries] == [compacted + 1, compacted + 2]
            assert store.request(MINE, task_id).request.message.text == f"turn {turn}"
            more = [chunk(task_id, f"{turn}/{n} ", append=True) for n in range(COMPACT_FROM)]
            store.append(run.token, more)
            # Read twice during the run: the second read uses the snapshot that the first one stored.
            for _ in range(2):
                texts = [part.text for part in store.load(MINE, task_id).task.artifacts[0].parts]
                assert texts[:2] == expected
                assert texts[-1] == f"{turn}/{COMPACT_FROM - 1} "
                assert len(texts) == COMPACT_FROM // 2 + COMPACT_FROM * (turn + 1)
            page = store.log(MINE, task_id, after=compacted, limit=5)
            assert [entry.number for entry in page.entries] == list(range(compacted + 1, compacted + 6))
            assert (page.compacted, page.running) == (compacted, True)
            store.append(run.token, [status(task_id, TaskState.INPUT_REQUIRED)])
        history = store.load(MINE, task_id).task.history
        assert [turn.text for turn in history] == ["hello", "done", "turn 0", "turn 1", "turn 2"]
        assert [turn.text for turn in store.load(MINE, task_id, history=2).task.history] == ["turn 1", "turn 2"]
        numbers = [entry.number for entry in store.log(MINE, task_id).entries]
        assert numbers == sorted(set(numbers))

    def test_a_compacted_task_can_be_removed_and_cancelled(self, store: Any) -> None:
        first, second = long(store), long(store, end=TaskState.INPUT_REQUIRED)
        while store.sweep(expire_all(replay=True)).more:
            pass
        store.interrupt(MINE, second, [status(second, TaskState.CANCELED)])
        assert store.load(MINE, second).task.state is TaskState.CANCELED
        assert store.sweep(expire_all(ended=True)).removed == 2
        assert store.list(MINE, TaskQuery()).total == 0
        assert first != second

    def test_compaction_of_a_log_without_artifacts_keeps_its_messages(self, store: Any) -> None:
        task_id = waiting(store)
        for n in range(COMPACT_FROM):
            run = resume(store, task_id, text=str(n))
            store.append(run.token, [status(task_id, TaskState.INPUT_REQUIRED)])
        before = seen(store, task_id)
        assert store.sweep(expire_all(replay=True)).compacted == 1
        assert seen(store, task_id) == before
        assert len(store.log(MINE, task_id).entries) == COMPACT_FROM + 1

    def test_a_task_that_continues_during_a_sweep_loses_nothing(self, store: Any) -> None:
        for _ in range(10):
            task_id = long(store, end=TaskState.INPUT_REQUIRED)

            def go_on(task_id: str = task_id) -> None:
                run = resume(store, task_id)
                for n in range(20):
                    store.append(run.token, [chunk(task_id, f"more {n}", append=True)])

            expiry = expire_all(replay=True)
            results = concurrently(go_on, partial(store.sweep, expiry), partial(store.load, MINE, task_id))
            assert not [result for result in results if isinstance(result, Exception)]
            (a, b) = store.load(MINE, task_id).task.artifacts
            assert (len(a.parts), len(b.parts)) == (COMPACT_FROM // 2 + 20, COMPACT_FROM // 2)
            store.interrupt(MINE, task_id, [status(task_id, TaskState.CANCELED)])

    def test_concurrent_sweeps_count_each_task_once(self, store: Any) -> None:
        for _ in range(40):
            done(store)
        expiry = expire_all(ended=True)
        results = concurrently(*[partial(store.sweep, expiry)] * 4)
        assert sum(swept.removed for swept in results) == 40
        assert store.sweep(expiry) == NOTHING

    def test_a_late_write_to_a_removed_task_is_refused(self, store: Any) -> None:
        run = begin(store)
        store.append(run.token, [], end=True)
        store.sweep(expire_all(waiting=True))
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "late")])
