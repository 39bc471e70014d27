"""Tasks in a PostgreSQL database, shared by all processes on any machine that can connect to it.

Almost every operation is one statement, and therefore one transaction and one round trip. A statement whose answer was lost
with its connection is repeated, and recognises what it has stored by the identity of the write. `schema` has the tables and the
statements, `stores.rows` converts rows to objects and `database` keeps connections; this module implements the operations of
`TaskStore` with them.
"""

from __future__ import annotations

import secrets
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg

from a2a_sync.concurrency import clock
from a2a_sync.errors import StoreError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.operations import RunRequest, quota_owner
from a2a_sync.stores import rows
from a2a_sync.stores.base import (
    UNBOUNDED,
    AlreadySent,
    Expiry,
    HeldRequest,
    LargeResult,
    LogPage,
    Owner,
    RunToken,
    SentRun,
    StartedRun,
    StoredTask,
    StoreQuota,
    SweepResult,
    TaskExists,
    TaskHead,
    TaskPage,
    TaskQuery,
    TaskVersion,
    check_open,
    not_found,
    time_ms,
    too_large,
)
from a2a_sync.stores.postgres import migrations, reading, schema
from a2a_sync.stores.postgres.contexts import PostgresContexts
from a2a_sync.stores.postgres.database import Connection, Database, Rows, query
from a2a_sync.stores.postgres.inspection import PostgresInspection
from a2a_sync.stores.postgres.pubsub import PostgresPubSub
from a2a_sync.stores.postgres.reading import Reading
from a2a_sync.stores.postgres.retention import Retention
from a2a_sync.stores.postgres.schema import Statements, scope_of
from a2a_sync.stores.postgres.webhooks import PostgresWebhooks, webhook_values
from a2a_sync.stores.postgres.workers import PostgresWorkers
from a2a_sync.stores.reading import page_of
from a2a_sync.stores.rows import Batch, HeadRow, RequestRow
from a2a_sync.types import TaskState, TaskStatusUpdateEvent, new_id

if TYPE_CHECKING:
    from a2a_sync.stores import sqlite
    from a2a_sync.stores.postgres import copying
else:
    # Only `copy_from` needs them.
    sqlite = LazyModule("a2a_sync.stores.sqlite")
    copying = LazyModule("a2a_sync.stores.postgres.copying")

__all__ = ["PostgresStore"]

_T = TypeVar("_T")

#: Totals are counted up to this number where they need not be exact.
_COUNTED = 10_000
#: How often a refused write is tried whose reason is gone when it is looked for.
_TRIES = 100


class PostgresStore:
    """A `TaskStore` in PostgreSQL 13 or newer. Safe to use from any thread, in any number of processes, and after a fork.

    Needs the extra ``postgres``. Nothing is opened before the first call.

    Parameters:
        url: ``postgresql://user:password@host:port/database?sslmode=verify-full``, with the parameters of libpq; what is
            missing comes from its environment variables and password file.
        prefix: begins the names of the tables, so that the database may contain other tables too.
        pool: the connections of each process.
        timeout: seconds for which a call waits for a connection and is repeated while the database cannot be reached.
        retry_timeout: the same for what a run appends, so that runs survive a restart of the database.
        max_tasks: above this number, tasks of the owner with the most tasks are evicted: first the one that ended first, then
            the one that has waited longest for its client. Each process counts them once in as many creations as a
            thousandth of them, and may miss the bound by that many while other processes create or remove tasks. None: no bound.
        exact_totals: False: ListTasks with a filter counts no further than to 10,000, and needs less time for owners with many
            tasks. Without a filter it reads a counter.
        create_tables: create and upgrade the tables at the first call; False: `a2a-sync migrate` does.

    Raises:
        ValueError: the URL cannot be parsed, or another argument is out of range.
        ModuleNotFoundError: the extra ``postgres`` is not installed.
    """

    queues_chunks: bool = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "a2a_",
        pool: int = 8,
        timeout: float = 5.0,
        retry_timeout: float = 30.0,
        max_tasks: int | None = None,
        exact_totals: bool = True,
        create_tables: bool = True,
    ) -> None:
        if pool < 1:
            raise ValueError(f"pool must be at least 1, not {pool}")
        if timeout < 0 or retry_timeout < 0:
            raise ValueError(f"timeout and retry_timeout must not be negative, not {timeout} and {retry_timeout}")
        if max_tasks is not None and max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, not {max_tasks}")
        self._sql = Statements(prefix)
        self._database = Database(url, size=pool, timeout=timeout, prepare=self._prepare)
        self._create_tables = create_tables
        self._retry_timeout = retry_timeout
        self._exact_totals = exact_totals
        self._limits_tasks = max_tasks is not None
        self._retention = Retention(self._database, self._sql, max_tasks)
        self.webhooks: PostgresWebhooks = PostgresWebhooks(self._database, self._sql)
        self.contexts: PostgresContexts = PostgresContexts(self._database, self._sql)
        self.workers: PostgresWorkers = PostgresWorkers(self._database, self._sql, self._adopt)
        self.inspection: PostgresInspection = PostgresInspection(self._database, self._sql)

    def __repr__(self) -> str:
        return f"<PostgresStore {self._database.name}>"

    def pubsub(self) -> PostgresPubSub:
        """See `TaskStore.pubsub`. Messages are notifications of the database."""
        return PostgresPubSub(self._database, self._sql.prefix)

    def new_task_id(self, owner: Owner) -> str:
        """See `TaskStore.new_task_id`. The last three digits are one of 4,096 shards, which depends on the owner."""
        shard = int.from_bytes(scope_of(owner)[:2], "big") & 0xFFF
        return f"{new_id()[:-3]}{shard:03x}"

    def migrate(self) -> tuple[int, int]:
        """Create or upgrade the tables; the schema versions before and after. 0: there were none.

        Raises:
            StoreError: the database fails, or a newer release has changed the tables beyond what this one can use.
        """
        before = self._database.run(lambda connection: migrations.upgrade(connection, self._sql), prepared=False)
        return before, max(before, schema.VERSION)

    def migration_sql(self) -> str:
        """The statements that create the tables in an empty database, for other migration tools."""
        return "".join(f"{textwrap.dedent(text).strip()};\n" for text in schema.migration(self._sql.prefix, 0))

    def copy_from(
        self, source: sqlite.SQLiteStore, on_page: Callable[[int], None] = lambda tasks: None
    ) -> copying.Copied:
        """Copy the tasks of an SQLite file that this database does not have, or has older.

        `on_page` is called with the number of tasks so far. Call it again for what has changed meanwhile.

        Raises:
            StoreError: the file or the database fails. What was copied stays.
        """
        source.versions(["-"])  # upgrades the file
        return copying.copy_all(source._database, source._sql.prefix, self._database, self._sql, on_page)

    def close(self) -> None:
        """See `TaskStore.close`."""
        self._database.close()
        self.workers.close()

    def _prepare(self, connection: Connection) -> None:
        migrations.prepare(connection, self._sql, create=self._create_tables)

    # -- writing ------------------------------------------------------------------------------------------------------

    def start_run(
        self,
        owner: Owner,
        request: RunRequest,
        events: Sequence[LogEvent],
        *,
        create: bool,
        after: int | None = None,
        quota: StoreQuota = UNBOUNDED,
    ) -> StartedRun:
        """See `TaskStore.start_run`. Evictions are transactions of their own, before and after it."""
        write = _Write(owner, request.task_id, events, quota.max_task_bytes)
        values = write.start(self.workers.new_token(request.task_id), self.workers.id, request)
        account = quota_owner(owner.id)
        values |= {"account": account, "after": after}
        evicted: tuple[str, ...] = ()
        if quota.max_bytes is not None:
            self._refuse_sent(owner, request)
            evicted = self._retention.evict_bytes(account, request.task_id, write.size, quota)
        started = self._create(write, values, request) if create else self._resume(write, values, request)
        if create and (quota.max_tasks is not None or self._limits_tasks):
            evicted += self._retention.evict_surplus(account, request.task_id, quota)
        return write.started(started, evicted)

    def _create(self, write: _Write, values: dict[str, Any], request: RunRequest) -> _Begun:
        new = HeadRow.new(*write.owner, request)
        write.refuse_large(new)
        statement = self._sql.starting(send=request.key is not None, webhook=request.webhook is not None)
        row = write.batch.advance(new, values["new_token"])
        values |= {
            "tenant": row.tenant,
            "owner": row.owner,
            "context": row.context,
            "state": row.state,
            "ended": row.ended,
            "status_ms": row.status_ms,
            "status": row.status,
            "metadata": row.metadata,
        }

        def work(connection: Connection) -> _Begun:
            found = self._refusing_sent(connection, statement, values, write.owner, request)
            if not found:
                stored = self._judged(connection, write)
                if stored is None or stored.write != write.id:
                    self._refuse_sent(write.owner, request, connection)
                    raise TaskExists(f"task {write.task_id} exists")
            return _Begun(row, TaskState.UNSPECIFIED)

        return self._database.run(work)

    def _resume(
        self, write: _Write, values: dict[str, Any], request: RunRequest, adopted: RunToken | None = None
    ) -> _Begun:
        change = write.batch.change
        statement = self._sql.resuming(
            adopt=adopted is not None,
            send=request.key is not None,
            webhook=request.webhook is not None,
            status=change.status is not None,
            metadata=bool(change.metadata),
            entries=bool(write.batch.entries),
        )

        def attempt(connection: Connection) -> _Begun | None:
            found = self._refusing_sent(connection, statement, values, write.owner, request)
            if found:
                *head, before = found[0]
                return _Begun(HeadRow._make(head), TaskState(before))
            stored = self._judged(connection, write)
            if stored is not None and stored.write == write.id:
                return _Begun(stored.row, self._state_before(connection, stored.row, len(write.batch.entries)))
            self._refuse_sent(write.owner, request, connection)
            row = stored.row if stored is not None else None
            if adopted is not None:
                rows.held(row, adopted)
            else:
                write.refuse_large(rows.startable(row, write.owner, write.task_id, values["after"]))
            return None

        return self._write(write, values, attempt)

    def _adopt(self, old: RunToken, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """See `Workers.adopt`."""
        write = _Write(Owner(), old.task_id, events)
        values = write.start(self.workers.new_token(old.task_id), self.workers.id, request)
        values["token"] = old.value
        return write.started(self._resume(write, values, replace(request, key=None, webhook=None), old), ())

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """See `TaskStore.append`. It is repeated for ``retry_timeout`` seconds while the database cannot be reached."""
        write = _Write(Owner(), token.task_id, events, max_task_bytes)

        def refuse(row: HeadRow | None) -> None:
            write.refuse_large(rows.held(row, token))

        return self._append(write, refuse, token=token.value, free=end, timeout=self._retry_timeout)

    def interrupt(self, owner: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """See `TaskStore.interrupt`."""
        write = _Write(owner, task_id, events)

        def refuse(row: HeadRow | None) -> None:
            check_open(task_id, TaskState(rows.owned(row, owner, task_id).state))

        return self._append(write, refuse, token=None, free=True, timeout=None)

    def delete(self, owner: Owner, task_id: str) -> None:
        """See `TaskStore.delete`."""
        if not self._retention.delete(owner, task_id):
            raise not_found(task_id)

    def sweep(self, expiry: Expiry, *, limit: int = 100) -> SweepResult:
        """See `TaskStore.sweep`."""
        return self._retention.sweep(expiry, limit)

    def _append(
        self,
        write: _Write,
        refuse: Callable[[HeadRow | None], None],
        *,
        token: str | None,
        free: bool,
        timeout: float | None,
    ) -> tuple[Entry, ...]:
        change = write.batch.change
        statement = self._sql.appending(
            interrupt=token is None,
            free=free or change.ends,
            ends=change.status is not None and change.status.state.terminal,
            status=change.status is not None,
            metadata=bool(change.metadata),
            entries=bool(write.batch.entries),
        )
        values = write.values | {"token": token}

        def attempt(connection: Connection) -> int | None:
            found = query(connection, statement, values)
            if found:
                version: int = found[0][0]
                return version
            stored = self._judged(connection, write)
            if stored is not None and stored.write == write.id:
                return stored.row.version
            refuse(stored.row if stored is not None else None)
            return None

        write.batch.number(self._write(write, values, attempt, timeout=timeout), values["now_ms"])
        return write.batch.entries

    def _write(
        self,
        write: _Write,
        values: dict[str, Any],
        attempt: Callable[[Connection], _T | None],
        *,
        timeout: float | None = None,
    ) -> _T:
        """Call `attempt`, which returns None where nothing was stored for a reason that is gone."""
        added = write.batch.change.metadata

        def work(connection: Connection) -> _T:
            for _ in range(_TRIES):
                if not added:
                    result = attempt(connection)
                else:
                    # Rare: what is stored must be merged here.
                    with connection.transaction():
                        known = query(connection, self._sql.metadata, (write.task_id,))
                        values["metadata"] = rows.merged(known[0][0] if known else None, added)
                        result = attempt(connection)
                if result is not None:
                    return result
            raise StoreError(f"task {write.task_id} changes too often to be written to")

        return self._database.run(work, timeout=timeout)

    def _judged(self, connection: Connection, write: _Write) -> _Stored | None:
        """The head of the task as it is now, and the identity of the newest write."""
        found = query(connection, self._sql.head_and_write, (write.task_id,))
        return _Stored(HeadRow._make(found[0][:-1]), found[0][-1]) if found else None

    def _state_before(self, connection: Connection, row: HeadRow, entries: int) -> TaskState:
        found = query(connection, self._sql.state_before, (row.key, row.version - entries))
        event = rows.event(found[0][0]) if found else None
        return event.status.state if isinstance(event, TaskStatusUpdateEvent) else TaskState.UNSPECIFIED

    # -- idempotency keys ---------------------------------------------------------------------------------------------

    def sent(self, owner: Owner, key: str) -> SentRun | None:
        """See `TaskStore.sent`."""
        return self._database.run(lambda connection: self._sent(connection, owner, key))

    def _sent(self, connection: Connection, owner: Owner, key: str) -> SentRun | None:
        found = query(connection, self._sql.sent, (rows.send_digest(owner, key),))
        return SentRun._make(found[0]) if found else None

    def _refuse_sent(self, owner: Owner, request: RunRequest, connection: Connection | None = None) -> None:
        if request.key is not None:
            key = request.key.key
            known = self._sent(connection, owner, key) if connection is not None else self.sent(owner, key)
            if known is not None:
                raise AlreadySent(known)

    def _refusing_sent(
        self, connection: Connection, statement: str, values: dict[str, Any], owner: Owner, request: RunRequest
    ) -> Rows:
        try:
            return query(connection, statement, values)
        except psycopg.errors.UniqueViolation:
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                raise
            self._refuse_sent(owner, request, connection)
            # The task of the other send was removed meanwhile.
            return query(connection, statement, values)

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, owner: Owner, task_id: str) -> TaskHead:
        """See `TaskStore.head`."""
        found = self._read(self._sql.head, (task_id,))
        return rows.owned(HeadRow._make(found[0]) if found else None, owner, task_id).head()

    def versions(self, task_ids: Collection[str]) -> dict[str, TaskVersion]:
        """See `TaskStore.versions`."""
        if not task_ids:
            return {}
        found = self._read(self._sql.versions, (list(task_ids),))
        return {task_id: TaskVersion(version, running) for task_id, version, running in found}

    def request(self, owner: Owner, task_id: str) -> HeldRequest | None:
        """See `TaskStore.request`."""
        found = self._read(self._sql.request, (task_id, scope_of(owner)))
        if not found:
            raise not_found(task_id)
        running, state, body, message = found[0]
        return HeldRequest(rows.load_request(body, message), TaskState(state)) if running and body is not None else None

    def load(
        self,
        owner: Owner,
        task_id: str,
        *,
        history: int | None = None,
        artifacts: bool = True,
        max_bytes: int | None = None,
        refuse_above: int | None = None,
    ) -> StoredTask:
        """See `TaskStore.load`."""

        def work(connection: Connection) -> Reading | None:
            return reading.load(
                connection,
                self._sql,
                scope_of(owner),
                task_id,
                history=history,
                artifacts=artifacts,
                max_bytes=max_bytes,
                refuse_above=refuse_above,
            )

        found = self._database.run(work)
        if found is None:
            raise not_found(task_id)
        task = found.fold()
        if found.wants_snapshot:
            values = found.snapshot_of(task)
            self._database.run(lambda connection: query(connection, self._sql.put_snapshot, values))
        return StoredTask(task=task, version=found.row.version, running=found.row.token is not None)

    def log(
        self,
        owner: Owner,
        task_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        max_bytes: int | None = None,
        refuse_above: int | None = None,
    ) -> LogPage:
        """See `TaskStore.log`."""
        # Number 0 is the request.
        span = {"after": max(after, 0), "limit": limit, "max_bytes": max_bytes}
        values = {"id": task_id, "scope": scope_of(owner), "refuse_above": refuse_above, **span}
        found = self._read(self._sql.log, values)
        if not found:
            raise not_found(task_id)
        version, state, running, compacted, refused = found[0][:5]
        if refused is not None:
            raise LargeResult(refused)
        return LogPage(
            entries=tuple(
                rows.read_entry(number, body, at_ms) for *_, number, body, at_ms in found if number is not None
            ),
            version=version,
            state=TaskState(state),
            running=running,
            compacted=compacted,
        )

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        """See `TaskStore.list`."""
        total, page, more = self._database.run(lambda connection: self._page(connection, owner, query))
        return page_of(page, more=more, total=total)

    def _page(self, connection: Connection, owner: Owner, wanted: TaskQuery) -> tuple[int, Sequence[Reading], bool]:
        """The number of tasks that match, those of the page, and whether more follow."""
        where, values = _filter(owner, wanted)
        total = self._total(where) if wanted.filtered else self._sql.count_owned
        if wanted.after is not None:
            where += " AND (status_ms, id) < (%(after_ms)s, %(after_id)s)"
            values |= {"after_ms": wanted.after.time_ms, "after_id": wanted.after.id}
        bodies = wanted.artifacts or wanted.history != 0
        most = min((m for m in (wanted.max_bytes, wanted.refuse_above) if m is not None), default=None)
        values |= {
            "account": quota_owner(owner.id),
            "size": wanted.size,
            "max_bytes": most,
            "history": wanted.history,
            "artifacts": wanted.artifacts,
        }
        searched = self._sql.count_context if wanted.context_id else self._sql.count_owned
        wanted.check_search(lambda most: query(connection, searched, values | {"most": most})[0][0])
        found = query(connection, self._sql.listing(where, total=total, bodies=bodies), values)
        (count_, *_), rest = found[0], [row[1:] for row in found if row[1] is not None]
        page = rest[: wanted.size]
        heads = [HeadRow._make(row[: len(HeadRow._fields)]) for row in page]
        if most is not None and sum(head.bytes for head in heads) > most:
            readings = reading.load_page(connection, self._sql, scope_of(owner), heads, wanted)
        else:
            readings = [
                self._reading(connection, owner, wanted, row) if bodies else Reading(head)
                for row, head in zip(page, heads, strict=True)
            ]
        return count_, readings, len(rest) > len(readings)

    def _total(self, where: str) -> str:
        """A statement that counts what a filter lets pass, as far as it is to be counted."""
        bound = "" if self._exact_totals else f" LIMIT {_COUNTED + 1}"
        return f"SELECT count(*) AS n FROM (SELECT 1 FROM {self._sql.prefix}tasks WHERE {where}{bound}) AS found"

    def _reading(self, connection: Connection, owner: Owner, wanted: TaskQuery, row: tuple[Any, ...]) -> Reading:
        """A row of a page. Its bodies were left out where the page with the row after it is too large."""
        one = Reading.of_row(row) if row[len(HeadRow._fields)] is not None else None
        if one is None:
            scope, task_id = scope_of(owner), row[1]
            one = reading.load(
                connection, self._sql, scope, task_id, history=wanted.history, artifacts=wanted.artifacts
            )
        return one or Reading(HeadRow._make(row[: len(HeadRow._fields)]))

    def _read(self, statement: str, values: Any) -> Rows:
        return self._database.run(lambda connection: query(connection, statement, values))


class _Stored(NamedTuple):
    """The head of a task, and the identity of the write that changed it last."""

    row: HeadRow
    write: int


class _Begun(NamedTuple):
    """The head of a task whose run has begun, and the state of the task before."""

    row: HeadRow
    before: TaskState


class _Write:
    """Events to be written, and the values of the statement that writes them."""

    def __init__(self, owner: Owner, task_id: str, events: Sequence[LogEvent], max_bytes: int | None = None) -> None:
        self.owner: Owner = owner
        self.task_id: str = task_id
        self.batch: Batch = (batch := Batch(events))
        self.max_bytes: int | None = max_bytes
        self.id: int = secrets.randbits(62)
        self.size: int = batch.size
        self.token: RunToken | None = None
        self.values: dict[str, Any] = {
            "id": task_id,
            "scope": scope_of(owner),
            "write": self.id,
            "n": len(batch.entries),
            "size": batch.size,
            "artifacts": batch.change.artifacts,
            "last_message": batch.last_message,
            "kinds": batch.kinds,
            "bodies": batch.bodies,
            "now_ms": clock.time_ns() // 1_000_000,
            "max_bytes": max_bytes,
        }
        if batch.change.status is not None:
            status = batch.change.status
            self.values |= {
                "state": status.state.value,
                "ended": status.state.terminal,
                "status_ms": time_ms(status.timestamp),
                "status": batch.status,
            }

    def start(self, token: RunToken, worker: str, request: RunRequest) -> dict[str, Any]:
        """The values for a statement that starts a run with `token`."""
        row = RequestRow(request, [entry.event for entry in self.batch.entries])
        body = row.body(0)
        self.token = token
        self.size += len(body)
        held = not self.batch.change.ends
        values = self.values | {
            "size": self.size,
            "request": body,
            "asked": row.entry or 0,
            "new_token": token.value if held else None,
            "worker": worker if held else None,
            "hooked": request.webhook is not None,
        }
        if request.webhook is not None:
            values |= webhook_values(request.webhook)
        if request.key is not None:
            values["digest"] = rows.send_digest(self.owner, request.key.key)
            values["fingerprint"] = request.key.fingerprint
        return values

    def refuse_large(self, row: HeadRow) -> None:
        """Raise `TaskFull` where a task with this row would become too large."""
        size = row.bytes + self.size
        if self.max_bytes is not None and size > self.max_bytes:
            raise too_large(self.task_id, size, self.max_bytes)

    def started(self, begun: _Begun, evicted: tuple[str, ...]) -> StartedRun:
        """The result of a statement that started a run."""
        assert self.token is not None
        self.batch.number(begun.row.version, self.values["now_ms"])
        return StartedRun(
            token=self.token,
            head=begun.row.head(self.batch.change.status),
            entries=self.batch.entries,
            before=begun.before,
            evicted=evicted,
        )


def _filter(owner: Owner, wanted: TaskQuery) -> tuple[str, dict[str, Any]]:
    terms: dict[str, tuple[str, Any]] = {"scope": ("scope = %(scope)b", scope_of(owner))}
    if wanted.context_id:
        terms["context"] = ("context = %(context)s", wanted.context_id)
    if wanted.state is not None:
        terms["state"] = ("state = %(state)s", wanted.state.value)
    if wanted.since_ms is not None:
        terms["since_ms"] = ("status_ms >= %(since_ms)s", wanted.since_ms)
    return " AND ".join(term for term, _ in terms.values()), {name: value for name, (_, value) in terms.items()}
