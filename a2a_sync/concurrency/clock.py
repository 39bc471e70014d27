"""The clock for the times of tasks, their age, the time limits of runs, and the sleep of agents.

Tests replace it by `a2a_sync.testing.FakeClock`. Heartbeats, backoff and deadlines of calls do not use it: they read the
clock of the machine.
"""

from __future__ import annotations

import threading
import time


def time_ns() -> int:
    """The system time, in nanoseconds since 1970. It may be stepped."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds on a clock that is never stepped."""
    return time.monotonic()


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for `event`, for `seconds` at most: between two rounds of a background thread."""
    return event.wait(seconds)


def sleep(event: threading.Event, seconds: float) -> bool:
    """The same in the code of an agent."""
    return event.wait(seconds)
