"""Reads across all owners of a PostgreSQL store, for operators."""

from __future__ import annotations

from a2a_sync.stores.base import WorkerSummary
from a2a_sync.stores.inspection import SQLInspection
from a2a_sync.stores.postgres.database import Database, query
from a2a_sync.stores.postgres.schema import Statements


class PostgresInspection(SQLInspection):
    """The `Inspection` of a `PostgresStore`. `counts` reads all heads."""

    def __init__(self, database: Database, sql: Statements) -> None:
        super().__init__(lambda text, values: database.run(lambda c: query(c, text, values)), sql, "%s")
        self._sql = sql

    def size(self) -> int:
        """See `Inspection.size`. The tables with their indexes."""
        size: int = self._read(self._sql.size, ())[0][0]
        return size

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See `Inspection.workers`."""
        return tuple(WorkerSummary(*row) for row in self._read(self._sql.worker_summaries, ()))
