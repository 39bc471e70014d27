"""What the tasks of a context share, where processes share the store; the rest is in the contract."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from a2a_sync.stores.base import RunToken, StoredState
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing.storecontract.contexts import count_up
from a2a_sync.testing.storecontract.making import MINE, TIMEOUT, begin


def _count_in_a_process(path: Path, token: RunToken, times: int) -> None:
    store = SQLiteStore(path, busy_timeout=TIMEOUT)
    try:
        count_up(store, token, times)
    finally:
        store.close()


@pytest.mark.slow
def test_processes_that_count_in_one_state_lose_no_step(tmp_path):
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path, busy_timeout=TIMEOUT)
    runs = [begin(store) for _ in range(3)]
    store.contexts.set_state(runs[0].token, b"0", expected=0)
    spawn = multiprocessing.get_context("spawn")
    counters = [spawn.Process(target=_count_in_a_process, args=(path, run.token, 50)) for run in runs]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join(TIMEOUT * 2)
        assert counter.exitcode == 0
    assert store.contexts.state(MINE, "c") == StoredState(b"150", 151)
    store.close()
