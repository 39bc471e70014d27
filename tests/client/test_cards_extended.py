"""The extended card at the client: asked for only where it is promised, and from then on the client's card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill, Client
from a2a_sync.codec import by_version
from a2a_sync.errors import ExtendedAgentCardNotConfiguredError, UnsupportedOperationError, VersionNotSupportedError
from a2a_sync.server.extended import CardContext
from a2a_sync.testing import wsgi_session
from tests.client.peer import Script, peer, results, task

WIRES = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
URL = "http://agent.test"

Connect = Callable[..., Client]


def extended(context: CardContext) -> AgentCard | None:
    if context.headers.get("x-no-card"):
        return None
    skill = AgentSkill.of("secret", f"For {context.tenant or 'all'}")
    return AgentCard(name="agent", description="more of it", version="2", skills=(skill,))


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Clients of an app with an extended card, over its own wire."""
    agent = Agent("agent", description="some of it")
    agent.message(lambda message, context: message.text)
    clients: list[Client] = []
    with A2AApp(agent, extended_card=extended) as app:

        def make(target: Any = URL, **options: Any) -> Client:
            clients.append(Client(app if target is None else target, session=wsgi_session(app), **options))
            return clients[-1]

        yield make
        for client in clients:
            client.close()


@pytest.mark.parametrize(("binding", "version"), WIRES)
def test_it_replaces_the_public_card_until_that_is_read_again(binding: str, version: str, connect: Connect) -> None:
    client = connect(protocol_binding=binding, protocol_version=version)
    public = client.card()

    found = client.extended_card()

    assert (public.description, found.description) == ("some of it", "more of it")
    assert client.card() is found
    assert client.send("hi").text == "hi"
    assert client.card(refresh=True).description == "some of it"
    assert client.extended_card().skill("secret").description == "For all"


def test_in_the_same_process_it_is_the_same(connect: Connect) -> None:
    client = connect(None)

    assert client.card().description == "some of it"
    assert client.extended_card().description == "more of it"
    assert client.card().description == "more of it"
    assert client.send("hi").text == "hi"


def test_what_was_asked_for_with_marks_of_its_own_is_not_kept(connect: Connect) -> None:
    client = connect()

    assert client.extended_card(tenant="acme").skill("secret").description == "For acme"
    assert client.card().description == "some of it"


def test_a_caller_without_one_gets_an_error_and_keeps_the_public_card(connect: Connect) -> None:
    client = connect(headers={"X-No-Card": "1"})

    with pytest.raises(ExtendedAgentCardNotConfiguredError, match="no extended card for this caller"):
        client.extended_card()
    assert client.card().description == "some of it"


INTERFACE = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
CARD = {"name": "peer", "description": "", "version": "1", "supportedInterfaces": [INTERFACE]}
PATH = "/.well-known/agent-card.json"
ABLE = {**CARD, "capabilities": {"extendedAgentCard": True}}


def answers(value: Any) -> Script:
    return lambda asked, line: line.answer(value)


def test_an_agent_whose_card_promises_none_is_not_asked() -> None:
    with (
        peer({PATH: answers(CARD)}) as server,
        Client(server.url) as client,
        pytest.raises(UnsupportedOperationError, match="'peer' announces no extended card"),
    ):
        client.extended_card()
    assert server.operations == [PATH]


def test_its_addresses_and_abilities_hold_from_then_on() -> None:
    moved = {**ABLE, "supportedInterfaces": [{**INTERFACE, "url": "/inside", "tenant": "acme"}]}
    table = {PATH: answers(ABLE), "GetExtendedAgentCard": results(moved), "GetTask": results(task())}
    with peer(table) as server, Client(server.url) as client:
        client.extended_card()
        client.get_task("t-1")
    assert [(asked.path, asked.params) for asked in server.asked[1:]] == [
        ("/rpc", {}),
        ("/inside", {"id": "t-1", "tenant": "acme"}),
    ]


def test_one_without_addresses_leaves_the_way_as_it_was() -> None:
    bare = {name: value for name, value in ABLE.items() if name != "supportedInterfaces"}
    table = {PATH: answers(ABLE), "GetExtendedAgentCard": results(bare), "GetTask": results(task())}
    with peer(table) as server, Client(server.url) as client:
        assert client.extended_card() == client.card()
        client.get_task("t-1")
    assert server.asked[-1].path == "/rpc"


def test_one_that_leads_nowhere_is_refused_and_the_public_one_stays() -> None:
    grpc = {**ABLE, "supportedInterfaces": [{**INTERFACE, "protocolBinding": "SLIMRPC"}]}
    with peer({PATH: answers(ABLE), "GetExtendedAgentCard": results(grpc)}) as server, Client(server.url) as client:
        public = client.card()
        with pytest.raises(VersionNotSupportedError):
            client.extended_card()
        assert client.card() is public


def test_of_an_old_agent_it_is_read_in_its_own_version() -> None:
    old = {"name": "old", "description": "", "version": "1", "url": "/rpc", "supportsAuthenticatedExtendedCard": True}
    more = by_version("0.3").load(AgentCard, {**old, "description": "more"}, strict=False)
    table = {PATH: answers(old), "agent/getAuthenticatedExtendedCard": results({**old, "description": "more"})}
    with peer(table) as server, Client(server.url) as client:
        found = client.extended_card()
        assert replace(found, supported_interfaces=()) == replace(more, supported_interfaces=())
        assert [one.url for one in found.supported_interfaces] == [server.url + "/rpc"]
