"""Power loss: the part of SQLite's write-ahead log that reached the disk remains, the rest is lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import SQLiteStore
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import Owner, TaskQuery
from a2a_sync.testing.storecontract.making import chunk, message, status
from a2a_sync.types import TaskState

OWNER = Owner()
TASKS = 4
CHUNKS = 30
CUTS = 25


def write_tasks(store: SQLiteStore) -> None:
    """Write tasks in chunks, in turns; each entry is one transaction."""
    ids = [f"t-{number}" for number in range(TASKS)]
    tokens = {
        one: store.start_run(
            OWNER, RunRequest(message=message(one)), [message(one), status(one, TaskState.WORKING)], create=True
        ).token
        for one in ids
    }
    for number in range(CHUNKS):
        for one in ids:
            store.append(tokens[one], [chunk(one, f"{number} ", append=number > 0)])
    for one in ids:
        store.append(tokens[one], [status(one, TaskState.COMPLETED)])


def after_power_loss(path: Path, folder: Path, kept: int) -> SQLiteStore:
    """A store on the files after a power loss, with `kept` bytes of the write-ahead log on disk."""
    folder.mkdir()
    shutil.copy(path, folder / "tasks.db")
    (folder / "tasks.db-wal").write_bytes(Path(f"{path}-wal").read_bytes()[:kept])
    return SQLiteStore(folder / "tasks.db")


def numbers_and_text(store: SQLiteStore, task_id: str) -> tuple[list[int], str]:
    """The numbers in a task's log, and the text of its artifact."""
    page = store.log(OWNER, task_id)
    task = store.load(OWNER, task_id).task
    return [entry.number for entry in page.entries], "".join(one.text for one in task.artifacts)


@pytest.fixture
def cuts(tmp_path: Path) -> Callable[[Path], list[tuple[int, SQLiteStore]]]:
    stores: list[SQLiteStore] = []

    def cut(path: Path) -> list[tuple[int, SQLiteStore]]:
        size = Path(f"{path}-wal").stat().st_size
        places = sorted(random.Random(7).sample(range(size), CUTS))
        stores.extend(after_power_loss(path, tmp_path / f"cut-{place}", place) for place in places)
        return list(zip(places, stores, strict=True))

    yield cut  # type: ignore[misc]
    for store in stores:
        store.close()


def test_after_power_loss_each_task_is_in_a_consistent_earlier_state(tmp_path: Path, cuts: Any) -> None:
    """Later entries are lost, with no gaps: numbers, text and totals agree."""
    path = tmp_path / "tasks.db"
    with_tables = SQLiteStore(path)
    with_tables.list(OWNER, TaskQuery())
    with_tables.close()
    store = SQLiteStore(path)
    write_tasks(store)
    seen = []
    for _, after in cuts(path):
        tasks = after.list(OWNER, TaskQuery(size=100))
        seen.append(sum(len(numbers_and_text(after, task.id)[0]) for task in tasks.tasks))
        assert tasks.total == len(tasks.tasks)
        for task in tasks.tasks:
            numbers, text = numbers_and_text(after, task.id)
            assert numbers == list(range(1, len(numbers) + 1))
            chunks = len(numbers) - 2 - (task.state is TaskState.COMPLETED)
            assert text == "".join(f"{number} " for number in range(chunks))
    store.close()
    assert seen == sorted(seen)
    assert len(set(seen)) > CUTS // 2
    assert seen[-1] <= TASKS * (CHUNKS + 3)


def test_a_store_that_lost_writes_accepts_new_ones(tmp_path: Path, cuts: Any) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path)
    write_tasks(store)
    for place, after in cuts(path):
        task_id = f"new-{place}"
        after.start_run(OWNER, RunRequest(message=message(task_id)), [message(task_id)], create=True)
        assert after.head(OWNER, task_id).version == 1
    store.close()


def test_with_synchronous_full_each_write_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `synchronous` setting of SQLite is all that can be observed without a real power loss."""
    store = SQLiteStore(tmp_path / "tasks.db", synchronous="full")
    level = store._database.read(lambda connection: connection.execute("PRAGMA synchronous").fetchone()[0])
    store.close()
    assert level == 2
