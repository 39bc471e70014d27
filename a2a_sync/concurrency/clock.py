"""What time it is where days and hours count: for the times of tasks, their age, the limits of runs, the sleep of agents.

One place, so that tests can put a clock of their own here (`a2a_sync.testing.FakeClock`). What only keeps a connection or
a thread in order (heartbeats, pauses between attempts, deadlines of a call) reads the machine's clock by itself.
"""

from __future__ import annotations

import threading
import time


def time_ns() -> int:
    """The time of day, in nanoseconds since 1970. Somebody may set it."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds since some moment. Nobody sets them."""
    return time.monotonic()


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for `event`, for `seconds` at most: between two rounds of a thread that looks after something."""
    return event.wait(seconds)


def sleep(event: threading.Event, seconds: float) -> bool:
    """The same for the code of an agent."""
    return event.wait(seconds)
