"""The interface of a store: tasks as a head row and a log of numbered entries each, and the optional parts.

The store is the source of truth. It checks three things only: whether the owner has the task, whether the task is terminal,
and whether the token of a run is current. `engine.run` checks before which entries may follow which. Every method may be
called from any thread, takes no callbacks and holds no lock when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from a2a_sync.errors import A2AError, StoreError, TaskNotFoundError
from a2a_sync.lifecycle import ArtifactFold, Entry, LogEvent, ends_run
from a2a_sync.operations import RunRequest, Webhook
from a2a_sync.types import (
    JSON,
    Message,
    Metadata,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    new_id,
)

__all__ = [
    "AlreadySent",
    "COMPACT_FROM",
    "Contexts",
    "Cursor",
    "Expiry",
    "HEAD_BYTES",
    "HeldRequest",
    "HeldRun",
    "Inspection",
    "LOG_PAGE_BYTES",
    "LargeResult",
    "LogPage",
    "LostWorker",
    "MEMORY",
    "Outcome",
    "Owner",
    "OwnerFull",
    "PubSub",
    "RunCounts",
    "RunRevoked",
    "RunToken",
    "SNAPSHOT",
    "STACK",
    "STATE",
    "SentRun",
    "StartedRun",
    "StateConflict",
    "StoreConflict",
    "StoreQuota",
    "StoredState",
    "StoredTask",
    "StoredWebhook",
    "SummaryQuery",
    "SweepResult",
    "TURN",
    "TaskBatch",
    "TaskBusy",
    "TaskEnded",
    "TaskExists",
    "TaskFull",
    "TaskHead",
    "TaskPage",
    "TaskQuery",
    "TaskStore",
    "TaskSummary",
    "TaskVersion",
    "TooManyWebhooks",
    "UNBOUNDED",
    "WebhookCounts",
    "Webhooks",
    "WorkerSummary",
    "Workers",
    "check_open",
    "check_startable",
    "folded",
    "not_found",
    "outcome",
    "pending_name",
    "revoked",
    "time_ms",
    "too_large",
]


class Owner(NamedTuple):
    """The owner of tasks: a tenant and an id, both ``""`` where there are none. Tasks of another owner do not exist for it."""

    tenant: str = ""
    id: str = ""


class RunToken(NamedTuple):
    """The right to append to one task, until the run ends or is interrupted."""

    task_id: str
    value: str


class TaskHead(NamedTuple):
    """A task without its log. ``version`` is the highest entry number; ``running`` says that a run holds the token.

    Of the entries up to ``compacted`` only the messages are left: what streamed then cannot be replayed.
    """

    id: str
    context_id: str
    status: TaskStatus
    version: int
    running: bool
    metadata: Metadata
    compacted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """A run that may write: its token, the task as it is now, and the entries just stored.

    ``before`` is the state of the task before them; a new task was ``unspecified``.
    ``evicted`` are the tasks that were evicted while they waited for their client; their streams must be ended.
    """

    token: RunToken
    head: TaskHead
    entries: tuple[Entry, ...]
    before: TaskState = TaskState.UNSPECIFIED
    evicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A folded task, the number of the last entry in it, and whether a run holds its token."""

    task: Task
    version: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Entries after a cursor, and where the task stands now. More may follow while ``version`` is ahead of the last one.

    A cursor before ``compacted`` misses entries: see `TaskHead`.
    """

    entries: tuple[Entry, ...]
    version: int
    state: TaskState
    running: bool
    compacted: int = 0


class Cursor(NamedTuple):
    """A position in the order of ListTasks: status time in milliseconds, then id, both descending."""

    time_ms: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Which tasks to list: filters, then a page. ``since_ms`` is inclusive; ``after`` is the last task already seen.

    A page ends before the task with which it would hold more than ``max_bytes``; its first task is cut as by `TaskStore.load`.
    """

    context_id: str = ""
    state: TaskState | None = None
    since_ms: int | None = None
    after: Cursor | None = None
    size: int = 50
    history: int | None = None
    artifacts: bool = False
    max_bytes: int | None = None
    refuse_above: int | None = None

    @property
    def filtered(self) -> bool:
        """The store searches for the tasks that match, among those of a context or all of the owner."""
        return bool(self.context_id or self.state is not None or self.since_ms is not None)

    def check_search(self, count: Callable[[int], int]) -> None:
        """Count each task among which the store searches as `HEAD_BYTES` that are read.

        Parameters:
            count: returns the number of these tasks: of those of the context, where the store reads no others. It may stop at
                its argument. Only called where the query has a filter and ``refuse_above``.

        Raises:
            LargeResult: they are more than ``refuse_above``; the page may take ``max_bytes`` as well.
        """
        if self.refuse_above is None or not self.filtered:
            return
        size = count(self.refuse_above // HEAD_BYTES + 1) * HEAD_BYTES
        if size > self.refuse_above:
            raise LargeResult(max(size, self.max_bytes or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """A page of tasks, the cursor of the next page (None: this is the last) and the number of tasks that match."""

    tasks: tuple[Task, ...]
    next: Cursor | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The ages at which a sweep removes and compacts tasks. Times are milliseconds since 1970; None: it does not.

    They are compared with the end of the newest run of a task; a task with a run is left alone. A sweep removes terminal
    tasks older than ``ended``, and tasks older than ``waiting`` that wait for their client. It compacts the log of tasks
    older than ``replay`` that have at least `COMPACT_FROM` entries more than after the last compaction. Runs whose end is
    after ``now`` ended while the clock was wrong: they count as ended now.
    """

    now: int | None = None
    ended: int | None = None
    waiting: int | None = None
    replay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What one sweep did. ``more``: another sweep has work to do; ``evicted`` as in `StartedRun`."""

    removed: int
    compacted: int
    more: bool
    evicted: tuple[str, ...] = ()


#: Request bodies, and tasks to respond with, are large above this size in bytes.
SMALL_BYTES = 1024 * 1024
#: The bytes for which a task counts among which a query searches: filters take time and processor, whatever the page holds.
HEAD_BYTES = 100
#: Bytes of a page of a log that is read for a stream or a webhook; a larger entry is a page of its own. Each stream whose
#: client does not read holds one in memory.
LOG_PAGE_BYTES = 64 * 1024

#: A shorter log is not compacted: its entries take little more space than the compacted form.
COMPACT_FROM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuota:
    """How much a new run may add to a store: bytes of its task; tasks and bytes of its owner. None: no bound."""

    max_task_bytes: int | None = None
    max_tasks: int | None = None
    max_bytes: int | None = None


UNBOUNDED = StoreQuota()


class StoreConflict(A2AError):
    """A write that the store refuses; nothing was stored."""


class TaskExists(StoreConflict):
    """A task with this id exists, of this owner or another one."""


class TaskBusy(StoreConflict):
    """Another run holds the token, or has written since the task was read."""


class TaskFull(StoreConflict):
    """The task would exceed its size limit."""


class OwnerFull(StoreConflict):
    """The tasks of the owner would exceed their size limit, even after eviction of all tasks that can be evicted.

    ``evicted`` are tasks that were evicted nevertheless, as in `StartedRun`.
    """

    def __init__(self, message: str, evicted: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.evicted = evicted


class LargeResult(StoreConflict):
    """A read would take more bytes than the caller allows; ``size`` is how many."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes are more than were asked for")
        self.size = size


class TaskEnded(StoreConflict):
    """The task is terminal."""


class RunRevoked(StoreConflict):
    """The token is no longer current: the task was cancelled, timed out, or resumed by another worker."""


class SentRun(NamedTuple):
    """The outcome of a send with an idempotency key: its task, the last entry stored with its start, and its fingerprint."""

    task_id: str
    number: int
    fingerprint: str


class AlreadySent(StoreConflict):
    """A send with this idempotency key was stored before; ``run`` is its outcome."""

    def __init__(self, run: SentRun) -> None:
        super().__init__(f"this send has begun a run on task {run.task_id}")
        self.run = run


class HeldRun(NamedTuple):
    """A run of which a worker holds the token. ``left``: the worker has left the store and released the run."""

    owner: Owner
    token: RunToken
    left: bool = False


class HeldRequest(NamedTuple):
    """The request of the run that holds the token of a task, and the state of the task."""

    request: RunRequest
    state: TaskState


class LostWorker(NamedTuple):
    """A worker whose runs may be resumed. ``left``: it left the store and released them; else its lease expired."""

    id: str
    left: bool


class TaskBatch(NamedTuple):
    """What a process has stored for one task, in one step.

    Parameters:
        owner, task_id: the task. The owner of a task that was removed is empty.
        entries: the new entries of its log, in order; none where only its run has ended, the task was removed, or another process
            asks about its run.
        before: the state of the task before them; ``unspecified`` for a new one.
        ended: no run holds the task's token now.
        local: this process has stored it; False where it was received from another one.
    """

    owner: Owner
    task_id: str
    entries: Sequence[Entry] = ()
    before: TaskState = TaskState.UNSPECIFIED
    ended: bool = False
    local: bool = True


class PubSub(Protocol):
    """Carries messages about new entries between the processes that share a store.

    Messages may be lost, repeated or late, and those of several processes may come in any order: they only say when to read
    the log, which is the truth. No method may block or raise. Any thread may call them. A forked child inherits no
    subscription, and calls `start` before anything else.
    """

    @property
    def healthy(self) -> bool:
        """Whether messages of other processes arrive. While it is False, the store is polled at short intervals."""

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """Receive messages in this process from now on, if that has not begun. May be called often.

        Parameters:
            on_message: to be called for each task that another process has written to, with its id and the batch, or None
                where the message does not carry it. Not for the messages of this object.
            on_gap: to be called when messages may have been lost, as after a connection was lost.
        """

    def publish(self, batch: TaskBatch) -> None:
        """Send a stored batch to the other processes."""

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """Request messages about this task, until `unsubscribe` is called as often. An implementation may send all.

        `soon`: another process is about to write to it.
        """

    def unsubscribe(self, task_id: str) -> None:
        """See `subscribe`."""

    def close(self) -> None:
        """Send and receive no more. Idempotent."""


class Workers(Protocol):
    """The processes that share a store: which are alive, and which runs a dead one has left. An optional part.

    A worker is alive while it renews its lease, whose end is a time of the one clock of the store: clocks of two machines are not
    compared. The token of every run names its worker.
    """

    @property
    def id(self) -> str:
        """The id of this process, in tokens; a forked process has another one."""

    @property
    def store_id(self) -> str:
        """Names the store: the same text in all processes that share it, and in no other."""

    def mark(self) -> object:
        """A value that changes with every write of any process; None if the store has none. A cheap read."""

    def beat(self, lease: float) -> float | None:
        """Renew the lease of this process for `lease` seconds from now on; the first call adds the worker.

        It must not wait for other threads of the process; under gevent it is called on a native thread.

        Returns the time by the clock of the store, in seconds; None, and nothing was stored, where another thread does it now.
        """

    def leave(self) -> None:
        """Record that this process starts no more runs; other workers may resume its runs at once."""

    def has_others(self) -> bool:
        """Whether the store has another worker, whose runs may have to be resumed. A cheap read."""

    def claim_lost(self, lease: float, *, now: float | None) -> LostWorker | None:
        """Claim a worker that has left, or that is dead at the time `now` of the clock of the store; None where there is none.

        A lease is over after its end, and also where it begins later than `now` plus its length: the clock of the store was
        set back. No other process claims the worker for `lease` seconds. It is lost until it renews its own lease.

        Parameters:
            lease: of the claim, in seconds.
            now: None: only a worker that has left.
        """

    def runs_of(self, worker: str) -> tuple[HeldRun, ...]:
        """The runs that `worker` holds the tokens of."""

    def holds(self, token: RunToken) -> bool:
        """Whether the token is current."""

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """Resume a run of another worker: store `request` and `events`, and replace its token by one of this worker.

        Raises:
            RunRevoked: another worker has resumed it, or it has ended.
        """

    def deregister(self, worker: str) -> None:
        """Remove a worker that this one has claimed and that holds no run, unless it has renewed its lease since."""

    def register_missing(self, lease: float) -> None:
        """Add each worker that holds the token of a run and was removed before, with a lease of so many seconds from now on.

        A statement may take effect after its process has died, and a process may go on after it was taken for dead.
        """


# -- optional parts: webhooks, contexts --


#: The cursor of a webhook that begins with the task as it is.
SNAPSHOT = -1


class TooManyWebhooks(A2AError):
    """The task has as many webhooks as it may have; nothing was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """A webhook as it is stored: a push configuration, and how far its deliveries have got.

    Attributes:
        number: its position among the webhooks of its task.
        version: the protocol version in which it was set; notifications are written in it.
        revision: how often it was set.
        cursor: the number of the last entry that was delivered.
        head: the number of the last entry of the task.
        tries: failed deliveries of the next entry.
        due_ms: when the next attempt is due, in milliseconds since 1970.
        disabled: why deliveries have stopped; empty while they have not.
        error, error_ms: why the last failed delivery failed, and when, in milliseconds since 1970; they are kept after a later
            success, and when the webhook is set again. The error can name what is in the network of the server, which only
            operators may know.
        open: entries may still come, or are still to be delivered.
        holder: the deliverer that has claimed it; empty while none has.
    """

    owner: Owner
    config: TaskPushNotificationConfig
    number: int
    version: str
    revision: int
    cursor: int
    head: int
    tries: int = 0
    due_ms: int = 0
    disabled: str = ""
    error: str = ""
    error_ms: int = 0
    open: bool = True
    holder: str = ""

    @property
    def behind(self) -> bool:
        """Whether there are entries to deliver."""
        return self.open and self.cursor < self.head

    @property
    def task_id(self) -> str:
        """The id of its task."""
        return self.config.task_id

    @property
    def id(self) -> str:
        """Its id among the webhooks of the task."""
        return self.config.id


class Webhooks(Protocol):
    """The webhooks of tasks. All methods raise as those of `TaskStore` do.

    A webhook is deleted with its task. Its cursor is a position in the log of the task, so the log holds what is still to be
    delivered; `push` decides when. The webhook of a send is stored by `TaskStore.start_run` in the same transaction, with a
    cursor before the run. A log is not compacted while one of its webhooks is behind.

    One deliverer at a time claims a webhook. The claims of a worker that has died (see `Workers`) are void.
    """

    def put(self, owner: Owner, webhook: Webhook, *, most: int) -> None:
        """Add a webhook to its task, or replace the one with its id.

        A new one begins with the task as it is (`SNAPSHOT`). A replaced one keeps its number and its cursor; it is enabled
        again and has no failed tries.

        Raises:
            TooManyWebhooks: it would be one more than `most`.
        """

    def of_task(self, owner: Owner, task_id: str) -> tuple[StoredWebhook, ...]:
        """All webhooks of a task, in the order in which they were added."""

    def delete(self, owner: Owner, task_id: str, webhook_id: str) -> None:
        """Remove a webhook; no error where it does not exist."""

    def due(self, *, now_ms: int, limit: int = 100) -> tuple[StoredWebhook, ...]:
        """Webhooks of all owners that are behind, due and not claimed: one of each owner in turn.

        The webhooks of one owner are in the order in which they are due.
        """

    def claim(self, webhook: StoredWebhook, holder: str) -> StoredWebhook | None:
        """Claim a webhook, or renew the claim; returns it as it is now. None: another deliverer has claimed it, or it is not behind.

        In a shared store `holder` begins with the id of a worker that is alive, and a dot.
        """

    def settle(self, webhook: StoredWebhook, *, release: bool = False) -> bool:
        """Store ``cursor``, ``tries``, ``due_ms``, ``disabled`` and the last error of a claimed webhook; with `release` end the claim.

        False, and nothing is stored, where it was removed, was set again, or has been claimed by another deliverer.
        """

    def release(self, holder: str) -> None:
        """End all claims of `holder`; what it settles later is refused."""


#: The names of the values of a context: its state, its memory, the task whose turn it is, and why nothing happens in a run.
STATE, MEMORY, TURN, STACK = "", "memory", "turn", "stack"


def pending_name(task_id: str) -> str:
    """The name of the value of a context that is removed as soon as this task has ended."""
    return f"pending {task_id}"


class StoredState(NamedTuple):
    """A value of a context, and its version: how often it was set."""

    body: bytes = b"{}"
    version: int = 0


class StateConflict(StoreConflict):
    """The value of the context is not the expected version; ``current`` is the value."""

    def __init__(self, current: StoredState) -> None:
        super().__init__(f"the value of the context has version {current.version}")
        self.current = current


class Contexts(Protocol):
    """The values of each context, by name: small, and shared by the runs of all its tasks.

    A context belongs to one owner; the same id of another owner is another context. Its values are removed with its last
    task, and the value named `pending_name` of a task as soon as the task has ended or is removed. `agent.state` and
    `agent.memory` decide what the values hold, and how runs that change one at the same time merge.
    """

    def state(self, owner: Owner, context_id: str, name: str = STATE) -> StoredState:
        """A value of a context; ``{}`` of version 0 where it was never set or the context does not exist."""

    def set_state(self, token: RunToken, body: bytes, *, expected: int, name: str = STATE) -> None:
        """Replace a value of the context of the token's task, if its version is `expected`; its version is then one more.

        Raises:
            StateConflict: another run has changed it.
            RunRevoked: the token is not current, or the task is gone.
        """


# -- optional part: inspection --


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """A task as operators see it. Tasks of all owners have one order: ``position`` increases with each task that is created.

    ``bytes`` are stored of the task. ``worker`` holds its run: empty while it has none, or where one process uses the store.
    """

    position: int
    owner: Owner
    id: str
    context_id: str
    state: TaskState
    status_ms: int
    created_ms: int
    version: int
    bytes: int
    running: bool
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryQuery:
    """Which tasks to summarise: filters, then a page of `size` that begins before the position `before` (None: at the newest).

    ``since_ms`` (inclusive) and ``until_ms`` (exclusive) bound the time of creation.
    """

    owner: Owner | None = None
    state: TaskState | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    before: int | None = None
    size: int = 50


class WebhookCounts(NamedTuple):
    """The deliveries of a store: webhooks that are behind, entries that they have still to receive, and stopped webhooks."""

    behind: int = 0
    entries: int = 0
    stopped: int = 0


class RunCounts(NamedTuple):
    """The unfinished work of a store: tasks that were stored and wait for their run, and tasks that are being worked on.

    ``since_ms`` is when the longest waiting one was stored, in milliseconds since 1970; None where none waits.
    """

    queued: int = 0
    working: int = 0
    since_ms: int | None = None


class WorkerSummary(NamedTuple):
    """A process that shares a store, as operators see it.

    Parameters:
        id: of the worker, which the tokens of its runs begin with.
        name: host and process, where the store knows them.
        age_s: seconds since its last heartbeat, by the clock of the store; None where it is lost, or the store has no clock.
        left: it has left, was copied, or was found dead; its runs are taken over.
        runs: how many runs it holds.
    """

    id: str
    name: str
    age_s: float | None
    left: bool
    runs: int


class Inspection(Protocol):
    """Reads across all owners, for operators: a console, a status command. Never for calls of clients."""

    def counts(self) -> dict[Owner, dict[TaskState, int]]:
        """The number of tasks of each owner in each state; owners and states without tasks are left out."""

    def tasks(self, query: SummaryQuery) -> tuple[TaskSummary, ...]:
        """A page of tasks, newest first. Fewer than ``query.size``: there are no more."""

    def size(self) -> int:
        """The bytes that the store takes."""

    def run_counts(self) -> RunCounts:
        """How much work is queued and under way; cheap enough to be asked every few seconds."""

    def webhook_counts(self) -> WebhookCounts:
        """How many deliveries are pending, and how many webhooks have stopped."""

    def workers(self) -> tuple[WorkerSummary, ...]:
        """The processes that share the store; none where one process uses it."""

    def webhooks(self, *, stopped: bool, size: int = 50) -> tuple[StoredWebhook, ...]:
        """Webhooks whose deliveries have stopped, or those that are behind; the newest error first, at most `size`."""


# -- the store --

#: A part of a store, or None.
PartT = TypeVar("PartT")


def require(part: PartT | None, name: str) -> PartT:
    """`part`, which a store may lack.

    Raises:
        StoreError: it is None.
    """
    if part is None:
        raise StoreError(f"the store has no part {name!r}, which this needs")
    return part


class TaskVersion(NamedTuple):
    """How far a task has got: its highest entry number, and whether a run holds its token."""

    version: int
    running: bool


class TaskStore(Protocol):
    """One backend. All methods raise `TaskNotFoundError` for tasks that the owner does not have, `StoreError` for faults.

    `owner` is the owner of the tasks. The parts are optional: a store has None where it lacks one, and what needs the part
    is refused. A class that derives from this protocol inherits None for each part, and the default of `new_task_id`.
    """

    @property
    def queues_chunks(self) -> bool:
        """`append` waits for a disk or a network, so a run queues pieces of streamed text and stores several in one call."""
        return True

    @property
    def contexts(self) -> Contexts | None:
        """The values of each context, which its tasks share. Without them handlers have no state and no memory."""
        return None

    @property
    def webhooks(self) -> Webhooks | None:
        """The webhooks of its tasks: where push notifications go. Without them an app cannot have ``push``."""
        return None

    @property
    def workers(self) -> Workers | None:
        """The processes that share the store; None where one process uses it."""
        return None

    @property
    def inspection(self) -> Inspection | None:
        """Reads across all owners, for operators."""
        return None

    def pubsub(self) -> PubSub | None:
        """A new connection for messages to the other processes; None where the store has no way to send them."""
        return None

    def new_task_id(self, owner: Owner) -> str:
        """The id of a task that `owner` is about to create: any text that fits into a path and that no other task has."""
        return new_id()

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
        """Begin a run on ``request.task_id``: store the request and `events` (the user's message first) in one transaction.

        With `create` the task is added; otherwise it must exist, and a task with entries after number `after` is refused, unless
        that is None. The idempotency key of the request and its webhook are kept
        as long as the task, unless the webhook is deleted or replaced.

        Parameters:
            owner: the owner of the task.
            request: what the run works on, with the id of its task.
            events: the first entries of the run.
            create: the task is new.
            after: the number of the newest entry that the caller has read.
            quota: how much may be stored.

        Where `quota` or the store's own bound is reached, tasks without a run are evicted: of one owner the task that ended
        first, then the one that has waited longest for its client; for the store's bound, of the owner that has most tasks.
        Quotas count by the id of the owner, over all its tenants.

        Raises:
            AlreadySent: the owner has a send with the key of the request; this is checked first.
            TaskExists: the task was to be created and exists.
            TaskBusy: a run holds the token, or the task has entries after number `after`.
            TaskEnded: the task is terminal.
            TaskFull, OwnerFull: it is more than `quota` allows.
        """

    def sent(self, owner: Owner, key: str) -> SentRun | None:
        """The outcome of the owner's send with this idempotency key; None when there was none."""

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """Append for the holder of `token`; `end` frees the token in the same transaction. `events` may be empty.

        An event that ends its run (`lifecycle.ends_run`: a terminal state, a question) frees the token in any case.

        Raises:
            RunRevoked: the token is not current, or the task is gone.
            TaskFull: the task would have more than `max_task_bytes`; nothing was stored.
        """

    def interrupt(self, owner: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """Append without a token and revoke the current one (cancel, time limit, lost worker).

        Raises:
            TaskEnded: the task is terminal.
        """

    def head(self, owner: Owner, task_id: str) -> TaskHead:
        """The task without its log, by one cheap read."""

    def versions(self, task_ids: Collection[str]) -> dict[str, TaskVersion]:
        """How far these tasks have got, of any owner, by one read; those that do not exist are left out."""

    def request(self, owner: Owner, task_id: str) -> HeldRequest | None:
        """The request of the run that holds the token, and the state of its task; None when there is no run."""

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
        """The folded task.

        Parameters:
            owner, task_id: the task.
            history: how many of the newest messages to include; None: all.
            artifacts: include the artifacts.
            max_bytes: older messages are left out where the task would have more; the rest of it is never cut.
            refuse_above: see `LargeResult`.

        Raises:
            LargeResult: more than `refuse_above` bytes are stored of the task; nothing was read.
        """

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
        """The next entries of a task, in order; of a compacted part, its messages.

        Parameters:
            owner, task_id: the task.
            after: entries with higher numbers are read.
            limit: how many at most.
            max_bytes: the page ends before the entry with which it would hold more, but has at least one entry.
            refuse_above: see `LargeResult`.

        Raises:
            LargeResult: the large events above `after`, those of more than `LOG_PAGE_BYTES` each, have more than `refuse_above`
                bytes together, also those of later pages. Messages do not count.
        """

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        """A page of the owner's tasks, newest status first.

        Raises:
            LargeResult: more than ``query.refuse_above`` bytes are stored of the tasks of the page, or would be read for its filters
                (`TaskQuery.check_search`); none was read.
        """

    def delete(self, owner: Owner, task_id: str) -> None:
        """Remove a task with everything that belongs to it."""

    def sweep(self, expiry: Expiry, *, limit: int = 100) -> SweepResult:
        """Remove and compact what has expired, at most `limit` tasks of each, so that one call is bounded.

        Compaction changes nothing in the results of `head`, `load`, `list` and `request` but ``TaskHead.compacted``.
        """

    def close(self) -> None:
        """Close connections and files. Idempotent; the store opens them again when it is used again."""


# -- what all stores share ----------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The effect of a batch of events on the head of a task.

    ``status`` is the newest one (None: unchanged), ``metadata`` is what status events add to that of the task, ``messages``
    and ``artifacts`` are the numbers of messages and of artifact events, and ``ends`` says whether one of the events ends the
    run.
    """

    status: TaskStatus | None
    metadata: dict[str, JSON]
    messages: int
    artifacts: int
    ends: bool


def outcome(events: Iterable[LogEvent]) -> Outcome:
    """The effect of `events` in their order."""
    status: TaskStatus | None = None
    metadata: dict[str, JSON] = {}
    messages = artifacts = 0
    ends = False
    for event in events:
        if isinstance(event, TaskStatusUpdateEvent):
            status = event.status
            metadata.update(event.metadata)
            ends = ends or ends_run(event)
        elif isinstance(event, TaskArtifactUpdateEvent):
            artifacts += 1
        else:
            messages += 1
    return Outcome(status, metadata, messages, artifacts, ends)


def folded(head: TaskHead, history: Iterable[Message], artifacts: ArtifactFold) -> Task:
    """The task made of a head and the parts of its log that were read."""
    return Task(
        id=head.id,
        context_id=head.context_id,
        status=head.status,
        artifacts=artifacts.artifacts(),
        history=tuple(history),
        metadata=head.metadata,
    )


def not_found(task_id: str) -> TaskNotFoundError:
    """The one error for tasks that do not exist and tasks of another owner (spec 3.3.2, 13.1)."""
    return TaskNotFoundError(f"Task not found: {task_id[:100]}")


def revoked(token: RunToken) -> RunRevoked:
    """The error for a write with a token that is not current."""
    return RunRevoked(f"the run on task {token.task_id} is no longer current")


def too_large(task_id: str, size: int, most: int) -> TaskFull:
    """The error for a write after which a task would have `size` bytes."""
    return TaskFull(f"task {task_id} would hold {size} bytes, more than {most}")


def check_open(task_id: str, state: TaskState) -> None:
    """Raises `TaskEnded` for a terminal task."""
    if state.terminal:
        raise TaskEnded(f"task {task_id} is {state}")


def check_startable(task_id: str, state: TaskState, *, running: bool, version: int, after: int | None) -> None:
    """Check whether a run may begin on a task, see `TaskStore.start_run`.

    Raises:
        TaskEnded: the task is terminal.
        TaskBusy: it has a run, or its newest entry, `version`, is later than `after`.
    """
    check_open(task_id, state)
    if running:
        raise TaskBusy(f"a run on task {task_id} goes on")
    if after is not None and version > after:
        raise TaskBusy(f"task {task_id} has entries after number {after}")


def time_ms(moment: datetime | None) -> int:
    """Milliseconds since 1970, rounded down; 0 for None. ListTasks orders by it."""
    if moment is None:
        return 0
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000
