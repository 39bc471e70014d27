"""Queues of sends that wait for a busy task of this process: only the first of each queue tries to start its run.

If all of them tried whenever a run ends, a caller with hundreds of them would occupy the store with attempts that fail.
"""

from __future__ import annotations

import threading
from collections import deque

from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.engine.hub import Signal


class SendQueues:
    """One queue for each task that sends wait for. Thread-safe; in a forked child they are empty."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the calls are the parent's."""
        self._lock = threading.Lock()
        self._queues: dict[str, deque[QueuedSend]] = {}

    def add(self, task_id: str) -> QueuedSend:
        """A send at the end of the queue of a task; `QueuedSend.close` removes it."""
        send = QueuedSend(self, task_id)
        with self._lock:
            self._queues.setdefault(task_id, deque()).append(send)
        return send

    def is_first(self, send: QueuedSend) -> bool:
        """Nothing is before `send`, which has not been removed."""
        return self._queues[send.task_id][0] is send

    def remove(self, send: QueuedSend) -> None:
        """Remove a send, and wake the one that is first now."""
        with self._lock:
            waiting = self._queues[send.task_id]
            waiting.remove(send)
            first = waiting[0] if waiting else None
            if first is None:
                del self._queues[send.task_id]
        if first is not None:
            first.hint()


class QueuedSend(Signal, Closes):
    """A send in a queue, which is woken when it is first."""

    __slots__ = ("_queues",)

    def __init__(self, queues: SendQueues, task_id: str) -> None:
        super().__init__(task_id)
        self._queues = queues

    @property
    def first(self) -> bool:
        """No other send of this process is before this one."""
        return self._queues.is_first(self)

    def close(self) -> None:
        """Leave the queue; once."""
        self._queues.remove(self)
