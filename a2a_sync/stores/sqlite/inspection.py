"""Reads across all owners of an SQLite file, for operators."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import Any

from a2a_sync.stores.base import (
    Owner,
    RunCounts,
    StoredWebhook,
    SummaryQuery,
    TaskSummary,
    WebhookCounts,
    WorkerSummary,
)
from a2a_sync.stores.rows import stored_webhook
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements
from a2a_sync.types import TaskState


class SQLiteInspection:
    """The `Inspection` of an `SQLiteStore`. Pages are read in the order of the primary key, so they need no index."""

    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql

    def counts(self) -> dict[Owner, dict[TaskState, int]]:
        """See `Inspection.counts`."""
        result: dict[Owner, dict[TaskState, int]] = {}
        for tenant, owner, state, count in self._read(self._sql.all_counts, ()):
            result.setdefault(Owner(tenant, owner), {})[TaskState(state)] = count
        return result

    def tasks(self, query: SummaryQuery) -> tuple[TaskSummary, ...]:
        """See `Inspection.tasks`."""
        tenant, owner = query.owner or (None, None)
        terms = {
            "tenant = ?": tenant,
            "owner = ?": owner,
            "state = ?": query.state,
            "created_ms >= ?": query.since_ms,
            "created_ms < ?": query.until_ms,
            "key < ?": query.before,
        }
        given = {term: value for term, value in terms.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        statement = f"{self._sql.summaries} {where} ORDER BY key DESC LIMIT ?"
        return tuple(map(_summary, self._read(statement, (*given.values(), query.size))))

    def size(self) -> int:
        """See `Inspection.size`. The file and its write-ahead log."""
        self._database.read(lambda connection: connection.execute("SELECT 1"))
        size = os.path.getsize(self._database.path)
        with contextlib.suppress(FileNotFoundError):
            size += os.path.getsize(f"{self._database.path}-wal")
        return size

    def run_counts(self) -> RunCounts:
        """See `Inspection.run_counts`."""
        return RunCounts(*self._read(self._sql.run_counts, ())[0])

    def webhook_counts(self) -> WebhookCounts:
        """See `Inspection.webhook_counts`."""
        return WebhookCounts(*self._read(self._sql.webhook_counts, ())[0])

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See `Inspection.workers`."""
        found = self._read(self._sql.worker_runs, ())
        now = time.monotonic()
        return tuple(
            WorkerSummary(worker, "", None if lost else max(0.0, now - seen), bool(lost), runs)
            for worker, seen, lost, runs in found
        )

    def webhooks(self, *, stopped: bool, size: int = 50) -> tuple[StoredWebhook, ...]:
        """See `Inspection.webhooks`."""
        statement = self._sql.stopped_webhooks if stopped else self._sql.waiting_webhooks
        return tuple(map(stored_webhook, self._read(statement, (size,))))

    def _read(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        def work(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(statement, values).fetchall()

        return self._database.read(work)


def _summary(row: tuple[Any, ...]) -> TaskSummary:
    key, tenant, owner, task_id, context_id, state, status_ms, created_ms, version, size, token = row
    return TaskSummary(
        position=key,
        owner=Owner(tenant, owner),
        id=task_id,
        context_id=context_id,
        state=TaskState(state),
        status_ms=status_ms,
        created_ms=created_ms,
        version=version,
        bytes=size,
        running=token is not None,
        worker=(token or "").partition(".")[0],
    )
