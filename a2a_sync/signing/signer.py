"""`CardSigner`: signs the cards that an app serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from a2a_sync.card import AgentCard, AgentCardSignature
from a2a_sync.codec import by_version
from a2a_sync.signing.canonical import canonical_forms, version_of
from a2a_sync.signing.keys import SigningKey

#: Makes the signatures of a card from its JSON.
Sign: TypeAlias = Callable[[Mapping[str, Any]], tuple[AgentCardSignature, ...]]
_MAX_SIGNATURES = 64


class CardSigner(SigningKey):
    """Signs cards with one private key: ``A2AApp(agent, url=…, card_signer=CardSigner(pem, kid="2026-1"))``.

    A card that was signed keeps its signature for as long as the signer lives, though most algorithms would make another one
    each time. `jku` is the URL of a key set with the public key, for verifiers, which use it only if they trust it. The other
    parameters are those of `SigningKey`.
    """

    def __init__(self, key: Any, *, kid: str, algorithm: str = "", jku: str = "") -> None:
        super().__init__(key, kid=kid, algorithm=algorithm)
        self._header = {"typ": "JOSE", **({"jku": jku} if jku else {})}
        self._cached: dict[bytes, AgentCardSignature] = {}

    def sign(self, card: AgentCard | Mapping[str, Any]) -> tuple[AgentCardSignature, ...]:
        """Signatures for a card, given as an object (then of 1.0) or as its JSON: two where its forms differ.

        Raises:
            ValueError: it has no canonical form.
        """
        document = by_version("1.0").dump(card) if isinstance(card, AgentCard) else card
        return tuple(self._signature(form) for form in canonical_forms(document, version_of(document)))

    def _signature(self, form: bytes) -> AgentCardSignature:
        known = self._cached.get(form)
        if known is not None:
            return known
        protected, _, signature = self._jws(form, self._header).split(".")
        if len(self._cached) >= _MAX_SIGNATURES:
            # Extended cards may differ for each caller.
            self._cached.clear()
        return self._cached.setdefault(form, AgentCardSignature(protected=protected, signature=signature))


def combine_signers(signers: CardSigner | Sequence[CardSigner]) -> Sign:
    """A function that makes the signatures of all `signers`, in their order: during a key rotation, of the old and the new key.

    Raises:
        TypeError: one of them is not a signer.
    """
    given = (signers,) if isinstance(signers, CardSigner) else tuple(signers)
    for one in given:
        if not callable(getattr(one, "sign", None)):
            raise TypeError(f"card_signer takes a CardSigner, or several, not {type(one).__name__}")
    return lambda document: tuple(signature for one in given for signature in one.sign(document))
