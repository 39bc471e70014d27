"""The notifications of a webhook: their bodies, in the version in which it was set, and their headers (spec 4.3.3).

A webhook of 1.0 gets each event, as in a stream; one of 0.3 gets the whole task at each new status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_TOKEN, VERSION
from a2a_sync.codec import by_version
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import A2AError
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import LargeResult, Owner, StoredWebhook, TaskStore
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry import tracing
from a2a_sync.types import JSON, Task, TaskPushNotificationConfig, TaskStatus, TaskStatusUpdateEvent

#: Tasks of which more bytes are stored are read and encoded in turns, which may wait on the threads of deliveries, and once for all
#: webhooks of a task: a small message to one just below 1 MiB with ten webhooks kept the processor busy for ten seconds.
_SMALL_BYTES = 64 * 1024
#: After it has read and encoded a task in its turn, a thread pauses as long, but not longer than so many seconds.
_MAX_PAUSE = 0.5
#: Bytes of the notifications that are kept for further webhooks, each with so many beside its body, which may be shortened.
_SHARED_BYTES, _BESIDE = 8 * 1024 * 1024, 1024
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


class _Key(NamedTuple):
    """What makes two notifications the same: the task with the status of entry `number`, or (`current`) as it is after that entry."""

    owner: Owner
    task_id: str
    version: str
    number: int
    current: bool


class _Shared:
    """The last notifications that were made for one of several webhooks, `_SHARED_BYTES` together at most. Thread-safe."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the lock is the parent's."""
        self._lock = threading.Lock()
        self._made: dict[_Key, Notification] = {}
        self._bytes = 0

    def get(self, key: _Key) -> Notification | None:
        return self._made.get(key)

    def add(self, key: _Key, made: Notification) -> None:
        """Keep a notification in place of the oldest ones; not one that is larger than all of them may be."""
        with self._lock:
            if key in self._made or _size(made) > _SHARED_BYTES:
                return
            self._made[key] = made
            self._bytes += _size(made)
            while self._bytes > _SHARED_BYTES:
                self._bytes -= _size(self._made.pop(next(iter(self._made))))


def _size(made: Notification) -> int:
    return len(made.body or b"") + _BESIDE


class Notifications:
    """Makes the bodies for one store's tasks; none is larger than `max_bytes` bytes, tasks have at most `history` messages.

    Large tasks are read and encoded in turns of `reads`, once for all webhooks; those that are certainly too large are not read.
    """

    def __init__(self, store: TaskStore, reads: LargeReads, *, max_bytes: int, history: int) -> None:
        self._store = store
        self._reads = reads
        self._max_bytes = max_bytes
        self._history = history
        self._shared = _Shared()

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
        return Notification(entry.number, self._of_task(webhook, entry.number, entry.event.status).body)

    def of_task(self, webhook: StoredWebhook, version: int) -> Notification:
        """A notification with the task as it is now, or was for another webhook at its present `version`."""
        return self._of_task(webhook, version)

    def _of_task(self, webhook: StoredWebhook, number: int, status: TaskStatus | None = None) -> Notification:
        """A notification with the task after entry `number`, but with `status` if that is given: the one of that entry."""
        key = _Key(webhook.owner, webhook.task_id, webhook.version, number, current=status is None)
        if (made := self._shared.get(key)) is not None:
            return made
        try:
            return self._measured(webhook, status, refuse_above=_SMALL_BYTES)
        except LargeResult as large:
            if large.size > _MEASURED * self._max_bytes:
                return self._shortened(webhook, large.size, status)
        with self._reads.turn(webhook.owner):
            # It may have been made for another webhook meanwhile.
            if (made := self._shared.get(key)) is not None:
                return made
            began = time.monotonic()
            made = self._measured(webhook, status)
            self._shared.add(key, made)
            took = time.monotonic() - began
        # The pending notifications of one webhook follow each other, and threads of the server need the interpreter meanwhile.
        time.sleep(min(took, _MAX_PAUSE))
        return made

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
