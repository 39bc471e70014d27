"""Storing streamed text behind the runs that emit it.

A store that writes to disk needs longer for an append than a handler for its next piece of text. Runs therefore only queue
such pieces; one thread appends what a run has queued, in one step, and what is emitted meanwhile waits for the next step.
Nothing is published before it is stored.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.lifecycle import LogEvent
from a2a_sync.types import TaskArtifactUpdateEvent, TextPart

#: Pieces that one run may have queued; with the longest texts these are 1 MiB.
MAX_QUEUED = 64
_MAX_CHARACTERS = 16 * 1024
#: The thread ends after so many seconds without work.
_IDLE_SECONDS = 30.0


def is_text_chunk(events: Sequence[LogEvent]) -> bool:
    """`events` are one piece of text of an artifact, short and without metadata."""
    if len(events) != 1 or not isinstance(event := events[0], TaskArtifactUpdateEvent):
        return False
    artifact = event.artifact
    return (
        len(artifact.parts) == 1
        and isinstance(part := artifact.parts[0], TextPart)
        and isinstance(part.text, str)
        and len(part.text) <= _MAX_CHARACTERS
        and not (part.metadata or artifact.metadata or event.metadata)
    )


class ChunkWriter:
    """Calls `flush` functions of runs, one after the other, on the thread ``a2a-chunks``. A forked child starts without any."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread and the runs are the parent's."""
        self._lock = threading.Lock()
        self._due: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def schedule(self, flush: Callable[[], None]) -> bool:
        """Call `flush` soon, which must not raise; False: the system has no thread for it. Any thread may call this."""
        with self._lock:
            if self._thread is None:
                self._thread = start_thread("a2a-chunks", self._serve)
                if self._thread is None:
                    return False
            self._due.put(flush)
        return True

    def _serve(self) -> None:
        while True:
            try:
                flush = self._due.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                flush = None
            if flush is not None:
                flush()
                # Do not keep the last run alive.
                del flush
                continue
            with self._lock:
                if self._due.empty():
                    self._thread = None
                    return

    def close(self) -> None:
        """End the thread when it has called what was scheduled. Idempotent."""
        self._due.put(None)
