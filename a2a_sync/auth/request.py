"""The part of a request that authenticators use; the same for all transports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from a2a_sync.operations import Principal

#: The most cookies that are read, by a loop in Python. Chrome and Firefox keep 180 of a site.
_MAX_COOKIES = 200


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client certificate that the TLS server has verified.

    Attributes:
        subject: the distinguished name, such as ``CN=ada,O=Example`` (RFC 4514).
        details: as `ssl.SSLSocket.getpeercert` returns it; empty where the server reports the subject only.
    """

    subject: str
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(eq=False, repr=False)
class AuthRequest:
    """One request, before its body is read. Used on the request's thread only.

    Parameters:
        headers: by name in lower case.
        query_string: percent-encoded text.
        peer_address: the IP address of the caller, as far as trusted proxies report it; ``""`` where there is none.
        connection_address: the IP address of the other end of the connection, a proxy's if there is one.
        principal: the caller that the web framework has authenticated: a `Principal`, an id, or None.
        certificate: returns the verified client certificate; called at most once.
        environ: the WSGI environ; empty for other transports.
    """

    headers: Mapping[str, str]
    _: KW_ONLY
    query_string: str = ""
    peer_address: str = ""
    connection_address: str | None = None
    principal: Principal | str | None = None
    certificate: Callable[[], PeerCertificate | None] | None = None
    environ: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.connection_address is None:
            self.connection_address = self.peer_address

    @cached_property
    def query(self) -> Mapping[str, list[str]]:
        """The values of each parameter of the query, in order."""
        return _grouped(parse_qsl(self.query_string, keep_blank_values=True))

    @cached_property
    def cookies(self) -> Mapping[str, list[str]]:
        """The values of each cookie, in order; none where the request has more than 200 cookies."""
        parts = (part.partition("=") for part in split_cookies(self.headers.get("cookie", "")))
        return _grouped([(name.strip(), value.strip().strip('"')) for name, _, value in parts])

    @cached_property
    def peer_certificate(self) -> PeerCertificate | None:
        """The client certificate that the TLS server has verified; None where there is none."""
        return None if self.certificate is None else self.certificate()

    def __repr__(self) -> str:
        # Headers and query hold credentials.
        return f"<AuthRequest from {self.peer_address or 'unknown'}>"


def split_cookies(header: str) -> list[str]:
    """The cookies in a ``Cookie`` header, as ``name=value``; none where it has more than 200."""
    if header.count(";") >= _MAX_COOKIES:
        return []
    return [cookie for part in header.split(";") if (cookie := part.strip())]


def _grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped
