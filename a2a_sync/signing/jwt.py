"""Verification of the tokens that push notifications are signed with: their key, their issuer and their age."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.signing.jwk import ALGORITHMS, TrustedKey, keys_with_id, trusted_keys
from a2a_sync.signing.jwks import KeySet, guarded_key_set
from a2a_sync.signing.keys import need_libraries
from a2a_sync.signing.notifications import audience

#: The accepted difference of clocks, in seconds.
_LEEWAY = 30.0


class Signatures:
    """Trusts `keys`, given as for `WebhookReceiver`. Safe from many threads.

    Raises:
        ValueError: a key that cannot be used.
        UnsafeURLError: the URL of a key set that the guard refuses.
        ImportError: the extra ``a2a-sync[signing]`` is not installed.
    """

    def __init__(self, keys: Any, *, url: str, issuer: str | None, window: float, guard: URLGuard | None) -> None:
        self._jwt = need_libraries("WebhookReceiver")
        self._url = url
        self._issuer = issuer
        self._window = window
        self._set: KeySet | None = None
        self._keys: tuple[TrustedKey, ...] = ()
        if isinstance(keys, str) and "://" in keys:
            self._set = guarded_key_set(keys, guard)
        else:
            self._keys = trusted_keys(keys)

    @property
    def validity(self) -> float:
        """How long a signature can be accepted, in seconds: the leeway applies to both of its ends."""
        return self._window + 2 * _LEEWAY

    def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token. Blocks while a key set is read.

        Raises:
            ValueError: its key, issuer, audience or time is not accepted.
            UnavailableError: the key set cannot be read.
        """
        try:
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError:
            raise ValueError("it is no token") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise ValueError("the algorithm is not accepted")
        reason = "the key is not known"
        for key in self._candidates(str(header.get("kid") or ""), algorithm):
            try:
                return self._decoded(token, key, algorithm)
            except self._jwt.InvalidSignatureError:
                reason = "it was made with another key"
            except self._jwt.PyJWTError as error:
                raise ValueError(str(error)) from None
        raise ValueError(reason)

    def _candidates(self, kid: str, algorithm: str) -> Iterator[Any]:
        """The keys that fit the header of a token."""
        for key in keys_with_id(self._keys, kid) if self._set is None else self._set.keys(kid):
            if not key.objection(algorithm):
                yield key.key

    def _decoded(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any]:
        claims: dict[str, Any] = self._jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=audience(self._url) if self._url else None,
            issuer=self._issuer,
            leeway=_LEEWAY,
            options={"require": ["iat"], "verify_aud": bool(self._url)},
        )
        if int(claims["iat"]) < time.time() - self._window - _LEEWAY:
            raise self._jwt.ExpiredSignatureError("it is too old")
        return claims
