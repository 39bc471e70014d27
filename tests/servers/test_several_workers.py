"""Several processes on one SQLite file without sticky sessions see each other's changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_sync import Client, Task, TaskState, TaskStatusUpdateEvent
from tests.live import LiveServer, gunicorn

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

WORKERS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    environment = {"SCENARIO_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn(
        "tests.scenarios.agent:app", *options, threads=16, workers=WORKERS, environment=environment
    ) as server:
        yield server


def begin(client: Client, text: str) -> Task:
    task = client.send(text, return_immediately=True)
    assert isinstance(task, Task)
    return task


def follow(server: LiveServer, task_id: str, ends: list[TaskState], ready: threading.Event) -> None:
    """Subscribe over a new connection, so that the kernel selects a worker."""
    with Client(server.url) as client, client.subscribe(task_id, timeout=40) as stream:
        for _ in stream:
            ready.set()
        assert stream.task is not None
        ends.append(stream.task.state)


def test_a_task_can_be_read_subscribed_to_and_cancelled_at_any_worker(server: LiveServer) -> None:
    for _ in range(10):
        with Client(server.url) as sender, Client(server.url) as canceller:
            task = begin(sender, "wait")
            ends: list[TaskState] = []
            threads = []
            for _ in range(4):
                ready = threading.Event()
                thread = threading.Thread(target=follow, args=(server, task.id, ends, ready), daemon=True)
                thread.start()
                threads.append(thread)
                assert ready.wait(60)
            assert canceller.get_task(task.id).state is TaskState.WORKING
            assert canceller.cancel_task(task.id).state is TaskState.CANCELED
            for thread in threads:
                thread.join(60)
            assert ends == [TaskState.CANCELED] * 4


def test_subscribers_at_any_worker_receive_every_chunk_in_order(server: LiveServer) -> None:
    texts: list[str] = []

    def subscribe(task_id: str, ready: threading.Barrier) -> None:
        with Client(server.url) as client, client.subscribe(task_id, timeout=40) as stream:
            events = iter(stream)
            next(events)
            ready.wait(60)
            for _ in events:
                pass
            assert stream.task is not None
            texts.append(stream.task.text)

    with Client(server.url) as client:
        task = begin(client, "ask")
        client.wait(task.id)
        ready = threading.Barrier(9)
        threads = [threading.Thread(target=subscribe, args=(task.id, ready), daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        client.send("large", task_id=task.id)
        for thread in threads:
            thread.join(60)
    assert texts == ["ask / Which size? / large"] * 8


def test_other_workers_fail_only_the_tasks_of_a_killed_worker(server: LiveServer) -> None:
    by_process: dict[int, list[str]] = {}
    while len(by_process) < 2:
        # A new connection each time, so that the kernel selects a worker.
        with Client(server.url) as client, client.stream("wait") as stream:
            for event in stream:
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
                    break
            assert stream.task is not None
            assert stream.task.status.message is not None
            process = int(stream.task.status.message.text.split()[-1])
            by_process.setdefault(process, []).append(stream.task.id)
    victim, survivor = sorted(by_process)[:2]
    with Client(server.url) as client:
        client.card()
    os.kill(victim, signal.SIGKILL)
    with Client(server.url) as client:
        for task_id in by_process[victim]:
            lost = client.wait(task_id, timeout=60)
            assert (lost.state, lost.text) == (TaskState.FAILED, "worker lost")
        for task_id in by_process[survivor]:
            assert client.get_task(task_id).state is TaskState.WORKING
            assert client.cancel_task(task_id).state is TaskState.CANCELED


def test_a_restarted_server_fails_the_runs_of_the_killed_one(tmp_path: Path) -> None:
    environment = {"SCENARIO_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with (
        gunicorn("tests.scenarios.agent:app", threads=4, environment=environment) as server,
        Client(server.url) as client,
    ):
        task = begin(client, "wait")
        with client.stream("count 3") as stream:
            assert [event.status.state for event in stream if isinstance(event, TaskStatusUpdateEvent)][-1].terminal
        server.kill()
    with (
        gunicorn("tests.scenarios.agent:app", threads=4, environment=environment) as server,
        Client(server.url) as client,
    ):
        done = client.wait(task.id, timeout=60)
        assert (done.state, done.text) == (TaskState.FAILED, "worker lost")


def test_several_workers_with_a_memory_store_get_an_explanation() -> None:
    import requests

    with gunicorn(
        "tests.scenarios.agent:app", threads=2, workers=2, environment={"SCENARIO_STORE": "memory:"}
    ) as server:
        answer = requests.post(server.url, json={}, timeout=60)
        assert answer.status_code == 503
        assert "sqlite:///tasks.db" in answer.json()["error"]["message"]
