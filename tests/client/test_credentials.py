"""Credentials are sent to the agent only, and appear in no error and no repr."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.auth import AuthBase

from a2a_sync import Client
from a2a_sync.errors import HTTPStatusError, TransportError
from a2a_sync.urls import may_send_credentials, may_share_credentials
from tests.client.peer import Asked, Line, Peer, Script, peer, results, task

CARD = "/.well-known/agent-card.json"
BASIC = "Basic " + base64.b64encode(b"ada:pass word").decode()


@pytest.fixture
def server() -> Iterator[Peer]:
    with peer({"GetTask": results(task())}) as one:
        yield one


class Signed(AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        assert isinstance(request.body, bytes)
        request.headers["X-Signature"] = str(len(request.body))
        return request


@pytest.mark.parametrize(
    ("auth", "header"),
    [("t0ken", "Bearer t0ken"), (lambda: "fresh", "Bearer fresh"), (("ada", "pass word"), BASIC), (None, None)],
)
def test_credentials_are_sent_as_they_are_given(server: Peer, auth: Any, header: str | None) -> None:
    with Client(server.card(), auth=auth) as client:
        client.get_task("t-1")

    assert server.asked[0].headers.get("authorization") == header


def test_anything_that_signs_requests_for_requests_can_be_used(server: Peer) -> None:
    with Client(server.card(), auth=Signed()) as client:
        client.get_task("t-1")

    assert server.asked[0].headers["x-signature"] == str(len(server.asked[0].body))


def test_a_function_is_asked_for_a_token_with_each_request(server: Peer) -> None:
    numbers = itertools.count()
    with Client(server.card(), auth=lambda: f"t{next(numbers)}") as client:
        client.get_task("t-1")
        client.get_task("t-1")

    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer t0", "Bearer t1"]


def test_user_and_password_may_stand_in_the_url() -> None:
    table = {CARD: leads_to("/rpc"), "GetTask": results(task())}
    with peer(table) as server, Client(f"http://ada:pass%20word@127.0.0.1:{server.port}") as client:
        client.get_task("t-1")
        shown = repr(client)

    assert [asked.headers["authorization"] for asked in server.asked] == [BASIC, BASIC]
    assert shown == f"Client('{server.url}')"


def test_a_card_with_a_user_and_password_is_refused(server: Peer) -> None:
    with pytest.raises(ValueError, match=r"supportedInterfaces\[0\].url must not contain credentials"):
        Client(server.card(url=f"http://ada:s3cret@127.0.0.1:{server.port}/rpc"))


def test_headers_of_the_user_go_with_every_request() -> None:
    def card(asked: Asked, line: Line) -> None:
        interface = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        line.answer({"name": "x", "supportedInterfaces": [interface]})

    with (
        peer({CARD: card, "GetTask": results(task())}) as server,
        Client(server.url, headers={"X-Api-Key": "k3y"}, auth="t0ken") as client,
    ):
        client.get_task("t-1")

    assert [asked.headers["x-api-key"] for asked in server.asked] == ["k3y", "k3y"]
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer t0ken", "Bearer t0ken"]


def leads_to(url: str) -> Script:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return lambda asked, line: line.answer({"name": "x", "supportedInterfaces": [interface]})


def test_a_card_cannot_send_credentials_to_another_origin() -> None:
    def deny(asked: Asked, line: Line) -> None:
        line.answer(b"", 401)

    with (
        peer({"GetTask": deny}) as other,
        peer({CARD: leads_to(other.url)}) as home,
        Client(home.url, auth="t0ken", headers={"X-Api-Key": "k3y"}) as client,
        pytest.raises(HTTPStatusError, match="credentials were not sent"),
    ):
        client.get_task("t-1")

    assert not {"authorization", "x-api-key"} & other.asked[0].headers.keys()
    assert home.asked[0].headers["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("redirected", [False, True])
def test_what_a_session_holds_is_not_sent_to_another_origin(
    redirected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login ada password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    session = requests.Session()
    session.headers.update({"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret"})
    session.params = {"key": "s3cret"}
    session.cookies.set("sid", "s3cret")

    def answer(asked: Asked, line: Line) -> None:
        if asked.method == "POST":
            line.result(task())
        elif redirected and line.socket.getsockname()[1] == home.port:
            line.answer(b"", 302, Location=other.url + CARD)
        else:
            leads_to(other.url)(asked, line)

    with session, peer(answer) as other, peer(answer) as home, Client(home.url, session=session) as client:
        client.get_task("t-1")

    assert "key=s3cret" in home.asked[0].path
    assert home.asked[0].headers["x-api-key"] == "s3cret"
    assert len(other.asked) == 1 + redirected
    for asked in other.asked:
        assert "s3cret" not in f"{asked.path} {asked.headers}"
        assert not {"authorization", "cookie"} & asked.headers.keys()


def test_the_address_of_a_given_card_is_trusted(server: Peer) -> None:
    with peer({CARD: leads_to(server.url)}) as home:
        with Client(home.url) as finder:
            card = finder.card()
        with Client(card, auth="t0ken") as client:
            client.get_task("t-1")

    assert server.asked[-1].headers["authorization"] == "Bearer t0ken"


def test_a_redirected_card_request_leaves_its_credentials_at_home(server: Peer) -> None:
    with peer({"/card": leads_to(server.url)}) as other:
        moved = {CARD: lambda asked, line: line.answer(b"", 302, Location=other.url + "/card")}
        with peer(moved) as home, Client(home.url, auth="t0ken", headers={"X-Api-Key": "k3y"}) as client:
            client.card()

    assert not {"authorization", "x-api-key"} & other.asked[0].headers.keys()


@pytest.mark.parametrize(
    ("home", "url", "may"),
    [
        ("http://a.test/x", "http://A.test:80/y", True),
        ("http://a.test/", "https://a.test/", True),
        ("https://a.test/", "http://a.test/", False),
        ("http://a.test:8000/", "https://a.test/", False),
        ("http://a.test/", "http://a.test:8080/", False),
        ("http://a.test/", "http://b.a.test/", False),
    ],
)
def test_what_counts_as_the_agents_origin(home: str, url: str, may: bool) -> None:
    assert may_send_credentials(home, url) is may


@pytest.mark.parametrize(
    ("home", "url", "may"),
    [
        ("https://agent.example/a", "https://ada:pw@agent.example/b", True),
        ("https://ada:pw@agent.example/", "https://evil.example/", False),
        ("https://agent.example@evil.example/", "https://agent.example/", False),
        ("grpc://agent.example:1", "grpc://agent.example:1", True),
        ("grpc://agent.example:1", "grpc://evil.example:1", False),
        ("https://agent.example:1", "grpcs://agent.example:1", False),
    ],
)
def test_agents_share_credentials_at_one_origin(home: str, url: str, may: bool) -> None:
    assert may_share_credentials(home, url) is may


def test_the_netrc_file_is_not_read(server: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password pass-word\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with Client(server.card()) as client:
        client.get_task("t-1")

    assert "authorization" not in server.asked[0].headers


# -- secrets stay secret ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["s3cret", lambda: "s3cret", ("ada", "s3cret")])
def test_no_repr_and_no_error_shows_a_secret(auth: Any) -> None:
    with peer({"GetTask": lambda asked, line: line.answer(b"", 500)}) as server:
        client = Client(server.card(url=server.url + "/rpc?key=s3cret"), auth=auth, headers={"X-Api-Key": "s3cret"})
        with pytest.raises(TransportError) as denied:
            client.get_task("t-1")
    with client, pytest.raises(TransportError) as refused:
        client.get_task("t-1")

    assert "s3cret" not in f"{client!r} {client} {denied.value!r} {refused.value!r} {denied.value} {refused.value}"


@pytest.mark.parametrize("token", ["s3cret\n", "s3\r\ncret: x", "s3cret é", "", None])
def test_a_token_that_cannot_stand_in_a_header_is_not_shown(server: Peer, token: Any) -> None:
    with (
        Client(server.card(), auth=lambda: token) as client,
        pytest.raises(ValueError, match="not valid in a header") as caught,
    ):
        client.get_task("t-1")

    assert "s3cret" not in str(caught.value)
    assert server.asked == []


def test_a_header_that_cannot_be_sent_is_refused_at_once_and_not_shown() -> None:
    with pytest.raises(ValueError, match="'x-key' must be printable") as caught:
        Client("http://a.test", headers={"X-Key": "s3cret\r\nX: y"})

    assert "s3cret" not in str(caught.value)


def test_what_is_no_credential_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="auth takes"):
        Client("http://a.test", auth=7)  # type: ignore[arg-type]
