"""The webhooks of a `MemoryStore`. The record of a task has a tuple of them, replaced under the store's lock."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import Webhook
from a2a_sync.stores.base import SNAPSHOT, Owner, StoredWebhook, TooManyWebhooks
from a2a_sync.stores.memory.records import Record


class MemoryWebhooks:
    """The `Webhooks` of the store that `lock` and `tasks` belong to; `find` returns the record of a task."""

    def __init__(self, lock: threading.Lock, tasks: Mapping[str, Record], find: Callable[[Owner, str], Record]) -> None:
        self._lock = lock
        self._tasks = tasks
        self._find = find

    def put(self, owner: Owner, webhook: Webhook, *, most: int) -> None:
        """See `Webhooks.put`."""
        with self._lock:
            record = self._find(owner, webhook.config.task_id)
            if len(record.webhooks) >= most and all(known.id != webhook.config.id for known in record.webhooks):
                raise TooManyWebhooks
            set_webhook(record, webhook, SNAPSHOT)

    def of_task(self, owner: Owner, task_id: str) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.of_task`."""
        return current_webhooks(self._find(owner, task_id))

    def delete(self, owner: Owner, task_id: str, webhook_id: str) -> None:
        """See `Webhooks.delete`."""
        with self._lock:
            record = self._find(owner, task_id)
            record.webhooks = tuple(known for known in record.webhooks if known.id != webhook_id)

    def due(self, *, now_ms: int, limit: int = 100) -> tuple[StoredWebhook, ...]:
        """See `Webhooks.due`."""
        with self._lock:
            records = [record for record in self._tasks.values() if record.webhooks]
        waiting = [webhook for record in records for webhook in current_webhooks(record)]
        found = [webhook for webhook in waiting if webhook.behind and webhook.due_ms <= now_ms and not webhook.holder]
        found.sort(key=lambda webhook: webhook.due_ms)
        before: Counter[str] = Counter()
        ranked = []
        for webhook in found:
            ranked.append((before[webhook.owner.id], webhook.due_ms, webhook))
            before[webhook.owner.id] += 1
        ranked.sort(key=lambda row: row[:2])
        return tuple(webhook for _, _, webhook in ranked[:limit])

    def claim(self, webhook: StoredWebhook, holder: str) -> StoredWebhook | None:
        """See `Webhooks.claim`."""
        with self._lock:
            record = self._record_of(webhook)
            known = record and next((one for one in current_webhooks(record) if one.id == webhook.id), None)
            if not (record and known and known.behind and known.holder in ("", holder)):
                return None
            held = replace(known, holder=holder)
            _swap(record, held)
            return held

    def settle(self, webhook: StoredWebhook, *, release: bool = False) -> bool:
        """See `Webhooks.settle`."""
        with self._lock:
            record = self._record_of(webhook)
            mark = (webhook.id, webhook.revision, webhook.holder)
            if record is None or mark not in [(one.id, one.revision, one.holder) for one in record.webhooks]:
                return False
            over = record.terminal and webhook.cursor >= record.version
            open_ = not webhook.disabled and not over
            _swap(record, replace(webhook, open=open_, holder="" if release else webhook.holder))
            return True

    def release(self, holder: str) -> None:
        """See `Webhooks.release`."""
        with self._lock:
            for record in self._tasks.values():
                for webhook in record.webhooks:
                    if webhook.holder == holder:
                        _swap(record, replace(webhook, holder=""))

    def _record_of(self, webhook: StoredWebhook) -> Record | None:
        try:
            return self._find(webhook.owner, webhook.task_id)
        except TaskNotFoundError:
            return None


def set_webhook(record: Record, webhook: Webhook, cursor: int) -> None:
    """Add a webhook that starts after `cursor`, or replace the one with its id. The caller holds the lock of the store."""
    config, version = webhook
    known = next((known for known in record.webhooks if known.id == config.id), None)
    if known is not None:
        fresh = replace(known, config=config, version=version, tries=0, due_ms=0, disabled="", open=True)
        _swap(record, replace(fresh, revision=known.revision + 1))
        return
    new = StoredWebhook(
        owner=record.owned.owner,
        config=config,
        number=record.webhooks[-1].number + 1 if record.webhooks else 1,
        version=version,
        revision=1,
        cursor=cursor,
        head=record.version,
    )
    record.webhooks = (*record.webhooks, new)


def _swap(record: Record, webhook: StoredWebhook) -> None:
    record.webhooks = tuple(webhook if one.number == webhook.number else one for one in record.webhooks)


def current_webhooks(record: Record) -> tuple[StoredWebhook, ...]:
    """The webhooks of a task, with the number of its last entry as ``head``."""
    head = record.version
    return tuple(replace(webhook, head=head) for webhook in record.webhooks)
