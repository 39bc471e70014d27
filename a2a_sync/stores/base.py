"""What every store offers: tasks as head rows and logs of numbered entries.

The store is the truth. It judges three things only: whether the caller's scope owns the task, whether the task is
terminal, and whether a run's token is still the current one. Which entries are legal is decided before, in `execution`.
Every method may be called from any thread, takes no callbacks and holds no lock when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.lifecycle import ArtifactFold, Entry, LogEvent, ends_run
from a2a_sync.operations import RunRequest
from a2a_sync.types import (
    JSON,
    Message,
    Metadata,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from a2a_sync.stores import contexts as _contexts
    from a2a_sync.stores import webhooks as _webhooks
else:
    _contexts = LazyModule("a2a_sync.stores.contexts")
    _webhooks = LazyModule("a2a_sync.stores.webhooks")


class Owner(NamedTuple):
    """Whose tasks are meant: a tenant and an owner, both ``""`` where there are none. Another scope's tasks do not exist."""

    tenant: str = ""
    id: str = ""


class RunToken(NamedTuple):
    """The right to append to one task, until the run ends or somebody interrupts it."""

    task_id: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHead:
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

    ``forgotten`` are the tasks that had to make room and waited for their client: whoever follows them must be told.
    """

    token: RunToken
    head: TaskHead
    entries: tuple[Entry, ...]
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A folded task, the version it was folded at, and whether a run goes on."""

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
    """A place in the order of ListTasks: status time in milliseconds, then id, both descending."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """A page of tasks, the cursor behind it (None: the last page) and the number of all that match."""

    tasks: tuple[Task, ...]
    next: Cursor | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What is too old to keep. Times are milliseconds since 1970; None: nothing is.

    They are compared with the moment at which a task's newest run ended; a task with a run is never touched. Terminal tasks
    older than ``ended`` are removed, and tasks older than ``waiting`` that wait for their client. Of those older than
    ``replay`` the log is compacted, if it has at least `COMPACT_FROM` entries more than after the last time. Runs that seem
    to have ended after ``now`` ended while the clock was wrong: they count as ended now.
    """

    now: int | None = None
    ended: int | None = None
    waiting: int | None = None
    replay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did. ``more`` is left for the next; ``forgotten`` as in `StartedRun`."""

    removed: int
    compacted: int
    more: bool
    forgotten: tuple[str, ...] = ()


#: Bytes of a page of a log that is read for a stream or a webhook; a larger entry is a page of its own.
LOG_PAGE_BYTES = 1024 * 1024

#: A shorter log is not compacted: its entries take little more room than their sum does.
COMPACT_FROM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuota:
    """How much a run that is started may add to a store: bytes of its task; tasks and bytes of its owner. None: no bound."""

    max_task_bytes: int | None = None
    max_tasks: int | None = None
    max_bytes: int | None = None


UNBOUNDED = StoreQuota()


class StoreConflict(Exception):
    """A write that the store refuses; nothing was stored."""


class TaskExists(StoreConflict):
    """A task with this id is there already (in whatever scope)."""


class TaskBusy(StoreConflict):
    """Another run holds the token."""


class TaskFull(StoreConflict):
    """The task would hold more bytes than it may."""


class OwnerFull(StoreConflict):
    """The owner's tasks would hold more bytes than they may, and those without a run are too few to make room.

    ``forgotten`` are tasks that were evicted all the same and waited for their client, as in `StartedRun`.
    """

    def __init__(self, message: str, forgotten: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.forgotten = forgotten


class TaskEnded(StoreConflict):
    """The task is terminal."""


class RunRevoked(StoreConflict):
    """The token is no longer current: the task was cancelled, timed out, or taken over."""


class SentRun(NamedTuple):
    """What became of a send with a key: its task, the last entry stored with its start, and its fingerprint."""

    task_id: str
    number: int
    fingerprint: str


class AlreadySent(StoreConflict):
    """A send with this key was stored before; ``run`` says what became of it."""

    def __init__(self, run: SentRun) -> None:
        super().__init__(f"this send has begun a run on task {run.task_id}")
        self.run = run


class HeldRun(NamedTuple):
    """A run that some worker holds the token of. ``left``: the worker has handed it over in good order."""

    scope: Owner
    token: RunToken
    left: bool = False


class Workers(Protocol):
    """The processes that share a store: who is alive, and what the dead have left behind.

    A worker is alive while its count goes up; clocks are not compared. Every run's token names its worker.
    """

    @property
    def id(self) -> str:
        """This process, in tokens; another one after a fork."""

    @property
    def meeting_place(self) -> str:
        """A path that all processes which share the store have in common."""

    def mark(self) -> object:
        """A value that is another one after every write of any process; None where it cannot be told. Cheap."""

    def beat(self) -> None:
        """This process is alive: count one up. It enters the worker first, if need be.

        Must not wait for other threads of the process; under gevent it is called on a real one.
        """

    def leave(self) -> None:
        """This process starts no more runs, and what it still holds may be taken over at once."""

    def beats(self) -> dict[str, int]:
        """The counts of all workers; -1 for those that have left."""

    def runs_of(self, worker: str) -> tuple[HeldRun, ...]:
        """The runs that `worker` holds the tokens of."""

    def holds(self, token: RunToken) -> bool:
        """The token is current."""

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """Take a run over: store `request` and `events` with a token of this worker in place of the run's.

        Raises:
            RunRevoked: somebody else was quicker.
        """

    def dismiss(self, worker: str) -> None:
        """Forget a worker that holds no run."""


class TaskStore(Protocol):
    """One backend. Reads and writes raise `TaskNotFoundError` for tasks outside the scope, `StoreError` for faults."""

    #: Other processes see the same tasks.
    shared: bool

    @property
    def workers(self) -> Workers | None:
        """The processes that do; None where the store is not shared."""

    @property
    def webhooks(self) -> _webhooks.Webhooks:
        """Where push notifications of its tasks go."""

    @property
    def contexts(self) -> _contexts.Contexts:
        """What the tasks of one context have in common."""

    def start_run(
        self,
        scope: Owner,
        request: RunRequest,
        events: Sequence[LogEvent],
        *,
        create: bool,
        quota: StoreQuota = UNBOUNDED,
    ) -> StartedRun:
        """Begin a run on ``request.task_id``: store the request and `events` (the user's message first) in one step.

        With `create` the task is made; otherwise it must exist. The key of the request is kept as long as the task, and so
        is its webhook, unless it is deleted or replaced.

        Tasks without a run are evicted where `quota` or the store's own bound asks for it: of those of one owner the task
        that ended first, then the one that has waited longest for its client; for the store's bound, of the owner that has
        most tasks. An owner is what `quota_owner` makes of a scope, whatever its tenant.

        Raises:
            AlreadySent: the scope has a send with the request's key; this is judged first.
            TaskExists: the task was to be created and is there already.
            TaskBusy: a run holds the token.
            TaskEnded: the task is terminal.
            TaskFull, OwnerFull: it is more than `quota` allows.
        """

    def sent(self, scope: Owner, key: str) -> SentRun | None:
        """What became of the scope's send with this key; None when there was none."""

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """Append for the holder of `token`; `end` frees the token in the same step. `events` may be empty.

        An event that ends its run (`lifecycle.ends_run`: a terminal state, a question) frees it in any case.

        Raises:
            RunRevoked: the token is not current, or the task is gone.
            TaskFull: the task would have more than `max_task_bytes`; nothing was stored.
        """

    def interrupt(self, scope: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """Append without a token and void the current one (cancel, time limit, lost worker).

        Raises:
            TaskEnded: the task is terminal.
        """

    def head(self, scope: Owner, task_id: str) -> TaskHead:
        """The task without its log: one cheap read."""

    def request(self, scope: Owner, task_id: str) -> RunRequest | None:
        """What the run that holds the token was started with; None when no run does."""

    def load(
        self,
        scope: Owner,
        task_id: str,
        *,
        history: int | None = None,
        artifacts: bool = True,
        max_bytes: int | None = None,
    ) -> StoredTask:
        """The folded task. `history` is how many of the newest messages to include (None: all).

        Of these, only the newest are read that fit into `max_bytes` beside what else the task holds, which is never cut.
        """

    def log(
        self, scope: Owner, task_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> LogPage:
        """At most `limit` entries with numbers above `after`, in order; of a compacted part, its messages.

        The page ends before the entry with which it would hold more than `max_bytes`, but not before its first entry.
        """

    def list(self, scope: Owner, query: TaskQuery) -> TaskPage:
        """A page of the scope's tasks, newest status first."""

    def delete(self, scope: Owner, task_id: str) -> None:
        """Remove a task with everything that belongs to it."""

    def sweep(self, expiry: Expiry, *, limit: int = 100) -> Swept:
        """Remove and compact what has expired, at most `limit` tasks of each: what one call does is bounded.

        Compacting changes nothing of what `head`, `load`, `list` and `request` give, but for ``TaskHead.compacted``.
        """

    def close(self) -> None:
        """Free connections and files. Idempotent; the store opens them again when used again."""


# -- what all stores share ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What a batch of events does to a task's head.

    ``status`` is the newest of the batch (None: unchanged), ``metadata`` what its status events add to the task's,
    ``artifacts`` how many artifact events it holds, ``ends`` whether one of them ends the run.
    """

    status: TaskStatus | None = None
    metadata: dict[str, JSON] = field(default_factory=dict)
    artifacts: int = 0
    ends: bool = False


def outcome(events: Iterable[LogEvent]) -> Outcome:
    """What `events` do, one after the other."""
    result = Outcome()
    for event in events:
        if isinstance(event, TaskStatusUpdateEvent):
            result.status = event.status
            result.metadata.update(event.metadata)
            result.ends = result.ends or ends_run(event)
        elif isinstance(event, TaskArtifactUpdateEvent):
            result.artifacts += 1
    return result


def folded(head: TaskHead, history: Iterable[Message], artifacts: ArtifactFold) -> Task:
    """The task that a head and the parts of its log that were read add up to."""
    return Task(
        id=head.id,
        context_id=head.context_id,
        status=head.status,
        artifacts=artifacts.artifacts(),
        history=tuple(history),
        metadata=head.metadata,
    )


def not_found(task_id: str) -> TaskNotFoundError:
    """The one answer for tasks that do not exist and tasks of another scope (spec 3.3.2, 13.1)."""
    return TaskNotFoundError(f"Task not found: {task_id[:100]}")


def time_ms(moment: datetime | None) -> int:
    """Milliseconds since 1970, cut, not rounded; 0 for None. ListTasks orders by it."""
    if moment is None:
        return 0
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000
