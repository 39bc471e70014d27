"""Where credentials are put: the card says it, wherever they do not say it themselves."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from requests.auth import HTTPBasicAuth

from a2a_sync import Client
from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    ClientCredentialsOAuthFlow,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
)
from a2a_sync.client import ApiKey
from a2a_sync.errors import UnauthenticatedError
from tests.client.peer import Asked, Line, Peer, Script, peer, results, task

BASIC = "Basic " + base64.b64encode(b"ada:pw").decode()
SCHEMES: dict[str, SecurityScheme] = {
    "key": APIKeySecurityScheme(location="header", name="X-Key"),
    "query": APIKeySecurityScheme(location="query", name="key"),
    "cookie": APIKeySecurityScheme(location="cookie", name="key"),
    "bearer": HTTPAuthSecurityScheme(scheme="bearer"),
    "basic": HTTPAuthSecurityScheme(scheme="Basic"),
    "stamp": HTTPAuthSecurityScheme(scheme="Stamp"),
    "oauth": OAuth2SecurityScheme(flow=ClientCredentialsOAuthFlow(token_url="https://id.example.com/token")),
    "oidc": OpenIdConnectSecurityScheme(open_id_connect_url="https://id.example.com/"),
    "mtls": MutualTlsSecurityScheme(),
}


@pytest.fixture
def server() -> Iterator[Peer]:
    with peer({"GetTask": results(task())}) as one:
        yield one


def asking(server: Peer, *alternatives: str) -> AgentCard:
    """The card of `server`, which asks for one of these; schemes that belong together are joined by a plus."""
    requirements = tuple(SecurityRequirement(schemes=dict.fromkeys(one.split("+"), ())) for one in alternatives)
    return replace(server.card(), security_schemes=SCHEMES, security_requirements=requirements)


def sent(server: Peer, auth: Any, *alternatives: str) -> dict[str, str]:
    """The credentials in the one request."""
    with Client(asking(server, *alternatives), auth=auth) as client:
        client.get_task("t-1")
    asked = server.asked[-1]
    found = {
        name: asked.headers[name] for name in ("authorization", "x-key", "x-api-key", "cookie") if name in asked.headers
    }
    query = asked.path.partition("?")[2]
    return {**found, **({"query": query} if query else {})}


@pytest.mark.parametrize(
    ("alternatives", "expected"),
    [
        ([], {"authorization": "Bearer t0ken"}),
        (["bearer"], {"authorization": "bearer t0ken"}),
        (["oauth"], {"authorization": "Bearer t0ken"}),
        (["oidc"], {"authorization": "Bearer t0ken"}),
        (["stamp"], {"authorization": "Stamp t0ken"}),
        (["key"], {"x-key": "t0ken"}),
        (["query"], {"query": "key=t0ken"}),
        (["cookie"], {"cookie": "key=t0ken"}),
        (["key", "oauth"], {"authorization": "Bearer t0ken"}),
        (["mtls", "key"], {"x-key": "t0ken"}),
        (["key+basic", "query"], {"query": "key=t0ken"}),
        (["key+bearer"], {"authorization": "Bearer t0ken"}),
        (["unknown"], {"authorization": "Bearer t0ken"}),
    ],
)
@pytest.mark.parametrize("given", ["t0ken", lambda: "t0ken"], ids=["token", "function"])
def test_a_token_goes_where_the_card_wants_it(
    server: Peer, given: Any, alternatives: list[str], expected: dict[str, str]
) -> None:
    assert sent(server, given, *alternatives) == expected


@pytest.mark.parametrize(
    ("key", "alternatives", "expected"),
    [
        (ApiKey("k3y"), ["key"], {"x-key": "k3y"}),
        (ApiKey("k3y"), ["bearer", "query"], {"query": "key=k3y"}),
        (ApiKey("k3y"), ["bearer"], {"x-key": "k3y"}),
        (ApiKey("k3y", header="X-API-Key"), ["query"], {"x-api-key": "k3y"}),
        (ApiKey("k 3&y", query="key"), ["key"], {"query": "key=k+3%26y"}),
        (ApiKey("k3y", cookie="session"), ["key"], {"cookie": "session=k3y"}),
    ],
)
def test_a_key_goes_where_it_says_itself_else_where_the_card_wants_it(
    server: Peer, key: ApiKey, alternatives: list[str], expected: dict[str, str]
) -> None:
    assert sent(server, key, *alternatives) == expected


def test_a_key_that_no_card_has_a_place_for_goes_into_the_usual_header(server: Peer) -> None:
    with Client(server.card(), auth=ApiKey("k3y")) as client:
        client.get_task("t-1")

    assert server.asked[0].headers["x-api-key"] == "k3y"


@pytest.mark.parametrize("auth", [("ada", "pw"), HTTPBasicAuth("ada", "pw")])
def test_what_says_itself_how_it_is_sent_is_sent_so(server: Peer, auth: Any) -> None:
    assert sent(server, auth, "key") == {"authorization": BASIC}


EVERYTHING = {"key": "k3y", "basic": ("ada", "pw"), "query": ApiKey("q"), "mtls": "file"}


@pytest.mark.parametrize(
    ("alternatives", "expected"),
    [
        (["key"], {"x-key": "k3y"}),
        (["oauth", "basic"], {"authorization": BASIC}),
        (["key+basic"], {"x-key": "k3y", "authorization": BASIC}),
        (["key+oauth", "key+query"], {"x-key": "k3y", "query": "key=q"}),
        (["mtls+key"], {"x-key": "k3y"}),
    ],
)
def test_of_several_credentials_those_are_sent_that_fulfil_an_alternative(
    server: Peer, alternatives: list[str], expected: dict[str, str]
) -> None:
    assert sent(server, EVERYTHING, *alternatives) == expected


def test_credentials_that_satisfy_nothing_are_named_in_the_error(server: Peer) -> None:
    with (
        Client(asking(server, "oauth+key", "bearer"), auth={"key": "s3cret"}) as client,
        pytest.raises(ValueError, match="for key; the agent requires oauth and key or bearer") as caught,
    ):
        client.get_task("t-1")

    assert "s3cret" not in str(caught.value)
    assert server.asked == []


def test_without_requirements_all_that_is_given_is_sent(server: Peer) -> None:
    assert sent(server, {"key": "k3y", "basic": ("ada", "pw")}) == {"x-key": "k3y", "authorization": BASIC}


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "a b", "x\r\ny", ""])
def test_a_card_has_no_say_over_other_headers(server: Peer, name: str) -> None:
    schemes = {"key": APIKeySecurityScheme(location="header", name=name)}
    card = replace(asking(server, "key"), security_schemes=schemes)
    with (
        Client(card, auth="k3y") as client,
        pytest.raises(ValueError, match=r"the header .* cannot contain an API key"),
    ):
        client.get_task("t-1")

    assert server.asked == []


def test_before_there_is_a_card_only_what_is_clear_is_sent() -> None:
    def card(asked: Asked, line: Line) -> None:
        line.answer(
            {
                "name": "x",
                "supportedInterfaces": [{"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
                "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
                "securityRequirements": [{"schemes": {"key": {}}}],
            }
        )

    scripts: dict[str, Script] = {"/.well-known/agent-card.json": card, "GetTask": results(task())}
    for auth in (ApiKey("k3y"), {"key": "k3y"}):
        with peer(scripts) as server, Client(server.url, auth=auth) as client:  # type: ignore[arg-type]
            client.get_task("t-1")
        assert "x-key" not in server.asked[0].headers
        assert server.asked[1].headers["x-key"] == "k3y"


@pytest.mark.parametrize("auth", [7, ("a",), ("a", "b", "c"), b"t", {"key": 7}, {"key": None}, {"key": {"a": "b"}}])
def test_what_stands_for_no_credentials_is_refused_at_once(auth: Any) -> None:
    with pytest.raises(TypeError, match="auth takes"):
        Client("http://a.test", auth=auth)


@pytest.mark.parametrize(
    ("key", "options"), [("k\n", {}), ("", {"header": "a", "query": "b"}), ("k", {"header": "Host"})]
)
def test_a_key_that_cannot_be_sent_is_refused_at_once(key: str, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be printable|one of header=|cannot contain"):
        ApiKey(key, **options)


def test_no_repr_shows_a_key() -> None:
    shown = repr([ApiKey("s3cret"), ApiKey("s3cret", query="k"), Client("http://a.test", auth=ApiKey("s3cret"))])

    assert "s3cret" not in shown
    assert "query='k'" in shown


def test_a_refusal_says_what_the_agent_asks_for(server: Peer) -> None:
    def refuse(asked: Asked, line: Line) -> None:
        line.error(-31401, "credentials are required", 401, WWW_Authenticate='Bearer realm="agent"')

    with (
        peer({"GetTask": refuse}) as strict,
        Client(strict.card()) as client,
        pytest.raises(UnauthenticatedError) as caught,
    ):
        client.get_task("t-1")

    assert caught.value.challenges == ('Bearer realm="agent"',)
    assert len(strict.asked) == 1
