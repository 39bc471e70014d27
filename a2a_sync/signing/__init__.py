"""Signatures of cards, a JWS over the card's canonical form (spec 8.4), and of push notifications. Needs the extra
``a2a-sync[signing]``.

`canonical` has the bytes of cards that are signed, `keys` the private keys, `signer` and `verifier` the two sides. No file
and no socket is opened here: a function that reads key sets at URLs is passed in.
"""

from a2a_sync.signing.jwk import ALGORITHMS
from a2a_sync.signing.notifications import NotificationSigner
from a2a_sync.signing.signer import CardSigner
from a2a_sync.signing.verifier import CardVerifier

__all__ = ["ALGORITHMS", "CardSigner", "CardVerifier", "NotificationSigner"]
