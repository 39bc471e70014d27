"""The agent card: what an agent is, where it is reached, what it can do and what it asks of callers (spec 4.4, 4.5, 8).

Plain data, like `types`. A card says only what its app really offers: `app` fills interfaces and capabilities in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from a2a_sync.types import JSON, JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInterface(JSONObject):
    """One address of an agent: URL, binding (``JSONRPC``, ``HTTP+JSON``, ``GRPC`` or a URI), protocol version, tenant."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProvider(JSONObject):
    """Who offers the agent."""

    organization: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExtension(JSONObject):
    """An extension the agent understands (spec 4.6)."""

    uri: str
    description: str = ""
    required: bool = False
    params: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCapabilities(JSONObject):
    """Optional abilities; ``None`` is "not said" and counts as no.

    ``state_transition_history`` is what a card of protocol 0.3 says; 1.0 has no such member, and an app's own card never has it.
    """

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None
    state_transition_history: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCardSignature(JSONObject):
    """A JWS over the canonical card (spec 8.4)."""

    protected: str
    signature: str
    header: Mapping[str, JSON] = field(default_factory=dict)


# -- security (spec 4.5) ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class APIKeySecurityScheme(JSONObject):
    """A key in a header, a query parameter or a cookie (``location``)."""

    location: str
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPAuthSecurityScheme(JSONObject):
    """An ``Authorization`` scheme such as ``Bearer`` or ``Basic``."""

    scheme: str
    bearer_format: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCodeOAuthFlow(JSONObject):
    """OAuth 2: authorization code."""

    authorization_url: str
    token_url: str
    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)
    pkce_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentialsOAuthFlow(JSONObject):
    """OAuth 2: client credentials."""

    token_url: str
    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCodeOAuthFlow(JSONObject):
    """OAuth 2: device code (RFC 8628)."""

    device_authorization_url: str
    token_url: str
    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplicitOAuthFlow(JSONObject):
    """OAuth 2: implicit (deprecated)."""

    authorization_url: str = ""
    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordOAuthFlow(JSONObject):
    """OAuth 2: resource owner password (deprecated)."""

    token_url: str = ""
    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)


OAuthFlow: TypeAlias = (
    AuthorizationCodeOAuthFlow
    | ClientCredentialsOAuthFlow
    | DeviceCodeOAuthFlow
    | ImplicitOAuthFlow
    | PasswordOAuthFlow
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2SecurityScheme(JSONObject):
    """OAuth 2 with one flow."""

    flow: OAuthFlow
    oauth2_metadata_url: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdConnectSecurityScheme(JSONObject):
    """OpenID Connect discovery."""

    open_id_connect_url: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutualTlsSecurityScheme(JSONObject):
    """A client certificate."""

    description: str = ""


SecurityScheme: TypeAlias = (
    APIKeySecurityScheme
    | HTTPAuthSecurityScheme
    | OAuth2SecurityScheme
    | OpenIdConnectSecurityScheme
    | MutualTlsSecurityScheme
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityRequirement(JSONObject):
    """Schemes that are needed together, by name, each with its scopes; a list of requirements is a choice."""

    schemes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# -- skills and the card ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSkill(JSONObject):
    """Something the agent can do. Modes are media types; where empty the card's defaults hold."""

    id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()
    security_requirements: Sequence[SecurityRequirement] = ()

    def __post_init__(self) -> None:
        _hold_tuples(self, "tags", "examples", "input_modes", "output_modes", "security_requirements")

    @classmethod
    def of(cls, id: str, description: str, *, name: str = "", tags: Sequence[str] = (), **more: Any) -> AgentSkill:
        """The skill in few words: without a `name` and `tags` it has those that its id gives (``word_count``: "Word count").

        `more` are the other members.
        """
        spoken = id.replace("_", " ").replace("-", " ").strip()
        return cls(
            id=id, name=name or spoken[:1].upper() + spoken[1:], description=description, tags=tags or (id,), **more
        )


#: A skill, or a short form of one: id and description, or the arguments of `AgentSkill.of` by name.
Skill: TypeAlias = AgentSkill | tuple[str, str] | Mapping[str, Any]
#: A list of skills, or their descriptions by id.
Skills: TypeAlias = Sequence[Skill] | Mapping[str, str]


def as_skills(skills: Skills) -> tuple[AgentSkill, ...]:
    """Skills as a card holds them.

    Raises:
        TypeError: one is in none of the forms; the message names it.
    """
    if isinstance(skills, str):
        raise TypeError("skills takes a list of skills, or descriptions by id; not one string")
    listed: Sequence[Skill] = list(skills.items()) if isinstance(skills, Mapping) else skills
    return tuple(_as_skill(index, skill) for index, skill in enumerate(listed))


def _as_skill(index: int, skill: Skill) -> AgentSkill:
    try:
        match skill:
            case AgentSkill():
                return skill
            case (str(id), str(description)):
                return AgentSkill.of(id, description)
            case Mapping():
                return AgentSkill.of(**skill)
    except TypeError as error:
        raise TypeError(f"skills[{index}]: {error}") from None
    raise TypeError(f"skills[{index}]: takes an AgentSkill, (id, description) or a dictionary, not {skill!r}")


def _hold_tuples(obj: Any, *names: str) -> None:
    """People write lists in class bodies; the object stays immutable."""
    for name in names:
        value = getattr(obj, name)
        if type(value) is tuple:
            continue
        if isinstance(value, str):
            raise TypeError(f"{type(obj).__name__}.{name} takes a list of strings, not one string")
        object.__setattr__(obj, name, tuple(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCard(JSONObject):
    """What an agent tells about itself at ``/.well-known/agent-card.json``."""

    name: str
    description: str
    version: str
    supported_interfaces: Sequence[AgentInterface] = ()
    capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)
    default_input_modes: Sequence[str] = ("text/plain",)
    default_output_modes: Sequence[str] = ("text/plain",)
    skills: Sequence[AgentSkill] = ()
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    security_schemes: Mapping[str, SecurityScheme] = field(default_factory=dict)
    security_requirements: Sequence[SecurityRequirement] = ()
    signatures: Sequence[AgentCardSignature] = ()

    def __post_init__(self) -> None:
        _hold_tuples(
            self,
            "supported_interfaces",
            "default_input_modes",
            "default_output_modes",
            "skills",
            "security_requirements",
            "signatures",
        )

    def skill(self, skill_id: str) -> AgentSkill:
        """The skill with this id.

        Raises:
            KeyError: there is none.
        """
        for skill in self.skills:
            if skill.id == skill_id:
                return skill
        raise KeyError(skill_id)
