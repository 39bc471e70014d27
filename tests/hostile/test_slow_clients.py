"""Clients that do not send or do not read, against real servers: others are served meanwhile, and every connection ends."""

from __future__ import annotations

import json
import select
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from a2a_sync import SQLiteStore, TaskState
from a2a_sync.gunicorn.buffers import ClientSocket
from a2a_sync.stores.base import Owner
from a2a_sync.testing.storecontract.making import begin, status
from tests.engine import eventually
from tests.hostile.slow import Crowd, Kind, SlowClient, call, connect, kinds, worst_wait
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.servers.test_gevent_server import resident, worker_pid
from tests.servers.test_gunicorn import worker_info
from tests.wsgi import CARD, JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

APP = "tests.agents.large:app"
SERVERS = {"threads": partial(gunicorn, threads=32), "gevent": gunicorn_gevent}
KINDS = tuple(kinds(""))
LARGE = "large 1500000"


def send(server: LiveServer, text: str, seconds: float = 60) -> Any:
    answer = requests.post(server.url, data=rpc("SendMessage", message(text)), headers=JSON_HEADERS, timeout=seconds)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["task"]


def honest(server: LiveServer) -> None:
    """The calls of another caller, each over a new connection."""
    task = send(server, "hello")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert requests.get(server.url + CARD, timeout=60).status_code == 200


@pytest.mark.parametrize("kind", SERVERS)
def test_two_hundred_slow_clients_do_not_delay_another_caller(
    kind: str, record_property: pytest.RecordProperty
) -> None:
    with SERVERS[kind](APP) as server:
        large = send(server, LARGE)["id"]
        with Crowd(server.address, kinds(large), 200) as crowd:
            eventually(lambda: all(client.connections for client in crowd.clients), "all connections")
            worst, count = worst_wait(lambda: honest(server), 10)
        record_property("worst", f"{worst:.2f} s in {2 * count} calls")
    assert count > 5
    assert worst < 2.0


@pytest.mark.parametrize("kind", SERVERS)
def test_streams_that_are_not_read_hold_no_thread_and_little_of_a_log(kind: str, tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "tasks.db")) as store:
        run = begin(store, owner=Owner())
        task_id = run.head.id
        for _ in range(200):
            store.append(run.token, [status(task_id, TaskState.WORKING, text="x" * 50_000)])
        store.append(run.token, [status(task_id, TaskState.INPUT_REQUIRED)], end=True)
    environment = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with SERVERS[kind]("tests.agents.worker:app", environment=environment) as server, ExitStack() as stack:
        process = worker_pid(server)
        before, streams = resident(process), []
        for _ in range(60):
            streams.append(stack.enter_context(connect(server.address)))
            streams[-1].send(call("SubscribeToTask", {"id": task_id}, "Last-Event-ID: 1"))
        for stream in streams:
            assert select.select([stream], [], [], 60)[0]
        assert worker_info(server)["streams"] == 60 + 1
        assert resident(process) - before < 50


PAD = b" " * 9_000_000
#: Requests of 9 MB by what becomes of their bodies, without a head; each takes the id of a task that waits for its client.
LARGE_REQUESTS = {
    "answered": ("POST /", lambda task: rpc("GetTask", {"id": task}) + PAD),
    "refused": ("POST /nowhere", lambda task: PAD),
    "a stream": ("POST /", lambda task: rpc("SubscribeToTask", {"id": task}) + PAD),
    "a stream that reads no body": ("GET /tasks/{}:subscribe", lambda task: PAD),
}


@pytest.mark.parametrize("heads", ["known", "new"])
@pytest.mark.parametrize("kind", LARGE_REQUESTS)
def test_connections_do_not_keep_the_bodies_of_their_requests(kind: str, heads: str) -> None:
    """A connection kept the last body until its next request: 9 MB of each that was idle or had an open stream."""
    with gunicorn("tests.agents.worker:app", threads=8) as server, ExitStack() as stack:
        task = send(server, "ask")["id"]
        process, before = worker_pid(server), 0.0
        line, body = LARGE_REQUESTS[kind][0].format(task), LARGE_REQUESTS[kind][1](task)
        for number in range(14):
            connection = stack.enter_context(socket.create_connection(server.address, timeout=20))
            unique = [f"X-Number: {number}"] if heads == "new" else []
            lines = [f"{line} HTTP/1.1", "Host: agent", "Content-Type: application/json", "A2A-Version: 1.0", *unique]
            connection.sendall("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
            assert connection.recv(12).startswith(b"HTTP/1.1 ")
            if number == 3:
                before = resident(process)
        eventually(lambda: resident(process) - before < 45, "the memory of ten bodies")


def test_the_part_of_a_response_that_was_read_does_not_stay_in_memory() -> None:
    """A client could read almost all of a response, so that little was counted and all was kept."""
    parked = threading.Event()
    ours, peer = socket.socketpair()
    with peer, ClientSocket(ours, parked.set, 10) as sock:
        tracemalloc.start()
        try:
            sock.sendall(b"".join([b"x" * 10_000_000]))
            assert parked.is_set()
            while sock.parked_bytes > 1_000_000:
                peer.recv(100_000)
                sock.flush()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert kept < 2_500_000


@pytest.mark.parametrize("kind", SERVERS)
def test_two_hundred_unread_lists_of_large_tasks_do_not_delay_another_caller(
    kind: str, record_property: pytest.RecordProperty
) -> None:
    unread = Kind(call("ListTasks", {"includeArtifacts": True, "pageSize": 5}))
    with SERVERS[kind](APP) as server:
        for _ in range(5):
            send(server, "large 4000000")
        with Crowd(server.address, {"list": unread}, 200):
            worst, count = worst_wait(lambda: honest(server), 8)
        record_property("worst", f"{worst:.2f} s in {2 * count} calls")
    assert count > 5
    assert worst < 2.0


@pytest.mark.parametrize("kind", SERVERS)
def test_the_memory_of_responses_that_are_not_read_is_bounded(
    kind: str, record_property: pytest.RecordProperty
) -> None:
    with SERVERS[kind](APP) as server:
        reads = Kind(call("GetTask", {"id": send(server, "large 8000000")["id"]}) * 20)
        with Crowd(server.address, {"reads": reads}, 200):
            # In the meantime the responses wait for their clients.
            worst, _ = worst_wait(lambda: honest(server), 5)
        peak = max(map(peak_memory, [server.pid, *children(server.pid)]))
        record_property("peak", f"{peak} MB, {worst:.2f} s")
        assert "Traceback" not in server.log
    # All responses together have 32 GB, and the first one of each client 1.6 GB.
    assert peak < 600


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in found.split()]


def peak_memory(process: int) -> int:
    """In megabytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def test_gunicorns_own_worker_is_blocked_without_a_proxy() -> None:
    """A control experiment: the same clients against gunicorn's own worker."""
    with gunicorn(APP, threads=32, worker="gthread") as server:
        large = send(server, LARGE)["id"]
        with Crowd(server.address, kinds(large), 200) as crowd:
            eventually(lambda: all(client.connections for client in crowd.clients), "all connections")
            with pytest.raises((requests.Timeout, requests.ConnectionError)):
                send(server, "hello", 3)
        server.kill()


# -- each kind ----------------------------------------------------------------------------------------------------------

QUICK = {"header_timeout": 1, "body_idle_timeout": 1, "body_timeout": 2, "write_timeout": 1, "max_stream_age": 600}


@pytest.fixture(scope="module", params=SERVERS)
def quick(request: pytest.FixtureRequest) -> Iterator[tuple[LiveServer, str]]:
    """A server with short time limits, and a large task."""
    # Gunicorn's own setting limits the time of an idle connection.
    with SERVERS[request.param](APP, "--keep-alive", "1", environment={"LARGE_LIMITS": json.dumps(QUICK)}) as server:
        # More than the system's buffers of a connection.
        yield server, send(server, "large 8000000")["id"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_connection_of_a_slow_client_is_closed(quick: tuple[LiveServer, str], kind: str) -> None:
    server, large = quick
    client = SlowClient(server.address, kinds(large)[kind], reconnects=False)
    try:

        def cut_off() -> bool:
            client.step()
            return client.cut_off

        # The time limits begin when the client has sent everything: the server answers thousands of cards until then.
        eventually(cut_off, "the end of the connection", seconds=60)
        assert client.connections == 1
        # Not an error of the server.
        assert "Traceback" not in server.log
    finally:
        client.stop()
