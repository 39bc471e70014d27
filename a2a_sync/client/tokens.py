"""Tokens that are fetched: the client credentials of OAuth 2 (RFC 6749, 4.4).

A token is fetched before it is needed, renewed before it expires, and once when the agent does not accept it. One thread
fetches, the others wait or go on with the token they have; no lock is held meanwhile. No secret is shown anywhere.
"""

from __future__ import annotations

import base64
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from urllib.parse import quote_plus, urlencode

import requests
from requests.auth import AuthBase

from a2a_sync import jsontext, urls
from a2a_sync.client.credentials import display
from a2a_sync.client.deadlines import Deadline
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import JSONParseError, TokenError, TransportError, TransportTimeoutError, UnsafeURLError

#: How long before its end a token is renewed, in seconds; for short lives a tenth of them.
_EARLY = 30.0
#: The longest time for one fetch, and for waiting for another thread's.
_LIMIT = 30.0
#: How long after a fetch that failed the next one is made, while there is a token.
_PAUSE = 5.0

#: Sends a body to a URL, with headers, before a deadline; gives the status and the body of the answer.
Post: TypeAlias = Callable[[str, Mapping[str, str], bytes, Deadline], tuple[int, bytes]]


class _Token(NamedTuple):
    text: str
    renew_at: float
    ends_at: float

    def __repr__(self) -> str:
        return f"_Token(renew_at={self.renew_at}, ends_at={self.ends_at})"


class ClientCredentials(AuthBase):
    """A token for ``Client(auth=…)``, which a token server gives to a client for its id and secret.

    One object may serve several clients, and any number of threads. The secret goes to `token_url` and nowhere else.

    Parameters:
        token_url: where tokens are to be had; not taken from a card, which could send the secret anywhere.
        client_id, client_secret: as the token server knows them.
        scope: the scopes to ask for.
        parameters: more that the token server wants, such as ``{"audience": …}`` or ``{"resource": …}``.
        in_body: send id and secret in the body, for servers that do not take them as Basic credentials.

    Raises (in the calls of the client):
        TokenError: the token server gave none; the message says why.
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
        self._secret = client_secret
        self._headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        form = {"grant_type": "client_credentials", **(parameters or {})}
        if wanted := scope if isinstance(scope, str) else " ".join(scope):
            form["scope"] = wanted
        if in_body:
            form.update(client_id=client_id, client_secret=client_secret)
        else:
            # RFC 6749, 2.3.1: both are encoded before they are joined.
            pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._body = urlencode(form).encode()
        self._token: _Token | None = None
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: whoever was fetching is not here. The token is as good as before."""
        self._changed = threading.Condition()
        self._busy = False

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._token
        if token is None:
            raise TypeError("ClientCredentials is for Client(auth=…), which fetches the token")
        request.headers["Authorization"] = f"Bearer {token.text}"
        return request

    def ready(self, post: Post, deadline: Deadline) -> None:
        """See that there is a token that will be good for a while. Blocks while one is fetched, by `post`.

        Raises:
            TokenError: the token server gave none.
            TransportError: it could not be asked.
        """
        limit = min(deadline, Deadline.after(_LIMIT))
        while True:
            with self._changed:
                token, now = self._token, time.monotonic()
                if token is not None and now < token.renew_at:
                    return
                if not self._busy:
                    self._busy = True
                    break
                if token is not None and now < token.ends_at:
                    return
                if not self._changed.wait(limit.left):
                    raise TransportTimeoutError("no token came in time", phase="token", agent=display(self._url))
        self._renewed(token, post, limit)

    def retry_with(self, refused: str) -> bool:
        """The agent did not accept `refused`, an ``Authorization``. Another token is fetched, if that has not happened yet."""
        with self._changed:
            if self._token is not None and refused == f"Bearer {self._token.text}":
                self._token = None
        return True

    def _renewed(self, before: _Token | None, post: Post, limit: Deadline) -> None:
        fetched = None
        try:
            fetched = self._fetched(post, limit)
        except TransportError:
            # While the old one lasts there is time to ask again.
            if before is None or time.monotonic() >= before.ends_at:
                raise
            fetched = before._replace(renew_at=min(before.ends_at, time.monotonic() + _PAUSE))
        finally:
            with self._changed:
                self._token = fetched or self._token
                self._busy = False
                self._changed.notify_all()

    def _fetched(self, post: Post, limit: Deadline) -> _Token:
        status, body = post(self._url, self._headers, self._body, limit)
        try:
            said = jsontext.loads(body)
        except JSONParseError:
            said = None
        if not isinstance(said, dict):
            raise self._error(f"it answered HTTP {status} and no JSON")
        token, kind, life = said.get("access_token"), said.get("token_type", "bearer"), said.get("expires_in")
        if status != 200 or not isinstance(token, str):
            reasons = [said.get("error"), said.get("error_description")]
            said_why = ": ".join(one[:200] for one in reasons if isinstance(one, str))
            # A server may repeat what it was sent.
            raise self._error((said_why.replace(self._secret, "***") if self._secret else said_why) or f"HTTP {status}")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._error("it gave a token of another kind than Bearer")
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise self._error("it gave a token that cannot stand in a header")
        seconds = float(life) if isinstance(life, (int, float)) and life > 0 else math.inf
        now = time.monotonic()
        return _Token(token, now + seconds - min(_EARLY, seconds / 10), now + seconds)

    def _error(self, why: str) -> TokenError:
        return TokenError(f"the token server gave no token: {why}", phase="token", agent=display(self._url))

    def __repr__(self) -> str:
        return f"ClientCredentials({display(self._url)!r})"
