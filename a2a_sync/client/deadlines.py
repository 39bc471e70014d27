"""Time limits of a client. This module knows neither HTTP nor the protocol."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Limits of a client, in seconds; None is no limit.

    Parameters:
        connect: until the name of the host is resolved and one of its addresses has accepted the connection, and for each step of
            sending a request.
        read: until the response begins, and then between two reads. Servers send a keepalive on idle streams (this library
            every 15 s), so a longer silence means that the server is gone.
        total: for a whole call.
    """

    connect: float | None = 5.0
    read: float | None = 75.0
    total: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"Timeout.{item.name} takes seconds, not {type(value).__name__}")
            if value is not None and not value > 0:
                raise ValueError(f"Timeout.{item.name} must be positive, not {value!r}")

    @classmethod
    def of(cls, value: Timeout | float | None) -> Timeout:
        """`value` itself; a number is the total limit, None means the defaults.

        Raises:
            TypeError: it is something else, such as the pair of seconds that requests takes.
            ValueError: it is not positive.
        """
        if isinstance(value, Timeout):
            return value
        check_seconds(value)
        return cls(total=value)


def check_seconds(timeout: object) -> None:
    """Raises `TypeError` if `timeout` is neither None nor a number, `ValueError` if it is negative."""
    if timeout is None:
        return
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout takes seconds, not {type(timeout).__name__}; Timeout(…) is an argument of Client")
    if timeout < 0:
        raise ValueError(f"timeout must be positive, not {timeout!r}")


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point in time (monotonic seconds) at which something must end; infinity is no limit."""

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """`seconds` from now; None: never."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds until then, at least 0; None without a limit."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """The deadline has passed."""
        return time.monotonic() >= self.at


#: No limit.
NEVER = Deadline()
