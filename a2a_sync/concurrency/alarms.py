"""Calls at points in time, for what has to end although a thread waits for it.

The timeout of a socket restarts with every byte, so a peer that sends slowly can block a reader without end. An `AlarmClock`
ends the read on another thread: of a response in the client, of the body of a request in the server.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Final

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Seconds after which the thread of an `AlarmClock` ends if there is no alarm.
_IDLE_SECONDS = 10.0


class Alarm:
    """A function that an `AlarmClock` will call. ``fired``: it was called."""

    __slots__ = ("act", "fired")

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act
        self.fired: bool = False


class AlarmClock:
    """Calls functions at points in time, on one daemon thread, which runs while there are alarms.

    The functions must not block: they close or shut down something that another thread waits for. Alarms may be set and
    cancelled on any thread. A forked child has no alarms. `name` is that of the thread.
    """

    def __init__(self, name: str = "a2a-alarms") -> None:
        self._name = name
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: start without alarms."""
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._cancelled = 0
        self._running = False
        self._closed = False

    def set(self, when: float, act: Callable[[], None]) -> Alarm:
        """Call `act` at `when` (monotonic seconds), or at once if that has passed."""
        alarm = Alarm(act)
        with self._changed:
            heapq.heappush(self._alarms, (when, next(self._order), alarm))
            start = not self._running
            self._running, self._closed = True, False
            if self._alarms[0][2] is alarm and not start:
                self._changed.notify()
        if start:
            self._start_thread(alarm)
        return alarm

    def _start_thread(self, alarm: Alarm) -> None:
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            # The caller fails, because nothing would end it; the next alarm starts a thread or fails too.
            self._running, alarm.act = False, None
            raise

    def cancel(self, alarm: Alarm) -> None:
        """Do not call the function; it may be running, or have run."""
        alarm.act = None
        with self._changed:
            self._cancelled += 1
            if self._cancelled > 64 and self._cancelled > len(self._alarms) // 2:
                # Most alarms are cancelled long before their time, and must not accumulate until then.
                self._drop_cancelled()

    def discard(self, alarm: Alarm) -> None:
        """`cancel` an alarm, and end the thread at once where it was the last one."""
        alarm.act = None
        with self._changed:
            self._drop_cancelled()
            if not self._alarms:
                self._closed = self._running
                self._changed.notify()

    def _drop_cancelled(self) -> None:
        self._alarms = [entry for entry in self._alarms if entry[2].act is not None]
        heapq.heapify(self._alarms)
        self._cancelled = 0

    def close(self) -> None:
        """Discard all alarms and end the thread. The clock can be used again."""
        with self._changed:
            self._alarms.clear()
            self._closed = self._running
            self._changed.notify()

    def _run(self) -> None:
        while (alarm := self._next()) is not None:
            act, alarm.act = alarm.act, None
            if act is None:
                continue
            alarm.fired = True
            try:
                act()
            except Exception:
                logger.exception("an alarm failed")

    def _next(self) -> Alarm | None:
        """Wait for the next alarm; None if there has been none for a while."""
        with self._changed:
            while not self._closed:
                left = self._alarms[0][0] - time.monotonic() if self._alarms else _IDLE_SECONDS
                if left <= 0:
                    return heapq.heappop(self._alarms)[2]
                if not self._changed.wait(min(left, 3600.0)) and not self._alarms:
                    break
            self._running = self._closed = False
            return None
