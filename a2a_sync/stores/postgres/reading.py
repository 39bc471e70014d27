"""Reads of the data from which a task is folded: its head, messages, artifact entries, and the snapshot before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from a2a_sync.stores import rows
from a2a_sync.stores.base import LargeResult, TaskQuery
from a2a_sync.stores.postgres.database import Connection, query
from a2a_sync.stores.postgres.schema import Statements
from a2a_sync.stores.reading import Sizes, StoredReading
from a2a_sync.stores.rows import HeadRow
from a2a_sync.types import Task

_HEAD_COLUMNS = len(HeadRow._fields)


class Reading(StoredReading):
    """The bodies of the rows of one task, read by one statement."""

    def __init__(self, row: HeadRow, bodies: Sequence[Any] = ((), None, None, None, ())) -> None:
        super().__init__(row)
        messages, _, covered, snapshot, artifacts = bodies
        self.snapshot: bytes | None = snapshot
        # The statement reads the newest ones first.
        self.messages: list[bytes] = list(reversed(messages))
        self.covered: int = covered or 0
        self.artifacts: list[bytes] = artifacts

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Reading:
        """The row of a statement that reads a head and bodies."""
        return cls(HeadRow._make(row[:_HEAD_COLUMNS]), row[_HEAD_COLUMNS:])

    def snapshot_of(self, task: Task) -> dict[str, object]:
        """The values of the statement ``put_snapshot`` for `task`, which `fold` returned."""
        return {
            "task": self.row.key,
            "number": self.row.version,
            "covered": self.covered + len(self.artifacts),
            "body": rows.dump_artifacts(task.artifacts),
        }


def sizes_of(connection: Connection, sql: Statements, row: HeadRow, history: int | None, artifacts: bool) -> Sizes:
    """The bytes that a read of the task at `row` would return."""
    values = {"task": row.key, "version": row.version, "history": history}
    ((messages, size),) = query(connection, sql.sizes, values)
    return Sizes(messages, len(row.status) + len(row.metadata or b"") + (size if artifacts and row.artifacts else 0))


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
            history = sizes_of(connection, sql, row, history, artifacts).fitting(max_bytes)
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
    sizes = [min(row.bytes, sizes_of(connection, sql, row, *wanted).all) for row in found]
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
