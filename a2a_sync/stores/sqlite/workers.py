"""The processes that share one SQLite file: their leases, and the takeover of runs of dead workers."""

from __future__ import annotations

import itertools
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HeldRun, LostWorker, Owner, RunToken, StartedRun
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements

_Adopt = Callable[[RunToken, RunRequest, Sequence[LogEvent]], StartedRun]


class SQLiteWorkers:
    """The `Workers` of an `SQLiteStore`. `adopt` runs the transaction of `Workers.adopt` in the store."""

    def __init__(self, database: Database, sql: Statements, path: str, adopt: _Adopt) -> None:
        self._database = database
        self._sql = sql
        self._adopt = adopt
        self.store_id = path
        renew_per_process(self)

    def renew(self) -> None:
        """Set a new worker id; a forked child is a separate worker. It begins with the id of the process, for operators."""
        self.id: str = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._numbers = itertools.count()

    def new_token(self, task_id: str) -> RunToken:
        """A new token for a run of this worker."""
        return RunToken(task_id, f"{self.id}.{next(self._numbers):x}")

    def mark(self) -> object:
        """See `Workers.mark`. Every write changes the write-ahead log, whose time and size are returned."""
        try:
            found = os.stat(self.store_id + "-wal")
        except OSError:
            return None
        # File times are coarse: two writes in quick succession may have the same time.
        settled = time.time_ns() - found.st_mtime_ns > 100_000_000
        return (found.st_mtime_ns, found.st_size) if settled else None

    def beat(self, lease: float) -> float:
        """See `Workers.beat`. The clock is the monotonic one of the machine, which is the same in all its processes."""
        now = 0.0

        def work(connection: sqlite3.Connection) -> None:
            nonlocal now
            now = time.monotonic()
            connection.execute(self._sql.beat, (self.id, now + lease, lease))

        self._database.write_apart(work)
        return now

    def leave(self) -> None:
        """See `Workers.leave`."""
        self._database.write(lambda connection: connection.execute(self._sql.leave, (self.id,)))

    def has_others(self) -> bool:
        """See `Workers.has_others`."""
        return bool(self._database.rows(self._sql.has_others, (self.id,))[0][0])

    def claim_lost(self, lease: float, *, now: float | None) -> LostWorker | None:
        """See `Workers.claim_lost`."""

        def find(connection: sqlite3.Connection) -> tuple[str, int] | None:
            values = {"own": self.id, "now": now, "clock": time.monotonic()}
            found: tuple[str, int] | None = connection.execute(self._sql.lost_worker, values).fetchone()
            return found

        def claim(connection: sqlite3.Connection) -> LostWorker | None:
            found = find(connection)
            if found is None:
                return None
            connection.execute(self._sql.claim_worker, (time.monotonic() + lease, lease, self.id, found[0]))
            return LostWorker(found[0], bool(found[1]))

        # A write only where there is something to claim.
        return None if self._database.read(find) is None else self._database.write(claim)

    def runs_of(self, worker: str) -> tuple[HeldRun, ...]:
        """See `Workers.runs_of`."""
        found = self._database.rows(self._sql.held, (worker, worker))
        return tuple(HeldRun(Owner(tenant, owner), RunToken(task, token)) for tenant, owner, task, token in found)

    def holds(self, token: RunToken) -> bool:
        """See `Workers.holds`."""
        return bool(self._database.rows(self._sql.holds, token))

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """See `Workers.adopt`."""
        return self._adopt(run.token, request, events)

    def deregister(self, worker: str) -> None:
        """See `Workers.deregister`."""
        self._database.write(lambda connection: connection.execute(self._sql.deregister, (worker, self.id)))

    def register_missing(self, lease: float) -> None:
        """See `Workers.register_missing`."""
        if missing := self._database.rows(self._sql.missing_workers):
            until = time.monotonic() + lease
            rows = [(worker, until, lease) for (worker,) in missing]
            self._database.write(lambda connection: connection.executemany(self._sql.register_missing, rows))
