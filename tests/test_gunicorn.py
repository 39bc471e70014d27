"""The settings and hooks that the package has for gunicorn, under gunicorn."""

from __future__ import annotations

import os
import signal

import pytest

from a2a_sync import Client, Task
from tests.live import gunicorn

pytestmark = pytest.mark.live


def test_a_stopping_worker_lets_runs_and_their_streams_end_in_good_order() -> None:
    options = ("-c", "python:a2a_sync.gunicorn", "--graceful-timeout", "20")
    with gunicorn("examples.pizza:app", *options) as server, Client(server.url) as client:
        task = client.send("a small pizza with tuna")
        assert isinstance(task, Task)
        with client.stream("yes", task_id=task.id) as stream:
            for _ in stream:
                if stream.task is not None and stream.task.status.message is not None:
                    break  # the kitchen has begun
            os.kill(server.pid, signal.SIGTERM)
            events = list(stream)
        assert stream.state == "completed"
        assert len(events) >= 3
        assert server.terminate() == 0
