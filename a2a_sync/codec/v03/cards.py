"""The agent card of 0.3, with security schemes and requirements.

The main URL is at the top level of a card. Security schemes and requirements are also read in the dialect of HTTP+JSON,
in which some servers return the extended card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from a2a_sync import card as c
from a2a_sync.codec import members as m
from a2a_sync.codec import v10
from a2a_sync.codec.fields import FLAG, STRUCT, TEXT, Invalid, Kind, Scalar, load_at, many, mapping
from a2a_sync.codec.records import Member, Record, Tagged, Variants, load_member, optional

# -- security -----------------------------------------------------------------------------------------------------------

#: In order of preference: a card can offer several flows, a scheme of the model has one.
_FLOWS: dict[str, Record] = {
    "authorizationCode": Record(
        c.AuthorizationCodeOAuthFlow, m.AUTHORIZATION_URL, m.TOKEN_URL, m.REFRESH_URL, m.SCOPES
    ),
    "clientCredentials": Record(c.ClientCredentialsOAuthFlow, m.TOKEN_URL, m.REFRESH_URL, m.SCOPES),
    "implicit": Record(c.ImplicitOAuthFlow, m.AUTHORIZATION_URL, m.REFRESH_URL, m.SCOPES),
    "password": Record(c.PasswordOAuthFlow, m.TOKEN_URL, m.REFRESH_URL, m.SCOPES),
}


def _load_flow(value: Any, strict: bool) -> c.OAuthFlow | None:
    value = STRUCT.load(value, strict)
    name = next((name for name in _FLOWS if value.get(name) is not None), None)
    if name is None:
        if strict:
            raise Invalid(f"needs one of {', '.join(_FLOWS)}")
        return None
    return load_at(name, _FLOWS[name].load, value[name], strict)  # type: ignore[no-any-return]


def _dump_flow(flow: c.OAuthFlow) -> dict[str, Any]:
    # 0.3 has no device code flow; its scheme is written without a flow.
    return {name: record.dump(flow) for name, record in _FLOWS.items() if record.cls is type(flow)}


OAUTH_FLOW = Scalar(_load_flow, _dump_flow)


class _Schemes(Variants):
    """Schemes with a ``type``, and those of the other dialect, which have the form of 1.0."""

    def load(self, value: Any, strict: bool) -> Any:
        if isinstance(value, dict) and value.get("type") is None and value.keys() & v10.SECURITY_SCHEME.keys:
            return v10.SECURITY_SCHEME.load(value, strict)
        return super().load(value, strict)


SECURITY_SCHEME = _Schemes(
    "type",
    Tagged("type", "apiKey", c.APIKeySecurityScheme, *m.api_key_scheme("in")),
    Tagged("type", "http", c.HTTPAuthSecurityScheme, *m.HTTP_SCHEME),
    Tagged("type", "oauth2", c.OAuth2SecurityScheme, *m.oauth2_scheme(OAUTH_FLOW)),
    Tagged("type", "openIdConnect", c.OpenIdConnectSecurityScheme, *m.OPEN_ID_SCHEME),
    Tagged("type", "mutualTLS", c.MutualTlsSecurityScheme, m.DESCRIPTION),
)

_SCOPES_BY_SCHEME = mapping(m.TEXTS)


def _load_requirement(value: Any, strict: bool) -> c.SecurityRequirement:
    if isinstance(value, dict) and isinstance(value.get("schemes"), dict):
        requirement: c.SecurityRequirement = v10.SECURITY_REQUIREMENT.load(value, strict)
        return requirement
    return c.SecurityRequirement(schemes=_SCOPES_BY_SCHEME.load(value, strict))


def _dump_requirement(requirement: c.SecurityRequirement) -> dict[str, list[str]]:
    return {name: list(scopes) for name, scopes in requirement.schemes.items()}


SECURITY_REQUIREMENT = Scalar(_load_requirement, _dump_requirement)
SECURITY = Member("security_requirements", many(SECURITY_REQUIREMENT), "security")

# -- the agent card -----------------------------------------------------------------------------------------------------

_VERSION = "0.3"


def _load_interface(value: Any, strict: bool, version: str = _VERSION) -> c.AgentInterface:
    value = STRUCT.load(value, strict)
    url, transport = (load_member(value, name, TEXT, strict) or "" for name in ("url", "transport"))
    return c.AgentInterface(url=url, protocol_binding=transport, protocol_version=version)


def _dump_interface(interface: c.AgentInterface) -> dict[str, str]:
    return {"url": interface.url, "transport": interface.protocol_binding}


INTERFACE = Scalar(_load_interface, _dump_interface)
AGENT_CAPABILITIES = Record(
    c.AgentCapabilities,
    optional("streaming", FLAG),
    optional("push_notifications", FLAG),
    optional("state_transition_history", FLAG),
    Member("extensions", many(m.AGENT_EXTENSION)),
)
AGENT_SKILL = Record(c.AgentSkill, *m.skill(SECURITY))


class _Card(Record):
    """A card with the main URL, further interfaces and the flag for an extended card at its top level."""

    def load(self, value: Any, strict: bool) -> Any:
        card: c.AgentCard = super().load(value, strict)
        extended = _TOP_LEVEL_CAPABILITIES.found(value, strict).get("extended_agent_card")
        return replace(
            card,
            supported_interfaces=_load_interfaces(value, strict),
            capabilities=replace(card.capabilities, extended_agent_card=extended),
        )

    def dump(self, obj: Any) -> dict[str, Any]:
        spoken = [one for one in obj.supported_interfaces if (one.protocol_version or _VERSION).startswith("0.")]
        if not spoken:
            raise ValueError("the card names no interface of protocol 0.3")
        written = {
            "protocolVersion": f"{_VERSION}.0",
            **super().dump(obj),
            "url": spoken[0].url,
            "preferredTransport": spoken[0].protocol_binding,
            "additionalInterfaces": [_dump_interface(interface) for interface in spoken],
        }
        if obj.capabilities.extended_agent_card:
            written["supportsAuthenticatedExtendedCard"] = True
        return written


_TOP_LEVEL_CAPABILITIES = Record(
    c.AgentCapabilities, optional("extended_agent_card", FLAG, "supportsAuthenticatedExtendedCard")
)


def _load_interfaces(value: dict[str, Any], strict: bool) -> tuple[c.AgentInterface, ...]:
    """The main interface and then the others, without duplicates."""
    version = ".".join((_optional_text(value, "protocolVersion", strict) or _VERSION).split(".")[:2])
    main = c.AgentInterface(
        url=load_member(value, "url", TEXT, strict) or "",
        protocol_binding=_optional_text(value, "preferredTransport", strict) or "JSONRPC",
        protocol_version=version,
    )
    others = many(Scalar(lambda item, strict: _load_interface(item, strict, version)))
    further = load_at("additionalInterfaces", others.load, value.get("additionalInterfaces") or [], strict)
    return tuple(dict.fromkeys((main, *further)))


def _optional_text(value: dict[str, Any], name: str, strict: bool) -> str:
    text: str = load_member(value, name, TEXT, strict) if value.get(name) is not None else ""
    return text


def agent_card(scheme: Kind) -> Record:
    """The kind of an agent card; `scheme` is the kind of a security scheme."""
    return _Card(c.AgentCard, *m.card(AGENT_CAPABILITIES, scheme, SECURITY, AGENT_SKILL))


AGENT_CARD = agent_card(SECURITY_SCHEME)
_RECORDS = (*m.CARD_RECORDS, AGENT_CAPABILITIES, AGENT_SKILL, AGENT_CARD)
KINDS: Mapping[Any, Kind] = {
    **{record.cls: record for record in _RECORDS},
    **dict.fromkeys((c.SecurityScheme, *SECURITY_SCHEME.classes), SECURITY_SCHEME),
    **dict.fromkeys((c.OAuthFlow, c.DeviceCodeOAuthFlow, *(flow.cls for flow in _FLOWS.values())), OAUTH_FLOW),
    c.SecurityRequirement: SECURITY_REQUIREMENT,
    c.AgentInterface: INTERFACE,
}
