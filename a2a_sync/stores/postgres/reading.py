"""Reads of the data from which a task is folded: its head, messages, artifact entries, and the snapshot before them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from a2a_sync.stores import rows
from a2a_sync.stores.base import LargeResult, TaskQuery, folded
from a2a_sync.stores.postgres.database import Connection, query
from a2a_sync.stores.postgres.schema import Statements
from a2a_sync.stores.rows import SNAPSHOT_AFTER, HeadRow
from a2a_sync.types import Message, Task

_HEAD_COLUMNS = len(HeadRow._fields)


class Reading:
    """The bodies of the rows of one task, read by one statement and folded after it."""

    def __init__(self, row: HeadRow, bodies: Sequence[Any] = ((), None, None, None, ())) -> None:
        self.row = row
        messages, _, covered, self._snapshot, self._artifacts = bodies
        #: Newest first.
        self._messages: list[bytes] = list(messages)
        #: The number of artifact entries that the snapshot covers.
        self._covered: int = covered or 0

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Reading:
        """The row of a statement that reads a head and bodies."""
        return cls(HeadRow._make(row[:_HEAD_COLUMNS]), row[_HEAD_COLUMNS:])

    @property
    def wants_snapshot(self) -> bool:
        """So many artifact entries follow the snapshot that the next reads gain from a new one."""
        return len(self._artifacts) >= max(SNAPSHOT_AFTER, self._covered)

    def fold(self) -> Task:
        """The task as of the read."""
        messages = (rows.event(body) for body in reversed(self._messages))
        history = [message for message in messages if isinstance(message, Message)]
        return folded(self.row.head(), history, rows.fold_artifacts(self._snapshot, self._artifacts))

    def snapshot_of(self, task: Task) -> dict[str, object]:
        """The values of the statement ``put_snapshot`` for `task`, which `fold` returned."""
        return {
            "task": self.row.key,
            "number": self.row.version,
            "covered": self._covered + len(self._artifacts),
            "body": rows.dump_artifacts(task.artifacts),
        }


class Sizes:
    """The bytes that a read of a task would return, without reading it: ``messages``, newest first, and ``rest``."""

    def __init__(
        self, connection: Connection, sql: Statements, row: HeadRow, history: int | None, artifacts: bool
    ) -> None:
        values = {"task": row.key, "version": row.version, "history": history}
        ((messages, size),) = query(connection, sql.sizes, values)
        self.messages: list[int] = messages
        self.rest: int = len(row.status) + len(row.metadata or b"") + (size if artifacts and row.artifacts else 0)

    @property
    def all(self) -> int:
        """The total in bytes."""
        return self.rest + sum(self.messages)

    def fitting(self, most: int) -> int:
        """How many of the newest messages fit into `most` bytes together with ``rest``."""
        sums = itertools.accumulate(self.messages, initial=self.rest)
        return max(0, sum(1 for size in sums if size <= most) - 1)


def load(
    connection: Connection,
    sql: Statements,
    scope: bytes,
    task_id: str,
    *,
    history: int | None = None,
    artifacts: bool = True,
    max_bytes: int | None = None,
    refuse_above: int | None = None,
) -> Reading | None:
    """Read a task, see `TaskStore.load`; None where the scope has none with this id."""
    most = min((bound for bound in (max_bytes, refuse_above) if bound is not None), default=None)
    values = {"id": task_id, "scope": scope, "history": history, "artifacts": artifacts, "max_bytes": most}
    found = query(connection, sql.load, values)
    if not found:
        return None
    row = HeadRow._make(found[0][:_HEAD_COLUMNS])
    if most is not None and row.bytes > most:
        if refuse_above is not None and row.bytes > refuse_above:
            raise LargeResult(row.bytes)
        if max_bytes is not None and row.bytes > max_bytes:
            history = Sizes(connection, sql, row, history, artifacts).fitting(max_bytes)
        found = query(connection, sql.load, {**values, "history": history, "max_bytes": None})
    return Reading.of_row(found[0]) if found else None


def load_page(
    connection: Connection, sql: Statements, scope: bytes, found: Sequence[HeadRow], query_: TaskQuery
) -> list[Reading]:
    """Read the tasks of a page that is too large to be read by one statement, up to its limit of bytes.

    Raises:
        LargeResult: it holds more bytes than the query allows.
    """
    wanted = (query_.history, query_.artifacts)
    sizes = [min(row.bytes, Sizes(connection, sql, row, *wanted).all) for row in found]
    if query_.refuse_above is not None and sum(sizes) > query_.refuse_above:
        raise LargeResult(sum(sizes))
    readings: list[Reading] = []
    left = query_.max_bytes
    for row, size in zip(found, sizes, strict=True):
        if left is not None:
            if readings and size > left:
                break
            left -= size
        most = None if readings else query_.max_bytes
        one = load(connection, sql, scope, row.id, history=wanted[0], artifacts=wanted[1], max_bytes=most)
        readings.append(one or Reading(row))
    return readings
