"""Retention in PostgreSQL: eviction above bounds, removal of expired tasks, compaction of expired logs.

All deletions of tasks go through `Retention._remove`. Each eviction is a transaction of its own that locks the evicted task and
a row of its account, so other owners do not wait.

The number of all tasks, and which accounts have most, are sums over all accounts. They are read once in many creations, and
kept up to date in between by what this process creates and removes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from a2a_sync.stores.base import Expiry, Owner, OwnerFull, StoreQuota, SweepResult
from a2a_sync.stores.postgres import reading
from a2a_sync.stores.postgres.database import Connection, Database, query
from a2a_sync.stores.postgres.schema import SWEEP_LOCK, Statements, scope_of
from a2a_sync.stores.reading import EVICTED_AT_ONCE, ROWS_AT_ONCE, at_once, waiting
from a2a_sync.stores.rows import HeadRow

_ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(%s)"

#: All tasks are counted again after as many creations as a thousandth of them, so fewer than 1,000 at each creation.
_CREATIONS_PER_COUNT: Final = 1 / 1000
#: The accounts that are ranked, and of which at most a task is looked for at an eviction.
_RANKED, _TRIED = 1000, 100


class _Ranking:
    """The accounts with the most tasks, as `found` with their numbers, without what this process has evicted since."""

    def __init__(self, found: Sequence[tuple[str, int]]) -> None:
        self._tasks = dict(found)
        # An account that is not among them has no more tasks than the last one.
        self._least = found[-1][1] if len(found) == _RANKED else 1

    def largest_first(self) -> Iterator[str]:
        """The accounts that have at least as many tasks as all others."""
        for account in heapq.nlargest(_TRIED, self._tasks, key=self._tasks.__getitem__):
            if self._tasks[account] < self._least:
                return
            yield account

    def tried(self, account: str, evicted: bool) -> None:
        """A task of this account was evicted, or it had none without a run."""
        self._tasks[account] = self._tasks[account] - 1 if evicted else 0


class Retention:
    """Removes tasks and compacts logs in `database`."""

    def __init__(self, database: Database, sql: Statements, max_tasks: int | None) -> None:
        self._database = database
        self._sql = sql
        self._max_tasks = max_tasks
        # Approximations, so no lock: a change that is lost is corrected when they are read again.
        self._tasks = 0
        self._uncounted = 0
        self._ranking = _Ranking(())
        self._outdated = True
        self._removed = False

    def delete(self, owner: Owner, task_id: str) -> bool:
        """Remove a task of an owner; False where it has none with this id."""

        # When the answer to a commit is lost, the repeated work finds nothing.
        known = False

        def work(connection: Connection) -> bool:
            nonlocal known
            with connection.transaction():
                found = query(connection, self._sql.lock_owned, (task_id, scope_of(owner)))
                known = known or bool(found)
                self._remove(connection, [HeadRow._make(row) for row in found])
            return known

        return self._database.run(work)

    def _remove(self, connection: Connection, found: Sequence[HeadRow]) -> None:
        """Delete tasks whose rows are locked, with everything that belongs to them. In a transaction."""
        if found:
            keys = {"keys": [row.key for row in found]}
            # Of two last tasks of a context that are removed at once, the second one finds the first one gone.
            query(connection, self._sql.lock_states, keys)
            query(connection, self._sql.remove, keys)
            self._tasks -= len(found)
            self._removed = True

    # -- by number and bytes ------------------------------------------------------------------------------------------

    def evict_bytes(self, account: str, task_id: str, size: int, quota: StoreQuota) -> tuple[str, ...]:
        """Evict tasks of an account until `size` bytes more fit; the ids of those that waited for their client.

        Raises:
            OwnerFull: not enough can be evicted.
        """
        if quota.max_bytes is None:
            return ()
        evicted: list[HeadRow] = []
        # Read after each eviction: the last task of a context frees the values of the context too.
        while (surplus := self._account(account)[1] + size - quota.max_bytes) > 0:
            found = self._evict(account, task_id)
            if not found:
                raise OwnerFull(f"the tasks of one owner exceed their limit by {surplus} bytes", waiting(evicted))
            evicted += found
        return waiting(evicted)

    def evict_surplus(self, account: str, task_id: str, quota: StoreQuota) -> tuple[str, ...]:
        """Evict tasks above the bounds of numbers, after `task_id` was created; the ids of those that waited."""
        evicted: list[HeadRow] = []
        if quota.max_tasks is not None:
            for _ in range(min(self._account(account)[0] - quota.max_tasks, EVICTED_AT_ONCE)):
                evicted += self._evict(account, task_id)
        if self._max_tasks is not None:
            for _ in range(min(self._count() - self._max_tasks, EVICTED_AT_ONCE)):
                evicted += self._evict_of_largest(task_id)
        return waiting(evicted)

    def _count(self) -> int:
        """The tasks of the store, after this process has created one."""
        self._tasks += 1
        self._uncounted += 1
        if self._uncounted >= self._tasks * _CREATIONS_PER_COUNT:
            self._uncounted = 0  # creations of other threads do not count at the same time
            self._outdated = True
            ((counted,),) = self._database.run(lambda c: query(c, self._sql.count))
            self._tasks = tasks = int(counted)
            return tasks
        return self._tasks

    def _account(self, account: str) -> tuple[int, int]:
        ((tasks, size),) = self._database.run(lambda c: query(c, self._sql.account, (account,)))
        return tasks, size

    def _evict(self, account: str, task_id: str) -> list[HeadRow]:
        """Evict the next task of an account, but not `task_id`; none where all its tasks have a run."""

        def work(connection: Connection) -> list[HeadRow]:
            with connection.transaction():
                found = query(connection, self._sql.next_to_evict, {"account": account, "id": task_id})
                evicted = [HeadRow._make(row) for row in found]
                self._remove(connection, evicted)
            return evicted

        return self._database.run(work)

    def _evict_of_largest(self, task_id: str) -> list[HeadRow]:
        """Evict a task of the account with the most tasks, among those that have a task without a run."""
        while True:
            latest, self._outdated = self._outdated, False
            if latest:
                self._ranking = _Ranking(self._database.run(lambda c: query(c, self._sql.largest_accounts, (_RANKED,))))
            ranking = self._ranking
            for account in ranking.largest_first():
                evicted = self._evict(account, task_id)
                ranking.tried(account, bool(evicted))
                if evicted:
                    return evicted
            if latest:
                return []
            self._outdated = True

    # -- by age -------------------------------------------------------------------------------------------------------

    def sweep(self, expiry: Expiry, limit: int) -> SweepResult:
        """See `TaskStore.sweep`."""
        self._clamp_end_times(expiry.now)
        ended, more_ended, _ = self._remove_expired(True, expiry.ended, limit)
        others, more_others, evicted = self._remove_expired(False, expiry.waiting, limit)
        compacted, more_logs = self._compact_expired(expiry.replay, limit)
        # Also those that deletions and evictions have emptied.
        removed, self._removed = self._removed, False
        if removed:
            self._database.run(lambda c: query(c, self._sql.delete_accounts))
        more = more_ended or more_others or more_logs
        return SweepResult(removed=ended + others, compacted=compacted, more=more, evicted=evicted)

    def _clamp_end_times(self, now: int | None) -> None:
        for ended in (True, False) if now is not None else ():
            values = {"now": now, "ended": ended, "limit": ROWS_AT_ONCE}
            self._database.run(lambda c: query(c, self._sql.clamp_end_times, values))  # noqa: B023

    def _remove_expired(self, ended: bool, moment: int | None, limit: int) -> tuple[int, bool, tuple[str, ...]]:
        """Remove expired tasks; returns how many, whether there are more, and the ids of those that waited."""

        def work(connection: Connection) -> tuple[list[HeadRow], bool]:
            with connection.transaction():
                # Sweeps change rows of many accounts, in any order: one at a time, or they could deadlock.
                query(connection, _ADVISORY_LOCK, (SWEEP_LOCK,))
                found = query(connection, self._sql.lock_expired, (ended, moment, limit + 1))
                chosen, more = at_once(map(HeadRow._make, found), limit)
                self._remove(connection, chosen)
            return chosen, more

        if moment is None or not self._database.run(lambda c: query(c, self._sql.expired, (ended, moment))):
            return 0, False, ()
        removed, more = self._database.run(work)
        return len(removed), more, waiting(removed)

    def _compact_expired(self, moment: int | None, limit: int) -> tuple[int, bool]:
        """Compact expired logs; returns how many, and whether there are more."""
        if moment is None:
            return 0, False
        found = self._database.run(lambda c: query(c, self._sql.compactable, (moment, limit + 1)))
        compacted = sum(self._compact(task_id, scope) for task_id, scope in found[:limit])
        return compacted, len(found) > limit

    def _compact(self, task_id: str, scope: bytes) -> bool:
        """Replace a log by its messages and folded artifacts; False if the task has changed since it was read."""

        def work(connection: Connection) -> bool:
            one = reading.load(connection, self._sql, scope, task_id, history=0)
            if one is None:
                return False
            row = one.row
            snapshot = one.snapshot_of(one.fold()) if row.artifacts else {"covered": 0, "body": None}
            ((kept,),) = query(connection, self._sql.kept_bytes, (row.key,))
            body = snapshot["body"]
            left = kept + (len(body) if isinstance(body, bytes) else 0)
            values = {**snapshot, "task": row.key, "version": row.version, "left": left}
            return bool(query(connection, self._sql.compact, values))

        return self._database.run(work)
