"""The webhooks of tasks in PostgreSQL. The rows contain tokens and credentials in clear text."""

from __future__ import annotations

from typing import Any

from a2a_sync.operations import Webhook
from a2a_sync.stores import rows
from a2a_sync.stores.base import Owner, StoredWebhook, TooManyWebhooks, not_found
from a2a_sync.stores.postgres.database import Connection, Database, Rows, query
from a2a_sync.stores.postgres.schema import Statements, scope_of


class PostgresWebhooks:
    """The `Webhooks` of a `PostgresStore`."""

    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql

    def put(self, owner: Owner, webhook: Webhook, *, most: int) -> None:
        """See `Webhooks.put`. One transaction, which holds the row of the task."""
        values = {"id": webhook.config.task_id, "scope": scope_of(owner), **webhook_values(webhook)}

        def work(connection: Connection) -> None:
            with connection.transaction():
                found = query(connection, self._sql.lock_for_webhook, values)
                if not found:
                    raise not_found(webhook.config.task_id)
                # The next statements see what was stored before the row of the task was locked.
                keyed = values | {"key": found[0][0]}
                ((others, known),) = query(connection, self._sql.other_webhooks, keyed)
                if not known and others >= most:
                    raise TooManyWebhooks
                query(connection, self._sql.put_webhook, keyed)

        self._database.run(work)

    def of_task(self, owner: Owner, task_id: str) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.of_task`."""
        found = self._read(self._sql.webhooks, (task_id, scope_of(owner)))
        if not found:
            raise not_found(task_id)
        return tuple(rows.stored_webhook(row) for row in found if row[3] is not None)

    def delete(self, owner: Owner, task_id: str, webhook_id: str) -> None:
        """See `Webhooks.delete`."""
        found = self._read(self._sql.delete_webhook, (task_id, scope_of(owner), webhook_id))
        if not found:
            raise not_found(task_id)

    def due(self, *, now_ms: int, limit: int = 100) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.due`."""
        return tuple(map(rows.stored_webhook, self._read(self._sql.due_webhooks, (now_ms, limit))))

    def claim(self, webhook: StoredWebhook, holder: str) -> StoredWebhook | None:
        """See `Webhooks.claim`."""
        values = {"id": webhook.task_id, "hook_id": webhook.id, "holder": holder}
        found = self._read(self._sql.claim_webhook, values)
        return rows.stored_webhook(found[0]) if found else None

    def settle(self, webhook: StoredWebhook, *, release: bool = False) -> bool:
        """See `Webhooks.settle`."""
        values = {
            "id": webhook.task_id,
            "hook_id": webhook.id,
            "revision": webhook.revision,
            "holder": webhook.holder,
            "new_holder": None if release else webhook.holder,
            "cursor": webhook.cursor,
            "tries": webhook.tries,
            "due_ms": webhook.due_ms,
            "disabled": webhook.disabled,
            "error": webhook.error,
            "error_ms": webhook.error_ms,
        }
        return bool(self._read(self._sql.settle_webhook, values))

    def release(self, holder: str) -> None:
        """See `Webhooks.release`."""
        self._read(self._sql.release_webhooks, (holder,))

    def _read(self, statement: str, values: Any) -> Rows:
        return self._database.run(lambda connection: query(connection, statement, values))


def webhook_values(webhook: Webhook) -> dict[str, object]:
    """The values of the statements that store a webhook."""
    return {
        "hook_id": webhook.config.id,
        "hook_body": rows.dump_webhook(webhook.config),
        "hook_version": webhook.version,
    }
