"""Where credentials may be told, and how URLs are shown: origins, and what a header can hold.

Nothing here shows a secret: not in an error, not in a repr. How credentials are sent is known to `placing`.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit


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


def checked_header(name: str, value: str) -> str:
    """`value`, if it can stand in a header.

    Raises:
        ValueError: it cannot. It may be a secret, so the error does not show it.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of the header {name!r} must be printable ASCII")
    return value
