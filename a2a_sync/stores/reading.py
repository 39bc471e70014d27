"""What both SQL stores do with rows that were read: fold tasks, fit them into bounds of bytes, and choose what one transaction changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from a2a_sync.stores import rows
from a2a_sync.stores.base import Cursor, TaskPage, folded
from a2a_sync.stores.rows import SNAPSHOT_AFTER, HeadRow
from a2a_sync.types import Message, Task

#: At most this many tasks are evicted when a task is created; a lowered bound is reached gradually.
EVICTED_AT_ONCE = 2
#: About this many rows are deleted or changed in one transaction.
ROWS_AT_ONCE = 10_000


class StoredReading:
    """The bodies of the rows of one task, read together and folded after that."""

    def __init__(self, row: HeadRow) -> None:
        self.row = row
        #: Oldest first.
        self.messages: list[bytes] = []
        self.snapshot: bytes | None = None
        #: The number of artifact entries that the snapshot covers.
        self.covered: int = 0
        self.artifacts: list[bytes] = []

    @property
    def wants_snapshot(self) -> bool:
        """So many artifact entries follow the snapshot that the next reads gain from a new one."""
        return len(self.artifacts) >= max(SNAPSHOT_AFTER, self.covered)

    def fold(self) -> Task:
        """The task as of the read."""
        messages = (rows.event(body) for body in self.messages)
        history = [message for message in messages if isinstance(message, Message)]
        return folded(self.row.head(), history, rows.fold_artifacts(self.snapshot, self.artifacts))


class Sizes(NamedTuple):
    """The bytes that a read of a task would return, without reading it: ``messages``, newest first, and ``rest``."""

    messages: Sequence[int]
    rest: int

    @property
    def all(self) -> int:
        """The total in bytes."""
        return self.rest + sum(self.messages)

    def fitting(self, most: int) -> int:
        """How many of the newest messages fit into `most` bytes together with ``rest``."""
        sums = itertools.accumulate(self.messages, initial=self.rest)
        return max(0, sum(1 for size in sums if size <= most) - 1)


def page_of(readings: Sequence[StoredReading], *, more: bool, total: int) -> TaskPage:
    """The page with these tasks; `more`: others follow them."""
    last = readings[-1].row if readings and more else None
    return TaskPage(
        tasks=tuple(reading.fold() for reading in readings),
        next=None if last is None else Cursor(last.status_ms, last.id),
        total=total,
    )


def waiting(evicted: Iterable[HeadRow]) -> tuple[str, ...]:
    """The ids of the evicted tasks that waited for their client."""
    return tuple(row.id for row in evicted if not row.ended)


def at_once(found: Iterable[HeadRow], limit: int) -> tuple[list[HeadRow], bool]:
    """The first tasks of `found` that one transaction should change, at least one; and whether there are more."""
    chosen: list[HeadRow] = []
    entries = 0
    for row in found:
        entries += row.version
        if chosen and (entries > ROWS_AT_ONCE or len(chosen) == limit):
            return chosen, True
        chosen.append(row)
    return chosen, False
