"""A rate limit for each caller: an interceptor. It counts per process and stores nothing."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import AnyCall, GeneratorInterceptor

#: The number of callers that are counted. Beyond it, those that have used least of their calls are evicted.
_MAX_CALLERS = 10_000
#: The share of the callers that are evicted at once, because finding them takes milliseconds.
_EVICTED_SHARE = 10


class RateLimit(GeneratorInterceptor):
    """At most `calls` calls of each caller in `seconds`; beyond it HTTP 429 with ``Retry-After``, and nothing is stored.

    ::

        A2AApp(agent, interceptors=[RateLimit(120)])

    A token bucket: an idle caller may make that many calls at once, then one each `seconds` / `calls`. The caller is the
    authenticated principal, else the network address, or the network of 64 bits of an IPv6 address; calls inside the process
    are not counted. Each process counts for itself. `key` is a function of a `Call` that returns another key, or None for
    a call that is not counted. A stream counts once, when it begins.
    """

    def __init__(
        self, calls: int, seconds: float = 60.0, *, key: Callable[[AnyCall], str | None] | None = None
    ) -> None:
        if isinstance(calls, str) or isinstance(seconds, str) or calls < 1 or not seconds > 0:
            raise ValueError("RateLimit takes a number of calls and of seconds, both positive")
        super().__init__(self._limit)
        self._calls = calls
        self._each = seconds / calls
        self._seconds = seconds
        self._key = key or _caller
        renew_per_process(self)
        #: For each caller, when all calls will be free again.
        self._free_at: dict[str, float] = {}

    def renew(self) -> None:
        """In a forked child: the parent's lock may never be released there. The counts stay."""
        self._lock = threading.Lock()

    def _limit(self, call: AnyCall) -> Generator[AnyCall, Any, Any]:
        caller = self._key(call)
        if caller is not None and (wait := self._wait(caller)) > 0:
            raise OverloadedError(
                f"too many calls: {self._calls} in {self._seconds:g} seconds are allowed", retry_after=wait
            )
        return (yield call)

    def _wait(self, caller: str) -> float:
        """The seconds until `caller` may call again; 0 where this call is allowed, and counted."""
        now = time.monotonic()
        with self._lock:
            free_at = max(now, self._free_at.get(caller, now)) + self._each
            wait = free_at - now - self._seconds
            # A thousandth of a call is the rounding error of many additions.
            if wait > self._each / 1000:
                return wait
            self._free_at[caller] = free_at
            if len(self._free_at) > _MAX_CALLERS:
                # Not the least recent: a refused caller could evict itself with calls from other addresses.
                for evicted in sorted(self._free_at, key=self._free_at.__getitem__)[
                    : _MAX_CALLERS // _EVICTED_SHARE + 1
                ]:
                    del self._free_at[evicted]
        return 0.0


def _caller(call: AnyCall) -> str | None:
    """The key of a caller; None for a call inside the process."""
    if call.context.principal is not None:
        return f"principal {call.context.principal.id}"
    return f"address {_network(call.context.peer)}" if call.context.peer else None


def _network(address: str) -> str:
    """`address`; of an IPv6 address its network of 64 bits, in which a caller has all addresses."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return address if parsed.ipv4_mapped else f"{ipaddress.IPv6Address(int(parsed) >> 64 << 64)}/64"
