"""Tokens that are fetched: once, before they expire, and again when the agent does not take them."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests

from a2a_sync import Client
from a2a_sync.client import ApiKey, ClientCredentials
from a2a_sync.client import credentials as credentials_module
from a2a_sync.client.deadlines import NEVER
from a2a_sync.errors import AgentError, TokenError, TransportError, TransportTimeoutError, UnauthenticatedError
from tests.client.peer import Asked, Line, Peer, chunk, peer, status, task
from tests.stopwatch import set_clock

SECRET = "s3cret"
SECRET_WITH_SIGNS = "s3/ cret+"


class TokenServer:
    """Gives t1, t2, …; the test says for how long, and may let it refuse."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.answer: Any = {"token_type": "Bearer", "expires_in": 3600}
        self.status = 200
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, asked: Asked, line: Line) -> None:
        self.hold.wait(60)
        if self.status != 200 or isinstance(self.answer, bytes):
            line.answer(self.answer, self.status)
        else:
            line.answer({"access_token": f"t{next(self.numbers)}", **self.answer}, Cache_Control="no-store")


class StrictAgent:
    """Takes the tokens in `good` only."""

    def __init__(self) -> None:
        self.good = {f"t{number}" for number in range(1, 9)}

    def __call__(self, asked: Asked, line: Line) -> None:
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.good:
            line.error(-31401, "the token is not accepted", 401, WWW_Authenticate="Bearer")
        elif asked.operation == "SendStreamingMessage":
            line.stream({"task": task()}, chunk("hi", append=False), status("COMPLETED"))
        else:
            line.result(task("COMPLETED"))


@pytest.fixture
def issuer() -> TokenServer:
    return TokenServer()


@pytest.fixture
def token_server(issuer: TokenServer) -> Iterator[Peer]:
    with peer(issuer) as one:
        yield one


@pytest.fixture
def agent() -> StrictAgent:
    return StrictAgent()


@pytest.fixture
def server(agent: StrictAgent) -> Iterator[Peer]:
    with peer(agent) as one:
        yield one


def credentials(token_server: Peer, **options: Any) -> ClientCredentials:
    return ClientCredentials(token_server.url + "/token", "robot", SECRET, **options)


def tokens_at(server: Peer) -> list[str]:
    return [asked.headers["authorization"].removeprefix("Bearer ") for asked in server.asked]


def test_one_token_serves_many_calls_and_clients(server: Peer, token_server: Peer) -> None:
    auth = credentials(token_server, scope=["read", "write"], parameters={"audience": "https://agent.test/"})
    for _ in range(2):
        with Client(server.card(), auth=auth) as client:
            client.get_task("t-1")
            client.get_task("t-1")

    assert tokens_at(server) == ["t1"] * 4
    (asked,) = token_server.asked
    assert (asked.method, asked.path) == ("POST", "/token")
    assert asked.headers["authorization"] == "Basic " + base64.b64encode(f"robot:{SECRET}".encode()).decode()
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["read write"],
        "audience": ["https://agent.test/"],
    }


def test_id_and_secret_can_stand_in_the_body(server: Peer, token_server: Peer) -> None:
    with Client(server.card(), auth=credentials(token_server, in_body=True, scope="read")) as client:
        client.get_task("t-1")

    (asked,) = token_server.asked
    assert "authorization" not in asked.headers
    said = parse_qs(asked.body.decode())
    assert (said["client_id"], said["client_secret"], said["scope"]) == (["robot"], [SECRET], ["read"])


def test_special_characters_are_encoded_before_they_are_joined(server: Peer, token_server: Peer) -> None:
    auth = ClientCredentials(token_server.url, "ro:bot", "a b%é")
    with Client(server.card(), auth=auth) as client:
        client.get_task("t-1")

    sent = base64.b64decode(token_server.asked[0].headers["authorization"].removeprefix("Basic "))
    assert sent == b"ro%3Abot:a+b%25%C3%A9"


def test_a_token_is_renewed_before_it_expires(
    server: Peer, token_server: Peer, issuer: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    set_clock(monkeypatch, credentials_module, monotonic=lambda: now[0])
    issuer.answer = {"expires_in": 600}
    with Client(server.card(), auth=credentials(token_server)) as client:
        for moment in (1000.0, 1569.0, 1571.0, 1600.0):
            now[0] = moment
            client.get_task("t-1")

    assert tokens_at(server) == ["t1", "t1", "t2", "t2"]


def test_while_a_token_lasts_a_failed_renewal_is_no_failure(
    server: Peer, token_server: Peer, issuer: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    set_clock(monkeypatch, credentials_module, monotonic=lambda: now[0])
    issuer.answer = {"expires_in": 600}
    with Client(server.card(), auth=credentials(token_server), retry=None) as client:
        client.get_task("t-1")
        issuer.status = 503
        for moment in (1580.0, 1581.0, 1590.0):
            now[0] = moment
            client.get_task("t-1")
        now[0] = 1601.0
        with pytest.raises(TokenError):
            client.get_task("t-1")

    assert tokens_at(server) == ["t1"] * 4
    assert len(token_server.asked) == 4


@pytest.mark.parametrize("call", ["get", "send", "stream"])
def test_a_refused_token_is_renewed_once(server: Peer, token_server: Peer, agent: StrictAgent, call: str) -> None:
    agent.good = {"t2"}
    with Client(server.card(), auth=credentials(token_server)) as client:
        if call == "get":
            assert client.get_task("t-1").state.terminal
        elif call == "send":
            assert client.send("hi").state.terminal  # type: ignore[union-attr]
        else:
            with client.stream("hi") as stream:
                list(stream)
            assert stream.text == "hi"

    assert tokens_at(server) == ["t1", "t2"]


def test_a_new_token_that_is_refused_too_is_the_end(server: Peer, token_server: Peer, agent: StrictAgent) -> None:
    agent.good = set()
    with Client(server.card(), auth=credentials(token_server)) as client, pytest.raises(UnauthenticatedError):
        client.get_task("t-1")

    assert tokens_at(server) == ["t1", "t2"]


def test_a_function_is_asked_again_when_its_token_is_refused(server: Peer, agent: StrictAgent) -> None:
    agent.good = {"fresh"}
    now = ["old"]

    def token() -> str:
        before, now[0] = now[0], "fresh"
        return before

    with Client(server.card(), auth=token) as client:
        client.get_task("t-1")
    assert tokens_at(server) == ["old", "fresh"]

    with Client(server.card(), auth=lambda: "stale") as client, pytest.raises(UnauthenticatedError):
        client.get_task("t-1")
    assert tokens_at(server)[2:] == ["stale"], "the same token is not sent again"


def test_many_threads_fetch_one_token(server: Peer, token_server: Peer, issuer: TokenServer) -> None:
    issuer.hold.clear()
    done: list[Any] = []
    with Client(server.card(), auth=credentials(token_server)) as client:
        callers = [threading.Thread(target=lambda: done.append(client.get_task("t-1")), daemon=True) for _ in range(6)]
        for caller in callers:
            caller.start()
        issuer.hold.set()
        for caller in callers:
            caller.join(60)

    assert len(done) == 6
    assert len(token_server.asked) == 1


def test_the_limit_of_a_call_holds_for_the_token_too(server: Peer, token_server: Peer, issuer: TokenServer) -> None:
    issuer.hold.clear()
    with Client(server.card(), auth=credentials(token_server), retry=None) as client:
        with pytest.raises(TransportTimeoutError) as caught:
            client.get_task("t-1", timeout=0.2)
        issuer.hold.set()

    assert caught.value.phase == "token"
    assert server.asked == []


REFUSALS: dict[str, tuple[int, Any, str]] = {
    "an OAuth error": (
        401,
        {"error": "invalid_client", "error_description": "no such client"},
        "invalid_client: no such client",
    ),
    "an error without words": (500, {}, "HTTP 500"),
    "no JSON": (502, b"<html>", "HTTP 502 without JSON"),
    "a list": (200, b"[]", "HTTP 200 without JSON"),
    "no token": (200, b'{"token_type": "Bearer"}', "HTTP 200"),
    "another kind": (200, b'{"access_token": "x", "token_type": "mac"}', "another type"),
    "a token with a line break": (200, b'{"access_token": "s3\\nX: y"}', "not valid in a header"),
    "an empty token": (200, b'{"access_token": ""}', "not valid in a header"),
}


@pytest.mark.parametrize(("code", "answer", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_without_a_token_the_call_says_why(
    server: Peer, token_server: Peer, issuer: TokenServer, code: int, answer: Any, says: str
) -> None:
    issuer.status, issuer.answer = code, answer
    if code == 200:
        assert isinstance(answer, bytes)
    with (
        Client(server.card(), auth=credentials(token_server)) as client,
        pytest.raises(TokenError, match=says) as caught,
    ):
        client.get_task("t-1")

    assert (caught.value.phase, caught.value.agent) == ("token", token_server.url + "/token")
    assert SECRET not in f"{caught.value} {caught.value!r}"
    assert (len(token_server.asked), server.asked) == (1, [])


def test_a_life_of_a_token_that_is_no_time_is_a_long_one(server: Peer, issuer: TokenServer, token_server: Peer) -> None:
    issuer.answer = {"expires_in": 10**400}
    with Client(server.card(), auth=credentials(token_server)) as client:
        client.get_task("t-1")
        client.get_task("t-1")

    assert tokens_at(server) == ["t1", "t1"]


def test_a_token_server_that_is_not_there_is_said(server: Peer, token_server: Peer) -> None:
    token_server.refuse()
    with Client(server.card(), auth=credentials(token_server), retry=None) as client, pytest.raises(TransportError):
        client.get_task("t-1")

    assert server.asked == []


@pytest.mark.parametrize(
    "form", [SECRET_WITH_SIGNS, "s3%2F+cret%2B", "s3/%20cret%2B", base64.b64encode(b"robot:s3%2F+cret%2B").decode()]
)
def test_a_secret_that_the_token_server_repeats_is_not_shown(server: Peer, form: str) -> None:
    text = f"{'x' * 180} you sent {form}\r\n\x1b[31m"

    def repeat(asked: Asked, line: Line) -> None:
        line.answer({"error": "invalid_client", "error_description": text}, 401)

    with peer(repeat) as tokens:
        auth = ClientCredentials(tokens.url + "/token", "robot", SECRET_WITH_SIGNS)
        with Client(server.card(), auth=auth) as client, pytest.raises(TokenError, match=r"you sent \*\*\* ") as caught:
            client.get_task("t-1")

    assert "cret" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_redirect_does_not_get_the_secret(server: Peer) -> None:
    with peer(lambda asked, line: line.answer(b"{}", 307, Location="/elsewhere")) as moved:
        with Client(server.card(), auth=credentials(moved)) as client, pytest.raises(TokenError, match="HTTP 307"):
            client.get_task("t-1")
        assert [asked.path for asked in moved.asked] == ["/token"]


def test_no_token_goes_to_another_origin(server: Peer, token_server: Peer) -> None:
    card = json.dumps(
        {
            "name": "x",
            "supportedInterfaces": [{"url": server.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        }
    ).encode()
    with (
        peer(lambda asked, line: line.answer(card)) as home,
        Client(home.url, auth=credentials(token_server)) as client,
        pytest.raises(AgentError),
    ):
        client.get_task("t-1")

    assert home.asked[0].headers["authorization"] == "Bearer t1"
    assert "authorization" not in server.asked[0].headers


def test_it_goes_together_with_others(server: Peer, token_server: Peer, agent: StrictAgent) -> None:
    agent.good = {"t2"}
    both = {"oauth": credentials(token_server), "key": ApiKey("k3y")}
    with Client(server.card(), auth=both) as client:
        client.get_task("t-1")

    assert tokens_at(server) == ["t1", "t2"]


def test_no_repr_shows_a_secret(token_server: Peer) -> None:
    auth = ClientCredentials("https://id.example.com/token?key=s3cret", "robot", SECRET)

    assert repr(auth) == "ClientCredentials('https://id.example.com/token')"
    assert SECRET not in repr(Client("http://a.test", auth=auth))


@pytest.mark.parametrize(
    "url", ["ftp://id.example.com/", "id.example.com", "", "https:///token", "https://u:p@id.test/"]
)
def test_a_url_that_cannot_be_called_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="token_url "):
        ClientCredentials(url, "robot", SECRET)


def test_it_is_for_the_client_only(token_server: Peer) -> None:
    import requests

    with pytest.raises(TypeError, match=r"is for Client\(auth=…\)"):
        requests.get(token_server.url, auth=credentials(token_server), timeout=60)


def test_a_token_that_one_agent_refuses_is_there_for_a_request_to_another_that_is_being_prepared() -> None:
    fetched = itertools.count(1)
    shared = ClientCredentials("https://tokens.example/", "id", SECRET)

    def post(*_: Any) -> tuple[int, bytes]:
        return 200, json.dumps({"access_token": f"t{next(fetched)}"}).encode()

    shared.prepare(post, NEVER)
    shared.refresh_after_refusal("Bearer t1")
    request = shared(requests.Request("POST", "https://agent.example/").prepare())
    assert request.headers["Authorization"] == "Bearer t1"
    shared.prepare(post, NEVER)
    assert shared(request).headers["Authorization"] == "Bearer t2"
