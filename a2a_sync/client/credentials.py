"""Credentials of a client: their kinds, the form in which they are sent, and tokens that are fetched (spec 4.5, 7.3).

If the form is not given, the card decides. A card lists alternatives, each of which requires all of its schemes. It decides
the form of credentials but never their receiver: see `urls.may_send_credentials`. No error and no repr contains a secret.
"""

from __future__ import annotations

import base64
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, quote_plus, urlencode

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from a2a_sync import jsontext, urls
from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityScheme,
)
from a2a_sync.client.deadlines import Deadline
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import JSONParseError, TokenError, TransportError, TransportTimeoutError, UnsafeURLError

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: Headers that change how a request is read. A card must not put a key there.
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
_WRONG_TYPE = (
    "auth takes a token, a function that returns one, (user, password), ApiKey(…), ClientCredentials(…), a requests AuthBase, or"
    " a mapping of the card's schemes to these"
)
#: Seconds before its end at which a token is renewed; a tenth of its life if that is shorter.
_RENEW_EARLY = 30.0
#: The most seconds for fetching a token, and for waiting for another thread that fetches it.
_FETCH_TIMEOUT = 30.0
#: Seconds between a failed fetch and the next one, while the old token is valid.
_FAILURE_PAUSE = 5.0
#: A longer life of a token is the same, in seconds.
_LONGEST_LIFE = 1e9

#: Posts a body with headers to a URL before a deadline; returns the status and the body of the response.
Post: TypeAlias = Callable[[str, Mapping[str, str], bytes, Deadline], tuple[int, bytes]]


def check_header(name: str, value: str) -> str:
    """`value`, if it is valid in a header.

    Raises:
        ValueError: it is not. It may be a secret, so the error does not contain it.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of the header {name!r} must be printable ASCII")
    return value


class ApiKey:
    """An API key for ``Client(auth=…)``, sent in the named header, query parameter or cookie; else the card decides.

    Queries appear in the logs of servers and proxies: prefer a header.
    """

    def __init__(
        self, key: str, *, header: str | None = None, query: str | None = None, cookie: str | None = None
    ) -> None:
        given = [(kind, name) for kind, name in (("header", header), ("query", query), ("cookie", cookie)) if name]
        if len(given) > 1:
            raise ValueError("ApiKey takes one of header=, query= and cookie=, or none of them")
        self._key = check_header("API key", key)
        self._location = KeyLocation(*given[0]) if given else None

    def __repr__(self) -> str:
        return f"ApiKey({self._location or 'where the card says'})"

    def auth_for(self, card: AgentCard | None) -> AuthBase | None:
        """The key at its location; None while that is unknown because there is no card yet."""
        location = self._location
        if location is None:
            if card is None:
                return None
            location = next(_key_locations(card), KeyLocation("header", _DEFAULT_HEADER))
        return _KeyAuth(self._key, location)


#: The types of ``Client(auth=…)``.
_Credentials: TypeAlias = str | tuple[str, str] | Callable[[], str] | AuthBase | ApiKey
Auth: TypeAlias = _Credentials | Mapping[str, _Credentials] | None


def make_auth(auth: Auth, card: AgentCard | None = None) -> AuthBase | None:
    """The argument ``auth`` as an ``AuthBase`` of requests. What depends on the card is left out while there is none.

    Raises:
        TypeError: it is no kind of credentials.
        ValueError: a mapping that satisfies no alternative of the card.
    """
    if auth is None or isinstance(auth, AuthBase):
        return auth
    if isinstance(auth, ApiKey):
        return auth.auth_for(card)
    if isinstance(auth, tuple) and len(auth) == 2:
        return HTTPBasicAuth(*auth)
    if isinstance(auth, Mapping):
        return _combined_auth(auth, card)
    if isinstance(auth, str) or callable(auth):
        token = (lambda: auth) if isinstance(auth, str) else auth
        return _token(token, next(_single_schemes(card), None) if card is not None else None)
    raise TypeError(_WRONG_TYPE)


def _combined_auth(given: Mapping[str, Any], card: AgentCard | None) -> AuthBase | None:
    """The credentials for the first alternative of the card for which all are given."""
    for one in given.values():
        if one is None or isinstance(one, Mapping):
            raise TypeError(_WRONG_TYPE)
        make_auth(one)
    if card is None:
        return None
    alternatives = [requirement.schemes for requirement in card.security_requirements] or [dict.fromkeys(given, ())]
    for schemes in alternatives:
        if given.keys() >= schemes.keys():
            found = (_auth_for_scheme(given[name], card.security_schemes.get(name)) for name in schemes)
            return _CombinedAuth([one for one in found if one is not None])
    wanted = " or ".join(" and ".join(schemes) for schemes in alternatives)
    raise ValueError(f"auth has credentials for {', '.join(given) or 'nothing'}; the agent requires {wanted}")


def _auth_for_scheme(auth: Any, scheme: SecurityScheme | None) -> AuthBase | None:
    """The credentials for one scheme of the card."""
    if isinstance(auth, ApiKey) and isinstance(scheme, APIKeySecurityScheme):
        auth = auth if auth._location is not None else ApiKey(auth._key, **{scheme.location: scheme.name})
    if isinstance(auth, str) or (callable(auth) and not isinstance(auth, AuthBase)):
        return _token((lambda: auth) if isinstance(auth, str) else auth, scheme)
    return make_auth(auth)


def _token(token: Callable[[], str], scheme: SecurityScheme | None) -> AuthBase | None:
    if isinstance(scheme, APIKeySecurityScheme):
        return _KeyAuth(token, KeyLocation(scheme.location, scheme.name))
    if isinstance(scheme, MutualTlsSecurityScheme):
        return None
    return _TokenAuth(token, scheme.scheme if isinstance(scheme, HTTPAuthSecurityScheme) else "Bearer")


def _single_schemes(card: AgentCard) -> Iterator[SecurityScheme]:
    """The schemes that suffice alone, those for tokens first: one secret is usually a token."""
    single = [
        scheme
        for requirement in card.security_requirements
        if len(requirement.schemes) == 1
        for name in requirement.schemes
        if (scheme := card.security_schemes.get(name)) is not None and not isinstance(scheme, MutualTlsSecurityScheme)
    ]
    yield from sorted(single, key=lambda scheme: isinstance(scheme, APIKeySecurityScheme))


def _key_locations(card: AgentCard) -> Iterator[KeyLocation]:
    """Where the card expects keys: required schemes before those that it only lists."""
    asked = (name for requirement in card.security_requirements for name in requirement.schemes)
    for name in (*asked, *card.security_schemes):
        scheme = card.security_schemes.get(name)
        if isinstance(scheme, APIKeySecurityScheme):
            yield KeyLocation(scheme.location, scheme.name)


class KeyLocation:
    """The part of a request that contains a key."""

    def __init__(self, location: str, name: str) -> None:
        if location not in ("header", "query", "cookie"):
            raise ValueError(f"an API key cannot be in {location!r}; use header, query or cookie")
        if location != "query" and (not _HEADER.fullmatch(name) or name.lower() in _NOT_FOR_KEYS):
            raise ValueError(f"the {location} {name!r} cannot contain an API key")
        self.location = location
        self.name = name

    def __repr__(self) -> str:
        return f"{self.location}={self.name!r}"


# -- authentication of requests -----------------------------------------------------------------------------------------


class RefreshingAuth(AuthBase):
    """Credentials that can change between requests."""

    def prepare(self, post: Post, deadline: Deadline) -> None:
        """Called before each request; may block and fetch a token with `post`."""

    def refresh_after_refusal(self, refused: str) -> bool:
        """Called when a request with the ``Authorization`` header `refused` was answered with 401; True to send it again."""
        return False


class _CombinedAuth(RefreshingAuth):
    """Several credentials in one request."""

    def __init__(self, parts: Iterable[AuthBase]) -> None:
        self.parts = tuple(parts)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        for part in self.parts:
            request = part(request)
        return request

    def prepare(self, post: Post, deadline: Deadline) -> None:
        for part in self.parts:
            if isinstance(part, RefreshingAuth):
                part.prepare(post, deadline)

    def refresh_after_refusal(self, refused: str) -> bool:
        # Every part is notified, so this does not stop at the first.
        refreshed = [part.refresh_after_refusal(refused) for part in self.parts if isinstance(part, RefreshingAuth)]
        return any(refreshed)


class _KeyAuth(AuthBase):
    def __init__(self, key: str | Callable[[], str], location: KeyLocation) -> None:
        self._key = key
        self._location = location

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        key = self._key if isinstance(self._key, str) else _check_token(self._key())
        location, name = self._location.location, self._location.name
        if location == "header":
            request.headers[name] = key
        elif location == "query":
            request.prepare_url(request.url, {name: key})
        else:
            before = request.headers.get("Cookie")
            request.headers["Cookie"] = f"{before}; {name}={key}" if before else f"{name}={key}"
        return request


class _TokenAuth(RefreshingAuth):
    """Calls a function for the token of each request, on the thread of the request."""

    def __init__(self, token: Callable[[], str], scheme: str) -> None:
        if not _HEADER.fullmatch(scheme):
            raise ValueError(f"{scheme!r} is not a valid scheme of Authorization")
        self._token = token
        self._scheme = scheme

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"{self._scheme} {_check_token(self._token())}"
        return request

    def refresh_after_refusal(self, refused: str) -> bool:
        return f"{self._scheme} {_check_token(self._token())}" != refused


def _check_token(token: Any) -> str:
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise ValueError("auth returned a token that is not valid in a header")
    return token


# -- fetched tokens: the client credentials of OAuth 2 (RFC 6749, 4.4) ------------------------------------------


class _Token(NamedTuple):
    text: str
    renew_at: float
    ends_at: float

    def __repr__(self) -> str:
        return f"_Token(renew_at={self.renew_at}, ends_at={self.ends_at})"


class ClientCredentials(RefreshingAuth):
    """A token for ``Client(auth=…)`` that a token server issues for a client id and secret.

    It is fetched before it is needed, renewed before it expires, and fetched again when the agent refuses it. One object may be
    shared by clients and threads: one thread fetches, the others wait or use the current token. The secret is sent to
    `token_url` only, over connections with the ``verify=`` or ``session=`` of the client that needs the token.

    Parameters:
        token_url: the URL of the token server. It is never taken from a card, which could send the secret anywhere.
        client_id: the id of the client.
        client_secret: its secret.
        scope: the scopes to request.
        parameters: further parameters of the request, such as ``{"audience": …}`` or ``{"resource": …}``.
        in_body: send id and secret in the body, for servers that do not accept HTTP Basic authentication.

    Raises (in the calls of the client):
        TokenError: the token server issued no token; the message says why.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | Iterable[str] = "",
        parameters: Mapping[str, str] | None = None,
        in_body: bool = False,
    ) -> None:
        try:
            urls.parse(token_url)
        except UnsafeURLError as error:
            raise UnsafeURLError(f"token_url {error}") from None
        self._url = token_url
        self._headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        form = {"grant_type": "client_credentials", **(parameters or {})}
        if wanted := scope if isinstance(scope, str) else " ".join(scope):
            form["scope"] = wanted
        if in_body:
            form.update(client_id=client_id, client_secret=client_secret)
        else:
            # RFC 6749, 2.3.1: both are form-encoded before they are joined.
            pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._body = urlencode(form).encode()
        basic = self._headers.get("Authorization", "").removeprefix("Basic ")
        #: The secret in the forms in which a server may repeat it, the longest first.
        forms = {client_secret, quote(client_secret), quote_plus(client_secret), basic} - {""}
        self._secrets = sorted(forms, key=len, reverse=True)
        self._token: _Token | None = None
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread that was fetching does not exist here. The token stays valid."""
        self._changed = threading.Condition()
        self._fetching = False

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._token
        if token is None:
            raise TypeError("ClientCredentials is for Client(auth=…), which fetches the token")
        request.headers["Authorization"] = f"Bearer {token.text}"
        return request

    def prepare(self, post: Post, deadline: Deadline) -> None:
        """Fetch a token with `post` unless the current one is valid for a while. Blocks.

        Raises:
            TokenError: the token server issued no token.
            TransportError: the token server could not be reached.
        """
        limit = min(deadline, Deadline.after(_FETCH_TIMEOUT))
        while True:
            with self._changed:
                token, now = self._token, time.monotonic()
                if token is not None and now < token.renew_at:
                    return
                if not self._fetching:
                    self._fetching = True
                    break
                if token is not None and now < token.ends_at:
                    return
                if not self._changed.wait(limit.left):
                    raise TransportTimeoutError(
                        "no token arrived in time", phase="token", agent=urls.parse(self._url).without_query
                    )
        self._renew_token(token, post, limit)

    def refresh_after_refusal(self, refused: str) -> bool:
        with self._changed:
            if self._token is not None and refused == f"Bearer {self._token.text}":
                # It stays for requests of other threads that are being prepared.
                self._token = self._token._replace(renew_at=0.0, ends_at=0.0)
        return True

    def _renew_token(self, before: _Token | None, post: Post, limit: Deadline) -> None:
        fetched = None
        try:
            fetched = self._fetch(post, limit)
        except TransportError:
            # The old token is still valid, so there is time for another attempt.
            if before is None or time.monotonic() >= before.ends_at:
                raise
            fetched = before._replace(renew_at=min(before.ends_at, time.monotonic() + _FAILURE_PAUSE))
        finally:
            with self._changed:
                self._token = fetched or self._token
                self._fetching = False
                self._changed.notify_all()

    def _fetch(self, post: Post, limit: Deadline) -> _Token:
        status, body = post(self._url, self._headers, self._body, limit)
        try:
            answer = jsontext.loads(body)
        except JSONParseError:
            answer = None
        if not isinstance(answer, dict):
            raise self._error(f"it answered HTTP {status} without JSON")
        return self._token_in(answer, status)

    def _token_in(self, answer: Mapping[str, Any], status: int) -> _Token:
        token, kind, life = answer.get("access_token"), answer.get("token_type", "bearer"), answer.get("expires_in")
        if status != 200 or not isinstance(token, str):
            given = answer.get("error"), answer.get("error_description")
            reason = ": ".join(self._shown(one) for one in given if isinstance(one, str))
            raise self._error(reason or f"HTTP {status}")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._error("it issued a token of another type than Bearer")
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise self._error("it issued a token that is not valid in a header")
        seconds = float(min(life, _LONGEST_LIFE)) if isinstance(life, (int, float)) and life > 0 else math.inf
        now = time.monotonic()
        return _Token(token, now + seconds - min(_RENEW_EARLY, seconds / 10), now + seconds)

    def _shown(self, text: str) -> str:
        """`text` of the server for an error: without the secret, which it may repeat, and in one line."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return "".join(one if one.isprintable() else " " for one in text[:200])

    def _error(self, why: str) -> TokenError:
        return TokenError(
            f"the token server issued no token: {why}", phase="token", agent=urls.parse(self._url).without_query
        )

    def __repr__(self) -> str:
        return f"ClientCredentials({urls.parse(self._url).without_query!r})"
