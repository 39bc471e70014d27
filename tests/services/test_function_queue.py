"""Runs that Dramatiq and RQ execute, over a real Redis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from a2a_sync import Client
from tests.live import ROOT, gunicorn
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG

pytestmark = [pytest.mark.live]

#: The module of the agent, and the command of its workers.
WORKERS = {
    "tests.services.dramatiq_agent": [
        "dramatiq",
        "tests.services.dramatiq_agent",
        "--processes",
        "1",
        "--threads",
        "2",
    ],
    "tests.services.rq_agent": ["rq.cli", "worker", "--url", "{broker}", "a2a"],
}


@pytest.mark.parametrize("module", WORKERS)
def test_a_worker_executes_the_runs_of_a_server(module: str, tmp_path: Path) -> None:
    with redis_broker(tmp_path) as broker:
        environment = {"A2A_TEST_BROKER": broker.url, "A2A_TEST_STORE": f"sqlite:///{tmp_path}/tasks.db"}
        command = [sys.executable, "-m", *(part.format(broker=broker.url) for part in WORKERS[module])]
        with (tmp_path / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, stdout=log, stderr=log
            )
        try:
            with gunicorn(f"{module}:app", environment=environment, wait=LONG) as server, Client(server.url) as client:
                texts = [client.send(f"hello {number}", timeout=LONG).text for number in range(3)]
                assert [text.split(" by ")[0] for text in texts] == ["hello 0", "hello 1", "hello 2"]
                assert str(server.pid) not in "".join(texts)
        finally:
            worker.terminate()
            worker.wait(LONG)
