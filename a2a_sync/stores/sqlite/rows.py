"""Conversion between rows of an SQLite store and objects. JSON is that of protocol 1.0; there is no SQL in this module."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from a2a_sync import jsontext
from a2a_sync.codec import by_version
from a2a_sync.lifecycle import ArtifactFold, Entry, LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores import requests
from a2a_sync.stores.base import TaskHead, outcome, time_ms
from a2a_sync.stores.sqlite.schema import ARTIFACT, MESSAGE, STATUS, number, place
from a2a_sync.types import Artifact, Message, TaskState, TaskStatus, TaskStatusUpdateEvent

_CODEC = by_version("1.0")
#: From this number of artifact entries on, the folded artifacts are stored as a snapshot.
SNAPSHOT_AFTER = 64
#: Bytes that a run appends before the count of its owner is updated.
_COUNT_AFTER = 1024 * 1024
_UNSPECIFIED = jsontext.dumps(_CODEC.dump(TaskStatus(state=TaskState.UNSPECIFIED)))


class HeadRow(NamedTuple):
    """A row of ``tasks``, in the order of `schema.HEAD`."""

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


class Batch:
    """Events to be stored: encoded before the transaction, numbered in it."""

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self.entries = tuple(Entry(0, event) for event in events)
        self.change = outcome(events)
        self._bodies = [_CODEC.encode_item(entry) for entry in self.entries]
        status = self.change.status
        self._status = b"" if status is None else jsontext.dumps(_CODEC.dump(status))
        self._size = sum(map(len, self._bodies))
        self.before: str = TaskState.UNSPECIFIED

    def advance(self, row: HeadRow, token: str | None, request: bytes = b"") -> HeadRow:
        """Number the entries after those of `row` and return the new head; it holds `token` unless they end the run.

        `request` is the request row stored with them; its size is counted.
        """
        number, message, change = row.version, row.message, self.change
        self.before = row.state
        for entry in self.entries:
            entry.number = number = number + 1
            if isinstance(entry.event, Message):
                message = number
        new = row._replace(
            version=number,
            message=message,
            artifacts=row.artifacts + change.artifacts,
            token=None if change.ends else token,
            bytes=(size := row.bytes + self._size + len(request)),
        )
        if change.status is None:
            return new._replace(counted=size) if new.token != row.token or size > row.counted + _COUNT_AFTER else new
        moved = change.status.state != row.state or new.token != row.token or size > row.counted + _COUNT_AFTER
        return new._replace(
            counted=size if moved else row.counted,
            state=change.status.state.value,
            status_ms=time_ms(change.status.timestamp),
            status=self._status,
            metadata=_merged(row.metadata, change.metadata),
        )

    def rows(self, old: HeadRow, key: int) -> Iterator[tuple[int, int, int | None, bytes]]:
        """The rows of ``entries``, after `advance`."""
        message = old.message
        for entry, body in zip(self.entries, self._bodies, strict=True):
            kind, previous = _kind(entry.event), None
            if kind == MESSAGE:
                previous = place(key, message) if message else None
                message = entry.number
            yield place(key, entry.number), kind, previous, body


def _kind(event: LogEvent) -> int:
    if isinstance(event, Message):
        return MESSAGE
    return STATUS if isinstance(event, TaskStatusUpdateEvent) else ARTIFACT


def _merged(stored: bytes | None, added: dict[str, object]) -> bytes | None:
    if not added:
        return stored
    return jsontext.dumps({**({} if stored is None else json.loads(stored)), **added})


# -- reading ------------------------------------------------------------------------------------------------------------


def event(body: bytes) -> LogEvent:
    """The event of one row of ``entries``."""
    loaded: LogEvent = _CODEC.load_event(json.loads(body))
    return loaded


def entry(where: int, body: bytes) -> Entry:
    """The entry of one row, with its JSON, which streams send as it is."""
    return Entry(number(where), event(body), {_CODEC.version: body})


def fold_artifacts(snapshot: bytes | None, bodies: Iterable[bytes]) -> ArtifactFold:
    """The artifacts of a task: those of the snapshot, with the later entries applied."""
    known = () if snapshot is None else json.loads(snapshot)
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
        self._value = requests.dump(request, message=self._index is None)

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
    logged = None if message is None else event(message)
    return requests.load(json.loads(body), logged if isinstance(logged, Message) else None)
