"""Reads across all owners of an SQLite file, for operators."""

from __future__ import annotations

import contextlib
import os
import time

from a2a_sync.stores.base import WorkerSummary
from a2a_sync.stores.inspection import SQLInspection
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements


class SQLiteInspection(SQLInspection):
    """The `Inspection` of an `SQLiteStore`."""

    def __init__(self, database: Database, sql: Statements) -> None:
        super().__init__(database.rows, sql, "?")
        self._path = database.path
        self._sql = sql

    def size(self) -> int:
        """See `Inspection.size`. The file and its write-ahead log."""
        self._read("SELECT 1", ())
        size = os.path.getsize(self._path)
        with contextlib.suppress(FileNotFoundError):
            size += os.path.getsize(f"{self._path}-wal")
        return size

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See `Inspection.workers`."""
        found = self._read(self._sql.worker_runs, ())
        now = time.monotonic()
        return tuple(
            WorkerSummary(worker, "", None if lost else max(0.0, now - seen), bool(lost), runs)
            for worker, seen, lost, runs in found
        )
