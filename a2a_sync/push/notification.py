"""The notifications of a webhook: their bodies, in the version in which it was set, and their headers (spec 4.3.3).

A webhook of 1.0 gets each event, as in a stream; one of 0.3 gets the whole task at each new status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_TOKEN, VERSION
from a2a_sync.codec import by_version
from a2a_sync.errors import A2AError
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import SMALL_BYTES, LargeResult, StoredWebhook, TaskStore
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry import tracing
from a2a_sync.types import JSON, Task, TaskPushNotificationConfig, TaskStatus, TaskStatusUpdateEvent

#: A task of which so many times the bytes of the largest notification are stored is not read in order to measure it. The log has
#: a streamed artifact twice, so that a task can be smaller than what is stored of it.
_MEASURED = 2
#: Metadata of a task that replaces a notification that is too large.
SHORTENED = "urn:a2a-sync:push:shortened"

_MEDIA_TYPES = {"1.0": "application/a2a+json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """A notification that is due, as a sender gets it. Its repr shows neither secrets nor contents.

    Parameters:
        task_id: the task that it is about.
        config: the webhook: its URL, id, token and credentials.
        headers: the HTTP headers that a receiver expects, with credentials and signature.
        body: the JSON to deliver.
        timeout: seconds that one delivery may take (`PushOptions.timeout`).
    """

    task_id: str
    config: TaskPushNotificationConfig
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    timeout: float


class PushRefusedError(A2AError):
    """Raised by a sender of the application: a receiver refused a notification.

    Parameters:
        reason: a short text without secrets. It is logged, and the owner of the webhook can read it once that is disabled.
        retry_after: seconds until the next attempt, at least; `PushOptions.max_backoff` at most.
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
    """One post: the number of the last entry that it covers, and its body, None where that entry is not posted."""

    number: int
    body: bytes | None


class Notifications:
    """Makes the bodies for one store's tasks; none is larger than `max_bytes` bytes, tasks have at most `history` messages.

    Large tasks are read and encoded in turns of `reads`, and those that are certainly too large are not read.
    """

    def __init__(self, store: TaskStore, reads: LargeReads, *, max_bytes: int, history: int) -> None:
        self._store = store
        self._reads = reads
        self._max_bytes = max_bytes
        self._history = history

    def of_entry(self, webhook: StoredWebhook, entry: Entry) -> Notification:
        """The notification of an entry of the task's log."""
        if not entry.streamed:
            return Notification(entry.number, None)
        if webhook.version != "0.3":
            body = by_version(webhook.version).encode_item(entry)
            too_large = len(body) > self._max_bytes
            return Notification(entry.number, self._shortened(webhook, len(body)).body if too_large else body)
        if not issubclass(entry.kind, TaskStatusUpdateEvent):
            return Notification(entry.number, None)
        assert isinstance(entry.event, TaskStatusUpdateEvent)
        # The rest of the task may be newer than this status; the next notification is about that.
        return Notification(entry.number, self._of_task(webhook, entry.event.status).body)

    def of_task(self, webhook: StoredWebhook) -> Notification:
        """A notification with the task as it is now."""
        return self._of_task(webhook)

    def _of_task(self, webhook: StoredWebhook, status: TaskStatus | None = None) -> Notification:
        """A notification with the task as it is now, but with `status` if that is given."""
        try:
            return self._measured(webhook, status, refuse_above=SMALL_BYTES)
        except LargeResult as large:
            if large.size > _MEASURED * self._max_bytes:
                return self._shortened(webhook, large.size, status)
        with self._reads.turn(webhook.owner):
            return self._measured(webhook, status)

    def _measured(
        self, webhook: StoredWebhook, status: TaskStatus | None, *, refuse_above: int | None = None
    ) -> Notification:
        stored = self._store.load(webhook.owner, webhook.task_id, history=self._history, refuse_above=refuse_above)
        body = _encode(webhook, replace(stored.task, status=status or stored.task.status))
        if len(body) > self._max_bytes:
            return self._shortened(webhook, len(body), status)
        return Notification(stored.version, body)

    def _shortened(self, webhook: StoredWebhook, size: int, status: TaskStatus | None = None) -> Notification:
        """The task without artifacts and history in place of `size` bytes: the client can read these."""
        stored = self._store.load(webhook.owner, webhook.task_id, history=0, artifacts=False)
        marked: dict[str, JSON] = {SHORTENED: size}
        bare = replace(stored.task, status=status or stored.task.status, metadata=marked)
        body = _encode(webhook, bare)
        if len(body) > self._max_bytes:
            body = _encode(webhook, replace(bare, status=replace(bare.status, message=None)))
        return Notification(stored.version, body)


def _encode(webhook: StoredWebhook, task: Task) -> bytes:
    return by_version(webhook.version).encode_item(StreamItem(task))


def headers(webhook: StoredWebhook, number: int) -> dict[str, str]:
    """The headers of the notification of entry `number`, with the secrets of the webhook."""
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
    # A scheme alone is no authentication.
    if authentication is not None and authentication.credentials:
        written["Authorization"] = f"{authentication.scheme} {authentication.credentials}"
    return written
