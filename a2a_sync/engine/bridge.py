"""Connects the hub and the runs of one process with the other processes that share its store.

Messages of a `PubSub` say which tasks were written to. Under them lies a poll of the store, because messages may be lost: one
read of the versions of all tasks that have streams or blocked calls. Where there are no messages, it is the only way and polls
at shorter intervals.
"""

from __future__ import annotations

from typing import Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.engine.components import Component
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.runs import RunManager
from a2a_sync.errors import StoreError
from a2a_sync.limits import Limits
from a2a_sync.stores.base import PubSub, TaskBatch, TaskStore, TaskVersion
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: How often the store is polled where no messages arrive, in seconds, if it shows cheaply that it has changed.
_WITHOUT_MESSAGES = 0.05
#: The same for a server: at first, and after each change; then each pause is twice as long as the one before.
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0


class ProcessBridge(Component):
    """Publishes what this process stores, and hands what others publish to `hub` and `runs`.

    Parameters:
        pubsub: carries the messages; None: other processes are polled.
        store: is polled, unless one process uses it.
    """

    def __init__(
        self, pubsub: PubSub | None, store: TaskStore, hub: EventHub, runs: RunManager, limits: Limits
    ) -> None:
        self._pubsub = pubsub
        self._store = store
        self._hub = hub
        self._runs = runs
        self._poll_interval = limits.store_poll_interval
        self._polls = Periodic("a2a-poll", self._poll, retry=1.0)
        #: How far each task with listeners had got at the last poll.
        self._versions: dict[str, TaskVersion] = {}
        #: The store shows cheaply whether it has changed, and what it showed last.
        self._marks = False
        self._last_mark: object = None
        self._pause = _FIRST_PAUSE
        hub.pubsub = pubsub

    def _poll(self) -> float:
        """Hint tasks after a write of any process. While no task has listeners, the store is not read."""
        if not self._hub.has_listeners:
            self._last_mark, self._pause = None, _FIRST_PAUSE
        elif self._store.workers is not None:
            mark = self._store.workers.mark()
            self._marks = self._marks or mark is not None
            if mark is None or mark != self._last_mark:
                self._last_mark = mark
                self._hint_changed()
        return self._interval()

    def _interval(self) -> float:
        if self._pubsub is not None and self._pubsub.healthy:
            return self._poll_interval
        if self._marks:
            return _WITHOUT_MESSAGES
        return min(self._pause, _LONGEST_PAUSE, self._poll_interval)

    def start(self) -> bool:
        if self._pubsub is not None:
            self._pubsub.start(self._receive, self._catch_up)
        return self._store.workers is None or self._polls.start(self._interval())

    def _receive(self, task_id: str, batch: TaskBatch | None) -> None:
        self._hub.receive(task_id, batch)
        self._runs.check_tokens(task_id)

    def _catch_up(self) -> None:
        """Messages may have been lost: find out which tasks they were about."""
        try:
            if self._store.workers is None:
                self._hub.hint()
            elif self._hub.has_listeners:
                self._hint_changed()
            for task_id in {run.request.task_id for run in self._runs.runs_of()}:
                self._runs.check_tokens(task_id)
        except Exception:
            logger.exception("the store cannot be read after messages were lost; the next poll does it")

    def _hint_changed(self) -> None:
        """Hint the tasks with listeners that have changed since the last poll, all read at once."""
        task_ids = self._hub.followed
        try:
            found = self._store.versions(task_ids)
        except Exception as error:
            self._versions = {}
            if not (isinstance(error, StoreError) and error.transient):
                # Streams report a store that cannot be read.
                self._hub.hint()
            raise
        # A task that was removed is not found; a new listener may have read the log before the last change.
        changed = [one for one in task_ids if (version := found.get(one)) is None or version != self._versions.get(one)]
        for task_id in changed:
            self._hub.hint(task_id)
        self._versions = found
        self._pause = _FIRST_PAUSE if changed else 2 * self._pause

    def close(self, timeout: float = 10.0) -> None:
        self._polls.stop()
        if self._pubsub is not None:
            self._pubsub.close()
