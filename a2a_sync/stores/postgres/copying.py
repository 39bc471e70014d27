"""Copies the tasks of an SQLite file into a PostgreSQL database, with their numbers, times and runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from a2a_sync.operations import quota_owner
from a2a_sync.stores import rows
from a2a_sync.stores.base import COMPACT_FROM, Owner
from a2a_sync.stores.postgres.database import Connection, Database, query
from a2a_sync.stores.postgres.schema import Statements, scope_of
from a2a_sync.stores.rows import REQUEST, HeadRow
from a2a_sync.stores.sqlite.database import Database as SQLiteDatabase
from a2a_sync.stores.sqlite.schema import number, place

#: Tasks that are read, and then written, in one transaction each.
_AT_ONCE = 200
_TASKS = (
    "key, id, scope, tenant, owner, account, context, state, ended, status_ms, status, metadata, version, message, artifacts,"
    " asked, compacted, bulky, hooked, bytes, counted, token, worker, created_ms, rest_ms, write"
)
_WEBHOOKS = (
    "task, number, id, body, version, revision, cursor, tries, due_ms, disabled, error, error_ms, open, behind, holder"
)


class Copied(NamedTuple):
    """How many tasks were copied, and how many the target had already."""

    copied: int
    unchanged: int


class _Page(NamedTuple):
    """Rows of some tasks, read in one transaction."""

    heads: Sequence[Sequence[Any]]
    entries: Sequence[Sequence[Any]]
    snapshots: Sequence[Sequence[Any]]
    sends: Sequence[Sequence[Any]]
    webhooks: Sequence[Sequence[Any]]
    states: Sequence[Sequence[Any]]


def copy_all(
    file: SQLiteDatabase, prefix: str, database: Database, sql: Statements, on_page: Callable[[int], None]
) -> Copied:
    """Copy what has changed in the tables `prefix` of a file, in the order of creation; see `PostgresStore.copy_from`.

    Raises:
        StoreError: the file or the database fails. What was copied stays; call it again.
    """
    copied = unchanged = after = 0
    while heads := file.read(lambda c: _heads(c, prefix, after)):  # noqa: B023
        after = heads[-1][0]
        known = _known(database, sql, [head[1] for head in heads])
        keys = [head[0] for head in heads if known.get(head[1]) != _mark(head)]
        if keys:
            page = file.read(lambda c: _page(c, prefix, keys))  # noqa: B023
            database.run(lambda c: _write(c, sql, page))  # noqa: B023
        copied, unchanged = copied + len(keys), unchanged + len(heads) - len(keys)
        on_page(copied + unchanged)
    return Copied(copied, unchanged)


# -- reading ----------------------------------------------------------------------------------------------------------------


def _heads(connection: sqlite3.Connection, prefix: str, after: int) -> list[tuple[Any, ...]]:
    columns = f"{rows.HEAD}, created_ms, rest_ms"
    statement = f"SELECT {columns} FROM {prefix}tasks WHERE key > ? ORDER BY key LIMIT ?"
    return connection.execute(statement, (after, _AT_ONCE)).fetchall()


def _page(connection: sqlite3.Connection, prefix: str, keys: Sequence[int]) -> _Page:
    def each(statement: str, values: Callable[[int], tuple[Any, ...]] = lambda key: (key,)) -> list[tuple[Any, ...]]:
        return [row for key in keys for row in connection.execute(statement.format(p=prefix), values(key))]

    log = "SELECT place, kind, at_ms, body FROM {p}entries WHERE place >= ? AND place < ?"
    return _Page(
        heads=each(f"SELECT {rows.HEAD}, created_ms, rest_ms FROM {{p}}tasks WHERE key = ?"),
        entries=each(log, lambda key: (place(key, 0), place(key + 1, 0))),
        snapshots=each("SELECT task, number, covered, body FROM {p}snapshots WHERE task = ?"),
        sends=each("SELECT digest, task, number, fingerprint FROM {p}sends WHERE task = ?"),
        webhooks=each(
            "SELECT task, number, id, body, version, revision, cursor, tries, due_ms, disabled, error, error_ms, open"
            " FROM {p}webhooks WHERE task = ?"
        ),
        states=each(
            "SELECT state.tenant, state.owner, state.context, state.name, state.version, state.body FROM {p}tasks AS task"
            " JOIN {p}states AS state ON state.tenant = task.tenant AND state.owner = task.owner"
            " AND state.context = task.context WHERE task.key = ?"
        ),
    )


def _mark(head: Sequence[Any]) -> tuple[int, int, str | None]:
    """What differs after every write to a task."""
    row = HeadRow._make(head[:-2])
    return row.version, row.compacted, row.token


def _known(database: Database, sql: Statements, ids: list[str]) -> dict[str, tuple[int, int, str | None]]:
    statement = f"SELECT id, version, compacted, token FROM {sql.prefix}tasks WHERE id = ANY(%s::text[])"
    found = database.run(lambda connection: query(connection, statement, (ids,)))
    return {task_id: (version, compacted, token) for task_id, version, compacted, token in found}


# -- writing ----------------------------------------------------------------------------------------------------------------


def _write(connection: Connection, sql: Statements, page: _Page) -> None:
    """Replace the tasks of a page, in one transaction."""
    p = sql.prefix
    with connection.transaction():
        ids = [head[1] for head in page.heads]
        old = query(connection, f"SELECT key FROM {p}tasks WHERE id = ANY(%s::text[]) FOR UPDATE", (ids,))
        query(connection, sql.remove, {"keys": [key for (key,) in old]})
        reserve = "SELECT nextval(pg_get_serial_sequence(%s, 'key')) FROM generate_series(1, %s)"
        reserved = query(connection, reserve, (f"{p}tasks", len(page.heads)))
        new = {head[0]: key for head, (key,) in zip(page.heads, reserved, strict=True)}
        # `place` of an entry begins with the key of its task.
        entries = [(place_ >> 28, number(place_), kind, at_ms, body) for place_, kind, at_ms, body in page.entries]
        asked = {task: rows.request_entry(body) or 0 for task, _, kind, _, body in entries if kind == REQUEST}
        hooked = {hook[0] for hook in page.webhooks}
        tasks = [_task(head, new[head[0]], asked.get(head[0], 0), head[0] in hooked) for head in page.heads]
        _copy(connection, f"{p}tasks ({_TASKS})", tasks)
        _copy(connection, f"{p}entries (task, number, kind, at_ms, body)", _keyed(entries, new))
        _copy(connection, f"{p}snapshots (task, number, covered, body)", _keyed(page.snapshots, new))
        sends = [(digest, new[task], *rest) for digest, task, *rest in page.sends]
        _copy(connection, f"{p}sends (digest, task, number, fingerprint)", sends)
        webhooks = [(new[task], *rest[:-1], bool(rest[-1]), bool(rest[-1]), None) for task, *rest in page.webhooks]
        _copy(connection, f"{p}webhooks ({_WEBHOOKS})", webhooks)
        _put_states(connection, p, page.states)
        # Their runs are resumed by the first process that uses the database.
        left = sorted({head[12].partition(".")[0] for head in page.heads if head[12]})
        query(
            connection,
            f"INSERT INTO {p}workers (id, gone, name) SELECT id, true, 'copied'"
            " FROM unnest(%s::text[]) AS id ON CONFLICT DO NOTHING",
            (left,),
        )


def _task(head: Sequence[Any], key: int, asked: int, hooked: bool) -> tuple[Any, ...]:
    row, (created_ms, rest_ms) = HeadRow._make(head[:-2]), head[-2:]
    owner = Owner(row.tenant, row.owner)
    bulky = row.token is None and row.version - row.compacted >= COMPACT_FROM
    worker = None if row.token is None else row.token.partition(".")[0]
    return (
        *(key, row.id, scope_of(owner), *owner, quota_owner(row.owner), row.context, row.state, row.ended),
        *(row.status_ms, row.status, row.metadata, row.version, row.message, row.artifacts, asked, row.compacted),
        *(bulky, hooked, row.bytes, row.counted, row.token, worker, created_ms, rest_ms, 0),
    )


def _put_states(connection: Connection, prefix: str, states: Iterable[Sequence[Any]]) -> None:
    for tenant, owner, context, name, version, body in states:
        values = (scope_of(Owner(tenant, owner)), context, name, quota_owner(owner), version, body)
        query(
            connection,
            f"INSERT INTO {prefix}states (scope, context, name, account, version, body, write)"
            " VALUES (%b, %s, %s, %s, %s, %b, 0) ON CONFLICT (scope, context, name)"
            " DO UPDATE SET version = excluded.version, body = excluded.body",
            values,
        )


def _keyed(found: Iterable[Sequence[Any]], new: dict[int, int]) -> list[tuple[Any, ...]]:
    return [(new[task], *rest) for task, *rest in found]


def _copy(connection: Connection, target: str, values: Sequence[Sequence[Any]]) -> None:
    if values:
        with connection.cursor().copy(f"COPY {target} FROM STDIN") as out:
            for row in values:
                out.write_row(row)
