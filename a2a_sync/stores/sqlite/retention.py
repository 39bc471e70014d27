"""Retention in an SQLite file: eviction above bounds, removal of expired tasks, compaction of expired logs.

All deletions of tasks go through `Retention.remove`. The file does not shrink; SQLite reuses the freed pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter

from a2a_sync.stores.base import Expiry, OwnerFull, StoreQuota, SweepResult
from a2a_sync.stores.reading import EVICTED_AT_ONCE, ROWS_AT_ONCE, at_once, waiting
from a2a_sync.stores.rows import HeadRow
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.reading import Reading
from a2a_sync.stores.sqlite.schema import Statements, place

#: The number of owners whose tasks are compared when the store is full.
_RANKED_AT_ONCE = 100


class _TooMuchAtOnce(Exception):
    """More rows must be evicted than one transaction should delete."""


class Retention:
    """Removes tasks and compacts logs in `database`."""

    def __init__(self, database: Database, sql: Statements, max_tasks: int) -> None:
        self._database = database
        self._sql = sql
        self._max_tasks = max_tasks

    def remove(self, connection: sqlite3.Connection, row: HeadRow) -> None:
        """Delete a task and all its rows."""
        log = (place(row.key, 0), place(row.key, row.version))
        connection.execute(self._sql.delete_task, (row.key,))
        connection.execute(self._sql.delete_sends, log)
        connection.execute(self._sql.delete_entries, log)
        connection.execute(self._sql.delete_webhooks, (row.key,))
        connection.execute(self._sql.delete_state, (row.tenant, row.owner, row.context))
        if row.has_snapshot:
            connection.execute(self._sql.delete_snapshot, (row.key,))

    def evict_surplus(
        self, connection: sqlite3.Connection, owner: str, quota: StoreQuota, *, create: bool, but: int
    ) -> tuple[str, ...]:
        """Evict tasks other than `but` until the owner and the store are within their bounds.

        Returns the ids of those that waited for their client.

        Raises:
            OwnerFull: the owner holds too many bytes, and not enough can be evicted.
        """
        evicted: list[HeadRow] = []
        tasks, stored, rank, everywhere = connection.execute(self._sql.account, (owner,)).fetchone()
        if tasks >> rank:
            connection.execute(self._sql.set_rank, (rank + 1, owner))
        if create and quota.max_tasks is not None:
            for _ in range(min(tasks - quota.max_tasks, EVICTED_AT_ONCE)):
                evicted += self._evict(connection, owner, but)
        if quota.max_bytes is not None and stored > quota.max_bytes:
            evicted += self._evict_bytes(connection, owner, quota.max_bytes, but)
        if create:
            for _ in range(min(everywhere - len(evicted) - self._max_tasks, EVICTED_AT_ONCE)):
                evicted += self._evict_of_largest(connection, but)
        return waiting(evicted) if evicted else ()

    def start_with_eviction(
        self, owner: str, start: Callable[[], tuple[HeadRow, tuple[str, ...]]]
    ) -> tuple[HeadRow, tuple[str, ...]]:
        """Call `start` and return its result. Where it would evict too much, evict in separate transactions and retry."""
        evicted: tuple[str, ...] = ()
        while True:
            try:
                row, more = start()
                return row, evicted + more
            except _TooMuchAtOnce:
                evicted += waiting(self._database.write(partial(self._evict_some, owner=owner)))
            except OwnerFull as full:
                # The evictions of earlier transactions are committed.
                full.evicted = evicted
                raise

    def _evict_bytes(self, connection: sqlite3.Connection, owner: str, most: int, but: int) -> list[HeadRow]:
        evicted: list[HeadRow] = []
        entries = 0
        # Read after each eviction: the last task of a context frees the values of the context too.
        while (surplus := connection.execute(self._sql.account, (owner,)).fetchone()[1] - most) > 0:
            if entries > ROWS_AT_ONCE:
                raise _TooMuchAtOnce
            found = self._evict(connection, owner, but)
            if not found:
                raise OwnerFull(f"the tasks of one owner exceed their limit by {surplus} bytes")
            evicted += found
            entries += found[0].version
        return evicted

    def _evict_some(self, connection: sqlite3.Connection, owner: str) -> list[HeadRow]:
        evicted: list[HeadRow] = []
        while sum(row.version for row in evicted) <= ROWS_AT_ONCE and (found := self._evict(connection, owner)):
            evicted += found
        return evicted

    def _evict_of_largest(self, connection: sqlite3.Connection, but: int) -> list[HeadRow]:
        """Evict a task of the owner with the most tasks, among owners that have a task without a run."""
        for owner in self._largest_first(connection):
            if evicted := self._evict(connection, owner, but):
                return evicted
        return []

    def _largest_first(self, connection: sqlite3.Connection) -> Iterator[str]:
        """The owners by number of tasks. Of more than `_RANKED_AT_ONCE` with the same rank, only the first are compared."""
        for rank in range(connection.execute(self._sql.highest_rank).fetchone()[0] or 0, 0, -1):
            while True:
                found = connection.execute(self._sql.accounts_of_rank, (rank, _RANKED_AT_ONCE)).fetchall()
                shrunk = [(tasks.bit_length(), owner) for owner, tasks in found if tasks.bit_length() < rank]
                if not shrunk:
                    break
                connection.executemany(self._sql.set_rank, shrunk)
            found.sort(key=itemgetter(1), reverse=True)
            yield from (owner for owner, _ in found)

    def _evict(self, connection: sqlite3.Connection, owner: str, but: int = 0) -> list[HeadRow]:
        """Evict the next task of an owner, but not the one with the key `but`; none where all its tasks have a run."""
        row = connection.execute(self._sql.next_to_evict, (owner, but)).fetchone()
        if row is None:
            return []
        evicted = HeadRow._make(row)
        self.remove(connection, evicted)
        return [evicted]

    def _remove_all(self, connection: sqlite3.Connection, found: Sequence[HeadRow]) -> tuple[str, ...]:
        for row in found:
            self.remove(connection, row)
        return waiting(found)

    # -- by age -------------------------------------------------------------------------------------------------------

    def sweep(self, expiry: Expiry, limit: int) -> SweepResult:
        """See `TaskStore.sweep`. A write transaction begins only if there is something to change."""
        self._clamp_end_times(expiry.now)
        ended, more_ended, _ = self._remove_expired(True, expiry.ended, limit)
        others, more_others, evicted = self._remove_expired(False, expiry.waiting, limit)
        compacted, more_logs = self._compact_expired(expiry.replay, limit)
        more = more_ended or more_others or more_logs
        return SweepResult(removed=ended + others, compacted=compacted, more=more, evicted=evicted)

    def _clamp_end_times(self, now: int | None) -> None:
        for ended in (True, False):
            wrong = (ended, now, ROWS_AT_ONCE)
            if now is not None and self._database.read(lambda c: c.execute(self._sql.ahead, wrong).fetchone()):  # noqa: B023
                self._database.write(lambda c: c.execute(self._sql.clamp_end_time, (now, *wrong)))  # noqa: B023

    def _remove_expired(self, ended: bool, moment: int | None, limit: int) -> tuple[int, bool, tuple[str, ...]]:
        """Remove expired tasks; returns how many, whether there are more, and the ids of those that waited."""

        def find(connection: sqlite3.Connection) -> tuple[list[HeadRow], bool]:
            found = connection.execute(self._sql.expired, (ended, moment, limit + 1)).fetchall()
            return at_once(map(HeadRow._make, found), limit)

        def work(connection: sqlite3.Connection) -> tuple[int, bool, tuple[str, ...]]:
            found, more = find(connection)
            return len(found), more, self._remove_all(connection, found)

        if moment is None or not self._database.read(find)[0]:
            return 0, False, ()
        return self._database.write(work)

    def _compact_expired(self, moment: int | None, limit: int) -> tuple[int, bool]:
        """Compact expired logs; returns how many, and whether there are more."""
        if moment is None:
            return 0, False

        def find(connection: sqlite3.Connection) -> tuple[list[Reading], bool]:
            found = connection.execute(self._sql.compactable, (moment, limit + 1)).fetchall()
            chosen, more = at_once(map(HeadRow._make, found), limit)
            return [Reading.of(connection, self._sql, row, 0, True) for row in chosen], more

        readings, more = self._database.read(find)
        return sum(self._compact(reading) for reading in readings), more

    def _compact(self, reading: Reading) -> bool:
        """Replace a log by its messages and folded artifacts; False if the task has changed since it was read."""
        row = reading.row
        # Folded outside the transaction, so that other writers do not wait for it.
        snapshot = reading.snapshot_of(reading.fold()) if row.artifacts else None

        def work(connection: sqlite3.Connection) -> bool:
            log = (place(row.key, 0), place(row.key, row.version))
            left = connection.execute(self._sql.kept_bytes, log).fetchone()[0] + (len(snapshot[2]) if snapshot else 0)
            if not connection.execute(self._sql.compact, (left, row.key, row.id, row.version)).rowcount:
                return False
            if snapshot is not None:
                connection.execute(self._sql.put_snapshot, snapshot)
            connection.execute(self._sql.delete_all_but_messages, log)
            return True

        return self._database.write(work)
