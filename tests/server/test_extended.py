"""The extended card: which caller gets which card, what the app adds to it, and the error if there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill
from a2a_sync.auth import BearerAuth
from a2a_sync.card import (
    AgentCapabilities,
    AgentInterface,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    create_agent_card,
)
from a2a_sync.codec import by_version
from a2a_sync.operations import GET_EXTENDED_CARD, Call, CallContext, Principal
from a2a_sync.server.extended import CardContext, ExtendedCard
from a2a_sync.types import GetExtendedAgentCardRequest
from a2a_sync.wsgi.options import HTTPOptions
from tests.wsgi import CARD, HOST, Answer, Peer, rpc

pytestmark = pytest.mark.timeout(60)

SECRET = AgentSkill(id="secret", name="Secret", description="For authenticated callers", tags=("inside",))
EXTENDED = AgentCard(name="greeter", description="Greets its friends", version="2.0.0", skills=(SECRET,))
METHODS = {"1.0": "GetExtendedAgentCard", "0.3": "agent/getAuthenticatedExtendedCard"}

Serve = Callable[..., Peer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Peers of apps over one agent, with these options."""
    apps: list[A2AApp] = []

    def make(extended_card: Any = None, **options: Any) -> Peer:
        agent = Agent("greeter", description="Greets", skills=[replace(SECRET, id="greet")])
        agent.message(lambda message, context: "hello")
        app = A2AApp(agent, extended_card=extended_card, **options)
        apps.append(app)
        return Peer(app)

    yield make
    for app in apps:
        app.close(0)


def ask(peer: Peer, version: str, user: str = "", **params: Any) -> Answer:
    """The operation over JSON-RPC."""
    environ = {"a2a_sync.principal": user}
    return peer.post(rpc(METHODS[version], params), headers={"A2A-Version": version}, environ=environ)


def get(peer: Peer, path: str = "/extendedAgentCard", user: str = "", **headers: str) -> Answer:
    """The operation over HTTP+JSON."""
    environ = {"a2a_sync.principal": user}
    return peer.request("GET", path, headers={"A2A-Version": "1.0", **headers}, environ=environ)


def read(answer: Answer, version: str = "1.0") -> AgentCard:
    """The card in an answer; a member of another version would be refused by the strict reader of this one."""
    document = answer.json.get("result", answer.json)
    card: AgentCard = by_version(version).load(AgentCard, document)
    return card


# -- what is in it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_card_of_the_author_is_given_with_the_addresses_and_abilities_of_the_app(version: str, serve: Serve) -> None:
    claimed = replace(
        EXTENDED,
        supported_interfaces=(AgentInterface(url="http://no.test", protocol_binding="GRPC", protocol_version="1.0"),),
        capabilities=AgentCapabilities(push_notifications=True),
    )
    peer = serve(claimed)

    card = read(ask(peer, version), version)

    public = read(peer.request("GET", CARD, headers={"A2A-Version": version}), version)
    assert (card.description, card.version, card.skills) == ("Greets its friends", "2.0.0", (SECRET,))
    assert card.supported_interfaces == public.supported_interfaces
    assert card.capabilities == public.capabilities
    assert card.capabilities.extended_agent_card is True


def test_over_http_json_it_is_the_card_of_its_version_and_not_cached(serve: Serve) -> None:
    answer = get(serve(EXTENDED))

    assert read(answer).skills == (SECRET,)
    assert not {"url", "supportsAuthenticatedExtendedCard"} & answer.json.keys()
    assert answer.headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("url", [None, "https://agents.test/greeter"])
def test_its_address_is_that_of_the_public_card_wherever_the_app_is_mounted(url: str | None, serve: Serve) -> None:
    environ = {"SCRIPT_NAME": "/agents"}
    headers = {"A2A-Version": "1.0", "Host": "other.test"}
    answer = serve(EXTENDED, url=url).request("GET", "/extendedAgentCard", headers=headers, environ=environ)

    expected = "http://other.test/agents" if url is None else "https://agents.test/greeter"
    assert {one.url for one in read(answer).supported_interfaces} == {expected, expected + "/"}


def test_a_host_that_is_not_served_gets_no_card(serve: Serve) -> None:
    peer = serve(EXTENDED, http=HTTPOptions(trusted_hosts=[HOST]))

    answer = peer.request("GET", "/extendedAgentCard", headers={"A2A-Version": "1.0", "Host": "evil.test"})

    assert (answer.status, answer.json["error"]["message"]) == (400, "this host is not served here")
    assert get(peer).status == 200


# -- cards per caller -----------------------------------------------------------------------------------------------------


def by_caller(context: CardContext) -> AgentCard | None:
    if context.user is None:
        return None
    said = f"{context.user.id} of {context.tenant or 'no tenant'} in {context.version}: {context.headers.get('x-role')}"
    return replace(EXTENDED, description=said)


def test_each_caller_gets_a_card_of_their_own(serve: Serve) -> None:
    peer = serve(by_caller)

    assert read(ask(peer, "1.0", "ada", tenant="acme")).description == "ada of acme in 1.0: None"
    assert read(ask(peer, "0.3", "bob"), "0.3").description == "bob of no tenant in 0.3: None"
    assert read(get(peer, user="eve", **{"X-Role": "boss"})).description == "eve of no tenant in 1.0: boss"


@pytest.mark.parametrize("path", ["/acme/extendedAgentCard", "/extendedAgentCard?tenant=acme"])
def test_the_tenant_stands_in_the_path_or_in_the_query(path: str, serve: Serve) -> None:
    assert read(get(serve(by_caller), path, user="ada")).description.startswith("ada of acme")


def test_a_caller_may_get_none(serve: Serve) -> None:
    peer = serve(by_caller)

    for version in METHODS:
        assert ask(peer, version).error["code"] == -32007
    answer = get(peer)
    assert (answer.status, answer.json["error"]["details"][0]["reason"]) == (400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")


def test_where_the_card_asks_for_credentials_no_caller_gets_it_without(serve: Serve) -> None:
    scheme = {"bearer": HTTPAuthSecurityScheme(scheme="Bearer")}
    asking = create_agent_card("a", "b", skills={"c": "d"}, security_schemes=scheme, security=["bearer"])
    # The host of the app authenticates callers.
    peer = serve(EXTENDED, card=asking)

    assert [ask(peer, version).status for version in METHODS] == [401, 401]
    assert ask(peer, "1.0").error["code"] == -31401
    assert get(peer).status == 401
    assert read(get(peer, user="ada")).version == "2.0.0"


@pytest.mark.parametrize("version", METHODS)
def test_an_app_that_authenticates_asks_for_credentials_here_as_well(version: str, serve: Serve) -> None:
    peer = serve(by_caller, auth=BearerAuth({"token-of-ada": "ada"}))

    refused = peer.post(rpc(METHODS[version]), headers={"A2A-Version": version})
    answer = peer.post(rpc(METHODS[version]), headers={"A2A-Version": version, "Authorization": "Bearer token-of-ada"})

    assert (refused.status, refused.headers["WWW-Authenticate"].split()[0]) == (401, "Bearer")
    card = read(answer, version)
    assert card.description.startswith("ada")
    assert card.security_requirements == (SecurityRequirement(schemes={"bearer": ()}),)


def test_in_the_same_process_it_is_asked_for_in_the_same_way() -> None:
    context = CallContext(principal=Principal(id="ada"))
    with A2AApp(Agent("greeter"), extended_card=by_caller, url="https://agents.test") as app:
        card = app.endpoint()(Call(GET_EXTENDED_CARD, GetExtendedAgentCardRequest(), context))

        assert card.description.startswith("ada")
        assert card.supported_interfaces == app.agent_card().supported_interfaces


# -- none ---------------------------------------------------------------------------------------------------------------


def test_without_one_the_card_promises_none_and_the_error_is_that_of_the_version(serve: Serve) -> None:
    peer = serve()

    document = peer.request("GET", CARD).json
    assert "supportsAuthenticatedExtendedCard" not in document
    assert "extendedAgentCard" not in document["capabilities"]
    assert ask(peer, "1.0").error["code"] == -32004
    assert ask(peer, "0.3").error["code"] == -32007
    assert (get(peer).status, get(peer).json["error"]["details"][0]["reason"]) == (400, "UNSUPPORTED_OPERATION")


def test_with_one_the_card_promises_it_to_both_versions(serve: Serve) -> None:
    document = serve(EXTENDED).request("GET", CARD).json

    assert document["supportsAuthenticatedExtendedCard"] is True
    assert document["capabilities"]["extendedAgentCard"] is True


def test_what_is_no_card_is_the_agents_fault_and_an_exception_stays_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(context: CardContext) -> AgentCard:
        raise RuntimeError("a secret")

    assert ask(serve(lambda context: "a card"), "1.0").error["code"] == -32006
    answer = ask(serve(broken), "1.0")
    assert answer.error["code"] == -32603
    assert "secret" not in answer.body.decode()
    assert "a secret" in caplog.text


def test_what_can_never_be_a_card_is_refused_at_the_start() -> None:
    with pytest.raises(TypeError, match="extended_card takes an AgentCard or a function"):
        ExtendedCard("a card")  # type: ignore[arg-type]
