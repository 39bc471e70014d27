"""Section C, third part: creation of card signatures; and their verification, of section F.

The canonical form is implemented here independently, for cards whose texts the standard library can serialise.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from a2a_sync import Client
from a2a_sync.errors import CardSignatureError, ConnectError
from tests.certificates import Authority
from tests.client.peer import peer
from tests.conformance.encoding import card
from tests.conformance.stage import RPC, Stage, offered, staged
from tests.conformance.stage import card as staged_card
from tests.conformance.suite import C, F, Level, Way
from tests.conformance.system import Lab, Speaker

_SPEC = Path(__file__).parent.parent / "spec"
_ONCE = (Way.RPC,)
KID = "suite-1"


@cache
def private_key() -> ec.EllipticCurvePrivateKey:
    """The signing key of the signed agent."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem() -> str:
    """The same key as text."""
    return (
        private_key()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def canonical(document: dict[str, Any]) -> bytes:
    """The signed form: without signatures, with sorted members, without whitespace."""
    left = {name: value for name, value in document.items() if name != "signatures"}
    return json.dumps(left, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def holds(signature: dict[str, Any], form: bytes, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether the ES256 signature of `form` is valid."""
    value = _bytes(signature["signature"])
    pair = (int.from_bytes(value[:32], "big"), int.from_bytes(value[32:], "big"))
    try:
        key.verify(
            encode_dss_signature(*pair),
            f"{signature['protected']}.{_text(form)}".encode(),
            ec.ECDSA(hashes.SHA256()),
        )
    except InvalidSignature:
        return False
    return True


@C.line("V1-SIGN-01", Level.MUST, "a signature is over the canonical form of the card without signatures", ways=_ONCE)
def a_signature_is_over_the_canonical_form(at: Speaker) -> None:
    signed = card(at.on("signed"))
    assert signed["signatures"]
    key = private_key().public_key()
    assert any(holds(one, canonical(signed), key) for one in signed["signatures"])
    assert not any(holds(one, canonical({**signed, "name": "other"}), key) for one in signed["signatures"])
    vector = json.loads((_SPEC / "v1-card-signing-vector.json").read_text())
    numbers = ec.EllipticCurvePublicNumbers(
        *(int.from_bytes(_bytes(vector["publicJwk"][name]), "big") for name in ("x", "y")), ec.SECP256R1()
    )
    # The suite's implementation, compared with an independent one.
    payload = vector["canonicalPayload"].encode()
    assert holds(vector["signedCard"]["signatures"][0], payload, numbers.public_key())


@C.line("V1-SIGN-02", Level.MUST, "the signed form includes set members, also false, and omits absent ones", ways=_ONCE)
def the_form_has_what_was_said(at: Speaker) -> None:
    signed = card(at.on("signed"))
    assert signed["capabilities"]["pushNotifications"] is False
    assert "documentationUrl" not in signed
    key = private_key().public_key()
    said = {name: value for name, value in signed["capabilities"].items() if value is not False}
    assert any(holds(one, canonical(signed), key) for one in signed["signatures"])
    silent = {**signed, "capabilities": said}
    louder = {**signed, "documentationUrl": ""}
    for other in (silent, louder):
        assert not any(holds(one, canonical(other), key) for one in signed["signatures"])


@C.line("V1-SIGN-03", Level.MUST, "its header names algorithm, key and type", ways=_ONCE)
def the_header_is_complete(at: Speaker) -> None:
    for one in card(at.on("signed"))["signatures"]:
        header = json.loads(_bytes(one["protected"]))
        assert (header["alg"], header["kid"], header["typ"]) == ("ES256", KID, "JOSE")


# -- the client ---------------------------------------------------------------------------------------------------------


def _sign(document: dict[str, Any], **header: Any) -> dict[str, Any]:
    """`document` with a signature of the suite."""
    protected = _text(json.dumps({"alg": "ES256", "kid": KID, "typ": "JOSE", **header}).encode())
    made = private_key().sign(f"{protected}.{_text(canonical(document))}".encode(), ec.ECDSA(hashes.SHA256()))
    value = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(made))
    return {**document, "signatures": [{"protected": protected, "signature": _text(value)}]}


def _jwk(**members: Any) -> dict[str, Any]:
    numbers = private_key().public_key().public_numbers()
    point = {name: _text(getattr(numbers, name).to_bytes(32, "big")) for name in ("x", "y")}
    return {"kty": "EC", "crv": "P-256", **point, "kid": KID, "alg": "ES256", "use": "sig", **members}


def _trusts(
    lab: Lab,
    stage: Stage,
    document: dict[str, Any],
    call: Callable[[Client], Any] = lambda client: client.get_task("t-1"),
    **members: Any,
) -> bool:
    """Let a client that trusts the suite's key call the agent with this card."""
    stage.card = document
    with lab.client(stage.url, card_verifier={"keys": [_jwk(**members)]}, retry=None) as client:
        try:
            call(client)
        except CardSignatureError:
            return False
    return True


@F.line("V1-CCARD-03", Level.SHOULD, "a client may require a trusted signature")
def signatures_are_insisted_on(lab: Lab) -> None:
    with staged() as stage:
        plain = dict(stage.card)
        signed = _sign(plain)
        assert _trusts(lab, stage, signed)
        asked = len(stage.asked)
        elsewhere = [{**plain["supportedInterfaces"][0], "url": f"{stage.url}/evil"}]
        for document in (
            plain,
            {**signed, "description": "Another"},
            {**signed, "supportedInterfaces": elsewhere},
            _sign(plain, kid="another"),
            _sign(plain, alg="none"),
            _sign(plain, alg="HS256"),
        ):
            assert not _trusts(lab, stage, document)
        assert len(stage.asked) == asked
        stage.card = signed
        for document, trusted in ((signed, True), (plain, False), ({**signed, "description": "Another"}, False)):
            stage.parts["GetExtendedAgentCard"] = document
            assert _trusts(lab, stage, signed, lambda client: client.extended_card()) is trusted


@F.line("V1-CCARD-04", Level.MUST_NOT, "expired and revoked keys are not used")
def old_keys_are_not_used(lab: Lab) -> None:
    with staged() as stage:
        signed = _sign(dict(stage.card))
        assert not _trusts(lab, stage, signed, exp=1_000_000_000)
        assert not _trusts(lab, stage, signed, revoked={"revoked_at": 1_000_000_000})
        assert _trusts(lab, stage, signed, exp=4_000_000_000)


# -- connections --------------------------------------------------------------------------------------------------------


@F.line("V1-CSEL-03", Level.SHOULD, "another URL of the card is used if the first refuses the connection")
def another_address_stands_in(lab: Lab) -> None:
    with staged() as stage, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        dead = {**offered(*RPC), "url": f"http://127.0.0.1:{held.getsockname()[1]}/"}
        rest = {"protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        stage.card = staged_card(f"{stage.url}/api", dead, rest)
        stage.card["supportedInterfaces"][0] = dead
        with lab.client(stage.url, retry=None) as client:
            assert client.get_task("t-1").id == "t-1"
        assert [asked.path for asked in stage.asked] == ["/api/tasks/t-1"]


@F.line("V1-CSEL-05", Level.SHOULD, "a server with an untrusted certificate is not called")
def certificates_are_checked(lab: Lab) -> None:
    stage = Stage({})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder, peer(stage.play, context) as server:
        authority = Authority(Path(folder))
        context.load_cert_chain(*authority.issue("127.0.0.1"))
        stage.server = server
        url = server.url.replace("http:", "https:")
        stage.card = staged_card(f"{url}/api", offered(*RPC))
        with lab.client(url, retry=None) as client, pytest.raises(ConnectError):
            client.get_task("t-1")
        assert server.asked == []
        trusting = requests.Session()
        trusting.trust_env, trusting.verify = False, authority.ca
        with trusting, lab.client(url, session=trusting) as client:
            assert client.get_task("t-1").id == "t-1"
