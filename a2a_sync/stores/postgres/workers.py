"""The processes that share a PostgreSQL store: their leases, and the takeover of runs of dead workers."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections.abc import Callable, Sequence

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import original
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HeldRun, LostWorker, Owner, RunToken, StartedRun
from a2a_sync.stores.postgres.database import Database, HeartConnection, query
from a2a_sync.stores.postgres.schema import Statements

_Adopt = Callable[[RunToken, RunRequest, Sequence[LogEvent]], StartedRun]
#: Seconds for a heartbeat: a later one has no use.
_BEAT_LIMIT = 5.0


class PostgresWorkers:
    """The `Workers` of a `PostgresStore`. `adopt` is the statement of `Workers.adopt`, in the store."""

    def __init__(self, database: Database, sql: Statements, adopt: _Adopt) -> None:
        self._database = database
        self._sql = sql
        self._adopt = adopt
        self._connection = HeartConnection(database)
        self._prepared = False
        self.store_id: str = f"{database.name} {sql.prefix}"
        renew_per_process(self)

    def renew(self) -> None:
        """Set a new worker id; a forked child is a separate worker."""
        self.id: str = secrets.token_hex(6)
        self._numbers = itertools.count()
        #: Shown to operators.
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        # Not patched by gevent: the heart beats on a native thread.
        self._beating = original("_thread", "allocate_lock")()

    def new_token(self, task_id: str) -> RunToken:
        """A new token for a run of this worker."""
        return RunToken(task_id, f"{self.id}.{next(self._numbers):x}")

    def mark(self) -> object:
        """See `Workers.mark`: None, as a server shows no such value."""
        return None

    def beat(self, lease: float) -> float | None:
        """See `Workers.beat`."""
        if not self._prepared:
            # The tables may have to be made; on a connection of the pool, as that checks them once.
            self._database.run(lambda connection: None)
            self._prepared = True
        if not self._beating.acquire(False):
            return None
        try:
            values = {"id": self.id, "name": self._name, "lease": lease}
            ((now,),) = self._connection.execute(self._sql.beat, values, limit=_BEAT_LIMIT)
        finally:
            self._beating.release()
        return float(now)

    def leave(self) -> None:
        """See `Workers.leave`."""
        self._write(self._sql.leave, (self.id,))
        self.close()

    def has_others(self) -> bool:
        """See `Workers.has_others`."""
        ((found,),) = self._database.run(lambda connection: query(connection, self._sql.has_others, (self.id,)))
        return bool(found)

    def claim_lost(self, lease: float, *, now: float | None) -> LostWorker | None:
        """See `Workers.claim_lost`. The clock is that of the server."""
        values = {"own": self.id, "lease": lease, "now": now}
        found = self._database.run(lambda connection: query(connection, self._sql.claim_worker, values))
        return LostWorker(*found[0]) if found else None

    def runs_of(self, worker: str) -> tuple[HeldRun, ...]:
        """See `Workers.runs_of`."""
        found = self._database.run(lambda connection: query(connection, self._sql.held, (worker,)))
        return tuple(HeldRun(Owner(tenant, owner), RunToken(task_id, token)) for tenant, owner, task_id, token in found)

    def holds(self, token: RunToken) -> bool:
        """See `Workers.holds`."""
        return bool(self._database.run(lambda connection: query(connection, self._sql.holds, token)))

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """See `Workers.adopt`."""
        return self._adopt(run.token, request, events)

    def deregister(self, worker: str) -> None:
        """See `Workers.deregister`."""
        self._write(self._sql.deregister, (worker, self.id))

    def register_missing(self, lease: float) -> None:
        """See `Workers.register_missing`."""
        self._database.run(lambda connection: query(connection, self._sql.register_missing, {"lease": lease}))

    def close(self) -> None:
        """Close the connection of the heartbeat; the next one opens another."""
        if self._beating.acquire(False):
            try:
                self._connection.close()
            finally:
                self._beating.release()

    def _write(self, statement: str, values: Sequence[str]) -> None:
        self._database.run(lambda connection: query(connection, statement, values))
