"""The card as a document: its address is right wherever the app is mounted, and caches can rely on it."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import pytest
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill
from a2a_sync.codec import by_version
from tests.wsgi import CARD, HOST, Answer, Peer, message

SKILL = AgentSkill(id="greet", name="Greet", description="Says hello", tags=("hello",))


def greeter(description: str = "Greets users") -> Agent:
    agent = Agent("greeter", description=description, skills=[SKILL])
    agent.message(lambda message, context: f"Hello, {message.text}!")
    return agent


def peer(**options: Any) -> Peer:
    return Peer(A2AApp(greeter(), **options))


def card(peer: Peer, host: str = HOST, **headers: str) -> Answer:
    return peer.request("GET", CARD, headers={"Host": host, **headers})


def address(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    (interface,) = answer.json["supportedInterfaces"]
    url: str = interface["url"]
    return url


# -- the document -------------------------------------------------------------------------------------------------------


def test_the_card_is_a_complete_card_of_protocol_1_0() -> None:
    answer = card(peer())

    assert answer.headers["Content-Type"] == "application/json"
    loaded = by_version("1.0").load(AgentCard, answer.json, strict=True)
    assert (loaded.name, loaded.description, loaded.skills) == ("greeter", "Greets users", (SKILL,))
    assert answer.json["supportedInterfaces"] == [
        {"url": f"http://{HOST}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ]


def test_the_card_says_what_the_app_does_and_not_what_was_claimed() -> None:
    answer = card(peer())

    assert answer.json["capabilities"] == {"streaming": True, "pushNotifications": False}


def test_the_card_has_no_member_that_protocol_1_0_does_not_know() -> None:
    codec = by_version("1.0")
    answer = card(peer())

    assert codec.dump(codec.load(AgentCard, answer.json)) == answer.json


# -- caching ------------------------------------------------------------------------------------------------------------


def test_two_reads_give_the_same_bytes_and_the_same_validator() -> None:
    server = peer()

    first, second = card(server), card(server)

    assert (first.body, first.headers["ETag"]) == (second.body, second.headers["ETag"])
    assert "max-age=" in first.headers["Cache-Control"]


@pytest.mark.parametrize("pattern", ["{etag}", "W/{etag}", '"other", {etag}', '"a",W/{etag} , "b"', "*"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_whoever_has_the_card_is_told_so_and_sent_nothing(pattern: str, method: str) -> None:
    server = peer()
    known = card(server)

    headers = {"If-None-Match": pattern.format(etag=known.headers["ETag"])}
    answer = server.request(method, CARD, headers=headers)

    assert (answer.status, answer.body) == (304, b"")
    for name in ("ETag", "Cache-Control", "Vary"):
        assert answer.headers[name] == known.headers[name]


@pytest.mark.parametrize("value", ['"other"', "junk", "", '"', "W/", ",,,"])
def test_whoever_has_another_card_is_sent_this_one(value: str) -> None:
    assert card(peer(), **{"If-None-Match": value}).status == 200


def test_head_answers_like_get_without_a_body() -> None:
    server = peer()
    get, head = server.request("GET", CARD), server.request("HEAD", CARD)

    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(get.body)
    assert head.headers["ETag"] == get.headers["ETag"]


def test_another_card_has_another_validator() -> None:
    other = Peer(A2AApp(greeter("Greets everybody")))

    assert card(peer()).headers["ETag"] != card(other).headers["ETag"]


def test_shared_caches_may_not_keep_an_address_that_came_from_the_request() -> None:
    answer = card(peer())

    assert answer.headers["Cache-Control"].startswith("private")
    assert {name.strip() for name in answer.headers["Vary"].split(",")} == {"A2A-Version", "Host"}


@pytest.mark.parametrize("options", [{"url": "https://agents.example/greeter"}, {"trusted_hosts": [HOST]}])
def test_shared_caches_may_keep_an_address_that_was_given(options: dict[str, Any]) -> None:
    answer = card(peer(**options))

    assert answer.headers["Cache-Control"].startswith("public")
    assert answer.headers["Vary"] == "A2A-Version"


# -- hosts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["https://agents.example/greeter", "https://agents.example/greeter/"])
def test_a_given_url_stands_over_what_the_request_says(given: str) -> None:
    assert address(card(peer(url=given), host="evil.example")) == "https://agents.example/greeter/"


@pytest.mark.parametrize("host", ["agents.example", "agents.example:8443", "eu.agents.example", "[::1]:8000"])
def test_the_address_is_the_one_that_was_asked(host: str) -> None:
    assert address(card(peer(), host=host)) == f"http://{host}/"


@pytest.mark.parametrize("host", ["agents.example", "agents.example:8000", "a.b.agents.example"])
def test_trusted_hosts_are_served(host: str) -> None:
    assert address(card(peer(trusted_hosts=[".agents.example"]), host=host)) == f"http://{host}/"


@pytest.mark.parametrize("host", ["evil.example", "agents.example.evil", "evilagents.example", "bad host", ""])
def test_other_hosts_are_refused(host: str) -> None:
    answer = card(peer(trusted_hosts=[".agents.example"]), host=host)

    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["error"]["code"] == 400
    assert "evil" not in answer.json["error"]["message"]


@pytest.mark.parametrize("host", ["", "bad host", "a/b", "user@agents.example", "agents.example:99999", 'x"y', "é.com"])
def test_a_host_that_no_url_can_be_made_of_is_refused(host: str) -> None:
    assert card(peer(), host=host).status == 400


def test_many_host_names_do_not_fill_the_memory() -> None:
    server = Peer(A2AApp(greeter("x" * 50_000)))
    card(server)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(400):
            assert address(card(server, host=f"h{number}.example")) == f"http://h{number}.example/"
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # All 400 would be 20 MB.
    assert after - before < 5_000_000


def test_each_of_many_threads_gets_the_address_it_asked_for() -> None:
    app = A2AApp(greeter())
    wrong: list[str] = []

    def ask(number: int) -> None:
        for turn in range(60):
            host = f"h{number}-{turn % 20}.example"
            found = address(card(Peer(app), host=host))
            if found != f"http://{host}/":
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


# -- mounting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script_name", "path"),
    [("", "/"), ("/a2a", "/a2a/"), ("/a2a/", "/a2a/"), ("/agents/eu/greeter", "/agents/eu/greeter/")],
)
def test_the_address_includes_the_prefix_with_and_without_its_slash(script_name: str, path: str) -> None:
    answer = peer().request("GET", CARD, environ={"SCRIPT_NAME": script_name})

    assert address(answer) == f"http://{HOST}{path}"


def test_an_address_is_ascii_whatever_the_prefix_is() -> None:
    answer = peer().request("GET", CARD, environ={"SCRIPT_NAME": "/agents/café".encode().decode("latin-1")})

    assert address(answer) == f"http://{HOST}/agents/caf%C3%A9/"


@pytest.mark.parametrize("prefix", ["/a2a", "/agents/greeter"])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_mounted_app_answers_at_the_address_its_card_names(prefix: str, end: str) -> None:
    app = A2AApp(greeter())
    server = Peer(DispatcherMiddleware(NotFound(), {prefix: app}))

    found = address(server.request("GET", prefix + CARD))
    answer = server.call("SendMessage", message("Ada"), path=prefix + end)

    assert found == f"http://{HOST}{prefix}/"
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "Hello, Ada!"}]
    app.close()


def test_behind_a_trusted_proxy_the_address_is_the_public_one() -> None:
    server = Peer(ProxyFix(A2AApp(greeter()), x_proto=1, x_host=1, x_prefix=1))

    answer = server.request(
        "GET",
        CARD,
        headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "pub.example", "X-Forwarded-Prefix": "/svc/a2a"},
    )

    assert address(answer) == "https://pub.example/svc/a2a/"
