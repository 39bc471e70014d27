"""Clients and registries that call only where their guard allows: by the text of a URL, and by the address connected to."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import requests

from a2a_sync import Client, URLGuard
from a2a_sync.client import ClientCredentials
from a2a_sync.errors import ConnectError, HTTPStatusError, UnsafeURLError
from a2a_sync.multiagent import AgentRegistry
from tests.client.peer import Peer, Script, peer, results, task

CARD = "/.well-known/agent-card.json"
SKILL = {"id": "fly", "name": "Fly", "description": "Flies", "tags": ["t"]}


def leads_to(url: str) -> Script:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return lambda asked, line: line.answer({"name": "x", "supportedInterfaces": [interface], "skills": [SKILL]})


def only(server: Peer) -> URLGuard:
    """A guard for one server of loopback."""
    return URLGuard().trusting(server.url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/", "http://localhost/", "http://169.254.169.254/", "http://[::1]/"]
)
def test_a_target_in_a_private_network_is_refused_at_once(url: str) -> None:
    with pytest.raises(UnsafeURLError):
        Client(url, url_guard=URLGuard())


def test_what_the_guard_allows_is_called() -> None:
    table = {CARD: leads_to("/rpc"), "GetTask": results(task())}
    with peer(table) as server, Client(server.url, url_guard=only(server)) as client:
        assert client.get_task("t-1").id == "t-1"


def test_an_interface_in_a_private_network_is_not_called() -> None:
    with peer({"GetTask": results(task())}) as inside, peer({CARD: leads_to(inside.url)}) as home:
        with (
            Client(home.url, url_guard=only(home), retry=None) as client,
            pytest.raises(ConnectError, match="private or reserved"),
        ):
            client.get_task("t-1")
        assert inside.connections == 0


def test_a_redirect_into_a_private_network_is_not_followed() -> None:
    with peer({"/x": leads_to("/rpc")}) as inside:
        moved = {CARD: lambda asked, line: line.answer(b"", 302, Location=inside.url + "/x")}
        with (
            peer(moved) as home,
            Client(home.url, url_guard=only(home), retry=None) as client,
            pytest.raises(ConnectError, match="private or reserved"),
        ):
            client.card()
        assert inside.connections == 0


def test_a_name_that_leads_into_a_private_network_is_not_called() -> None:
    def resolve(host: str, port: int, *_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with peer({CARD: leads_to("/rpc")}) as server:
        url = f"http://agent.example.com:{server.port}"
        guard = URLGuard(resolve=resolve)
        with (
            Client(url, url_guard=guard, retry=None) as client,
            pytest.raises(ConnectError, match="private or reserved"),
        ):
            client.card()
        assert server.connections == 0
        with Client(url, url_guard=URLGuard(["agent.example.com"], resolve=resolve), retry=None) as client:
            assert client.card().name == "x"


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer({CARD: leads_to("/rpc")}) as server, peer({}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        with Client(server.url, url_guard=only(server), retry=None) as client:
            assert client.card().name == "x"
        assert proxy.connections == 0


def test_the_token_server_is_the_users_own_word() -> None:
    def token(asked: Any, line: Any) -> None:
        line.answer({"access_token": "t0ken", "token_type": "Bearer"})

    with peer(token) as tokens, peer({CARD: leads_to("/rpc"), "GetTask": results(task())}) as server:
        auth = ClientCredentials(tokens.url + "/token", "robot", "s3cret")
        with Client(server.url, url_guard=only(server), auth=auth, retry=None) as client:
            client.get_task("t-1")
        assert server.asked[-1].headers["authorization"] == "Bearer t0ken"


def test_a_session_of_the_users_own_cannot_be_guarded() -> None:
    with requests.Session() as session, pytest.raises(ValueError, match="leave session out"):
        Client("http://agent.example.com", url_guard=URLGuard(), session=session)


# -- registries ---------------------------------------------------------------------------------------------------------


def test_a_registry_calls_what_was_registered_and_nothing_else_of_a_private_network() -> None:
    with peer({"GetTask": results(task())}) as inside, peer({CARD: leads_to(inside.url)}) as home:
        with AgentRegistry() as registry:
            registry.register("far", home.url, retry=None)
            assert registry.find_agents_with_skill("fly") == ["far"]
            with pytest.raises(ConnectError, match="private or reserved"):
                registry.get_task("far", "t-1")
            assert inside.connections == 0

            with pytest.raises(UnsafeURLError):
                registry.register("card", inside.card())
        with AgentRegistry(url_guard=None) as registry:
            registry.register("far", home.url, retry=None)
            assert registry.get_task("far", "t-1").id == "t-1"
            registry.register("card", inside.card())
            assert registry.get_task("card", "t-1").id == "t-1"


def test_a_registry_takes_a_guard_of_its_own() -> None:
    with (
        peer({"GetTask": lambda asked, line: line.answer(b"", 500)}) as inside,
        AgentRegistry(url_guard=URLGuard(["127.0.0.1"])) as registry,
    ):
        registry.register("card", inside.card(), retry=None)
        with pytest.raises(HTTPStatusError):
            registry.get_task("card", "t-1")
