"""Card signatures: the official SDK verifies those of this library, and the reverse."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings

from a2a_sync import A2AApp, Agent, AgentCard, Client
from a2a_sync.codec import by_version
from a2a_sync.errors import CardSignatureError
from a2a_sync.integrations.asgi import ASGIApp
from a2a_sync.signing import CardSigner, CardVerifier
from a2a_sync.testing import wsgi_session
from tests.client.peer import peer
from tests.signing.test_served import MORE, SECURED, URL
from tests.strategies import CARDS
from tests.wire_examples import SPEC
from tests.wsgi import CARD, Peer, rpc

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard as OfficialCard
from a2a.types import GetExtendedAgentCardRequest
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_agent_card_signer,
    create_signature_verifier,
)
from google.protobuf import json_format

KEYS: dict[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
}
SIGNER = CardSigner(KEYS["ES256"], kid="k")
EXAMPLES = sorted(path.name for path in SPEC.glob("v1-agent-card-*.json") if "signature" not in path.name)
QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)


def official_signer(algorithm: str = "ES256") -> Any:
    header = {"kid": "k", "alg": algorithm, "typ": "JOSE", "jku": None}
    return create_agent_card_signer(KEYS[algorithm], header)


def official_verifier(algorithm: str = "ES256") -> Any:
    return create_signature_verifier(lambda kid, jku: KEYS[algorithm].public_key(), [algorithm])


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SPEC / name).read_text())
    document.pop("signatures", None)
    return document


def as_official(document: dict[str, Any]) -> Any:
    """The card as the SDK's client parses it."""
    return parse_agent_card(copy.deepcopy(document))


def signed_by_sdk(document: dict[str, Any], algorithm: str = "ES256") -> dict[str, Any]:
    """The JSON of a card that the SDK has signed, as its server sends it."""
    card = json_format.ParseDict(document, OfficialCard(), ignore_unknown_fields=True)
    served: dict[str, Any] = agent_card_to_dict(official_signer(algorithm)(card))
    return json.loads(json.dumps(served))


def served_by_app(path: str = "", version: str = "", **options: Any) -> dict[str, Any]:
    """The JSON of a card that an `A2AApp` has signed."""
    headers = {"A2A-Version": version} if version else {}
    with A2AApp(options.pop("agent", Agent("agent")), url=URL, card_signer=SIGNER, **options) as app:
        document: dict[str, Any] = Peer(app).request("GET", path or CARD, headers=headers).json
    return document


# -- signed by the SDK --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_signatures_of_the_sdk_are_verified(name: str, algorithm: str) -> None:
    document = signed_by_sdk(example(name), algorithm)
    verifier = CardVerifier({"k": KEYS[algorithm].public_key()})

    assert verifier.verify(document).header["alg"] == algorithm
    with pytest.raises(CardSignatureError, match="over another card"):
        verifier.verify({**document, "description": "changed"})


@QUICK
@given(CARDS)
def test_signatures_of_the_sdk_are_verified_for_any_card(card: AgentCard) -> None:
    document = by_version("1.0").dump(card)
    document.pop("signatures", None)

    assert CardVerifier({"k": KEYS["ES256"].public_key()}).verify(signed_by_sdk(document))


def test_the_client_accepts_a_card_signed_by_the_sdk() -> None:
    document = signed_by_sdk(example("v1-agent-card-full.json"))
    with peer({CARD: lambda asked, line: line.answer(document)}) as server:
        with Client(server.url, card_verifier=SIGNER.public_jwk) as client:
            assert client.card().name == document["name"]
        stranger = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="k")
        with Client(server.url, card_verifier=stranger.public_jwk) as client, pytest.raises(CardSignatureError):
            client.card()


# -- signed by this library ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_sdk_verifies_signatures(name: str, algorithm: str) -> None:
    card = by_version("1.0").load(AgentCard, example(name))
    signer = CardSigner(KEYS[algorithm], kid="k")
    document = {
        **by_version("1.0").dump(card),
        "signatures": [by_version("1.0").dump(one) for one in signer.sign(card)],
    }

    official_verifier(algorithm)(as_official(document))
    with pytest.raises(InvalidSignaturesError):
        official_verifier(algorithm)(as_official({**document, "description": "changed"}))


@QUICK
@given(CARDS)
def test_the_sdk_verifies_signatures_of_any_card(card: AgentCard) -> None:
    document = by_version("1.0").dump(card)
    document["signatures"] = [by_version("1.0").dump(one) for one in SIGNER.sign(document)]

    official_verifier()(as_official(document))


@pytest.mark.parametrize("version", ["", "1.0"])
@pytest.mark.parametrize("card", [None, SECURED], ids=["plain", "secured"])
def test_the_sdk_verifies_a_served_card(card: AgentCard | None, version: str) -> None:
    document = served_by_app(version=version, card=card)

    official_verifier()(as_official(document))
    with pytest.raises(InvalidSignaturesError):
        official_verifier()(as_official({**document, "name": "Mallory"}))


def test_the_sdk_verifies_a_served_extended_card() -> None:
    with A2AApp(Agent("agent"), url=URL, card_signer=SIGNER, extended_card=MORE) as app:
        document = Peer(app).post(rpc("GetExtendedAgentCard")).result

    official_verifier()(as_official(document))


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_the_sdk_client_verifies_both_cards(binding: str) -> None:
    verified: list[str] = []

    def verify(card: Any) -> None:
        official_verifier()(card)
        verified.append(card.description)

    async def talk() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(bridge)) as http:
            card = await A2ACardResolver(http, URL).get_agent_card(signature_verifier=verify)
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            client = ClientFactory(config).create(card)
            await client.get_extended_agent_card(GetExtendedAgentCardRequest(), signature_verifier=verify)

    agent = Agent("agent", description="Does things")
    with A2AApp(agent, url=URL, card_signer=SIGNER, extended_card=MORE) as app:
        bridge = ASGIApp(app)
        asyncio.run(asyncio.wait_for(talk(), 30))
    assert verified == ["Does things", "Does more"]


def test_either_of_two_signatures_can_be_verified() -> None:
    other = CardSigner(KEYS["EdDSA"], kid="other")
    with A2AApp(Agent("agent"), url=URL, card_signer=[other, SIGNER]) as app:
        document = Peer(app).request("GET", CARD).json
        with Client(URL, session=wsgi_session(app), card_verifier=other.public_jwk) as client:
            assert client.card().name == "agent"

    official_verifier("ES256")(as_official(document))
