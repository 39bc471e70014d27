"""The entries of a task's log as a stream of events for a page: each from a number on, in order, messages included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Final

from a2a_sync import jsontext
from a2a_sync.bindings.sse import comment, frame
from a2a_sync.console.markup import clean
from a2a_sync.console.record import row_of
from a2a_sync.engine.hub import EventHub, Subscription
from a2a_sync.errors import A2AError
from a2a_sync.limits import Limits
from a2a_sync.stores.base import Owner, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Entries of one page of the log.
_PAGE = 200
_PAGE_BYTES = 256 * 1024


@dataclass(eq=False, repr=False)
class LogStream:
    """The body of a streaming response. It ends with the task, with the connection, or at `Limits.max_stream_age`.

    Parameters:
        store, owner, task_id: the task.
        hub: reports new entries.
        limits: how often it checks, and how long it lasts.
        after: the number of the last entry that the page has.
        gone: returns whether the browser has disconnected.
        release: called when the stream is closed.
    """

    store: TaskStore
    owner: Owner
    task_id: str
    hub: EventHub
    limits: Limits
    _: KW_ONLY
    after: int
    gone: Callable[[], bool]
    release: Callable[[], None] | None

    def __post_init__(self) -> None:
        self._subscription = Subscription(self.hub, self.task_id, size=1)

    def __iter__(self) -> Iterator[bytes]:
        limits = self.limits
        end = time.monotonic() + limits.max_stream_age
        written = time.monotonic()
        yield comment("log")
        try:
            while time.monotonic() < end and not self.gone() and not self._subscription.stopped:
                rows, ended = log_rows(self.store, self.owner, self.task_id, self.after)
                for row in rows:
                    self.after = int(str(row["n"]))
                    yield frame(jsontext.dumps(row), self.after)
                    written = time.monotonic()
                if ended:
                    yield frame(b"{}", event="end")
                    return
                if not rows:
                    self._subscription.take(limits.disconnect_check_interval)
                if time.monotonic() - written >= limits.stream_keepalive_interval:
                    yield comment("heartbeat")
                    written = time.monotonic()
        except A2AError as error:
            logger.info("a stream of the console ended: %s", error)

    def close(self) -> None:
        """Unsubscribe. Idempotent."""
        release, self.release = self.release, None
        self._subscription.close()
        if release is not None:
            release()


def log_rows(store: TaskStore, owner: Owner, task_id: str, after: int) -> tuple[list[dict[str, object]], bool]:
    """A page of entries after a number, and whether the task has ended and nothing follows the page.

    Raises:
        TaskNotFoundError: the owner does not have the task.
    """
    page = store.log(owner, task_id, after=after, limit=_PAGE, max_bytes=_PAGE_BYTES)
    rows = [
        {name: clean(value) if isinstance(value, str) else value for name, value in row_of(entry).items()}
        for entry in page.entries
    ]
    last = page.entries[-1].number if page.entries else after
    return rows, page.state.terminal and last >= page.version
