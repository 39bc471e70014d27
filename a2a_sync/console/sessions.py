"""Sessions of browsers at a console without ``auth=``: a login token that works once, and a cookie that proves the login.

Both are signed with one key, so that every process with the key can verify them, and nothing is stored but the marks of used
tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
import time
from contextlib import suppress
from pathlib import Path

#: The environment variable with the key that the processes of a server share.
KEY_VARIABLE = "A2A_SYNC_CONSOLE_KEY"
#: How long a login token can be used, and how long a login lasts, in seconds.
TOKEN_AGE, SESSION_AGE = 600, 12 * 3600


class Sessions:
    """Signs and verifies the tokens and cookies of one console; `key` by default is that of the environment, or random."""

    def __init__(self, key: bytes | None = None) -> None:
        given = os.environ.get(KEY_VARIABLE, "").encode()
        #: Other processes know the key too.
        self.shared: bool = bool(key or given)
        self._key = key or given or secrets.token_bytes(32)

    def token(self) -> str:
        """A new token for one login."""
        return self._issue("login", TOKEN_AGE)

    def redeem(self, token: str) -> bool:
        """Whether `token` is valid and was not used before, by any process of this machine. It is used then."""
        return self._verify("login", token) and self._mark(token)

    def cookie(self) -> str:
        """The value of the cookie of a new session."""
        return self._issue("session", SESSION_AGE)

    def admits(self, cookie: str) -> bool:
        """`cookie` is that of a session that has not expired."""
        return self._verify("session", cookie)

    def _issue(self, purpose: str, age: int) -> str:
        text = f"{int(time.time()) + age}.{secrets.token_urlsafe(32)}"
        return f"{text}.{self._digest(purpose, text)}"

    def _verify(self, purpose: str, value: str) -> bool:
        text, _, digest = value.rpartition(".")
        if not hmac.compare_digest(digest.encode("utf-8", "replace"), self._digest(purpose, text).encode()):
            return False
        return int(text.partition(".")[0]) > time.time()

    def _digest(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose} {text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _mark(self, token: str) -> bool:
        """Mark `token` as used; False where it is marked. Names of the marks cannot be guessed without the key."""
        folder = Path(tempfile.gettempdir())
        family = f"a2a-sync-{self._digest('marks', '')[:16]}-"
        for old in folder.glob(f"{family}*"):
            # Other processes remove marks too, and other users can make files of such names.
            with suppress(OSError):
                if old.lstat().st_mtime < time.time() - TOKEN_AGE:
                    old.unlink()
        try:
            (folder / (family + self._digest("mark", token)[:32])).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True
