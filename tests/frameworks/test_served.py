"""Bridges under gunicorn: workers that are forked after the app was loaded, a restart, and workers that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import Client, TaskState
from a2a_sync.types import TaskStatusUpdateEvent
from tests.engine import eventually
from tests.frameworks import SHARED
from tests.frameworks.brain import CANARY, TIMEOUT
from tests.frameworks.secrets import bytes_in
from tests.live import gunicorn

pytestmark = pytest.mark.live
S = TaskState


@pytest.fixture(params=SHARED)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    environment = {"A2A_TEST_KIT": request.param, "A2A_TEST_FOLDER": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    app = "tests.frameworks.served:app"
    return lambda: gunicorn(app, "--preload", workers=2, environment=environment, wait=60.0)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_share_memory_and_questions_also_after_a_restart_and_a_kill(serve: Any, tmp_path: Path) -> None:
    with serve() as server, Client(server.url) as client:
        for n in range(4):
            said = ", ".join(f"t{one}" for one in range(n + 1))
            assert client.send(f"t{n}", context_id="c", timeout=TIMEOUT).text == f"You said: {said}."
        asked = client.send("buy", context_id="q", timeout=TIMEOUT).task
        assert asked.state is S.INPUT_REQUIRED
    with serve() as server, Client(server.url) as client:
        assert client.send("yes", task_id=asked.id, timeout=TIMEOUT).text == "Done: bought a boat."
        with client.stream("wait", context_id="c") as stream:
            for event in stream:
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
                    break
        for worker in children(server.pid):
            os.kill(worker, signal.SIGKILL)
        task = eventually(lambda: (task := client.get_task(stream.task_id)).state.terminal and task)
        assert task.state is S.FAILED
        assert client.send("t4", context_id="c", timeout=TIMEOUT).text == "You said: t0, t1, t2, t3, t4."
    # In the files of the framework too: checkpoints of LangGraph, sessions of the ADK.
    assert "t0" in bytes_in(tmp_path)
    assert CANARY not in bytes_in(tmp_path)
