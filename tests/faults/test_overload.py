"""Streams and blocking sends occupy all threads of a real server: card, get and cancel are still answered."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from a2a_sync import Client
from a2a_sync.types import TaskState, new_id
from tests.live import LiveServer, gunicorn
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

THREADS = 10
PLACES = 8
HOOK = ("-c", "python:a2a_sync.gunicorn", "--worker-connections", "500")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """Gunicorn's own worker, in which each stream and each waiting send holds a thread."""
    environment = {"FAULT_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with gunicorn(
        "tests.faults.agent:app", *HOOK, threads=THREADS, worker="gthread", environment=environment
    ) as server:
        yield server


def post(server: LiveServer, method: str, text: str, *, stream: bool = False, timeout: float = 30) -> Any:
    message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    return requests.post(server.url, json=body, headers={"A2A-Version": "1.0"}, stream=stream, timeout=timeout)


def in_time(call: Callable[[], Any], seconds: float = 1.0) -> Any:
    """Call `call` and assert that it returns within `seconds`."""
    watch = Stopwatch()
    result = call()
    assert watch.within(seconds)
    return result


def test_a_fully_occupied_server_answers_card_get_and_cancel(server: LiveServer) -> None:
    with ExitStack() as stack, Client(server.url) as client, ThreadPoolExecutor(40) as pool:
        client.card()
        streams = [stack.enter_context(post(server, "SendStreamingMessage", "hold 1", stream=True)) for _ in range(4)]
        assert [answer.status_code for answer in streams] == [200] * 4
        sends = [pool.submit(post, server, "SendMessage", "hold 1") for _ in range(4)]
        _await(lambda: client.list_tasks(status=TaskState.WORKING).total_size == PLACES, "every place taken")
        # Requests that hold a thread count as slow only after a moment; until then further ones may wait.
        _await(lambda: post(server, "SendMessage", "count 1").status_code == 429, "the first refusal")
        flood = [
            pool.submit(post, server, ("SendMessage", "SendStreamingMessage")[n % 2], "count 1") for n in range(30)
        ]
        for _ in range(5):
            assert in_time(lambda: requests.get(f"{server.url}/.well-known/agent-card.json", timeout=60)).ok
            tasks = in_time(client.list_tasks).tasks
            assert in_time(lambda task=tasks[0]: client.get_task(task.id)).state is TaskState.WORKING
        for refused in flood:
            answer = refused.result(60)
            assert answer.status_code == 429
            assert int(answer.headers["Retry-After"]) >= 1
            assert "error" in answer.json()
        # Refused requests have stored nothing.
        assert client.list_tasks().total_size == PLACES
        for task in client.list_tasks().tasks:
            assert in_time(lambda task=task: client.cancel_task(task.id)).state is TaskState.CANCELED
        assert [done.result(60).json()["result"]["task"]["status"]["state"] for done in sends] == [
            "TASK_STATE_CANCELED"
        ] * 4
        assert all(b"TASK_STATE_CANCELED" in answer.content for answer in streams)
        assert post(server, "SendMessage", "count 1").status_code == 200


def test_many_concurrent_short_calls_are_answered(server: LiveServer) -> None:
    with ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(lambda n: post(server, "SendMessage", "count 1"), range(300)))
    assert {answer.status_code for answer in answers} == {200}


def test_a_refused_client_retries_until_a_thread_is_free(server: LiveServer) -> None:
    with ExitStack() as stack, Client(server.url) as client:
        streams = [stack.enter_context(post(server, "SendStreamingMessage", "hold 1", stream=True)) for _ in range(8)]
        _await(lambda: post(server, "SendMessage", "count 1").status_code == 429, "the first refusal")
        listed = client.list_tasks(status=TaskState.WORKING).tasks

        def cancel_tasks() -> None:
            for task in listed:
                client.cancel_task(task.id)

        later = threading.Timer(0.5, cancel_tasks)
        later.start()
        with Client(server.url) as patient:
            task = patient.wait(listed[0].id, timeout=30)
        assert task.state is TaskState.CANCELED
        later.join(60)
        assert len(streams) == 8


def test_clients_that_do_not_close_their_side_delay_no_other_client(server: LiveServer) -> None:
    """Gunicorn waits for the client's close on the thread that accepts connections."""
    method = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "unknown"}}
    body = json.dumps(method).encode()
    head = f"POST / HTTP/1.1\r\nHost: a\r\nA2A-Version: 1.0\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stack, Client(server.url) as client:
        client.card()
        lingering = [stack.enter_context(socket.create_connection(server.address, timeout=60)) for _ in range(20)]
        for one in lingering:
            one.sendall(head.encode() + body)
        for one in lingering:
            answer = b"".join(iter(lambda one=one: one.recv(65536), b""))
            assert b"Task not found" in answer
        assert in_time(client.list_tasks).total_size == 0


def _await(condition: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        pause.wait(0.02)
