"""Key sets at URLs, read when they are needed and cached (RFC 7517): one cache for servers and clients.

A token that names an unknown key makes the set be read again, at most once per pause. No lock is held during a reading.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final, TypeAlias

from a2a_sync import urls
from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import TransportError, UnavailableError, UnsafeURLError
from a2a_sync.outbound.http import NoResponseError, Outbound
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.signing.jwk import TrustedKey, keys_with_id, read_key_set
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Reads the document at a URL. Raises `TransportError`, `NoResponseError` or `ValueError`.
Fetch: TypeAlias = Callable[[str], bytes]

_TIMEOUT = 5.0
#: Seconds for which a call waits that has a key to go on with. Keys that the issuer has removed are refused if it answers in time.
_PATIENCE = 1.0
_MAX_BYTES = 512 * 1024


@dataclass(eq=False)
class KeySet:
    """The keys at `url`, as they were read last. Safe from many threads and across forks.

    Parameters:
        url: where the key set is.
        fetch: reads it; may be given with each call of `keys` instead.
        refresh: seconds after which the keys are read again.
        max_stale: seconds after that for which they are used as long as they cannot be read.
        pause: seconds between two readings that a missing key causes.
        failure_pause: seconds between a reading that failed and the next one.
        exclusive: one thread reads, and the others use the keys of before or are refused. Servers need this: tokens that
            anyone can forge would block all threads while an issuer hangs. Without it each thread reads for itself.
    """

    url: str
    fetch: Fetch | None = None
    _: KW_ONLY
    refresh: float = 300.0
    max_stale: float = 86400.0
    pause: float = 60.0
    failure_pause: float = 10.0
    exclusive: bool = True

    def __post_init__(self) -> None:
        self._keys: tuple[TrustedKey, ...] = ()
        self._read_at = self._next_at = float("-inf")
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread that was reading does not exist here."""
        self._lock = threading.Lock()
        self._reading = False

    def keys(self, kid: str, fetch: Fetch | None = None) -> tuple[TrustedKey, ...]:
        """The keys that may have signed a token which names `kid` (``""``: none). Blocks while they are read.

        With `exclusive`, a call for keys that are known and may be used waits for one second at most.

        Raises:
            UnavailableError: they cannot be read, or another thread reads them at the moment. Its cause is the failure.
        """
        now = time.monotonic()
        found = keys_with_id(self._keys, kid)
        failure: Exception | None = None
        if now >= self._read_at + self.refresh or (not found and now >= self._next_at):
            needed = not found or now > self._read_at + self.refresh + self.max_stale
            failure = self._read_if_due(fetch or self.fetch, needed=needed)
            found = keys_with_id(self._keys, kid)
        if now > self._read_at + self.refresh + self.max_stale:
            text = "the keys that tokens are checked with cannot be read; try again later"
            raise UnavailableError(text, retry_after=10.0) from failure
        return found

    def _read_if_due(self, fetch: Fetch | None, *, needed: bool) -> Exception | None:
        """Read the keys if a reading is due; the failure if it failed. `needed`: there is no key to go on with."""
        if not self._begin_reading(needed):
            return None
        if needed or not self.exclusive:
            return self._read(fetch)
        ended = threading.Event()

        def read() -> None:
            try:
                self._read(fetch)
            finally:
                ended.set()

        if start_thread("a2a-keys", read) is None:
            return self._read(fetch)
        ended.wait(_PATIENCE)
        return None

    def _read(self, fetch: Fetch | None) -> Exception | None:
        """Read the keys; the failure if it failed."""
        try:
            if fetch is None:
                raise ValueError(f"a function that reads {self.url} is missing")
            keys = read_key_set(fetch(self.url))
            if not keys:
                raise ValueError("the key set has no key that can be used")
        except (NoResponseError, TransportError, ValueError) as error:
            logger.warning("the key set at %s could not be read: %s", urls.parse(self.url).without_query, error)
            return error
        finally:
            with self._lock:
                self._reading = False
        self._keys = keys
        self._read_at = time.monotonic()
        self._next_at = self._read_at + self.pause
        return None

    def _begin_reading(self, needed: bool) -> bool:
        """Whether this thread is to read the keys: a reading is due, and no other thread reads them alone."""
        with self._lock:
            if self._reading and self.exclusive:
                if needed:
                    text = "the keys that tokens are checked with are being read; try again"
                    raise UnavailableError(text, retry_after=1.0)
                return False
            if time.monotonic() < self._next_at:
                return False
            self._reading = True
            self._next_at = time.monotonic() + self.failure_pause
            return True


def guarded_key_set(url: str, guard: URLGuard | None) -> KeySet:
    """The key set at `url`, which `guard` must allow; by default only the host of `url` may be called, over https.

    Raises:
        UnsafeURLError: the guard refuses `url`.
    """
    try:
        guard = guard or URLGuard([urls.parse(url).host], schemes=["https"])
        guard.check(url)
    except UnsafeURLError as error:
        raise UnsafeURLError(f"the URL of a key set {error}") from None
    return KeySet(url, _fetch_with(Outbound(guard)))


def _fetch_with(outbound: Outbound) -> Fetch:

    def fetch(url: str) -> bytes:
        answer = outbound.request(
            "GET", url, headers={"Accept": "application/json"}, timeout=_TIMEOUT, max_bytes=_MAX_BYTES
        )
        if answer.status != 200 or not answer.complete:
            raise ValueError(f"HTTP {answer.status}, {len(answer.body)} bytes")
        return answer.body

    return fetch
