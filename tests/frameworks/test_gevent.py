"""Bridges in gevent workers of gunicorn: each run works on a native thread with the event loop, and its events come back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import Client, TaskState
from a2a_sync.types import TaskStatusUpdateEvent
from tests.frameworks.test_served import TIMEOUT
from tests.live import gunicorn_gevent

pytestmark = pytest.mark.live
S = TaskState
#: Three of the seven, because each starts a server: two with SQLite files of their own, whose connections work on threads.
GEVENT = ["adk", "langgraph", "strands"]


@pytest.fixture(params=GEVENT)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    environment = {"A2A_TEST_KIT": request.param, "A2A_TEST_FOLDER": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    app = "tests.frameworks.served:app"
    with gunicorn_gevent(app, environment=environment, wait=60.0) as server:
        yield server.url


def test_a_gevent_worker_streams_asks_cancels_and_serves_others_meanwhile(url: str) -> None:
    with Client(url, timeout=60.0) as client:
        with client.stream("hello", context_id="c") as stream:
            list(stream)
        assert stream.text == "You said: hello."
        asked = client.send("buy", context_id="c").task
        assert asked.state is S.INPUT_REQUIRED
        with client.stream("wait") as waiting:
            for event in waiting:
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
                    break
            results: list[str] = []
            threads = [threading.Thread(target=lambda: results.append(client.send("x").text)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT * 6)
            assert results == ["You said: x."] * 8
            assert client.cancel_task(waiting.task_id).state is S.CANCELED
        assert client.send("yes", task_id=asked.id).text == "Done: bought a boat."
