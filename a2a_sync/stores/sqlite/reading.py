"""What is read of one task to fold it: its head, messages, artifact entries, and the snapshot before them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from a2a_sync.stores.base import folded
from a2a_sync.stores.sqlite import rows
from a2a_sync.stores.sqlite.rows import HeadRow
from a2a_sync.stores.sqlite.schema import Statements, place
from a2a_sync.types import Message, Task


class Reading:
    """Bodies of rows, read in one transaction and folded after it."""

    def __init__(self, row: HeadRow) -> None:
        self.row = row
        self.messages: list[bytes] = []
        self.snapshot: bytes | None = None
        #: How many artifact entries the snapshot stands for.
        self.covered = 0
        self.artifacts: list[bytes] = []

    @classmethod
    def of(
        cls, connection: sqlite3.Connection, sql: Statements, row: HeadRow, history: int | None, artifacts: bool
    ) -> Reading:
        """Read the newest `history` messages (None: all) of the task at `row`, and its artifacts if they are wanted."""
        reading = cls(row)
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

    def fold(self) -> Task:
        """The task as it was when it was read."""
        messages = (rows.event(body) for body in self.messages)
        history = [message for message in messages if isinstance(message, Message)]
        return folded(self.row.head(), history, rows.fold_artifacts(self.snapshot, self.artifacts))

    def snapshot_of(self, task: Task) -> tuple[int, int, bytes, str, int, int]:
        """The values by which the artifacts of `task`, which was folded from this, are kept."""
        row, covered = self.row, self.covered + len(self.artifacts)
        return row.version, covered, rows.dump_artifacts(task.artifacts), row.id, row.key, row.version


def _bodies(found: Iterable[tuple[bytes]]) -> list[bytes]:
    return [body for (body,) in found]
