"""Finding the card, choosing an interface, and keeping what was found."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from a2a_sync import Client, Retry
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.cards import InterfaceFilter, card_urls, read_card, usable_interfaces
from a2a_sync.errors import CardNotFoundError, ConnectError, VersionNotSupportedError
from tests.client.peer import TIMEOUT, Asked, Line, Script, peer, results, task

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


def card(**members: Any) -> dict[str, Any]:
    interface = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {"name": "peer", "description": "", "version": "1", "supportedInterfaces": [interface], **members}


def answers(value: Any, code: int = 200, **headers: str) -> Script:
    return lambda asked, line: line.answer(value, code, **headers)


def test_where_a_card_is_looked_for() -> None:
    assert card_urls("http://a.test") == [f"http://a.test{NEW}", f"http://a.test{OLD}", "http://a.test"]
    assert card_urls("http://a.test/x/?k=1#f") == [
        f"http://a.test/x{NEW}",
        f"http://a.test/x{OLD}",
        "http://a.test/x/?k=1#f",
    ]
    assert card_urls("http://a.test/my-card.json?v=2")[0] == "http://a.test/my-card.json?v=2"


@pytest.mark.parametrize("path", ["/agent" + NEW, "/agent" + OLD, "/agent"])
def test_a_card_is_found_at_each_of_its_places(path: str) -> None:
    table = {path: answers(card()), "GetTask": results(task())}
    with peer(table) as server, Client(server.url + "/agent") as client:
        assert client.get_task("t-1").id == "t-1"

    assert [asked.path for asked in server.asked][-2:] == [path, "/rpc"]
    assert {asked.headers["a2a-version"] for asked in server.asked} == {"1.0"}


def test_a_card_for_both_versions_may_promise_an_extended_card_in_the_words_of_0_3() -> None:
    document = card(url="/rpc", supportsAuthenticatedExtendedCard=True)
    with peer({NEW: answers(document)}) as server, Client(server.url) as client:
        assert client.card().capabilities.extended_agent_card is True


def test_a_card_is_read_once_and_again_when_asked_for() -> None:
    table = {NEW: answers(card()), "GetTask": results(task())}
    with peer(table) as server, Client(server.url) as client:
        assert server.asked == []
        client.get_task("t-1")
        client.get_task("t-1")
        assert client.card().name == "peer"
        assert client.card(refresh=True) == client.card()

    assert server.operations == [NEW, "GetTask", "GetTask", NEW]


def test_a_page_that_is_no_card_does_not_end_the_search() -> None:
    page = answers(b"<!doctype html>", Content_Type="text/html")
    with peer({NEW: page, OLD: answers(card())}) as server, Client(server.url) as client:
        assert client.card().name == "peer"


def test_when_there_is_no_card_the_error_says_what_was_tried() -> None:
    table = {NEW: answers(b"<html>"), OLD: answers({"detail": "no key"}, 401), "/a?key=secret": answers({"hello": 1})}
    table = {path if path.startswith("/a?") else "/a" + path: script for path, script in table.items()}
    with (
        peer(table) as server,
        Client(server.url + "/a?key=secret") as client,
        pytest.raises(CardNotFoundError) as caught,
    ):
        client.card()

    where = server.url + "/a"
    tried = f"{where}{NEW}: not JSON; {where}{OLD}: HTTP 401: no key; {where}: JSON, but no agent card"
    assert f"{tried}: 'name' and 'supportedInterfaces' (in 0.3: 'url') are missing" in str(caught.value)
    assert (caught.value.phase, caught.value.agent) == ("card", where)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ({"name": "x"}, "'supportedInterfaces' (in 0.3: 'url') is missing"),
        ({"url": "https://x.test/"}, "'name' is missing"),
        ([], "expected an object"),
    ],
)
def test_json_that_is_no_card_says_what_is_missing(value: object, missing: str) -> None:
    with (
        peer({NEW: answers(value)}) as server,
        Client(server.url) as client,
        pytest.raises(CardNotFoundError) as caught,
    ):
        client.card()

    assert f"JSON, but no agent card: {missing}" in str(caught.value)


def test_a_card_with_a_broken_member_is_named() -> None:
    with (
        peer({NEW: answers(card(skills=7))}) as server,
        Client(server.url) as client,
        pytest.raises(CardNotFoundError, match=r"not a valid card \(skills"),
    ):
        client.card()


@pytest.mark.parametrize(
    ("name", "count", "item"),
    [
        ("skills", 10_001, {"id": "s", "name": "S", "description": "d", "tags": []}),
        ("supportedInterfaces", 1_001, {"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}),
        ("additionalInterfaces", 1_001, {"url": "/a2a", "transport": "JSONRPC"}),
    ],
)
def test_a_card_with_very_many_members_is_refused_before_they_are_read(
    name: str, count: int, item: dict[str, Any]
) -> None:
    """Twenty agents whose cards had 42,000 interfaces delayed the first lookup of a registry by 25 seconds."""
    card = {"name": "a", "description": "d", "version": "1", "url": "http://a.test/", "supportedInterfaces": []}
    found = read_card(json.dumps({**card, name: [item] * count}).encode(), "http://a.test/", None)
    assert found == f"not a valid card ({name} has more than {count - 1} members)"


def test_without_a_connection_other_places_are_not_tried() -> None:
    with peer({}) as server:
        pass
    with Client(server.url) as client, pytest.raises(ConnectError):
        client.card()


def test_redirects_of_a_card_are_followed_but_not_for_ever() -> None:
    table = {NEW: answers(b"", 302, Location="/moved"), "/moved": answers(card())}
    with peer(table) as server, Client(server.url) as client:
        assert client.card().name == "peer"
    loop = {NEW: answers(b"", 302, Location=NEW)}
    with peer(loop) as server, Client(server.url) as client:
        with pytest.raises(CardNotFoundError, match="HTTP 302"):
            client.card()
        assert server.operations.count(NEW) == 6


# -- interfaces ---------------------------------------------------------------------------------------------------------


def offering(*offers: tuple[str, str]) -> AgentCard:
    return AgentCard(
        name="x",
        description="",
        version="1",
        supported_interfaces=tuple(
            AgentInterface(url=f"http://a.test/{place}", protocol_binding=binding, protocol_version=version)
            for place, (binding, version) in enumerate(offers)
        ),
    )


def test_the_first_interface_that_we_speak_is_used() -> None:
    card = offering(
        ("SLIMRPC", "1.0"), ("JSONRPC", "2.0"), ("jsonrpc", "1.0.1"), ("JSONRPC", "1.0"), ("JSONRPC", "0.3")
    )

    assert usable_interfaces(card, InterfaceFilter())[0].url == "http://a.test/2"
    assert usable_interfaces(card, InterfaceFilter("1.0"))[0].url == "http://a.test/2"


def test_the_card_s_order_decides_between_versions_unless_one_is_asked_for() -> None:
    card = offering(("SLIMRPC", "0.3"), ("JSONRPC", "0.3.0"), ("JSONRPC", "1.0"))

    assert usable_interfaces(card, InterfaceFilter())[0].url == "http://a.test/1"
    assert usable_interfaces(card, InterfaceFilter("1.0"))[0].url == "http://a.test/2"


@pytest.mark.parametrize("version", ["0.3", "0.3.7", "", "0.2.5"])
def test_what_speaks_like_0_3_is_spoken_to_in_0_3(version: str) -> None:
    assert usable_interfaces(offering(("JSONRPC", version)), InterfaceFilter("0.3"))[0].protocol_version == version


def test_a_card_without_an_interface_for_us_is_refused_with_what_it_offers() -> None:
    offers = r"offers SLIMRPC 1\.0, JSONRPC 2\.0; .* JSONRPC 1\.0, HTTP\+JSON 1\.0, GRPC 1\.0, JSONRPC 0\.3, HTTP\+JSON 0\.3, GRPC 0\.3$"
    with pytest.raises(VersionNotSupportedError, match=offers):
        Client(offering(("SLIMRPC", "1.0"), ("JSONRPC", "2.0")))
    with pytest.raises(
        VersionNotSupportedError, match=r"offers JSONRPC 1\.0; .* JSONRPC 0\.3, HTTP\+JSON 0\.3, GRPC 0\.3$"
    ):
        Client(offering(("JSONRPC", "1.0")), protocol_version="0.3")
    with pytest.raises(VersionNotSupportedError, match=r"version 7\.0"):
        Client(offering(("JSONRPC", "1.0")), protocol_version="7.0.2")
    with pytest.raises(VersionNotSupportedError, match=r"offers JSONRPC 1\.0; .* HTTP\+JSON 1\.0, HTTP\+JSON 0\.3$"):
        Client(offering(("JSONRPC", "1.0")), protocol_binding="HTTP+JSON")
    with pytest.raises(VersionNotSupportedError, match=r"asked for SLIMRPC$"):
        Client(offering(("JSONRPC", "1.0")), protocol_binding="SLIMRPC")


def test_the_card_s_order_decides_between_bindings_unless_one_is_asked_for() -> None:
    card = offering(("SLIMRPC", "1.0"), ("HTTP+JSON", "0.3"), ("http+json", "1.0"), ("JSONRPC", "1.0"))

    assert usable_interfaces(card, InterfaceFilter())[0].url == "http://a.test/1"
    assert usable_interfaces(card, InterfaceFilter("1.0"))[0].url == "http://a.test/2"
    assert usable_interfaces(card, InterfaceFilter(binding="JSONRPC"))[0].url == "http://a.test/3"


OLD_CARD = {
    "protocolVersion": "0.3.0",
    "name": "old",
    "description": "",
    "version": "1",
    "url": "/rpc",
    "capabilities": {},
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}
OLD_TASK = {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"}}


@pytest.mark.parametrize("path", [NEW, OLD, ""])
@pytest.mark.parametrize("version", ["0.3.0", "0.3", "0.2.6", None])
def test_a_card_of_the_old_protocol_leads_to_the_old_protocol(version: str | None, path: str) -> None:
    body = {**OLD_CARD, "protocolVersion": version} if version else {**OLD_CARD, "preferredTransport": None}
    table = {"/a" + path: answers(body), "tasks/get": results(OLD_TASK)}
    with peer(table) as server, Client(server.url + "/a") as client:
        assert client.get_task("t-1").state == "completed"
        (interface,) = client.card().supported_interfaces

    assert interface.url == server.url + "/rpc"
    assert (server.asked[-1].path, server.asked[-1].headers["a2a-version"]) == ("/rpc", "0.3")


def test_an_old_card_s_further_addresses_are_looked_through() -> None:
    body = {
        **OLD_CARD,
        "url": "http://a.test/grpc",
        "preferredTransport": "SLIMRPC",
        "additionalInterfaces": [
            {"url": "http://a.test/grpc", "transport": "SLIMRPC"},
            {"url": "/other", "transport": "JSONRPC"},
        ],
    }
    with peer({NEW: answers(body), "tasks/get": results(OLD_TASK)}) as server, Client(server.url) as client:
        client.get_task("t-1")
        assert [one.protocol_binding for one in client.card().supported_interfaces] == ["SLIMRPC", "JSONRPC"]

    assert server.asked[-1].path == "/other"


DUAL = {
    **OLD_CARD,
    "supportedInterfaces": [
        {"url": "/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ],
}


@pytest.mark.parametrize(("version", "path"), [(None, "/new"), ("1.0", "/new"), ("0.3", "/old"), ("0.3.0", "/old")])
def test_of_a_card_for_both_the_version_asked_for_is_used(version: str | None, path: str) -> None:
    table = {NEW: answers(DUAL), "GetTask": results(task()), "tasks/get": results(OLD_TASK)}
    with peer(table) as server, Client(server.url, protocol_version=version) as client:
        assert client.get_task("t-1").id == "t-1"

    assert server.asked[-1].path == path
    expected = "0.3" if path == "/old" else "1.0"
    assert [asked.headers["a2a-version"] for asked in server.asked] == [expected, expected]


def test_an_interface_is_relative_to_its_card() -> None:
    body = card()
    body["supportedInterfaces"][0]["url"] = "../rpc"
    table = {"/x/y/card.json": answers(body), "GetTask": results(task())}
    with peer(table) as server, Client(server.url + "/x/y/card.json") as client:
        client.get_task("t-1")

    assert server.asked[-1].path == "/x/rpc"


def test_the_tenant_of_the_chosen_interface_goes_with_every_call() -> None:
    body = card()
    body["supportedInterfaces"][0]["tenant"] = "acme"
    with peer({NEW: answers(body), "GetTask": results(task())}) as server, Client(server.url) as client:
        client.get_task("t-1")

    assert server.asked[-1].params == {"id": "t-1", "tenant": "acme"}


@pytest.mark.parametrize("target", ["agent.test", "ftp://agent.test", ""])
def test_a_target_that_is_no_url_is_refused_at_once(target: str) -> None:
    with pytest.raises(ValueError, match="http"):
        Client(target)


def test_a_target_that_is_no_agent_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="not dict"):
        Client(json.loads("{}"))


def test_reading_a_card_counts_for_the_limit() -> None:
    def silent(asked: Asked, line: Line) -> None:
        line.await_close()

    with peer({NEW: silent}) as server, Client(server.url) as client, pytest.raises(TimeoutError) as caught:
        client.send("hi", timeout=0.2)

    assert "[card " in str(caught.value)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("cuts", [1, 2, 5])
def test_the_first_card_is_asked_for_again_while_its_body_breaks_off(framing: str, cuts: int) -> None:
    body = json.dumps(card()).encode()
    whole = {
        "length": b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
    }[framing]
    asked = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            nonlocal asked
            while asked <= cuts:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(TIMEOUT)
                    connection.recv(65536)
                    asked += 1
                    sent = whole if asked > cuts else whole[: len(whole) // 2]
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + sent)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, retry=Retry(max_elapsed=TIMEOUT, initial_backoff=0.01, max_backoff=0.02)) as client:
            assert client.card().name == "peer"
        thread.join(TIMEOUT)
    assert asked == cuts + 1
