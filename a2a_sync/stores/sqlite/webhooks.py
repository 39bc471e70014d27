"""The webhooks of tasks in an SQLite file. The rows contain tokens and credentials in clear text."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a_sync.operations import Webhook
from a2a_sync.stores import rows
from a2a_sync.stores.base import SNAPSHOT, Owner, StoredWebhook, TooManyWebhooks
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements


@dataclass(eq=False, repr=False)
class SQLiteWebhooks:
    """The `Webhooks` of an `SQLiteStore`."""

    _database: Database
    _sql: Statements
    #: Returns the key of a task, or raises `TaskNotFoundError`.
    _key_of: Callable[[sqlite3.Connection, Owner, str], int]

    def put(self, owner: Owner, webhook: Webhook, *, most: int) -> None:
        """See `Webhooks.put`."""
        row = WebhookRow(webhook)

        def work(connection: sqlite3.Connection) -> None:
            key = self._key_of(connection, owner, webhook.config.task_id)
            added = row.put(connection, self._sql, key, SNAPSHOT)
            if added and len(connection.execute(self._sql.webhooks, (key,)).fetchall()) > most:
                raise TooManyWebhooks

        self._database.write(work)

    def of_task(self, owner: Owner, task_id: str) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.of_task`."""

        def work(connection: sqlite3.Connection) -> list[Sequence[Any]]:
            return connection.execute(self._sql.webhooks, (self._key_of(connection, owner, task_id),)).fetchall()

        return tuple(map(rows.stored_webhook, self._database.read(work)))

    def delete(self, owner: Owner, task_id: str, webhook_id: str) -> None:
        """See `Webhooks.delete`."""

        def work(connection: sqlite3.Connection) -> None:
            key = self._key_of(connection, owner, task_id)
            connection.execute(self._sql.delete_webhook, (key, webhook_id))

        self._database.write(work)

    def due(self, *, now_ms: int, limit: int = 100) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.due`."""
        return tuple(map(rows.stored_webhook, self._database.rows(self._sql.due_webhooks, (now_ms, limit))))

    def claim(self, webhook: StoredWebhook, holder: str) -> StoredWebhook | None:
        """See `Webhooks.claim`."""
        mark = (webhook.task_id, webhook.id, holder)

        def find(connection: sqlite3.Connection) -> Sequence[Any] | None:
            found: Sequence[Any] | None = connection.execute(self._sql.claimable_webhook, mark).fetchone()
            return found

        def work(connection: sqlite3.Connection) -> Sequence[Any] | None:
            found = find(connection)
            if found is not None:
                connection.execute(self._sql.claim_webhook, (holder, webhook.task_id, webhook.id))
            return found

        # Read first: of several processes that try to claim it, most need no write lock.
        row = self._database.write(work) if self._database.read(find) is not None else None
        return None if row is None else replace(rows.stored_webhook(row), holder=holder)

    def settle(self, webhook: StoredWebhook, *, release: bool = False) -> bool:
        """See `Webhooks.settle`."""
        progress = (webhook.cursor, webhook.tries, webhook.due_ms, webhook.disabled, webhook.error, webhook.error_ms)
        values = (*progress, None if release else webhook.holder, webhook.disabled, webhook.cursor)
        mark = (webhook.task_id, webhook.id, webhook.revision, webhook.holder)

        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute(self._sql.settle_webhook, (*values, *mark)).rowcount > 0

        return self._database.write(work)

    def release(self, holder: str) -> None:
        """See `Webhooks.release`."""
        self._database.write(lambda connection: connection.execute(self._sql.release_webhooks, (holder,)))


class WebhookRow:
    """A webhook to be stored, encoded before the transaction."""

    def __init__(self, webhook: Webhook) -> None:
        self._id = webhook.config.id
        self._body = rows.dump_webhook(webhook.config)
        self._version = webhook.version

    def put(self, connection: sqlite3.Connection, sql: Statements, key: int, cursor: int) -> bool:
        """Replace the webhook with the same id, or add it to the task with this key at `cursor`; True if it was added."""
        if connection.execute(sql.set_webhook, (self._body, self._version, key, self._id)).rowcount:
            return False
        connection.execute(sql.add_webhook, (key, self._id, self._body, self._version, cursor, key))
        return True
