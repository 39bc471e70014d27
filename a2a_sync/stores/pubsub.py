"""What the implementations of `PubSub` share that receive the messages of other processes on a thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Final

from a2a_sync.stores.base import TaskBatch
from a2a_sync.telemetry.logs import get_logger

#: All implementations of pub/sub log as part of the engine.
logger: Final = get_logger("a2a_sync.engine")

FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Receiver:
    """Passes messages to the callback of `PubSub.start`; those before it are discarded."""

    _on_message: Callable[[str, TaskBatch | None], None] | None = None
    _closed = False

    def _deliver(self, task_id: str, batch: TaskBatch | None = None) -> None:
        if self._on_message is None:
            return
        try:
            self._on_message(task_id, batch)
        except Exception:
            logger.exception("a message of another process could not be handled", extra={"task_id": task_id})


class ConnectedReceiver(Receiver):
    """A receiver over a connection, which is opened again whenever it is lost."""

    _on_gap: Callable[[], None] | None = None
    _stop: threading.Event
    #: See `PubSub.healthy`.
    healthy: bool

    def _begin_listening(self) -> None:
        self.healthy = True
        if self._on_gap is not None:
            self._on_gap()

    def _receive(
        self, until_lost: Callable[[], None], lost: type[Exception], describe: Callable[[Exception], str], way: str = ""
    ) -> None:
        """Call `until_lost`, which raises `lost` in the end, until the receiver is closed; a series of losses is logged once."""
        pause, reported = FIRST_PAUSE, False
        while not self._closed:
            try:
                until_lost()
            except lost as error:
                if not reported and not self._closed:
                    logger.warning("no messages between processes%s (%s); the store is polled", way, describe(error))
                reported = True
            except Exception:
                logger.exception("no messages between processes%s; the store is polled", way)
            if self.healthy:
                pause, reported, self.healthy = FIRST_PAUSE, False, False
            self._stop.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)
