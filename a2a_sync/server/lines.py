"""The order of sends that wait for a busy task of this process: only the first of each task tries to start its run.

If all of them tried whenever a run ends, a caller with hundreds of them would occupy the store with attempts that fail.
"""

from __future__ import annotations

import threading
from collections import deque

from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.engine.hub import Signal


class Lines:
    """One line for each task that sends wait for. Thread-safe; in a forked child there is none."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the calls are the parent's."""
        self._lock = threading.Lock()
        self._places: dict[str, deque[Place]] = {}

    def join(self, task_id: str) -> Place:
        """The last place in the line of a task; `Place.close` leaves it."""
        place = Place(self, task_id)
        with self._lock:
            self._places.setdefault(task_id, deque()).append(place)
        return place

    def is_first(self, place: Place) -> bool:
        """Nothing is before `place`."""
        return self._places[place.task_id][0] is place

    def leave(self, place: Place) -> None:
        """Remove a place, and wake the one that is first now."""
        with self._lock:
            line = self._places[place.task_id]
            line.remove(place)
            first = line[0] if line else None
            if first is None:
                del self._places[place.task_id]
        if first is not None:
            first.hint()


class Place(Signal, Closes):
    """The place of one send, which is woken when it is first."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Lines, task_id: str) -> None:
        super().__init__(task_id)
        self._lines = lines

    @property
    def first(self) -> bool:
        """No other send of this process is before this one."""
        return self._lines.is_first(self)

    def close(self) -> None:
        """Leave the line; once."""
        self._lines.leave(self)
