"""How long and how often a client tries again: the rules, and the patience that is left. No network in here."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, fields
from typing import ClassVar

from a2a_sync.errors import HTTPStatusError, MalformedResponseError, OverloadedError, TokenError, TransportError

#: HTTP statuses after which the same request may well be answered.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a client goes on after the network, or a server that restarts, has cut it off. Times are in seconds.

    Parameters:
        budget: how long one interruption may last; then the error is raised. 0 switches retrying off (`Retry.off`).
        first: the pause before the first attempt. Each further pause is twice as long, give or take a half.
        longest: no pause is longer, unless the server asks for it with Retry-After.
    """

    max_elapsed: float = 60.0
    initial_backoff: float = 0.2
    max_backoff: float = 5.0

    #: Every failure is raised at once.
    off: ClassVar[Retry]

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (value > 0 or (item.name == "max_elapsed" and value == 0)):
                raise ValueError(f"Retry.{item.name} must be positive, not {value!r}")

    def __bool__(self) -> bool:
        return self.max_elapsed > 0


Retry.off = Retry(max_elapsed=0.0)


class Patience:
    """What one caller has left of a `Retry` during one interruption. Used by one thread."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.renew()

    def renew(self) -> None:
        """All is well (again): the next failure begins an interruption of its own."""
        self._end: float | None = None
        self._pause = self.retry.initial_backoff

    @property
    def left(self) -> float:
        """Seconds until it is used up."""
        return self.retry.max_elapsed if self._end is None else max(0.0, self._end - time.monotonic())

    def next(self, error: Exception) -> float | None:
        """How long to pause after `error` before the next attempt, in seconds; None when the budget is used up."""
        if self._end is None:
            self._end = time.monotonic() + self.retry.max_elapsed
        left, asked = self.left, retry_after(error)
        if left <= 0 or asked > left:
            return None
        # With jitter, so that the clients of a server that restarts do not all come back at the same moment.
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(self._pause * 2, self.retry.max_backoff)
        return min(max(pause, asked + random.uniform(0, self.retry.initial_backoff) if asked else 0.0), left)


def retry_after(error: Exception) -> float:
    """Seconds after which the server wants to be asked again; 0 where it does not say."""
    return getattr(error, "retry_after", None) or 0.0


def is_passing(error: Exception) -> bool:
    """Worth another try: the network broke, or the server asks for patience."""
    if isinstance(error, HTTPStatusError):
        return error.status_code in _PASSING
    if isinstance(error, TransportError):
        return not isinstance(error, (MalformedResponseError, TokenError))
    return isinstance(error, OverloadedError)
