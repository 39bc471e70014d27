"""Listeners for named events, called one after the other on a thread of their own.

The notifying thread does not wait for them: events go into a queue of bounded length, and exceptions of listeners are logged.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])

#: Events that may wait for their listeners. Further ones are dropped, which is logged.
_MAX_EVENTS = 10_000
#: The thread ends after so many seconds without an event.
_IDLE_SECONDS = 10.0


class Listeners:
    """Listeners by the name of their event; `aliases` maps other spellings to names.

    Events are delivered in the order of `notify`, to listeners in the order of `on`. A forked child keeps the listeners.
    """

    def __init__(self, aliases: Mapping[str, str] | None = None) -> None:
        self._aliases = dict(aliases or {})
        self._by_name: dict[str, tuple[Callable[..., Any], ...]] = {}
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread and the queue are the parent's."""
        self._lock = threading.Lock()
        self._events: queue.Queue[tuple[str, Any] | threading.Event] = queue.Queue(_MAX_EVENTS)
        self._thread: threading.Thread | None = None

    def on(self, name: str, listener: _Listener) -> _Listener:
        """Call ``listener(event)`` for each event `name` from now on."""
        name = self._aliases.get(name, name)
        with self._lock:
            self._by_name[name] = (*self._by_name.get(name, ()), listener)
        return listener

    def off(self, name: str, listener: Callable[..., Any]) -> bool:
        """Undo `on`; False where the listener was not registered for `name`."""
        name = self._aliases.get(name, name)
        with self._lock:
            known = self._by_name.get(name, ())
            self._by_name[name] = tuple(one for one in known if one != listener)
            return len(self._by_name[name]) < len(known)

    def has_listeners(self, name: str) -> bool:
        """The event has a listener."""
        return bool(self._by_name.get(name))

    def notify(self, name: str, event: Any) -> None:
        """Have the listeners for `name` called with `event`, soon. Never blocks, never raises."""
        if self.has_listeners(name):
            self._put((name, event))

    def _put(self, item: tuple[str, Any] | threading.Event) -> bool:
        with self._lock:
            try:
                self._events.put_nowait(item)
            except queue.Full:
                logger.error("%d events wait for their listeners; dropped one more", _MAX_EVENTS)
                return False
            if self._thread is None:
                self._thread = start_thread("a2a-listeners", self._serve)
            return True

    def flush(self, timeout: float) -> bool:
        """Wait until all events so far were delivered; False after `timeout` seconds, or when called by a listener."""
        with self._lock:
            # The lock is held until a new thread is stored here.
            thread = self._thread
        if thread is threading.current_thread():
            return False
        if thread is None and self._events.empty():
            return True
        delivered = threading.Event()
        return self._put(delivered) and delivered.wait(timeout)

    def _serve(self) -> None:
        while True:
            try:
                item = self._events.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._events.empty():
                        self._thread = None
                        return
                continue
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._call(*item)

    def _call(self, name: str, event: Any) -> None:
        for listener in self._by_name.get(name, ()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener for %s failed", name)

    def close(self, timeout: float = 5.0) -> None:
        """Give pending events `timeout` seconds to be delivered. Idempotent; later events are delivered too."""
        self.flush(timeout)
