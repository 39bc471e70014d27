"""How often each caller may call: an interceptor. Numbers are per process, and nothing is stored."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import Call, Endpoint

#: Callers that are remembered; those that have been quiet for longest are forgotten first.
_CALLERS = 10_000


class RateLimit:
    """At most `calls` calls of each caller in `seconds`; beyond it HTTP 429 with ``Retry-After``, and nothing is stored.

    ::

        A2AApp(agent, interceptors=[RateLimit(120)])

    Who has been quiet may make that many at once, then one each `seconds` / `calls`. A caller is who was authenticated, else an
    address of the network; calls inside the process are not counted. `key` is a function of a `Call` that says otherwise who
    it is from; None: do not count it. Streams count once, when they begin.
    """

    def __init__(self, calls: int, seconds: float = 60.0, *, key: Callable[[Call], str | None] | None = None) -> None:
        if calls < 1 or not seconds > 0:
            raise ValueError("RateLimit takes a number of calls and of seconds, both positive")
        self._calls = calls
        self._each = seconds / calls
        self._seconds = seconds
        self._key = key or _caller
        self.renew()
        renew_in_child(self)
        #: For each caller, when all calls will be free again.
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def renew(self) -> None:
        """In a forked child: the parent's lock may never be released there. What was counted stays."""
        self._lock = threading.Lock()

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """The interceptor. The thread of a call is never held up."""

        def limited(call: Call) -> Any:
            caller = self._key(call)
            if caller is not None and (wait := self._wait(caller)) > 0:
                raise OverloadedError(
                    f"too many calls: {self._calls} in {self._seconds:g} seconds are allowed", retry_after=wait
                )
            return endpoint(call)

        return limited

    def _wait(self, caller: str) -> float:
        """How long `caller` has to wait; 0 where the call may be made, and is counted."""
        now = time.monotonic()
        with self._lock:
            free_at = max(now, self._free_at.get(caller, now)) + self._each
            wait = free_at - now - self._seconds
            # A thousandth of a call: what adding up many times may have added.
            if wait > self._each / 1000:
                return wait
            self._free_at[caller] = free_at
            self._free_at.move_to_end(caller)
            if len(self._free_at) > _CALLERS:
                self._free_at.popitem(last=False)
        return 0.0


def _caller(call: Call) -> str | None:
    """Who calls; None where nobody outside does."""
    if call.context.principal is not None:
        return f"principal {call.context.principal.id}"
    return f"address {call.context.peer}" if call.context.peer else None
