"""How credentials are sent: by themselves where that is clear, else as the card says (spec 4.5, 7.3).

A card offers alternatives, of each of which all schemes are needed. It decides in what form credentials travel, never to
whom: that is `credentials`' business. Nothing here shows a secret: not in an error, not in a repr.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityScheme,
)
from a2a_sync.client.credentials import checked_header

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: Headers that say how a request is to be read. No card may have its way with them.
_NOT_FOR_KEYS = {
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_DEFAULT_HEADER = "X-API-Key"
_WRONG = (
    "auth takes a token, a function that gives one, (user, password), ApiKey(…), ClientCredentials(…), a requests AuthBase, or"
    " a mapping of the card's schemes to these"
)


class ApiKey:
    """An API key for ``Client(auth=…)``: in `header`, `query` or `cookie`, by name, or where the card says it belongs.

    A query can be read in the logs of servers and proxies: where there is a choice, take a header.
    """

    def __init__(
        self, key: str, *, header: str | None = None, query: str | None = None, cookie: str | None = None
    ) -> None:
        places = [(where, name) for where, name in (("header", header), ("query", query), ("cookie", cookie)) if name]
        if len(places) > 1:
            raise ValueError("ApiKey takes one of header=, query= and cookie=, or none of them")
        self._key = checked_header("API key", key)
        self._place = _Place(*places[0]) if places else None

    def __repr__(self) -> str:
        return f"ApiKey({self._place or 'where the card says'})"

    def placed(self, card: AgentCard | None) -> AuthBase | None:
        """The key where it belongs; None where that is not known before there is a card."""
        place = self._place
        if place is None:
            if card is None:
                return None
            place = next(_key_places(card), _Place("header", _DEFAULT_HEADER))
        return _Key(self._key, place)


#: What `Client` takes for ``auth``.
_Credentials: TypeAlias = str | tuple[str, str] | Callable[[], str] | AuthBase | ApiKey
Auth: TypeAlias = _Credentials | Mapping[str, _Credentials] | None


def as_auth(auth: Auth, card: AgentCard | None = None) -> AuthBase | None:
    """What a user gave for ``auth``, as requests takes it; what it depends on `card` is left out before there is one.

    Raises:
        TypeError: it is nothing that stands for credentials.
        ValueError: a mapping that fulfils no alternative of the card.
    """
    if auth is None or isinstance(auth, AuthBase):
        return auth
    if isinstance(auth, ApiKey):
        return auth.placed(card)
    if isinstance(auth, tuple) and len(auth) == 2:
        return HTTPBasicAuth(*auth)
    if isinstance(auth, Mapping):
        return _together(auth, card)
    if isinstance(auth, str) or callable(auth):
        token = (lambda: auth) if isinstance(auth, str) else auth
        return _token(token, next(_single_schemes(card), None) if card is not None else None)
    raise TypeError(_WRONG)


def _together(given: Mapping[str, Any], card: AgentCard | None) -> AuthBase | None:
    """The credentials of the first alternative of the card for which there are all."""
    for one in given.values():
        if one is None or isinstance(one, Mapping):
            raise TypeError(_WRONG)
        as_auth(one)
    if card is None:
        return None
    alternatives = [requirement.schemes for requirement in card.security_requirements] or [dict.fromkeys(given, ())]
    for schemes in alternatives:
        if given.keys() >= schemes.keys():
            found = (_for_scheme(given[name], card.security_schemes.get(name)) for name in schemes)
            return _All([one for one in found if one is not None])
    wanted = " or ".join(" and ".join(schemes) for schemes in alternatives)
    raise ValueError(f"auth has credentials for {', '.join(given) or 'nothing'}; the agent asks for {wanted}")


def _for_scheme(auth: Any, scheme: SecurityScheme | None) -> AuthBase | None:
    """Credentials that are meant for one scheme of the card."""
    if isinstance(auth, ApiKey) and isinstance(scheme, APIKeySecurityScheme):
        auth = auth if auth._place is not None else ApiKey(auth._key, **{scheme.location: scheme.name})
    if isinstance(auth, str) or (callable(auth) and not isinstance(auth, AuthBase)):
        return _token((lambda: auth) if isinstance(auth, str) else auth, scheme)
    return as_auth(auth)


def _token(token: Callable[[], str], scheme: SecurityScheme | None) -> AuthBase | None:
    if isinstance(scheme, APIKeySecurityScheme):
        return _Key(token, _Place(scheme.location, scheme.name))
    if isinstance(scheme, MutualTlsSecurityScheme):
        return None
    return _Authorization(token, scheme.scheme if isinstance(scheme, HTTPAuthSecurityScheme) else "Bearer")


def _single_schemes(card: AgentCard) -> Iterator[SecurityScheme]:
    """The schemes that are enough by themselves, those for tokens first: what a user has who has one secret."""
    single = [
        scheme
        for requirement in card.security_requirements
        if len(requirement.schemes) == 1
        for name in requirement.schemes
        if (scheme := card.security_schemes.get(name)) is not None and not isinstance(scheme, MutualTlsSecurityScheme)
    ]
    yield from sorted(single, key=lambda scheme: isinstance(scheme, APIKeySecurityScheme))


def _key_places(card: AgentCard) -> Iterator[_Place]:
    """Where the card wants keys: what it asks for before what it only mentions."""
    asked = (name for requirement in card.security_requirements for name in requirement.schemes)
    for name in (*asked, *card.security_schemes):
        scheme = card.security_schemes.get(name)
        if isinstance(scheme, APIKeySecurityScheme):
            yield _Place(scheme.location, scheme.name)


class _Place:
    """Where in a request a key is."""

    def __init__(self, location: str, name: str) -> None:
        if location not in ("header", "query", "cookie"):
            raise ValueError(f"there is no place {location!r} for an API key")
        if location != "query" and (not _HEADER.fullmatch(name) or name.lower() in _NOT_FOR_KEYS):
            raise ValueError(f"an API key cannot stand in the {location} {name!r}")
        self.location = location
        self.name = name

    def __repr__(self) -> str:
        return f"{self.location}={self.name!r}"


# -- what requests takes ------------------------------------------------------------------------------------------------


class _All(AuthBase):
    """Several credentials in one request."""

    def __init__(self, parts: Iterable[AuthBase]) -> None:
        self.parts = tuple(parts)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        for part in self.parts:
            request = part(request)
        return request

    def ready(self, post: Any, deadline: Any) -> None:
        """As `ClientCredentials.ready`, of those that have it."""
        for part in self.parts:
            if (ready := getattr(part, "ready", None)) is not None:
                ready(post, deadline)

    def retry_with(self, refused: str) -> bool:
        """There is something else to send by now."""
        # Each of them is told.
        others = [retry_with(refused) for part in self.parts if (retry_with := getattr(part, "retry_with", None))]
        return any(others)


class _Key(AuthBase):
    def __init__(self, key: str | Callable[[], str], place: _Place) -> None:
        self._key = key
        self._place = place

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        key = self._key if isinstance(self._key, str) else _checked(self._key())
        location, name = self._place.location, self._place.name
        if location == "header":
            request.headers[name] = key
        elif location == "query":
            request.prepare_url(request.url, {name: key})
        else:
            before = request.headers.get("Cookie")
            request.headers["Cookie"] = f"{before}; {name}={key}" if before else f"{name}={key}"
        return request


class _Authorization(AuthBase):
    """Asks for a token with each request, on the thread that makes it."""

    def __init__(self, token: Callable[[], str], scheme: str) -> None:
        if not _HEADER.fullmatch(scheme):
            raise ValueError(f"there is no scheme {scheme!r} for Authorization")
        self._token = token
        self._scheme = scheme

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"{self._scheme} {_checked(self._token())}"
        return request

    def retry_with(self, refused: str) -> bool:
        """The agent did not accept `refused`, an ``Authorization``: is there another token by now?"""
        return f"{self._scheme} {_checked(self._token())}" != refused


def _checked(token: Any) -> str:
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise ValueError("auth gave a token that cannot stand in a header")
    return token
