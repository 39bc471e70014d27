"""Authenticators that need the request only: tokens, API keys, passwords, client certificates.

Secrets that are given as a mapping are kept as digests: a lookup takes the same time for any input, and neither a ``repr``
nor a memory dump shows them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from a2a_sync.auth.policy import Authenticator, Identity, as_principal
from a2a_sync.auth.request import AuthRequest
from a2a_sync.card import (
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityScheme,
)
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import Principal

#: A function that returns the caller with a given secret, or a mapping of secrets to callers.
Verify: TypeAlias = Callable[[str], Identity] | Mapping[str, Principal | str]

_Function = TypeVar("_Function", bound=Callable[..., Identity])

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_LOOPBACK = ("127.0.0.0/8", "::1")


class BearerAuth(Authenticator):
    """``Authorization: Bearer …``: tokens of OAuth 2, OpenID Connect or your own.

    Parameters:
        verify: called with the token, returns its owner: a `Principal`, an id, or None. Or a mapping of tokens to these.
        scheme: the security scheme in the card, to describe more than "a bearer token", such as an
            `OAuth2SecurityScheme`.
        scopes: the scopes that every caller needs; `Principal.scopes` are those that a caller has.
        name: the name of the scheme in the card.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        scheme: SecurityScheme | None = None,
        scopes: Iterable[str] = (),
        name: str = "bearer",
    ) -> None:
        super().__init__()
        self.name = name
        self.scheme: SecurityScheme = scheme or HTTPAuthSecurityScheme(scheme="Bearer")
        self.scopes: tuple[str, ...] = tuple(scopes)
        self._verify = _verifier(verify)

    def authenticate(self, request: AuthRequest) -> Principal | None:
        token = bearer_token(request)
        return None if token is None else _accepted(self._verify(token), "the token is not accepted")


class ApiKeyAuth(Authenticator):
    """An API key in a header, a query parameter or a cookie. Proxies log queries: prefer the header.

    Parameters:
        verify: called with the key, returns its owner. Or a mapping of keys to principals or ids.
        header, query, cookie: the name of the header, the parameter or the cookie; one of the three.
        name: the name of the scheme in the card.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        header: str | None = None,
        query: str | None = None,
        cookie: str | None = None,
        name: str = "apiKey",
    ) -> None:
        super().__init__()
        locations = {"header": header, "query": query, "cookie": cookie}
        given = [(location, key) for location, key in locations.items() if key]
        if len(given) != 1:
            raise ValueError("ApiKeyAuth takes one of header=, query= and cookie=")
        self.name = name
        ((self._location, self._key),) = given
        self.scheme: APIKeySecurityScheme = APIKeySecurityScheme(location=self._location, name=self._key)
        self._verify = _verifier(verify)

    def authenticate(self, request: AuthRequest) -> Principal | None:
        key = self._key_in(request)
        return None if not key else _accepted(self._verify(key), "the API key is not accepted")

    def _key_in(self, request: AuthRequest) -> str:
        if self._location == "header":
            return request.headers.get(self._key.lower(), "").strip()
        found = (request.query if self._location == "query" else request.cookies).get(self._key, [])
        if len(found) > 1:
            raise UnauthenticatedError("the API key is given more than once")
        return found[0] if found else ""


class BasicAuth(Authenticator):
    """``Authorization: Basic …``: a user's name and password, in UTF-8.

    `verify` is called with the two and returns the caller: a `Principal`, an id, or None. Or it is a mapping of names to
    passwords; then the name is the id.
    """

    def __init__(self, verify: Callable[[str, str], Identity] | Mapping[str, str], *, name: str = "basic") -> None:
        super().__init__()
        self.name = name
        self.scheme: HTTPAuthSecurityScheme = HTTPAuthSecurityScheme(scheme="Basic")
        self._verify = _Passwords(verify) if isinstance(verify, Mapping) else _callable(verify)

    def authenticate(self, request: AuthRequest) -> Principal | None:
        sent = _authorization(request, "basic")
        if sent is None:
            return None
        try:
            user, colon, password = base64.b64decode(sent, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if not colon:
            raise UnauthenticatedError("the Basic credentials cannot be read")
        return _accepted(self._verify(user, password), "the user name or the password is wrong")


class MTLSAuth(Authenticator):
    """A client certificate that the server, or a proxy in front of it, has verified.

    The subject comes from the TLS connection itself (gunicorn with ``cert_reqs``), from ``SSL_CLIENT_VERIFY`` and
    ``SSL_CLIENT_S_DN`` of the server, or from a proxy in the request header `header`.

    Parameters:
        identify: called with the subject, such as ``CN=ada,O=Example``, returns the caller. Without it the subject is the id.
        header: the header in which a proxy sends the subject. The proxy must set it in every request, whatever clients
            send. A value that begins with ``{``, as a placeholder of Caddy without a value does, counts as none.
        verified: another header of the proxy, which must be ``SUCCESS`` (nginx: ``$ssl_client_verify``).
        proxies: the addresses and networks of trusted proxies; by default this machine.
        name: the name of the scheme in the card.
    """

    def __init__(
        self,
        identify: Callable[[str], Identity] | None = None,
        *,
        header: str | None = None,
        verified: str | None = None,
        proxies: Iterable[str] = _LOOPBACK,
        name: str = "mtls",
    ) -> None:
        super().__init__()
        self.name = name
        self.scheme: MutualTlsSecurityScheme = MutualTlsSecurityScheme()
        self._identify = identify or (lambda subject: subject)
        self._header = header
        self._verified = verified
        self._proxies = [ipaddress.ip_network(one, strict=False) for one in proxies]

    def authenticate(self, request: AuthRequest) -> Principal | None:
        subject = self._subject(request)
        return None if not subject else _accepted(self._identify(subject), "the owner of the certificate is not known")

    def _subject(self, request: AuthRequest) -> str:
        """The subject of the certificate; ``""`` where there is none, or where the proxy is not trusted."""
        if self._header is None:
            certificate = request.peer_certificate
            return "" if certificate is None else certificate.subject
        if not self._from_proxy(request):
            return ""
        if self._verified is not None and request.headers.get(self._verified.lower()) != "SUCCESS":
            return ""
        subject = request.headers.get(self._header.lower(), "").strip()
        # Caddy sends a placeholder that has no value as it was configured; no distinguished name begins so.
        return "" if subject.startswith("{") else subject

    def _from_proxy(self, request: AuthRequest) -> bool:
        try:
            # A Unix socket has no address.
            peer = ipaddress.ip_address(request.connection_address or "127.0.0.1")
        except ValueError:
            return False
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer.version == network.version and peer in network for network in self._proxies)


# -- reading a request --------------------------------------------------------------------------------------------------


def _authorization(request: AuthRequest, scheme: str) -> str | None:
    """What follows `scheme` (in lower case) in ``Authorization``; None where another scheme is named, or none."""
    named, _, sent = request.headers.get("authorization", "").partition(" ")
    return sent.strip() if named.lower() == scheme else None


def bearer_token(request: AuthRequest) -> str | None:
    """The bearer token of a request; None where there is none.

    Raises:
        UnauthenticatedError: it is malformed.
    """
    token = _authorization(request, "bearer")
    if token is not None and not _TOKEN.fullmatch(token):
        raise UnauthenticatedError("the token cannot be read")
    return token


# -- comparing secrets --------------------------------------------------------------------------------------------------


def _accepted(identity: Identity, message: str) -> Principal:
    principal = as_principal(identity)
    if principal is None:
        raise UnauthenticatedError(message)
    return principal


def _callable(verify: _Function) -> _Function:
    if not callable(verify):
        # It may be the secret itself, so its value is not shown.
        raise TypeError(f"verify takes a function, or a mapping of secrets to callers; not a {type(verify).__name__}")
    return verify


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _verifier(verify: Verify) -> Callable[[str], Identity]:
    if not isinstance(verify, Mapping):
        return _callable(verify)
    if not all(verify):
        raise ValueError("a secret cannot be empty")
    # Digests are compared, whose prefixes cannot be chosen: the time that it takes shows nothing of the secrets.
    known = {_digest(secret): owner for secret, owner in verify.items()}
    return lambda sent: known.get(_digest(sent))


class _Passwords:
    """A mapping of users to passwords. An unknown user takes as long as a wrong password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        if not all(passwords) or not all(passwords.values()):
            raise ValueError("a name or password cannot be empty")
        self._known = {user: _digest(password) for user, password in passwords.items()}
        self._unknown_user = os.urandom(32)

    def __call__(self, user: str, password: str) -> str | None:
        same = hmac.compare_digest(self._known.get(user, self._unknown_user), _digest(password))
        return user if same else None
