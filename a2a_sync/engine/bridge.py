"""Connects the hub and the runs of one process with the other processes that share its store.

Messages of a `PubSub` say which tasks were written to. Under them lies a poll of the store, because messages may be lost; where
there are none, it is the only way and polls at short intervals.
"""

from __future__ import annotations

from collections.abc import Callable

from a2a_sync.concurrency.background import Periodic
from a2a_sync.engine.components import Component
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.runs import RunManager
from a2a_sync.limits import Limits
from a2a_sync.stores.base import PubSub, TaskBatch, TaskStore, TaskVersion

#: How often the store is polled where no messages arrive, in seconds.
_WITHOUT_MESSAGES = 0.05


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
        self._poll: ChangePoll | None = None
        #: How far each task with listeners had got at the last poll.
        self._versions: dict[str, TaskVersion] = {}
        if store.workers is not None:
            mark = store.workers.mark
            self._poll = ChangePoll(mark, self._hint_changed, lambda: hub.has_listeners, interval=self._interval)
        hub.pubsub = pubsub

    def _interval(self) -> float:
        return self._poll_interval if self._pubsub is not None and self._pubsub.healthy else _WITHOUT_MESSAGES

    def start(self) -> bool:
        if self._pubsub is not None:
            self._pubsub.start(self._receive, self._hub.hint)
        return self._poll is None or self._poll.start()

    def _receive(self, task_id: str, batch: TaskBatch | None) -> None:
        self._hub.receive(task_id, batch)
        self._runs.check_tokens(task_id)

    def _hint_changed(self) -> None:
        """Hint the tasks with listeners that have changed since the last poll, all read at once."""
        task_ids = self._hub.followed
        try:
            found = self._store.versions(task_ids)
        except Exception:
            # Streams report a store that cannot be read.
            self._versions = {}
            self._hub.hint()
            raise
        for task_id in task_ids:
            # A task that was removed is not found; a new listener may have read the log before the last change.
            version = found.get(task_id)
            if version is None or version != self._versions.get(task_id):
                self._hub.hint(task_id)
        self._versions = found

    def close(self, timeout: float = 10.0) -> None:
        if self._poll is not None:
            self._poll.close()
        if self._pubsub is not None:
            self._pubsub.close()


class ChangePoll:
    """Polls the store for writes of any process every ``interval()`` seconds, and calls `on_change` after one.

    `mark` returns a value that changes with every write, or None where that cannot be known. While `wanted` is False the
    store is not read.
    """

    def __init__(
        self,
        mark: Callable[[], object],
        on_change: Callable[[], None],
        wanted: Callable[[], bool],
        *,
        interval: Callable[[], float],
    ) -> None:
        self._mark = mark
        self._on_change = on_change
        self._wanted = wanted
        self._interval = interval
        self._last: object = None
        self._polls = Periodic("a2a-poll", self._poll, retry=1.0)

    def start(self) -> bool:
        """Poll from now on, if that has not begun; False where there is no thread for it."""
        return self._polls.start(self._interval())

    def _poll(self) -> float:
        if not self._wanted():
            self._last = None
            return self._interval()
        mark = self._mark()
        if mark is None or mark != self._last:
            self._last = mark
            self._on_change()
        return self._interval()

    def close(self) -> None:
        """Poll no more. Idempotent."""
        self._polls.stop()
