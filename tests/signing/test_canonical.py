"""The canonical form of a card: the bytes of the specification, and beside them those of the official SDKs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_sync.signing.canonical import canonical_forms, version_of
from tests import wire_examples
from tests.wire_examples import SPEC

INTERFACE = {"url": "https://agent.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
CARD: dict[str, Any] = {
    "name": "a",
    "description": "b",
    "version": "1",
    "supportedInterfaces": [INTERFACE],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
}
OLD = {
    "name": "a",
    "description": "b",
    "version": "1",
    "url": "https://agent.test/",
    "protocolVersion": "0.3.0",
    "preferredTransport": "JSONRPC",
    "capabilities": {"streaming": False, "stateTransitionHistory": True},
    "skills": [],
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "é"}},
    "security": [{"key": []}],
}


def only(document: dict[str, Any], version: str = "1.0") -> str:
    """The form of a card that has one."""
    (form,) = canonical_forms(document, version)
    return form.decode()


def with_params(params: Any) -> dict[str, Any]:
    return {**CARD, "capabilities": {"extensions": [{"uri": "urn:x", "params": params}]}}


@pytest.mark.parametrize("entry", wire_examples.entries("card-canonicalization"), ids=lambda entry: entry["file"])
def test_a_card_with_empty_members_has_the_form_of_the_specification_and_that_of_the_sdks(
    entry: dict[str, Any],
) -> None:
    example = wire_examples.content(entry)

    forms = [form.decode() for form in canonical_forms(example["card"], "1.0")]

    assert forms == [example["canonicalPerSpec"], example["canonicalPerOfficialSdks"]]


def test_a_card_without_empty_members_has_one_form_and_signatures_are_no_part_of_it() -> None:
    vector = json.loads((SPEC / "v1-card-signing-vector.json").read_text())

    assert only(vector["signedCard"]) == vector["canonicalPayload"]


def test_what_1_0_does_not_know_is_no_part_of_it_and_null_is_nothing() -> None:
    more = {**CARD, "url": "https://agent.test/", "security": [], "iconUrl": None, "new": {"member": 1}}
    more["skills"] = [{**CARD["skills"][0], "level": 3}]

    assert canonical_forms(more, "1.0") == canonical_forms(CARD, "1.0")


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (123456789012345680000.0, "123456789012345680000"),
        (2**53 - 1, "9007199254740991"),
        # Beyond it the numbers of the protocol are not exact.
        (2**53 + 1, "9007199254740992"),
        (-(10**30), "-1e+30"),
    ],
)
def test_numbers_are_doubles_in_their_shortest_form(number: float, written: str) -> None:
    assert f'"params":{{"n":{written}}}' in only(with_params({"n": number}))


def test_names_are_ordered_by_utf_16_and_text_is_not_escaped() -> None:
    written = only(with_params({"\U0001f600": 1, "\ufb01": 2, "é": "\u2028\n"}))

    assert '{"é":"\u2028\\n","\U0001f600":1,"\ufb01":2}' in written


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "document",
    [
        {**CARD, "skills": "none"},
        {**CARD, "supportedInterfaces": [1]},
        with_params({"n": float("inf")}),
        with_params({"text": "\ud800"}),
        with_params(nested(5000)),
    ],
    ids=["type", "item", "number", "surrogate", "depth"],
)
def test_what_has_no_form_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        canonical_forms(document, "1.0")


def test_a_card_of_0_3_has_its_own_json_and_what_its_sdk_makes_of_it() -> None:
    plain, short = canonical_forms({**OLD, "signatures": [{}]}, "0.3")

    assert json.loads(plain) == OLD
    assert "é".encode() in plain
    assert short == (
        b'{"capabilities":{"stateTransitionHistory":true,"streaming":false},"description":"b","name":"a",'
        b'"securitySchemes":{"key":{"in":"header","name":"\\u00e9"}},"url":"https://agent.test/","version":"1"}'
    )


def test_a_card_for_both_is_one_of_1_0() -> None:
    assert version_of(OLD) == "0.3"
    assert version_of({**OLD, **CARD}) == "1.0"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_number_that_no_double_can_hold_is_refused(version: str) -> None:
    card = CARD if version == "1.0" else OLD
    capabilities = {"extensions": [{"uri": "urn:example", "params": {"n": 10**400}}]}
    with pytest.raises(ValueError, match="too large"):
        canonical_forms({**card, "capabilities": capabilities}, version)
