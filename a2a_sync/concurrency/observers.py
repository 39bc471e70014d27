"""Functions that want to hear of something, called one after the other on a thread of their own.

Whoever tells does not wait for them, and nothing they do can hurt it: what they raise is logged, and what one of them takes
its time for waits in a line of bounded length. What is told, and when, is known to others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])

#: What may wait for its listeners. Beyond that it is dropped, and the log says so.
_LINE = 10_000
#: After so many seconds without anything to tell the thread ends.
_IDLE = 10.0


class Listeners:
    """Listeners by the name of what they want to hear of; `same` are other spellings of names.

    Everything is told in the order of `tell`, to listeners in the order of `on`. A forked child keeps the listeners.
    """

    def __init__(self, same: Mapping[str, str] | None = None) -> None:
        self._same = dict(same or {})
        self._by_name: dict[str, tuple[Callable[..., Any], ...]] = {}
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: the thread and the line are the parent's."""
        self._lock = threading.Lock()
        self._line: queue.Queue[tuple[str, Any] | threading.Event] = queue.Queue(_LINE)
        self._thread: threading.Thread | None = None

    def on(self, name: str, listener: _Listener) -> _Listener:
        """Call ``listener(what)`` whenever `name` is told from now on."""
        name = self._same.get(name, name)
        with self._lock:
            self._by_name[name] = (*self._by_name.get(name, ()), listener)
        return listener

    def off(self, name: str, listener: Callable[..., Any]) -> bool:
        """Call it no more; False where it was not called for `name`."""
        name = self._same.get(name, name)
        with self._lock:
            known = self._by_name.get(name, ())
            self._by_name[name] = tuple(one for one in known if one != listener)
            return len(self._by_name[name]) < len(known)

    def wanted(self, name: str) -> bool:
        """Somebody listens for it."""
        return bool(self._by_name.get(name))

    def tell(self, name: str, what: Any) -> None:
        """Have the listeners for `name` called with `what`, soon. Never blocks, never raises."""
        if self.wanted(name):
            self._put((name, what))

    def _put(self, item: tuple[str, Any] | threading.Event) -> bool:
        with self._lock:
            try:
                self._line.put_nowait(item)
            except queue.Full:
                logger.error("%d events wait for their listeners; dropped one more", _LINE)
                return False
            if self._thread is None:
                self._thread = start_thread("a2a-listeners", self._serve)
            return True

    def flush(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds until all that was told has been heard. A listener itself need not wait."""
        with self._lock:
            # The lock is held until a thread that has just begun is known here.
            thread = self._thread
        if thread is threading.current_thread():
            return False
        if thread is None and self._line.empty():
            return True
        heard = threading.Event()
        return self._put(heard) and heard.wait(timeout)

    def _serve(self) -> None:
        while True:
            try:
                item = self._line.get(timeout=_IDLE)
            except queue.Empty:
                with self._lock:
                    if self._line.empty():
                        self._thread = None
                        return
                continue
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._call(*item)

    def _call(self, name: str, what: Any) -> None:
        for listener in self._by_name.get(name, ()):
            try:
                listener(what)
            except Exception:
                logger.exception("a listener for %s failed", name)

    def close(self, timeout: float = 5.0) -> None:
        """Give what was told `timeout` seconds to be heard, and end the thread. Idempotent; more may be told later."""
        self.flush(timeout)
