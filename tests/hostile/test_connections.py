"""Bytes that no HTTP client sends, to a real gunicorn: it answers or closes the connection, and continues to serve.

Request lines and headers are the server's responsibility, and only that is required; requests that reach the app get its error.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests

from a2a_sync.gunicorn import worker_class
from tests.hostile.test_input import LivePeer, Target
from tests.live import LiveServer, gunicorn
from tests.wsgi import JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

THREADS = 4
LIMIT = 10 * 1024 * 1024


@pytest.fixture(scope="module", params=["gthread", worker_class], ids=["gthread", "buffered"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveServer, Target]]:
    database = Path(tmp_path_factory.mktemp("connections")) / "tasks.db"
    environment = {"STRICT_STORE": f"sqlite:///{database}"}
    with gunicorn("tests.agents.strict:app", threads=THREADS, worker=request.param, environment=environment) as live:
        with closing(Target(LivePeer(live.url), database)) as target:
            yield live, target
        log = live.log
    assert "request failed" not in log
    assert "a2a_sync/" not in log, "no exception went through the library"


@pytest.fixture
def live(server: tuple[LiveServer, Target]) -> Iterator[LiveServer]:
    """The server; afterwards it still works, and refused requests have stored nothing."""
    live, target = server
    before = target.dump()
    yield live
    finished = target.result("GetTask", {"id": target.words["FINISHED"]})
    assert finished["status"]["state"] == "TASK_STATE_COMPLETED"
    assert target.dump() == before


def head(length: int | None, *more: str) -> bytes:
    """The head of a request."""
    lines = ["POST / HTTP/1.1", "Host: agent", "Content-Type: application/json", "A2A-Version: 1.0", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def call(id: Any, method: str = "ListTasks", params: Any = None) -> bytes:
    body = rpc(method, params, id)
    return head(len(body)) + body


CHUNKED = head(None, "Transfer-Encoding: chunked")
LAST = "Connection: close"


def exchange(live: LiveServer, sent: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    with socket.create_connection(live.address, timeout=20) as connection:
        connection.sendall(sent)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def answers(received: bytes) -> list[tuple[int, Any]]:
    """The status and JSON of each response; none is chunked."""
    found = []
    while received:
        lines, _, received = received.partition(b"\r\n\r\n")
        status, *fields = lines.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        length = int(headers["content-length"])
        found.append((int(status.split()[1]), json.loads(received[:length])))
        received = received[length:]
    return found


def errors(received: bytes) -> list[tuple[int, int, Any]]:
    """The status, code and id of each response."""
    return [(status, body["error"]["code"], body["id"]) for status, body in answers(received)]


# -- not HTTP -----------------------------------------------------------------------------------------------------------

JUNK = {
    "nothing": b"",
    "a request line": b"POST / HTTP/1.1\r\n",
    "half a request line": b"POS",
    "half the headers": head(None)[:-20],
    "headers without an end": head(None)[:-2],
    "bytes": bytes(range(256)) * 10,
    "a TLS greeting": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 200,
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9,
    "a JSON body": rpc("SendMessage", message()),
    "no path": b"POST HTTP/1.1\r\n\r\n",
    "another protocol": b"POST / FTP/1.1\r\n\r\n",
    "a header of 100 KB": head(None, "X: " + "x" * 100_000),
    "1,000 headers": head(None, *[f"X-{number}: x" for number in range(1000)]),
    "a header with a zero": head(None, "X: a\0b"),
    "a header without a name": head(None, ": x"),
    "two lengths": head(5, "Content-Length: 6") + b"{}   ",
    "a length and chunks": head(5, "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "a negative length": head(-5) + b"{}",
    "a length in words": head(None, "Content-Length: many") + b"{}",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_bytes_that_are_not_http_end_the_connection(junk: bytes, live: LiveServer) -> None:
    received = exchange(live, junk, half_close=True)

    assert received == b"" or received.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 5"))
    assert b"Traceback" not in received


@pytest.mark.parametrize("held", [b"", b"POST", head(20)[:-2]], ids=["nothing", "a word", "half the headers"])
def test_incomplete_headers_do_not_block_other_clients(held: bytes, live: LiveServer) -> None:
    with ExitStack() as stack:
        for _ in range(THREADS - 1):
            connection = stack.enter_context(socket.create_connection(live.address, timeout=20))
            connection.sendall(held)
        assert requests.post(live.url, data=rpc("ListTasks"), headers=JSON_HEADERS, timeout=4).status_code == 200


# -- incomplete bodies --------------------------------------------------------------------------------------------------

BODY = rpc("SendMessage", message())
STALLED = {
    "no body": head(len(BODY), LAST),
    "half a body": head(len(BODY), LAST) + BODY[:20],
    "no chunk": CHUNKED,
    "half a chunk": CHUNKED + b"50\r\n" + BODY[:20],
    "no last chunk": CHUNKED + b"%x\r\n%b\r\n" % (len(BODY), BODY),
}


@pytest.fixture
def buffered(request: pytest.FixtureRequest) -> bool:
    """Whether the server buffers whole requests before the app receives them."""
    return bool(request.node.callspec.params["server"] == worker_class)


def stalled(received: bytes, buffered: bool) -> bool:
    """The expected response to an incomplete body: of the app, or of a server that buffers requests."""
    if buffered:
        return received.startswith(b"HTTP/1.1 408 Request Timeout\r\n") and received.endswith(b"\r\n\r\n")
    return errors(received) == [(200, -32700, None)]


@pytest.mark.parametrize("sent", STALLED.values(), ids=STALLED.keys())
def test_a_stalled_body_is_refused_after_the_time_limit(sent: bytes, live: LiveServer, buffered: bool) -> None:
    assert stalled(exchange(live, sent), buffered)


@pytest.mark.parametrize("sent", STALLED.values(), ids=STALLED.keys())
def test_an_incomplete_body_is_refused(sent: bytes, live: LiveServer) -> None:
    assert errors(exchange(live, sent, half_close=True)) == [(200, -32700, None)]


def test_many_stalled_bodies_do_not_block_other_clients(live: LiveServer, buffered: bool) -> None:
    sent = STALLED["half a body"]
    with ThreadPoolExecutor(3 * THREADS) as clients:
        waiting = [clients.submit(exchange, live, sent) for _ in range(3 * THREADS)]
        assert requests.post(live.url, data=rpc("ListTasks"), headers=JSON_HEADERS, timeout=10).status_code == 200
        assert all(stalled(client.result(20), buffered) for client in waiting)


@pytest.mark.parametrize("sent", STALLED.values(), ids=STALLED.keys())
def test_a_connection_closed_in_its_body_leaves_nothing(sent: bytes, live: LiveServer) -> None:
    for _ in range(2 * THREADS):
        with socket.create_connection(live.address, timeout=20) as connection:
            connection.sendall(sent)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


BAD_CHUNKS = {
    "no number": b"ZZ\r\n{}\r\n0\r\n\r\n",
    "a negative number": b"-1\r\n{}\r\n0\r\n\r\n",
    "no size": b"\r\n{}\r\n0\r\n\r\n",
    "longer than it says": b"2\r\n{}{}\r\n0\r\n\r\n",
    "an endless size": b"1" * 20_000,
    "junk for trailers": b"%x\r\n%b\r\n0\r\n\0junk\r\n\r\n" % (len(BODY), BODY),
}


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_invalid_chunks_are_refused(chunks: bytes, live: LiveServer) -> None:
    assert errors(exchange(live, CHUNKED + chunks, half_close=True)) == [(200, -32700, None)]


# -- bodies over the limit ----------------------------------------------------------------------------------------------


def pieces(size: int) -> Iterator[bytes]:
    """A request of more than `size` bytes in chunks."""
    yield BODY[:-1]
    for _ in range(size // 65536):
        yield b" " * 65536
    yield b"}"


UPLOADS: dict[str, Callable[[], Any]] = {
    "at once": lambda: b"".join(pieces(11_000_000)),
    "in chunks": lambda: pieces(11_000_000),
}


@pytest.mark.parametrize("upload", UPLOADS.values(), ids=UPLOADS.keys())
def test_a_client_can_read_the_refusal_of_11_mb(upload: Callable[[], Any], live: LiveServer) -> None:
    for _ in range(5):
        response = requests.post(live.url, data=upload(), headers=JSON_HEADERS, timeout=20)

        assert (response.status_code, response.json()["error"]["code"]) == (413, -32600)
        assert str(LIMIT) in response.json()["error"]["message"]


def test_a_session_works_after_a_refused_upload(live: LiveServer) -> None:
    with requests.Session() as session:
        for _ in range(3):
            assert (
                session.post(live.url, data=UPLOADS["at once"](), headers=JSON_HEADERS, timeout=20).status_code == 413
            )
            assert session.post(live.url, data=rpc("ListTasks"), headers=JSON_HEADERS, timeout=20).status_code == 200


def test_a_refused_body_is_not_parsed_as_further_requests(live: LiveServer) -> None:
    smuggled = call("smuggled", "SendMessage", message()) * 45_000

    received = b""
    with socket.create_connection(live.address, timeout=20) as connection:
        try:
            connection.sendall(head(len(smuggled)) + smuggled)
        except (BrokenPipeError, ConnectionResetError):
            pass
        received = read_all(connection)

    assert len(smuggled) > LIMIT
    assert b"smuggled" not in received
    assert errors(received) in ([(413, -32600, None)], [])


# -- pipelining ---------------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(live: LiveServer) -> None:
    received = exchange(live, b"".join(call(number) for number in range(20)), half_close=True)

    assert [(status, body["id"]) for status, body in answers(received)] == [(200, number) for number in range(20)]


def test_invalid_pipelined_requests_do_not_affect_others(live: LiveServer) -> None:
    bad = head(3) + b'{"}'
    unread = head(len(BODY)).replace(b"application/json", b"text/plain") + BODY
    elsewhere = head(len(BODY)).replace(b"POST /", b"POST /nope") + BODY
    received = exchange(live, call(1) + bad + call(2) + unread + call(3) + elsewhere + call(4), half_close=True)

    found = answers(received)
    assert [status for status, _ in found] == [200, 200, 200, 200, 200, 404, 200]
    assert [body.get("id") for _, body in found] == [1, None, 2, None, 3, None, 4]
    assert [body.get("error", {}).get("code") for _, body in found] == [None, -32700, None, -32005, None, 404, None]


def test_a_body_in_single_bytes_is_read(live: LiveServer) -> None:
    with socket.create_connection(live.address, timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = rpc("ListTasks")
        for byte in head(len(body), LAST) + body:
            connection.sendall(bytes([byte]))
        ((status, answer),) = answers(read_all(connection))

    assert (status, answer["id"]) == (200, 1)
