"""What every store offers for the webhooks of tasks: push configurations, and how far each has got.

A webhook belongs to its task and goes with it. It has a *cursor* in the task's log, so the log is what is still to be
delivered; who delivers it, and when, is decided elsewhere. Methods may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import Webhook
from a2a_sync.types import TaskPushNotificationConfig

if TYPE_CHECKING:
    from a2a_sync.stores import base
else:
    base = LazyModule("a2a_sync.stores.base")

#: The cursor of a webhook that begins with the task as it is.
SNAPSHOT = -1


class TooManyWebhooks(Exception):
    """The task has as many webhooks as it may have; nothing was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """A webhook as the store has it.

    ``number`` is its place among those of its task. ``version`` is the protocol version that it was set in; ``revision``
    counts how often it was set. ``cursor`` is the number of the last entry delivered, ``head`` that of the last one there
    is. ``tries`` of the next one have failed; it is not tried again before ``due_ms`` (since 1970). ``disabled`` says why
    nothing is delivered any more. It is ``open`` unless nothing can come any more. ``holder`` is who delivers.
    """

    scope: base.Owner
    config: TaskPushNotificationConfig
    number: int
    version: str
    revision: int
    cursor: int
    head: int
    tries: int = 0
    due_ms: int = 0
    disabled: str = ""
    open: bool = True
    holder: str = ""

    @property
    def behind(self) -> bool:
        """There is something to deliver."""
        return self.open and self.cursor < self.head

    @property
    def task_id(self) -> str:
        """The task that it is told of."""
        return self.config.task_id

    @property
    def id(self) -> str:
        """Its id among the webhooks of the task."""
        return self.config.id


class Webhooks(Protocol):
    """The webhooks of a store's tasks. All methods raise as those of `TaskStore` do.

    One that comes with a send is stored by `TaskStore.start_run`, in the same step; its cursor then stands before the run.
    A log is not compacted while one of its webhooks is behind.

    Who delivers holds the webhook meanwhile, and nobody else. What a worker held that has died (see `Workers`) is free.
    """

    def put(self, scope: base.Owner, webhook: Webhook, *, most: int) -> None:
        """Add a webhook to its task, or replace the one with its id.

        A new one begins with the task as it is (`SNAPSHOT`). One that is replaced keeps its place and its cursor; it is
        enabled, and was never tried.

        Raises:
            TooManyWebhooks: it would be one more than `most`.
        """

    def of_task(self, scope: base.Owner, task_id: str) -> tuple[StoredWebhook, ...]:
        """All webhooks of a task, in the order in which they were added."""

    def delete(self, scope: base.Owner, task_id: str, webhook_id: str) -> None:
        """Remove a webhook; nothing happens where it is not there."""

    def due(self, *, now_ms: int, limit: int = 100) -> tuple[StoredWebhook, ...]:
        """Webhooks of all scopes that are behind, may be tried now and are not held, one of each owner after the other.

        Those of one owner come in the order in which they are due.
        """

    def claim(self, webhook: StoredWebhook, holder: str) -> StoredWebhook | None:
        """Hold a webhook, also once more; as it is now. None where another one holds it, or there is nothing to deliver.

        In a shared store `holder` begins with the id of a worker that is alive, and a dot.
        """

    def settle(self, webhook: StoredWebhook, *, release: bool = False) -> bool:
        """Store ``cursor``, ``tries``, ``due_ms`` and ``disabled`` of a webhook that was claimed; with `release` let go of it.

        False, and nothing is stored, where it is gone, was set again, or is held by another one now.
        """

    def release(self, holder: str) -> None:
        """Let go of all that `holder` holds; what it settles later is refused."""
