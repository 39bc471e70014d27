"""What HTTP can answer and how a connection can fail: each its own error, with where it happened, never for too long."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from a2a_sync import A2AApp, Agent, Client, TaskNotFoundError, Timeout, TransportError, TransportTimeoutError
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.connections import LARGE_BODY, TRANSFER_OBSERVER
from a2a_sync.client.errortext import error_text
from a2a_sync.errors import (
    AgentError,
    CardNotFoundError,
    ConnectError,
    HTTPStatusError,
    MalformedResponseError,
    OverloadedError,
)
from a2a_sync.testing import wsgi_session
from a2a_sync.wsgi.process import SINGLE_PROCESS
from tests.certificates import Authority
from tests.client.peer import TIMEOUT, Asked, Line, Script, peer, results, task
from tests.stopwatch import Stopwatch

DONE = task("COMPLETED")


def failing(script: Script, timeout: Timeout | float | None = None, max_response_bytes: int = 1_000_000) -> Exception:
    """The error of a GetTask that is answered by `script`."""
    with (
        peer(script) as server,
        Client(server.card(), retry=None, timeout=timeout, max_response_bytes=max_response_bytes) as client,
    ):
        with pytest.raises((TransportError, AgentError)) as caught:
            client.get_task("t-1")
        error = caught.value
        if isinstance(error, TransportError):
            assert (error.agent, error.task_id) == (server.url + "/rpc", "t-1")
    return error


@pytest.mark.parametrize("length", ["9" * 5000, "many"])
def test_the_progress_of_a_large_answer_has_no_total_if_its_length_is_no_number_of_bytes(length: str) -> None:
    # Python refuses to read numbers of more than 4,300 digits.
    def script(asked: Asked, line: Line) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": task("COMPLETED", metadata={"x": "x" * LARGE_BODY})})
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close"
        line.send(f"{head}\r\n\r\n{body}".encode())
        line.socket.shutdown(socket.SHUT_WR)

    totals: set[int | None] = set()
    token = TRANSFER_OBSERVER.set(lambda phase, size, total: totals.add(total) if phase == "receiving" else None)
    try:
        with peer(script) as server, Client(server.card(), retry=None) as client:
            assert client.get_task("t-1").metadata["x"] == "x" * LARGE_BODY
    finally:
        TRANSFER_OBSERVER.reset(token)
    assert totals == {None}


@pytest.mark.parametrize("code", [200, 400, 404, 500])
def test_the_error_is_in_the_body_whatever_the_http_status(code: int) -> None:
    error = failing(lambda asked, line: line.error(-32001, "no such task", code))

    assert type(error) is TaskNotFoundError
    assert error.message == "no such task"


def test_an_error_of_the_agent_says_when_to_come_back() -> None:
    error = failing(lambda asked, line: line.error(-32000, "busy", 429, Retry_After="7"))

    assert type(error) is OverloadedError
    assert error.retry_after == 7


def test_an_http_error_without_a_body_of_a2a_is_a_status() -> None:
    error = failing(lambda asked, line: line.answer(b"<html>down", 503, Content_Type="text/html", Retry_After="30"))

    assert isinstance(error, HTTPStatusError)
    assert (error.status_code, error.retry_after, error.phase) == (503, 30, "send")


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        ({"detail": "Not Found"}, "application/json", ": Not Found ["),
        ({"detail": [{"loc": ["body", "x"], "msg": "Field required", "input": 1}]}, "application/json", ": body.x: Fi"),
        ({"error": {"code": 503, "message": "stopping"}}, "application/json", ": stopping ["),
        ({"error": "invalid_request", "error_description": "no scope"}, "application/json", ": no scope ["),
        ({"error": "down"}, "application/json; charset=utf-8", ": down ["),
        ({"message": "no Route matched"}, "application/json", ": no Route matched ["),
        ({"title": "Gone", "detail": "moved"}, "application/problem+json", ": moved ["),
        ({"title": "Gone"}, "application/problem+json", ": Gone ["),
        (
            b"Client sent an HTTP request to an HTTPS server.\n",
            "",
            ": Client sent an HTTP request to an HTTPS server. [",
        ),
        (b"down\r\nfor \x1b[31mmaintenance\x00", "text/plain", ": down for [31mmaintenance ["),
        (b"<html><title>502 Bad\nGateway</title><p>nginx", "text/html", ": 502 Bad Gateway ["),
        (b"<html><p>" + b"x" * 5000, "text/html", "Service Unavailable ["),
        (b"x" * 5000, "text/plain", "x" * 300 + "…"),
        ({"detail": {"a": 1}}, "application/json", "Service Unavailable ["),
        ([1], "application/json", "Service Unavailable ["),
        (b"{", "application/json", "Service Unavailable ["),
        (b"\xff\xfe", "application/octet-stream", "Service Unavailable ["),
    ],
)
def test_what_the_body_of_an_http_error_says_is_shown(body: object, content_type: str, said: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = failing(lambda asked, line: line.answer(content, 503, Content_Type=content_type))

    assert isinstance(error, HTTPStatusError)
    assert str(error).startswith("HTTP 503 Service Unavailable")
    assert said in str(error)
    assert len(str(error)) < 500


def test_a_page_of_unfinished_titles_takes_little_time_to_search() -> None:
    began = time.thread_time()
    assert error_text(b"<title" * 100_000, "text/html") == ""
    # One of 60 MB took 1.3 GB, and two seconds in one call.
    where = json.dumps({"loc": [["x" * 70_000]], "detail": "y"}).encode()
    assert error_text(where, "application/json") == ""
    assert error_text(where.replace(b"x" * 10_000, b""), "application/json")
    assert time.thread_time() - began < 0.2


def test_what_our_own_app_says_when_it_cannot_serve_is_shown() -> None:
    agent = Agent("greeter")
    agent.message(lambda message, context: "hello")
    with A2AApp(agent) as app:
        session = wsgi_session(lambda environ, start: app({**environ, "wsgi.multiprocess": True}, start))
        card = app.agent_card("http://agent.test/")
        with Client("http://agent.test", session=session) as client, pytest.raises(CardNotFoundError) as nowhere:
            client.card()
        with Client(card, session=session, retry=None) as client, pytest.raises(HTTPStatusError) as refused:
            client.send("hi")

    assert f"HTTP 503: {SINGLE_PROCESS}" in str(nowhere.value)
    assert f"HTTP 503 Service Unavailable: {SINGLE_PROCESS}" in str(refused.value)


def test_a_time_to_come_back_may_be_a_date() -> None:
    error = failing(lambda asked, line: line.answer(b"", 503, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT"))

    assert isinstance(error, HTTPStatusError)
    assert error.retry_after is not None
    assert error.retry_after > 1e9


def test_a_challenge_is_named() -> None:
    error = failing(lambda asked, line: line.answer(b"", 401, WWW_Authenticate='Bearer realm="x"'))

    assert isinstance(error, HTTPStatusError)
    assert error.status_code == 401
    assert "asks for Bearer credentials" in str(error)


def test_a_redirect_of_a_call_is_not_followed() -> None:
    with peer(results(DONE)) as elsewhere:
        error = failing(lambda asked, line: line.answer(b"", 307, Location=elsewhere.url + "/x?key=secret"))
        assert elsewhere.asked == []

    assert isinstance(error, HTTPStatusError)
    assert f"redirect to {elsewhere.url}/x is not followed" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","result":{"id":', b"\xff\xfe{"]
)
def test_an_answer_that_is_not_json_rpc_is_refused(body: bytes) -> None:
    error = failing(lambda asked, line: line.answer(body))

    assert type(error) is MalformedResponseError
    assert error.phase == "send"


def test_a_result_that_is_no_task_is_refused_and_the_member_named() -> None:
    error = failing(results({"id": "t-1", "status": 7}))

    assert type(error) is MalformedResponseError
    assert "status" in str(error)


def test_an_answer_with_millions_of_keys_is_refused() -> None:
    # Parsing six million delayed all threads by 26 seconds.
    keys = ",".join(f'"{number:x}":1' for number in range(1_200_000))
    body = b'{"jsonrpc":"2.0","id":1,"result":{"metadata":{%b}}}' % keys.encode()
    with (
        peer(lambda asked, line: line.answer(body)) as server,
        Client(server.card(), retry=None, timeout=30) as client,
        pytest.raises(MalformedResponseError, match=r"more than \d+ keys"),
    ):
        client.get_task("t-1")


def test_an_answer_without_end_is_not_kept() -> None:
    def endless(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            line.send(b"x" * 10_000)

    error = failing(endless, max_response_bytes=100_000)

    assert type(error) is MalformedResponseError
    assert "larger than 100000 bytes" in str(error)


def test_compressed_answers_are_read() -> None:
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": 1, "result": DONE}).encode())

    def script(asked: Asked, line: Line) -> None:
        assert "gzip" in asked.headers["accept-encoding"]
        line.answer(body, Content_Type="application/json", Content_Encoding="gzip")

    with peer(script) as server, Client(server.card()) as client:
        assert client.get_task("t-1").id == "t-1"


# -- connections --------------------------------------------------------------------------------------------------------


def test_a_refused_connection_says_that_nothing_was_sent() -> None:
    with peer(results(DONE)) as server:
        card = server.card()
    with Client(card) as client, pytest.raises(ConnectError, match="Connection refused") as caught:
        client.get_task("t-1")

    assert (caught.value.phase, caught.value.agent, caught.value.task_id) == ("connect", server.url + "/rpc", "t-1")


def test_a_host_that_does_not_exist_says_that_nothing_was_sent() -> None:
    with Client("http://agent.invalid:1/") as client, pytest.raises(ConnectError) as caught:
        client.get_task("t-1")

    assert caught.value.phase == "connect"


def test_speaking_tls_to_a_server_without_says_that_nothing_was_sent() -> None:
    with peer(results(DONE)) as server:
        card = server.card(url=f"https://127.0.0.1:{server.port}/")

        with Client(card) as client, pytest.raises(ConnectError):
            client.get_task("t-1")


def test_https_to_a_port_without_tls_says_to_use_http() -> None:
    def in_plain_http(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=in_plain_http, args=(listener,), daemon=True).start()
        with (
            Client(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout=TIMEOUT) as client,
            pytest.raises(ConnectError, match="the port does not speak TLS; use http://"),
        ):
            client.card()


def test_https_to_a_port_that_closes_the_connection_says_what_it_may_be() -> None:
    with (
        peer(results(DONE)) as server,
        Client(f"https://127.0.0.1:{server.port}") as client,
        pytest.raises(TransportError, match="if this port does not speak TLS, use http://"),
    ):
        client.card()


def test_http_to_a_port_with_tls_says_to_use_https(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).issue("127.0.0.1"))

    with (
        peer(results(DONE), context) as server,
        Client(f"http://127.0.0.1:{server.port}") as client,
        pytest.raises(TransportError, match="if this port serves TLS, use https://"),
    ):
        client.card()


def test_a_refused_connection_says_nothing_of_tls() -> None:
    with peer({}) as server:
        pass
    with Client(server.url) as client, pytest.raises(ConnectError) as caught:
        client.card()

    assert "https" not in str(caught.value)


def test_an_answer_in_tls_says_to_use_https() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"

    def script(asked: Asked, line: Line) -> None:
        line.send(alert)
        line.hang_up()

    error = failing(script)

    assert "the port speaks TLS; use https://" in str(error)
    assert alert.decode("latin-1") not in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"SSH-2.0-hello\r\n",
        b"HTTP/1.1 2",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    ],
)
def test_a_connection_that_breaks_after_the_request_is_no_connect_error(said: bytes) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.send(said)
        line.hang_up()

    error = failing(script)

    assert type(error) is TransportError
    assert error.phase == "send"


# -- limits -------------------------------------------------------------------------------------------------------------


def limited(script: Script, timeout: Timeout | float) -> TransportTimeoutError:
    watch = Stopwatch()
    error = failing(script, timeout)
    assert watch.within(2, least=0.2)
    assert type(error) is TransportTimeoutError
    return error


def test_an_agent_that_says_nothing_is_left_after_the_idle_limit() -> None:
    error = limited(lambda asked, line: line.await_close(), Timeout(read=0.3))

    assert "within the read timeout" in str(error)


def test_the_overall_limit_holds_before_the_answer_begins() -> None:
    limited(lambda asked, line: line.await_close(), 0.3)


def test_a_dripping_body_ends_at_the_overall_limit() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        line.drip(b" " * 1000)

    error = limited(script, 0.4)

    assert "total timeout" in str(error)


@pytest.mark.parametrize("timeout", [0.4, Timeout(read=0.4)], ids=["overall", "idle"])
def test_dripping_headers_end_at_the_limit(timeout: Timeout | float) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\n")
        line.drip(b"X-Header: " + b"x" * 1000)

    limited(script, timeout)


#: More than the system takes off our hands before the peer reads it.
LARGE = 20_000_000


@contextmanager
def slow_reader(every: float) -> Iterator[int]:
    """The port of a server that reads 64 KB at a time, with pauses, and answers at the end of a `LARGE` request."""
    finish = threading.Event()

    def serve() -> None:
        try:
            line, _ = listener.accept()
        except OSError:
            return  # The limit of the client ran out before it had connected.
        with line:
            line.settimeout(TIMEOUT)
            left = LARGE
            while left > 0 and not finish.wait(every) and (data := line.recv(65536)):
                left -= len(data)
            if left <= 0:
                Line(line).result({"task": DONE})
                line.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        finish.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def card_at(port: int) -> AgentCard:
    interface = AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
    return AgentCard(name="x", description="", version="1", supported_interfaces=(interface,))


def test_a_large_request_may_take_longer_than_connecting() -> None:
    with slow_reader(0.005) as port, Client(card_at(port), timeout=Timeout(connect=0.4)) as client:
        started = time.monotonic()
        client.send("x" * LARGE)
        assert time.monotonic() - started > 0.6


@pytest.mark.parametrize("every", [0.005, TIMEOUT], ids=["reads slowly", "does not read"])
def test_a_large_request_ends_at_the_overall_limit(every: float) -> None:
    with slow_reader(every) as port, Client(card_at(port)) as client:
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError, match="total timeout"):
            client.send("x" * LARGE, timeout=0.5)
        # Making 20 MB of JSON takes seconds on a busy machine.
        assert watch.within(TIMEOUT / 2)


def test_no_limit_is_longer_than_it_says_when_the_client_has_one_too() -> None:
    with peer(lambda asked, line: line.await_close()) as server, Client(server.card(), timeout=60) as client:
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError):
            client.get_task("t-1", timeout=0.3)

    assert watch.within(2)


# -- sessions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [100, 102, 103, 199])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_an_interim_response_is_not_taken_for_the_answer(binding: str, status: int) -> None:
    # The answer would be that of the next call of the connection, which may be of another user.
    def answer(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 %d Wait\r\nLink: </style.css>\r\n\r\n" % status)
        task_id = asked.path.rpartition("/")[2] if binding == "HTTP+JSON" else asked.params["id"]
        (line.answer if binding == "HTTP+JSON" else line.result)({**DONE, "id": task_id})

    with (
        peer(answer) as server,
        Client.for_endpoint(f"{server.url}/rpc", protocol_binding=binding, retry=None, timeout=10) as client,
    ):
        assert [client.get_task(name).id for name in ("ada", "bob", "eve")] == ["ada", "bob", "eve"]

    assert server.connections == 1


def test_with_a_session_an_interim_response_ends_the_connection() -> None:
    def answer(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        line.await_close()

    with (
        peer(answer) as server,
        requests.Session() as session,
        Client(server.card(), session=session, retry=None, timeout=10) as client,
    ):
        for _ in range(2):
            with pytest.raises(HTTPStatusError, match="103"):
                client.get_task("t-1")

    assert server.connections == 2


def test_what_follows_a_change_of_the_protocol_is_not_read() -> None:
    def answer(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")
        line.await_close()

    with peer(answer) as server, Client(server.card(), retry=None, timeout=10) as client:
        for _ in range(2):
            with pytest.raises(HTTPStatusError, match="101"):
                client.get_task("t-1")

    assert server.connections == 2


def test_cookies_of_an_agent_are_not_kept() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.result(DONE, Set_Cookie="user=alice; Path=/")

    with peer(script) as server, Client(server.card()) as client:
        client.get_task("t-1")
        client.get_task("t-1")

    assert ["cookie" in asked.headers for asked in server.asked] == [False, False]


def test_a_session_of_the_users_own_is_taken_as_it_is() -> None:
    with requests.Session() as session:
        session.headers["X-Mine"] = "yes"
        with peer(lambda asked, line: line.result(DONE, Set_Cookie="user=alice; Path=/")) as server:
            with Client(server.card(), session=session) as client:
                client.get_task("t-1")
            with Client(server.card(), session=session) as client:
                client.get_task("t-1")

    assert [asked.headers.get("cookie") for asked in server.asked] == [None, "user=alice"]
    assert {asked.headers["x-mine"] for asked in server.asked} == {"yes"}
    assert server.connections == 1


def test_a_session_of_the_users_own_does_not_carry_calls_elsewhere() -> None:
    def redirect(asked: Asked, line: Line) -> None:
        line.answer(b"", 307, Location=elsewhere.url)

    with (
        peer(results(DONE)) as elsewhere,
        peer(redirect) as server,
        requests.Session() as session,
        Client(server.card(), session=session) as client,
        pytest.raises(HTTPStatusError),
    ):
        client.get_task("t-1")

    assert elsewhere.asked == []


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(lambda asked, line: line.result(DONE)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with Client(proxy.card(url="http://agent.invalid/rpc")) as client:
            client.get_task("t-1")

    assert [asked.path for asked in proxy.asked] == ["http://agent.invalid/rpc"]


def test_a_request_is_the_same_with_and_without_a_session_of_requests() -> None:
    options = {"auth": "t0ken", "headers": {"user-agent": "mine", "X-Mine": "yes"}}
    with peer(lambda asked, line: line.result(DONE)) as server, requests.Session() as session:
        for one in ({}, options):
            for of_the_user in (None, session):
                with Client(server.card(), session=of_the_user, **one) as client:
                    client.get_task("t-1")

    for bare, prepared in (server.asked[:2], server.asked[2:]):
        assert (bare.path, bare.headers) == (prepared.path, prepared.headers)
    assert server.asked[2].headers["user-agent"] == "mine"


def test_the_proxy_of_the_environment_is_left_out_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(lambda asked, line: line.result(DONE)) as server, peer(results(DONE)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Client(server.card()) as client:
            client.get_task("t-1")

    assert (len(server.asked), proxy.asked) == (1, [])


def test_small_requests_arrive_in_one_piece() -> None:
    received = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(65536))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with Client(card_at(server.getsockname()[1]), retry=None) as client, pytest.raises(TransportError):
            client.get_task("t-1")
        thread.join(30)

    head, _, body = received[0].partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert json.loads(body)["method"] == "GetTask"
