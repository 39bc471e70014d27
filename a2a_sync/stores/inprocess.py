"""Pub/sub between the apps of one process that share a store object."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.stores.base import TaskBatch


class InProcessPubSub:
    """A `PubSub` for several apps over one store object: those with the same `channel` receive each other's batches.

    ``A2AApp(first, store=store, pubsub=InProcessPubSub("tasks"))``; each app needs a separate object. Callbacks run on the
    thread that stored the batch. A forked child starts without subscriptions.
    """

    _channels: weakref.WeakValueDictionary[str, _Channel] = weakref.WeakValueDictionary()

    def __init__(self, channel: str) -> None:
        self._channel = self._channels.setdefault(channel, _Channel())
        self._on_message: Callable[[str, TaskBatch | None], None] | None = None
        renew_per_process(self)

    def renew(self) -> None:
        """Discard the subscriptions of the parent in a forked child."""
        self._lock = threading.Lock()
        self._subscribed: Counter[str] = Counter()

    @property
    def healthy(self) -> bool:
        """See `PubSub.healthy`."""
        return self._on_message is not None

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """See `PubSub.start`. Messages are never lost, so `on_gap` is not called."""
        self._on_message = on_message
        self._channel.members[id(self)] = self

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`."""
        # `valuerefs` copies in one step; an iteration would fail when another thread adds a member.
        for reference in self._channel.members.valuerefs():
            member = reference()
            if member is None or member is self or batch.task_id not in member._subscribed:
                continue
            if (on_message := member._on_message) is not None:
                on_message(batch.task_id, batch)

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """See `PubSub.subscribe`."""
        with self._lock:
            self._subscribed[task_id] += 1

    def unsubscribe(self, task_id: str) -> None:
        """See `PubSub.unsubscribe`."""
        with self._lock:
            self._subscribed[task_id] -= 1
            if self._subscribed[task_id] <= 0:
                del self._subscribed[task_id]

    def close(self) -> None:
        """See `PubSub.close`."""
        self._channel.members.pop(id(self), None)
        self._on_message = None


class _Channel:
    """The members of a channel. It is removed with its last member."""

    def __init__(self) -> None:
        self.members: weakref.WeakValueDictionary[int, InProcessPubSub] = weakref.WeakValueDictionary()
