"""The processes that share one SQLite file: their heartbeats, and the runs that one takes over from another."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HeldRun, Owner, RunToken, StartedRun
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements

_Adopt = Callable[[RunToken, RunRequest, Sequence[LogEvent]], StartedRun]


class SQLiteWorkers:
    """The `Workers` of an `SQLiteStore`. `adopt` is the store's own transaction for it."""

    def __init__(self, database: Database, sql: Statements, path: str, adopt: _Adopt) -> None:
        self._database = database
        self._sql = sql
        self._adopt = adopt
        self.meeting_place = path
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """A forked child is a worker of its own."""
        self.id = secrets.token_hex(6)

    def new_token(self, task_id: str) -> RunToken:
        """A token that nobody has, for a run of this worker."""
        return RunToken(task_id, f"{self.id}.{secrets.token_hex(6)}")

    def mark(self) -> object:
        """See `Workers.mark`: every write touches the write-ahead log."""
        try:
            found = os.stat(self.meeting_place + "-wal")
        except OSError:
            return None
        # The file system's clock is coarse: what comes right after a write may carry the same time.
        settled = time.time_ns() - found.st_mtime_ns > 100_000_000
        return (found.st_mtime_ns, found.st_size) if settled else None

    def beat(self) -> None:
        """See `Workers.beat`."""
        self._database.write_apart(lambda connection: connection.execute(self._sql.beat, (self.id,)))

    def leave(self) -> None:
        """See `Workers.leave`."""
        self._database.write(lambda connection: connection.execute(self._sql.leave, (self.id,)))

    def beats(self) -> dict[str, int]:
        """See `Workers.beats`."""
        return dict(self._database.read(lambda connection: connection.execute(self._sql.beats).fetchall()))

    def runs_of(self, worker: str) -> tuple[HeldRun, ...]:
        """See `Workers.runs_of`."""

        def work(connection: sqlite3.Connection) -> list[tuple[str, str, str, str]]:
            return connection.execute(self._sql.held, (worker, worker)).fetchall()

        return tuple(
            HeldRun(Owner(tenant, owner), RunToken(task_id, token))
            for tenant, owner, task_id, token in self._database.read(work)
        )

    def holds(self, token: RunToken) -> bool:
        """See `Workers.holds`."""
        statement = self._sql.holds
        found = self._database.read(lambda connection: connection.execute(statement, token).fetchone())
        return found is not None

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """See `Workers.adopt`."""
        return self._adopt(run.token, request, events)

    def dismiss(self, worker: str) -> None:
        """See `Workers.dismiss`."""
        self._database.write(lambda connection: connection.execute(self._sql.dismiss, (worker,)))
