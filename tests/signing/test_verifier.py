"""Signing and verifying: what holds, what does not and why, keys that change, and whose key sets are read."""

from __future__ import annotations

import base64
import hmac
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from a2a_sync.card import AgentCard, AgentCardSignature, MutualTlsSecurityScheme, create_agent_card
from a2a_sync.codec import by_version
from a2a_sync.errors import CardSignatureError, ConnectError
from a2a_sync.signing import ALGORITHMS, CardSigner, CardVerifier
from a2a_sync.signing.canonical import canonical_forms
from a2a_sync.signing.signer import combine_signers
from tests.wire_examples import SPEC

KEY = ec.generate_private_key(ec.SECP256R1())
SIGNER = CardSigner(KEY, kid="a")
OTHER = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="b")
CARD = create_agent_card(
    "Grüße", "Says hello", skills={"greet": "Says hello"}, url="https://agent.test/", streaming=True
)
URL = "https://keys.test/jwks.json"


def signed(card: AgentCard = CARD, *signers: CardSigner) -> dict[str, Any]:
    """The JSON of a card with signatures."""
    made = combine_signers(signers or SIGNER)(by_version("1.0").dump(card))
    document: dict[str, Any] = by_version("1.0").dump(replace(card, signatures=made))
    return document


def refused(verifier: CardVerifier, document: Mapping[str, Any] | AgentCard, **options: Any) -> str:
    with pytest.raises(CardSignatureError) as caught:
        verifier.verify(document, **options)
    assert caught.value.phase == "card"
    return caught.value.message


# -- what holds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_signed_holds_in_every_algorithm(algorithm: str) -> None:
    keys: dict[str, Callable[[], Any]] = {
        "ES256": lambda: KEY,
        "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }
    make = keys.get(algorithm, lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))
    signer = CardSigner(make(), kid="a", algorithm=algorithm, jku=URL)

    header = CardVerifier(signer.public_jwk).verify(signed(CARD, signer)).header

    # spec 8.4.2: alg and kid are required, typ should be JOSE
    assert header == {"alg": algorithm, "kid": "a", "typ": "JOSE", "jku": URL}


def test_a_large_card_with_many_signatures_is_refused_at_once() -> None:
    # This one took nine seconds of processor time.
    document = signed(replace(CARD, description="x" * 9_000_000))
    document["signatures"] = [{**document["signatures"][0], "signature": "AAAA"}] * 16
    began = time.process_time()
    assert "more than 262144 bytes" in refused(CardVerifier(SIGNER.public_jwk), document)
    assert time.process_time() - began < 2


def forged(document: dict[str, Any], number: int) -> dict[str, Any]:
    """`document` with so many signatures of another key, each under the name of the trusted one and in a text of its own."""
    other = ec.generate_private_key(ec.SECP256R1())
    signers = [CardSigner(other, kid="a", jku=f"https://keys.test/{index}") for index in range(number)]
    return {**document, "signatures": [by_version("1.0").dump(signer.sign(document)[0]) for signer in signers]}


def python_calls(work: Callable[[], object]) -> int:
    """How often functions and generators of Python are entered."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_each_further_signature_of_a_large_card_costs_few_calls() -> None:
    # PyJWT searches each text that it decodes in a loop, so sixteen signatures of a card of 1 MiB took two seconds.
    verifier, document = CardVerifier(SIGNER.public_jwk), signed(replace(CARD, description="x" * 50_000))
    one, many = forged(document, 1), forged(document, 16)

    calls = [python_calls(partial(refused, verifier, card)) for card in (one, many)]

    assert calls[1] - calls[0] < 5_000


def test_a_signature_is_checked_over_a_large_card_only_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    verify = jwt.algorithms.ECAlgorithm.verify

    def count(self: Any, text: bytes, key: Any, signature: bytes) -> bool:
        checked.append(len(text))
        return bool(verify(self, text, key, signature))

    monkeypatch.setattr(jwt.algorithms.ECAlgorithm, "verify", count)
    keys = [CardSigner(ec.generate_private_key(ec.SECP256R1()), kid=str(index)).public_jwk for index in range(10)]
    nameless = CardVerifier([{**key, "kid": ""} for key in keys])

    large = forged(signed(replace(CARD, description="x" * 250_000)), 16)
    assert "signatures[15]: not checked, because the card is too large" in refused(nameless, large)
    assert sum(checked) <= 32 * 1024 * 1024

    checked.clear()
    assert "signatures[15]: made by another key" in refused(nameless, forged(signed(), 16))
    assert len(checked) == 160


def test_other_greenlets_run_between_the_checks_of_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[None] = []
    monkeypatch.setattr("a2a_sync.signing.verifier.let_greenlets_run", lambda: pauses.append(None))

    refused(CardVerifier(SIGNER.public_jwk), forged(signed(), 16))

    assert len(pauses) == 16


def test_a_card_of_nearly_the_largest_size_holds() -> None:
    card = replace(CARD, description="x" * 250_000)
    assert CardVerifier(SIGNER.public_jwk).verify(signed(card)).header["kid"] == "a"


def test_a_card_may_be_given_as_an_object() -> None:
    card = replace(CARD, signatures=SIGNER.sign(CARD))

    assert CardVerifier(SIGNER.public_jwk).verify(card).header["kid"] == "a"
    assert "over another card" in refused(CardVerifier(SIGNER.public_jwk), replace(card, version="2"))


def test_the_example_of_the_specification_holds() -> None:
    vector = json.loads((SPEC / "v1-card-signing-vector.json").read_text())

    assert CardVerifier(vector["publicJwk"]).verify(vector["signedCard"]).header["kid"] == "key-1"


def test_a_card_with_empty_members_is_signed_in_both_ways_and_either_one_holds() -> None:
    document = signed(replace(CARD, description="", security_schemes={"mtls": MutualTlsSecurityScheme()}))
    both = document["signatures"]

    assert len(both) == 2
    assert len(signed()["signatures"]) == 1
    for one in both:
        assert CardVerifier(SIGNER.public_jwk).verify({**document, "signatures": [one]})


def test_a_card_of_0_3_is_signed_in_its_own_form() -> None:
    interface = replace(CARD.supported_interfaces[0], protocol_version="0.3")
    old = by_version("0.3").dump(replace(CARD, supported_interfaces=(interface,)))
    made = [by_version("0.3").dump(one) for one in SIGNER.sign(old)]

    assert len(made) == 2
    for one in made:
        assert CardVerifier(SIGNER.public_jwk).verify({**old, "signatures": [one]})
    assert "over another card" in refused(
        CardVerifier(SIGNER.public_jwk), {**old, "url": "https://evil.test/", "signatures": made}
    )


def test_a_card_that_was_signed_keeps_its_signature() -> None:
    signer = CardSigner(KEY, kid="a")

    first = signer.sign(CARD)
    others = [signer.sign(replace(CARD, version=str(number))) for number in range(50)]

    assert signer.sign(CARD) == first
    assert len({one.signature for (one,) in others}) == 50


# -- what does not ------------------------------------------------------------------------------------------------------


def test_a_card_without_signatures_is_said_to_have_none() -> None:
    verifier = CardVerifier(SIGNER.public_jwk)

    assert refused(verifier, CARD) == "the card is not signed"
    for junk in ([], None, {}, "x"):
        assert refused(verifier, {**signed(), "signatures": junk}) == "the card is not signed"


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Mallory"},
        {"iconUrl": "https://evil.test/icon.png"},
        {"supportedInterfaces": [{"url": "https://evil.test", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
        {"capabilities": {"streaming": False}},
        {"capabilities": {}},
        {"skills": []},
    ],
)
def test_whatever_is_changed_the_signature_does_not_hold(changed: dict[str, Any]) -> None:
    with pytest.raises(CardSignatureError) as caught:
        CardVerifier(SIGNER.public_jwk).verify({**signed(), **changed}, agent="http://agent.test")

    assert str(caught.value) == (
        "no signature of the card is valid: signatures[0]: made by another key than 'a', or over another card"
        " [card http://agent.test]"
    )


def protected(**members: Any) -> str:
    text = json.dumps({name: value for name, value in members.items() if value is not None})
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


GOOD = {"alg": "ES256", "kid": "a", "typ": "JOSE"}


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("text", "is none"),
        ({"protected": protected(**GOOD)}, "is none"),
        ({"protected": 1, "signature": "x"}, "is none"),
        ({"protected": "ä", "signature": "x"}, "is none"),
        ({"protected": "!!", "signature": "x"}, "its protected header cannot be read"),
        ({"protected": "e30", "signature": "x"}, "names no algorithm"),
        ({"protected": protected(), "signature": ""}, "names no algorithm"),
        ({"protected": "WzFd", "signature": "x"}, "its protected header cannot be read"),
        ({"protected": protected(**{**GOOD, "alg": "none"}), "signature": ""}, "the algorithm 'none' is not accepted"),
        ({"protected": protected(**{**GOOD, "alg": "HS256"}), "signature": "x"}, "the algorithm 'HS256' is not acc"),
        ({"protected": protected(**{**GOOD, "alg": ["ES256"]}), "signature": "x"}, "names no algorithm"),
        ({"protected": protected(**{**GOOD, "alg": "RS256"}), "signature": "x"}, "the key 'a' is not one for RS256"),
        ({"protected": protected(**{**GOOD, "kid": None}), "signature": "x"}, "names no key (kid)"),
        ({"protected": protected(**{**GOOD, "kid": 7}), "signature": "x"}, "names no key (kid)"),
        ({"protected": protected(**{**GOOD, "kid": "z"}), "signature": "x"}, "the key 'z' is not trusted"),
        ({"protected": protected(**{**GOOD, "kid": "z"}, jku=[URL]), "signature": "x"}, "the key 'z' is not trusted"),
        ({"protected": protected(**{**GOOD, "kid": "z"}, jku={}), "signature": "x"}, "the key 'z' is not trusted"),
        ({"protected": protected(**GOOD, crit=["b64"], b64=False), "signature": "x"}, "extensions of JWS"),
        ({"protected": protected(**GOOD), "signature": "not base64!"}, "made by another key than 'a'"),
        ({"protected": protected(**GOOD), "signature": ""}, "made by another key than 'a'"),
    ],
)
def test_a_signature_that_does_not_count_is_said_why(signature: Any, said: str) -> None:
    message = refused(CardVerifier(SIGNER.public_jwk), {**signed(), "signatures": [signature]})

    assert message.startswith("no signature of the card is valid: signatures[0]: ")
    assert said in message


@pytest.mark.parametrize(
    "changed", [{"kid": "z" * 500_000}, {"alg": "z" * 500_000}, {"kid": "z", "jku": "z" * 500_000}]
)
def test_long_values_of_a_header_are_cut_in_the_error(changed: dict[str, str]) -> None:
    signature = {"protected": protected(**{**GOOD, **changed}), "signature": "x"}
    message = refused(CardVerifier(SIGNER.public_jwk), {**signed(), "signatures": [signature]})
    assert len(message) < 500


def test_a_public_key_is_no_shared_secret() -> None:
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = protected(**{**GOOD, "alg": "HS256"})
    (form,) = canonical_forms(signed(), "1.0")
    payload = base64.urlsafe_b64encode(form).rstrip(b"=").decode()
    forged = hmac.digest(pem, f"{header}.{payload}".encode(), "sha256")
    one = {"protected": header, "signature": base64.urlsafe_b64encode(forged).rstrip(b"=").decode()}

    assert "'HS256' is not accepted" in refused(CardVerifier({"a": pem}), {**signed(), "signatures": [one]})


def test_no_more_than_some_signatures_are_looked_at() -> None:
    good = signed()["signatures"]
    junk = [{"protected": protected(**{**GOOD, "kid": "z"}), "signature": "x"}]

    CardVerifier(SIGNER.public_jwk).verify({**signed(), "signatures": junk * 15 + good})
    assert refused(CardVerifier(SIGNER.public_jwk), {**signed(), "signatures": junk * 16 + good})


def test_what_is_no_card_cannot_be_verified() -> None:
    document = {**signed(), "skills": "none"}

    assert "the card cannot be verified: the card cannot be read: skills" in refused(
        CardVerifier(SIGNER.public_jwk), document
    )


# -- keys that change ---------------------------------------------------------------------------------------------------


def test_while_keys_change_old_and_new_verifiers_are_content() -> None:
    document = signed(CARD, SIGNER, OTHER)

    assert CardVerifier({"a": SIGNER.public_jwk}).verify(document).header["kid"] == "a"
    assert CardVerifier({"b": OTHER.public_jwk}).verify(document).header["kid"] == "b"
    assert CardVerifier([SIGNER.public_jwk, OTHER.public_jwk]).verify(signed(CARD, OTHER)).header["kid"] == "b"


def test_of_several_keys_of_one_name_any_may_have_signed() -> None:
    verifier = CardVerifier({"a": [OTHER.public_jwk, SIGNER.public_jwk]})

    assert verifier.verify(signed())


def test_keys_whose_time_is_over_are_not_used() -> None:
    for over, said in (({"exp": 1}, "has expired"), ({"revoked": {"revoked_at": 1}}, "is revoked")):
        assert f"the key 'a' {said}" in refused(CardVerifier({**SIGNER.public_jwk, **over}), signed())


def test_a_function_may_say_which_key_it_is() -> None:
    asked: list[Mapping[str, Any]] = []

    def keys(header: Mapping[str, Any]) -> Any:
        asked.append(header)
        return SIGNER.public_jwk if header["kid"] == "a" else None

    verifier = CardVerifier(keys)

    assert verifier.verify(signed())
    assert "the key 'b' is not trusted" in refused(verifier, signed(CARD, OTHER))
    assert [header["kid"] for header in asked] == ["a", "b"]


class KeySite:
    """Key sets by their URLs, and the requests for them."""

    def __init__(self, **keys: Any) -> None:
        self.documents: dict[str, Any] = {URL: {"keys": list(keys.values())}}
        self.asked: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.documents:
            raise ConnectError("connection refused", phase="card", agent=url)
        return json.dumps(self.documents[url]).encode()


def test_a_key_set_is_read_once_and_again_for_an_unknown_key_and_when_it_is_old() -> None:
    site = KeySite(a=SIGNER.public_jwk)
    verifier = CardVerifier(URL)
    for _ in range(3):
        verifier.verify(signed(), fetch=site.fetch)
    assert site.asked == [URL]

    site.documents[URL] = {"keys": [OTHER.public_jwk]}
    assert "the key 'b' is not trusted" in refused(verifier, signed(CARD, OTHER), fetch=site.fetch)
    assert site.asked == [URL], "unknown keys do not make it be read all the time"

    eager = CardVerifier(URL, refresh=0.0)
    assert eager.verify(signed(CARD, OTHER), fetch=site.fetch)
    site.documents[URL] = {"keys": [SIGNER.public_jwk]}
    assert "the key 'b' is not trusted" in refused(eager, signed(CARD, OTHER), fetch=site.fetch)


@pytest.mark.parametrize(
    ("document", "said"),
    [(None, "cannot be read: connection refused"), ([], "is no key set"), ({"keys": {}}, "is no key set")],
)
def test_a_key_set_that_cannot_be_read_is_trusted_no_longer(document: Any, said: str) -> None:
    site = KeySite(a=SIGNER.public_jwk)
    verifier = CardVerifier(URL, refresh=0.0)
    verifier.verify(signed(), fetch=site.fetch)

    site.documents = {} if document is None else {URL: document}
    assert said in refused(verifier, signed(), fetch=site.fetch)
    assert "needs the argument fetch" in refused(verifier, signed())


def test_a_key_set_that_a_signature_names_is_read_only_if_it_is_allowed() -> None:
    site = KeySite(a=SIGNER.public_jwk)
    document = signed(CARD, CardSigner(KEY, kid="a", jku=URL))

    assert CardVerifier(jku=[URL]).verify(document, fetch=site.fetch)
    site.asked.clear()
    stranger = CardVerifier({"b": OTHER.public_jwk}, jku=["https://other.test/jwks.json"])
    assert f"the key set that it names ('{URL}') is not among those allowed" in refused(
        stranger, document, fetch=site.fetch
    )
    assert site.asked == []


# -- what a verifier is made of -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CardVerifier(), "needs at least one key"),
        (lambda: CardVerifier([]), "needs at least one key"),
        (lambda: CardVerifier({"keys": []}), "needs at least one key"),
        (lambda: CardVerifier("http://keys.test/jwks.json"), "must begin with https://"),
        (lambda: CardVerifier("https:///jwks.json"), "the URL of a key set has no valid host"),
        (lambda: CardVerifier(jku="http://keys.test/"), "must begin with https://"),
        (lambda: CardVerifier(SIGNER.public_jwk, algorithms=["HS256"]), "'HS256' is none of the algorithms"),
    ],
)
def test_what_cannot_be_trusted_is_refused_at_once(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_algorithms_can_be_narrowed() -> None:
    verifier = CardVerifier(SIGNER.public_jwk, algorithms=["EdDSA"])

    assert "the algorithm 'ES256' is not accepted" in refused(verifier, signed())


def test_what_is_no_signer_does_not_sign() -> None:
    with pytest.raises(TypeError, match="takes a CardSigner, or several, not str"):
        combine_signers(["key"])  # type: ignore[list-item]


def test_a_foreign_signature_beside_ours_does_no_harm() -> None:
    document = signed()
    foreign = by_version("1.0").dump(AgentCardSignature(protected="junk", signature="junk"))

    assert CardVerifier(SIGNER.public_jwk).verify({**document, "signatures": [foreign, *document["signatures"]]})
