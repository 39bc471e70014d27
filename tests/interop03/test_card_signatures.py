"""Card signatures of 0.3: the official SDK verifies those of this library, and the reverse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from a2a_sync import A2AApp, Agent, AgentCard
from a2a_sync.errors import CardSignatureError
from a2a_sync.signing import CardSigner, CardVerifier
from tests.signing.test_served import MORE, SECURED, URL
from tests.wire_examples import SPEC
from tests.wsgi import CARD, Peer, rpc

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

from a2a.types import AgentCard as OfficialCard
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier

KEY = ec.generate_private_key(ec.SECP256R1())
SIGNER = CardSigner(KEY, kid="k")
official_verifier = create_signature_verifier(lambda kid, jku: KEY.public_key(), ["ES256"])
EXAMPLES = ["v0_3-agent-card-full.json", "v0_3-agent-card-extended.json", "v0_3-agent-card-minimal.json"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_signatures_of_the_sdk_are_verified(name: str) -> None:
    document = json.loads((SPEC / name).read_text())
    document.pop("signatures", None)
    sign = create_agent_card_signer(KEY, {"kid": "k", "alg": "ES256", "typ": "JOSE", "jku": None})
    signed = sign(OfficialCard.model_validate(document)).model_dump(mode="json", exclude_none=True, by_alias=True)

    assert CardVerifier(SIGNER.public_jwk).verify(signed).header["kid"] == "k"
    with pytest.raises(CardSignatureError, match="over another card"):
        CardVerifier(SIGNER.public_jwk).verify({**signed, "description": "changed"})


@pytest.mark.parametrize("version", ["", "0.3"])
@pytest.mark.parametrize("card", [None, SECURED], ids=["plain", "secured"])
def test_the_sdk_verifies_signatures_in_the_card_of_0_3_and_in_the_combined_card(
    card: AgentCard | None, version: str
) -> None:
    headers = {"A2A-Version": version} if version else {}
    with A2AApp(Agent("grüße"), card=card, url=URL, card_signer=SIGNER) as app:
        document: dict[str, Any] = Peer(app).request("GET", CARD, headers=headers).json

    official_verifier(OfficialCard.model_validate(document))
    with pytest.raises(InvalidSignaturesError):
        official_verifier(OfficialCard.model_validate({**document, "name": "Mallory"}))


def test_the_sdk_verifies_an_extended_card() -> None:
    with A2AApp(Agent("agent"), url=URL, card_signer=SIGNER, extended_card=MORE) as app:
        answer = Peer(app).post(rpc("agent/getAuthenticatedExtendedCard"), headers={"A2A-Version": "0.3"})

    official_verifier(OfficialCard.model_validate(answer.result))
