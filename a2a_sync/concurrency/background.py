"""Background threads: daemons with a name, started when needed, and again where the system had no thread for them.

A periodic job has a thread of its own (`Periodic`), so that a slow one delays no other. What may hang is read on another thread
than that of the caller (`BoundedRead`).
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from a2a_sync.concurrency import clock
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)


def start_thread(name: str, target: Callable[..., object], *arguments: object) -> threading.Thread | None:
    """Start a daemon thread that calls ``target(*arguments)``; None where the system has no thread, which is logged.

    The caller keeps the result under a lock and calls again where it is None. The call does not wait for `target`.
    """
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        logger.exception("no thread for %s; it is retried", name)
        return None
    return thread


class Periodic:
    """Calls `job` again and again on one thread, which does not keep the object of the job alive.

    Any thread may call the methods. A forked child has no thread until it calls `start`.

    Parameters:
        name: of the thread, and of the job in the log.
        job: does one round and returns the seconds until the next one; None ends the thread until `start` is called again.
            What it raises is logged, with its stack unless the round before raised the same, and the next round follows
            after `retry` seconds.
        retry: see `job`.
        aging: the seconds pass by `a2a_sync.concurrency.clock`, which tests can advance.
    """

    def __init__(self, name: str, job: Callable[[], float | None], *, retry: float, aging: bool = False) -> None:
        self._name = name
        self._job = job
        self._retry = retry
        self._aging = aging
        self._failure = ""
        self._stopped = False
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock = threading.Lock()
        #: Ends the pause between two rounds.
        self._signal = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted = False

    @property
    def stopped(self) -> bool:
        """No round begins any more."""
        return self._stopped

    def start(self, after: float = 0.0) -> bool:
        """Start the thread, if it does not run; the first round follows after `after` seconds. Does nothing after `stop`.

        False: the system has no thread, so `start` must be called again.
        """
        self._wanted = True
        if self._thread is None and not self._stopped:
            with self._lock:
                if self._thread is None:
                    self._thread = start_thread(
                        self._name, _repeat, weakref.ref(self), self._signal, self._aging, after
                    )
        return self._thread is not None or self._stopped

    def wake(self) -> bool:
        """Begin a round now, or when the present one ends, and start the thread if it does not run. See `start`."""
        self._signal.set()
        return self.start()

    def stop(self, timeout: float = 0.0) -> None:
        """End the thread after the round that it is in, and wait for that for at most `timeout` seconds. Idempotent."""
        self._stopped = True
        self._signal.set()
        thread = self._thread
        if timeout and thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def round(self) -> float | None:
        """One round, on the thread: the seconds until the next one; None: the thread ends."""
        self._wanted = False
        try:
            pause = self._job()
        except Exception as error:
            # A store that is away fails each round: the stack is logged once.
            before, self._failure = self._failure, repr(error)
            logger.error("%s failed; it is retried: %s", self._name, error, exc_info=self._failure != before)
            return self._retry
        self._failure = ""
        return 0.0 if pause is None and not self._may_end() else pause

    def _may_end(self) -> bool:
        with self._lock:
            # `start` sets the flag before it looks for a thread: it finds none, or the flag is seen here.
            thread, self._thread = self._thread, None
            if self._wanted:
                self._thread = thread
            return not self._wanted


def _repeat(periodic: weakref.ref[Periodic], signal: threading.Event, aging: bool, pause: float | None) -> None:
    while pause is not None:
        if clock.wait(signal, pause) if aging else signal.wait(pause):
            signal.clear()
        own = periodic()
        if own is None or own.stopped:
            return
        pause = own.round()
        del own


class BoundedRead:
    """Calls `read` at most once in `interval` seconds, on a thread of its own, and waits for it for at most `timeout` seconds.

    For pages and checks that many callers may ask for, and that must not wait for a store that hangs. Any thread may call `refresh`.
    A forked child reads again.
    """

    def __init__(self, name: str, read: Callable[[], object], *, interval: float, timeout: float) -> None:
        self._name = name
        self._read = read
        self._interval = interval
        self._timeout = timeout
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: a read of the parent does not return."""
        self._due = 0.0

    def refresh(self) -> bool:
        """Call `read` if that is due; False: it has not returned in time."""
        if time.monotonic() < self._due:
            return True
        # Until it returns, other callers do not wait for it.
        self._due = math.inf
        returned = threading.Event()
        if start_thread(self._name, self._call, returned) is None:
            self._call(returned)
        return returned.wait(self._timeout)

    def _call(self, returned: threading.Event) -> None:
        try:
            self._read()
        finally:
            self._due = time.monotonic() + self._interval
            returned.set()
