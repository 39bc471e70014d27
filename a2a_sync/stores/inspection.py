"""Reads across all owners of an SQL store, for operators. The statements and the connections are those of each store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from a2a_sync.stores.base import Owner, RunCounts, StoredWebhook, SummaryQuery, TaskSummary, WebhookCounts
from a2a_sync.stores.rows import stored_webhook
from a2a_sync.types import TaskState

#: Runs a statement with its parameters in a transaction of its own; returns all rows.
Read: TypeAlias = Callable[[str, tuple[object, ...]], Sequence[tuple[Any, ...]]]


class Statements(Protocol):
    """The statements that both SQL stores have."""

    summaries: str
    all_counts: str
    run_counts: str
    webhook_counts: str
    stopped_webhooks: str
    waiting_webhooks: str


class SQLInspection:
    """The part of an `Inspection` that is the same in each SQL store. Pages are read in the order of the primary key.

    `parameter` marks a parameter in a statement.
    """

    def __init__(self, read: Read, sql: Statements, parameter: str) -> None:
        self._read = read
        self._statements = sql
        self._parameter = parameter

    def counts(self) -> dict[Owner, dict[TaskState, int]]:
        """See `Inspection.counts`."""
        result: dict[Owner, dict[TaskState, int]] = {}
        for tenant, owner, state, count in self._read(self._statements.all_counts, ()):
            result.setdefault(Owner(tenant, owner), {})[TaskState(state)] = count
        return result

    def tasks(self, query: SummaryQuery) -> tuple[TaskSummary, ...]:
        """See `Inspection.tasks`."""
        tenant, owner = query.owner or (None, None)
        terms = {
            "tenant =": tenant,
            "owner =": owner,
            "state =": None if query.state is None else query.state.value,
            "created_ms >=": query.since_ms,
            "created_ms <": query.until_ms,
            "key <": query.before,
        }
        given = {f"{term} {self._parameter}": value for term, value in terms.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        statement = f"{self._statements.summaries} {where} ORDER BY key DESC LIMIT {self._parameter}"
        return tuple(map(_summary, self._read(statement, (*given.values(), query.size))))

    def run_counts(self) -> RunCounts:
        """See `Inspection.run_counts`."""
        return RunCounts(*self._read(self._statements.run_counts, ())[0])

    def webhook_counts(self) -> WebhookCounts:
        """See `Inspection.webhook_counts`."""
        return WebhookCounts(*self._read(self._statements.webhook_counts, ())[0])

    def webhooks(self, *, stopped: bool, size: int = 50) -> tuple[StoredWebhook, ...]:
        """See `Inspection.webhooks`."""
        statement = self._statements.stopped_webhooks if stopped else self._statements.waiting_webhooks
        return tuple(map(stored_webhook, self._read(statement, (size,))))


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
