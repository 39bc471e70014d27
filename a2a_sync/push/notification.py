"""What is posted to a webhook: the body in the form of the version that it was set in, and the headers (spec 4.3.3).

1.0 is told of each event, as in a stream. 0.3 is told of each new status by the whole task. Nothing is posted here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_TOKEN, VERSION
from a2a_sync.codec import by_version
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import StoredTask, TaskStore
from a2a_sync.stores.webhooks import StoredWebhook
from a2a_sync.telemetry import tracing
from a2a_sync.types import JSON, Task, TaskPushNotificationConfig, TaskStatusUpdateEvent

#: Metadata of a task that stands for something too large to be posted.
SHORTENED = "urn:a2a-sync:push:shortened"

_MEDIA_TYPES = {"1.0": "application/a2a+json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """A notification that is due, as a sender gets it. Its repr shows neither secrets nor content.

    Parameters:
        task_id: the task that it is about.
        config: the webhook: its URL, id, token and credentials.
        headers: the HTTP headers that a receiver expects, with credentials and signature.
        body: the JSON to deliver.
        timeout: seconds that one delivery may take (`Limits.push_timeout`).
    """

    task_id: str
    config: TaskPushNotificationConfig
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    timeout: float


class PushRefusedError(Exception):
    """Raised by a sender of the application: a receiver refused a notification.

    Parameters:
        reason: a short text without secrets. It is logged, and the owner of the webhook can read it once that is disabled.
        retry_after: seconds until the next attempt, at least; `Limits.push_longest_pause` at most.
        permanent: no further attempt: the webhook is disabled at once.
    """

    def __init__(self, reason: str, *, retry_after: float = 0.0, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.permanent = permanent


#: Delivers one notification; an exception means that it was not delivered. See `PushOptions`.
PushSender: TypeAlias = Callable[[PushRequest], None]


class Notification(NamedTuple):
    """One post: the number of the last entry that it tells of, and its body, None where there is nothing to tell."""

    number: int
    body: bytes | None


class Notifications:
    """Makes the bodies for one store's tasks; none is larger than `most` bytes, tasks carry `history` messages at most."""

    def __init__(self, store: TaskStore, *, most: int, history: int) -> None:
        self._store = store
        self._most = most
        self._history = history

    def of_entry(self, webhook: StoredWebhook, entry: Entry) -> Notification:
        """What a webhook is told of an entry of its task's log."""
        if not entry.streamed:
            return Notification(entry.number, None)
        if webhook.version != "0.3":
            body = by_version(webhook.version).encode_item(entry)
            return Notification(entry.number, self._bounded(webhook, body, lambda: self._load(webhook).task))
        if not isinstance(entry.event, TaskStatusUpdateEvent):
            return Notification(entry.number, None)
        # What else the task holds may be newer than its status here; the next notification is about that one.
        task = replace(self._load(webhook).task, status=entry.event.status)
        return Notification(entry.number, self._of_task(webhook, task))

    def of_task(self, webhook: StoredWebhook) -> Notification:
        """The task as it is now."""
        stored = self._load(webhook)
        return Notification(stored.version, self._of_task(webhook, stored.task))

    def _load(self, webhook: StoredWebhook) -> StoredTask:
        return self._store.load(webhook.scope, webhook.task_id, history=self._history)

    def _of_task(self, webhook: StoredWebhook, task: Task) -> bytes:
        return self._bounded(webhook, _written(webhook, task), lambda: task)

    def _bounded(self, webhook: StoredWebhook, body: bytes, task: Callable[[], Task]) -> bytes:
        """`body`, or where it is too large the task without what makes it so: its client can get it."""
        if len(body) <= self._most:
            return body
        marked: dict[str, JSON] = {SHORTENED: len(body)}
        whole = task()
        bare = replace(whole, artifacts=(), history=(), metadata=marked)
        body = _written(webhook, bare)
        return (
            body
            if len(body) <= self._most
            else _written(webhook, replace(bare, status=replace(bare.status, message=None)))
        )


def _written(webhook: StoredWebhook, task: Task) -> bytes:
    return by_version(webhook.version).encode_item(StreamItem(task))


def headers(webhook: StoredWebhook, number: int) -> dict[str, str]:
    """The headers of a notification that tells of entry `number`, with the secrets of the webhook."""
    config = webhook.config
    written = {
        **tracing.outgoing(),
        "Content-Type": _MEDIA_TYPES.get(webhook.version, "application/json"),
        VERSION: webhook.version,
        NOTIFICATION_ID: f"{webhook.task_id}/{number}",
    }
    if config.token:
        written[NOTIFICATION_TOKEN] = config.token
    authentication = config.authentication
    # A scheme alone says nothing.
    if authentication is not None and authentication.credentials:
        written["Authorization"] = f"{authentication.scheme} {authentication.credentials}"
    return written
