"""Tasks in the memory of one process. They are lost when it exits, and other processes do not see them.

For tests, scripts and single-process servers whose tasks need not be durable. Reads take no lock (see `records`). The cost
of a write must not depend on the number of stored tasks.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.operations import RunRequest, quota_owner
from a2a_sync.sizes import task_size
from a2a_sync.stores.base import (
    STATE,
    UNBOUNDED,
    AlreadySent,
    Cursor,
    Expiry,
    HeldRequest,
    LargeResult,
    LogPage,
    Owner,
    OwnerFull,
    RunCounts,
    RunToken,
    SentRun,
    StartedRun,
    StateConflict,
    StoredState,
    StoredTask,
    StoredWebhook,
    StoreQuota,
    SummaryQuery,
    SweepResult,
    TaskExists,
    TaskHead,
    TaskPage,
    TaskQuery,
    TaskSummary,
    TaskVersion,
    WebhookCounts,
    WorkerSummary,
    check_open,
    check_startable,
    not_found,
    outcome,
    revoked,
    too_large,
)
from a2a_sync.stores.memory.packing import Packed, pack
from a2a_sync.stores.memory.records import Account, Accounts, Owned, RecentHistories, Record
from a2a_sync.stores.memory.webhooks import MemoryWebhooks, current_webhooks, set_webhook
from a2a_sync.types import Task, TaskState, new_id

_order = attrgetter("order")
_NO_VALUE = StoredState()


class MemoryStore:
    """A `TaskStore` in memory, for one process.

    Above `max_tasks`, tasks of the owner with the most tasks are evicted: first the one that ended first, then the one that
    has waited longest for its client. A task with a run is never evicted. Safe to use from any thread.

    Raises:
        ValueError: `max_tasks` is below 1.
    """

    queues_chunks = False
    workers = None

    def __init__(self, *, max_tasks: int = 10_000) -> None:
        if max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, not {max_tasks}")
        self._max_tasks = max_tasks
        self._lock = threading.Lock()
        self._tasks: dict[str, Record] = {}
        self._owners: dict[Owner, Owned] = {}
        self._accounts = Accounts()
        self._histories = RecentHistories()
        self._tokens = itertools.count(1)
        self._positions = itertools.count(1)
        self.webhooks: MemoryWebhooks = MemoryWebhooks(self._lock, self._tasks, self._find)
        self.contexts: MemoryContexts = MemoryContexts(self._lock, self._owners, self._held)
        self.inspection: MemoryInspection = MemoryInspection(self._lock, self._tasks, self._accounts)

    def pubsub(self) -> None:
        """Returns None: no other process can use the store."""

    def new_task_id(self, owner: Owner) -> str:
        """See `TaskStore.new_task_id`."""
        return new_id()

    # -- writing ------------------------------------------------------------------------------------------------------

    def start_run(
        self,
        owner: Owner,
        request: RunRequest,
        events: Sequence[LogEvent],
        *,
        create: bool,
        after: int | None = None,
        quota: StoreQuota = UNBOUNDED,
    ) -> StartedRun:
        """See `TaskStore.start_run`."""
        task_id = request.task_id
        packed, sizes = _pack(events, task_id, request.context_id)
        size = sum(sizes)
        with self._lock:
            if request.key is not None and (known := self.sent(owner, request.key.key)) is not None:
                raise AlreadySent(known)
            if create and task_id in self._tasks:
                raise TaskExists(f"task {task_id} exists")
            held = None if create else self._startable(owner, task_id, after)
            total = size if held is None else held.bytes + size
            if quota.max_task_bytes is not None and total > quota.max_task_bytes:
                raise too_large(task_id, total, quota.max_task_bytes)
            evicted = self._evict_surplus(owner, size, quota, create=create, but=task_id)
            record = held or self._create(owner, request)
            before = TaskState.UNSPECIFIED if held is None else held.state
            record.token = str(next(self._tokens))
            token = RunToken(task_id, record.token)
            record.request = request
            if request.webhook is not None:
                set_webhook(record, request.webhook, record.version)
            if request.webhook is not None or request.key is not None:
                record.request = replace(request, key=None, webhook=None)
            entries = self._write(record, events, packed, sizes)
            if request.key is not None:
                key, fingerprint = request.key
                record.keys += (key,)
                record.owned.sends[key] = SentRun(task_id, record.version, fingerprint)
            return StartedRun(token=token, head=record.head, entries=entries, before=before, evicted=evicted)

    def sent(self, owner: Owner, key: str) -> SentRun | None:
        """See `TaskStore.sent`."""
        owned = self._owners.get(owner)
        return None if owned is None else owned.sends.get(key)

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """See `TaskStore.append`."""
        packed, sizes = _pack(events, token.task_id, self._held(token).context_id)
        with self._lock:
            record = self._held(token)
            if max_task_bytes is not None and (total := record.bytes + sum(sizes)) > max_task_bytes:
                raise too_large(token.task_id, total, max_task_bytes)
            return self._write(record, events, packed, sizes, end=end)

    def interrupt(self, owner: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """See `TaskStore.interrupt`."""
        with self._lock:
            record = self._find(owner, task_id)
            check_open(task_id, record.state)
            return self._write(record, events, *_pack(events, task_id, record.context_id), end=True)

    def delete(self, owner: Owner, task_id: str) -> None:
        """See `TaskStore.delete`."""
        with self._lock:
            self._remove(self._find(owner, task_id))

    def close(self) -> None:
        """Does nothing: the tasks are kept as long as the store object."""

    def _create(self, owner: Owner, request: RunRequest) -> Record:
        owned = self._owners.get(owner)
        if owned is None:
            owned = self._owners[owner] = Owned(owner, self._accounts.of(quota_owner(owner.id)))
        self._accounts.change(owned.account, 1)
        record = self._tasks[request.task_id] = Record(
            owned, request.task_id, request.context_id, next(self._positions)
        )
        owned.add(record)
        return record

    def _held(self, token: RunToken) -> Record:
        record = self._tasks.get(token.task_id)
        if record is None or not record.token or record.token != token.value:
            raise revoked(token)
        return record

    def _startable(self, owner: Owner, task_id: str, after: int | None) -> Record:
        record = self._find(owner, task_id)
        head = record.head
        check_startable(task_id, head.status.state, running=head.running, version=head.version, after=after)
        return record

    def _write(
        self,
        record: Record,
        events: Sequence[LogEvent],
        packed: Sequence[Packed],
        sizes: Sequence[int],
        *,
        end: bool = False,
    ) -> tuple[Entry, ...]:
        """Append `events` to a task, whose packed forms have so many bytes each."""
        change = outcome(events)
        if end or change.ends:
            record.token = ""  # the right to append, given back  # nosec B105
            record.request = None
        first = record.take(packed, sizes, change, running=bool(record.token))
        self._queue(record)
        return tuple(map(Entry, itertools.count(first), events))

    # -- eviction -----------------------------------------------------------------------------------------------------

    def _queue(self, record: Record) -> None:
        """Add the task to the queue that `_oldest` reads; tasks with a run are in no queue.

        What its context has only until the task ends is removed then.
        """
        task_id, account = record.id, record.owned.account
        if record.token:
            account.waiting.pop(task_id, None)
        elif record.terminal:
            account.waiting.pop(task_id, None)
            account.ended.append(task_id)
            if record.owned.states:
                record.owned.remove_pending(record)
        else:
            account.waiting[task_id] = None

    def _evict_surplus(self, owner: Owner, size: int, quota: StoreQuota, *, create: bool, but: str) -> tuple[str, ...]:
        """Evict tasks other than `but` until a run of `size` bytes fits; the ids of those that waited for their client."""
        owned = self._owners.get(owner)
        account = self._accounts.of(quota_owner(owner.id)) if owned is None else owned.account
        evicted: tuple[str, ...] = ()
        if create and quota.max_tasks is not None:
            while account.tasks >= quota.max_tasks and (record := self._oldest(account, but)) is not None:
                evicted += self._remove(record)
        if quota.max_bytes is not None:
            while account.bytes + size > quota.max_bytes:
                if (record := self._oldest(account, but)) is None:
                    raise OwnerFull(f"the tasks of one owner hold {account.bytes} bytes already", evicted)
                evicted += self._remove(record)
        while create and len(self._tasks) >= self._max_tasks and (record := self._oldest_of_largest()) is not None:
            evicted += self._remove(record)
        return evicted

    def _oldest_of_largest(self) -> Record | None:
        """The task to evict of the owner with the most tasks, among owners that have a task without a run."""
        return next(filter(None, map(self._oldest, self._accounts.largest_first())), None)

    def _oldest(self, account: Account, but: str = "") -> Record | None:
        """The task of an owner that is to be evicted next."""
        while account.ended:
            record = self._tasks.get(account.ended[0])
            if record is not None and record.terminal:
                return record
            account.ended.popleft()
        return next((self._tasks[task_id] for task_id in account.waiting if task_id != but), None)

    def _remove(self, record: Record) -> tuple[str, ...]:
        """Remove a task and all its data; returns its id if it waited for its client."""
        task_id, owned = record.id, record.owned
        account = owned.account
        waited = task_id in account.waiting
        record.token = ""  # the right to append, given back  # nosec B105
        account.waiting.pop(task_id, None)
        del self._tasks[task_id]
        self._histories.discard(task_id)
        owned.remove(record)
        account.bytes -= record.bytes
        self._accounts.change(account, -1)
        if not owned.tasks:
            del self._owners[owned.owner]
        if len(account.ended) > 2 * account.tasks + 64:
            account.ended = deque(task_id for task_id in account.ended if task_id in self._tasks)
        return (task_id,) if waited else ()

    def sweep(self, expiry: Expiry, *, limit: int = 100) -> SweepResult:
        """See `TaskStore.sweep`."""
        with self._lock:
            records = list(self._tasks.values())
        removed = compacted = 0
        evicted: tuple[str, ...] = ()
        # Tasks are checked without the lock, which is held for cheap steps only.
        for record in records:
            if max(removed, compacted) >= limit:
                return SweepResult(removed=removed, compacted=compacted, more=True, evicted=evicted)
            record.clamp_end_time(expiry.now)
            if record.expired(expiry):
                with self._lock:
                    if record.expired(expiry) and self._tasks.get(record.id) is record:
                        evicted += self._remove(record)
                        removed += 1
            elif record.compactable(expiry):
                compacted += self._replace(record, record.compact())
        return SweepResult(removed=removed, compacted=compacted, more=False, evicted=evicted)

    def _replace(self, record: Record, compacted: Record) -> bool:
        """Replace `record` by `compacted`, unless the task has changed or was removed."""
        task_id = record.id
        with self._lock:
            if record.token or record.version != compacted.version or self._tasks.get(task_id) is not record:
                return False
            # They may have changed since.
            compacted.webhooks = record.webhooks
            self._tasks[task_id] = record.owned.tasks[task_id] = compacted
            record.owned.account.bytes += compacted.bytes - record.bytes
            return True

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, owner: Owner, task_id: str) -> TaskHead:
        """See `TaskStore.head`."""
        return self._find(owner, task_id).head

    def versions(self, task_ids: Collection[str]) -> dict[str, TaskVersion]:
        """See `TaskStore.versions`."""
        heads = [record.head for task_id in task_ids if (record := self._tasks.get(task_id)) is not None]
        return {head.id: TaskVersion(head.version, head.running) for head in heads}

    def request(self, owner: Owner, task_id: str) -> HeldRequest | None:
        """See `TaskStore.request`."""
        record = self._find(owner, task_id)
        request = record.request
        return None if request is None else HeldRequest(request, record.state)

    def load(
        self,
        owner: Owner,
        task_id: str,
        *,
        history: int | None = None,
        artifacts: bool = True,
        max_bytes: int | None = None,
        refuse_above: int | None = None,
    ) -> StoredTask:
        """See `TaskStore.load`."""
        record = self._find(owner, task_id)
        if refuse_above is not None and record.bytes > refuse_above:
            raise LargeResult(record.bytes)
        head = record.head
        task = record.fold(head, history, artifacts, max_bytes, self._histories)
        if self._tasks.get(task_id) is not record:
            self._histories.discard(task_id)
        return StoredTask(task=task, version=head.version, running=head.running)

    def log(
        self,
        owner: Owner,
        task_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        max_bytes: int | None = None,
        refuse_above: int | None = None,
    ) -> LogPage:
        """See `TaskStore.log`."""
        record, after = self._find(owner, task_id), max(after, 0)
        if (
            refuse_above is not None
            and record.bytes > refuse_above
            and (size := record.large_events(after)) > refuse_above
        ):
            raise LargeResult(size)
        return record.page(after, limit, max_bytes)

    def _matching(self, owner: Owner, query: TaskQuery) -> list[Record]:
        """The tasks that the filters of `query` select, in no order."""
        with self._lock:
            owned = self._owners.get(owner)
            if owned is None:
                return []
            records = owned.of_context(query.context_id) if query.context_id else list(owned.tasks.values())
        query.check_search(lambda most: len(records))
        if query.state is not None or query.since_ms is not None:
            records = [record for record in records if _matches(record, query)]
        return records

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        """See `TaskStore.list`."""
        records = self._matching(owner, query)
        total = len(records)
        if query.after is not None:
            after = query.after
            records = [record for record in records if record.order < after]
        records.sort(key=_order, reverse=True)
        page = records[: query.size]
        if query.refuse_above is not None and (size := sum(record.bytes for record in page)) > query.refuse_above:
            raise LargeResult(size)
        tasks = _within(page, query)
        page = page[: len(tasks)]
        last = Cursor(*page[-1].order) if len(records) > len(page) and page else None
        return TaskPage(tasks=tasks, next=last, total=total)

    def _find(self, owner: Owner, task_id: str) -> Record:
        record = self._tasks.get(task_id)
        if record is None or record.owned.owner != owner:
            raise not_found(task_id)
        return record


class MemoryContexts:
    """The `Contexts` of the store that `lock` belongs to; `held` returns the record for a current token."""

    def __init__(self, lock: threading.Lock, owners: dict[Owner, Owned], held: Callable[[RunToken], Record]) -> None:
        self._lock = lock
        self._owners = owners
        self._held = held

    def state(self, owner: Owner, context_id: str, name: str = STATE) -> StoredState:
        """See `Contexts.state`."""
        owned = self._owners.get(owner)
        return _NO_VALUE if owned is None else owned.states.get(context_id, {}).get(name, _NO_VALUE)

    def set_state(self, token: RunToken, body: bytes, *, expected: int, name: str = STATE) -> None:
        """See `Contexts.set_state`."""
        with self._lock:
            record = self._held(token)
            states = record.owned.states.get(record.context_id, {})
            current = states.get(name, _NO_VALUE)
            if current.version != expected:
                raise StateConflict(current)
            # Readers hold no lock, so the mapping of a context is replaced.
            record.owned.states[record.context_id] = {**states, name: StoredState(body, expected + 1)}
            record.owned.account.bytes += len(body) - (len(current.body) if current is not _NO_VALUE else 0)


class MemoryInspection:
    """The `Inspection` of the store that `lock`, `tasks` and `accounts` belong to."""

    def __init__(self, lock: threading.Lock, tasks: Mapping[str, Record], accounts: Accounts) -> None:
        self._lock = lock
        self._tasks = tasks
        self._accounts = accounts

    def counts(self) -> dict[Owner, dict[TaskState, int]]:
        """See `Inspection.counts`."""
        result: dict[Owner, dict[TaskState, int]] = {}
        for record in self._records():
            states = result.setdefault(record.owned.owner, {})
            state = record.state
            states[state] = states.get(state, 0) + 1
        return result

    def tasks(self, query: SummaryQuery) -> tuple[TaskSummary, ...]:
        """See `Inspection.tasks`."""
        found = (record for record in reversed(self._records()) if _selects(query, record))
        return tuple(map(_summary, itertools.islice(found, query.size)))

    def size(self) -> int:
        """See `Inspection.size`. The size of the data as JSON; objects take more."""
        with self._lock:
            return sum(account.bytes for account in self._accounts.by_name.values())

    def run_counts(self) -> RunCounts:
        """See `Inspection.run_counts`."""
        found = [(record.state, record.order[0]) for record in self._records()]
        queued = [status_ms for state, status_ms in found if state is TaskState.SUBMITTED]
        working = sum(state is TaskState.WORKING for state, _ in found)
        return RunCounts(len(queued), working, min(queued, default=None))

    def webhook_counts(self) -> WebhookCounts:
        """See `Inspection.webhook_counts`."""
        behind = self.webhooks(stopped=False, size=sys.maxsize)
        entries = sum(webhook.head - max(webhook.cursor, 0) for webhook in behind)
        return WebhookCounts(len(behind), entries, len(self.webhooks(stopped=True, size=sys.maxsize)))

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See `Inspection.workers`."""
        return ()

    def webhooks(self, *, stopped: bool, size: int = 50) -> tuple[StoredWebhook, ...]:
        """See `Inspection.webhooks`."""
        every = (webhook for record in self._records() if record.webhooks for webhook in current_webhooks(record))
        found = [webhook for webhook in every if (bool(webhook.disabled) if stopped else webhook.behind)]
        return tuple(sorted(found, key=lambda webhook: -webhook.error_ms)[:size])

    def _records(self) -> Sequence[Record]:
        """All tasks in the order in which they were created."""
        with self._lock:
            return list(self._tasks.values())


def _selects(query: SummaryQuery, record: Record) -> bool:
    return (
        (query.owner is None or record.owned.owner == query.owner)
        and (query.state is None or record.state is query.state)
        and (query.since_ms is None or record.created_ms >= query.since_ms)
        and (query.until_ms is None or record.created_ms < query.until_ms)
        and (query.before is None or record.position < query.before)
    )


def _summary(record: Record) -> TaskSummary:
    head = record.head
    return TaskSummary(
        position=record.position,
        owner=record.owned.owner,
        id=head.id,
        context_id=head.context_id,
        state=head.status.state,
        status_ms=record.order[0],
        created_ms=record.created_ms,
        version=head.version,
        bytes=record.bytes,
        running=head.running,
    )


def _within(page: Sequence[Record], query: TaskQuery) -> tuple[Task, ...]:
    """The tasks of a page, up to the byte limit of the query."""
    left = query.max_bytes
    if left is not None and sum(record.bytes for record in page) <= left:
        left = None
    tasks: list[Task] = []
    for record in page:
        task = record.fold(record.head, query.history, query.artifacts, None if tasks else left)
        if left is not None:
            left -= task_size(task)
            if tasks and left < 0:
                break
        tasks.append(task)
    return tuple(tasks)


def _pack(events: Sequence[LogEvent], task_id: str, context_id: str) -> tuple[list[Packed], list[int]]:
    """The packed forms of `events` of a task, and the bytes of each: each is read once, and without the lock of the store."""
    forms, sizes = [], []
    for event in events:
        packed, size = pack(event, task_id, context_id)
        forms.append(packed)
        sizes.append(size)
    return forms, sizes


def _matches(record: Record, query: TaskQuery) -> bool:
    return (query.state is None or record.state is query.state) and (
        query.since_ms is None or record.order[0] >= query.since_ms
    )
