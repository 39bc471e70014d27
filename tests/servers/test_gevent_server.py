"""What only a real server with gevent's workers shows: greenlets that come back, and a hub that nothing holds up."""

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
from tests.engine import Background, eventually
from tests.live import LiveServer, gunicorn_gevent
from tests.servers.test_gunicorn import begin, tell, tell_all

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

WORKER = "tests.agents.worker:app"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with gunicorn_gevent(WORKER, environment={"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}) as server:
        yield server


def subscribe(server: LiveServer, task_id: str) -> socket.socket:
    """A raw connection that has asked for the stream of a task."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}).encode()
    head = f"POST / HTTP/1.1\r\nHost: agent\r\nA2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n"
    connection = socket.create_connection(server.address, timeout=30)
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def read_until(connections: list[socket.socket], marker: bytes, seconds: float = 60.0) -> None:
    """Read from all of them until each has shown `marker`."""
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


def worker_of(server: LiveServer) -> int:
    """The process of the server's one worker."""
    process: int = tell(server)["pid"]
    return process


def resident(process: int) -> float:
    """Megabytes of a process."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds_for_a_card(server: LiveServer) -> float:
    began = time.monotonic()
    assert requests.get(server.url + "/.well-known/agent-card.json", timeout=20).status_code == 200
    return time.monotonic() - began


def test_clients_that_leave_their_streams_give_the_greenlets_back(server: LiveServer) -> None:
    with Client(server.url) as client:
        task_id, _ = begin(client, "wait")
        connections = [subscribe(server, task_id) for _ in range(20)]
        read_until(connections, b"data: ")
        assert tell(server)["streams"] == 20 + 1  # its own
        for connection in connections:
            connection.close()
        began = time.monotonic()
        eventually(lambda: tell(server)["streams"] == 1, "the end of the streams")
        assert time.monotonic() - began < 2.0
        client.cancel_task(task_id)


def test_a_thousand_streams_in_one_process_all_end_and_cost_little(
    server: LiveServer, record_property: pytest.RecordProperty
) -> None:
    count = 990  # a few less than may be: the test itself streams too
    with Client(server.url) as client, ExitStack() as stack:
        process = worker_of(server)
        task_id, _ = begin(client, "wait")
        before = resident(process)
        connections = [stack.enter_context(closing(subscribe(server, task_id))) for _ in range(count)]
        read_until(connections, b"data: ")
        assert tell(server)["streams"] == count + 1
        taken = resident(process) - before
        began = time.monotonic()
        client.cancel_task(task_id)
        # With the last chunk of the body: it was ended, not cut.
        read_until(connections, b"0\r\n\r\n")
        seconds = time.monotonic() - began
        eventually(lambda: tell(server)["streams"] == 1, "the end of the streams")
    record_property("megabytes", taken)
    record_property("seconds", seconds)
    print(f"{count} streams: {before:.0f} MB before, {taken:.0f} MB more; told of their end within {seconds:.2f} s")
    assert taken < 100
    assert seconds < 10


def test_a_lock_on_the_file_holds_up_nobody_who_does_not_need_it(server: LiveServer, tmp_path: Path) -> None:
    with Client(server.url) as client, closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        done = client.send("tell")
        assert isinstance(done, Task)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        blocked = Background(lambda: client.send("tell").text)
        times = []
        while time.monotonic() - began < 1.5 or len(times) < 6:
            times.append(seconds_for_a_card(server))
            assert client.get_task(done.id).state is TaskState.COMPLETED
        assert blocked.waiting
        other.execute("ROLLBACK")
        blocked.result()
        assert time.monotonic() - began >= 1.5
    # The lock is held for longer than any of them takes.
    assert max(times) < 1.5


def test_a_handler_that_calculates_for_long_does_not_make_its_worker_a_dead_one(tmp_path: Path) -> None:
    # Two beats are a death: one second here.
    environment = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "WORKER_BEAT": "0.5"}
    with gunicorn_gevent(WORKER, workers=2, environment=environment) as server, Client(server.url) as client:
        # Each has run something, so the other one watches it.
        tell_all(server, 2)
        burning = client.send("burn 4", return_immediately=True)
        assert isinstance(burning, Task)
        with Client(server.url) as another:
            assert another.wait(burning.id, timeout=30).text == "burnt"
        # A death is noticed here, though.
        waiting, process = begin(client, "wait")
        os.kill(process, signal.SIGKILL)
        with Client(server.url) as another:
            assert another.wait(waiting, timeout=30).text == "worker lost"


def test_async_handlers_run_side_by_side_and_stream(server: LiveServer) -> None:
    with Client(server.url) as client:
        sending = [Background(lambda: client.send("count 50").text) for _ in range(10)]
        expected = "".join(f"{number} " for number in range(50))
        assert [one.result(30) for one in sending] == [expected] * 10


def test_a_cancel_ends_an_async_handler(server: LiveServer) -> None:
    with Client(server.url) as client:
        task_id, _ = begin(client, "await")
        assert client.cancel_task(task_id).state is TaskState.CANCELED
        assert server.terminate() == 0


def test_agents_that_run_a_loop_of_their_own_run_side_by_side(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, environment={"WORKER_KIND": "native"}) as server, Client(server.url) as client:
        sending = [Background(lambda number=number: client.send(f"loop {number}").text) for number in range(10)]
        assert [one.result(30) for one in sending] == [f"loop {number}" for number in range(10)]


def test_requests_are_answered_while_a_handler_on_a_native_thread_calculates(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, environment={"WORKER_KIND": "native"}) as server, Client(server.url) as client:
        task_id, _ = begin(client, "burn 1.5")
        times = []
        while client.get_task(task_id).state is TaskState.WORKING:
            times.append(seconds_for_a_card(server))
        assert len(times) > 3
        assert max(times) < 1.0


def test_a_stopping_server_ends_streams_of_all_kinds(server: LiveServer) -> None:
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
        eventually(lambda: tell(server)["streams"] == 3, "the streams")
        assert server.terminate() == 0
        for thread in threads:
            thread.join(10)
        assert ends == [TaskState.FAILED] * 2
