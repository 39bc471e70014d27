"""TLS in gunicorn itself, with the settings of `a2a_sync.gunicorn`: slow clients hold no thread, and callers are those of their certificates."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.certificates import Authority
from tests.engine import eventually
from tests.hostile.slow import abandon, closed, connect, head, worst_wait
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.servers.test_gevent_server import resident
from tests.soak.watch import children
from tests.wsgi import JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

APP = "tests.agents.certified:app"
THREADS = 4
LIMITS = {"header_timeout": 3, "body_idle_timeout": 3, "write_timeout": 3, "stream_keepalive_interval": 0.5}


class Secured:
    """A server with TLS, its authority, and the certificate of a caller."""

    def __init__(self, server: LiveServer, authority: Authority, certificate: tuple[str, str]) -> None:
        self.server = server
        self.authority = authority
        self.certificate = certificate
        self.context = ssl.create_default_context(cafile=authority.ca)
        self.context.load_cert_chain(*certificate)

    def session(self, certificate: tuple[str, str] | None) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.verify, session.cert = self.authority.ca, certificate
        return session

    def post(self, text: str, certificate: tuple[str, str] | None = None, **more: Any) -> requests.Response:
        body = rpc("SendMessage", message(text))
        with self.session(certificate or self.certificate) as session:
            return session.post(self.server.url, data=body, headers=JSON_HEADERS, timeout=60, **more)

    def send(self, text: str) -> Any:
        answer = self.post(text)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]["task"]

    def connect(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(socket.create_connection(self.server.address, 30), server_hostname="127.0.0.1")

    def hello(self) -> bytes:
        """The first message of a client."""
        outgoing = ssl.MemoryBIO()
        tls = self.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        return outgoing.read()


@pytest.fixture(scope="module", params=["threads", "gevent"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    certificate, key = authority.issue("127.0.0.1", "localhost")
    trusted = ("--ca-certs", authority.ca, "--cert-reqs", str(int(ssl.CERT_OPTIONAL)))
    # The refusal of a large request is short: its client has all of it, and is disconnected when it has been idle for so long.
    options = ("--certfile", certificate, "--keyfile", key, *trusted, "--keep-alive", "3")
    variables = {"LARGE_LIMITS": json.dumps(LIMITS)}
    server = (
        gunicorn(APP, "-c", "python:a2a_sync.gunicorn", *options, threads=THREADS, environment=variables)
        if request.param == "threads"
        else gunicorn_gevent(APP, "--worker-connections", "30", *options, environment=variables)
    )
    with server as started:
        yield Secured(started, authority, authority.issue("ada"))


def task_text(task: Any) -> str:
    text: str = task["artifacts"][0]["parts"][0]["text"]
    return text


# -- callers ------------------------------------------------------------------------------------------------------------


def test_the_caller_is_the_subject_of_the_certificate(secured: Secured) -> None:
    assert task_text(secured.send("name")) == "CN=ada"


def test_a_caller_without_a_certificate_is_refused(secured: Secured) -> None:
    claims = {"SSL-CLIENT-VERIFY": "SUCCESS", "SSL-CLIENT-S-DN": "CN=ada"}
    with secured.session(None) as session:
        answer = session.post(
            secured.server.url, data=rpc("SendMessage", message("name")), headers={**JSON_HEADERS, **claims}, timeout=60
        )
    assert answer.status_code == 401


@pytest.mark.parametrize("foreign", [True, False], ids=["of another authority", "expired"])
def test_a_certificate_that_is_not_valid_is_refused(secured: Secured, foreign: bool, tmp_path: Path) -> None:
    issuer = Authority(tmp_path) if foreign else secured.authority
    certificate = issuer.issue("mallory", days=1 if foreign else -1)
    with pytest.raises(requests.ConnectionError):
        secured.post("name", certificate)


# -- requests and responses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_arrive_in_pieces_and_pipelined(secured: Secured, version: ssl.TLSVersion) -> None:
    body = rpc("SendMessage", message("name"))
    request = head(len(body)) + body
    context = ssl.create_default_context(cafile=secured.authority.ca)
    context.load_cert_chain(*secured.certificate)
    context.minimum_version = context.maximum_version = version
    with context.wrap_socket(
        socket.create_connection(secured.server.address, 30), server_hostname="127.0.0.1"
    ) as client:
        for cut in range(1, len(request), 50):
            client.sendall(request[:cut])
            client.sendall(request[cut:])
            assert b"CN=ada" in read_answer(client)
        client.sendall(request * 5)
        assert all(b"CN=ada" in read_answer(client) for _ in range(5))


def read_answer(client: ssl.SSLSocket) -> bytes:
    answer = HTTPResponse(client)
    answer.begin()
    assert answer.status == 200
    return answer.read()


def test_connections_do_not_keep_the_size_of_the_responses_that_were_read(secured: Secured) -> None:
    """With threads each kept a buffer of the size of its largest response, also after it was closed."""
    get = rpc("GetTask", {"id": secured.send("large 8000000")["id"]})
    [process], before = children(secured.server.pid), 0.0
    with ExitStack() as stack:
        for number in range(13):
            session = stack.enter_context(secured.session(secured.certificate))
            answer = session.post(secured.server.url, data=get, headers=JSON_HEADERS, timeout=60)
            assert len(answer.content) > 8_000_000
            if number == 2:
                before = resident(process)
        eventually(lambda: resident(process) - before < 40, "the memory of ten responses")


def test_large_messages_and_answers_are_complete(secured: Secured) -> None:
    assert task_text(secured.send("x" * 5_000_000)) == "x" * 5_000_000
    task = secured.send("large 8000000")
    assert sum(len(part["text"]) for part in task["artifacts"][0]["parts"]) == 8_000_000
    assert secured.post("x" * 11_000_000).status_code == 413


def test_a_stream_continues_after_silence_and_its_connection_is_used_again(secured: Secured) -> None:
    asked = secured.send("ask")["id"]
    subscription, cancel, question = (
        rpc("SubscribeToTask", {"id": asked}),
        rpc("CancelTask", {"id": asked}),
        rpc("GetTask", {"id": asked}),
    )
    with secured.connect() as client:
        client.sendall(head(len(subscription)) + subscription)
        stream = HTTPResponse(client)
        stream.begin()
        # A stream that sends heartbeats has had no event for longer than it waits on its thread.
        heartbeats = (line for line in stream if line.startswith(b": heartbeat"))
        assert [next(heartbeats), next(heartbeats)]
        with secured.session(secured.certificate) as session:
            session.post(secured.server.url, data=cancel, headers=JSON_HEADERS, timeout=60).raise_for_status()
        assert b"TASK_STATE_CANCELED" in stream.read()
        client.sendall(head(len(question)) + question)
        assert b"TASK_STATE_CANCELED" in read_answer(client)


@pytest.mark.parametrize("secured", ["threads"], indirect=True)
def test_the_end_of_a_closed_connection_is_announced(secured: Secured) -> None:
    body = rpc("SendMessage", message("name"))
    with secured.connect() as client:
        client.suppress_ragged_eofs = False
        client.sendall(head(len(body), "Connection: close") + body)
        assert b"CN=ada" in read_answer(client)
        assert client.recv(10) == b""


# -- slow clients -------------------------------------------------------------------------------------------------------


def over_tls(secured: Secured, first: bytes) -> socket.socket:
    """A connection with small receive buffers, over which `first` was sent, and of which nothing more is read."""
    plain = connect(secured.server.address)
    plain.settimeout(30)
    client = secured.context.wrap_socket(plain, server_hostname="127.0.0.1")
    client.settimeout(0.2)
    try:
        client.sendall(first)
    except TimeoutError:
        pass  # the server reads no more
    return client


def over_tcp(secured: Secured, first: bytes) -> socket.socket:
    client = connect(secured.server.address)
    client.send(first)
    return client


def slow_kinds(secured: Secured) -> Mapping[str, Callable[[], socket.socket]]:
    hello = secured.hello()
    large = secured.send("large 8000000")["id"]
    get = rpc("GetTask", {"id": large})
    return {
        "silent": partial(over_tcp, secured, b""),
        "half a hello": partial(over_tcp, secured, hello[: len(hello) // 2]),
        "a hello only": partial(over_tcp, secured, hello),
        "no TLS": partial(over_tcp, secured, b"GET / HTTP/1.1\r\nHost: a\r\n"),
        "no request": partial(over_tls, secured, b""),
        "half a head": partial(over_tls, secured, head(20)[:-2]),
        "half a body": partial(over_tls, secured, head(1000) + b"{" * 500),
        "a large answer": partial(over_tls, secured, head(len(get)) + get),
        "many answers": partial(over_tls, secured, (head(len(get)) + get) * 5),
    }


def test_slow_clients_hold_no_threads_and_are_cut_off(secured: Secured, record_property: Any) -> None:
    kinds = list(slow_kinds(secured).values())
    with ExitStack() as stack:
        clients = []
        for number in range(3 * len(kinds)):
            clients.append(kinds[number % len(kinds)]())
            stack.callback(abandon, clients[-1])
        worst, count = worst_wait(lambda: secured.send("hello"), 5)
        eventually(lambda: all(map(closed, clients)), "the end of all connections", seconds=60)
    record_property("worst", f"{worst:.2f} s in {count} calls")
    assert count > 2
    assert worst < 2.0


def test_handshakes_that_fail_are_not_logged_as_errors(secured: Secured) -> None:
    before = len(secured.server.log)
    hello = secured.hello()
    for first in (b"\x16\x03\x01\x02\x00\x01", hello[:40], hello, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))):
        with closing(over_tcp(secured, first)):
            time.sleep(0.05)
    secured.send("hello")
    assert "Traceback" not in secured.server.log[before:]
