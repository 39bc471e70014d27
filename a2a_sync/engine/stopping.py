"""The signal that stops the code of a run: an event that threads can wait for, and callbacks, each called once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)


class StopSignal:
    """Set at most once. Thread-safe."""

    def __init__(self) -> None:
        self.event: threading.Event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the signal is set, on the thread that sets it; at once, where it is set already."""
        with self._lock:
            if not self.event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def set(self, extra: Mapping[str, str]) -> None:
        """Set the event and call the callbacks; an exception of one is logged with `extra`. Idempotent."""
        with self._lock:
            self.event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a cancel callback failed", extra=extra)

    def clear_callbacks(self) -> None:
        """Call none of the callbacks: the run has ended."""
        with self._lock:
            self._callbacks.clear()
