"""The ways to authenticate that need nothing but a look at the request: tokens, keys, passwords, client certificates.

Secrets that are given as a mapping are kept as digests: finding one takes as long whatever is sent, and no ``repr`` or dump
of memory shows them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl
from wsgiref.types import WSGIEnvironment

from a2a_sync.auth.policy import Authenticator, Said, as_principal
from a2a_sync.card import (
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityScheme,
)
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import Principal

#: A function that is given a secret and says whose it is, or the secrets themselves with who has them.
Verify: TypeAlias = Callable[[str], Said] | Mapping[str, Principal | str]

_Function = TypeVar("_Function", bound=Callable[..., Said])

#: Where servers put the socket of a request.
_SOCKETS = ("gunicorn.socket", "werkzeug.socket")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_LOOPBACK = ("127.0.0.0/8", "::1")
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "emailAddress": "emailAddress",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}


class BearerAuth(Authenticator):
    """``Authorization: Bearer …``, as OAuth 2, OpenID Connect and home-made tokens have it.

    Parameters:
        verify: called with the token, says whose it is: a `Principal`, an id, or None. Or a mapping of tokens to these.
        scheme: what the card says of it where that is more than "a bearer token", such as an `OAuth2SecurityScheme`.
        scopes: what everybody needs; the principal says which ones a caller has.
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
        self.scheme = scheme or HTTPAuthSecurityScheme(scheme="Bearer")
        self.scopes = tuple(scopes)
        self._verify = _verifier(verify)

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        token = bearer_token(environ)
        return None if token is None else _known(self._verify(token), "the token is not accepted")


class ApiKeyAuth(Authenticator):
    """A key in a header, a query parameter or a cookie. Queries end up in the logs of proxies: prefer the header.

    Parameters:
        verify: called with the key, says whose it is. Or a mapping of keys to principals or ids.
        header, query, cookie: where the key is, by name; one of the three.
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
        places = {"header": header, "query": query, "cookie": cookie}
        given = [(location, key) for location, key in places.items() if key]
        if len(given) != 1:
            raise ValueError("ApiKeyAuth takes one of header=, query= and cookie=")
        self.name = name
        ((self._location, self._key),) = given
        self.scheme = APIKeySecurityScheme(location=self._location, name=self._key)
        self._verify = _verifier(verify)

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        key = self._sent(environ)
        return None if not key else _known(self._verify(key), "the API key is not accepted")

    def _sent(self, environ: WSGIEnvironment) -> str:
        if self._location == "header":
            return str(environ.get(_variable(self._key), "")).strip()
        if self._location == "query":
            pairs = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        else:
            pairs = [_pair(part) for part in environ.get("HTTP_COOKIE", "").split(";")]
        found = [value for name, value in pairs if name == self._key]
        if len(found) > 1:
            raise UnauthenticatedError("the API key is given more than once")
        return found[0] if found else ""


class BasicAuth(Authenticator):
    """``Authorization: Basic …``: a user's name and password, in UTF-8.

    `verify` is called with the two and says who that is: a `Principal`, an id, or None. Or it is a mapping of names to
    passwords; then the name is the id.
    """

    def __init__(self, verify: Callable[[str, str], Said] | Mapping[str, str], *, name: str = "basic") -> None:
        super().__init__()
        self.name = name
        self.scheme = HTTPAuthSecurityScheme(scheme="Basic")
        self._verify = _Passwords(verify) if isinstance(verify, Mapping) else _callable(verify)

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        sent = _authorization(environ, "basic")
        if sent is None:
            return None
        try:
            user, colon, password = base64.b64decode(sent, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise UnauthenticatedError("the Basic credentials cannot be read")
        return _known(self._verify(user, password), "the user name or the password is wrong")


class MTLSAuth(Authenticator):
    """A client certificate that the server, or a proxy in front of it, has verified.

    The subject comes from the TLS connection itself (gunicorn with ``cert_reqs``), from ``SSL_CLIENT_VERIFY`` and
    ``SSL_CLIENT_S_DN`` of the server, or from a proxy in the request header `header`.

    Parameters:
        identify: called with the subject, such as ``CN=ada,O=Example``, says who that is. Without it the subject is the id.
        header: the header in which a proxy tells the subject. See that the proxy sets it in every request, whatever
            clients send.
        verified: another header of the proxy, which must be ``SUCCESS`` (nginx: ``$ssl_client_verify``).
        proxies: the addresses and networks of those who are believed; by default this machine.
        name: the name of the scheme in the card.
    """

    def __init__(
        self,
        identify: Callable[[str], Said] | None = None,
        *,
        header: str | None = None,
        verified: str | None = None,
        proxies: Iterable[str] = _LOOPBACK,
        name: str = "mtls",
    ) -> None:
        super().__init__()
        self.name = name
        self.scheme = MutualTlsSecurityScheme()
        self._identify = identify or (lambda subject: subject)
        self._header = header
        self._verified = verified
        self._proxies = [ipaddress.ip_network(one, strict=False) for one in proxies]

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        subject = _subject(environ) if self._header is None else self._told(environ, self._header)
        return (
            None if not subject else _known(self._identify(subject), "the certificate is nobody's that is known here")
        )

    def _told(self, environ: WSGIEnvironment, header: str) -> str:
        """The subject that a proxy tells; ``""`` where there is none, or nobody who is believed."""
        if not self._is_proxy(environ):
            return ""
        if self._verified is not None and environ.get(_variable(self._verified)) != "SUCCESS":
            return ""
        return str(environ.get(_variable(header), "")).strip()

    def _is_proxy(self, environ: WSGIEnvironment) -> bool:
        # The address of the connection, not what proxies say of it. A Unix socket has none.
        told = environ.get("werkzeug.proxy_fix.orig") or environ
        address = told.get("REMOTE_ADDR") or "127.0.0.1"
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer.version == network.version and peer in network for network in self._proxies)


# -- reading a request --------------------------------------------------------------------------------------------------


def _variable(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


def _authorization(environ: WSGIEnvironment, scheme: str) -> str | None:
    """What follows `scheme` (in lower case) in ``Authorization``; None where another one is named, or none."""
    named, _, sent = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    return sent.strip() if named.lower() == scheme else None


def bearer_token(environ: WSGIEnvironment) -> str | None:
    """The bearer token of a request; None where there is none.

    Raises:
        UnauthenticatedError: it cannot be one.
    """
    token = _authorization(environ, "bearer")
    if token is not None and not _TOKEN.fullmatch(token):
        raise UnauthenticatedError("the token cannot be read")
    return token


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip().strip('"')


def peer_certificate(environ: WSGIEnvironment) -> dict[str, Any]:
    """The client's certificate as `ssl` gives it, if the server asked for one and has verified it; else nothing."""
    connection = next((environ[key] for key in _SOCKETS if key in environ), None)
    ask = getattr(connection, "getpeercert", None)
    try:
        return (ask() if ask is not None else None) or {}
    except (OSError, ValueError):
        return {}  # it is closed


def _subject(environ: WSGIEnvironment) -> str:
    """The subject of the verified client certificate; ``""`` where there is none."""
    certificate = peer_certificate(environ)
    if certificate:
        pairs = [pair for one in certificate.get("subject", ()) for pair in one]
        return ",".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in reversed(pairs))
    if environ.get("SSL_CLIENT_VERIFY") == "SUCCESS":
        return str(environ.get("SSL_CLIENT_S_DN", ""))
    return ""


def _escaped(value: str) -> str:
    return re.sub(r'([,+"\\<>;=])', r"\\\1", value)


# -- comparing secrets --------------------------------------------------------------------------------------------------


def _known(said: Said, otherwise: str) -> Principal:
    principal = as_principal(said)
    if principal is None:
        raise UnauthenticatedError(otherwise)
    return principal


def _callable(verify: _Function) -> _Function:
    if not callable(verify):
        # It may be the secret itself, so it is not shown.
        raise TypeError(
            f"what verifies is a function, or a mapping of secrets to those who have them; not a {type(verify).__name__}"
        )
    return verify


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _verifier(verify: Verify) -> Callable[[str], Said]:
    if not isinstance(verify, Mapping):
        return _callable(verify)
    if not all(verify):
        raise ValueError("a secret cannot be empty")
    # What is compared is digests, of which nobody can choose a prefix: how long it takes says nothing of the secrets.
    known = {_digest(secret): who for secret, who in verify.items()}
    return lambda sent: known.get(_digest(sent))


class _Passwords:
    """A mapping of users to passwords. Whether there is such a user takes no time to find out that could be seen."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        if not all(passwords) or not all(passwords.values()):
            raise ValueError("a name or password cannot be empty")
        self._known = {user: _digest(password) for user, password in passwords.items()}
        self._nobodys = os.urandom(32)

    def __call__(self, user: str, password: str) -> str | None:
        same = hmac.compare_digest(self._known.get(user, self._nobodys), _digest(password))
        return user if same else None
