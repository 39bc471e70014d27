"""Cards made by hand: the short forms say what the long ones say."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import Agent, AgentCard, AgentSkill
from a2a_sync.card import AgentInterface, AgentProvider, HTTPAuthSecurityScheme, SecurityRequirement, create_agent_card
from a2a_sync.errors import InvalidCardError

GREET = AgentSkill(id="greet", name="Greet", description="Says hello", tags=("greet",))

FORMS: list[Any] = [
    [GREET],
    {"greet": "Says hello"},
    [("greet", "Says hello")],
    [{"id": "greet", "description": "Says hello"}],
]


@pytest.mark.parametrize("skills", FORMS, ids=["objects", "by id", "pairs", "dictionaries"])
def test_a_skill_has_short_forms(skills: Any) -> None:
    assert create_agent_card("a", "b", skills=skills).skills == (GREET,)
    assert Agent("a", skills=skills).describe().skills == (GREET,)


def test_a_skill_in_few_words_is_named_and_tagged_after_its_id() -> None:
    skill = AgentSkill.of("word_count", "Counts", examples=["Count this"])

    assert (skill.name, skill.tags, skill.examples) == ("Word count", ("word_count",), ("Count this",))
    assert AgentSkill.of("x", "y", name="Z", tags=["t"]) == AgentSkill(id="x", name="Z", description="y", tags=["t"])


@pytest.mark.parametrize(
    ("skills", "said"),
    [
        ("greet", "skills takes a list"),
        (["greet"], r"skills\[0\]: takes an AgentSkill"),
        ([("greet",)], r"skills\[0\]: takes an AgentSkill"),
        ([GREET, {"id": "x"}], r"skills\[1\]: .*description"),
        ([{"id": "x", "description": "y", "colour": "red"}], r"skills\[0\]: .*colour"),
        ([{"id": "x", "description": "y", "tags": "t"}], r"skills\[0\]: AgentSkill.tags takes a list"),
    ],
)
def test_what_is_no_skill_is_named(skills: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        create_agent_card("a", "b", skills=skills)


def test_a_card_is_complete_in_one_call() -> None:
    card = create_agent_card(
        "greeter",
        "Greets",
        skills={"greet": "Says hello"},
        version="2.1",
        url="https://agent.test/a2a",
        provider=("Example Org", "https://example.com"),
        input_modes=["text/plain", "application/json"],
        streaming=True,
        security_schemes={"bearer": HTTPAuthSecurityScheme(scheme="Bearer")},
        security=["bearer", {"bearer": ["read"]}, SecurityRequirement(schemes={"bearer": ("write",)})],
    )

    assert card == AgentCard(
        name="greeter",
        description="Greets",
        version="2.1",
        supported_interfaces=(
            AgentInterface(url="https://agent.test/a2a", protocol_binding="JSONRPC", protocol_version="1.0"),
        ),
        capabilities=card.capabilities,
        default_input_modes=("text/plain", "application/json"),
        skills=(GREET,),
        provider=AgentProvider(organization="Example Org", url="https://example.com"),
        security_schemes={"bearer": HTTPAuthSecurityScheme(scheme="Bearer")},
        security_requirements=tuple(
            SecurityRequirement(schemes={"bearer": scopes}) for scopes in ((), ("read",), ("write",))
        ),
    )
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, None)


def test_a_card_that_would_be_wrong_is_not_made() -> None:
    with pytest.raises(InvalidCardError) as caught:
        create_agent_card("", "b", skills=[("", "x")], security=["oauth"])
    assert [one.field for one in caught.value.violations] == [
        "name",
        "security_requirements[0].schemes",
        "skills[0].id",
        "skills[0].name",
        "skills[0].tags[0]",
    ]


@pytest.mark.parametrize("member", ["default_input_modes", "default_output_modes", "skills"])
def test_one_string_is_no_list(member: str) -> None:
    with pytest.raises(TypeError, match=f"AgentCard.{member} takes a list of strings, not one string"):
        AgentCard(name="a", description="b", version="1", **{member: "text/plain"})  # type: ignore[arg-type]
