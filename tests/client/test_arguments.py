"""What one call may say besides its own arguments: headers, extensions, a tenant, a time limit; and interceptors around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import AgentCard, Client, TaskNotFoundError, TransportTimeoutError
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.operations import Call, Endpoint
from tests.client.peer import Peer, peer, results, streams, task

DONE = task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": [{"text": "all"}]}])
SCRIPT = {
    "SendMessage": results({"task": DONE}),
    "SendStreamingMessage": streams({"task": DONE}),
    "SubscribeToTask": streams({"task": DONE}),
    "GetTask": results(DONE),
    "CancelTask": results(DONE),
    "ListTasks": results({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}),
}
#: Every method that calls the agent.
CALLS: list[Callable[..., Any]] = [
    lambda client, **options: client.send("hi", **options),
    lambda client, **options: client.send("hi", return_immediately=True, **options),
    lambda client, **options: list(client.stream("hi", **options)),
    lambda client, **options: client.chat().send("hi", **options),
    lambda client, **options: list(client.subscribe("t-1", **options)),
    lambda client, **options: client.get_task("t-1", **options),
    lambda client, **options: client.wait("t-1", **options),
    lambda client, **options: client.cancel_task("t-1", **options),
    lambda client, **options: client.list_tasks(**options),
    lambda client, **options: list(client.iter_tasks(**options)),
]


@pytest.fixture
def server() -> Any:
    with peer(SCRIPT) as server:
        yield server


@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_headers_extensions_and_a_tenant_of_its_own(server: Peer, call: Callable[..., Any]) -> None:
    with Client(server.card(tenant="acme"), headers={"X-One": "1", "X-Two": "2"}, extensions=["urn:a"]) as client:
        call(client, headers={"x-two": "two", "X-Three": "3"}, extensions=["urn:b", "urn:a"], tenant="other")
        marked = server.asked.copy()
        call(client)
        plain = server.asked[len(marked) :]

    for asked in marked:
        assert [asked.headers[f"x-{name}"] for name in ("one", "two", "three")] == ["1", "two", "3"]
        assert asked.headers["a2a-extensions"] == "urn:a, urn:b"
        assert asked.params["tenant"] == "other"
    for asked in plain:
        assert (asked.headers["x-two"], asked.headers["a2a-extensions"]) == ("2", "urn:a")
        assert "x-three" not in asked.headers
        assert asked.params["tenant"] == "acme"
    assert len(marked) == len(plain) >= 1


@pytest.mark.parametrize("call", CALLS)
def test_a_misspelled_argument_is_an_error_and_nothing_is_sent(server: Peer, call: Callable[..., Any]) -> None:
    with Client(server.card()) as client:
        with pytest.raises(TypeError, match="'timeuot'"):
            call(client, timeuot=1)
        with pytest.raises(TypeError, match="not one string"):
            call(client, extensions="urn:a")
    assert server.asked == []


def test_an_empty_tenant_is_none() -> None:
    with peer(SCRIPT) as server, Client(server.card(tenant="acme")) as client:
        client.get_task("t-1", tenant="")
    assert "tenant" not in server.asked[0].params


def test_a_limit_of_one_call_stands_over_that_of_the_client() -> None:
    with (
        peer({"GetTask": lambda asked, line: line.await_close()}) as server,
        Client(server.card(), timeout=60) as client,
        pytest.raises(TransportTimeoutError),
    ):
        client.get_task("t-1", timeout=0.2)


def with_interface(card: AgentCard, **members: Any) -> AgentCard:
    return replace(card, supported_interfaces=(replace(card.supported_interfaces[0], **members),))


def test_protocol_0_3_has_no_tenants_so_none_is_left_out_silently() -> None:
    with (
        peer(SCRIPT) as server,
        Client(with_interface(server.card(), protocol_version="0.3")) as client,
        pytest.raises(UnsupportedOperationError, match="no tenants"),
    ):
        client.get_task("t-1", tenant="acme")
    assert server.asked == []


def test_headers_of_one_call_stay_with_the_origin_that_the_user_named(server: Peer) -> None:
    def card(asked: Any, line: Any) -> None:
        interface = {"url": server.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        line.answer({"name": "x", "supportedInterfaces": [interface]})

    with peer({"/.well-known/agent-card.json": card}) as home, Client(home.url) as client:
        client.get_task("t-1", headers={"X-Api-Key": "k3y"})
    assert "x-api-key" not in server.asked[0].headers


def test_a_header_that_cannot_be_sent_is_refused_and_not_shown(server: Peer) -> None:
    with Client(server.card()) as client, pytest.raises(ValueError, match="'x-key' must be printable") as caught:
        client.get_task("t-1", headers={"X-Key": "s3cret\r\nX: y"})
    assert "s3cret" not in str(caught.value)
    assert server.asked == []


# -- interceptors -------------------------------------------------------------------------------------------------------


def noting(seen: list[str], name: str) -> Callable[[Endpoint], Endpoint]:
    def interceptor(endpoint: Endpoint) -> Endpoint:
        def noted(call: Call) -> Any:
            seen.append(f"{name} {call.operation.name}")
            return endpoint(call)

        return noted

    return interceptor


def test_interceptors_are_around_every_call_the_first_outermost(server: Peer) -> None:
    seen: list[str] = []
    with Client(server.card(), interceptors=[noting(seen, "a"), noting(seen, "b")]) as client:
        client.send("hi")
        client.get_task("t-1")
        list(client.subscribe("t-1"))
    assert seen == [
        f"{name} {operation}" for operation in ("SendStreamingMessage", "GetTask", "SubscribeToTask") for name in "ab"
    ]
    assert server.operations == ["SendStreamingMessage", "GetTask", "SubscribeToTask"]


def test_an_interceptor_may_change_the_call_and_its_result_or_answer_itself(server: Peer) -> None:
    def changing(endpoint: Endpoint) -> Endpoint:
        def changed(call: Call) -> Any:
            if call.operation.name == "CancelTask":
                raise TaskNotFoundError("not here")
            context = replace(call.context, headers={**call.context.headers, "x-trip": "7"})
            return replace(endpoint(replace(call, context=context)), metadata={"seen": True})

        return changed

    with Client(server.card(), interceptors=[changing]) as client:
        assert client.get_task("t-1").metadata == {"seen": True}
        with pytest.raises(TaskNotFoundError, match="not here"):
            client.cancel_task("t-1")
    assert [asked.headers["x-trip"] for asked in server.asked] == ["7"]
