"""The requests and responses of the package's worker for gunicorn are those of gunicorn."""

from __future__ import annotations

import queue
import random
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.errors import ParseException
from gunicorn.http.parser import RequestParser

from a2a_sync.gunicorn import worker
from a2a_sync.gunicorn.buffers import ClientSocket
from a2a_sync.gunicorn.requests import Heads, KnownRequest, Parser, Response

HEADS = [
    b"GET /a%20b?c=d%20e#f HTTP/1.1\r\nHost: agent:80\r\nX-Two: a\r\nX-Two: b\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\ncontent-length:\t5 \r\nAccept: */*\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: 005\r\n\r\nhello",
    b"POST /x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    b"HEAD http://agent/y HTTP/1.1\r\nHost: agent\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\n\r\n",
]
#: Lengths that gunicorn takes with more digits, or with settings, than a head is searched for.
UNUSUAL_LENGTHS = {
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000000000005\r\n\r\nhello": None,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello": "strip_header_spaces",
}
#: Requests whose heads say more than a length, or are refused.
OTHERS = [
    b"POST / HTTP/1.1\r\nHost: agent\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: agent\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: agent\r\nContent-Length: \r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: agent\r\nX: " + b"y" * 5000 + b"\r\nContent-Length: 5\r\n\r\nhello",
]


class Received(socket.socket):
    """A socket whose request was received as a whole."""

    received = True

    def recv(self, *_: int) -> bytes:
        return b""

    def send(self, data: Any, *_: int) -> int:
        return len(data)


@pytest.fixture
def connection() -> Iterator[Any]:
    """A connection of the worker."""
    ours, peer = socket.socketpair()
    cfg = Config()
    cfg.set("forwarder_headers", "")
    cfg.set("secure_scheme_headers", {})
    with peer, Received(fileno=ours.detach()) as sock:
        yield SimpleNamespace(cfg=cfg, sock=sock, client=("192.0.2.1", 4321), server=("127.0.0.1", 8000), paused=None)


def parse(parser: Any, data: bytes) -> tuple[Any, dict[str, Any]]:
    """The next request of a parser, and its environ."""
    parser.unreader.unread(data)
    request = next(parser)
    return request, parser.create(request)[1]


def parsed(connection: Any, data: bytes) -> Any:
    """The request that gunicorn parses from `data`."""
    parser = RequestParser(connection.cfg, connection.sock, connection.client)
    parser.unreader.unread(data)
    return next(parser)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """`values` without those that are an object of each request."""
    of_each = ("wsgi.input", "wsgi.errors", "wsgi.early_hints", "body", "unreader", "environ", "rest")
    return {name: value for name, value in values.items() if name not in of_each}


@pytest.mark.parametrize("data", HEADS)
def test_a_repeated_head_gives_the_request_of_the_first_one(connection: Any, data: bytes) -> None:
    heads = Heads(connection.cfg)
    first, expected = parse(Parser(heads, connection), data)
    connection.client = ("192.0.2.2", 1234)
    again, environ = parse(Parser(heads, connection), data)
    assert type(again) is KnownRequest
    assert plain({name: getattr(again, name) for name in vars(first)}) == {
        **plain(vars(first)),
        "peer_addr": connection.client,
        "remote_addr": connection.client,
    }
    assert plain(environ) == {**plain(expected), "REMOTE_ADDR": "192.0.2.2", "REMOTE_PORT": "1234"}
    assert environ.keys() == expected.keys()
    assert again.should_close() is first.should_close()
    assert environ["wsgi.input"].read() == first.body.read()


def test_requests_with_a_repeated_head_do_not_copy_it(connection: Any) -> None:
    heads = Heads(connection.cfg)
    parse(Parser(heads, connection), HEADS[1])
    again, _ = parse(Parser(heads, connection), HEADS[1])
    assert "method" not in vars(again)
    assert again.method == "POST"
    with pytest.raises(AttributeError, match="no_attribute"):
        again.no_attribute  # noqa: B018


def test_a_connection_that_parks_nothing_needs_little_memory() -> None:
    def measure() -> float:
        with ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(100)]
            for ours, peer in pairs:
                stack.enter_context(ours)
                stack.enter_context(peer)
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            sockets = [stack.enter_context(ClientSocket(ours, lambda: None, 10)) for ours, _ in pairs]
            return tracemalloc.get_traced_memory()[0] / len(sockets)

    # The queue of what waits for the client, and the condition for it, would be 2 KB. Threads of earlier tests may allocate meanwhile.
    assert min(measure() for _ in range(5)) < 1000


def test_bodies_of_other_lengths_and_further_requests_are_separated(connection: Any) -> None:
    heads = Heads(connection.cfg)
    parser = Parser(heads, connection)
    parse(parser, HEADS[1])
    longer = HEADS[1].replace(b"\t5 ", b"\t7 ") + b"!!"
    request, environ = parse(parser, longer + HEADS[0])
    assert type(request) is KnownRequest
    assert environ["CONTENT_LENGTH"] == "7"
    assert ("CONTENT-LENGTH", "7") in request.headers
    assert request.body.read() == b"hello!!"
    assert next(parser).path == "/a%20b"


@pytest.mark.parametrize("data", OTHERS)
def test_a_head_that_says_more_is_parsed_each_time(connection: Any, data: bytes) -> None:
    heads = Heads(connection.cfg)
    for other in HEADS:
        parse(Parser(heads, connection), other)
    for _ in range(2):
        try:
            request = parse(Parser(heads, connection), data)[0]
        except ParseException:
            continue
        assert type(request) is not KnownRequest


@pytest.mark.parametrize(("data", "setting"), UNUSUAL_LENGTHS.items())
def test_a_body_is_never_read_as_the_next_request(connection: Any, data: bytes, setting: str | None) -> None:
    if setting is not None:
        connection.cfg.set(setting, True)
    heads = Heads(connection.cfg)
    for _ in range(3):
        parser = Parser(heads, connection)
        request = parse(parser, data + HEADS[0])[0]
        assert request.body.read() == b"hello"
        assert next(parser).path == "/a%20b"


def any_request(choose: Callable[[Any], Any]) -> bytes:
    """A request with a head that may be repeated, malformed or ambiguous."""
    body = choose([b"", b"hello", b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n", b"0\r\n\r\n"])
    size = len(body)
    lengths = [
        f"{choose(['', '0', '0' * 14, '0' * 17, '+', ' ', '-'])}{size}",
        f"{size} ",
        f"{size},{size}",
        f"{size + 1}",
        "²",
        "",
    ]
    names = ["Content-Length", "content-length", "Content-Length ", "Content_Length", " Content-Length"]
    lines = [
        f"{choose(['POST', 'GET', 'HEAD'])} {choose(['/a', '/b?c'])} {choose(['HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0'])}"
    ]
    others = [
        "Host: a",
        "X: y",
        "X:",
        "Expect: 100-continue",
        "Connection: close",
        "Transfer-Encoding: chunked",
        " folded",
        "X: a\nY: b",
    ]
    lines += [choose(others) for _ in range(choose([0, 1, 1, 2]))]
    lines.insert(choose([1, len(lines)]), f"{choose(names[:1] * 6 + names)}:{choose(lengths[:1] * 6 + lengths)}")
    return choose([b""] * 9 + [b"\r\n"]) + "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def outcomes(parser: Any, create: Callable[[Any], tuple[Any, dict[str, Any]]], data: bytes) -> list[Any]:
    """What a server sees of `data`: its requests, up to the first that is refused or ends the connection."""
    found: list[Any] = []
    parser.unreader.unread(data)
    try:
        for request in parser:
            environ = create(request)[1]
            found.append((plain(environ), environ["wsgi.input"].read(), request.headers))
            if request.should_close():
                break
    except Exception:  # any of them ends the connection
        found.append("refused")
    return found


def test_requests_are_those_of_gunicorn_whatever_their_heads(connection: Any) -> None:
    choose = random.Random(1).choice
    heads, kept = Heads(connection.cfg), 0
    for _ in range(3000):
        data = b"".join(choose([1, 3]) * any_request(choose) for _ in range(choose([1, 2])))
        ours, theirs = Parser(heads, connection), RequestParser(connection.cfg, connection.sock, connection.client)
        create = partial(
            wsgi.create, sock=connection.sock, client=connection.client, server=connection.server, cfg=connection.cfg
        )
        assert outcomes(ours, ours.create, data) == outcomes(theirs, create, data), data
        kept += type(ours.mesg) is KnownRequest
    assert kept > 200


def test_what_a_hook_adds_for_one_client_is_not_kept_for_others(connection: Any) -> None:
    connection.cfg.set("pre_request", lambda worker, request: None)
    heads = Heads(connection.cfg)
    assert all(type(parse(Parser(heads, connection), HEADS[1])[0]) is not KnownRequest for _ in range(2))


def test_no_head_is_kept_where_the_meaning_depends_on_the_client(connection: Any) -> None:
    connection.cfg.set("secure_scheme_headers", {"X-FORWARDED-PROTO": "https"})
    heads = Heads(connection.cfg)
    assert all(type(parse(Parser(heads, connection), HEADS[1])[0]) is not KnownRequest for _ in range(2))


def test_heads_do_not_fill_the_memory(connection: Any) -> None:
    heads = Heads(connection.cfg)
    for number in range(1000):
        parse(Parser(heads, connection), b"GET /%d HTTP/1.1\r\nHost: agent\r\n\r\n" % number)
    assert len(heads._known) <= 256


@pytest.mark.parametrize("data", [HEADS[0], HEADS[3], HEADS[4]], ids=["1.1", "1.0", "HEAD"])
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        ("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")], [b"hello"]),
        ("200 OK", [("Content-Length", "5")], [b"hel", b"lo, it"]),
        ("200 OK", [("Content-Length", "5")], [b"hello, it"]),
        ("200 OK", [("Content-Length", "5")], [b"", b"hello"]),
        ("200 OK", [("Content-Length", "0")], []),
        ("200 OK", [("Content-Type", "text/event-stream")], [b"data: 1\n\n", b"", b"data: 2\n\n"]),
        ("204 No Content", [("Content-Length", "5")], [b"hello"]),
        ("304 Not Modified", [("ETag", "x")], []),
        ("200 OK", [("Connection", "close"), ("X", " y "), ("X", "y"), ("Content-Length", "100000")], [b"z" * 100_000]),
        ("101 Switching Protocols", [("Connection", "upgrade"), ("Upgrade", "websocket")], []),
    ],
)
def test_a_response_has_the_bytes_of_gunicorn(
    connection: Any, data: bytes, status: str, headers: list[tuple[str, str]], body: list[bytes]
) -> None:
    request = parsed(connection, data)
    responses = []
    for kind in (wsgi.Response, Response, Response):
        writes: list[bytes] = []
        response = kind(request, SimpleNamespace(sendall=writes.append), connection.cfg)
        response.start_response(status, list(headers))
        for piece in body:
            response.write(piece)
        response.close()
        lines = [line for line in b"".join(writes).split(b"\r\n") if not line.startswith(b"Date: ")]
        responses.append((lines, response.should_close()))
    assert responses[0] == responses[1] == responses[2]


@pytest.mark.parametrize("header", [("X", "a\r\nb"), ("X y", "a"), ("Content-Length", "²"), ("X", "a\0")])
def test_a_header_that_gunicorn_refuses_is_refused_each_time(connection: Any, header: tuple[str, str]) -> None:
    request = parsed(connection, HEADS[0])
    for kind in (wsgi.Response, Response, Response):
        with pytest.raises((ParseException, ValueError)):
            kind(request, connection.sock, connection.cfg).start_response("200 OK", [header])


def test_head_and_body_are_sent_in_one_write(connection: Any) -> None:
    for headers in ([("Content-Length", "5")], []):
        writes: list[bytes] = []
        response = Response(parsed(connection, HEADS[0]), SimpleNamespace(sendall=writes.append), connection.cfg)
        response.start_response("200 OK", headers)
        response.write(b"hello")
        assert len(writes) == 1


# -- threads ------------------------------------------------------------------------------------------------------------


def test_resumed_streams_of_callers_take_turns() -> None:
    served: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = worker.RequestThreads(16, served.put)
    for conn in ("a1", "a2", "a3", "a4", "a5", "b1", "c1"):
        threads.resume(conn, conn[0])
    assert threads.contended()

    order = []
    while len(order) < 7:
        order.append(served.get(timeout=10))
        threads.release(order[-1])

    assert order == ["a1", "a2", "a3", "b1", "c1", "a4", "a5"]
    assert not threads.contended()
    threads.shutdown(wait=False)


def test_a_stopping_worker_resumes_all_streams() -> None:
    served: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = worker.RequestThreads(16, served.put)
    for conn in "abcd":
        threads.resume(conn, "caller")
    threads.resume_all()
    threads.resume("e", "caller")
    assert sorted(served.get(timeout=10) for _ in range(5)) == [*"abcde"]
    threads.shutdown(wait=False)


def test_responses_are_continued_before_new_requests_are_served() -> None:
    served: queue.SimpleQueue[str] = queue.SimpleQueue()
    busy: queue.SimpleQueue[str] = queue.SimpleQueue()
    free, end = threading.Event(), threading.Event()

    def serve(conn: str) -> None:
        busy.put(conn)
        assert (end if conn == "long" else free).wait(10)
        if conn != "long":
            served.put(conn)

    threads = worker.RequestThreads(3, serve)
    for conn in ("long", "long", "first"):
        threads.submit(conn)
        assert busy.get(timeout=10) == conn
    for conn in ("second", "third"):
        threads.submit(conn)
    threads.resume("paused", "caller")
    free.set()
    assert [served.get(timeout=10) for _ in range(4)] == ["first", "paused", "second", "third"]
    end.set()
    threads.shutdown(wait=False)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_responses_that_are_continued_all_the_time_leave_a_thread_for_new_requests(size: int) -> None:
    served, stopped, lock = threading.Event(), threading.Event(), threading.Lock()

    def serve(conn: str) -> None:
        if conn == "new":
            served.set()
        elif not stopped.is_set():
            # The main thread may be faster than this one, which looks for its next connection.
            with lock:
                threads.release(conn)
                threads.resume(conn, "caller")

    threads = worker.RequestThreads(size, serve)
    with lock:
        for number in range(4):
            threads.resume(f"paused-{number}", "caller")
        threads.submit("new")
    try:
        assert served.wait(5)
    finally:
        stopped.set()
        threads.shutdown(wait=False)


@pytest.mark.parametrize(("workers", "accepted"), [(1, 3), (2, 1)])
def test_half_of_the_free_places_are_filled_in_one_turn_unless_there_are_other_workers(
    workers: int, accepted: int
) -> None:
    found: list[Any] = []
    one: Any = object.__new__(worker.BufferedThreadWorker)
    one.cfg, one.nr_conns, one.worker_connections = Config(), 0, 6
    one.cfg.set("workers", workers)
    one.enqueue_req = found.append
    one.method_queue, one.send_when_writable = SimpleNamespace(defer=print), None
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        for _ in range(4):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        one.accept(listener)
        for conn in found:
            conn.sock.close()
    assert len(found) == one.nr_conns == accepted


class Unread:
    """A connection whose client does not read."""

    def __init__(self) -> None:
        self.sock = SimpleNamespace(full=True)


@pytest.mark.parametrize("stopping", [False, True])
def test_a_wake_up_of_an_earlier_pause_does_not_resume_a_response_that_its_client_does_not_read(stopping: bool) -> None:
    served: queue.SimpleQueue[Any] = queue.SimpleQueue()
    conn = Unread()
    one = object.__new__(worker.BufferedThreadWorker)
    one.tpool = worker.RequestThreads(16, served.put)
    one._paused = {conn: worker._Paused(SimpleNamespace(caller=""), True, iter(()))}
    one._pausing = not stopping

    one._resume(conn)

    assert (conn in one._paused) is not stopping
    conn.sock.full = False
    one._resume(conn)
    assert served.get(timeout=10) is conn
    one.tpool.shutdown(wait=False)
