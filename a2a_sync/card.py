"""The agent card: identity, addresses, capabilities, skills and security of an agent (spec 4.4, 4.5, 8).

The classes are plain data, like `types`. `create_agent_card` makes a card from short forms, `validate_card` checks one and
reports every violation at once. An `A2AApp` fills in interfaces and capabilities itself. Cards of peers are not checked here:
codecs read them leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from a2a_sync import urls
from a2a_sync.display import Displayed
from a2a_sync.errors import FieldViolation, InvalidCardError
from a2a_sync.types import JSON, JSONObject

__all__ = [
    "APIKeySecurityScheme",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardSignature",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "AuthorizationCodeOAuthFlow",
    "ClientCredentialsOAuthFlow",
    "DeviceCodeOAuthFlow",
    "HTTPAuthSecurityScheme",
    "ImplicitOAuthFlow",
    "MutualTlsSecurityScheme",
    "OAuth2SecurityScheme",
    "OAuthFlow",
    "OpenIdConnectSecurityScheme",
    "PasswordOAuthFlow",
    "SecurityRequirement",
    "SecurityScheme",
    "Skill",
    "Skills",
    "create_agent_card",
    "validate_card",
]

#: Members that an app fills in, and members that the specification requires and agents may omit.
FILLED_IN_BY_APP = ("description", "skills", "supported_interfaces")

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+(?:\s*;.*)?", re.ASCII)
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_OVER_HTTP = ("JSONRPC", "HTTP+JSON")
_LOCATIONS = ("header", "query", "cookie")

_Found: TypeAlias = Iterator[FieldViolation]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInterface(JSONObject):
    """One address of an agent: URL, binding (``JSONRPC``, ``HTTP+JSON``, ``GRPC`` or a URI), protocol version, tenant."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProvider(JSONObject):
    """The organization that offers the agent."""

    organization: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExtension(JSONObject):
    """An extension that the agent supports (spec 4.6)."""

    uri: str
    description: str = ""
    required: bool = False
    params: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCapabilities(JSONObject):
    """Optional features; ``None`` means that the card does not mention the feature, and counts as False.

    ``state_transition_history`` is a member of protocol 0.3 only; an app's own card never has it.
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
class _SecurityScheme(JSONObject):
    """What each scheme has."""

    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class APIKeySecurityScheme(_SecurityScheme):
    """A key in a header, a query parameter or a cookie (``location``)."""

    location: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPAuthSecurityScheme(_SecurityScheme):
    """An ``Authorization`` scheme such as ``Bearer`` or ``Basic``."""

    scheme: str
    bearer_format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OAuthFlow(JSONObject):
    """What each flow has."""

    refresh_url: str = ""
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCodeOAuthFlow(_OAuthFlow):
    """OAuth 2: authorization code."""

    authorization_url: str
    token_url: str
    pkce_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentialsOAuthFlow(_OAuthFlow):
    """OAuth 2: client credentials."""

    token_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCodeOAuthFlow(_OAuthFlow):
    """OAuth 2: device code (RFC 8628)."""

    device_authorization_url: str
    token_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplicitOAuthFlow(_OAuthFlow):
    """OAuth 2: implicit (deprecated)."""

    authorization_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordOAuthFlow(_OAuthFlow):
    """OAuth 2: resource owner password (deprecated)."""

    token_url: str = ""


OAuthFlow: TypeAlias = (
    AuthorizationCodeOAuthFlow
    | ClientCredentialsOAuthFlow
    | DeviceCodeOAuthFlow
    | ImplicitOAuthFlow
    | PasswordOAuthFlow
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2SecurityScheme(_SecurityScheme):
    """OAuth 2 with one flow."""

    flow: OAuthFlow
    oauth2_metadata_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdConnectSecurityScheme(_SecurityScheme):
    """OpenID Connect discovery."""

    open_id_connect_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MutualTlsSecurityScheme(_SecurityScheme):
    """A client certificate."""


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
    """Something the agent can do. Modes are media types; if they are empty, the defaults of the card apply."""

    id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()
    security_requirements: Sequence[SecurityRequirement] = ()

    def __post_init__(self) -> None:
        _convert_to_tuples(self, "tags", "examples", "input_modes", "output_modes", "security_requirements")

    @classmethod
    def of(cls, id: str, description: str, *, name: str = "", tags: Sequence[str] = (), **more: Any) -> AgentSkill:
        """A skill; by default `name` and `tags` are derived from the id (``word_count``: "Word count").

        `more` are the other members.
        """
        words = id.replace("_", " ").replace("-", " ").strip()
        return cls(
            id=id, name=name or words[:1].upper() + words[1:], description=description, tags=tags or (id,), **more
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


def _convert_to_tuples(obj: AgentCard | AgentSkill, *names: str) -> None:
    """People write lists in class bodies; the object stays immutable."""
    for name in names:
        value = getattr(obj, name)
        if type(value) is tuple:
            continue
        if isinstance(value, str):
            raise TypeError(f"{type(obj).__name__}.{name} takes a list of strings, not one string")
        object.__setattr__(obj, name, tuple(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCard(Displayed, JSONObject):
    """The document at ``/.well-known/agent-card.json`` by which an agent describes itself."""

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

    def __repr__(self) -> str:
        return f"<AgentCard {self.name!r} {self.version}, {len(self.skills)} skills>"

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        urls = [f"{one.protocol_binding} {one.protocol_version} {one.url}" for one in self.supported_interfaces]
        facts = [("description", self.description), ("version", self.version), ("interfaces", ", ".join(urls))]
        facts += [("input", ", ".join(self.default_input_modes)), ("output", ", ".join(self.default_output_modes))]
        facts += [("credentials", ", ".join(self.security_schemes))]
        return self.name, [*facts, *((f"skill {skill.id}", skill.description) for skill in self.skills)], []

    def __post_init__(self) -> None:
        _convert_to_tuples(
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


# -- making a card ------------------------------------------------------------------------------------------------------


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
    """Make a complete, validated `AgentCard`.

    Parameters:
        name: the name of the agent.
        description: what the agent does, for users and models.
        skills: `AgentSkill` objects, or short forms: ``{"greet": "Says hello"}``, or a list of ``("greet", "Says hello")``
            and of dictionaries with the arguments of `AgentSkill.of`.
        version: the version of the agent.
        url: the address of the agent for JSON-RPC of protocol 1.0. An `A2AApp` that serves the card fills in its addresses.
        interfaces: all addresses, in place of `url`.
        input_modes: media types that the agent accepts.
        output_modes: media types that the agent produces.
        provider: organization and URL.
        documentation_url: the address of the documentation.
        icon_url: the address of an icon.
        streaming: for an agent elsewhere; an `A2AApp` streams unless this is False.
        push_notifications: for an agent elsewhere; an `A2AApp` declares its own.
        extended_agent_card: for an agent elsewhere; an `A2AApp` declares its own.
        extensions: the extensions that the agent declares.
        security_schemes: the security schemes by their names.
        security: alternatives of which a caller must satisfy one: names of schemes that need no scopes, or dictionaries of
            names and scopes that are needed together.

    Raises:
        InvalidCardError: names each member that is missing or invalid.
        TypeError: a skill has none of the forms above.
    """
    interface = (AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),) if url else ()
    card = AgentCard(
        name=name,
        description=description,
        version=version,
        supported_interfaces=tuple(interfaces) or interface,
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


# -- checking a card ----------------------------------------------------------------------------------------------------


def validate_card(card: AgentCard, *, may_lack: Collection[str] = ()) -> None:
    """Check that `card` is complete and consistent. Members named in `may_lack` may be empty.

    Raises:
        InvalidCardError: ``violations`` names every invalid member (``skills[0].id``).
        TypeError: `card` is not an `AgentCard`.
    """
    if not isinstance(card, AgentCard):
        raise TypeError(f"a card is an AgentCard, not of type {type(card).__name__}")
    wrong = tuple(one for one in _card(card) if one.field not in may_lack or getattr(card, one.field))
    if wrong:
        raise InvalidCardError(wrong)


def _card(card: AgentCard) -> _Found:
    for name in ("name", "description", "version"):
        yield from _text(name, getattr(card, name))
    yield from _items("supported_interfaces", card.supported_interfaces, _interface)
    yield from _unique("supported_interfaces", card.supported_interfaces, "is there already, as")
    yield from _extensions("capabilities", card.capabilities)
    for name in ("default_input_modes", "default_output_modes"):
        yield from _items(name, getattr(card, name), _mode)
    if card.provider is not None:
        yield from _provider("provider", card.provider)
    for name in ("documentation_url", "icon_url"):
        if getattr(card, name) is not None:
            yield from _url(name, getattr(card, name))
    for scheme in card.security_schemes:
        yield from _scheme(f"security_schemes[{scheme!r}]", card.security_schemes[scheme])
    yield from _requirements("", card, card.security_schemes)
    yield from _items("skills", card.skills, lambda path, skill: _skill(path, skill, card.security_schemes))
    ids = [skill.id for skill in card.skills if isinstance(skill, AgentSkill)]
    yield from _unique("skills", ids, "is the id of", member=".id")


# -- single values ------------------------------------------------------------------------------------------------------


def _text(path: str, value: Any) -> _Found:
    if not isinstance(value, str):
        yield FieldViolation(path, f"must be text, not of type {type(value).__name__}")
    elif not value.strip():
        yield FieldViolation(path, "is required")


def _url(path: str, value: Any, *, over_http: bool = False) -> _Found:
    yield from (wrong := list(_text(path, value)))
    if wrong:
        return
    try:
        usable = bool(urls.parse(value) if over_http else urlsplit(value).scheme)
    except ValueError:
        usable = False
    if not usable:
        yield FieldViolation(path, f"{value!r} is not an absolute URL (https://…)")


def _mode(path: str, value: Any) -> _Found:
    yield from (wrong := list(_text(path, value)))
    if not wrong and not _MEDIA_TYPE.fullmatch(value):
        yield FieldViolation(path, f"{value!r} is not a media type such as text/plain")


def _only(cls: Any) -> Callable[[Callable[..., _Found]], Callable[..., _Found]]:
    """Decorator of a rule for instances of `cls`: a value of another type is one violation."""
    wanted = cls.__name__ if isinstance(cls, type) else "security scheme"

    def decorate(rule: Callable[..., _Found]) -> Callable[..., _Found]:
        def check(path: str, value: Any, *more: Any) -> _Found:
            if isinstance(value, cls):
                return rule(path, value, *more)
            return iter((FieldViolation(path, f"must be of type {wanted}, not {type(value).__name__}"),))

        return check

    return decorate


# -- lists --------------------------------------------------------------------------------------------------------------


def _items(path: str, values: Sequence[Any], rule: Callable[[str, Any], _Found], *, needed: bool = True) -> _Found:
    if needed and not values:
        yield FieldViolation(path, "needs at least one")
    for index, value in enumerate(values):
        yield from rule(f"{path}[{index}]", value)


def _unique(path: str, values: Sequence[Any], said: str, member: str = "") -> _Found:
    # By what they look like, because a value of a wrong type may have no hash; a search of the list for each would be quadratic.
    known: dict[str, int] = {}
    for index, value in enumerate(values):
        first = known.setdefault(repr(value), index)
        if first != index:
            shown = f"{value!r} " if isinstance(value, str) else ""
            yield FieldViolation(f"{path}[{index}]{member}", f"{shown}{said} {path}[{first}]")


# -- objects ------------------------------------------------------------------------------------------------------------


@_only(AgentInterface)
def _interface(path: str, value: Any) -> _Found:
    yield from _text(f"{path}.protocol_binding", value.protocol_binding)
    yield from _url(f"{path}.url", value.url, over_http=value.protocol_binding in _OVER_HTTP)
    yield from (wrong := list(_text(f"{path}.protocol_version", value.protocol_version)))
    if not wrong and not _VERSION.fullmatch(value.protocol_version):
        yield FieldViolation(f"{path}.protocol_version", f"{value.protocol_version!r} is not a version such as 1.0")


@_only(AgentCapabilities)
def _extensions(path: str, value: Any) -> _Found:
    yield from _items(f"{path}.extensions", value.extensions, _extension, needed=False)
    uris = [one.uri for one in value.extensions if isinstance(one, AgentExtension)]
    yield from _unique(f"{path}.extensions", uris, "is the URI of", member=".uri")


@_only(AgentExtension)
def _extension(path: str, value: Any) -> _Found:
    yield from _url(f"{path}.uri", value.uri)


@_only(AgentProvider)
def _provider(path: str, value: Any) -> _Found:
    yield from _text(f"{path}.organization", value.organization)
    yield from _url(f"{path}.url", value.url)


@_only(AgentSkill)
def _skill(path: str, value: Any, schemes: Mapping[str, Any]) -> _Found:
    for name in ("id", "name", "description"):
        yield from _text(f"{path}.{name}", getattr(value, name))
    yield from _items(f"{path}.tags", value.tags, _text)
    yield from _items(f"{path}.examples", value.examples, _text, needed=False)
    for name in ("input_modes", "output_modes"):
        yield from _items(f"{path}.{name}", getattr(value, name), _mode, needed=False)
    yield from _requirements(f"{path}.", value, schemes)


# -- security -----------------------------------------------------------------------------------------------------------


@_only(SecurityScheme)
def _scheme(path: str, value: Any) -> _Found:
    match value:
        case APIKeySecurityScheme():
            yield from _text(f"{path}.name", value.name)
            if value.location not in _LOCATIONS:
                yield FieldViolation(f"{path}.location", f"{value.location!r} is none of {', '.join(_LOCATIONS)}")
        case HTTPAuthSecurityScheme():
            yield from _text(f"{path}.scheme", value.scheme)
        case OpenIdConnectSecurityScheme():
            yield from _url(f"{path}.open_id_connect_url", value.open_id_connect_url)
        case OAuth2SecurityScheme():
            yield from _flow(f"{path}.flow", value.flow)


#: The URLs that each OAuth flow needs; the deprecated flows need none.
_FLOW_URLS: dict[type, tuple[str, ...]] = {
    AuthorizationCodeOAuthFlow: ("authorization_url", "token_url"),
    ClientCredentialsOAuthFlow: ("token_url",),
    DeviceCodeOAuthFlow: ("device_authorization_url", "token_url"),
    ImplicitOAuthFlow: (),
    PasswordOAuthFlow: (),
}


def _flow(path: str, value: Any) -> _Found:
    if type(value) not in _FLOW_URLS:
        yield FieldViolation(path, f"must be an OAuth flow, not of type {type(value).__name__}")
        return
    for name in _FLOW_URLS[type(value)]:
        yield from _url(f"{path}.{name}", getattr(value, name))


def _requirements(prefix: str, holder: Any, schemes: Mapping[str, Any]) -> _Found:
    for index, value in enumerate(holder.security_requirements):
        yield from _requirement_of(f"{prefix}security_requirements[{index}]", value, schemes)


@_only(SecurityRequirement)
def _requirement_of(path: str, value: Any, schemes: Mapping[str, Any]) -> _Found:
    for name in value.schemes:
        if name not in schemes:
            yield FieldViolation(f"{path}.schemes", f"{name!r} is not one of security_schemes")
