"""The webhooks of a `MemoryStore`. Each task's record holds its own, as a tuple that writers replace under the store's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from a2a_sync.operations import Webhook
from a2a_sync.stores.base import Scope
from a2a_sync.stores.records import Record
from a2a_sync.stores.webhooks import SNAPSHOT, StoredWebhook, TooManyWebhooks


class MemoryWebhooks:
    """The `Webhooks` of the store whose lock this is; `find` is how it finds the record of a task."""

    def __init__(self, lock: threading.Lock, find: Callable[[Scope, str], Record]) -> None:
        self._lock = lock
        self._find = find

    def put(self, scope: Scope, webhook: Webhook, *, most: int) -> None:
        """See `Webhooks.put`."""
        with self._lock:
            record = self._find(scope, webhook.config.task_id)
            if len(record.webhooks) >= most and all(known.id != webhook.config.id for known in record.webhooks):
                raise TooManyWebhooks
            set_webhook(record, webhook, SNAPSHOT)

    def of_task(self, scope: Scope, task_id: str) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.of_task`."""
        return self._find(scope, task_id).webhooks

    def delete(self, scope: Scope, task_id: str, webhook_id: str) -> None:
        """See `Webhooks.delete`."""
        with self._lock:
            record = self._find(scope, task_id)
            record.webhooks = tuple(known for known in record.webhooks if known.id != webhook_id)


def set_webhook(record: Record, webhook: Webhook, cursor: int) -> None:
    """Add a webhook that begins after `cursor`, or replace the one with its id. The store's lock is held."""
    config, version = webhook
    for place, known in enumerate(record.webhooks):
        if known.id == config.id:
            again = replace(
                known, config=config, version=version, revision=known.revision + 1, tries=0, due_ms=0, disabled=""
            )
            record.webhooks = (*record.webhooks[:place], again, *record.webhooks[place + 1 :])
            return
    number = record.webhooks[-1].number + 1 if record.webhooks else 1
    new = StoredWebhook(
        scope=record.owned.scope, config=config, number=number, version=version, revision=1, cursor=cursor
    )
    record.webhooks = (*record.webhooks, new)
