"""Conversion between the rows of an SQL store and objects. There is no SQL in this module, and nothing of one database.

Bodies are JSON of protocol 1.0. The module `a2a_sync.stores.sqlite.schema` describes the tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from a2a_sync import jsontext
from a2a_sync.codec import by_version
from a2a_sync.concurrency import clock
from a2a_sync.lifecycle import NO_STATUS, ArtifactFold, Entry, LogEvent
from a2a_sync.operations import Principal, RunRequest
from a2a_sync.stores.base import (
    Outcome,
    Owner,
    RunToken,
    StoredWebhook,
    TaskHead,
    check_startable,
    not_found,
    outcome,
    revoked,
    time_ms,
)
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    SendMessageConfiguration,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

_CODEC = by_version("1.0")
_OTHER_SCHEMES = "otherSchemes"

#: The kinds of rows in ``entries``.
MESSAGE, STATUS, ARTIFACT, REQUEST = range(4)
_PROGRESS = ("number", "version", "revision", "cursor", "tries", "due_ms", "disabled", "error", "error_ms")
#: The columns of a webhook that is joined with its task: ``hook`` and ``task``.
WEBHOOK: str = "task.tenant, task.owner, task.version, hook.body, hook.open, hook.holder, hook." + ", hook.".join(
    _PROGRESS
)
_MAPPINGS = ("metadata", "extensions", "trace", "headers")
#: From this number of artifact entries on, the folded artifacts are stored as a snapshot.
SNAPSHOT_AFTER = 64
#: Bytes that a run appends before the count of its owner is updated.
COUNT_AFTER = 1024 * 1024
#: The role in the JSON of a message, and the bytes in which it is looked for.
_ROLE, _ROLE_WITHIN = re.compile(rb'"role":"ROLE_(USER|AGENT)"'), 16 * 1024
_UNSPECIFIED = jsontext.dumps(_CODEC.dump(NO_STATUS))


class HeadRow(NamedTuple):
    """A row of ``tasks``, in the order of `HEAD`."""

    key: int
    id: str
    tenant: str
    owner: str
    context: str
    state: str
    status_ms: int
    status: bytes
    version: int
    message: int
    artifacts: int
    metadata: bytes | None
    token: str | None
    compacted: int
    bytes: int
    counted: int

    @classmethod
    def new(cls, tenant: str, owner: str, request: RunRequest) -> HeadRow:
        """A task without entries."""
        task_id, context_id = request.task_id, request.context_id
        return cls(
            0, task_id, tenant, owner, context_id, TaskState.UNSPECIFIED, 0, _UNSPECIFIED, 0, 0, 0, None, None, 0, 0, 0
        )

    @property
    def ended(self) -> bool:
        """The task is terminal."""
        return TaskState(self.state).terminal

    @property
    def has_snapshot(self) -> bool:
        """A snapshot of its artifacts may exist."""
        return self.artifacts >= SNAPSHOT_AFTER or self.compacted > 0

    def head(self, status: TaskStatus | None = None) -> TaskHead:
        """The head that the store returns; `status` avoids decoding that of the row."""
        return TaskHead(
            id=self.id,
            context_id=self.context,
            status=status or _CODEC.load(TaskStatus, json.loads(self.status), strict=False),
            version=self.version,
            running=self.token is not None,
            metadata={} if self.metadata is None else json.loads(self.metadata),
            compacted=self.compacted,
        )


#: The columns of `HeadRow`.
HEAD: str = ", ".join(HeadRow._fields)


def owned(row: HeadRow | None, owner: Owner, task_id: str) -> HeadRow:
    """The row of a task, which is found for its owner only."""
    if row is None or (row.tenant, row.owner) != owner:
        raise not_found(task_id)
    return row


def held(row: HeadRow | None, token: RunToken) -> HeadRow:
    """The row of the task of a run, while it holds the task."""
    if row is None or row.token != token.value:
        raise revoked(token)
    return row


def startable(row: HeadRow | None, owner: Owner, task_id: str, after: int | None) -> HeadRow:
    """The row of an owner's task on which a run may start (see `TaskStore.start_run`)."""
    found = owned(row, owner, task_id)
    running = found.token is not None
    check_startable(task_id, TaskState(found.state), running=running, version=found.version, after=after)
    return found


class Batch:
    """Events to be stored: encoded before the transaction, numbered in it."""

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self.entries: tuple[Entry, ...] = tuple(Entry(0, event) for event in events)
        self.change: Outcome = outcome(events)
        self.bodies: list[bytes] = [_CODEC.encode_item(entry) for entry in self.entries]
        for entry, body in zip(self.entries, self.bodies, strict=True):
            if isinstance(entry.event, Message):
                # No stream encodes it again, and a run keeps its message.
                entry.size = len(body)
                entry.encoded.clear()
        status = self.change.status
        self.status: bytes = b"" if status is None else jsontext.dumps(_CODEC.dump(status))
        self.size: int = sum(map(len, self.bodies))
        self._at_ms = 0
        self.before: str = TaskState.UNSPECIFIED

    @property
    def kinds(self) -> list[int]:
        """The kind of each entry."""
        return [_kind(entry.event) for entry in self.entries]

    @property
    def last_message(self) -> int:
        """The place of the last message among the entries, from 1 on; 0 where there is none."""
        places = [place for place, entry in enumerate(self.entries, 1) if isinstance(entry.event, Message)]
        return places[-1] if places else 0

    def number(self, last: int, at_ms: int) -> None:
        """Number the entries so that the last one has the number `last`; they were stored at `at_ms`."""
        for number, entry in enumerate(self.entries, last - len(self.entries) + 1):
            entry.number = number
            entry.at_ms = at_ms

    def advance(self, row: HeadRow, token: str | None, request: bytes = b"") -> HeadRow:
        """Number the entries after those of `row` and return the new head; it holds `token` unless they end the run.

        `request` is the request row stored with them; its size is counted.
        """
        number, message, change = row.version, row.message, self.change
        self.before = row.state
        self._at_ms = clock.time_ns() // 1_000_000
        for entry in self.entries:
            entry.number = number = number + 1
            entry.at_ms = self._at_ms
            if isinstance(entry.event, Message):
                message = number
        if change.ends:
            token = None
        size = row.bytes + self.size + len(request)
        state, status_ms, status, metadata = row.state, row.status_ms, row.status, row.metadata
        if change.status is not None:
            state, status_ms, status = change.status.state.value, time_ms(change.status.timestamp), self.status
            metadata = merged(metadata, change.metadata)
        counts = token != row.token or state != row.state or size > row.counted + COUNT_AFTER
        return row._replace(
            state=state,
            status_ms=status_ms,
            status=status,
            version=number,
            message=message,
            artifacts=row.artifacts + change.artifacts,
            metadata=metadata,
            token=token,
            bytes=size,
            counted=size if counts else row.counted,
        )

    def rows(self, old: HeadRow, offset: int = 0) -> Iterator[tuple[int, int, int | None, bytes, int]]:
        """Number, kind, number of the previous message (of messages), body and time of each new entry, after `advance`.

        `offset` is added to the numbers.
        """
        message = old.message
        for entry, body in zip(self.entries, self.bodies, strict=True):
            kind, previous = _kind(entry.event), None
            if kind == MESSAGE:
                previous, message = offset + message if message else None, entry.number
            yield offset + entry.number, kind, previous, body, self._at_ms


def _kind(event: LogEvent) -> int:
    if isinstance(event, Message):
        return MESSAGE
    return STATUS if isinstance(event, TaskStatusUpdateEvent) else ARTIFACT


def merged(stored: bytes | None, added: Mapping[str, object]) -> bytes | None:
    """The metadata of a task after status events have added to them."""
    if not added:
        return stored
    return jsontext.dumps({**({} if stored is None else json.loads(stored)), **added})


# -- reading ------------------------------------------------------------------------------------------------------------


def event(body: bytes) -> LogEvent:
    """The event of one row of ``entries``."""
    loaded: LogEvent = _CODEC.load_event(jsontext.loads_stored(body))
    return loaded


def entry(number: int, body: bytes, at_ms: int) -> Entry:
    """The entry of one row, with its JSON, which streams send as it is."""
    return Entry(number, event(body), {_CODEC.version: body}, at_ms)


def read_entry(number: int, body: bytes, at_ms: int) -> Entry:
    """As `entry`; the event is decoded when it is first used, but for status events, which streams look at."""
    kind = Message if body.startswith(b'{"message":') else TaskArtifactUpdateEvent
    if kind is TaskArtifactUpdateEvent and not body.startswith(b'{"artifactUpdate":'):
        return entry(number, body, at_ms)
    # It is before all that a peer can choose but for ids, whose quotes are escaped.
    role = _ROLE.search(body, 0, _ROLE_WITHIN) if kind is Message else None
    return Entry.read(
        number,
        kind,
        lambda: event(body),
        {_CODEC.version: body},
        at_ms,
        size=len(body),
        role=None if role is None else Role[role[1].decode()],
    )


def dump_entry(entry: Entry) -> bytes:
    """The body of an entry, which `entry` reads."""
    body: bytes = _CODEC.encode_item(entry)
    return body


def fold_artifacts(snapshot: bytes | None, bodies: Iterable[bytes]) -> ArtifactFold:
    """The artifacts of a task: those of the snapshot, with the later entries applied."""
    known = () if snapshot is None else jsontext.loads_stored(snapshot)
    fold = ArtifactFold(_CODEC.load(Artifact, value, strict=False) for value in known)
    for body in bodies:
        fold.apply(event(body))  # type: ignore[arg-type]
    return fold


def dump_artifacts(artifacts: Iterable[Artifact]) -> bytes:
    """The body of a snapshot."""
    return jsontext.dumps([_CODEC.dump(artifact) for artifact in artifacts])


# -- the request of a run -----------------------------------------------------------------------------------------------


class RequestRow:
    """The request of a run to be stored. A message that is also in the log is stored in the log only."""

    def __init__(self, request: RunRequest, events: Sequence[LogEvent]) -> None:
        self._index = next((index for index, event in enumerate(events) if event is request.message), None)
        self._value = _dump_request(request, message=self._index is None)

    @property
    def entry(self) -> int | None:
        """The place of the message among the events, from 1 on; None: the message is in the row."""
        return None if self._index is None else self._index + 1

    def body(self, version: int) -> bytes:
        """The body of the row, for a run whose events follow the entry `version`."""
        if self._index is not None:
            self._value["entry"] = version + 1 + self._index
        return jsontext.dumps(self._value)


def request_entry(body: bytes) -> int | None:
    """The number of the log entry with the message of the request; None: the message is in the row."""
    found: int | None = json.loads(body).get("entry")
    return found


def load_request(body: bytes, message: bytes | None) -> RunRequest:
    """The request of a row; `message` is the body of the entry that `request_entry` returned."""
    value = json.loads(body)
    logged = None if message is None else event(message)
    configuration, principal = value.get("configuration"), value.get("principal")
    if configuration is not None:
        configuration = _CODEC.load(SendMessageConfiguration, configuration, strict=False)
    if principal is not None:
        principal = Principal(id=principal["id"], scopes=tuple(principal["scopes"]), claims=principal["claims"])
    return RunRequest(
        message=logged if isinstance(logged, Message) else _CODEC.load(Message, value["message"], strict=False),
        configuration=configuration,
        principal=principal,
        **{name: value[name] for name in (*_MAPPINGS, "tenant", "attempt") if name in value},
    )


# The webhook of a send is omitted: it contains credentials, which must not be stored here, and no run needs it.


def _dump_request(request: RunRequest, *, message: bool) -> dict[str, Any]:
    """`request` as JSON; with ``message=False`` the message is omitted, because the log has it."""
    value: dict[str, Any] = {}
    if message:
        value["message"] = _CODEC.dump(request.message)
    if request.configuration is not None:
        value["configuration"] = _CODEC.dump(replace(request.configuration, task_push_notification_config=None))
    if (caller := request.principal) is not None:
        value["principal"] = {"id": caller.id, "scopes": list(caller.scopes), "claims": dict(caller.claims)}
    for name in _MAPPINGS:
        if getattr(request, name):
            value[name] = dict(getattr(request, name))
    if request.tenant:
        value["tenant"] = request.tenant
    if request.attempt > 1:
        value["attempt"] = request.attempt
    return value


# -- webhooks and idempotency keys --------------------------------------------------------------------------------------


def dump_webhook(config: TaskPushNotificationConfig) -> bytes:
    """The body of a webhook, with its tokens and credentials in clear text."""
    value = _CODEC.dump(config)
    if config.authentication is not None and config.authentication.other_schemes:
        # Protocol 1.0 has no such member: the value of a 0.3 client is stored beside the configuration.
        value[_OTHER_SCHEMES] = list(config.authentication.other_schemes)
    return jsontext.dumps(value)


def load_webhook(body: bytes) -> TaskPushNotificationConfig:
    """The configuration that `dump_webhook` wrote."""
    value = json.loads(body)
    config: TaskPushNotificationConfig = _CODEC.load(TaskPushNotificationConfig, value, strict=False)
    if others := value.get(_OTHER_SCHEMES):
        assert config.authentication is not None
        config = replace(config, authentication=replace(config.authentication, other_schemes=tuple(others)))
    return config


def send_digest(owner: Owner, key: str) -> bytes:
    """The key of a send in its table: a digest of the owner and the idempotency key."""
    return hashlib.sha256(json.dumps([*owner, key]).encode()).digest()[:16]


def stored_webhook(row: Sequence[Any]) -> StoredWebhook:
    """The webhook of a row with the columns `WEBHOOK`."""
    tenant, owner, head, body, open_, holder, *progress = row
    return StoredWebhook(
        owner=Owner(tenant, owner),
        config=load_webhook(body),
        head=head,
        open=bool(open_),
        holder=holder or "",
        **dict(zip(_PROGRESS, progress, strict=True)),
    )
