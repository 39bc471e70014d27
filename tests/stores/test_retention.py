"""What retention leaves of an SQLite file; the rest is in the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing.storecontract.making import MINE, chunk, expire_all, long, resume, status
from a2a_sync.types import TaskState


def rows_of(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables}


@pytest.mark.slow
def test_a_swept_file_has_no_rows_left_and_the_pages_are_used_again(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path)
    sizes = []
    for _ in range(4):
        for _ in range(5):
            long(store, 400)
        while store.sweep(expire_all(replay=True)).more:
            pass
        assert rows_of(path)["a2a_entries"] == 10
        assert rows_of(path)["a2a_snapshots"] == 5
        while store.sweep(expire_all(ended=True)).more:
            pass
        rows = rows_of(path)
        assert {name: count for name, count in rows.items() if count} == {"a2a_meta": 1, "a2a_counts": 1}
        store.close()
        sizes.append(path.stat().st_size)
    assert sizes[-1] <= sizes[0] * 1.1


def test_a_reader_that_comes_late_with_an_older_sum_does_not_spoil_a_compacted_log(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    task_id = long(store, 100, end=TaskState.INPUT_REQUIRED)
    kept: list[Callable[[], None]] = []
    keep = store._keep_snapshot
    store._keep_snapshot = lambda *values: kept.append(partial(keep, *values))  # type: ignore[method-assign]
    store.load(MINE, task_id)
    run = resume(store, task_id)
    store.append(run.token, [chunk(task_id, "more", append=True), status(task_id, TaskState.COMPLETED)])
    store.sweep(expire_all(replay=True))
    before = store.load(MINE, task_id)
    kept[0]()
    assert store.load(MINE, task_id) == before
    store.close()
