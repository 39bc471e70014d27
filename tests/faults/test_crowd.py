"""Two hundred clients of four workers with eight threads each; every call uses a random connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_sync import Client
from tests.faults.crowd import Crowd
from tests.live import gunicorn

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def test_two_hundred_clients_of_four_workers(tmp_path: Path) -> None:
    environment = {"FAULT_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "FAULT_BEAT": "10"}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn("tests.faults.agent:app", *options, threads=8, workers=4, environment=environment) as server:
        crowd = Crowd(server.url)
        crowd.run(200, lambda made: made >= 3)
        if crowd.failures:
            raise crowd.failures[0]
        assert sum(crowd.done.values()) == 600
        assert all(crowd.done[action] > 50 for action in ("send", "stream", "get", "subscribe", "cancel"))
        with Client(server.url) as client:
            assert client.list_tasks(status="working").total_size == 0
        assert "Traceback" not in server.log
