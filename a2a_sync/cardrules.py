"""What a card must hold (spec 4.4, 4.5), told by the names of its members: ``skills[0].id``.

All that is wrong with a card is told at once. Cards that peers send are not judged here: codecs read them leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from a2a_sync import card as c
from a2a_sync import urls
from a2a_sync.errors import FieldViolation, InvalidCardError

#: What an app fills in, and what agents do without although the specification asks for it.
LEFT_TO_THE_APP = ("description", "skills", "supported_interfaces")

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+(?:\s*;.*)?", re.ASCII)
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_OVER_HTTP = ("JSONRPC", "HTTP+JSON")
_LOCATIONS = ("header", "query", "cookie")

_Found: TypeAlias = Iterator[FieldViolation]


def validate_card(card: c.AgentCard, *, may_lack: Collection[str] = ()) -> None:
    """Check that `card` is complete and holds together. `may_lack` are members that may be empty all the same.

    Raises:
        InvalidCardError: it does not; ``violations`` name every member that is wrong.
    """
    if not isinstance(card, c.AgentCard):
        raise TypeError(f"a card is an AgentCard, not of type {type(card).__name__}")
    wrong = tuple(one for one in _card(card) if one.field not in may_lack or getattr(card, one.field))
    if wrong:
        raise InvalidCardError(wrong)


def _card(card: c.AgentCard) -> _Found:
    for name in ("name", "description", "version"):
        yield from _text(name, getattr(card, name))
    yield from _each("supported_interfaces", card.supported_interfaces, _interface)
    yield from _unique("supported_interfaces", card.supported_interfaces, "is there already, as")
    yield from _extensions("capabilities", card.capabilities)
    for name in ("default_input_modes", "default_output_modes"):
        yield from _each(name, getattr(card, name), _mode)
    if card.provider is not None:
        yield from _provider("provider", card.provider)
    for name in ("documentation_url", "icon_url"):
        if getattr(card, name) is not None:
            yield from _url(name, getattr(card, name))
    for scheme in card.security_schemes:
        yield from _scheme(f"security_schemes[{scheme!r}]", card.security_schemes[scheme])
    yield from _requirements("", card, card.security_schemes)
    yield from _each("skills", card.skills, lambda path, skill: _skill(path, skill, card.security_schemes))
    ids = [skill.id for skill in card.skills if isinstance(skill, c.AgentSkill)]
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


def _of(path: str, value: Any, cls: Any) -> _Found:
    if not isinstance(value, cls):
        wanted = cls.__name__ if isinstance(cls, type) else "security scheme"
        yield FieldViolation(path, f"must be of type {wanted}, not {type(value).__name__}")


# -- lists --------------------------------------------------------------------------------------------------------------


def _each(path: str, values: Sequence[Any], rule: Callable[[str, Any], _Found], *, needed: bool = True) -> _Found:
    if needed and not values:
        yield FieldViolation(path, "needs at least one")
    for index, value in enumerate(values):
        yield from rule(f"{path}[{index}]", value)


def _unique(path: str, values: Sequence[Any], said: str, member: str = "") -> _Found:
    for index, value in enumerate(values):
        first = values.index(value)
        if first != index:
            shown = f"{value!r} " if isinstance(value, str) else ""
            yield FieldViolation(f"{path}[{index}]{member}", f"{shown}{said} {path}[{first}]")


# -- objects ------------------------------------------------------------------------------------------------------------


def _interface(path: str, value: Any) -> _Found:
    yield from (wrong := list(_of(path, value, c.AgentInterface)))
    if wrong:
        return
    yield from _text(f"{path}.protocol_binding", value.protocol_binding)
    yield from _url(f"{path}.url", value.url, over_http=value.protocol_binding in _OVER_HTTP)
    yield from (wrong := list(_text(f"{path}.protocol_version", value.protocol_version)))
    if not wrong and not _VERSION.fullmatch(value.protocol_version):
        yield FieldViolation(f"{path}.protocol_version", f"{value.protocol_version!r} is not a version such as 1.0")


def _extensions(path: str, value: Any) -> _Found:
    yield from (wrong := list(_of(path, value, c.AgentCapabilities)))
    if wrong:
        return
    yield from _each(f"{path}.extensions", value.extensions, _extension, needed=False)
    uris = [one.uri for one in value.extensions if isinstance(one, c.AgentExtension)]
    yield from _unique(f"{path}.extensions", uris, "is the URI of", member=".uri")


def _extension(path: str, value: Any) -> _Found:
    yield from (wrong := list(_of(path, value, c.AgentExtension)))
    if not wrong:
        yield from _url(f"{path}.uri", value.uri)


def _provider(path: str, value: Any) -> _Found:
    yield from (wrong := list(_of(path, value, c.AgentProvider)))
    if not wrong:
        yield from _text(f"{path}.organization", value.organization)
        yield from _url(f"{path}.url", value.url)


def _skill(path: str, value: Any, schemes: Mapping[str, Any]) -> _Found:
    yield from (wrong := list(_of(path, value, c.AgentSkill)))
    if wrong:
        return
    for name in ("id", "name", "description"):
        yield from _text(f"{path}.{name}", getattr(value, name))
    yield from _each(f"{path}.tags", value.tags, _text)
    yield from _each(f"{path}.examples", value.examples, _text, needed=False)
    for name in ("input_modes", "output_modes"):
        yield from _each(f"{path}.{name}", getattr(value, name), _mode, needed=False)
    yield from _requirements(f"{path}.", value, schemes)


# -- security -----------------------------------------------------------------------------------------------------------


def _scheme(path: str, value: Any) -> _Found:
    yield from (wrong := list(_of(path, value, c.SecurityScheme)))
    if wrong:
        return
    match value:
        case c.APIKeySecurityScheme():
            yield from _text(f"{path}.name", value.name)
            if value.location not in _LOCATIONS:
                yield FieldViolation(f"{path}.location", f"{value.location!r} is none of {', '.join(_LOCATIONS)}")
        case c.HTTPAuthSecurityScheme():
            yield from _text(f"{path}.scheme", value.scheme)
        case c.OpenIdConnectSecurityScheme():
            yield from _url(f"{path}.open_id_connect_url", value.open_id_connect_url)
        case c.OAuth2SecurityScheme():
            yield from _flow(f"{path}.flow", value.flow)


#: The URLs that each OAuth flow needs; the deprecated flows need none.
_FLOW_URLS: dict[type, tuple[str, ...]] = {
    c.AuthorizationCodeOAuthFlow: ("authorization_url", "token_url"),
    c.ClientCredentialsOAuthFlow: ("token_url",),
    c.DeviceCodeOAuthFlow: ("device_authorization_url", "token_url"),
    c.ImplicitOAuthFlow: (),
    c.PasswordOAuthFlow: (),
}


def _flow(path: str, value: Any) -> _Found:
    if type(value) not in _FLOW_URLS:
        yield FieldViolation(path, f"must be an OAuth flow, not of type {type(value).__name__}")
        return
    for name in _FLOW_URLS[type(value)]:
        yield from _url(f"{path}.{name}", getattr(value, name))


def _requirements(prefix: str, holder: Any, schemes: Mapping[str, Any]) -> _Found:
    for index, value in enumerate(holder.security_requirements):
        path = f"{prefix}security_requirements[{index}]"
        yield from (wrong := list(_of(path, value, c.SecurityRequirement)))
        for name in () if wrong else value.schemes:
            if name not in schemes:
                yield FieldViolation(f"{path}.schemes", f"{name!r} is not one of security_schemes")
