"""What only a real threaded server shows: clients that leave, threads that come back, a stop that is clean."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
import requests

from a2a_sync import Client, Task, TaskState, TaskStatusUpdateEvent
from tests.engine import eventually
from tests.live import LiveServer, gunicorn
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

THREADS = 3


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """A server that keeps no thread back, so that every one of them can be taken."""
    with gunicorn("tests.agents.patient:app", threads=THREADS) as server:
        yield server


def post(server: LiveServer, method: str) -> socket.socket:
    """A raw connection that has sent one call of `method`."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}).encode()
    head = f"POST / HTTP/1.1\r\nHost: agent\r\nA2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n"
    connection = socket.create_connection(server.address, timeout=60)
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def answered_within(seconds: float, server: LiveServer) -> bool:
    """Whether a request waits no longer for a free thread of the server."""
    watch = Stopwatch()
    answer = requests.get(server.url + "/.well-known/agent-card.json", timeout=60)
    assert answer.status_code == 200
    return watch.within(seconds)


def streaming(server: LiveServer) -> list[socket.socket]:
    """As many streams as the server has threads, each of which has begun."""
    connections = [post(server, "SendStreamingMessage") for _ in range(THREADS)]
    beginnings = [connection.recv(65536) for connection in connections]
    if not all(beginning.startswith(b"HTTP/1.1 200") for beginning in beginnings):
        for connection in connections:
            connection.close()
        raise AssertionError(beginnings)
    return connections


def test_disconnected_streams_release_their_threads_within_two_seconds(server: LiveServer) -> None:
    for connection in streaming(server):
        connection.close()
    assert answered_within(2.0, server)


def test_streams_without_events_hold_no_thread_and_receive_what_follows(server: LiveServer) -> None:
    connections = streaming(server)
    with Client(server.url) as client:
        tasks = client.list_tasks().tasks
        assert len(tasks) == THREADS
        for task in tasks:
            client.cancel_task(task.id)
    for connection in connections:
        with connection, connection.makefile("rb") as stream:
            assert any(b"TASK_STATE_CANCELED" in line for line in stream)
            assert stream.readline() in (b"\r\n", b"\n")


def test_more_streams_than_threads_are_open_at_once() -> None:
    with (
        gunicorn("tests.agents.patient:app", "-c", "python:a2a_sync.gunicorn", threads=8) as server,
        Client(server.url) as client,
    ):
        connections = [connection for _ in range(10) for connection in streaming(server)]
        assert answered_within(2.0, server)
        for task in client.list_tasks(page_size=100).tasks:
            client.cancel_task(task.id)
        for connection in connections:
            with connection, connection.makefile("rb") as stream:
                assert any(b"TASK_STATE_CANCELED" in line for line in stream)


def test_more_blocking_sends_than_threads_wait_at_once() -> None:
    with (
        gunicorn("tests.agents.patient:app", "-c", "python:a2a_sync.gunicorn", threads=8) as server,
        Client(server.url) as client,
    ):
        connections = [post(server, "SendMessage") for _ in range(40)]
        eventually(lambda: client.list_tasks().total_size == len(connections), "the sends")
        assert answered_within(2.0, server)
        for task in client.list_tasks(page_size=100).tasks:
            client.cancel_task(task.id)
        for connection in connections:
            with connection:
                response = connection.recv(65536)
                while b"TASK_STATE_CANCELED" not in response:
                    response += connection.recv(65536)
                assert response.startswith(b"HTTP/1.1 200")


def test_disconnected_blocking_sends_release_their_threads_within_two_seconds(server: LiveServer) -> None:
    with Client(server.url) as client:
        client.card()
        connections = [post(server, "SendMessage") for _ in range(THREADS)]
        # Their tasks exist, so each of them holds a thread now; the fourth connection waits for one.
        listing = threading.Thread(target=client.list_tasks, daemon=True)
        for connection in connections:
            connection.close()
        watch = Stopwatch()
        listing.start()
        listing.join(60)
        assert watch.within(2.0)
        # Leaving cancels nothing (spec 3.2.2).
        assert {task.state for task in client.list_tasks().tasks} <= {TaskState.WORKING, TaskState.SUBMITTED}


def test_a_stopping_server_ends_its_streams_and_fails_its_runs_within_its_limit() -> None:
    settings = ("-c", "python:a2a_sync.gunicorn")
    with (
        gunicorn("tests.agents.patient:app", *settings, threads=8) as server,
        Client(server.url) as client,
        client.stream("wait") as stream,
    ):
        events = iter(stream)
        assert isinstance(next(events), Task)
        watch = Stopwatch()
        stopped = threading.Thread(target=server.terminate, daemon=True)
        stopped.start()
        rest = list(events)
        stopped.join(60)
        assert not stopped.is_alive()
        assert watch.within(8.0)
    assert [event.status.state for event in rest if isinstance(event, TaskStatusUpdateEvent)][-1:] == [TaskState.FAILED]
    assert rest[-1].status.message is not None  # type: ignore[union-attr]
    assert rest[-1].status.message.text == "server stopped"  # type: ignore[union-attr]


def test_two_hundred_streams_in_one_process_all_end() -> None:
    with gunicorn("tests.agents.patient:app", threads=230) as server, Client(server.url) as client:
        task = client.send("wait", return_immediately=True)
        assert isinstance(task, Task)
        ends: list[TaskState] = []
        ready = threading.Barrier(201, timeout=120)

        def follow() -> None:
            with client.subscribe(task.id, timeout=120) as stream:
                events = iter(stream)
                next(events)
                ready.wait()
                ends.append([event.status.state for event in events if isinstance(event, TaskStatusUpdateEvent)][-1])

        threads = [threading.Thread(target=follow, daemon=True) for _ in range(200)]
        for thread in threads:
            thread.start()
        ready.wait()
        client.cancel_task(task.id)
        for thread in threads:
            thread.join(60)
        assert ends == [TaskState.CANCELED] * 200
