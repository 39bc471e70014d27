"""Reads across all owners of a PostgreSQL store, for operators."""

from __future__ import annotations

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
from a2a_sync.stores.postgres.database import Database, Rows, query
from a2a_sync.stores.postgres.schema import Statements
from a2a_sync.stores.rows import stored_webhook
from a2a_sync.types import TaskState


class PostgresInspection:
    """The `Inspection` of a `PostgresStore`. Pages are read in the order of the primary key; `counts` reads all heads."""

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
            "tenant = %s": tenant,
            "owner = %s": owner,
            "state = %s": None if query.state is None else query.state.value,
            "created_ms >= %s": query.since_ms,
            "created_ms < %s": query.until_ms,
            "key < %s": query.before,
        }
        given = {term: value for term, value in terms.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        statement = f"{self._sql.summaries} {where} ORDER BY key DESC LIMIT %s"
        return tuple(map(_summary, self._read(statement, (*given.values(), query.size))))

    def size(self) -> int:
        """See `Inspection.size`. The tables with their indexes."""
        size: int = self._read(self._sql.size, ())[0][0]
        return size

    def run_counts(self) -> RunCounts:
        """See `Inspection.run_counts`."""
        return RunCounts(*self._read(self._sql.run_counts, ())[0])

    def webhook_counts(self) -> WebhookCounts:
        """See `Inspection.webhook_counts`."""
        return WebhookCounts(*self._read(self._sql.webhook_counts, ())[0])

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See `Inspection.workers`."""
        return tuple(WorkerSummary(*row) for row in self._read(self._sql.worker_summaries, ()))

    def webhooks(self, *, stopped: bool, size: int = 50) -> tuple[StoredWebhook, ...]:
        """See `Inspection.webhooks`."""
        statement = self._sql.stopped_webhooks if stopped else self._sql.waiting_webhooks
        return tuple(map(stored_webhook, self._read(statement, (size,))))

    def _read(self, statement: str, values: tuple[object, ...]) -> Rows:
        return self._database.run(lambda connection: query(connection, statement, values))


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
