"""Requests and floods that attempt to block a worker's main thread, which serves all connections."""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPResponse

import pytest
import requests

from a2a_sync import Client
from a2a_sync.gunicorn.buffers import IncomingRequest, is_whole
from tests.engine import eventually
from tests.hostile.slow import abandon, call, closed, connect, head
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.stopwatch import Stopwatch
from tests.wsgi import CARD, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

APP = "tests.agents.large:app"
SETTINGS = ("-c", "python:a2a_sync.gunicorn")
SERVERS = {"threads": partial(gunicorn, threads=4), "gevent": gunicorn_gevent}


def pid_of_worker(server: LiveServer) -> str:
    """The process id of the only worker; a replacement would have another."""
    with open(f"/proc/{server.pid}/task/{server.pid}/children") as file:
        return file.read().strip()


def card_time(server: LiveServer) -> float:
    began = time.monotonic()
    assert requests.get(server.url + CARD, timeout=60).status_code == 200
    return time.monotonic() - began


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nHost: a\r\n\r\nhello",
        b"POST / HTTP/1.1\r\ncontent-LENGTH:\t5 \r\n\r\nhelloGET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nhello, it",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_an_incomplete_request_is_not_parsed_as_complete(data: bytes) -> None:
    for end in range(len(data) + 1):
        incoming = IncomingRequest(1_000_000)
        incoming.feed(data[:end])
        assert incoming.whole or not is_whole(data[:end]), data[:end]
    ordinary = b"chunked" not in data and b"0x5" not in data
    assert is_whole(data) is ordinary


def test_a_fragmented_request_on_a_keepalive_connection_occupies_no_thread() -> None:
    request = b"GET " + CARD.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    with ExitStack() as stack:
        server = stack.enter_context(gunicorn(APP, *SETTINGS, threads=1))
        slow, quick = (stack.enter_context(socket.create_connection(server.address, 10)) for _ in range(2))
        for _ in range(3):
            slow.sendall(request)
            check_answer(slow)
            slow.sendall(request[:20])
            quick.sendall(request)
            check_answer(quick)
            slow.sendall(request[20:])
            check_answer(slow)


def test_pipelined_requests_are_read_no_faster_than_they_are_answered() -> None:
    with gunicorn(APP, *SETTINGS, threads=1) as server, socket.create_connection(server.address, 10) as client:
        client.sendall(head(0, path=CARD, verb="GET"))
        check_answer(client)
        worker, answered = int(pid_of_worker(server)), 0
        before = peak(worker)
        client.setblocking(False)
        flood, sent = head(0, path=CARD, verb="GET") * 1000, 0
        until = time.monotonic() + 30
        while answered < 4_000_000 and time.monotonic() < until:
            readable, writable, _ = select.select([client], [client], [], 5)
            if readable:
                answered += len(client.recv(1024 * 1024))
            if writable and sent < 20_000_000:
                sent += client.send(flood[sent % len(flood) :])
        assert answered >= 4_000_000
        assert peak(worker) - before < 10_000


def peak(pid: int) -> int:
    """The most memory that a process has had, in kilobytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def check_answer(connection: socket.socket) -> None:
    answer = HTTPResponse(connection)
    answer.begin()
    assert answer.status == 200
    assert answer.read()


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length:" + b" " * 60_000 + b"\n",
        b"Content-Length: 1" + b" " * 60_000 + b"1\r\n",
        b"Content-Length:\r\n" * 3000,
    ],
    ids=["blanks before a bare line feed", "blanks between digits", "many lines"],
)
def test_a_head_is_read_in_linear_time(line: bytes) -> None:
    incoming = IncomingRequest(1_000_000)
    began = time.process_time()
    incoming.feed(b"POST / HTTP/1.1\r\n" + line + b"X: y\r\n\r\n")
    assert incoming.complete or incoming.head_too_large or incoming.head_end
    assert time.process_time() - began < 1


def test_trailers_are_limited_and_scanned_once() -> None:
    incoming = IncomingRequest(10_000_000)
    incoming.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    fed = 0
    while not incoming.complete and fed < 1_000_000:
        incoming.feed(b"x" * 1000)
        fed += 1000
    assert incoming.complete
    assert fed <= 32_000


@pytest.mark.parametrize("end", [b"\r\n", b"X-Trailer: y\r\n\r\n"])
def test_trailers_end_a_chunked_body(end: bytes) -> None:
    incoming = IncomingRequest(1000)
    for byte in b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" + end[:-1]:
        incoming.feed(bytes([byte]))
        assert not incoming.complete
    incoming.feed(end[-1:])
    assert incoming.complete


def test_no_request_head_blocks_a_worker() -> None:
    with gunicorn(APP, *SETTINGS, threads=4) as server:
        worker = pid_of_worker(server)
        with socket.create_connection(server.address, timeout=60) as attacker:
            attacker.sendall(b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Length:" + b" " * 4000 + b"\nX: y\r\n\r\n")
            assert card_time(server) < 5
            assert attacker.recv(100).startswith(b"HTTP/1.1 400")
        assert pid_of_worker(server) == worker


def test_dropping_bodies_for_lack_of_memory_does_not_end_the_worker() -> None:
    """Many connections are readable at the same time when the oldest ones are dropped."""
    with gunicorn(APP, *SETTINGS, threads=4) as server, ExitStack() as stack:
        worker = pid_of_worker(server)
        piece = b"x" * 9_000_000
        attackers = []
        for _ in range(12):
            attacker = connect(server.address)
            stack.callback(abandon, attacker)
            attacker.setblocking(True)
            attacker.settimeout(0.2)
            attackers.append((attacker, memoryview(head(10_000_000) + piece)))
        for _ in range(60):
            for index, (attacker, left) in enumerate(attackers):
                try:
                    attackers[index] = (attacker, left[attacker.send(left[:500_000]) :])
                except OSError:
                    attackers[index] = (attacker, left[:0])
        assert card_time(server) < 5
        assert sum(closed(attacker) for attacker, _ in attackers) >= 4, "too few connections were dropped"
        assert pid_of_worker(server) == worker, server.log


@pytest.mark.parametrize("used", [False, True], ids=["no request", "kept alive"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_flood_of_idle_connections_does_not_block_other_clients(kind: str, used: bool) -> None:
    with SERVERS[kind](APP, "--worker-connections", "64") as server, ExitStack() as stack:
        worker = pid_of_worker(server)
        attackers = []
        for _ in range(200):
            attacker = socket.create_connection(server.address, timeout=60)
            stack.callback(attacker.close)
            attackers.append(attacker)
            if used:
                attacker.sendall(head(0, path=CARD, verb="GET"))
        assert card_time(server) < 5
        eventually(lambda: sum(map(closed, attackers)) >= 100, "the oldest connections are closed")
        assert pid_of_worker(server) == worker


@pytest.mark.parametrize("kind", SERVERS)
def test_a_flood_of_incomplete_bodies_does_not_block_other_clients(kind: str) -> None:
    limits = {"LARGE_LIMITS": json.dumps({"body_idle_timeout": 600, "body_timeout": 600})}
    with SERVERS[kind](APP, "--worker-connections", "64", environment=limits) as server, ExitStack() as stack:
        for _ in range(100):
            attacker = stack.enter_context(socket.create_connection(server.address, timeout=60))
            attacker.sendall(head(1000) + b"{")
        assert card_time(server) < 5


def test_streams_leave_connections_of_a_gevent_worker_to_other_clients() -> None:
    with gunicorn_gevent("tests.agents.worker:app", "--worker-connections", "32") as server, ExitStack() as stack:
        task = stack.enter_context(Client(server.url)).send("ask")
        streams = []
        for _ in range(40):
            streams.append(stack.enter_context(socket.create_connection(server.address, timeout=60)))
            # At once: a worker that is full closes connections without a request.
            streams[-1].sendall(call("SubscribeToTask", {"id": task.id}))
        assert card_time(server) < 5
        statuses = Counter(stream.recv(12)[9:] for stream in streams)
        assert statuses[b"200"] == 28
        assert statuses[b"429"] >= 4


@pytest.mark.parametrize("kind", SERVERS)
def test_a_worker_out_of_file_descriptors_continues(kind: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        try:
            server = stack.enter_context(SERVERS[kind](APP, *(SETTINGS if kind == "threads" else ())))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        worker = pid_of_worker(server)
        for _ in range(300):
            stack.callback(socket.create_connection(server.address, timeout=60).close)
        assert card_time(server) < 5
        assert pid_of_worker(server) == worker, server.log


def test_a_head_is_too_large_wherever_its_end_arrives() -> None:
    incoming = IncomingRequest(1_000_000)
    incoming.feed(b"GET / HTTP/1.1\r\nX: " + b"a" * 60_000)
    incoming.feed(b"a" * 60_000 + b"\r\n\r\n")
    assert incoming.head_too_large
    assert incoming.complete


@pytest.mark.parametrize("kind", SERVERS)
def test_long_heads_are_refused_before_they_are_complete(kind: str) -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 8000) for number in range(20))
    with (
        SERVERS[kind](APP, *(SETTINGS if kind == "threads" else ())) as server,
        socket.create_connection(server.address, timeout=60) as connection,
    ):
        send(connection, b"GET / HTTP/1.1\r\nHost: agent\r\n" + lines)
        assert connection.recv(12) == b"HTTP/1.1 431"


@pytest.mark.parametrize("kind", SERVERS)
def test_incomplete_bodies_have_a_bound_together(kind: str) -> None:
    part = b" " * 900_000
    # Silent ones would be closed in any case.
    limits = {"LARGE_LIMITS": json.dumps({"body_idle_timeout": 600, "body_timeout": 600})}
    options = SETTINGS if kind == "threads" else ()
    with SERVERS[kind](APP, *options, environment=limits) as server, ExitStack() as stack:
        attackers = []
        for number in range(84):
            attackers.append(stack.enter_context(socket.create_connection(server.address, timeout=60)))
            whole = head(1_000_000) if number % 2 else CHUNKED + b"%x\r\n" % 1_000_000
            send(attackers[-1], whole + part)
        eventually(lambda: sum(map(closed, attackers)) >= 4, "the oldest connections are closed")
        assert card_time(server) < 5
        assert not closed(attackers[-1])


CHUNKED = b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("kind", SERVERS)
def test_bodies_of_tiny_chunks_do_not_block_other_clients(kind: str) -> None:
    """Each took more than a minute of a thread, and eight seconds of a gevent worker."""
    body = b"1\r\n \r\n" * 1_600_000 + b"0\r\n\r\n"
    with SERVERS[kind](APP, *(SETTINGS if kind == "threads" else ())) as server, ExitStack() as stack:
        attackers = [stack.enter_context(socket.create_connection(server.address, timeout=60)) for _ in range(6)]
        threads = [
            threading.Thread(target=send, args=(attacker, CHUNKED + body), daemon=True) for attacker in attackers
        ]
        for thread in threads:
            thread.start()
        assert max(card_time(server) for _ in range(20)) < 5
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        eventually(lambda: all(map(closed, attackers)), "the connections are closed")


def send(attacker: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        attacker.sendall(data)


@pytest.mark.parametrize("kind", SERVERS)
def test_bodies_of_small_chunks_are_read_in_linear_time(kind: str) -> None:
    params = message("x" * 5_000_000)
    body = rpc("SendMessage", params)
    chunks = [body[at : at + 100] for at in range(0, len(body), 100)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    card = b"GET " + CARD.encode() + b" HTTP/1.1\r\nHost: agent\r\n\r\n"
    with (
        SERVERS[kind](APP, *(SETTINGS if kind == "threads" else ())) as server,
        socket.create_connection(server.address, timeout=60) as connection,
    ):
        watch = Stopwatch()
        # The next request follows at once, and its end separately.
        connection.sendall(CHUNKED.replace(b"\r\n", b"\r\nA2A-Version: 1.0\r\n", 1) + framed + card[:-10])
        answer = HTTPResponse(connection)
        answer.begin()
        assert "result" in json.loads(answer.read())
        assert watch.within(15)
        connection.sendall(card[-10:])
        check_answer(connection)


@pytest.mark.parametrize("size", [b"0_5", b"+5", b"0x5", b" 5"])
def test_a_malformed_chunk_size_is_left_to_the_parser(size: bytes) -> None:
    incoming = IncomingRequest(1000)
    incoming.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n")
    assert incoming.complete or size == b" 5"


@pytest.mark.parametrize("kind", SERVERS)
def test_a_malformed_body_that_is_not_read_gets_one_response(kind: str) -> None:
    """A proxy would take the second one for that to the request of another client."""
    head = b"POST /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with SERVERS[kind](APP) as server:
        for end in (b"zz\r\n", b"0;x\n\r\n", b"0\r\nHost: a\r\n\r\n"):
            with socket.create_connection(server.address, timeout=60) as client:
                client.sendall(head + end + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                answer = b"".join(iter(partial(client.recv, 65536), b""))
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert answer.count(b"HTTP/1.1 ") == 1


def test_a_length_with_leading_zeros_is_awaited() -> None:
    incoming = IncomingRequest(1000)
    incoming.feed(b"POST / HTTP/1.1\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\nhell")
    assert not incoming.complete
    incoming.feed(b"o")
    assert incoming.whole
