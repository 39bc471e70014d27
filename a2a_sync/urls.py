"""The parser of ``http`` and ``https`` URLs: checks and connections use the same host and port.

Two parsers that disagree on the host of a URL allow attacks: by the first, credentials may be sent, and the second connects
elsewhere. So URLs are parsed only here, by a grammar narrower than RFC 3986 whose URLs all common parsers read alike, and
connections are made to the host and port found here. No network is used.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urljoin

from a2a_sync.errors import UnsafeURLError

MAX_LENGTH = 16 * 1024
_MAX_CACHED_LENGTH = 1024

_PORTS = {"http": 80, "https": 443}
_FORBIDDEN = re.compile(r'[^!-~]|["<>\\]')
_URL = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?", re.I)
_WITH_CREDENTIALS = re.compile(r"(https?://)([^/?#\\]*)@(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f.]*:[0-9a-f:.]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?", re.I)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
#: Labels that a resolver, or a library before it, may read as an IPv4 address or a part of one.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class URL(NamedTuple):
    """A parsed URL. ``host`` is in lower case and without brackets, ``port`` is always set; the fragment is dropped."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self[:3]

    @property
    def authority(self) -> str:
        """Host and port as in a URL; the default port of the scheme is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Path and query, as in the request line."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def without_query(self) -> str:
        """The URL without its query, which can contain secrets: for errors and logs."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def __repr__(self) -> str:
        return f"URL({self.without_query!r})"

    def __str__(self) -> str:
        return self.without_query + (f"?{self.query}" if self.query else "")


def parse(text: str) -> URL:
    """Parse an absolute URL.

    Raises:
        UnsafeURLError: it is none, or two parsers may read it differently: it has user information, a backslash, blanks, control
            characters, or an IPv4 address in another form than four decimal numbers.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise UnsafeURLError(f"must be text of at most {MAX_LENGTH} characters")
    # A query may hold secrets, which must not stay in memory.
    return _parse(text) if "?" in text or len(text) > _MAX_CACHED_LENGTH else _parse_cached(text)


def _parse(text: str) -> URL:
    _check_characters(text)
    found = _URL.fullmatch(text)
    if found is None:
        raise UnsafeURLError("must begin with http:// or https://")
    if "@" in found["authority"]:
        raise UnsafeURLError("must not contain credentials")
    authority = _AUTHORITY.fullmatch(found["authority"])
    if authority is None:
        raise UnsafeURLError("has no valid host")
    scheme = found["scheme"].lower()
    port = _PORTS[scheme] if authority["port"] is None else int(authority["port"])
    if not 0 < port < 65536:
        raise UnsafeURLError("names a port that does not exist")
    host = authority["host"].lower().strip("[]")
    literal(host)
    return URL(scheme, host, port, found["path"], found["query"] or "")


_parse_cached = lru_cache(512)(_parse)


def join(base: str, reference: str) -> str:
    """The absolute URL of `reference`, of a card or a redirect, relative to `base`.

    Raises:
        UnsafeURLError: as `parse`.
    """
    _check_characters(reference)
    try:
        joined = urljoin(base, reference)
    except ValueError:
        raise UnsafeURLError("has no valid host") from None
    parse(joined)
    return joined


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """`url` without user and password, and these two; None if it has none.

    Raises:
        UnsafeURLError: the remaining URL cannot be called.
    """
    found = _WITH_CREDENTIALS.fullmatch(url)
    bare = found[1] + found[3] if found else url
    parse(bare)
    if found is None:
        return bare, None
    user, _, password = found[2].partition(":")
    return bare, (unquote(user), unquote(password))


def may_send_credentials(home: str, url: str) -> bool:
    """Credentials for `home` may be sent to `url`: it has the same origin, or is the same host with https instead of http."""
    ours, theirs = parse(home).origin, parse(url).origin
    return ours == theirs or (ours[::2] == ("http", 80) and theirs == ("https", ours[1], 443))


def may_share_credentials(home: str, url: str) -> bool:
    """Credentials given for the agent at `home` may be sent to that at `url`: addresses of a user, also with credentials or of gRPC."""
    try:
        return may_send_credentials(split_credentials(home)[0], split_credentials(url)[0])
    except UnsafeURLError:
        return home == url


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host that is an address literal, in lower case; None for a name.

    Raises:
        UnsafeURLError: it is neither, or an address in a form that only some parsers accept.
    """
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host)
        except ValueError:
            raise UnsafeURLError("has no valid host") from None
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise UnsafeURLError("has an IPv4 address that is not four decimal numbers") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise UnsafeURLError("has no valid host")
    return None


def is_name(text: str) -> bool:
    """`text`, in lower case, is a host name."""
    try:
        return literal(text) is None
    except UnsafeURLError:
        return False


def _check_characters(text: str) -> None:
    if _FORBIDDEN.search(text):
        raise UnsafeURLError("has characters that are not allowed in a URL (hosts: in their ASCII form)")
