"""Reads of the data from which a task is folded: its head, messages, artifact entries, and the snapshot before them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from a2a_sync.stores import rows
from a2a_sync.stores.base import TaskQuery
from a2a_sync.stores.reading import Sizes, StoredReading
from a2a_sync.stores.rows import HeadRow
from a2a_sync.stores.sqlite.schema import Statements, place
from a2a_sync.types import Task


def sizes_of(
    connection: sqlite3.Connection, sql: Statements, row: HeadRow, history: int | None, artifacts: bool
) -> Sizes:
    """The bytes that a read of the task at `row` would return."""
    messages: list[int] = []
    rest = len(row.status) + len(row.metadata or b"")
    if row.message and (history is None or history > 0):
        values = (-1 if history is None else history, place(row.key, row.message))
        messages = [size for (size,) in connection.execute(sql.message_sizes, values)]
    if artifacts and row.artifacts:
        start, size = connection.execute(sql.snapshot_size, (row.key,)).fetchone() or (0, 0)
        span = (place(row.key, start), place(row.key, row.version))
        rest += size + connection.execute(sql.artifacts_size, span).fetchone()[0]
    return Sizes(messages, rest)


class Reading(StoredReading):
    """The bodies of the rows of one task, read in one transaction and folded after it."""

    @classmethod
    def of(
        cls,
        connection: sqlite3.Connection,
        sql: Statements,
        row: HeadRow,
        history: int | None,
        artifacts: bool,
        max_bytes: int | None = None,
    ) -> Reading:
        """Read the rows from which the task at `row` is folded, in the transaction of `connection`.

        Parameters:
            connection, sql: of the store.
            row: the head of the task.
            history: how many of the newest messages to read; None: all.
            artifacts: read its artifacts.
            max_bytes: older messages are omitted where the result would have more.
        """
        reading = cls(row)
        if max_bytes is not None and row.bytes > max_bytes:
            history = sizes_of(connection, sql, row, history, artifacts).fitting(max_bytes)
        if row.message and (history is None or history > 0):
            values = (-1 if history is None else history, place(row.key, row.message))
            reading.messages = _bodies(connection.execute(sql.messages, values))
        if artifacts and row.artifacts:
            start = 0
            if row.has_snapshot:
                snapshot = connection.execute(sql.snapshot, (row.key,)).fetchone()
                if snapshot is not None:
                    start, reading.covered, reading.snapshot = snapshot
            span = (place(row.key, start), place(row.key, row.version))
            reading.artifacts = _bodies(connection.execute(sql.artifacts, span))
        return reading

    @classmethod
    def page(
        cls, connection: sqlite3.Connection, sql: Statements, found: Sequence[HeadRow], query: TaskQuery
    ) -> list[Reading]:
        """Read the tasks at `found` for a page, up to the size and byte limits of the query."""
        readings: list[Reading] = []
        left = query.max_bytes
        if left is not None and sum(row.bytes for row in found[: query.size]) <= left:
            left = None
        for row in found[: query.size]:
            if left is not None:
                size = min(row.bytes, sizes_of(connection, sql, row, query.history, query.artifacts).all)
                if readings and size > left:
                    break
                left -= size
            readings.append(
                cls.of(connection, sql, row, query.history, query.artifacts, None if readings else query.max_bytes)
            )
        return readings

    def snapshot_of(self, task: Task) -> tuple[int, int, bytes, str, int, int]:
        """The values of the statement ``put_snapshot`` for `task`, which `fold` returned."""
        row, covered = self.row, self.covered + len(self.artifacts)
        return row.version, covered, rows.dump_artifacts(task.artifacts), row.id, row.key, row.version


def _bodies(found: Iterable[tuple[bytes]]) -> list[bytes]:
    return [body for (body,) in found]
