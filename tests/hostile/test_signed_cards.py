"""Modified signed cards: every modification is detected, or the client uses what was signed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from a2a_sync import Client
from a2a_sync.card import AgentCard
from a2a_sync.client.cards import load_card, read_card
from a2a_sync.errors import CardSignatureError
from a2a_sync.signing import CardSigner, CardVerifier
from a2a_sync.signing.canonical import version_of
from tests.client.peer import peer
from tests.wire_examples import SPEC

SIGNER = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="a")
VERIFIER = CardVerifier(SIGNER.public_jwk)
HOME = "https://agent.test/"


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SPEC / f"{name}.json").read_text())
    return document


NEW = example("v1-agent-card-full")
#: A requirement without scopes and a certificate, which the canonical form of the SDKs omits.
BARE = {
    **example("v1-agent-card-minimal"),
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "mtls": {"mtlsSecurityScheme": {}},
    },
    "securityRequirements": [{"schemes": {"key": {"list": []}}}, {"schemes": {"bearer": {"list": []}}}],
}
BOTH = example("v1-agent-card-two-versions")
OLD = example("v0_3-agent-card-full")
CARDS = {"new": NEW, "bare": BARE, "both": BOTH, "old": OLD}


def signed(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`document` once for each of its signatures, with only that one."""
    bare = {name: value for name, value in document.items() if name != "signatures"}
    made = SIGNER.sign(bare)
    return [{**bare, "signatures": [{"protected": one.protected, "signature": one.signature}]} for one in made]


def load(document: Any) -> AgentCard:
    """The card that a signature covers."""
    return load_card(VERIFIER.verify(document).document)


def trusted(document: Any) -> AgentCard | str:
    """The card that a client with the trusted key accepts, or the reason of its refusal."""
    try:
        return read_card(json.dumps(document).encode(), HOME, load)
    except CardSignatureError as error:
        return error.message


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all members and items."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if path or name != "signatures":
            yield (*path, name)
            yield from places(item, (*path, name))


#: Replacements of a member.
_OTHERS = (None, "", "x", 0, True, False, [], {}, [{}], ["x"], {"x": {}}, "https://evil.test/rpc")
#: Members to add to a card.
_ADDED: dict[str, Any] = {
    "supportsAuthenticatedExtendedCard": True,
    "security": [{"evil": []}],
    "securityRequirements": [{"schemes": {"mtls": {}}}],
    "securitySchemes": {"evil": {"mtlsSecurityScheme": {}}},
    "url": "https://evil.test/",
    "preferredTransport": "HTTP+JSON",
    "protocolVersion": "0.3.0",
    "additionalInterfaces": [],
    "supportedInterfaces": [],
    "capabilities": {"extendedAgentCard": False},
    "schemes": {"evil": {}},
    "scopes": {},
    "list": [],
    "type": "http",
    "tenant": "",
    "required": False,
    "extra": "",
    "x": [""],
}


def mutations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each member removed, replaced, duplicated and extended, one at a time."""
    for path in places(document):
        for other in _OTHERS:
            yield f"{path} = {other!r}", _with(document, path, other)
        removed = copy.deepcopy(document)
        holder = _at(removed, path[:-1])
        value = holder.pop(path[-1])
        yield f"{path} removed", removed
        if isinstance(holder, list):
            yield f"{path} doubled", _with(document, path[:-1], [*_at(document, path[:-1]), value])
            yield f"{path} first", _with(document, path[:-1], [value, *holder])
    for path in [(), *places(document)]:
        holder = _at(document, path)
        if isinstance(holder, dict):
            for name, value in _ADDED.items():
                if name not in holder:
                    yield f"{path}.{name} added", _with(document, (*path, name), value)
        if isinstance(holder, list):
            for value in ({}, "", {"schemes": {}}, {"schemes": {"mtls": {}}}, {"schemes": {"evil": {"list": []}}}):
                yield f"{path} + {value!r}", _with(document, path, [*holder, value])


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def _with(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    if not path:
        return changed
    _at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


@pytest.mark.parametrize("name", CARDS)
def test_every_modification_of_a_signed_card_is_detected(name: str) -> None:
    found = harmless = 0
    for document in signed(CARDS[name]):
        original = trusted(document)
        assert isinstance(original, AgentCard), original
        for what, changed in mutations(document):
            read = trusted(changed)
            if isinstance(read, str):
                found += 1
            else:
                assert read == original, what
                harmless += 1
    assert found > 100
    assert harmless > 10


@pytest.mark.parametrize("name", CARDS)
def test_all_signed_members_of_a_card_are_read(name: str) -> None:
    whole = read_card(json.dumps({**CARDS[name], "signatures": []}).encode(), HOME, None)
    read = trusted(signed(CARDS[name])[0])

    assert isinstance(whole, AgentCard)
    assert isinstance(read, AgentCard)
    assert read.supported_interfaces == whole.supported_interfaces
    assert read.security_schemes == whole.security_schemes
    assert read.security_requirements == whole.security_requirements
    assert read.skills == whole.skills
    if version_of(CARDS[name]) == "0.3":
        assert read.capabilities == whole.capabilities


@pytest.mark.parametrize(
    "change",
    [
        {"securityRequirements": [{"schemes": {"bearer": {"list": []}}}]},
        {"securityRequirements": []},
        {"supportsAuthenticatedExtendedCard": True},
    ],
    ids=["another scheme", "no scheme", "an extended card"],
)
def test_a_client_refuses_a_modified_card(change: dict[str, Any]) -> None:
    interface = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    for document in signed({**BARE, "supportedInterfaces": [interface]}):
        changed = {**document, **change}
        with (
            peer({"/.well-known/agent-card.json": lambda asked, line, body=changed: line.answer(body)}) as server,
            Client(server.url, card_verifier=VERIFIER, retry=None) as client,
        ):
            try:
                card = client.card()
            except CardSignatureError:
                continue
            original = read_card(json.dumps(document).encode(), server.url, load)
            assert card == original
