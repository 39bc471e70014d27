"""Real threads in a process whose standard library gevent has patched, and the way back from them.

Under gevent all greenlets share one thread: what blocks it without gevent's knowledge (a calculation, an event loop, a
C library) holds up every other one. Such code is given a real thread here. The rest of the library is not made for two
kinds of threads at once, so its work is always done by greenlets: what code on a real thread asks of it is *taken home*,
to the hub that the code came from, and waited for there. Without gevent nothing of this exists, and calls are plain calls.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from a2a_sync.concurrency.fork import renew_in_child

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Calls something now, or elsewhere and waits for it.
Way = Callable[[Callable[[], Any]], Any]

#: Real threads without work leave after so many seconds. They are many more than any pool of runs has threads.
_IDLE_SECONDS = 30
_MOST_THREADS = 10_000

#: The hub that the code of a real thread came from.
_home: contextvars.ContextVar[Any] = contextvars.ContextVar("a2a_sync_home", default=None)


def patched() -> bool:
    """Threads are greenlets here."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def original(module: str, name: str) -> Any:
    """What the standard library has under this name where gevent has not patched it."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(import_module(module), name) if monkey is None else monkey.get_original(module, name)


def on_native_thread(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises, called on a real thread while this greenlet waits; without gevent, called here."""
    if not patched():
        return work()
    thread = NativeThread()
    try:
        result: _T = thread.call(work)
        return result
    finally:
        thread.end()


def start_native(work: Callable[[], object]) -> None:
    """Call `work` on a real thread, without waiting for it. Not for a process that gevent has not patched."""
    way_home()(lambda: spawn_native(work))


def spawn_native(work: Callable[[], object]) -> None:
    """`start_native` for a thread that may spawn greenlets itself: the home of others, or that of an event loop."""
    _pools.of_this_thread().spawn(work)


def native_context() -> contextvars.Context:
    """A copy of the context variables for code that runs on another thread, from which `way_home` leads back here."""
    variables = contextvars.copy_context()
    if patched():
        variables.run(_home.set, _home.get() or _hub())
    return variables


class NativeThread:
    """A real thread for several calls, one after the other; from a pool. Not for a process that gevent has not patched."""

    def __init__(self) -> None:
        self._works: Any = original("queue", "SimpleQueue")()
        start_native(self._serve)

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` returns or raises."""
        outcome = Outcome(work)
        variables = native_context()
        _cross(lambda wake: self._works.put((variables, outcome, wake)))
        return outcome.get()

    def _serve(self) -> None:
        while (asked := self._works.get()) is not None:
            variables, outcome, wake = asked
            variables.run(_do, outcome, wake)

    def end(self) -> None:
        """Give the thread back, now or after the call that it is in."""
        self._works.put(None)


# -- the way home -------------------------------------------------------------------------------------------------------


def way_home() -> Way:
    """A function that makes a call where this was called: on this thread, whatever thread the function is called on."""
    if not patched():
        return _at_once
    home = _home.get() or _hub()
    return lambda work: _take_home(home, work)


def at_home(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorator: code on a real thread that calls the function waits for it to be called at home."""

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        home = _home.get()
        if home is None:
            return function(*args, **kwargs)
        result: _T = _take_home(home, lambda: function(*args, **kwargs))
        return result

    return called


def _at_once(work: Callable[[], Any]) -> Any:
    return work()


def _take_home(home: Any, work: Callable[[], Any]) -> Any:
    if _hub() is home:
        return work()
    outcome = Outcome(work)
    variables = contextvars.copy_context()

    def begin(wake: Callable[[], None]) -> None:
        home.loop.run_callback_threadsafe(_spawn, variables.run, _do, outcome, wake)

    _cross(begin)
    return outcome.get()


def _do(outcome: Outcome, wake: Callable[[], None]) -> None:
    outcome.fetch()
    with suppress(Exception):
        # Whoever waited may have been ended, and its hub too.
        wake()


def _spawn(*call: Any) -> None:
    import_module("gevent").spawn(*call)


def _hub() -> Any:
    return import_module("gevent").get_hub()


def wait_for_wake(begin: Callable[[Callable[[], None]], None], check: Callable[[], float], interval: float) -> None:
    """Call ``begin(wake)`` and block until ``wake()`` is called, on any thread; greenlets of this thread go on.

    `check` is called here after `interval` seconds without that, and again after as many seconds as it returns.
    """
    if patched():
        _cross(begin, check, interval)
        return
    woken = threading.Lock()
    woken.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # called a second time
            woken.release()

    begin(wake)
    while not woken.acquire(timeout=interval):
        interval = check()


def _cross(
    begin: Callable[[Callable[[], None]], None], check: Callable[[], float] | None = None, interval: float | None = None
) -> None:
    """Wait until the function that `begin` is given is called, on any thread; other greenlets of this one go on."""
    gevent, hub = import_module("gevent"), _hub()
    waiter = import_module("gevent.hub").Waiter(hub)
    watcher = hub.loop.async_()
    watcher.start(waiter.switch, None)
    timed_out = object()
    try:
        begin(watcher.send)
        if check is None:
            waiter.get()
            return
        while gevent.with_timeout(interval, waiter.get, timeout_value=timed_out) is timed_out:
            interval = check()
    finally:
        watcher.stop()
        watcher.close()


class Outcome:
    """What a call on another thread came to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None

    def fetch(self) -> None:
        """Make the call."""
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error

    def get(self) -> Any:
        """What it returned or raised."""
        if self._error is not None:
            raise self._error
        return self._value


class _Pools:
    """A pool of real threads for each hub that is a home; hardly ever more than one."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all threads: a forked child has none."""
        self._by_hub: dict[Any, Any] = {}

    def of_this_thread(self) -> Any:
        hub = _hub()
        pool = self._by_hub.get(hub)
        if pool is None:
            make = import_module("gevent.threadpool").ThreadPool
            pool = self._by_hub[hub] = make(_MOST_THREADS, hub, _IDLE_SECONDS)
        return pool


_pools = _Pools()
