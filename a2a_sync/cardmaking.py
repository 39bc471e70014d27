"""Cards made by hand, with short forms for what would be long, and checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from a2a_sync.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    SecurityRequirement,
    SecurityScheme,
    Skills,
    as_skills,
)
from a2a_sync.cardrules import validate_card


def create_agent_card(
    name: str,
    description: str,
    *,
    skills: Skills,
    version: str = "1.0.0",
    url: str = "",
    interfaces: Sequence[AgentInterface] = (),
    input_modes: Sequence[str] = ("text/plain",),
    output_modes: Sequence[str] = ("text/plain",),
    provider: AgentProvider | tuple[str, str] | None = None,
    documentation_url: str | None = None,
    icon_url: str | None = None,
    streaming: bool | None = None,
    push_notifications: bool | None = None,
    extended_agent_card: bool | None = None,
    extensions: Sequence[AgentExtension] = (),
    security_schemes: Mapping[str, SecurityScheme] | None = None,
    security: Sequence[SecurityRequirement | Mapping[str, Sequence[str]] | str] = (),
) -> AgentCard:
    """A complete, checked `AgentCard`.

    Parameters:
        skills: objects, or short forms: ``{"greet": "Says hello"}``, or a list of ``("greet", "Says hello")`` and of
            dictionaries with the arguments of `AgentSkill.of`.
        url: where the agent speaks JSON-RPC of protocol 1.0. An `A2AApp` that serves the card fills addresses in itself.
        interfaces: all its addresses, where that is not enough.
        provider: organization and URL.
        streaming, push_notifications, extended_agent_card: for an agent elsewhere; an `A2AApp` says what it does itself,
            and streams unless `streaming` is False.
        security: the alternatives of which a caller must meet one: names of schemes that need no scopes, or dictionaries of
            names and scopes that are needed together.

    Raises:
        InvalidCardError: naming each member that is missing or wrong.
        TypeError: a skill that is none of the forms above.
    """
    here = (AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),) if url else ()
    card = AgentCard(
        name=name,
        description=description,
        version=version,
        supported_interfaces=tuple(interfaces) or here,
        capabilities=AgentCapabilities(
            streaming=streaming,
            push_notifications=push_notifications,
            extensions=tuple(extensions),
            extended_agent_card=extended_agent_card,
        ),
        default_input_modes=input_modes,
        default_output_modes=output_modes,
        skills=as_skills(skills),
        provider=AgentProvider(organization=provider[0], url=provider[1]) if isinstance(provider, tuple) else provider,
        documentation_url=documentation_url,
        icon_url=icon_url,
        security_schemes=dict(security_schemes or {}),
        security_requirements=tuple(map(_requirement, security)),
    )
    validate_card(card, may_lack=("supported_interfaces",))
    return card


def _requirement(given: SecurityRequirement | Mapping[str, Sequence[str]] | str) -> SecurityRequirement:
    if isinstance(given, SecurityRequirement):
        return given
    needed = {given: ()} if isinstance(given, str) else given
    return SecurityRequirement(schemes={name: tuple(scopes) for name, scopes in needed.items()})
