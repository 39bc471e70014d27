"""The reader of ``http`` and ``https`` URLs: what judges a URL and what connects to it use the same host and port.

Two parsers that disagree on the host of one URL are an attack: the first decides that credentials may be sent, the second
connects elsewhere. So URLs are read here only, by a grammar narrower than RFC 3986 whose URLs every common parser reads
alike, and connections are made to the host and port found here. No network is used.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urljoin

from a2a_sync.errors import UnsafeURLError

MAX_LENGTH = 16 * 1024

_PORTS = {"http": 80, "https": 443}
_FORBIDDEN = re.compile(r'[^!-~]|["<>\\]')
_URL = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?", re.I)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f.]*:[0-9a-f:.]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?", re.I)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
#: What a resolver, or a library on the way to it, may read as (a part of) an IPv4 address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class URL(NamedTuple):
    """A URL, read. ``host`` is in lower case and without brackets, ``port`` is always set; the fragment is dropped."""

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
        """Host and port as they stand in a URL; without the port where it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Path and query, as in the first line of a request."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def shown(self) -> str:
        """The URL without its query, which can hold secrets: for errors and logs."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def __repr__(self) -> str:
        return f"URL({self.shown!r})"

    def __str__(self) -> str:
        return self.shown + (f"?{self.query}" if self.query else "")


@lru_cache(512)
def parse(text: str) -> URL:
    """Read an absolute URL.

    Raises:
        UnsafeURLError: it is none, or is written in a way that two readers may understand differently: with user information,
            a backslash, blanks, control characters, or an IPv4 address in another form than four decimal numbers.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise UnsafeURLError(f"must be text of at most {MAX_LENGTH} characters")
    _check_characters(text)
    found = _URL.fullmatch(text)
    if found is None:
        raise UnsafeURLError("must begin with http:// or https://")
    if "@" in found["authority"]:
        raise UnsafeURLError("must not hold credentials")
    authority = _AUTHORITY.fullmatch(found["authority"])
    if authority is None:
        raise UnsafeURLError("has no host that can be understood")
    scheme = found["scheme"].lower()
    port = _PORTS[scheme] if authority["port"] is None else int(authority["port"])
    if not 0 < port < 65536:
        raise UnsafeURLError("names a port that does not exist")
    host = authority["host"].lower().strip("[]")
    literal(host)
    return URL(scheme, host, port, found["path"], found["query"] or "")


def join(base: str, reference: str) -> str:
    """The absolute URL that `reference`, of a card or a redirect, means when it is found at `base`.

    Raises:
        UnsafeURLError: as `parse`.
    """
    _check_characters(reference)
    try:
        joined = urljoin(base, reference)
    except ValueError:
        raise UnsafeURLError("has no host that can be understood") from None
    parse(joined)
    return joined


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host in lower case is; None for a name.

    Raises:
        UnsafeURLError: it is neither, or an address in one of the forms that only some readers understand.
    """
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host)
        except ValueError:
            raise UnsafeURLError("has no host that can be understood") from None
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise UnsafeURLError("writes an address otherwise than as four decimal numbers") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise UnsafeURLError("has no host that can be understood")
    return None


def is_name(text: str) -> bool:
    """`text`, in lower case, is the name of a host."""
    try:
        return literal(text) is None
    except UnsafeURLError:
        return False


def _check_characters(text: str) -> None:
    if _FORBIDDEN.search(text):
        raise UnsafeURLError("has characters that do not belong in a URL (hosts: in their ASCII form)")
