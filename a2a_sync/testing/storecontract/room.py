"""Tasks that are deleted, or make room for others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.stores.base import RunRevoked, Scope, TaskQuery
from a2a_sync.testing.storecontract.making import MINE, NOON, begin, chunk, done, ids, status
from a2a_sync.types import TaskState


class Room:
    """See the module; a part of `StoreContract`."""

    def test_a_deleted_task_is_gone_for_good(self, store: Any) -> None:
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

    def test_a_task_made_after_another_was_deleted_holds_nothing_of_it(self, store: Any) -> None:
        for text in ("old", "new"):
            run = begin(store)
            task_id = run.head.id
            store.append(run.token, [chunk(task_id, text, append=n > 0) for n in range(200 if text == "old" else 100)])
            for _ in range(2):
                (artifact,) = store.load(MINE, task_id).task.artifacts
                assert {part.text for part in artifact.parts} == {text}
            store.delete(MINE, task_id)

    def test_beyond_the_bound_the_tasks_that_ended_first_go_first(self, make_store: Callable[..., Any]) -> None:
        store = make_store(max_tasks=5)
        open_ = begin(store, at=NOON)
        waiting = begin(store, at=NOON)
        store.append(waiting.token, [status(waiting.head.id, TaskState.INPUT_REQUIRED)], end=True)
        ended = [done(store, at=NOON + timedelta(seconds=n)) for n in range(8)]
        page = store.list(MINE, TaskQuery())
        assert page.total == 5
        assert {task.id for task in page.tasks} == {open_.head.id, waiting.head.id, *ended[-3:]}
        with pytest.raises(TaskNotFoundError):
            store.log(MINE, ended[0])

    def test_where_no_task_has_ended_the_longest_waiting_go(self, make_store: Callable[..., Any]) -> None:
        store = make_store(max_tasks=3)
        waiting = []
        for n in range(6):
            run = begin(store)
            asked = status(run.head.id, TaskState.INPUT_REQUIRED, at=NOON + timedelta(seconds=n))
            store.append(run.token, [asked], end=True)
            waiting.append(run.head.id)
        assert ids(store, TaskQuery()) == waiting[:2:-1]

    def test_a_task_with_a_run_is_never_forgotten(self, make_store: Callable[..., Any]) -> None:
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

    def test_the_bound_counts_the_tasks_of_all_scopes(self, make_store: Callable[..., Any]) -> None:
        store = make_store(max_tasks=4)
        scopes = [Scope("", str(n)) for n in range(10)]
        for n, scope in enumerate(scopes):
            done(store, scope=scope, at=NOON + timedelta(seconds=n))
        assert [store.list(scope, TaskQuery()).total for scope in scopes] == [0] * 6 + [1] * 4

    def test_a_closed_store_opens_again_when_it_is_used(self, store: Any) -> None:
        task_id = done(store)
        for _ in range(2):
            store.close()
        assert store.head(MINE, task_id).version == 4
        done(store)
