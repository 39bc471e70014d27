"""Requests that a server makes for a peer: where they go, and when they end."""

from __future__ import annotations

import gzip
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from a2a_sync.concurrency.gevent import original
from a2a_sync.errors import UnsafeURLError
from a2a_sync.outbound import http
from a2a_sync.outbound.http import NoResponseError, Outbound
from a2a_sync.outbound.urlguard import URLGuard
from tests.certificates import Authority
from tests.client.peer import Asked, Line, Peer, peer
from tests.outbound.test_urlguard import resolving
from tests.stopwatch import Stopwatch


def says(body: bytes, status: int = 200, **headers: str) -> Callable[[Asked, Line], None]:
    return lambda asked, line: line.answer(body, status, **headers)


@contextmanager
def outbound(*allow: str, **options: Any) -> Iterator[Outbound]:
    one = Outbound(URLGuard(allow or ["127.0.0.1"], **options))
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def server() -> Iterator[Peer]:
    with peer(says(b"fine", X_Sort="A")) as one:
        yield one


def test_a_request_goes_out_and_its_answer_comes_back(server: Peer) -> None:
    with outbound() as out:
        answer = out.request("POST", server.url + "/hook?x=%2F", headers={"X-Token": "t"}, body=b"{}")

    assert (answer.status, answer.headers["x-sort"], answer.body, answer.complete) == (200, "A", b"fine", True)
    asked = server.asked[0]
    assert (asked.method, asked.path, asked.body, asked.headers["x-token"]) == ("POST", "/hook?x=%2F", b"{}", "t")


@pytest.mark.parametrize("status", [100, 102, 103])
def test_an_interim_response_is_not_taken_for_the_answer(status: int) -> None:
    # The refusal of a notification would be that of the next one to the same host.
    def answer(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 %d Wait\r\n\r\n" % status)
        line.answer(b"", int(asked.path[1:]))

    with peer(answer) as server, outbound() as out:
        assert [out.request("POST", f"{server.url}/{code}").status for code in (200, 500, 204)] == [200, 500, 204]


def test_connections_are_used_again(server: Peer) -> None:
    with outbound() as out:
        for _ in range(3):
            out.request("GET", server.url)

    assert (len(server.asked), server.connections) == (3, 1)


def test_a_child_of_a_fork_has_connections_of_its_own(server: Peer) -> None:
    with outbound() as out:
        out.request("GET", server.url)
        out.renew()
        out.request("GET", server.url)

    assert server.connections == 2


# -- where it goes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0", "[::]", "x@127.0.0.1"],
)
def test_a_hostile_url_is_never_connected_to(server: Peer, host: str) -> None:
    with outbound("8.8.8.8") as out, pytest.raises(UnsafeURLError):
        out.request("GET", f"http://{host}:{server.port}/")

    assert server.connections == 0


def test_a_name_that_turns_to_a_private_address_is_never_connected_to(server: Peer) -> None:
    with outbound("127.0.0.2", resolve=resolving("127.0.0.1")) as out, pytest.raises(UnsafeURLError, match="private"):
        out.request("GET", f"http://rebound.example:{server.port}/")

    assert server.connections == 0


def test_a_name_is_looked_up_once_for_each_connection_and_that_address_is_the_one_connected_to(server: Peer) -> None:
    answers = itertools.chain(["127.0.0.1"], itertools.repeat("127.0.0.2"))
    asked: list[str] = []

    def rebinding(host: str, *rest: Any) -> Any:
        asked.append(host)
        return resolving(next(answers))(host, *rest)

    with outbound("127.0.0.1", resolve=rebinding) as out:
        assert out.request("GET", f"http://rebound.example:{server.port}/").body == b"fine"
        assert asked == ["rebound.example"], "a second look could find another address"
        out.close()
        with pytest.raises(UnsafeURLError):
            out.request("GET", f"http://rebound.example:{server.port}/")

    assert server.connections == 1
    assert server.asked[0].headers["host"] == f"rebound.example:{server.port}"


def test_one_private_address_among_others_keeps_it_from_all_of_them(server: Peer) -> None:
    with outbound("127.0.0.1", resolve=resolving("127.0.0.1", "10.0.0.1")) as out, pytest.raises(UnsafeURLError):
        out.request("GET", f"http://mixed.example:{server.port}/")

    assert server.connections == 0


def test_redirects_are_not_followed(server: Peer) -> None:
    with peer(says(b"", 302, Location=server.url)) as redirecting, outbound() as out:
        assert out.request("GET", redirecting.url).status == 302

    assert server.connections == 0


def test_the_environment_sends_it_nowhere_else(server: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with peer(says(b"proxied")) as proxy, outbound() as out:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert out.request("GET", server.url).body == b"fine"

    assert "authorization" not in server.asked[0].headers


def test_an_address_that_takes_no_connection_is_followed_by_the_next(server: Peer) -> None:
    with outbound("127.0.0.0/8", resolve=resolving("127.0.0.9", "127.0.0.1")) as out:
        assert out.request("GET", f"http://two.example:{server.port}/").body == b"fine"


# -- over TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@contextmanager
def secure(authority: Authority, script: Callable[[Asked, Line], None], *names: str) -> Iterator[Peer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue(*names))
    with peer(script, tls=context) as one:
        yield one


def test_a_certificate_is_held_against_the_name_and_not_the_address(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca))
    guard = URLGuard(["127.0.0.1"], resolve=resolving("127.0.0.1"))
    out = Outbound(guard)
    with secure(authority, says(b"fine"), "hooks.example.com") as server, closing(out):
        assert out.request("GET", f"https://hooks.example.com:{server.port}/").body == b"fine"
        with pytest.raises(NoResponseError, match="no TLS connection") as caught:
            out.request("GET", f"https://other.example.com:{server.port}/")

    assert not caught.value.sent
    assert len(server.asked) == 1


def test_a_certificate_of_an_untrusted_authority_is_refused(authority: Authority) -> None:
    with (
        secure(authority, says(b"fine"), "127.0.0.1") as server,
        outbound() as out,
        pytest.raises(NoResponseError, match="no TLS connection: unable to get local issuer certificate"),
    ):
        out.request("GET", f"https://127.0.0.1:{server.port}/")

    assert server.asked == []


def test_a_system_without_threads_connects_over_tls(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca))

    def start_new_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(
        http,
        "original",
        lambda module, name: start_new_thread if name == "start_new_thread" else original(module, name),
    )
    with secure(authority, says(b"fine"), "127.0.0.1") as server, outbound() as out:
        assert out.request("GET", f"https://127.0.0.1:{server.port}/").body == b"fine"


def test_an_answer_that_drips_over_tls_is_given_up_too(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca))

    def slowly(asked: Asked, line: Line) -> None:
        line.drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 5000, every=0.02)

    watch = Stopwatch()
    out = Outbound(URLGuard(["127.0.0.1"]))
    with (
        secure(authority, slowly, "127.0.0.1") as server,
        closing(out),
        pytest.raises(NoResponseError, match="in time"),
    ):
        out.request("GET", f"https://127.0.0.1:{server.port}/", timeout=0.5)

    assert watch.within(8)


# -- what can go wrong --------------------------------------------------------------------------------------------------


def test_a_refused_connection_is_reported_without_the_url(server: Peer) -> None:
    server.refuse()
    with outbound() as out, pytest.raises(NoResponseError, match="could not connect: Connection refused") as caught:
        out.request("GET", server.url + "/secret")

    assert not caught.value.sent
    assert "secret" not in str(caught.value)


def test_a_name_that_does_not_exist_is_said() -> None:
    def unknown(*_: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with outbound(resolve=unknown) as out, pytest.raises(NoResponseError, match="Name or service not known") as caught:
        out.request("GET", "http://nowhere.example/")

    assert not caught.value.sent


def test_a_connection_that_breaks_may_have_been_understood() -> None:
    with (
        peer(lambda asked, line: line.hang_up()) as server,
        outbound() as out,
        pytest.raises(NoResponseError) as caught,
    ):
        out.request("GET", server.url)

    assert caught.value.sent


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 5000, b"HTTP/1.1 100 Continue\r\n\r\n" * 500]
)
def test_an_answer_whose_head_drips_is_given_up(head: bytes) -> None:
    def slowly(asked: Asked, line: Line) -> None:
        line.drip(head or b"x", every=0.02)
        line.pause()

    watch = Stopwatch()
    with peer(slowly) as server, outbound() as out, pytest.raises(NoResponseError, match="in time") as caught:
        out.request("GET", server.url, timeout=0.3)

    assert caught.value.sent
    assert watch.within(8)


def test_an_answer_whose_body_drips_has_a_status_nevertheless() -> None:
    def slowly(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 10000\r\n\r\n")
        line.drip(b"x" * 10000, every=0.02)

    with peer(slowly) as server, outbound() as out:
        answer = out.request("GET", server.url, timeout=0.3)

    assert (answer.status, answer.complete) == (202, False)


def test_a_receiver_that_does_not_read_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, outbound() as out:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        watch = Stopwatch()
        with pytest.raises(NoResponseError, match="in time"):
            out.request("POST", f"http://127.0.0.1:{deaf.getsockname()[1]}/", body=b"x" * 32_000_000, timeout=0.3)

    assert watch.within(8)


def test_a_long_answer_is_cut() -> None:
    with peer(says(b"x" * 5000)) as server, outbound() as out:
        cut = out.request("GET", server.url, max_bytes=4999)
        whole = out.request("GET", server.url, max_bytes=5000)

    assert (len(cut.body), cut.complete) == (4999, False)
    assert (len(whole.body), whole.complete) == (5000, True)


def test_an_answer_without_an_end_is_cut_too() -> None:
    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        while True:
            line.piece(b"x" * 1000)

    with peer(endless) as server, outbound() as out:
        assert len(out.request("GET", server.url, max_bytes=10_000).body) == 10_000


def test_a_packed_answer_stays_packed() -> None:
    packed = gzip.compress(b"0" * 10_000_000)
    with peer(says(packed, Content_Encoding="gzip")) as server, outbound() as out:
        assert out.request("GET", server.url).body == packed

    assert server.asked[0].headers["accept-encoding"] == "identity"


def test_the_time_of_one_answer_is_not_that_of_the_next_request(server: Peer) -> None:
    with outbound() as out:
        out.request("GET", server.url, timeout=0.5)
        big = os.urandom(2_000_000)
        assert out.request("POST", server.url, body=big, timeout=60).status == 200

    assert server.connections == 1
    assert server.asked[1].body == big
