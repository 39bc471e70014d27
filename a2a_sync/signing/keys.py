"""Private keys that sign. Only asymmetric ones: a verifier must not be able to sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a_sync.signing.jwk import algorithms_of, from_jwk


def need_libraries(feature: str) -> Any:
    """PyJWT.

    Raises:
        ImportError: it, or what it needs for keys, is not installed.
    """
    try:
        import cryptography
        import jwt
        import rfc8785  # noqa: F401
    except ImportError:
        raise ImportError(f"{feature} needs PyJWT, cryptography and rfc8785: pip install 'a2a-sync[signing]'") from None
    del cryptography
    return jwt


def private_key(given: Any) -> Any:
    """The private key in PEM text, in a JWK, or as an object of cryptography.

    Raises:
        ValueError: it is none of these, is not private, or is of an unsupported kind. The error does not show the key.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if isinstance(given, (str, bytes)):
            key: Any = load_pem_private_key(given.encode() if isinstance(given, str) else given, password=None)
        else:
            key = from_jwk(given) if isinstance(given, Mapping) else given
    except Exception as error:
        raise ValueError(f"the key is neither a private key in PEM nor a JWK ({type(error).__name__})") from None
    if not hasattr(key, "sign"):
        raise ValueError("the key is not a private key")
    return key


class SigningKey:
    """A private key with a name: the base of every signer. Safe from many threads and across forks.

    Parameters:
        key: PEM text without a password, a JWK, or an object of the package cryptography: EC (P-256, P-384, P-521),
            Ed25519, or RSA.
        kid: the name by which verifiers select the public key.
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
            raise ValueError(
                "the key is of a kind that is not supported: use EC, Ed25519, or RSA of at least 2048 bits"
            )
        if algorithm not in ("", *able):
            raise ValueError(f"the key is not one for {algorithm}; it is for {', '.join(able)}")
        if not kid:
            raise ValueError("kid is empty: verifiers select the public key by it")
        self.kid = kid
        self.algorithm: str = algorithm or able[0]

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public key as a JWK, to be published in a key set: ``{"keys": [signer.public_jwk]}``."""
        algorithm = self._jwt.get_algorithm_by_name(self.algorithm)
        jwk = algorithm.to_jwk(self._key.public_key(), as_dict=True)
        members = {name: value for name, value in jwk.items() if name != "key_ops"}
        return {**members, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    def _jws(self, payload: bytes, header: Mapping[str, Any]) -> str:
        """`payload`, signed, in the compact form."""
        token: str = self._jwt.api_jws.encode(
            payload, self._key, algorithm=self.algorithm, headers={"kid": self.kid, **header}
        )
        return token

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kid={self.kid!r}, algorithm={self.algorithm!r})"
