"""Tasks in this process's memory: gone with it, and invisible to every other process.

For tests, scripts, and servers of one process whose tasks need not survive it. Reads take no lock: a head is replaced as
a whole, after the events it counts are in the list. Nothing here may cost more per write when more tasks are stored.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from a2a_sync.lifecycle import ArtifactFold, Entry, LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import (
    AlreadySent,
    Cursor,
    LogPage,
    Outcome,
    RunRevoked,
    RunToken,
    Scope,
    SentRun,
    StartedRun,
    StoredTask,
    TaskBusy,
    TaskEnded,
    TaskExists,
    TaskHead,
    TaskPage,
    TaskQuery,
    folded,
    not_found,
    outcome,
    time_ms,
)
from a2a_sync.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus

_order = attrgetter("order")
_UNSPECIFIED = TaskStatus(state=TaskState.UNSPECIFIED)


class _Owned:
    """The tasks of one scope, and its sends by their keys."""

    __slots__ = ("scope", "sends", "tasks")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.tasks: dict[str, _Record] = {}
        self.sends: dict[str, SentRun] = {}


class _Record:
    """One task. ``events`` only grows; ``head`` says how many of them count. Writers hold the store's lock."""

    __slots__ = ("artifacts", "events", "head", "keys", "messages", "order", "owned", "request", "token")

    def __init__(self, owned: _Owned, head: TaskHead) -> None:
        self.owned = owned
        self.head = head
        self.events: list[LogEvent] = []
        self.messages = 0
        self.artifacts = 0
        self.order = Cursor(0, head.id)
        self.token = ""
        self.request: RunRequest | None = None
        self.keys: tuple[str, ...] = ()

    def take(self, events: Sequence[LogEvent], change: Outcome, *, running: bool) -> None:
        """Add `events` and replace the head, in this order: readers take the head first."""
        old = self.head
        self.events.extend(events)
        self.artifacts += change.artifacts
        self.messages += sum(isinstance(event, Message) for event in events)
        if change.status is not None:
            self.order = Cursor(time_ms(change.status.timestamp), old.id)
        self.head = TaskHead(
            id=old.id,
            context_id=old.context_id,
            status=change.status or old.status,
            version=old.version + len(events),
            running=running,
            metadata={**old.metadata, **change.metadata} if change.metadata else old.metadata,
        )

    def fold(self, head: TaskHead, history: int | None, artifacts: bool) -> Task:
        """The task as it was at `head`."""
        fold = ArtifactFold()
        if artifacts and self.artifacts:
            for event in itertools.islice(self.events, head.version):
                if isinstance(event, TaskArtifactUpdateEvent):
                    fold.apply(event)
        wanted = self.messages if history is None else min(history, self.messages)
        newest = list(itertools.islice(self._messages_backwards(head.version), max(wanted, 0)))
        return folded(head, reversed(newest), fold)

    def _messages_backwards(self, version: int) -> Iterator[Message]:
        for index in range(version - 1, -1, -1):
            event = self.events[index]
            if isinstance(event, Message):
                yield event


class MemoryStore:
    """A `TaskStore` in memory, for one process.

    Beyond `max_tasks` the tasks that ended first are forgotten first, then those that have waited longest for their
    client; a task with a run is never forgotten. Safe to use from any thread.

    Raises:
        ValueError: `max_tasks` is below 1.
    """

    shared = False
    workers = None

    def __init__(self, *, max_tasks: int = 10_000) -> None:
        if max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, not {max_tasks}")
        self._max_tasks = max_tasks
        self._lock = threading.Lock()
        self._tasks: dict[str, _Record] = {}
        self._scopes: dict[Scope, _Owned] = {}
        #: Ids in the order in which their tasks ended, with some of tasks deleted since.
        self._ended: deque[str] = deque()
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._tokens = itertools.count(1)

    # -- writing ------------------------------------------------------------------------------------------------------

    def start_run(self, scope: Scope, request: RunRequest, events: Sequence[LogEvent], *, create: bool) -> StartedRun:
        """See `TaskStore.start_run`."""
        task_id = request.task_id
        with self._lock:
            if request.key is not None and (known := self.sent(scope, request.key.key)) is not None:
                raise AlreadySent(known)
            record = self._create(scope, request) if create else self._startable(scope, task_id)
            record.token = str(next(self._tokens))
            token = RunToken(task_id, record.token)
            record.request = request
            entries = self._write(record, events)
            if request.key is not None:
                key, fingerprint = request.key
                record.request = replace(request, key=None)
                record.keys += (key,)
                record.owned.sends[key] = SentRun(task_id, record.head.version, fingerprint)
            if create:
                self._forget_surplus()
            return StartedRun(token=token, head=record.head, entries=entries)

    def sent(self, scope: Scope, key: str) -> SentRun | None:
        """See `TaskStore.sent`."""
        owned = self._scopes.get(scope)
        return None if owned is None else owned.sends.get(key)

    def append(self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False) -> tuple[Entry, ...]:
        """See `TaskStore.append`."""
        with self._lock:
            record = self._tasks.get(token.task_id)
            if record is None or not record.token or record.token != token.value:
                raise RunRevoked(f"the run on task {token.task_id} is no longer current")
            return self._write(record, events, end=end)

    def interrupt(self, scope: Scope, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """See `TaskStore.interrupt`."""
        with self._lock:
            record = self._find(scope, task_id)
            if record.head.status.state.terminal:
                raise TaskEnded(f"task {task_id} is {record.head.status.state}")
            return self._write(record, events, end=True)

    def delete(self, scope: Scope, task_id: str) -> None:
        """See `TaskStore.delete`."""
        with self._lock:
            self._remove(self._find(scope, task_id))

    def close(self) -> None:
        """Nothing to free: the tasks stay as long as the store."""

    def _create(self, scope: Scope, request: RunRequest) -> _Record:
        task_id = request.task_id
        if task_id in self._tasks:
            raise TaskExists(f"task {task_id} exists")
        head = TaskHead(
            id=task_id, context_id=request.context_id, status=_UNSPECIFIED, version=0, running=True, metadata={}
        )
        owned = self._scopes.get(scope)
        if owned is None:
            owned = self._scopes[scope] = _Owned(scope)
        record = self._tasks[task_id] = owned.tasks[task_id] = _Record(owned, head)
        return record

    def _startable(self, scope: Scope, task_id: str) -> _Record:
        record = self._find(scope, task_id)
        if record.head.status.state.terminal:
            raise TaskEnded(f"task {task_id} is {record.head.status.state}")
        if record.token:
            raise TaskBusy(f"a run on task {task_id} goes on")
        return record

    def _write(self, record: _Record, events: Sequence[LogEvent], *, end: bool = False) -> tuple[Entry, ...]:
        change = outcome(events)
        if end or change.ends:
            record.token = ""
            record.request = None
        first = record.head.version + 1
        record.take(events, change, running=bool(record.token))
        self._queue(record)
        return tuple(Entry(number, event) for number, event in enumerate(events, first))

    # -- the bound ----------------------------------------------------------------------------------------------------

    def _queue(self, record: _Record) -> None:
        """Put the task where `_forget_surplus` looks for it; tasks with a run are in no queue."""
        task_id = record.head.id
        if record.token:
            self._waiting.pop(task_id, None)
        elif record.head.status.state.terminal:
            self._waiting.pop(task_id, None)
            self._ended.append(task_id)
        else:
            self._waiting[task_id] = None

    def _forget_surplus(self) -> None:
        while len(self._tasks) > self._max_tasks:
            record = self._oldest()
            if record is None:
                return
            self._remove(record)

    def _oldest(self) -> _Record | None:
        while self._ended:
            record = self._tasks.get(self._ended.popleft())
            if record is not None and record.head.status.state.terminal:
                return record
        return self._tasks[next(iter(self._waiting))] if self._waiting else None

    def _remove(self, record: _Record) -> None:
        task_id, owned = record.head.id, record.owned
        record.token = ""
        self._waiting.pop(task_id, None)
        del self._tasks[task_id], owned.tasks[task_id]
        for key in record.keys:
            del owned.sends[key]
        if not owned.tasks:
            del self._scopes[owned.scope]
        if len(self._ended) > 2 * len(self._tasks) + 64:
            self._ended = deque(task_id for task_id in self._ended if task_id in self._tasks)

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, scope: Scope, task_id: str) -> TaskHead:
        """See `TaskStore.head`."""
        return self._find(scope, task_id).head

    def request(self, scope: Scope, task_id: str) -> RunRequest | None:
        """See `TaskStore.request`."""
        return self._find(scope, task_id).request

    def load(self, scope: Scope, task_id: str, *, history: int | None = None, artifacts: bool = True) -> StoredTask:
        """See `TaskStore.load`."""
        record = self._find(scope, task_id)
        head = record.head
        return StoredTask(
            task=record.fold(head, history, artifacts),
            version=head.version,
            running=head.running,
        )

    def log(self, scope: Scope, task_id: str, *, after: int = 0, limit: int = 1000) -> LogPage:
        """See `TaskStore.log`."""
        record = self._find(scope, task_id)
        head, after = record.head, max(after, 0)
        events = record.events[after : min(head.version, after + limit)]
        return LogPage(
            entries=tuple(Entry(number, event) for number, event in enumerate(events, after + 1)),
            version=head.version,
            state=head.status.state,
            running=head.running,
        )

    def list(self, scope: Scope, query: TaskQuery) -> TaskPage:
        """See `TaskStore.list`."""
        with self._lock:
            owned = self._scopes.get(scope)
            records = list(owned.tasks.values()) if owned is not None else []
        if query.context_id or query.state is not None or query.since_ms is not None:
            records = [record for record in records if _matches(record, query)]
        total = len(records)
        if query.after is not None:
            after = query.after
            records = [record for record in records if record.order < after]
        records.sort(key=_order, reverse=True)
        page = records[: query.size]
        return TaskPage(
            tasks=tuple(record.fold(record.head, query.history, query.artifacts) for record in page),
            next=page[-1].order if len(records) > len(page) and page else None,
            total=total,
        )

    def _find(self, scope: Scope, task_id: str) -> _Record:
        record = self._tasks.get(task_id)
        if record is None or record.owned.scope != scope:
            raise not_found(task_id)
        return record


def _matches(record: _Record, query: TaskQuery) -> bool:
    head = record.head
    return (
        (not query.context_id or head.context_id == query.context_id)
        and (query.state is None or head.status.state is query.state)
        and (query.since_ms is None or record.order.time_ms >= query.since_ms)
    )
