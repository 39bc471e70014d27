"""Tasks in lists: their order, pages, filters and totals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from a2a_sync.stores.base import TaskQuery, time_ms
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    NOON,
    begin,
    chunk,
    done,
    flat,
    ids,
    message,
    pages,
    status,
)
from a2a_sync.types import Role, TaskState

LATE = NOON + timedelta(milliseconds=1)
#: The tasks that filters select from those of `test_filters_narrow_the_page_and_the_total`.
FILTERED: tuple[tuple[list[str], dict[str, Any]], ...] = (
    (["d", "c", "b", "a"], {}),
    (["d", "b", "a"], {"context_id": "x"}),
    (["c", "b", "a"], {"state": TaskState.COMPLETED}),
    (["d"], {"state": TaskState.WORKING}),
    ([], {"state": TaskState.FAILED}),
    (["d", "c", "b"], {"since_ms": time_ms(LATE)}),
    ([], {"since_ms": time_ms(LATE) + 1}),
    (["d", "c", "b", "a"], {"since_ms": time_ms(NOON)}),
    (["b", "a"], {"context_id": "x", "state": TaskState.COMPLETED}),
    (["b"], {"context_id": "x", "state": TaskState.COMPLETED, "since_ms": time_ms(LATE)}),
    ([], {"context_id": "unknown"}),
)


class Listing:
    """Part of `StoreContract`; see the module."""

    def test_tasks_are_listed_by_status_time_then_id_newest_first(self, store: Any) -> None:
        for name, second in (("a", 3), ("b", 1), ("d", 2), ("c", 2)):
            done(store, task_id=name, at=NOON + timedelta(seconds=second))
        begin(store, task_id="e", at=None)
        page = store.list(MINE, TaskQuery())
        assert [task.id for task in page.tasks] == ["a", "d", "c", "b", "e"]
        assert (page.total, page.next) == (5, None)

    def test_a_new_status_moves_a_task_to_the_front(self, store: Any) -> None:
        run = begin(store, task_id="old", at=NOON)
        done(store, task_id="new", at=NOON + timedelta(seconds=1))
        assert ids(store, TaskQuery()) == ["new", "old"]
        store.append(run.token, [chunk("old", "x")])
        assert ids(store, TaskQuery()) == ["new", "old"]
        store.append(run.token, [status("old", TaskState.WORKING, at=NOON + timedelta(seconds=2))])
        assert ids(store, TaskQuery()) == ["old", "new"]

    def test_pages_contain_every_task_once(self, store: Any) -> None:
        made = [done(store, at=NOON + timedelta(milliseconds=n // 3)) for n in range(20)]
        found = pages(store, 7)
        assert [len(page) for page in found] == [7, 7, 6]
        whole = flat(found)
        assert sorted(whole) == sorted(made)
        assert pages(store, 10) == [whole[:10], whole[10:]]
        assert store.list(MINE, TaskQuery(size=7)).total == 20

    def test_a_cursor_remains_valid_while_tasks_are_added_and_deleted(self, store: Any) -> None:
        for n in range(6):
            done(store, task_id=str(n), at=NOON + timedelta(seconds=n))
        first = store.list(MINE, TaskQuery(size=3))
        assert [task.id for task in first.tasks] == ["5", "4", "3"]
        done(store, task_id="newer", at=NOON + timedelta(seconds=9))
        store.delete(MINE, "3")
        second = store.list(MINE, TaskQuery(size=3, after=first.next))
        assert [task.id for task in second.tasks] == ["2", "1", "0"]
        assert (second.total, second.next) == (6, None)

    def test_filters_narrow_the_page_and_the_total(self, store: Any) -> None:
        done(store, task_id="a", context_id="x")
        done(store, task_id="b", context_id="x", at=LATE)
        done(store, task_id="c", context_id="y", at=LATE)
        begin(store, task_id="d", context_id="x", at=LATE)
        done(store, task_id="e", context_id="x", owner=FOREIGN[0])
        for expected, filters in FILTERED:
            page = store.list(MINE, TaskQuery(**filters))
            assert [task.id for task in page.tasks] == expected, filters
            assert page.total == len(expected), filters
            assert flat(pages(store, 1, **filters)) == expected, filters

    def test_listed_tasks_have_the_requested_history_and_artifacts(self, store: Any) -> None:
        run = begin(store, text="hi")
        store.append(run.token, [chunk(run.head.id, "x"), message(run.head.id, "hey", role=Role.AGENT)], end=True)
        (plain,) = store.list(MINE, TaskQuery(history=0)).tasks
        assert (plain.history, plain.artifacts, plain.context_id) == ((), (), "c")
        (newest,) = store.list(MINE, TaskQuery(history=1)).tasks
        assert [one.text for one in newest.history] == ["hey"]
        (whole,) = store.list(MINE, TaskQuery(artifacts=True)).tasks
        assert whole == store.load(MINE, run.head.id).task

    def test_totals_follow_every_change(self, store: Any) -> None:
        def totals() -> tuple[int, ...]:
            states = (None, TaskState.WORKING, TaskState.COMPLETED, TaskState.CANCELED)
            return tuple(store.list(MINE, TaskQuery(state=state)).total for state in states)

        runs = [begin(store) for _ in range(4)]
        assert totals() == (4, 4, 0, 0)
        store.append(runs[0].token, [status(runs[0].head.id, TaskState.COMPLETED)])
        store.interrupt(MINE, runs[1].head.id, [status(runs[1].head.id, TaskState.CANCELED)])
        assert totals() == (4, 2, 1, 1)
        for run in runs[1:3]:
            store.delete(MINE, run.head.id)
        assert totals() == (2, 1, 1, 0)
        store.delete(MINE, runs[3].head.id)
        store.delete(MINE, runs[0].head.id)
        assert totals() == (0, 0, 0, 0)
