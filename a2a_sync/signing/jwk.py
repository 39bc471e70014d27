"""Trusted public keys: their forms, the algorithms that they fit, and their selection from a key set.

Used by every check of a signature: of cards, of push notifications, of tokens. The functions load PyJWT and cryptography, of
the extras ``jwt`` and ``signing``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a_sync import jsontext
from a2a_sync.errors import JSONParseError

#: The algorithms of signatures, the preferred one of each kind of key first (RFC 7518, RFC 8037).
ALGORITHMS = ("ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
_MIN_RSA_BITS = 2048
#: The members of a JWK that make its public key. Of a private key without its primes PyJWT computes them, which takes days for
#: one of 100 KB and lets no other thread run.
_PUBLIC_MEMBERS = ("kty", "alg", "crv", "n", "e", "x", "y")
#: The number of keys of a key set that are read.
_MAX_KEYS = 100


def algorithms_of(key: Any) -> tuple[str, ...]:
    """The algorithms that a public or private key is for, the usual one first; none for other kinds of keys."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match key:
        case ec.EllipticCurvePrivateKey() | ec.EllipticCurvePublicKey():
            return (_CURVES[key.curve.name],) if key.curve.name in _CURVES else ()
        case ed25519.Ed25519PrivateKey() | ed25519.Ed25519PublicKey():
            return ("EdDSA",)
        case rsa.RSAPrivateKey() | rsa.RSAPublicKey():
            return _RSA if key.key_size >= _MIN_RSA_BITS else ()
    return ()


def from_jwk(jwk: Mapping[str, Any]) -> Any:
    """The key in a JWK: an object of cryptography, or the bytes of a secret. Raises what PyJWT raises."""
    import jwt

    return jwt.PyJWK.from_dict(dict(jwk)).key


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, with its id and its validity. A key with an empty ``kid`` fits every id."""

    key: Any
    kid: str = ""
    algorithms: tuple[str, ...] = ()
    not_before: float | None = None
    expires: float | None = None
    revoked: bool = False

    def objection(self, algorithm: str) -> str:
        """Why it may not be used now for `algorithm`; empty if it may."""
        now = time.time()
        if self.revoked:
            return "is revoked"
        if self.expires is not None and now >= self.expires:
            return "has expired"
        if self.not_before is not None and now < self.not_before:
            return "is not valid yet"
        return "" if algorithm in self.algorithms else f"is not one for {algorithm}"


def trusted_keys(given: Any) -> tuple[TrustedKey, ...]:
    """The keys in what a user trusts: PEM text, a JWK, a key set, keys by their names, a list of these, or an object of
    cryptography. Keys of a set that are for something else, or of no known kind, are ignored, as RFC 7517 requires.

    Raises:
        ValueError: it is none of these.
    """
    return tuple(_keys_in(given, ""))


def read_key_set(body: bytes) -> tuple[TrustedKey, ...]:
    """The keys in the JSON of a key set (RFC 7517); those that cannot be used are ignored.

    Raises:
        ValueError: it is no key set.
    """
    try:
        value = jsontext.loads(body)
    except JSONParseError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("keys"), list):
        raise ValueError("it is no key set")
    return tuple(_keys_in_set(value["keys"][:_MAX_KEYS]))


def keys_with_id(keys: Iterable[TrustedKey], kid: str) -> tuple[TrustedKey, ...]:
    """The keys that fit the id `kid`; all of them where it is empty."""
    return tuple(key for key in keys if not kid or key.kid in ("", kid))


def _keys_in(given: Any, kid: str) -> Iterator[TrustedKey]:
    if isinstance(given, Mapping):
        if "kty" in given:
            yield _key_in_jwk(given, kid)
        elif isinstance(given.get("keys"), Sequence):
            yield from _keys_in_set(given["keys"])
        else:
            for name, one in given.items():
                yield from _keys_in(one, str(name))
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _keys_in(one, kid)
    else:
        yield _usable(TrustedKey(_public_key(given), kid))


def _public_key(given: Any) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if isinstance(given, (str, bytes)):
        try:
            return load_pem_public_key(given.encode() if isinstance(given, str) else given)
        except ValueError:
            raise ValueError("a trusted key is neither a public key in PEM nor a JWK") from None
    return given.public_key() if hasattr(given, "public_key") else given


def _usable(key: TrustedKey, named: str = "") -> TrustedKey:
    able = algorithms_of(key.key)
    if not able:
        raise ValueError(
            f"a trusted key {f'({key.kid}) ' if key.kid else ''}is of a kind that is not supported:"
            f" EC on P-256, P-384 or P-521, Ed25519, or RSA of at least {_MIN_RSA_BITS} bits"
        )
    chosen = tuple(one for one in able if named in ("", one))
    return replace(key, algorithms=chosen)


def _key_in_jwk(jwk: Mapping[str, Any], kid: str = "") -> TrustedKey:
    """The key in a JWK; ``nbf``, ``exp`` and ``revoked`` are those of OpenID Federation."""
    import jwt

    try:
        key = _public_key(from_jwk({name: jwk[name] for name in _PUBLIC_MEMBERS if name in jwk}))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise ValueError(f"a trusted JWK cannot be used: {error}") from None
    kid_of_jwk = jwk.get("kid")
    return _usable(
        TrustedKey(
            key,
            kid or (kid_of_jwk if isinstance(kid_of_jwk, str) else ""),
            not_before=_as_timestamp(jwk.get("nbf")),
            expires=_as_timestamp(jwk.get("exp")),
            revoked="revoked" in jwk,
        ),
        str(jwk.get("alg") or ""),
    )


def _keys_in_set(keys: Sequence[Any]) -> Iterator[TrustedKey]:
    for one in keys:
        if not isinstance(one, Mapping) or one.get("use", "sig") != "sig":
            continue
        uses = one.get("key_ops")
        if isinstance(uses, list) and uses and "verify" not in uses:
            continue
        try:
            yield _key_in_jwk(one)
        except ValueError:
            continue


def _as_timestamp(value: Any) -> float | None:
    # An integer stays one: it may be too large for a float.
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
