"""A pytest option that makes threads interleave in unusual orders: ``pytest --disorder SEED``.

CPython switches threads every 5 ms, so a race that follows the event a test waits for is nearly always over when the test
looks, except on a loaded machine. With this option threads switch every 10 µs, and random delays surround the calls that
synchronise the library's threads with a test: stores, the event hub, listeners, log records and `threading.Event.set`. A
test that passes with it waits for what it asserts.

Delays are derived from `SEED` and the test's id; thread switches of the interpreter are not, so a failure may take a few
runs to reproduce. Servers in other processes are not delayed: load the machine for those.
"""

from __future__ import annotations

import functools
import inspect
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

#: The probability of a delay per call, the longest delay, and the most delay per test, in seconds.
CHANCE = 0.25
LONGEST = 0.02
BUDGET = 3.0
SWITCH_INTERVAL = 1e-5

_sleep = time.sleep


class Disorder:
    """The plugin; registered if the option is given."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._left = 0.0
        self._ahead = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._random = random.Random(f"{self._seed} {item.nodeid}")
        self._left = BUDGET
        #: In half of the tests the main thread is never delayed.
        self._ahead = self._random.random() < 0.5
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL)
        try:
            return (yield)
        finally:
            self._left = 0.0
            sys.setswitchinterval(before)

    def pause(self) -> None:
        """Delay this thread at random while a test runs."""
        if self._ahead and threading.get_ident() == threading.main_thread().ident:
            return
        if self._left > 0 and self._random.random() < CHANCE:
            seconds = self._random.random() * LONGEST
            self._left -= seconds
            _sleep(seconds)

    def delay(self, owner: type, *names: str) -> None:
        """Add delays before and after these methods of a class; without names, all public ones."""
        for name in names or [name for name, value in vars(owner).items() if _is_public_method(name, value)]:
            setattr(owner, name, self._delayed(getattr(owner, name)))

    def _delayed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def delayed(*arguments: Any, **options: Any) -> Any:
            self.pause()
            try:
                return method(*arguments, **options)
            finally:
                self.pause()

        return delayed


def _is_public_method(name: str, value: object) -> bool:
    return not name.startswith("_") and inspect.isfunction(value)


def _delay_everything(disorder: Disorder) -> None:
    from a2a_sync.concurrency.observers import Listeners
    from a2a_sync.concurrency.pool import Slot
    from a2a_sync.engine.hub import EventHub
    from a2a_sync.stores.memory import MemoryStore
    from a2a_sync.stores.memory.webhooks import MemoryWebhooks
    from a2a_sync.stores.sqlite import SQLiteStore
    from a2a_sync.stores.sqlite.webhooks import SQLiteWebhooks

    for owner in (MemoryStore, MemoryWebhooks, SQLiteStore, SQLiteWebhooks, EventHub, Listeners, Slot):
        disorder.delay(owner)
    disorder.delay(logging.Logger, "handle")
    disorder.delay(threading.Event, "set")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--disorder", metavar="SEED", type=int, help="add random delays and switch threads often")


def pytest_configure(config: pytest.Config) -> None:
    if (seed := config.getoption("--disorder")) is not None:
        disorder = Disorder(seed)
        _delay_everything(disorder)
        config.pluginmanager.register(disorder, "disorder")
