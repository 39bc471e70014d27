"""`CardSigner`: signs the cards that an app serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from a2a_sync.card import AgentCard, AgentCardSignature
from a2a_sync.codec import by_version
from a2a_sync.signing.canonical import canonical_forms, version_of
from a2a_sync.signing.keys import algorithms_of, need_libraries, private_key

#: Makes the signatures of a card from its JSON.
Sign: TypeAlias = Callable[[Mapping[str, Any]], tuple[AgentCardSignature, ...]]
_MOST_KEPT = 64


class CardSigner:
    """Signs cards with one private key: ``A2AApp(agent, url=…, signer=CardSigner(pem, kid="2026-1"))``.

    Safe from many threads and across forks. A card that was signed keeps its signature for as long as the signer lives,
    though most algorithms would make another one each time.

    Parameters:
        key: PEM text without a password, a JWK, or an object of the package cryptography: EC (P-256, P-384, P-521),
            Ed25519, or RSA.
        kid: the name by which those who verify find the public key.
        algorithm: for RSA keys, which allow several; ``RS256`` by default.
        jku: the URL of a key set with the public key, told to those who verify. They use it only if they trust it.

    Raises:
        ValueError: the key cannot be used, or not with this algorithm.
        ImportError: the extra ``a2a-sync[signing]`` is not installed.
    """

    def __init__(self, key: Any, *, kid: str, algorithm: str = "", jku: str = "") -> None:
        self._jwt = need_libraries("CardSigner")
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
        self._header = {"kid": kid, "typ": "JOSE", **({"jku": jku} if jku else {})}
        self._made: dict[bytes, AgentCardSignature] = {}

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public key as a JWK, to be published in a key set: ``{"keys": [signer.public_jwk]}``."""
        algorithm = self._jwt.get_algorithm_by_name(self.algorithm)
        jwk = algorithm.to_jwk(self._key.public_key(), as_dict=True)
        told = {name: value for name, value in jwk.items() if name != "key_ops"}
        return {**told, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    def sign(self, card: AgentCard | Mapping[str, Any]) -> tuple[AgentCardSignature, ...]:
        """Signatures for a card, given as an object (then of 1.0) or as its JSON: two where its forms differ.

        Raises:
            ValueError: it has no canonical form.
        """
        document = by_version("1.0").dump(card) if isinstance(card, AgentCard) else card
        return tuple(self._signature(form) for form in canonical_forms(document, version_of(document)))

    def _signature(self, form: bytes) -> AgentCardSignature:
        known = self._made.get(form)
        if known is not None:
            return known
        token = self._jwt.api_jws.encode(form, self._key, algorithm=self.algorithm, headers=self._header)
        protected, _, signature = token.split(".")
        if len(self._made) >= _MOST_KEPT:
            # Extended cards may be another one for each caller.
            self._made.clear()
        return self._made.setdefault(form, AgentCardSignature(protected=protected, signature=signature))

    def __repr__(self) -> str:
        return f"CardSigner(kid={self.kid!r}, algorithm={self.algorithm!r})"


def together(signers: CardSigner | Sequence[CardSigner]) -> Sign:
    """The signatures of all of `signers`, in their order: while keys change, the old one's and the new one's.

    Raises:
        TypeError: one of them is no signer.
    """
    given = (signers,) if isinstance(signers, CardSigner) else tuple(signers)
    for one in given:
        if not callable(getattr(one, "sign", None)):
            raise TypeError(f"signer takes a CardSigner, or several, not {type(one).__name__}")
    return lambda document: tuple(signature for one in given for signature in one.sign(document))
