"""`NotificationSigner`: proves to receivers of push notifications their sender, time and content (spec 13.2)."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from a2a_sync import jsontext
from a2a_sync.signing.keys import SigningKey

#: How long a signature is valid, in seconds. A repeated post gets a new one.
LIFETIME = 300


class NotificationSigner(SigningKey):
    """Signs push notifications: ``PushOptions(signer=NotificationSigner(pem, kid="2026-1"))``.

    Each post carries a JSON Web Token with the time (``iat``, ``exp``), the notification (``jti``), where it goes (``aud``,
    the webhook without its query) and a digest of its body (``request_body_sha256``). `issuer` names the signer (``iss``), by the
    URL of the agent for example. The other parameters are those of `SigningKey`.
    """

    def __init__(self, key: Any, *, kid: str, algorithm: str = "", issuer: str = "") -> None:
        super().__init__(key, kid=kid, algorithm=algorithm)
        self._issuer = issuer

    def token(self, url: str, notification_id: str, body: bytes) -> str:
        """The token for one post of `body` to `url`."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iat": now,
            "exp": now + LIFETIME,
            "jti": notification_id,
            "aud": audience(url),
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        if self._issuer:
            claims["iss"] = self._issuer
        return self._jws(jsontext.dumps(claims), {"typ": "JWT"})


def audience(url: str) -> str:
    """A webhook as a token names it: queries hold secrets."""
    return url.partition("#")[0].partition("?")[0]
