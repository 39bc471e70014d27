"""Crews and flows under gunicorn: workers that are forked after the app was loaded, a restart, and workers that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai")

from a2a_sync import Client, TaskState
from a2a_sync.types import TaskStatusUpdateEvent
from tests.engine import eventually
from tests.frameworks.test_served import children
from tests.live import gunicorn

pytestmark = pytest.mark.live
S = TaskState
TIMEOUT = 60.0


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[str], Any]:
    def serve(kind: str) -> Any:
        environment = {"A2A_TEST_KIT": kind, "A2A_TEST_FOLDER": str(tmp_path), "PYTHONWARNINGS": "ignore"}
        environment |= {"HOME": str(tmp_path)}
        return gunicorn("tests.crewai.served:app", "--preload", workers=2, environment=environment, wait=120.0)

    return serve


@pytest.mark.parametrize("kind", ["crew", "agent"])
def test_what_the_other_worker_has_heard_is_remembered_and_nothing_of_a_killed_one(serve: Any, kind: str) -> None:
    with serve(kind) as server, Client(server.url) as client:
        for n in range(3):
            said = ", ".join(f"t{one}" for one in range(n + 1))
            assert client.send(f"t{n}", context_id="c", timeout=TIMEOUT).text == f"You said: {said}."
        with client.stream("wait", context_id="c") as stream:
            for event in stream:
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
                    break
        for worker in children(server.pid):
            os.kill(worker, signal.SIGKILL)
        task = eventually(lambda: (task := client.get_task(stream.task_id)).state.terminal and task)
        assert task.state is S.FAILED
        assert client.send("t3", context_id="c", timeout=TIMEOUT).text == "You said: t0, t1, t2, t3."


def test_a_question_of_a_flow_is_answered_after_a_restart(serve: Any) -> None:
    with serve("flow") as server, Client(server.url) as client:
        assert client.send("t0", context_id="c", timeout=TIMEOUT).text == "You said: t0."
        asked = client.send("buy", context_id="c", timeout=TIMEOUT).task
        assert asked.state is S.INPUT_REQUIRED
    with serve("flow") as server, Client(server.url) as client:
        assert client.send("gladly", task_id=asked.id, timeout=TIMEOUT).task.state is S.INPUT_REQUIRED
        assert client.send("two", task_id=asked.id, timeout=TIMEOUT).text == "Agreed: gladly. two boats."
        assert client.send("t1", context_id="c", timeout=TIMEOUT).text == "You said: t0, buy, t1."
