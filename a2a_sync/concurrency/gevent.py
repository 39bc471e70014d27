"""Real threads in a process whose standard library gevent has patched, and calls from them back to gevent's hub.

Under gevent all greenlets share one thread: code that blocks it without gevent's knowledge (a calculation, an event loop, a
C library) blocks all of them. Such code gets a real thread here. Locks and queues of the rest of the library are made for
greenlets, so what code on a real thread asks of it is called by a greenlet of the hub that the code came from, while the real
thread waits. Without gevent calls are plain calls.

Real threads get no hub of their own from here: locks of the standard library belong to the hub of the thread that acquires them
first, and a hub that does not run wakes no greenlet that waits for them.
"""

from __future__ import annotations

import contextvars
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from a2a_sync.concurrency.fork import renew_per_process

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Makes a call, on this thread or on another one while this one waits.
Caller = Callable[[Callable[[], Any]], Any]
#: Starts something, and passes on what wakes the thread that waits for it.
_Begin = Callable[[Callable[[], None]], None]

#: Real threads without work end after so many seconds. There may be many more of them than any pool of runs has threads.
_IDLE_SECONDS = 30
#: Not 0: of greenlets that pause for 0 seconds gevent runs fifty before timers and sockets, so a pause after 0.1 seconds each would
#: delay all others by five.
_TURN_SECONDS = 1e-6
_MAX_THREADS = 10_000

#: On a real thread: the hub that its code came from.
_origin_hub: contextvars.ContextVar[Any] = contextvars.ContextVar("a2a_sync_origin_hub", default=None)


def patched() -> bool:
    """Threads of the standard library are greenlets in this process."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def original(module: str, name: str) -> Any:
    """This name of the standard library as it is without gevent's patches."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(import_module(module), name) if monkey is None else monkey.get_original(module, name)


def let_greenlets_run() -> None:
    """Let every greenlet run that can; without gevent, nothing."""
    if patched():
        time.sleep(_TURN_SECONDS)


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
    gevent_hub_caller()(lambda: spawn_native(work))


def spawn_native(work: Callable[[], object]) -> None:
    """`start_native` for a thread that may spawn greenlets itself: that of a hub, or of an event loop."""
    _pools.of_this_thread().spawn(work)


def use_native_threads(module: Any) -> None:
    """Let a module that hands blocking calls to a thread by a queue do so with real ones: its `Thread` and `SimpleQueue`.

    As greenlets they would block all of their thread. A call that waits for the lock of a database keeps another one from releasing it.
    """
    module.Thread, module.SimpleQueue = _RealThread, original("queue", "SimpleQueue")


class _RealThread:
    """A daemon thread, with as much of `threading.Thread` as modules for `use_native_threads` need."""

    daemon = True

    def __init__(self, *, target: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        self._call = partial(target, *args)
        self._alive = False

    def is_alive(self) -> bool:
        return self._alive

    def start(self) -> None:
        self._alive = True
        original("_thread", "start_new_thread")(self._work, ())

    def _work(self) -> None:
        try:
            self._call()
        finally:
            self._alive = False


def native_context() -> contextvars.Context:
    """A copy of the context variables for code that runs on another thread, from which `gevent_hub_caller` leads back here."""
    variables = contextvars.copy_context()
    if patched():
        variables.run(_origin_hub.set, _origin_hub.get() or _hub())
    return variables


class NativeThread:
    """A real thread for several calls, one after the other; from a pool. Not for a process that gevent has not patched."""

    def __init__(self) -> None:
        self._calls: Any = original("queue", "SimpleQueue")()
        start_native(self._serve)

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` returns or raises."""
        outcome = Outcome(work)
        variables = native_context()
        _wait_for_wake(_own_hub(), lambda wake: self._calls.put((variables, outcome, wake)))
        return outcome.get()

    def _serve(self) -> None:
        while (request := self._calls.get()) is not None:
            variables, outcome, wake = request
            variables.run(_perform, outcome, wake)

    def end(self) -> None:
        """Return the thread to the pool, now or after its present call."""
        self._calls.put(None)


# -- calls on the hub ---------------------------------------------------------------------------------------------------


def gevent_hub_caller() -> Caller:
    """A function that makes calls on the thread of this hub, whatever thread the function itself is called on."""
    # Every run asks, and most processes do not have gevent.
    if "gevent.monkey" not in sys.modules or not patched():
        return _call_here
    hub = _origin_hub.get() or _hub()
    return lambda work: _call_on_hub(hub, work)


def run_on_gevent_hub(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, always called on the hub: code on a real thread that calls it waits for that."""

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        hub = _origin_hub.get()
        if hub is None:
            return function(*args, **kwargs)
        result: _T = _call_on_hub(hub, lambda: function(*args, **kwargs))
        return result

    return called


def _call_here(work: Callable[[], Any]) -> Any:
    return work()


def _call_on_hub(hub: Any, work: Callable[[], Any]) -> Any:
    own = _existing_hub()
    if own is hub:
        return work()
    outcome = Outcome(work)
    variables = contextvars.copy_context()

    def begin(wake: Callable[[], None]) -> None:
        hub.loop.run_callback_threadsafe(_spawn, variables.run, _perform, outcome, wake)

    _wait_for_wake(own, begin)
    return outcome.get()


def _perform(outcome: Outcome, wake: Callable[[], None]) -> None:
    outcome.fetch()
    with suppress(Exception):
        # The waiting greenlet may have been killed, and its hub too.
        wake()


def _spawn(*call: Any) -> None:
    import_module("gevent").spawn(*call)


def _hub() -> Any:
    """The hub of this thread, created if there is none."""
    return import_module("gevent").get_hub()


def _existing_hub() -> Any:
    """The hub of this thread; None if it has none."""
    return import_module("gevent._hub_local").get_hub_if_exists()


def _own_hub() -> Any:
    """The hub of this thread, created if there is none; None on a real thread that has none."""
    return _existing_hub() if _origin_hub.get() is not None else _hub()


def wait_for_wake(begin: _Begin, check: Callable[[], float], interval: float) -> None:
    """Call ``begin(wake)`` and block until ``wake()`` is called, on any thread; greenlets of this thread go on.

    `check` is called here after `interval` seconds without that, and again after as many seconds as it returns.
    """
    _wait_for_wake(_own_hub() if patched() else None, begin, check, interval)


def _wait_for_wake(hub: Any, begin: _Begin, check: Callable[[], float] = lambda: -1.0, interval: float = -1.0) -> None:
    """`wait_for_wake` on a thread with this hub, whose other greenlets go on; None: with no hub. -1: without checks."""
    if hub is not None:
        _switch_until_wake(hub, begin, check, interval)
        return
    woken = original("_thread", "allocate_lock")()
    woken.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # called a second time
            woken.release()

    begin(wake)
    while not woken.acquire(timeout=interval):
        interval = check()


def _switch_until_wake(hub: Any, begin: _Begin, check: Callable[[], float], interval: float) -> None:
    gevent = import_module("gevent")
    waiter = import_module("gevent.hub").Waiter(hub)
    watcher = hub.loop.async_()
    watcher.start(waiter.switch, None)
    timed_out = object()
    try:
        begin(watcher.send)
        while (
            gevent.with_timeout(interval if interval >= 0 else None, waiter.get, timeout_value=timed_out) is timed_out
        ):
            interval = check()
    finally:
        watcher.stop()
        watcher.close()


class Outcome:
    """The result of a call on another thread, or its exception."""

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
        """The result, or the exception, raised."""
        if self._error is not None:
            raise self._error
        return self._value


class _Pools:
    """A pool of real threads for each hub; there is hardly ever more than one."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: it has none of the threads."""
        self._by_hub: dict[Any, Any] = {}

    def of_this_thread(self) -> Any:
        hub = _hub()
        pool = self._by_hub.get(hub)
        if pool is None:
            make = import_module("gevent.threadpool").ThreadPool
            pool = self._by_hub[hub] = make(_MAX_THREADS, hub, _IDLE_SECONDS)
        return pool


_pools = _Pools()
