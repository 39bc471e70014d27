"""Runs that exceed their time limit and never return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from a2a_sync.errors import OverloadedError
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing import wsgi_session
from a2a_sync.types import TaskState
from tests.engine import Gate, Served, eventually


def test_hung_runs_on_every_thread_make_the_server_refuse_sends_and_not_ready(
    tmp_path: Path,
) -> None:
    gates = [Gate() for _ in range(3)]

    def handler(message: Any, context: Any) -> str:
        if message.text.isdigit():
            gates[int(message.text)].block()
        return "done"

    limits = {"max_concurrent_runs": 2, "max_abandoned_threads": 1, "max_queued_runs": 8, "run_timeout": 0.05}
    served = Served(handler, store=SQLiteStore(tmp_path / "tasks.db"), **limits)

    def readiness() -> tuple[int, str]:
        answer = wsgi_session(served.app).get("http://agent.test/readyz", timeout=60)
        return answer.status_code, answer.json()["status"]

    for number, gate in enumerate(gates):
        hung = served.begin(str(number))
        gate.wait()
        served.until(hung, TaskState.FAILED)
    eventually(lambda: served.pool.exhausted, "the last thread is held")
    assert readiness() == (503, "every thread is held by a run past its time limit")
    for refused in (served.send, served.begin, served.stream):
        with pytest.raises(OverloadedError, match="held by a run past its time limit") as caught:
            refused("new")
        assert caught.value.retry_after == 30
        assert caught.value.http_status == 429
    assert served.list().total_size == 3
    # One returned run is sufficient.
    gates[2].open.set()
    eventually(lambda: not served.pool.exhausted, "a thread is free")
    assert served.send("new").text == "done"
    eventually(lambda: readiness() == (200, "ok"), "readiness")
    for gate in gates:
        gate.open.set()
    eventually(lambda: (served.pool.running, served.pool.lingering) == (0, 0), "the end of all runs")
    assert not served.pool.exhausted
    served.close()
