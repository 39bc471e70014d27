"""Signed cards as they are served: each version's form, stable bytes, both cards; and what the client makes of them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill, Client
from a2a_sync.card import (
    AuthorizationCodeOAuthFlow,
    DeviceCodeOAuthFlow,
    HTTPAuthSecurityScheme,
    OAuth2SecurityScheme,
    SecurityRequirement,
    create_agent_card,
)
from a2a_sync.codec import by_version
from a2a_sync.errors import CardSignatureError
from a2a_sync.signing import CardSigner, CardVerifier
from a2a_sync.signing.canonical import canonical_forms
from a2a_sync.testing import wsgi_session
from tests.certificates import Authority
from tests.client.peer import Script, peer, results, task
from tests.wsgi import CARD, Answer, Peer, rpc

SIGNER = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="new")
OLD_SIGNER = CardSigner(ed25519.Ed25519PrivateKey.generate(), kid="old")
STRANGER = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="new")
URL = "http://agent.test"
MORE = create_agent_card("agent", "Does more", skills={"more": "Does more"})
SECURED = create_agent_card(
    "secured",
    "Needs authentication",
    skills=[AgentSkill.of("ask", "Asks", security_requirements=(SecurityRequirement(schemes={"bearer": ()}),))],
    security_schemes={
        "bearer": HTTPAuthSecurityScheme(scheme="Bearer"),
        "code": OAuth2SecurityScheme(
            flow=AuthorizationCodeOAuthFlow(
                authorization_url="https://login.test/a", token_url="https://login.test/t", pkce_required=True
            ),
        ),
        "device": OAuth2SecurityScheme(
            flow=DeviceCodeOAuthFlow(
                device_authorization_url="https://login.test/d", token_url="https://login.test/t", scopes={"a": "b"}
            )
        ),
    },
    security=["bearer", {"code": [], "device": ["a"]}],
)

Serve = Callable[..., A2AApp]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Apps that sign, unless configured otherwise."""
    apps: list[A2AApp] = []

    def make(**options: Any) -> A2AApp:
        agent = Agent("agent", description="Does things", skills={"do": "Does"})
        agent.message(lambda message, context: message.text)
        apps.append(A2AApp(agent, **{"url": URL, "card_signer": SIGNER, **options}))
        return apps[-1]

    yield make
    for app in apps:
        app.close(0)


def get(app: A2AApp, version: str = "", **headers: str) -> Answer:
    return Peer(app).request("GET", CARD, headers={"A2A-Version": version, **headers} if version else headers)


def connect(app: A2AApp, verify_card: Any, **options: Any) -> Client:
    return Client(URL, session=wsgi_session(app), card_verifier=verify_card, **options)


# -- the server ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", [None, SECURED], ids=["plain", "secured"])
@pytest.mark.parametrize("version", ["", "1.0", "0.3"])
def test_each_form_of_the_card_is_signed(version: str, card: AgentCard | None, serve: Serve) -> None:
    document = get(serve(card=card), version).json

    assert CardVerifier(SIGNER.public_jwk).verify(document).header["kid"] == "new"


def test_in_a_card_for_both_each_version_finds_a_signature_of_its_own(serve: Serve) -> None:
    app = serve(card=SECURED)
    both = get(app).json
    old = get(app, "0.3").json

    # A client of 0.3 reads only the members of 0.3 in the card for both.
    seen = {**{name: both[name] for name in old}, "securitySchemes": old["securitySchemes"], "skills": old["skills"]}
    seen["capabilities"] = old["capabilities"]
    assert canonical_forms(seen, "0.3") == canonical_forms(old, "0.3")
    assert CardVerifier(SIGNER.public_jwk).verify(seen)
    assert {one["signature"] for one in get(app, "1.0").json["signatures"] + old["signatures"]} == {
        one["signature"] for one in both["signatures"]
    }


def test_in_a_card_for_both_what_0_3_sees_of_a_scheme_lacks_nothing(serve: Serve) -> None:
    # The official SDK reads a scheme by its members of 0.3 and verifies what it has read as one of 1.0.
    for scheme in get(serve(card=SECURED)).json["securitySchemes"].values():
        (inner,) = (value for name, value in scheme.items() if name.endswith("SecurityScheme"))
        assert {name: scheme[name] for name in inner} == inner


def test_every_signer_signs(serve: Serve) -> None:
    document = get(serve(card_signer=[OLD_SIGNER, SIGNER])).json

    for signer in (OLD_SIGNER, SIGNER):
        assert CardVerifier(signer.public_jwk).verify(document).header["kid"] == signer.kid


def test_the_bytes_are_stable_and_the_validator_is_the_same_in_every_process(serve: Serve) -> None:
    first, other = serve(), serve(card_signer=CardSigner(SIGNER._key, kid="new"))
    answer = get(first)

    assert get(first).body == answer.body
    assert get(other).body != answer.body, "this algorithm signs differently each time"
    assert get(other).headers["ETag"] == answer.headers["ETag"]
    assert answer.headers["ETag"].startswith('W/"')
    assert get(other, **{"If-None-Match": answer.headers["ETag"]}).status == 304


def test_another_key_has_another_validator(serve: Serve) -> None:
    assert get(serve()).headers["ETag"] != get(serve(card_signer=OLD_SIGNER)).headers["ETag"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_the_extended_card_is_signed_too(version: str, serve: Serve) -> None:
    app = serve(extended_card=lambda context: MORE)
    method = {"1.0": "GetExtendedAgentCard", "0.3": "agent/getAuthenticatedExtendedCard"}[version]

    answers = [Peer(app).post(rpc(method), headers={"A2A-Version": version}).result for _ in range(2)]

    assert answers[0]["description"] == "Does more"
    assert answers[0] == answers[1]
    assert CardVerifier(SIGNER.public_jwk).verify(answers[0])


def test_a_signed_card_needs_an_address_of_its_own() -> None:
    with pytest.raises(ValueError, match="signer= needs url="):
        A2AApp(Agent("agent"), card_signer=SIGNER)


def test_signatures_of_the_author_stay_in_the_form_that_they_are_over(serve: Serve) -> None:
    plain = serve(card_signer=None).agent_card()
    card = replace(plain, signatures=SIGNER.sign(plain))
    app = serve(card=card, card_signer=None)

    assert CardVerifier(SIGNER.public_jwk).verify(get(app, "1.0").json)
    assert CardVerifier(SIGNER.public_jwk).verify(get(app).json)
    assert "signatures" not in get(app, "0.3").json


# -- the client ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")])
def test_a_client_trusts_a_card_that_is_signed_and_the_extended_one_as_well(
    binding: str, version: str, serve: Serve
) -> None:
    app = serve(extended_card=MORE)

    with connect(app, SIGNER.public_jwk, protocol_binding=binding, protocol_version=version) as client:
        assert client.send("hi").text == "hi"
        assert client.extended_card().description == "Does more"


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_an_extended_card_of_0_3_is_signed_as_each_binding_writes_its_schemes(binding: str, serve: Serve) -> None:
    app = serve(extended_card=SECURED)

    with connect(app, SIGNER.public_jwk, protocol_binding=binding, protocol_version="0.3") as client:
        assert set(client.extended_card().security_schemes) == {"bearer", "code"}


def test_a_client_calls_no_agent_without_a_trusted_signature(serve: Serve) -> None:
    for app, said in ((serve(), "made by another key"), (serve(card_signer=None), "the card is not signed")):
        with connect(app, STRANGER.public_jwk) as client:
            for _ in range(2):
                with pytest.raises(CardSignatureError, match=said) as caught:
                    client.send("hi")
            assert caught.value.agent == URL


def test_a_card_that_is_handed_in_is_looked_at_too(serve: Serve) -> None:
    app = serve(card_signer=None)
    card = app.agent_card()
    for given, trusted in ((replace(card, signatures=SIGNER.sign(card)), True), (card, False)):
        with Client(given, session=wsgi_session(app), card_verifier=SIGNER.public_jwk) as client:
            if trusted:
                assert client.send("hi").text == "hi"
            else:
                with pytest.raises(CardSignatureError, match="not signed"):
                    client.send("hi")


def test_in_the_same_process_there_is_nothing_to_verify(serve: Serve) -> None:
    with Client(serve(card_signer=None), card_verifier=SIGNER.public_jwk) as client:
        assert client.send("hi").text == "hi"


def signed(signer: CardSigner, **members: Any) -> dict[str, Any]:
    """A card with an address that is relative to it, as its peer signs it."""
    interface = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {"name": "peer", "version": "1", "supportedInterfaces": [interface], **members}
    card["capabilities"] = {"extendedAgentCard": True}
    return {**card, "signatures": [by_version("1.0").dump(one) for one in signer.sign(card)]}


def answers(value: Any, code: int = 200) -> Script:
    return lambda asked, line: line.answer(value, code)


def test_a_key_set_is_read_over_http_when_a_key_is_needed() -> None:
    table = {CARD: answers(signed(SIGNER)), "GetTask": results(task()), "/keys": answers({"keys": [SIGNER.public_jwk]})}
    with peer(table) as server, Client(server.url, card_verifier=f"{server.url}/keys") as client:
        client.get_task("t-1")
        client.card(refresh=True)
    assert server.operations == [CARD, "/keys", "GetTask", CARD]


def test_keys_that_a_client_with_a_ca_of_its_own_read_are_not_trusted_by_another(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = Authority(tmp_path)
    tls.load_cert_chain(*authority.issue("127.0.0.1"))
    table = {CARD: answers(signed(STRANGER))}
    with peer(table) as server, peer({"/keys": answers({"keys": [STRANGER.public_jwk]})}, tls) as keys:
        shared = CardVerifier(keys.url.replace("http:", "https:") + "/keys")
        with Client(server.url, card_verifier=shared, verify=authority.ca) as trusting:
            assert trusting.card().name == "peer"
        with Client(server.url, card_verifier=shared) as client, pytest.raises(CardSignatureError, match="not trusted"):
            client.card()


def test_a_key_set_that_cannot_be_read_is_reported() -> None:
    table = {CARD: answers(signed(SIGNER)), "/keys": answers(b"no", 500)}
    with (
        peer(table) as server,
        Client(server.url, card_verifier=f"{server.url}/keys") as client,
        pytest.raises(CardSignatureError, match=r"the key set cannot be read: .*HTTP 500"),
    ):
        client.card()


def test_an_extended_card_that_is_not_to_be_trusted_leaves_the_public_one_in_place() -> None:
    for wrong in (signed(STRANGER), {**signed(SIGNER), "name": "Mallory"}):
        table = {CARD: answers(signed(SIGNER)), "GetExtendedAgentCard": results(wrong), "GetTask": results(task())}
        with peer(table) as server, Client(server.url, card_verifier=SIGNER.public_jwk) as client:
            with pytest.raises(CardSignatureError, match="over another card"):
                client.extended_card()
            assert client.card().name == "peer"
            assert client.get_task("t-1")


def test_an_old_card_is_verified_as_it_came_with_what_objects_cannot_hold() -> None:
    old = {
        "name": "old",
        "description": "",
        "version": "1",
        "url": "/rpc",
        "protocolVersion": "0.3.0",
        "capabilities": {"stateTransitionHistory": True},
        "signatures": [],
    }
    old["signatures"] = [by_version("0.3").dump(one) for one in SIGNER.sign(json.loads(json.dumps(old)))]
    for document, trusted in ((old, True), ({**old, "capabilities": {}}, False)):
        with peer({CARD: answers(document)}) as server, Client(server.url, card_verifier=SIGNER.public_jwk) as client:
            if trusted:
                assert client.card().name == "old"
            else:
                with pytest.raises(CardSignatureError, match="over another card"):
                    client.card()
