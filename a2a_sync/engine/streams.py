"""Makes the streams of tasks: of a run from its start, of a task from an event id or from now on.

This module decides what a stream shows first; `hub.TaskEventStream`, how it goes on and ends. All checks that need the store
are made before a stream is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from a2a_sync.engine.hub import EventHub, PolledStream, Steps, Subscription, TaskEventStream
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.lifecycle import Fold
from a2a_sync.limits import Limits
from a2a_sync.operations import StreamItem
from a2a_sync.sizes import entry_size, fit
from a2a_sync.stores.base import (
    LOG_PAGE_BYTES,
    SMALL_BYTES,
    LargeResult,
    LogPage,
    Owner,
    SentRun,
    StartedRun,
    StoredTask,
    TaskStore,
)
from a2a_sync.types import Message, Task, TaskState

#: Reads a task with this id and at most so many messages.
Load: TypeAlias = Callable[[str, int], Steps[StoredTask]]


class Streams:
    """Makes the streams of one app. Thread-safe."""

    def __init__(self, store: TaskStore, hub: EventHub, limits: Limits) -> None:
        self._store = store
        self._hub = hub
        self._limits = limits

    def listen(self, task_id: str) -> Subscription:
        """A subscription to a task from now on; the caller closes it where it does not become a stream."""
        return Subscription(self._hub, task_id, size=self._limits.max_buffered_batches)

    def of_run(
        self, owner: Owner, started: StartedRun, before: StoredTask | None, subscription: Subscription, history: int
    ) -> PolledStream:
        """The stream of a run that has just started: the task as it was then, and the events after that.

        `before` is the task before that, None where it is new; `subscription` was made before the start.
        """
        task = _new_task(started) if before is None else self._task_at(owner, before, started.head.version)
        return self._stream(owner, subscription, trim_history(task, history, self._limits), started.head.version)

    def from_start(self, owner: Owner, sent: SentRun, history: int, load: Load) -> Steps[PolledStream]:
        """The same stream again, however far the run has come; the task as it is now where its log is compacted or large."""
        subscription = self.listen(sent.task_id)
        try:
            head = self._store.head(owner, sent.task_id)
            if sent.number < head.compacted or self._log_after(owner, sent.task_id, 0) is None:
                return (yield from self._from_snapshot(owner, subscription, sent.task_id, history, load))
            new = Task(id=head.id, context_id=head.context_id, status=head.status)
            before = StoredTask(task=new, version=0, running=True)
            try:
                task = self._task_at(owner, before, sent.number, refuse_above=SMALL_BYTES)
            except LargeResult:
                return (yield from self._from_snapshot(owner, subscription, sent.task_id, history, load))
            # The log is read at the first poll, so a run that has ended closes the stream after its last entry.
            subscription.catch_up()
            return self._stream(owner, subscription, trim_history(task, history, self._limits), sent.number)
        except BaseException:
            subscription.close()
            raise

    def of_task(self, owner: Owner, task_id: str, last_event_id: int | None, load: Load) -> Steps[PolledStream]:
        """The events after `last_event_id`; where that is no event of the task, the task as it is and the events after that.

        The task replaces the events after `last_event_id` as well where these are large.

        Raises:
            UnsupportedOperationError: nothing can follow.
        """
        subscription = self.listen(task_id)
        try:
            if last_event_id is not None and last_event_id >= 0:
                page = self._log_after(owner, task_id, last_event_id)
                if page is None:
                    return (
                        yield from self._from_snapshot(
                            owner, subscription, task_id, self._limits.max_history_length, load
                        )
                    )
                if page.compacted <= last_event_id <= page.version:
                    subscription.catch_up()
                    return TaskEventStream(
                        self._store, owner, task_id, subscription, cursor=last_event_id, running=True
                    )
            return (yield from self._from_now(owner, subscription, task_id, load))
        except BaseException:
            subscription.close()
            raise

    def _log_after(self, owner: Owner, task_id: str, after: int) -> LogPage | None:
        """A page without entries; None where the events after `after` are large: a stream encodes them outside of all budgets."""
        try:
            return self._store.log(owner, task_id, after=after, limit=0, refuse_above=SMALL_BYTES)
        except LargeResult:
            return None

    def _from_snapshot(
        self, owner: Owner, subscription: Subscription, task_id: str, history: int, load: Load
    ) -> Steps[PolledStream]:
        """The rest of the stream of a run that may have ended: the task as it is, and the events after that."""
        subscription.catch_up()
        stored = yield from load(task_id, history)
        return self._stream(owner, subscription, stored.task, stored.version)

    def _from_now(self, owner: Owner, subscription: Subscription, task_id: str, load: Load) -> Steps[PolledStream]:
        # A task that has ended may be large, and is not read.
        state = self._store.head(owner, task_id).status.state
        if not state.terminal:
            stored = yield from load(task_id, self._limits.max_history_length)
            state = stored.task.state
        if state.terminal:
            raise task_ended(task_id, state)
        return self._stream(owner, subscription, stored.task, stored.version, running=stored.running)

    def _stream(
        self, owner: Owner, subscription: Subscription, task: Task, version: int, *, running: bool = True
    ) -> PolledStream:
        first = StreamItem(task, version)
        return TaskEventStream(self._store, owner, task.id, subscription, cursor=version, running=running, first=first)

    def _task_at(self, owner: Owner, before: StoredTask, version: int, *, refuse_above: float = math.inf) -> Task:
        """The task exactly as it was at `version`, which is not less than that of `before`; a run may be ahead by now.

        Raises:
            LargeResult: the entries from `before` on have more than `refuse_above` bytes.
        """
        fold = Fold(before.task)
        number, size = before.version, 0
        while number < version:
            page = self._store.log(owner, before.task.id, after=number, max_bytes=LOG_PAGE_BYTES)
            entries = [entry for entry in page.entries if entry.number <= version]
            if not entries:
                break
            size += sum(map(entry_size, entries))
            if size > refuse_above:
                raise LargeResult(size)
            for entry in entries:
                fold.apply(entry.event)
            number = entries[-1].number
        task = fold.task()
        assert task is not None
        return task


def _new_task(started: StartedRun) -> Task:
    head = started.head
    messages = tuple(entry.event for entry in started.entries if isinstance(entry.event, Message))
    return Task(id=head.id, context_id=head.context_id, status=head.status, history=messages)


def trim_history(task: Task, length: int, limits: Limits) -> Task:
    """`task` with its newest messages only: at most `length`, and as many as fit into an answer."""
    if len(task.history) > length:
        task = replace(task, history=task.history[-length:] if length else ())
    most, largest = limits.max_response_bytes, limits.max_task_bytes
    # A task is measured only where one may be larger than an answer.
    return task if most is None or (largest is not None and largest <= most) else fit(task, most)


def task_ended(task_id: str, state: TaskState) -> UnsupportedOperationError:
    """The error for a message to, or a subscription of, a task that has ended."""
    return UnsupportedOperationError(
        f"The task is {state} and takes no further message or subscription; read it with GetTask, or send without a task id",
        metadata={"taskId": task_id},
    )
