"""A real server with gevent workers: greenlets are released, and the hub is not blocked."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import requests

from a2a_sync import Client, Task, TaskState
from a2a_sync.gunicorn import worker_connections
from a2a_sync.gunicorn.buffers import connection_limit
from tests.engine import Background, eventually
from tests.live import LiveServer, gunicorn_gevent
from tests.servers.test_gunicorn import begin, worker_info, worker_infos
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

WORKER = "tests.agents.worker:app"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with gunicorn_gevent(WORKER, environment={"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}) as server:
        yield server


def subscribe(server: LiveServer, task_id: str) -> socket.socket:
    """Open a raw connection and subscribe to a task."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}).encode()
    head = f"POST / HTTP/1.1\r\nHost: agent\r\nA2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n"
    connection = socket.create_connection(server.address, timeout=60)
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def read_until(connections: list[socket.socket], marker: bytes, seconds: float = 60.0) -> None:
    """Read from all connections until each has received `marker`."""
    shown = dict.fromkeys(connections, b"")
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < deadline, f"{len(selector.get_map())} connections do not show {marker!r}"
            for key, _ in selector.select(1.0):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                data = connection.recv(65536)
                assert data, "a connection was closed"
                shown[connection] = (shown[connection] + data)[-4096:]
                if marker in shown[connection]:
                    selector.unregister(connection)


def worker_pid(server: LiveServer) -> int:
    """The process id of the server's only worker."""
    process: int = worker_info(server)["pid"]
    return process


def resident(process: int) -> float:
    """The resident memory of a process in megabytes."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds_for_a_card(server: LiveServer) -> float:
    began = time.monotonic()
    assert requests.get(server.url + "/.well-known/agent-card.json", timeout=60).status_code == 200
    return time.monotonic() - began


def test_disconnected_streams_release_their_greenlets(server: LiveServer) -> None:
    with Client(server.url) as client:
        task_id, _ = begin(client, "wait")
        connections = [subscribe(server, task_id) for _ in range(20)]
        read_until(connections, b"data: ")
        assert worker_info(server)["streams"] == 20 + 1  # one is the status call itself
        for connection in connections:
            connection.close()
        watch = Stopwatch()
        eventually(lambda: worker_info(server)["streams"] == 1, "the end of the streams")
        assert watch.within(2.0)
        client.cancel_task(task_id)


def test_waiting_streams_and_sends_have_no_greenlet_of_the_server(server: LiveServer) -> None:
    with Client(server.url) as client, ExitStack() as stack:
        task_id, _ = begin(client, "wait")
        before = worker_info(server)["greenlets"]
        streams = [stack.enter_context(closing(subscribe(server, task_id))) for _ in range(20)]
        read_until(streams, b"data: ")
        sends = [Background(lambda: client.send("wait 60", timeout=60)) for _ in range(10)]
        eventually(lambda: worker_info(server)["streams"] == 20 + 10 + 1, "the streams and sends")
        # Each send has a run, which has a greenlet.
        eventually(lambda: worker_info(server)["greenlets"] <= before + 10, "the end of the greenlets of the requests")
        for task in client.list_tasks().tasks:
            if not task.state.terminal:
                client.cancel_task(task.id)
        # They continue on others.
        read_until(streams, b"TASK_STATE_CANCELED")
        assert [one.result(60).state for one in sends] == [TaskState.CANCELED] * 10


def test_a_thousand_streams_in_one_process_end_and_use_little_memory(
    server: LiveServer, record_property: pytest.RecordProperty
) -> None:
    count = min(
        990, connection_limit(worker_connections) * 7 // 8 - 10
    )  # below the limit, because the test streams too
    with Client(server.url) as client, ExitStack() as stack:
        process = worker_pid(server)
        task_id, _ = begin(client, "wait")
        before = resident(process)
        connections = [stack.enter_context(closing(subscribe(server, task_id))) for _ in range(count)]
        read_until(connections, b"data: ")
        assert worker_info(server)["streams"] == count + 1
        taken = resident(process) - before
        began = time.monotonic()
        client.cancel_task(task_id)
        # With the last chunk of the body: the stream was ended, not aborted.
        read_until(connections, b"0\r\n\r\n")
        seconds = time.monotonic() - began
        eventually(lambda: worker_info(server)["streams"] == 1, "the end of the streams")
    record_property("megabytes", taken)
    record_property("seconds", seconds)
    print(f"{count} streams: {before:.0f} MB before, {taken:.0f} MB more; all ended within {seconds:.2f} s")
    assert taken < 100
    assert seconds < 10


def test_a_lock_on_the_store_blocks_only_calls_that_need_it(server: LiveServer, tmp_path: Path) -> None:
    with Client(server.url) as client, closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        done = client.send("info")
        assert isinstance(done, Task)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        blocked = Background(lambda: client.send("info").text)
        times = []
        while time.monotonic() - began < 1.5 or len(times) < 6:
            times.append(seconds_for_a_card(server))
            assert client.get_task(done.id).state is TaskState.COMPLETED
        assert blocked.waiting
        other.execute("ROLLBACK")
        blocked.result()
        assert time.monotonic() - began >= 1.5
    # The lock is held for longer than any of these calls takes.
    assert max(times) < 1.5


def test_a_busy_handler_does_not_stop_the_heartbeat_of_its_worker(tmp_path: Path) -> None:
    # A worker counts as dead after two heartbeats, one second here.
    environment = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "WORKER_BEAT": "0.5"}
    with gunicorn_gevent(WORKER, workers=2, environment=environment) as server, Client(server.url) as client:
        # Both workers have served a run, so that they monitor each other.
        worker_infos(server, 2)
        burning = client.send("burn 4", return_immediately=True)
        assert isinstance(burning, Task)
        with Client(server.url) as another:
            assert another.wait(burning.id, timeout=30).text == "burnt"
        # The death of a worker is still detected.
        waiting, process = begin(client, "wait")
        os.kill(process, signal.SIGKILL)
        with Client(server.url) as another:
            assert another.wait(waiting, timeout=30).text == "worker lost"


def test_async_handlers_run_concurrently_and_stream(server: LiveServer) -> None:
    with Client(server.url) as client:
        sending = [Background(lambda: client.send("count 50").text) for _ in range(10)]
        expected = "".join(f"{number} " for number in range(50))
        assert [one.result(60) for one in sending] == [expected] * 10


def test_a_cancel_ends_an_async_handler(server: LiveServer) -> None:
    with Client(server.url) as client:
        task_id, _ = begin(client, "await")
        assert client.cancel_task(task_id).state is TaskState.CANCELED
        assert server.terminate() == 0


def test_handlers_with_their_own_event_loop_run_concurrently(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, environment={"WORKER_KIND": "native"}) as server, Client(server.url) as client:
        sending = [Background(lambda number=number: client.send(f"loop {number}").text) for number in range(10)]
        assert [one.result(60) for one in sending] == [f"loop {number}" for number in range(10)]


def test_requests_are_served_while_a_native_thread_is_busy(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, environment={"WORKER_KIND": "native"}) as server, Client(server.url) as client:
        task_id, _ = begin(client, "burn 1.5")
        times = []
        while client.get_task(task_id).state is TaskState.WORKING:
            times.append(seconds_for_a_card(server))
        assert len(times) > 3
        assert max(times) < 1.0


def test_a_stopping_server_ends_all_kinds_of_streams(server: LiveServer) -> None:
    with Client(server.url) as client:
        ids = [begin(client, text)[0] for text in ("wait", "await")]
        ends: list[TaskState] = []

        def follow(task_id: str) -> None:
            with Client(server.url) as another, another.subscribe(task_id) as stream:
                list(stream)
                ends.append(stream.state)

        threads = [threading.Thread(target=follow, args=(task_id,), daemon=True) for task_id in ids]
        for thread in threads:
            thread.start()
        eventually(lambda: worker_info(server)["streams"] == 3, "the streams")
        assert server.terminate() == 0
        for thread in threads:
            thread.join(60)
        assert ends == [TaskState.FAILED] * 2
