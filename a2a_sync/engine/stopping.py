"""How the code of a run is told that it must stop: a flag that threads can wait for, and callbacks, each called once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)


class StopSignal:
    """Given at most once. Any thread may give it, and may ask to be called."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def on(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the signal is given, on the thread that gives it; now, if it was given before."""
        with self._lock:
            if not self.event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def give(self, extra: Mapping[str, str]) -> None:
        """Set the flag and call the callbacks; those that fail are logged with `extra`. Giving it twice is harmless."""
        with self._lock:
            self.event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a cancel callback failed", extra=extra)

    def forget(self) -> None:
        """Nobody is there any more who wants to be called."""
        with self._lock:
            self._callbacks.clear()
