"""The public keys of an issuer, read from its URL when they are needed and kept for a while (RFC 7517).

Tokens that name unknown keys cost nothing but a look: reading again is bounded in time. No lock is held while it goes on.
"""

from __future__ import annotations

import threading
import time

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import UnavailableError
from a2a_sync.outbound.http import NoAnswer, Outbound
from a2a_sync.signing.jwk import TrustedKey, named, read_key_set
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: How long keys are used without a look for newer ones, and how long if there is no way to get these. Seconds.
_FRESH = 300.0
_USABLE = 86400.0
#: How long after one reading the next one may be at the earliest, when a key is missing, and when it has failed.
_PAUSE = 60.0
_PAUSE_FAILED = 10.0
_TIMEOUT = 5.0
_MOST_BYTES = 512 * 1024


class KeySet:
    """The keys at `url`, read through `outbound`. Safe from many threads and across forks."""

    def __init__(self, url: str, outbound: Outbound) -> None:
        self._url = url
        self._outbound = outbound
        self._keys: tuple[TrustedKey, ...] = ()
        self._read_at = self._next_at = float("-inf")
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: whoever was reading is not here."""
        self._lock = threading.Lock()
        self._busy = False

    def keys(self, kid: str) -> tuple[TrustedKey, ...]:
        """The keys that may have signed a token which names `kid` (``""``: none). Blocks while they are read.

        Raises:
            UnavailableError: there are none, and they cannot be read now, or another thread reads them at this moment.
        """
        now = time.monotonic()
        found = named(self._keys, kid)
        if now >= self._read_at + _FRESH or (not found and now >= self._next_at):
            self._read(must=not self._keys or not found)
            found = named(self._keys, kid)
        if not self._keys or now > self._read_at + _USABLE:
            raise UnavailableError(
                "the keys that tokens are checked with cannot be read; try again later", retry_after=10.0
            )
        return found

    def _read(self, *, must: bool) -> None:
        """Read the keys, if it is time. One thread does it; `must`: the others cannot do without, and are refused.

        They do not wait: tokens that anybody can make up would hold every thread of the server while an issuer hangs.
        """
        with self._lock:
            if self._busy:
                if must:
                    raise UnavailableError(
                        "the keys that tokens are checked with are being read; try again", retry_after=1.0
                    )
                return
            if time.monotonic() < self._next_at:
                return
            self._busy = True
            self._next_at = time.monotonic() + _PAUSE_FAILED
        try:
            self._keys = self._fetched()
            self._read_at = time.monotonic()
            self._next_at = self._read_at + _PAUSE
        except (NoAnswer, ValueError) as error:
            logger.warning("the keys that tokens are checked with could not be read: %s", error)
        finally:
            with self._lock:
                self._busy = False

    def _fetched(self) -> tuple[TrustedKey, ...]:
        answer = self._outbound.request(
            "GET", self._url, headers={"Accept": "application/json"}, timeout=_TIMEOUT, most=_MOST_BYTES
        )
        if answer.status != 200 or not answer.whole:
            raise ValueError(f"HTTP {answer.status}, {len(answer.body)} bytes")
        keys = read_key_set(answer.body)
        if not keys:
            raise ValueError("the key set has no key that can be used")
        return keys
