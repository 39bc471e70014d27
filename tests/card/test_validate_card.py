"""The rules of cards: whatever is wrong is named by its member, all of it at once."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, AgentSkill
from a2a_sync import card as c
from a2a_sync.card import validate_card
from a2a_sync.codec import by_version
from a2a_sync.errors import InvalidCardError
from tests.wire_examples import SPEC

SKILL = AgentSkill(id="greet", name="Greet", description="Says hello", tags=("hello",))
HERE = c.AgentInterface(url="https://agent.test/", protocol_binding="JSONRPC", protocol_version="1.0")
CARD = AgentCard(name="a", description="b", version="1.0.0", supported_interfaces=(HERE,), skills=(SKILL,))


def wrong(card: AgentCard) -> dict[str, str]:
    """What is wrong with a card, by member."""
    with pytest.raises(InvalidCardError) as caught:
        validate_card(card)
    found = dict(caught.value.violations)
    assert len(found) == len(caught.value.violations)
    assert all(f"{member}: {description}" in str(caught.value) for member, description in found.items())
    return found


def secured(scheme: Any, *schemes: str) -> AgentCard:
    requirement = c.SecurityRequirement(schemes=dict.fromkeys(schemes or ("key",), ()))
    return replace(CARD, security_schemes={"key": scheme}, security_requirements=(requirement,))


def test_a_complete_card_is_right() -> None:
    validate_card(CARD)


@pytest.mark.parametrize("name", ["full", "two-versions", "extended", "minimal"])
def test_the_cards_of_the_specification_are_right(name: str) -> None:
    validate_card(by_version("1.0").load(AgentCard, json.loads((SPEC / f"v1-agent-card-{name}.json").read_text())))


WRONG: dict[str, tuple[AgentCard, str]] = {
    "name": (replace(CARD, name=" "), "is required"),
    "description": (replace(CARD, description=""), "is required"),
    "version": (replace(CARD, version=1.0), "must be text, not of type float"),  # type: ignore[arg-type]
    "supported_interfaces": (replace(CARD, supported_interfaces=()), "needs at least one"),
    "supported_interfaces[0].url": (
        replace(CARD, supported_interfaces=[replace(HERE, url="/a2a")]),
        "'/a2a' is not an absolute URL (https://…)",
    ),
    "supported_interfaces[0].protocol_version": (
        replace(CARD, supported_interfaces=[replace(HERE, protocol_version="v1")]),
        "'v1' is not a version such as 1.0",
    ),
    "supported_interfaces[0].protocol_binding": (
        replace(CARD, supported_interfaces=[replace(HERE, protocol_binding="")]),
        "is required",
    ),
    "supported_interfaces[1]": (
        replace(CARD, supported_interfaces=[HERE, HERE]),
        "is there already, as supported_interfaces[0]",
    ),
    "default_input_modes": (replace(CARD, default_input_modes=()), "needs at least one"),
    "default_output_modes[1]": (
        replace(CARD, default_output_modes=["text/plain", "text"]),
        "'text' is not a media type such as text/plain",
    ),
    "provider": (
        replace(CARD, provider={"organization": "x"}),  # type: ignore[arg-type]
        "must be of type AgentProvider, not dict",
    ),
    "provider.url": (
        replace(CARD, provider=c.AgentProvider(organization="x", url="example.com")),
        "'example.com' is not an absolute URL (https://…)",
    ),
    "icon_url": (replace(CARD, icon_url=""), "is required"),
    "documentation_url": (replace(CARD, documentation_url="docs"), "'docs' is not an absolute URL (https://…)"),
    "capabilities": (
        replace(CARD, capabilities=None),  # type: ignore[arg-type]
        "must be of type AgentCapabilities, not NoneType",
    ),
    "capabilities.extensions[0].uri": (
        replace(CARD, capabilities=c.AgentCapabilities(extensions=(c.AgentExtension(uri=""),))),
        "is required",
    ),
    "capabilities.extensions[1].uri": (
        replace(CARD, capabilities=c.AgentCapabilities(extensions=(c.AgentExtension(uri="urn:x"),) * 2)),
        "'urn:x' is the URI of capabilities.extensions[0]",
    ),
    "skills": (replace(CARD, skills=()), "needs at least one"),
    "skills[0]": (replace(CARD, skills=["greet"]), "must be of type AgentSkill, not str"),  # type: ignore[list-item]
    "skills[0].id": (replace(CARD, skills=[replace(SKILL, id="")]), "is required"),
    "skills[0].tags": (replace(CARD, skills=[replace(SKILL, tags=())]), "needs at least one"),
    "skills[0].tags[1]": (replace(CARD, skills=[replace(SKILL, tags=["a", ""])]), "is required"),
    "skills[0].examples[0]": (
        replace(CARD, skills=[replace(SKILL, examples=[{}])]),  # type: ignore[list-item]
        "must be text, not of type dict",
    ),
    "skills[0].input_modes[0]": (
        replace(CARD, skills=[replace(SKILL, input_modes=["json"])]),
        "'json' is not a media type such as text/plain",
    ),
    "skills[0].security_requirements[0].schemes": (
        replace(CARD, skills=[replace(SKILL, security_requirements=(c.SecurityRequirement(schemes={"key": ()}),))]),
        "'key' is not one of security_schemes",
    ),
    "skills[1].id": (replace(CARD, skills=[SKILL, SKILL]), "'greet' is the id of skills[0]"),
    "security_requirements[0].schemes": (
        secured(c.MutualTlsSecurityScheme(), "other"),
        "'other' is not one of security_schemes",
    ),
    "security_schemes['key']": (secured("key"), "must be of type security scheme, not str"),
    "security_schemes['key'].location": (
        secured(c.APIKeySecurityScheme(location="body", name="k")),
        "'body' is none of header, query, cookie",
    ),
    "security_schemes['key'].name": (secured(c.APIKeySecurityScheme(location="header", name="")), "is required"),
    "security_schemes['key'].scheme": (secured(c.HTTPAuthSecurityScheme(scheme="")), "is required"),
    "security_schemes['key'].open_id_connect_url": (
        secured(c.OpenIdConnectSecurityScheme(open_id_connect_url="login")),
        "'login' is not an absolute URL (https://…)",
    ),
    "security_schemes['key'].flow": (
        secured(c.OAuth2SecurityScheme(flow=None)),  # type: ignore[arg-type]
        "must be an OAuth flow, not of type NoneType",
    ),
    "security_schemes['key'].flow.token_url": (
        secured(c.OAuth2SecurityScheme(flow=c.ClientCredentialsOAuthFlow(token_url=""))),
        "is required",
    ),
}


@pytest.mark.parametrize("member", WRONG)
def test_what_is_wrong_is_named_by_its_member(member: str) -> None:
    card, description = WRONG[member]

    assert wrong(card) == {member: description}


def test_all_errors_are_reported_together() -> None:
    card = replace(CARD, name="", skills=[replace(SKILL, id="", tags=()), SKILL, SKILL])

    assert list(wrong(card)) == ["name", "skills[0].id", "skills[0].tags", "skills[2].id"]


def test_a_card_with_very_many_members_is_checked_in_proportion() -> None:
    """Each was looked for in the list: 20,000 interfaces took 24 seconds."""
    many = range(20_000)
    capabilities = c.AgentCapabilities(extensions=tuple(c.AgentExtension(uri=f"urn:{number}") for number in many))
    card = replace(
        CARD,
        capabilities=capabilities,
        supported_interfaces=[*(replace(HERE, url=f"https://agent.test/{number}") for number in many), HERE, HERE],
        skills=[*(replace(SKILL, id=str(number)) for number in many), replace(SKILL, id="7")],
    )
    begun = time.thread_time()
    assert wrong(card) == {
        "supported_interfaces[20001]": "is there already, as supported_interfaces[20000]",
        "skills[20000].id": "'7' is the id of skills[7]",
    }
    assert time.thread_time() - begun < 4


def test_values_that_have_no_hash_are_compared_too() -> None:
    listed = [replace(HERE, tenant=[]), {"url": "x"}, {"url": "x"}]  # type: ignore[arg-type]
    found = wrong(replace(CARD, supported_interfaces=listed[:2]))  # type: ignore[arg-type]
    assert found == {"supported_interfaces[1]": "must be of type AgentInterface, not dict"}
    with pytest.raises(
        InvalidCardError, match=r"supported_interfaces\[2\]: is there already, as supported_interfaces\[1\]"
    ):
        validate_card(replace(CARD, supported_interfaces=listed))  # type: ignore[arg-type]


def test_what_may_be_absent_may_still_not_be_wrong() -> None:
    validate_card(replace(CARD, skills=()), may_lack=["skills"])
    with pytest.raises(InvalidCardError, match=r"skills\[0\].id"):
        validate_card(replace(CARD, skills=[replace(SKILL, id="")]), may_lack=["skills"])
    with pytest.raises(InvalidCardError, match="description: must be text"):
        validate_card(replace(CARD, description=5), may_lack=["description"])  # type: ignore[arg-type]


def test_what_is_no_card_is_a_mistake_of_type() -> None:
    with pytest.raises(TypeError, match="not of type dict"):
        validate_card({"name": "x"})  # type: ignore[arg-type]


def test_an_app_does_not_start_with_a_card_that_is_wrong() -> None:
    with pytest.raises(InvalidCardError, match=r"skills\[1\].id: 'greet' is the id of skills\[0\]"):
        A2AApp(Agent("a", skills=[SKILL, SKILL]))
    with pytest.raises(InvalidCardError, match=r"default_input_modes\[0\]: 'text' is not a media type"):
        A2AApp(Agent("a", input_modes=["text"]))
    A2AApp(Agent("an agent may do without a description and skills")).close()
