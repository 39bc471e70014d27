"""The card as a document: its address is right wherever the app is mounted, and caches can rely on it."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill
from a2a_sync.card import (
    AgentCapabilities,
    AgentExtension,
    APIKeySecurityScheme,
    ClientCredentialsOAuthFlow,
    OAuth2SecurityScheme,
    SecurityRequirement,
)
from a2a_sync.codec import by_version
from a2a_sync.wsgi.options import HTTPOptions
from tests.wsgi import CARD, HOST, OLD_CARD, Answer, Peer, message

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
    document = answer.json
    # That of HTTP+JSON has no slash at its end: paths begin with one.
    rest = [one["url"] for one in document["supportedInterfaces"] if one["protocolBinding"] == "HTTP+JSON"]
    others = [one["url"] for one in document["supportedInterfaces"] if one["protocolBinding"] != "HTTP+JSON"]
    (url,) = {document["url"], *others, *(url + "/" for url in rest)}
    assert isinstance(url, str)
    return url


# -- the document -------------------------------------------------------------------------------------------------------


INTERFACES = [
    {"url": f"http://{HOST}{path}", "protocolBinding": binding, "protocolVersion": version}
    for version in ("1.0", "0.3")
    for path, binding in (("/", "JSONRPC"), ("", "HTTP+JSON"))
]
OLD_ADDRESS = {
    "protocolVersion": "0.3.0",
    "url": f"http://{HOST}/",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": f"http://{HOST}/", "transport": "JSONRPC"},
        {"url": f"http://{HOST}", "transport": "HTTP+JSON"},
    ],
}


def members(document: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in names}


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
def test_the_card_is_a_complete_card_of_both_protocols_at_both_paths(path: str) -> None:
    answer = peer().request("GET", path)

    assert answer.headers["Content-Type"] == "application/json"
    for version in ("1.0", "0.3"):
        loaded = by_version(version).load(AgentCard, answer.json, strict=True)
        assert (loaded.name, loaded.description, loaded.skills) == ("greeter", "Greets users", (SKILL,))
    assert answer.json["supportedInterfaces"] == INTERFACES
    assert members(answer.json, OLD_ADDRESS) == OLD_ADDRESS


def test_the_card_says_what_the_app_does_and_not_what_was_claimed() -> None:
    answer = card(peer())

    assert answer.json["capabilities"]["streaming"] is True
    assert answer.json["capabilities"]["pushNotifications"] is False


ASKED = [({"A2A-Version": "{}"}, ""), ({"A2A-Version": "{}.7"}, ""), ({}, "?A2A-Version={}")]


@pytest.mark.parametrize(("headers", "query"), ASKED)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("path", [CARD, OLD_CARD])
def test_a_request_that_names_a_version_gets_a_card_without_a_member_that_it_does_not_know(
    version: str, headers: dict[str, str], query: str, path: str
) -> None:
    asked = {name: value.format(version) for name, value in headers.items()}
    answer = peer().request("GET", path + query.format(version), headers=asked)

    codec = by_version(version)
    assert codec.dump(codec.load(AgentCard, answer.json)) == answer.json
    if version == "1.0":
        assert answer.json["supportedInterfaces"] == INTERFACES
        assert not OLD_ADDRESS.keys() & answer.json.keys()
    else:
        assert members(answer.json, OLD_ADDRESS) == OLD_ADDRESS
        assert "supportedInterfaces" not in answer.json


@pytest.mark.parametrize("version", ["", "2.0", "abc", "1.0, 0.3", ","])
def test_a_request_that_names_another_version_gets_the_card_for_both(version: str) -> None:
    server = peer()

    assert card(server, **{"A2A-Version": version}).body == card(server).body


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("asked", ["", "1.0", "0.3", "2.0"])
def test_an_app_of_one_version_serves_its_card_and_no_other(version: str, asked: str) -> None:
    answer = card(peer(protocol_versions=(version,)), **{"A2A-Version": asked})

    codec = by_version(version)
    assert codec.dump(codec.load(AgentCard, answer.json)) == answer.json
    assert {one.protocol_version for one in codec.load(AgentCard, answer.json).supported_interfaces} == {version}


def test_the_old_path_is_there_for_the_old_protocol_only() -> None:
    assert peer(protocol_versions=("0.3",)).request("GET", OLD_CARD).json["url"] == f"http://{HOST}/"
    assert peer(protocol_versions=("1.0",)).request("GET", OLD_CARD).status == 404


def test_the_versions_are_named_in_the_order_they_were_given_in() -> None:
    answer = card(peer(protocol_versions=("0.3", "1.0")))

    assert offered(answer) == [
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
    ]


def test_the_bindings_are_named_in_the_order_they_were_given_in() -> None:
    answer = card(peer(protocol_bindings=("HTTP+JSON", "JSONRPC")))
    assert offered(answer) == [
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "0.3"),
        ("JSONRPC", "0.3"),
    ]
    assert (answer.json["preferredTransport"], answer.json["url"]) == ("HTTP+JSON", f"http://{HOST}")
    assert offered(card(peer(protocol_bindings=("JSONRPC",)))) == [("JSONRPC", "1.0"), ("JSONRPC", "0.3")]


def test_a_binding_that_is_not_served_is_not_in_the_card() -> None:
    answer = card(peer(protocol_bindings=("HTTP+JSON",)))

    assert offered(answer) == [("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
    only = [{"url": f"http://{HOST}", "transport": "HTTP+JSON"}]
    assert (answer.json["preferredTransport"], answer.json["additionalInterfaces"]) == ("HTTP+JSON", only)


def offered(answer: Answer) -> list[tuple[str, str]]:
    return [(one["protocolBinding"], one["protocolVersion"]) for one in answer.json["supportedInterfaces"]]


def test_in_a_card_for_both_each_version_finds_its_own_security() -> None:
    given = AgentCard(
        name="guarded",
        description="Asks for keys",
        version="1",
        skills=(replace(SKILL, security_requirements=(SecurityRequirement(schemes={"login": ("read",)}),)),),
        capabilities=AgentCapabilities(extensions=(AgentExtension(uri="urn:x", params={"a": [1, {"b": 2}]}),)),
        security_schemes={
            "key": APIKeySecurityScheme(location="header", name="X-Key"),
            "login": OAuth2SecurityScheme(
                flow=ClientCredentialsOAuthFlow(token_url="https://a.test/token", scopes={"read": "Reading"})
            ),
        },
        security_requirements=(
            SecurityRequirement(schemes={"key": ()}),
            SecurityRequirement(schemes={"login": ("read",)}),
        ),
    )
    answer = peer(card=given)

    document = card(answer).json
    for version in ("1.0", "0.3"):
        loaded = by_version(version).load(AgentCard, document, strict=True)
        assert loaded.security_schemes == given.security_schemes
        assert loaded.security_requirements == given.security_requirements
        assert loaded.skills == given.skills
        # The app may add extensions of its own.
        assert given.capabilities.extensions[0] in loaded.capabilities.extensions


def test_the_forms_have_validators_of_their_own() -> None:
    server = peer()
    forms = [card(server, **{"A2A-Version": version}) for version in ("1.0", "0.3", "")]

    assert len({form.headers["ETag"] for form in forms}) == 3
    for form, version in zip(forms, ("1.0", "0.3", ""), strict=True):
        headers = {"If-None-Match": form.headers["ETag"]}
        assert card(server, **headers, **{"A2A-Version": version}).status == 304
        assert card(server, **headers, **{"A2A-Version": "0.3" if version != "0.3" else "1.0"}).status == 200
        head = server.request("HEAD", OLD_CARD, headers={"A2A-Version": version})
        assert (head.status, head.body, head.headers["ETag"]) == (200, b"", form.headers["ETag"])
        assert int(head.headers["Content-Length"]) == len(form.body)


# -- caching ------------------------------------------------------------------------------------------------------------


def test_two_reads_give_the_same_bytes_and_the_same_validator() -> None:
    server = peer()

    first, second = card(server), card(server)

    assert (first.body, first.headers["ETag"]) == (second.body, second.headers["ETag"])
    assert "max-age=" in first.headers["Cache-Control"]


@pytest.mark.parametrize("pattern", ["{etag}", "W/{etag}", '"other", {etag}', '"a",W/{etag} , "b"', "*"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_with_the_current_card_gets_304(pattern: str, method: str) -> None:
    server = peer()
    known = card(server)

    headers = {"If-None-Match": pattern.format(etag=known.headers["ETag"])}
    answer = server.request(method, CARD, headers=headers)

    assert (answer.status, answer.body) == (304, b"")
    for name in ("ETag", "Cache-Control", "Vary"):
        assert answer.headers[name] == known.headers[name]


@pytest.mark.parametrize("value", ['"other"', "junk", "", '"', "W/", ",,,"])
def test_a_client_with_another_card_gets_this_one(value: str) -> None:
    assert card(peer(), **{"If-None-Match": value}).status == 200


def test_head_answers_like_get_without_a_body() -> None:
    server = peer()
    get, head = server.request("GET", CARD), server.request("HEAD", CARD)

    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(get.body)
    assert head.headers["ETag"] == get.headers["ETag"]


def test_another_card_has_another_validator() -> None:
    other = Peer(A2AApp(greeter("Greets visitors")))

    assert card(peer()).headers["ETag"] != card(other).headers["ETag"]


def test_shared_caches_may_not_keep_an_address_that_came_from_the_request() -> None:
    answer = card(peer())

    assert answer.headers["Cache-Control"].startswith("private")
    assert {name.strip() for name in answer.headers["Vary"].split(",")} == {"A2A-Version", "Host"}


@pytest.mark.parametrize(
    ("options", "vary"),
    [
        ({"url": "https://agents.example/greeter"}, "A2A-Version"),
        # A trusted host may be requested with any port, which some caches leave out of their keys.
        ({"http": HTTPOptions(trusted_hosts=[HOST])}, "A2A-Version, Host"),
    ],
)
def test_shared_caches_may_keep_an_address_that_was_given(options: dict[str, Any], vary: str) -> None:
    answer = card(peer(**options))

    assert answer.headers["Cache-Control"].startswith("public")
    assert answer.headers["Vary"] == vary


# -- hosts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["https://agents.example/greeter", "https://agents.example/greeter/"])
def test_a_given_url_stands_over_what_the_request_says(given: str) -> None:
    assert address(card(peer(url=given), host="evil.example")) == "https://agents.example/greeter/"


@pytest.mark.parametrize("host", ["agents.example", "agents.example:8443", "eu.agents.example", "[::1]:8000"])
def test_the_address_is_the_one_that_was_asked(host: str) -> None:
    assert address(card(peer(), host=host)) == f"http://{host}/"


@pytest.mark.parametrize("host", ["agents.example", "agents.example:8000", "a.b.agents.example"])
def test_trusted_hosts_are_served(host: str) -> None:
    assert address(card(peer(http=HTTPOptions(trusted_hosts=[".agents.example"])), host=host)) == f"http://{host}/"


@pytest.mark.parametrize("host", ["[::1]:8000", "[::1]", "xn--bcher-kva.example", "AGENTS.example:1"])
def test_addresses_and_names_in_other_scripts_may_be_trusted(host: str) -> None:
    http = HTTPOptions(trusted_hosts=["[::1]", "b\u00fccher.example", "agents.example"])
    assert card(peer(http=http), host=host).status == 200
    assert card(peer(http=http), host="[::2]:8000").status == 400


def test_an_empty_list_of_trusted_hosts_serves_none() -> None:
    assert card(peer(http=HTTPOptions(trusted_hosts=[])), host="agents.example").status == 400


@pytest.mark.parametrize("host", ["evil.example", "agents.example.evil", "evilagents.example", "bad host", ""])
def test_other_hosts_are_refused(host: str) -> None:
    answer = card(peer(http=HTTPOptions(trusted_hosts=[".agents.example"])), host=host)

    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["error"]["code"] == 400
    assert "evil" not in answer.json["error"]["message"]


@pytest.mark.parametrize("host", ["", "bad host", "a/b", "user@agents.example", "agents.example:99999", 'x"y', "é.com"])
def test_a_host_that_no_url_can_be_made_of_is_refused(host: str) -> None:
    assert card(peer(), host=host).status == 400


@pytest.mark.slow
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
        thread.join(60)

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


@pytest.mark.parametrize(("path", "version"), [("/nothing", "1.0"), ("/v1/nothing", "0.3"), ("/é/x", "1.0")])
def test_a_path_that_a_mounted_app_does_not_serve_is_named_with_its_prefix(path: str, version: str) -> None:
    with A2AApp(greeter()) as app:
        server = Peer(DispatcherMiddleware(NotFound(), {"/agents/greeter": app}))
        answer = server.request("GET", f"/agents/greeter{path}", headers={"A2A-Version": version})

    message = f"there is nothing at '/agents/greeter{path}'; the card is at /agents/greeter{CARD}"
    assert (answer.status, answer.json["error"]["message"]) == (404, message)


def test_behind_a_trusted_proxy_the_address_is_the_public_one() -> None:
    server = Peer(ProxyFix(A2AApp(greeter()), x_proto=1, x_host=1, x_prefix=1))

    answer = server.request(
        "GET",
        CARD,
        headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "pub.example", "X-Forwarded-Prefix": "/svc/a2a"},
    )

    assert address(answer) == "https://pub.example/svc/a2a/"
