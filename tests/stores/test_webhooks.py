"""Webhooks that the workers of one SQLite file hold; the rest is in the contract."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing.storecontract.making import begin
from a2a_sync.testing.storecontract.webhooks import claimed, due, put


@pytest.mark.parametrize("ended", ["left", "died"])
def test_what_a_worker_held_that_is_gone_is_free(tmp_path, ended):
    with ExitStack() as stack:
        one, two = (SQLiteStore(tmp_path / "tasks.db") for _ in range(2))
        stack.callback(one.close)
        stack.callback(two.close)
        task_id = begin(one).head.id
        put(one, task_id, "w")
        held = claimed(one, task_id)
        now = two.workers.beat(60)
        assert due(two) == []
        assert claimed(two, task_id) is None
        one.workers.leave() if ended == "left" else two.workers.claim_lost(60, now=now + 3600)
        assert due(two) == ["w"]
        assert claimed(two, task_id) is not None
        assert not one.webhooks.settle(replace(held, cursor=3))
