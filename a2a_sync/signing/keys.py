"""Keys and the algorithms that go with them. Only asymmetric ones: who can verify a card must not be able to sign one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: What signatures may be made with, the preferred one of each kind of key first (RFC 7518, RFC 8037).
ALGORITHMS = ("ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
_LEAST_BITS = 2048


def need_libraries(who: str) -> Any:
    """PyJWT.

    Raises:
        ImportError: it, or what it needs for keys, is not installed.
    """
    try:
        import cryptography
        import jwt
        import rfc8785  # noqa: F401
    except ImportError:
        raise ImportError(f"{who} needs PyJWT, cryptography and rfc8785: pip install 'a2a-sync[signing]'") from None
    del cryptography
    return jwt


def algorithms_of(key: Any) -> tuple[str, ...]:
    """The algorithms that a public or private key is for, the usual one first; none for keys that are not taken here."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match key:
        case ec.EllipticCurvePrivateKey() | ec.EllipticCurvePublicKey():
            return (_CURVES[key.curve.name],) if key.curve.name in _CURVES else ()
        case ed25519.Ed25519PrivateKey() | ed25519.Ed25519PublicKey():
            return ("EdDSA",)
        case rsa.RSAPrivateKey() | rsa.RSAPublicKey():
            return _RSA if key.key_size >= _LEAST_BITS else ()
    return ()


def private_key(given: Any) -> Any:
    """The private key in PEM text, in a JWK, or as an object of cryptography.

    Raises:
        ValueError: it is none of these, is not private, or is of a kind that is not taken here. The key is not shown.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if isinstance(given, (str, bytes)):
            key: Any = load_pem_private_key(given.encode() if isinstance(given, str) else given, password=None)
        else:
            key = _from_jwk(given) if isinstance(given, Mapping) else given
    except Exception as error:
        raise ValueError(f"the key is neither a private key in PEM nor a JWK ({type(error).__name__})") from None
    if not hasattr(key, "sign"):
        raise ValueError("the key is not a private key")
    return key


def _from_jwk(jwk: Mapping[str, Any]) -> Any:
    import jwt

    return jwt.PyJWK.from_dict(dict(jwk)).key


class SigningKey:
    """A private key with a name: what every signer is. Safe from many threads and across forks.

    Parameters:
        key: PEM text without a password, a JWK, or an object of the package cryptography: EC (P-256, P-384, P-521),
            Ed25519, or RSA.
        kid: the name by which those who verify find the public key.
        algorithm: for RSA keys, which allow several; ``RS256`` by default.

    Raises:
        ValueError: the key cannot be used, or not with this algorithm.
        ImportError: the extra ``a2a-sync[signing]`` is not installed.
    """

    def __init__(self, key: Any, *, kid: str, algorithm: str = "") -> None:
        self._jwt = need_libraries(type(self).__name__)
        self._key = private_key(key)
        able = algorithms_of(self._key)
        if not able:
            raise ValueError("the key is of a kind that is not taken: EC, Ed25519, or RSA of at least 2048 bits")
        if algorithm not in ("", *able):
            raise ValueError(f"the key is not one for {algorithm}; it is for {', '.join(able)}")
        if not kid:
            raise ValueError("kid is empty: those who verify find the public key by it")
        self.kid = kid
        self.algorithm = algorithm or able[0]

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public key as a JWK, to be published in a key set: ``{"keys": [signer.public_jwk]}``."""
        algorithm = self._jwt.get_algorithm_by_name(self.algorithm)
        jwk = algorithm.to_jwk(self._key.public_key(), as_dict=True)
        told = {name: value for name, value in jwk.items() if name != "key_ops"}
        return {**told, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    def _jws(self, payload: bytes, header: Mapping[str, Any]) -> str:
        """`payload`, signed, in the compact form."""
        token: str = self._jwt.api_jws.encode(
            payload, self._key, algorithm=self.algorithm, headers={"kid": self.kid, **header}
        )
        return token

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kid={self.kid!r}, algorithm={self.algorithm!r})"


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, and what is said about it. ``kid`` is empty for a key that is good for every name."""

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
    """The keys in what somebody trusts: PEM text, a JWK, a key set, keys by their names, a list of these, or an object of
    cryptography. Keys of a set that are for something else, or of no known kind, are passed over, as RFC 7517 wants it.

    Raises:
        ValueError: it is none of these.
    """
    return tuple(_keys_in(given, ""))


def _keys_in(given: Any, kid: str) -> Iterator[TrustedKey]:
    if isinstance(given, Mapping):
        if "kty" in given:
            yield _of_jwk(given, kid)
        elif isinstance(given.get("keys"), Sequence):
            yield from _of_set(given["keys"])
        else:
            for name, one in given.items():
                yield from _keys_in(one, str(name))
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _keys_in(one, kid)
    else:
        yield _usable(TrustedKey(_public(given), kid))


def _public(given: Any) -> Any:
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
            f"a trusted key {f'({key.kid}) ' if key.kid else ''}is of a kind that is not taken:"
            f" EC on P-256, P-384 or P-521, Ed25519, or RSA of at least {_LEAST_BITS} bits"
        )
    chosen = tuple(one for one in able if named in ("", one))
    return TrustedKey(key.key, key.kid, chosen, key.not_before, key.expires, key.revoked)


def _of_jwk(jwk: Mapping[str, Any], kid: str = "") -> TrustedKey:
    """The key in a JWK; ``nbf``, ``exp`` and ``revoked`` are those of OpenID Federation."""
    import jwt

    try:
        key = _public(_from_jwk(jwk))
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise ValueError(f"a trusted JWK cannot be used: {error}") from None
    said = jwk.get("kid")
    return _usable(
        TrustedKey(
            key,
            kid or (said if isinstance(said, str) else ""),
            not_before=_moment(jwk.get("nbf")),
            expires=_moment(jwk.get("exp")),
            revoked="revoked" in jwk,
        ),
        str(jwk.get("alg") or ""),
    )


def _of_set(keys: Sequence[Any]) -> Iterator[TrustedKey]:
    for one in keys:
        if not isinstance(one, Mapping) or one.get("use", "sig") != "sig":
            continue
        uses = one.get("key_ops")
        if isinstance(uses, list) and uses and "verify" not in uses:
            continue
        try:
            yield _of_jwk(one)
        except ValueError:
            continue


def _moment(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
