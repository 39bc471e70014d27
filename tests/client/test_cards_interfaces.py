"""Which interface of a card is called: preferences, and failover when one cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, Client
from a2a_sync.card import AgentInterface
from a2a_sync.client.cards import InterfaceFilter, fallback_interfaces, usable_interfaces
from a2a_sync.client.endpoint import FailoverEndpoint
from a2a_sync.errors import ConnectError, TransportTimeoutError, UnsupportedOperationError, VersionNotSupportedError
from a2a_sync.operations import GET_TASK, Call, CallContext, Endpoint
from a2a_sync.testing import wsgi_session
from a2a_sync.types import GetTaskRequest
from tests.client.peer import Peer, peer, results, task

OFFERS = (
    AgentInterface(url="http://a.test/grpc", protocol_binding="SLIMRPC", protocol_version="1.0"),
    AgentInterface(url="http://a.test/old", protocol_binding="JSONRPC", protocol_version="0.3.0"),
    AgentInterface(url="http://a.test/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
    AgentInterface(url="http://a.test/rest", protocol_binding="http+json", protocol_version="1.0"),
    AgentInterface(url="http://a.test/rest2", protocol_binding="HTTP+JSON", protocol_version="1.0"),
)
CARD = AgentCard(name="n", description="d", version="1", supported_interfaces=OFFERS)


# -- preferences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefer", "chosen"),
    [
        ([], "old"),
        (["HTTP+JSON"], "rest"),
        (["http+json 1.0", "JSONRPC"], "rest"),
        (["1.0"], "rpc"),
        (["1.0.7"], "rpc"),
        (["1.0 JSONRPC"], "rpc"),
        (["0.3", "1.0"], "old"),
        (["JSONRPC 1.0", "JSONRPC 0.3"], "rpc"),
        (["http://a.test/rest2", "JSONRPC"], "rest2"),
        (["http://elsewhere.test/", "1.0"], "rpc"),
        (["http://a.test/rest2 0.3", "1.0"], "rpc"),
    ],
)
def test_the_first_preference_that_the_card_lists_is_called(prefer: list[str], chosen: str) -> None:
    assert usable_interfaces(CARD, InterfaceFilter.of(None, None, prefer))[0].url == f"http://a.test/{chosen}"
    client = Client(CARD, prefer=prefer)
    assert repr(client) == f"Client('http://a.test/{chosen}')"
    client.close()


def test_a_preference_does_not_insist_but_version_and_binding_do() -> None:
    assert usable_interfaces(CARD, InterfaceFilter.of("0.3", None, ["HTTP+JSON"]))[0].url == "http://a.test/old"
    assert (
        usable_interfaces(CARD, InterfaceFilter.of(None, "http+json", ["1.0 JSONRPC"]))[0].url == "http://a.test/rest"
    )
    with pytest.raises(VersionNotSupportedError):
        usable_interfaces(CARD, InterfaceFilter.of("7.0", None, ["1.0"]))


@pytest.mark.parametrize("prefer", [["REST"], ["JSONRPC 2.0"], ["SLIMRPC"], ["json-rpc", "1.0"]])
def test_a_preference_that_nothing_can_meet_is_a_mistake(prefer: list[str]) -> None:
    with pytest.raises(ValueError, match="is no URL and none of"):
        Client(CARD, prefer=prefer)


def test_one_string_is_no_list() -> None:
    with pytest.raises(TypeError, match="not one string"):
        Client(CARD, prefer="1.0")


def test_a_client_may_call_for_a_tenant_of_its_own() -> None:
    with peer({"GetTask": results(task())}) as server:
        with Client(server.card(tenant="acme"), tenant="globex") as client:
            client.get_task("t-1")
            client.get_task("t-1", tenant="third")
            client.get_task("t-1", tenant="")
        with Client(server.card(tenant="acme"), tenant="") as client:
            client.get_task("t-1")
        old = replace(server.card().supported_interfaces[0], protocol_version="0.3")
        card = replace(server.card(), supported_interfaces=(old,))
        with Client(card, tenant="acme") as client, pytest.raises(UnsupportedOperationError, match="no tenants"):
            client.get_task("t-1")
    assert [asked.params.get("tenant") for asked in server.asked] == ["globex", "third", None, None]


# -- failover -----------------------------------------------------------------------------------------------------------


def interface(url: str, **members: Any) -> AgentInterface:
    return replace(AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"), **members)


@pytest.mark.parametrize(
    ("first", "other", "stands_in"),
    [
        (interface("http://a.test/x"), interface("http://b.test/x"), True),
        (interface("http://a.test/x"), interface("http://a.test:81/x"), True),
        (interface("http://a.test/x"), interface("http://b.test/x", protocol_binding="HTTP+JSON"), True),
        (interface("http://a.test/x"), interface("https://a.test/x"), True),
        (interface("https://a.test/x"), interface("http://b.test/x"), False),
        (interface("http://a.test/x"), interface("http://a.test/y"), False),
        (interface("http://a.test/x"), interface("http://b.test/x", protocol_version="0.3"), False),
        (interface("http://a.test/x"), interface("http://b.test/x", tenant="acme"), False),
    ],
)
def test_only_what_is_elsewhere_as_safe_and_of_the_same_kind_stands_in(
    first: AgentInterface, other: AgentInterface, stands_in: bool
) -> None:
    assert fallback_interfaces(first, [other]) == ([other] if stands_in else [])


@pytest.fixture
def dead() -> Iterator[str]:
    """A URL that accepts no connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/rpc"


@pytest.fixture
def server() -> Iterator[Peer]:
    with peer({"GetTask": results(task("COMPLETED"))}) as server:
        yield server


def card_of(server: Peer, *before: str) -> AgentCard:
    card = server.card()
    return replace(card, supported_interfaces=(*map(interface, before), *card.supported_interfaces))


def test_where_one_address_takes_no_connection_the_next_is_called_and_kept(server: Peer, dead: str) -> None:
    with Client(card_of(server, dead), retry=None) as client:
        for _ in range(3):
            assert client.get_task("t-1").id == "t-1"
    assert len(server.asked) == 3


def test_credentials_and_headers_are_for_one_address_so_no_other_stands_in(server: Peer, dead: str) -> None:
    for secret in ({"auth": "t0ken"}, {"headers": {"X-Api-Key": "k3y"}}):
        with Client(card_of(server, dead), retry=None, **secret) as client, pytest.raises(ConnectError):  # type: ignore[arg-type]
            client.get_task("t-1")
    assert server.asked == []


def test_what_may_have_arrived_is_sent_nowhere_else() -> None:
    with peer({"GetTask": lambda asked, line: line.hang_up()}) as first, peer({}) as second:
        card = card_of(second, first.url)
        with Client(card, retry=None) as client, pytest.raises(Exception, match="broke"):
            client.get_task("t-1")
        assert (len(first.asked), second.asked) == (1, [])
    with peer({"GetTask": lambda asked, line: line.await_close()}) as first, peer({}) as second:
        card = card_of(second, first.url)
        with Client(card, retry=None) as client, pytest.raises(TransportTimeoutError):
            client.get_task("t-1", timeout=0.2)
        assert second.asked == []


def test_where_none_takes_a_connection_the_first_one_s_error_is_raised(dead: str) -> None:
    with peer({}) as other:
        card = card_of(other, dead)
    with Client(card, retry=None) as client, pytest.raises(ConnectError) as caught:
        client.get_task("t-1")
    assert caught.value.agent == dead


def test_all_addresses_share_the_time_limits_of_a_call() -> None:
    seen: list[tuple[float | None, float | None]] = []

    def refuse(call: Call) -> Any:
        seen.append((call.context.timeout, call.context.opening))
        raise ConnectError("no", phase="connect", agent="a")

    call = Call(GET_TASK, GetTaskRequest(id="t"), CallContext(timeout=10.0, opening=5.0))
    with pytest.raises(ConnectError):
        FailoverEndpoint([refuse] * 3)(call)
    assert seen[0] == (10.0, 5.0)
    assert all(later[at] < sooner[at] for sooner, later in pairwise(seen) for at in (0, 1))  # type: ignore[operator]


def test_few_of_very_many_addresses_are_called() -> None:
    others = [interface(f"http://b.test:{port}/") for port in range(1, 1001)]
    assert fallback_interfaces(interface("http://a.test/"), others) == others[:4]


# -- what comes with an answer ------------------------------------------------------------------------------------------


def test_an_interceptor_reads_the_headers_of_an_answer() -> None:
    seen: list[dict[str, str]] = []

    def reading(endpoint: Endpoint) -> Endpoint:
        def read(call: Call) -> Any:
            headers: dict[str, str] = {}
            try:
                return endpoint(replace(call, context=replace(call.context, answer_headers=headers)))
            finally:
                seen.append(headers)

        return read

    def answer(asked: Any, line: Any) -> None:
        line.result(task(), A2A_Extensions="urn:a", X_Rate="7")

    with peer({"GetTask": answer}) as server, Client(server.card(), interceptors=[reading]) as client:
        client.get_task("t-1", extensions=["urn:a"])
    assert (seen[0]["a2a-extensions"], seen[0]["x-rate"]) == ("urn:a", "7")


@pytest.mark.parametrize(
    ("binding", "version"), [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
)
@pytest.mark.parametrize("streaming", [True, False])
def test_an_endpoint_without_a_card_is_called_as_it_is(binding: str, version: str, streaming: bool) -> None:
    agent = Agent("bare")
    agent.message(lambda message, context: (piece for piece in ("he", "llo")))
    paths: list[str] = []
    with A2AApp(agent) as app:

        def without_card(environ: Any, start_response: Any) -> Any:
            paths.append(environ["PATH_INFO"])
            return app(environ, start_response)

        with Client.for_endpoint(
            "http://bare.test/",
            protocol_binding=binding,
            protocol_version=version,
            streaming=streaming,
            session=wsgi_session(without_card),
            auth="t0ken",
        ) as client:
            assert client.send("hi").text == "hello"
            with client.stream("hi") as stream:
                assert (len(list(stream)) > 1) is streaming
            assert stream.text == "hello"
    assert not [path for path in paths if path.endswith(".json")]


def test_what_is_no_endpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client.for_endpoint("bare.test")
    with pytest.raises(VersionNotSupportedError):
        Client.for_endpoint("http://bare.test", protocol_version="2.0")
    with pytest.raises(VersionNotSupportedError):
        Client.for_endpoint("http://bare.test", protocol_binding="SOAP")
