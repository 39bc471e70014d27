"""A clock that advances only when a test advances it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from a2a_sync.concurrency import clock

#: The longest wait of a test, in seconds of the real clock.
_TIMEOUT = 30.0
#: Interval in seconds at which waiting threads check this clock.
_POLL_INTERVAL = 0.002
#: Shorter waits, in seconds, of threads other than agents use the real clock.
_SHORT_WAIT = 1.0
#: The names of the periodic threads of an app that use this clock.
_PERIODIC_THREADS = ("a2a-sweep", "a2a-watchdog")
_REPLACED_FUNCTIONS = ("time_ns", "monotonic", "wait", "sleep")


class _Wait:
    """A wait for this clock, and its thread."""

    def __init__(self, due: timedelta, *, agent: bool) -> None:
        self.due = due
        self.agent = agent
        self.thread = threading.current_thread()
        self.over = False


class FakeClock:
    """Replaces the clock of the library in the whole process, within its ``with`` block.

    It is used for the times of tasks, their age (for example `Limits.terminal_task_ttl`), the limits of runs
    (`Limits.run_timeout`, `Limits.run_idle_timeout`) and ``context.sleep``, but not for heartbeats, backoff and
    timeouts of calls. Create it before the app. `now` is its first time; by default the real time. Any thread may use
    it, one at a time::

        with FakeClock() as clock, client_of(agent) as client:
            task = client.send("wait an hour", return_immediately=True)
            clock.await_sleeper()
            clock.advance(3600)
            assert client.wait(task.id, timeout=10).text == "done"

    Raises:
        ValueError: `now` has no time zone.
        RuntimeError: (``with``) another one is active.
    """

    def __init__(self, now: datetime | None = None) -> None:
        if now is not None and now.tzinfo is None:
            raise ValueError("now: a time zone is needed")
        self._now = (now or datetime.now(UTC)).astimezone(UTC)
        #: Whole seconds, so that what a test adds to it is exact.
        self._passed = timedelta(seconds=int(time.monotonic()))
        self._lock = threading.Lock()
        self._waiting: list[_Wait] = []
        self._inactive = True

    # -- for tests --

    @property
    def now(self) -> datetime:
        """The time of day, in UTC. Setting it, like setting the clock of the machine, ends no wait."""
        return self._now

    @now.setter
    def now(self, value: datetime) -> None:
        if value.tzinfo is None:
            raise ValueError("now: a time zone is needed")
        self._now = value.astimezone(UTC)

    def advance(self, by: float | timedelta) -> None:
        """Advance the clock, by seconds or a timedelta. Returns when all waits that are due have ended.

        Periodic work of the library that is due (removing old tasks, ending runs past their limit) is then done, too.

        Raises:
            ValueError: `by` is negative.
            AssertionError: this takes more than 30 seconds.
        """
        passing = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if passing < timedelta(0):
            raise ValueError("time does not go back; set `now`")
        self._wait_until(self._is_settled, "the app's threads wait")
        with self._lock:
            self._now += passing
            self._passed += passing
            woken = [waiting for waiting in self._waiting if waiting.due <= self._passed]
        self._wait_until(lambda: all(self._has_ended(waiting) for waiting in woken), "the woken threads continue")

    def await_sleeper(self, count: int = 1) -> None:
        """Wait until at least `count` agents are in ``context.sleep``.

        Raises:
            AssertionError: this takes more than 30 seconds.
        """
        self._wait_until(lambda: len(self._sleepers()) >= count, f"{count} agents sleep")

    # -- in place of the clock --

    def time_ns(self) -> int:
        """See `a2a_sync.concurrency.clock`."""
        return (self._now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000

    def monotonic(self) -> float:
        """See `a2a_sync.concurrency.clock`.

        Rounded down to a multiple of 2**-20, because differences of those are exact.

        Otherwise a run that sleeps for as long as its time limit would sometimes exceed the limit.
        """
        return (self._passed // timedelta(microseconds=1) * 2**20 // 10**6) / 2**20

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """See `a2a_sync.concurrency.clock`."""
        return self._wait(event, seconds, agent=False)

    def sleep(self, event: threading.Event, seconds: float) -> bool:
        """See `a2a_sync.concurrency.clock`."""
        return self._wait(event, seconds, agent=True)

    def _wait(self, event: threading.Event, seconds: float, *, agent: bool) -> bool:
        with self._lock:
            waiting = _Wait(self._passed + timedelta(seconds=seconds), agent=agent)
            self._waiting.append(waiting)
        try:
            if seconds < _SHORT_WAIT and not agent:
                return event.wait(seconds)
            while not (found := event.wait(_POLL_INTERVAL)) and waiting.due > self._passed and not self._inactive:
                pass
            return found
        finally:
            with self._lock:
                self._waiting.remove(waiting)
                waiting.over = True

    def _sleepers(self) -> list[_Wait]:
        return [waiting for waiting in list(self._waiting) if waiting.agent]

    def _is_settled(self) -> bool:
        """Whether all periodic threads of the app wait for this clock; others would miss the advance."""
        waiting = {waiting.thread for waiting in list(self._waiting)}
        own = {thread for thread in threading.enumerate() if thread.name in _PERIODIC_THREADS} - self._threads_before
        return own <= waiting

    def _has_ended(self, waiting: _Wait) -> bool:
        """Whether an agent has woken, or a periodic thread has done its work and waits again."""
        if waiting.agent or not waiting.over:
            return waiting.over
        return not waiting.thread.is_alive() or any(again.thread is waiting.thread for again in list(self._waiting))

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        until, pause = time.monotonic() + _TIMEOUT, threading.Event()
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"{what}: not within {_TIMEOUT:g} seconds")
            pause.wait(_POLL_INTERVAL)

    def __enter__(self) -> FakeClock:
        if any(isinstance(getattr(getattr(clock, name), "__self__", None), FakeClock) for name in _REPLACED_FUNCTIONS):
            raise RuntimeError("there is a fake clock already")
        self._real = {name: getattr(clock, name) for name in _REPLACED_FUNCTIONS}
        self._inactive = False
        # Threads that already wait for the real clock.
        self._threads_before = set(threading.enumerate())
        for name in _REPLACED_FUNCTIONS:
            setattr(clock, name, getattr(self, name))
        return self

    def __exit__(self, *details: object) -> None:
        for name, function in self._real.items():
            setattr(clock, name, function)
        self._inactive = True
