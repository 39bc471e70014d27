"""Reads of the data from which a task is folded: its head, messages, artifact entries, and the snapshot before them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Sequence

from a2a_sync.stores import rows
from a2a_sync.stores.base import TaskQuery, folded
from a2a_sync.stores.rows import HeadRow
from a2a_sync.stores.sqlite.schema import Statements, place
from a2a_sync.types import Message, Task


class Sizes:
    """The bytes that a read of a task would return, without reading it: ``messages``, newest first, and ``rest``."""

    def __init__(
        self, connection: sqlite3.Connection, sql: Statements, row: HeadRow, history: int | None, artifacts: bool
    ) -> None:
        self.messages: list[int] = []
        self.rest: int = len(row.status) + len(row.metadata or b"")
        if row.message and (history is None or history > 0):
            values = (-1 if history is None else history, place(row.key, row.message))
            self.messages = [size for (size,) in connection.execute(sql.message_sizes, values)]
        if artifacts and row.artifacts:
            start, size = connection.execute(sql.snapshot_size, (row.key,)).fetchone() or (0, 0)
            span = (place(row.key, start), place(row.key, row.version))
            self.rest += size + connection.execute(sql.artifacts_size, span).fetchone()[0]

    @property
    def all(self) -> int:
        """The total in bytes."""
        return self.rest + sum(self.messages)

    def fitting(self, most: int) -> int:
        """How many of the newest messages fit into `most` bytes together with ``rest``."""
        sums = itertools.accumulate(self.messages, initial=self.rest)
        return max(0, sum(1 for size in sums if size <= most) - 1)


class Reading:
    """The bodies of the rows of one task, read in one transaction and folded after it."""

    def __init__(self, row: HeadRow) -> None:
        self.row = row
        self.messages: list[bytes] = []
        self.snapshot: bytes | None = None
        #: The number of artifact entries that the snapshot covers.
        self.covered = 0
        self.artifacts: list[bytes] = []

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
            history = Sizes(connection, sql, row, history, artifacts).fitting(max_bytes)
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
                size = min(row.bytes, Sizes(connection, sql, row, query.history, query.artifacts).all)
                if readings and size > left:
                    break
                left -= size
            readings.append(
                cls.of(connection, sql, row, query.history, query.artifacts, None if readings else query.max_bytes)
            )
        return readings

    def fold(self) -> Task:
        """The task as of the read."""
        messages = (rows.event(body) for body in self.messages)
        history = [message for message in messages if isinstance(message, Message)]
        return folded(self.row.head(), history, rows.fold_artifacts(self.snapshot, self.artifacts))

    def snapshot_of(self, task: Task) -> tuple[int, int, bytes, str, int, int]:
        """The values of the statement ``put_snapshot`` for `task`, which `fold` returned."""
        row, covered = self.row, self.covered + len(self.artifacts)
        return row.version, covered, rows.dump_artifacts(task.artifacts), row.id, row.key, row.version


def _bodies(found: Iterable[tuple[bytes]]) -> list[bytes]:
    return [body for (body,) in found]
