"""Who is calling, and where that may be told: credentials as requests takes them, and the origins of URLs.

Nothing here shows a secret: not in an error, not in a repr.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth

#: What `Client` takes for ``auth``.
Auth: TypeAlias = str | tuple[str, str] | Callable[[], str] | AuthBase | None


def display(url: str) -> str:
    """`url` as it may be shown: without credentials and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """`url` without a user and password, and these two."""
    parts = urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), (unquote(user), unquote(password))


_PORTS = {"http": 80, "https": 443}


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme)


def may_know(home: str, url: str) -> bool:
    """What the user gave for `home` may be sent to `url`: the same origin, or the same host moved from http to https."""
    ours, theirs = _origin(home), _origin(url)
    return ours == theirs or (ours[::2] == ("http", 80) and theirs == ("https", ours[1], 443))


def as_auth(auth: Auth) -> AuthBase | None:
    """What a user gave for ``auth`` as requests takes it.

    Raises:
        TypeError: it is nothing that stands for credentials.
    """
    if auth is None or isinstance(auth, AuthBase):
        return auth
    if isinstance(auth, str):
        return _Bearer(lambda: auth)
    if isinstance(auth, tuple) and len(auth) == 2:
        return HTTPBasicAuth(*auth)
    if callable(auth):
        return _Bearer(auth)
    raise TypeError("auth takes a token, a function that gives one, (user, password), or a requests AuthBase")


class _Bearer(AuthBase):
    """Asks for a token with each request, on the thread that makes it."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._token()
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise ValueError("auth gave a token that cannot stand in a header")
        request.headers["Authorization"] = f"Bearer {token}"
        return request


def checked_header(name: str, value: str) -> str:
    """`value`, if it can stand in a header.

    Raises:
        ValueError: it cannot. It may be a secret, so the error does not show it.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of the header {name!r} must be printable ASCII")
    return value
