"""Tasks in one SQLite file, shared by all processes on one machine that open it.

Every write is one transaction: either all of it is stored, or nothing. `schema` defines the tables, `stores.rows` converts rows
to objects and `database` runs transactions; this module implements the operations of `TaskStore` with them.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from a2a_sync.concurrency import clock
from a2a_sync.errors import StoreError
from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.operations import RunRequest, SendKey, quota_owner
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
    too_large,
)
from a2a_sync.stores.reading import page_of
from a2a_sync.stores.rows import Batch, HeadRow, RequestRow
from a2a_sync.stores.sqlite import schema
from a2a_sync.stores.sqlite.contexts import SQLiteContexts
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.inspection import SQLiteInspection
from a2a_sync.stores.sqlite.pubsub import UnixSocketPubSub, sockets_folder
from a2a_sync.stores.sqlite.reading import Reading, sizes_of
from a2a_sync.stores.sqlite.retention import Retention
from a2a_sync.stores.sqlite.schema import place
from a2a_sync.stores.sqlite.webhooks import SQLiteWebhooks, WebhookRow
from a2a_sync.stores.sqlite.workers import SQLiteWorkers
from a2a_sync.types import Task, TaskState, new_id

__all__ = ["SQLiteStore"]

#: Up to this number of tasks, those of one context are sorted to make a page.
_SORTED_AT_ONCE = 1000
#: Ids in one statement; SQLite before 3.32 allows 999 parameters.
_IDS_AT_ONCE = 500


class SQLiteStore:
    """A `TaskStore` in an SQLite file. Safe to use from any thread, in any number of processes, and before and after a fork.

    Not for network file systems, where file locks are not reliable.

    Parameters:
        path: the file. It is created on first use; nothing is opened before.
        prefix: begins the names of the tables, so that the file may contain other tables too.
        busy_timeout: seconds for which a write waits for other processes.
        max_tasks: above this number, tasks of the owner with the most tasks are evicted: first the one that ended first,
            then the one that has waited longest for its client. A task with a run is never evicted.
        synchronous: the pragma of SQLite. With "normal" the newest writes may be lost on power failure, but not when a
            process is killed; with "full" each write is flushed to disk.

    Raises:
        ValueError: `path` does not name a file, or another argument is out of range.
    """

    queues_chunks = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: str = "a2a_",
        busy_timeout: float = 5.0,
        max_tasks: int = 100_000,
        synchronous: Literal["normal", "full"] = "normal",
    ) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise ValueError(
                f"SQLiteStore needs the path of a file, not {name!r}; for tasks in memory use MemoryStore()"
            )
        if not _is_path(name):
            raise ValueError(
                f"no file can have the path {name!r}: it must hold no NUL and no lone surrogate; use another one"
            )
        if prefix and not (prefix.isidentifier() and prefix.isascii()):
            raise ValueError(f"prefix becomes part of the tables' names, and {prefix!r} cannot")
        if max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, not {max_tasks}")
        if busy_timeout < 0:
            raise ValueError(f"busy_timeout must not be negative, not {busy_timeout}")
        if synchronous not in ("normal", "full"):
            raise ValueError(f"synchronous must be 'normal' or 'full', not {synchronous!r}")
        self._sql = schema.Statements(prefix)
        self._database = Database(
            str(Path(name).absolute()),
            busy_timeout=busy_timeout,
            synchronous=synchronous,
            is_ready=partial(schema.is_current, prefix=prefix),
            prepare=partial(schema.prepare, prefix=prefix),
        )
        self._retention = Retention(self._database, self._sql, max_tasks)
        self.webhooks: SQLiteWebhooks = SQLiteWebhooks(self._database, self._sql, self._key)
        self.contexts: SQLiteContexts = SQLiteContexts(self._database, self._sql, self._current)
        self.workers: SQLiteWorkers = SQLiteWorkers(self._database, self._sql, self._database.path, self._adopt)
        self.inspection: SQLiteInspection = SQLiteInspection(self._database, self._sql)

    def pubsub(self) -> UnixSocketPubSub:
        """See `TaskStore.pubsub`. Its sockets are beside the file."""
        return UnixSocketPubSub(sockets_folder(self._database.path))

    def new_task_id(self, owner: Owner) -> str:
        """See `TaskStore.new_task_id`."""
        return new_id()

    def close(self) -> None:
        """See `TaskStore.close`."""
        self._database.close()

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
        """See `TaskStore.start_run`."""
        token = self.workers.new_token(request.task_id)
        batch = Batch(events)
        # The request is for another process that takes the run over.
        request_row = None if batch.change.ends else RequestRow(request, events)
        webhook = None if request.webhook is None else WebhookRow(request.webhook)
        key = request.key

        def work(connection: sqlite3.Connection) -> tuple[HeadRow, tuple[str, ...]]:
            if key is not None and (known := self._sent(connection, owner, key.key)) is not None:
                raise AlreadySent(known)
            if create:
                old = HeadRow.new(owner.tenant, owner.id, request)
            else:
                old = rows.startable(self._row(connection, request.task_id), owner, request.task_id, after)
            body = b"" if request_row is None else request_row.body(old.version)
            new = _limited(batch.advance(old, token.value, body), quota.max_task_bytes)
            if create:
                new = self._insert(connection, new)
            else:
                self._update(connection, old, new)
            if body:
                connection.execute(self._sql.put_request, (place(new.key, 0), body))
            connection.executemany(self._sql.put, batch.rows(old, place(new.key, 0)))
            if key is not None:
                self._keep_key(connection, key, old, new)
            if webhook is not None:
                webhook.put(connection, self._sql, new.key, old.version)
            return new, self._retention.evict_surplus(connection, account, quota, create=create, but=new.key)

        account = quota_owner(owner.id)
        row, evicted = self._retention.start_with_eviction(account, lambda: self._database.write(work))
        head = row.head(batch.change.status)
        return StartedRun(
            token=token, head=head, entries=batch.entries, before=TaskState(batch.before), evicted=evicted
        )

    def sent(self, owner: Owner, key: str) -> SentRun | None:
        """See `TaskStore.sent`."""
        return self._database.read(lambda connection: self._sent(connection, owner, key))

    def _sent(self, connection: sqlite3.Connection, owner: Owner, key: str) -> SentRun | None:
        row = connection.execute(self._sql.sent, (rows.send_digest(owner, key),)).fetchone()
        return None if row is None else SentRun._make(row)

    def _keep_key(self, connection: sqlite3.Connection, key: SendKey, old: HeadRow, new: HeadRow) -> None:
        """Store the key of the send that changed the task from `old` to `new`; it is deleted with the task."""
        digest = rows.send_digest(Owner(new.tenant, new.owner), key.key)
        connection.execute(self._sql.put_send, (digest, new.key, new.version, key.fingerprint))
        connection.execute(self._sql.mark_send, (digest, place(new.key, old.version + 1)))

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """See `TaskStore.append`."""
        return self._append(
            token.task_id, events, partial(rows.held, token=token), None if end else token.value, max_task_bytes
        )

    def _adopt(self, old: RunToken, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        """See `Workers.adopt`."""
        token = self.workers.new_token(old.task_id)
        batch, request_row = Batch(events), RequestRow(request, events)

        def work(connection: sqlite3.Connection) -> HeadRow:
            row = rows.held(self._row(connection, old.task_id), old)
            body = request_row.body(row.version)
            new = batch.advance(row, token.value, body)
            self._update(connection, row, new)
            connection.execute(self._sql.put_request, (place(new.key, 0), body))
            connection.executemany(self._sql.put, batch.rows(row, place(new.key, 0)))
            return new

        adopted = self._database.write(work)
        head = adopted.head(batch.change.status)
        return StartedRun(token=token, head=head, entries=batch.entries, before=TaskState(batch.before))

    def interrupt(self, owner: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """See `TaskStore.interrupt`."""

        def open_(row: HeadRow | None) -> HeadRow:
            found = rows.owned(row, owner, task_id)
            check_open(task_id, TaskState(found.state))
            return found

        return self._append(task_id, events, open_, None)

    def delete(self, owner: Owner, task_id: str) -> None:
        """See `TaskStore.delete`."""

        def work(connection: sqlite3.Connection) -> None:
            self._retention.remove(connection, rows.owned(self._row(connection, task_id), owner, task_id))

        self._database.write(work)

    def _append(
        self,
        task_id: str,
        events: Sequence[LogEvent],
        judge: Callable[[HeadRow | None], HeadRow],
        token: str | None,
        max_bytes: int | None = None,
    ) -> tuple[Entry, ...]:
        batch = Batch(events)

        def work(connection: sqlite3.Connection) -> None:
            old = judge(self._row(connection, task_id))
            self._update(connection, old, _limited(batch.advance(old, token), max_bytes))
            connection.executemany(self._sql.put, batch.rows(old, place(old.key, 0)))

        # A response is sent when the run ends or is interrupted.
        self._database.write(work, check_file=token is None or batch.change.ends)
        return batch.entries

    def _insert(self, connection: sqlite3.Connection, row: HeadRow) -> HeadRow:
        values = (*row[1:6], row.ended, *row[6:], now := _now_ms(), now)
        try:
            key = connection.execute(self._sql.create, values).lastrowid
        except sqlite3.IntegrityError:
            raise TaskExists(f"task {row.id} exists") from None
        return row._replace(key=key or 0)

    def _update(self, connection: sqlite3.Connection, old: HeadRow, new: HeadRow) -> None:
        if new.version > schema.MOST_ENTRIES:
            raise StoreError(f"task {new.id} cannot have more than {schema.MOST_ENTRIES} entries")
        log = (new.version, new.message, new.artifacts, new.bytes)
        if new.status is old.status and new.token == old.token and new.counted == old.counted:
            connection.execute(self._sql.extend, (*log, new.key))
        else:
            status = (new.counted, new.state, new.ended, new.status_ms, new.status, new.metadata, new.token, _now_ms())
            connection.execute(self._sql.change, (*log, *status, new.key))

    def sweep(self, expiry: Expiry, *, limit: int = 100) -> SweepResult:
        """See `TaskStore.sweep`."""
        return self._retention.sweep(expiry, limit)

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, owner: Owner, task_id: str) -> TaskHead:
        """See `TaskStore.head`."""
        row = self._database.read(lambda connection: self._row(connection, task_id))
        return rows.owned(row, owner, task_id).head()

    def versions(self, task_ids: Collection[str]) -> dict[str, TaskVersion]:
        """See `TaskStore.versions`."""

        def work(connection: sqlite3.Connection) -> list[tuple[str, int, int]]:
            found: list[tuple[str, int, int]] = []
            for some in _batched(task_ids, _IDS_AT_ONCE):
                found += connection.execute(f"{self._sql.versions} ({', '.join('?' * len(some))})", some).fetchall()
            return found

        return {task_id: TaskVersion(version, bool(held)) for task_id, version, held in self._database.read(work)}

    def request(self, owner: Owner, task_id: str) -> HeldRequest | None:
        """See `TaskStore.request`."""

        def work(connection: sqlite3.Connection) -> HeldRequest | None:
            row = rows.owned(self._row(connection, task_id), owner, task_id)
            if row.token is None:
                return None
            body = self._body(connection, row.key, 0)
            number = rows.request_entry(body)
            message = None if number is None else self._body(connection, row.key, number)
            return HeldRequest(rows.load_request(body, message), TaskState(row.state))

        return self._database.read(work)

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

        def work(connection: sqlite3.Connection) -> Reading:
            row = rows.owned(self._row(connection, task_id), owner, task_id)
            if refuse_above is not None and row.bytes > refuse_above:
                raise LargeResult(row.bytes)
            return Reading.of(connection, self._sql, row, history, artifacts, max_bytes)

        reading = self._database.read(work)
        task = reading.fold()
        if reading.wants_snapshot:
            self._keep_snapshot(reading, task)
        return StoredTask(task=task, version=reading.row.version, running=reading.row.token is not None)

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

        def work(connection: sqlite3.Connection) -> tuple[HeadRow, Sequence[tuple[int, bytes, int]]]:
            row = rows.owned(self._row(connection, task_id), owner, task_id)
            span = (place(row.key, min(max(after, 0), row.version)), place(row.key, row.version))
            if refuse_above is not None and row.bytes > refuse_above:
                (size,) = connection.execute(self._sql.large_events, span).fetchone()
                if size > refuse_above:
                    raise LargeResult(size)
            found = connection.execute(self._sql.log, (*span, limit))
            return row, found.fetchall() if max_bytes is None or row.bytes <= max_bytes else _within(found, max_bytes)

        row, found = self._database.read(work)
        return LogPage(
            entries=tuple(rows.read_entry(schema.number(where), body, at_ms) for where, body, at_ms in found),
            version=row.version,
            state=TaskState(row.state),
            running=row.token is not None,
            compacted=row.compacted,
        )

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        """See `TaskStore.list`."""

        def work(connection: sqlite3.Connection) -> tuple[Sequence[Reading], bool, int]:
            query.check_search(lambda most: self._searched(connection, owner, query))
            total = self._total(connection, owner, query)
            found = self._page(connection, owner, query, total)
            if query.refuse_above is not None:
                self._refuse_large_page(connection, found[: query.size], query, query.refuse_above)
            page = Reading.page(connection, self._sql, found, query)
            return page, len(found) > len(page), total

        page, more, total = self._database.read(work)
        return page_of(page, more=more, total=total)

    def _refuse_large_page(
        self, connection: sqlite3.Connection, page: Sequence[HeadRow], query: TaskQuery, most: int
    ) -> None:
        if sum(row.bytes for row in page) > most:
            # Compute the exact size in the database, as the query may not include all of it.
            wanted = (query.history, query.artifacts)
            size = sum(min(row.bytes, sizes_of(connection, self._sql, row, *wanted).all) for row in page)
            if size > most:
                raise LargeResult(size)

    def _row(self, connection: sqlite3.Connection, task_id: str) -> HeadRow | None:
        found = connection.execute(self._sql.head, (task_id,)).fetchone()
        return None if found is None else HeadRow._make(found)

    def _current(self, connection: sqlite3.Connection, token: RunToken) -> HeadRow:
        return rows.held(self._row(connection, token.task_id), token)

    def _key(self, connection: sqlite3.Connection, owner: Owner, task_id: str) -> int:
        return rows.owned(self._row(connection, task_id), owner, task_id).key

    def _body(self, connection: sqlite3.Connection, key: int, number: int) -> bytes:
        body: bytes = connection.execute(self._sql.entry, (place(key, number),)).fetchone()[0]
        return body

    def _keep_snapshot(self, reading: Reading, task: Task) -> None:
        """Store the folded artifacts of a large task for the next read. Best effort: it does not wait for locks.

        The snapshot is replaced once as many entries follow it as it covers. The cost of a read is thereby linear in the
        size of the task, and the total cost of snapshots in that of the entries.
        """
        values = reading.snapshot_of(task)
        with suppress(StoreError):
            self._database.write(lambda connection: connection.execute(self._sql.put_snapshot, values), wait=False)

    # -- listing ------------------------------------------------------------------------------------------------------

    def _page(self, connection: sqlite3.Connection, owner: Owner, query: TaskQuery, total: int) -> Sequence[HeadRow]:
        """The rows of the page and one more. A small context is sorted; a large one is filtered in order of time."""
        few = query.context_id and total <= _SORTED_AT_ONCE
        where, values = _filter(owner, query)
        if query.after is not None:
            where += " AND (status_ms, id) < (?, ?)"
            values += query.after
        statement = (
            f"SELECT {rows.HEAD} FROM {self._sql.by_context if few else self._sql.by_time} WHERE {where}"
            " ORDER BY status_ms DESC, id DESC LIMIT ?"
        )
        limit = min(query.size + 1, total)
        return [HeadRow._make(row) for row in connection.execute(statement, (*values, limit))]

    def _total(self, connection: sqlite3.Connection, owner: Owner, query: TaskQuery) -> int:
        if query.context_id or query.since_ms is not None:
            where, values = _filter(owner, query)
            table = self._sql.by_context if query.context_id else self._sql.by_time
            found = connection.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()
        elif query.state is not None:
            found = connection.execute(self._sql.in_state, (*owner, query.state.value)).fetchone()
        else:
            return self._owned(connection, owner)
        return found[0] or 0 if found else 0

    def _searched(self, connection: sqlite3.Connection, owner: Owner, query: TaskQuery) -> int:
        """The number of tasks among which `_page` searches at most."""
        if query.context_id:
            values = (*owner, query.context_id, _SORTED_AT_ONCE + 1)
            tasks: int = connection.execute(self._sql.in_context, values).fetchone()[0]
            if tasks <= _SORTED_AT_ONCE:
                return tasks
        return self._owned(connection, owner)

    def _owned(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """The number of tasks of an owner."""
        found = connection.execute(self._sql.in_scope, owner).fetchone()
        return found[0] or 0 if found else 0


def _batched(task_ids: Collection[str], size: int) -> Iterator[tuple[str, ...]]:
    rest = iter(task_ids)
    while some := tuple(itertools.islice(rest, size)):
        yield some


def _within(found: Iterable[tuple[int, bytes, int]], max_bytes: int) -> list[tuple[int, bytes, int]]:
    """The first row, and the following rows that fit into `max_bytes` with it; no more rows are read."""
    kept: list[tuple[int, bytes, int]] = []
    for row in found:
        max_bytes -= len(row[1])
        if kept and max_bytes < 0:
            break
        kept.append(row)
    return kept


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


def _limited(row: HeadRow, most: int | None) -> HeadRow:
    if most is not None and row.bytes > most:
        raise too_large(row.id, row.bytes, most)
    return row


def _filter(owner: Owner, query: TaskQuery) -> tuple[str, tuple[object, ...]]:
    terms: list[tuple[str, object]] = [("tenant = ?", owner.tenant), ("owner = ?", owner.id)]
    if query.context_id:
        terms.append(("context = ?", query.context_id))
    if query.state is not None:
        terms.append(("state = ?", query.state.value))
    if query.since_ms is not None:
        terms.append(("status_ms >= ?", query.since_ms))
    return " AND ".join(term for term, _ in terms), tuple(value for _, value in terms)


def _is_path(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False
