"""The one lifecycle: components are started together, drained together, and closed in reverse order.

A store, the runs, the outbox of push notifications, an app and a host of several agents are components. A whole is made of
parts, so an app closes its engine as the engine closes its threads.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from a2a_sync.concurrency.closing import Closes


class Component(Closes):
    """A part of what serves tasks. Methods are idempotent and may be called from any thread; a subclass overrides what it needs."""

    @property
    def running(self) -> int:
        """Runs of this process whose code has not returned."""
        return 0

    @property
    def draining(self) -> bool:
        """No new work is accepted, except what running code asks for."""
        return False

    def start(self) -> bool:
        """Start background work in this process, if it has not started; cheap then. Not before a fork.

        False: the system has no thread for some of it, so `start` must be called again.
        """
        return True

    def drain(self) -> None:
        """Accept no new work, except what running code asks for: the first step of `close`."""

    def close(self, timeout: float = 10.0) -> None:
        """`drain`, wait at most `timeout` seconds for running code, then end everything."""


class Components(Component):
    """Components as one: `start` goes through them in the order of `register`, `drain` and `close` in the reverse order.

    After an error of one part, `drain` and `close` go on with the others, and raise it at the end.
    """

    def __init__(self, *parts: Component) -> None:
        self._parts = list(parts)
        #: The process that has started every part: a forked child starts them again.
        self._started_in: int | None = None

    def register(self, part: Component, *, before: Component | None = None) -> None:
        """Make `part` the last one to start and the first one to close; or start it before another one, and close it after."""
        self._parts.insert(len(self._parts) if before is None else self._parts.index(before), part)
        self._started_in = None

    def deregister(self, part: Component) -> None:
        """Leave `part` to itself from now on."""
        self._parts.remove(part)

    @property
    def running(self) -> int:
        return sum(part.running for part in list(self._parts))

    @property
    def draining(self) -> bool:
        return any(part.draining for part in list(self._parts))

    def start(self) -> bool:
        process = os.getpid()
        if self._started_in != process:
            parts = list(self._parts)
            started = [part.start() for part in parts]
            if not all(started):
                return False
            if parts == self._parts:
                self._started_in = process
        return True

    def drain(self) -> None:
        with ExitStack() as steps:
            for part in list(self._parts):
                steps.callback(part.drain)

    def close(self, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout

        def end(part: Component) -> None:
            part.close(max(0.0, deadline - time.monotonic()))

        with ExitStack() as steps:
            for part in list(self._parts):
                steps.callback(end, part)
            steps.callback(self.drain)
