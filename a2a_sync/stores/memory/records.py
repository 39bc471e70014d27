"""The data of a `MemoryStore`: a record for each task with its head and log, and the tasks and bytes of each owner."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from a2a_sync.concurrency import clock
from a2a_sync.lifecycle import NO_STATUS, ArtifactFold, Entry
from a2a_sync.operations import RunRequest
from a2a_sync.sizes import artifact_size, entry_size, fit, message_size
from a2a_sync.stores.base import (
    COMPACT_FROM,
    LOG_PAGE_BYTES,
    Expiry,
    LogPage,
    Outcome,
    Owner,
    SentRun,
    StoredState,
    StoredWebhook,
    TaskHead,
    folded,
    pending_name,
    time_ms,
)
from a2a_sync.stores.memory.packing import (
    ARTIFACT,
    KINDS,
    MESSAGE,
    ROLES,
    STATES,
    STATUS,
    Packed,
    unpack,
    unpack_artifact,
    unpack_message,
    unpack_status,
)
from a2a_sync.types import Artifact, Message, Metadata, Task, TaskState


@dataclass(eq=False, repr=False, slots=True)
class Account:
    """The tasks and bytes of one owner, summed over all tenants and all agents of a host: see `quota_owner`."""

    name: str
    tasks: int = 0
    bytes: int = 0
    #: Ids in the order in which the tasks ended. It may contain ids of tasks that were deleted since.
    ended: deque[str] = field(default_factory=deque)
    waiting: OrderedDict[str, None] = field(default_factory=OrderedDict)


class Accounts:
    """The accounts of all owners, by name and by number of tasks. No operation gets slower with more owners."""

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}
        #: Accounts by number of tasks, each group in the order in which the accounts reached that number.
        self._by_tasks: dict[int, dict[str, Account]] = {}
        self._most = 0

    def of(self, name: str) -> Account:
        """The account of an owner. A new one is stored when its first task is added."""
        return self.by_name.get(name) or Account(name)

    def change(self, account: Account, tasks: int) -> None:
        """Add `tasks` (1 or -1) to an account."""
        old, new = account.tasks, account.tasks + tasks
        if old:
            same = self._by_tasks[old]
            del same[account.name]
            if not same:
                del self._by_tasks[old]
        account.tasks = new
        if new:
            self.by_name[account.name] = account
            self._by_tasks.setdefault(new, {})[account.name] = account
        else:
            self.by_name.pop(account.name, None)
        if new > self._most or (old == self._most and old not in self._by_tasks):
            self._most = new

    def largest_first(self) -> Iterator[Account]:
        """All accounts with tasks, those with the most tasks first."""
        for tasks in range(self._most, 0, -1):
            yield from self._by_tasks.get(tasks, {}).values()


@dataclass(eq=False, repr=False, slots=True)
class Owned:
    """The tasks of one owner, its sends by idempotency key, and its contexts: the ids of their tasks, and their values."""

    owner: Owner
    account: Account
    tasks: dict[str, Record] = field(default_factory=dict)
    sends: dict[str, SentRun] = field(default_factory=dict)
    # Most contexts have one task; its id is stored without a set.
    contexts: dict[str, str | dict[str, None]] = field(default_factory=dict)
    #: The values of each context, by name.
    states: dict[str, Mapping[str, StoredState]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add a task."""
        task_id, context_id = record.id, record.context_id
        self.tasks[task_id] = record
        known = self.contexts.get(context_id)
        if known is None:
            self.contexts[context_id] = task_id
        elif isinstance(known, str):
            self.contexts[context_id] = {known: None, task_id: None}
        else:
            known[task_id] = None

    def remove(self, record: Record) -> None:
        """Remove a task, and the values of its context with the last task of the context."""
        task_id, context_id = record.id, record.context_id
        del self.tasks[task_id]
        for key in record.keys:
            del self.sends[key]
        known = self.contexts[context_id]
        if not isinstance(known, str):
            del known[task_id]
        if not known or known == task_id:
            del self.contexts[context_id]
            values = self.states.pop(context_id, {})
            self.account.bytes -= sum(len(value.body) for value in values.values())
        else:
            self.remove_pending(record)

    def remove_pending(self, record: Record) -> None:
        """Remove the value of the context that exists only until the task ends."""
        context_id, name = record.context_id, pending_name(record.id)
        values = self.states.get(context_id, {})
        if name in values:
            self.account.bytes -= len(values[name].body)
            self.states[context_id] = {key: value for key, value in values.items() if key != name}

    def of_context(self, context_id: str) -> list[Record]:
        """The tasks of a context."""
        known = self.contexts.get(context_id, ())
        return [self.tasks[task_id] for task_id in ((known,) if isinstance(known, str) else known)]


class Base(NamedTuple):
    """The remains of the compacted part of a log: its messages with their numbers and times, and its folded artifacts."""

    messages: tuple[tuple[int, Packed, int], ...] = ()
    artifacts: tuple[Artifact, ...] = ()


#: Version, ``compacted``, ``running``, the newest status event, metadata.
_HeadState: TypeAlias = tuple[int, int, bool, Packed | None, Metadata | None]
_TERMINAL = {name for name, state in STATES.items() if state.terminal}
_NOTHING = Base()
#: From this number of messages on, `RecentHistories` has the history of a task; tasks with more than the second number, or more
#: bytes, are unpacked each time. So it has some megabytes at most.
_LONG_HISTORY, _MOST_MESSAGES, _MOST_HISTORIES, _MOST_BYTES = 32, 2_500, 8, 1024 * 1024
#: Bytes of a number in a stamp, which is a time and a size.
_NUMBER = 6
_STAMP = 2 * _NUMBER
#: The entries of a log that is stored as a tuple, which the garbage collector does not traverse and an append copies.
_SHORT_LOG = 32


@dataclass(eq=False, repr=False, slots=True)
class Record:
    """One task. ``events`` are the entries after ``base`` and are only appended to; ``head`` says how many are valid.

    Writers hold the lock of the store. Readers hold no lock and read the head first. Compaction creates a new record. A full
    garbage collection stops every request of the process, and traverses one object of each task: the record; see `packing`.
    """

    owned: Owned
    id: str
    context_id: str
    #: The number of the task among all tasks.
    position: int
    #: When its first entry was stored, in milliseconds since 1970.
    created_ms: int = 0
    base: Base = _NOTHING
    #: A tuple up to `_SHORT_LOG` entries, a list beyond.
    events: tuple[Packed, ...] | list[Packed] = ()
    #: When each of them was stored, in milliseconds, and its bytes. The garbage collector skips such an object.
    stamps: bytearray = field(default_factory=bytearray)
    #: The numbers and bytes of those that are no messages and have more than `LOG_PAGE_BYTES`.
    large: tuple[tuple[int, int], ...] = ()
    messages: int = 0
    artifacts: int = 0
    bytes: int = 0
    #: What changes of ``head``, replaced as a whole: version, ``compacted``, ``running``, the newest status event, metadata.
    _state: _HeadState = (0, 0, True, None, None)
    #: The members of a `Cursor`.
    order: tuple[int, str] = field(init=False)
    #: The end of the newest run, in seconds since 1970.
    rest: float = 0.0
    #: Idempotency keys of the sends that started its runs.
    keys: tuple[str, ...] = ()
    token: str = ""  # no run holds the task yet  # nosec B105
    request: RunRequest | None = None
    webhooks: tuple[StoredWebhook, ...] = ()

    def __post_init__(self) -> None:
        self.order = (0, self.id)

    @property
    def head(self) -> TaskHead:
        """The task without its log, as of now."""
        version, compacted, running, event, metadata = self._state
        status = NO_STATUS if event is None else unpack_status(event, self.id, self.context_id)
        return TaskHead(self.id, self.context_id, status, version, running, metadata or {}, compacted)

    @property
    def version(self) -> int:
        """That of the head."""
        return self._state[0]

    @property
    def state(self) -> TaskState:
        """That of the head."""
        event = self._state[3]
        return TaskState.UNSPECIFIED if event is None else STATES[event[2]]

    @property
    def terminal(self) -> bool:
        """The task is in a terminal state."""
        event = self._state[3]
        return event is not None and event[2] in _TERMINAL

    # -- writing --

    def take(self, events: Sequence[Packed], sizes: Sequence[int], change: Outcome, *, running: bool) -> int:
        """Append `events`, of so many bytes each, then replace the head: readers rely on this order. The number of the first."""
        version, compacted, _, event, metadata = self._state
        now = clock.time_ns()
        time, size = (now // 1_000_000).to_bytes(_NUMBER, "big"), sum(sizes)
        for number, (packed, one) in enumerate(zip(events, sizes, strict=True), version + 1):
            self.stamps += time + one.to_bytes(_NUMBER, "big")
            if one > LOG_PAGE_BYTES and packed[0] != MESSAGE:
                self.large += ((number, one),)
        self.bytes += size
        self.owned.account.bytes += size
        known = self.events
        if isinstance(known, list):
            known.extend(events)
        elif len(known) + len(events) <= _SHORT_LOG:
            self.events = (*known, *events)
        else:
            self.events = [*known, *events]
        self.artifacts += change.artifacts
        self.messages += change.messages
        if not version:
            self.created_ms = now // 1_000_000
        if change.status is not None:
            event = next(packed for packed in reversed(events) if packed[0] == STATUS)
            self.order = (time_ms(change.status.timestamp), self.id)
        if not running:
            self.rest = now / 1e9
        if change.metadata:
            metadata = {**(metadata or {}), **change.metadata}
        self._state = (version + len(events), compacted, running, event, metadata)
        return version + 1

    def compact(self) -> Record:
        """A record of the same task that keeps only the messages of its log, and its folded artifacts; without its webhooks."""
        head = self.head
        first = head.compacted + 1
        events = itertools.islice(self.events, head.version - head.compacted)
        new_messages = ((first + n, event, self._time(n)) for n, event in enumerate(events) if event[0] == MESSAGE)
        messages = (*self.base.messages, *new_messages)
        base = Base(messages, self._fold_artifacts(head).artifacts())
        new = Record(self.owned, self.id, self.context_id, self.position, self.created_ms, base)
        new._state = (head.version, head.version, *self._state[2:])
        new.messages, new.artifacts, new.order = self.messages, self.artifacts, self.order
        new.rest, new.keys = self.rest, self.keys
        new.bytes = sum(map(message_size, new.messages_before(head))) + sum(map(artifact_size, base.artifacts))
        return new

    # -- age --

    def expired(self, expiry: Expiry) -> bool:
        """A sweep with `expiry` removes the task."""
        return self._rests_since(expiry.ended if self.terminal else expiry.waiting)

    def compactable(self, expiry: Expiry) -> bool:
        """A sweep with `expiry` compacts the log: it is long enough, old enough, and no webhook still needs it."""
        head = self.head
        if head.version - head.compacted < COMPACT_FROM or not self._rests_since(expiry.replay):
            return False
        return not any(webhook.open and webhook.cursor < head.version for webhook in self.webhooks)

    def clamp_end_time(self, now: int | None) -> None:
        """Set the end of the newest run to `now` where it is later (the clock was wrong)."""
        if now is not None and self.rest * 1000 > now:
            self.rest = now / 1000

    def _rests_since(self, moment: int | None) -> bool:
        return moment is not None and not self.token and int(self.rest * 1000) < moment

    # -- reading --

    def page(self, after: int, limit: int, max_bytes: int | None = None) -> LogPage:
        """See `TaskStore.log`."""
        head = self.head
        entries = self._entries(head, after, limit)
        if max_bytes is not None and self.bytes > max_bytes:
            entries = _within(entries, max_bytes)
        return LogPage(
            entries=tuple(entries),
            version=head.version,
            state=head.status.state,
            running=head.running,
            compacted=head.compacted,
        )

    def fold(
        self,
        head: TaskHead,
        history: int | None,
        artifacts: bool,
        max_bytes: int | None = None,
        recent: RecentHistories | None = None,
    ) -> Task:
        """The task as of `head`, with the newest messages that fit into `max_bytes`; `recent` has those read before."""
        fold = self._fold_artifacts(head) if artifacts and self.artifacts else ArtifactFold()
        wanted = self.messages if history is None else min(history, self.messages)
        if recent is not None and wanted >= max(_LONG_HISTORY, self.messages // 2):
            messages: Iterable[Message] = recent.read(self, head)[-wanted:]
        else:
            messages = reversed(list(itertools.islice(self._messages_backwards(head), max(wanted, 0))))
        task = folded(head, messages, fold)
        return task if max_bytes is None or self.bytes <= max_bytes else fit(task, max_bytes)

    def _entries(self, head: TaskHead, after: int, limit: int) -> Iterator[Entry]:
        """The entries of a page, each made when it is taken: most of a long log do not fit into a page."""
        kept = itertools.islice((message for message in self.base.messages if message[0] > after), max(limit, 0))
        old = [self._entry(n, event, at) for n, event, at in kept]
        start = max(after, head.compacted)
        end = min(head.version, start + limit - len(old))
        first = start - head.compacted
        events = enumerate(self.events[first : max(end, start) - head.compacted], first)
        new = (self._entry(head.compacted + 1 + n, event, self._time(n), self._size(n)) for n, event in events)
        return itertools.chain(old, new)

    def _entry(self, number: int, packed: Packed, at_ms: int, size: int = 0) -> Entry:
        decode = partial(unpack, packed, self.id, self.context_id)
        role = ROLES[packed[2]] if packed[0] == MESSAGE else None
        return Entry.read(number, KINDS[packed[0]], decode, {}, at_ms, size=size, role=role)

    def large_events(self, after: int) -> int:
        """The bytes of the large streamed entries with numbers above `after`."""
        return sum(size for number, size in self.large if number > after)

    def _time(self, index: int) -> int:
        return int.from_bytes(self.stamps[index * _STAMP : index * _STAMP + _NUMBER], "big")

    def _size(self, index: int) -> int:
        return int.from_bytes(self.stamps[index * _STAMP + _NUMBER : (index + 1) * _STAMP], "big")

    def _fold_artifacts(self, head: TaskHead) -> ArtifactFold:
        fold = ArtifactFold(self.base.artifacts)
        for event in itertools.islice(self.events, head.version - head.compacted):
            if event[0] == ARTIFACT:
                fold.apply(unpack_artifact(event, head.id, head.context_id))
        return fold

    def messages_before(self, head: TaskHead) -> Iterator[Message]:
        """The messages before ``events``, the newest first."""
        for _, event, _ in reversed(self.base.messages):
            yield unpack_message(event, head.id, head.context_id)

    def messages_after(self, head: TaskHead, events: int) -> Iterator[Message]:
        """The messages as of `head` after the first `events` of ``events``."""
        for event in self.events[events : head.version - head.compacted]:
            if event[0] == MESSAGE:
                yield unpack_message(event, head.id, head.context_id)

    def _messages_backwards(self, head: TaskHead) -> Iterator[Message]:
        for index in range(head.version - head.compacted - 1, -1, -1):
            event = self.events[index]
            if event[0] == MESSAGE:
                yield unpack_message(event, head.id, head.context_id)
        yield from self.messages_before(head)


class RecentHistories:
    """The messages of the few tasks whose long histories were read last.

    A conversation returns its whole history with each turn; only what was appended since the last one is unpacked again. That
    was a third of the processor time of turn 500. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By task id: the record, how many of its events were read, and their messages.
        self._kept: dict[str, tuple[Record, int, tuple[Message, ...]]] = {}

    def read(self, record: Record, head: TaskHead) -> tuple[Message, ...]:
        """All messages of `record` as of `head`, the oldest first."""
        events = head.version - head.compacted
        with self._lock:
            known, read, messages = self._kept.pop(head.id, (None, 0, ()))
        if known is not record or read > events:
            # Another record has the id since a compaction; an older head was read before a newer one.
            read, messages = 0, tuple(record.messages_before(head))[::-1]
        messages = (*messages, *record.messages_after(head, read))
        if len(messages) <= _MOST_MESSAGES and record.bytes <= _MOST_BYTES:
            with self._lock:
                self._kept[head.id] = record, events, messages
                if len(self._kept) > _MOST_HISTORIES:
                    del self._kept[next(iter(self._kept))]
        return messages

    def discard(self, task_id: str) -> None:
        """The task was removed."""
        with self._lock:
            self._kept.pop(task_id, None)


def _within(entries: Iterable[Entry], max_bytes: int) -> Iterator[Entry]:
    """The first entry, and the following ones that fit into `max_bytes` with it; no more than one after these is read."""
    left = max_bytes
    for number, entry in enumerate(entries):
        left -= entry_size(entry)
        if number and left < 0:
            return
        yield entry
