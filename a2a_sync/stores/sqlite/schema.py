"""The tables of an SQLite store, and the statements over them.

- ``tasks``: the heads. ``rest_ms`` is the end of the newest run; ``counted`` is the share of the task in the account of its owner.
- ``entries``: the logs; ``at_ms`` is when an entry was stored. The primary key combines the key of the task and the number of the entry (`place`), so a log is one
  range of the table and needs no index. Number 0 is the request of the newest run. Each message refers to the message
  before it, so the newest n are found without an index.
- ``counts``: the number of tasks by owner and state, from which totals are read; the row with empty columns counts all tasks.
  The rows with the state ``*`` are accounts: the tasks and ``stored`` bytes of each owner, summed over the agents of a host.
  To save writes, ``counted`` is set to the ``bytes`` of the task only when its state changes, when a run begins or ends, and
  after each megabyte. ``rank`` is the number of binary digits of ``n``, or was before tasks were deleted; an index on ``n``
  would change with each task. Accounts are in this table so that a write changes no other page.
- ``snapshots``: the folded artifacts of tasks with many chunks, and of compacted tasks (the entries up to ``compacted`` are
  deleted except for messages).
- ``workers``: the leases of the processes, by the monotonic clock of the machine: the last one ends at ``until`` and was for
  ``lease`` seconds; ``gone`` workers have left, and of a worker that is lost ``reaper`` takes the runs over. A token begins with
  the id of the worker that holds it.
- ``sends``: sends with an idempotency key, by a digest of owner and key. The entry of the message contains the digest, so
  that the row can be deleted with its task.
- ``webhooks``: the push configurations of tasks, with the last delivered entry. A row is ``open`` while deliveries may follow.
- ``states``: the values of each context, by name: its state, its memory, and what a task keeps while it waits, which is deleted
  when the task ends.

Each index and table adds at least one page to every write that changes it: measure before adding one.
"""

from __future__ import annotations

import re
import sqlite3

from a2a_sync.errors import StoreError
from a2a_sync.stores.base import COMPACT_FROM, LOG_PAGE_BYTES
from a2a_sync.stores.rows import ARTIFACT, HEAD, MESSAGE, REQUEST, WEBHOOK

#: Incremented with every change to the tables, together with an upgrade in `_SINCE`.
VERSION = 7

_NUMBER_BITS = 28
#: The maximum number of entries of a task.
MOST_ENTRIES = (1 << _NUMBER_BITS) - 1

_TASK_HEAD = ", ".join(f"task.{column}" for column in HEAD.split(", "))
_TABLES = (
    """
    CREATE TABLE {p}tasks (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        owner TEXT NOT NULL,
        context TEXT NOT NULL,
        state TEXT NOT NULL,
        ended INTEGER NOT NULL,
        status_ms INTEGER NOT NULL,
        status BLOB NOT NULL,
        version INTEGER NOT NULL,
        message INTEGER NOT NULL,
        artifacts INTEGER NOT NULL,
        metadata BLOB,
        token TEXT,
        compacted INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        rest_ms INTEGER NOT NULL
    )
    """,
    "CREATE INDEX {p}tasks_by_time ON {p}tasks (tenant, owner, status_ms DESC, id DESC, state)",
    "CREATE INDEX {p}tasks_by_context ON {p}tasks (tenant, owner, context)",
    "CREATE INDEX {p}tasks_to_compact ON {p}tasks (rest_ms) WHERE token IS NULL AND version - compacted >= "
    f"{COMPACT_FROM}",
    """
    CREATE TABLE {p}entries (
        place INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        previous INTEGER,
        send BLOB,
        body BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE {p}sends (
        digest BLOB PRIMARY KEY,
        task INTEGER NOT NULL,
        number INTEGER NOT NULL,
        fingerprint TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE {p}snapshots (
        task INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        covered INTEGER NOT NULL,
        body BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE {p}counts (
        tenant TEXT NOT NULL,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (tenant, owner, state)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE {p}workers (id TEXT PRIMARY KEY, beat INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TRIGGER {p}task_gone AFTER DELETE ON {p}tasks BEGIN
        UPDATE {p}counts SET n = n - 1 WHERE tenant = '' AND owner = '' AND state = '';
        UPDATE {p}counts SET n = n - 1 WHERE tenant = old.tenant AND owner = old.owner AND state = old.state;
        DELETE FROM {p}counts WHERE tenant = old.tenant AND owner = old.owner AND n = 0;
    END
    """,
)


def _caller(column: str) -> str:
    """The SQL expression for `quota_owner` of a column."""
    return f"substr({column}, instr({column}, char(31)) + 1)"


def _account(column: str) -> str:
    """The SQL condition for the row of ``counts`` with the account of the owner in a column."""
    return f"tenant = '' AND owner = {_caller(column)} AND state = '*'"


#: The number of binary digits of ``count(*)``.
_RANK = " + ".join(f"(count(*) >= {1 << bit})" for bit in range(32))

#: They add the bytes of the values of contexts to those of their owners.
_STATE_TRIGGERS = tuple(
    f"""
    CREATE TRIGGER {{p}}state_{name} AFTER {change} ON {{p}}states BEGIN
        UPDATE {{p}}counts SET stored = stored {growth} WHERE {_account(row + ".owner")};
    END
    """
    for name, change, row, growth in (
        ("made", "INSERT", "new", "+ length(new.body)"),
        ("changed", "UPDATE OF body", "new", "+ length(new.body) - length(old.body)"),
        ("gone", "DELETE", "old", "- length(old.body)"),
    )
)

#: The upgrade statements, by the version that they upgrade to.
_SINCE = {
    2: (
        """
        CREATE TABLE {p}webhooks (
            task INTEGER NOT NULL,
            number INTEGER NOT NULL,
            id TEXT NOT NULL,
            body BLOB NOT NULL,
            version TEXT NOT NULL,
            revision INTEGER NOT NULL,
            cursor INTEGER NOT NULL,
            tries INTEGER NOT NULL,
            due_ms INTEGER NOT NULL,
            disabled TEXT NOT NULL,
            open INTEGER NOT NULL,
            holder TEXT,
            PRIMARY KEY (task, number)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX {p}webhooks_open ON {p}webhooks (due_ms) WHERE open = 1",
    ),
    3: (
        """
        CREATE TABLE {p}states (
            tenant TEXT NOT NULL,
            owner TEXT NOT NULL,
            context TEXT NOT NULL,
            version INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (tenant, owner, context)
        ) WITHOUT ROWID
        """,
    ),
    4: (
        "ALTER TABLE {p}tasks ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}tasks ADD COLUMN counted INTEGER NOT NULL DEFAULT 0",
        "UPDATE {p}tasks SET bytes = (SELECT ifnull(sum(length(body)), 0) FROM {p}entries WHERE place >= key <<"
        f" {_NUMBER_BITS} AND place < (key + 1) << {_NUMBER_BITS})",
        "UPDATE {p}tasks SET counted = bytes",
        "ALTER TABLE {p}counts ADD COLUMN stored INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}counts ADD COLUMN rank INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE {p}counts ADD COLUMN since_ms INTEGER NOT NULL DEFAULT 0",
        f"INSERT INTO {{p}}counts SELECT '', {_caller('owner')}, '*', count(*), sum(bytes), {_RANK}, max(created_ms)"
        " FROM {p}tasks GROUP BY 2",
        f"UPDATE {{p}}counts SET stored = stored + (SELECT ifnull(sum(length(body)), 0) FROM {{p}}states AS state"
        f" WHERE {_caller('state.owner')} = {{p}}counts.owner) WHERE state = '*'",
        "CREATE INDEX {p}accounts_by_rank ON {p}counts (rank DESC, since_ms) WHERE state = '*'",
        # Only files of versions before have this index and the two triggers.
        "DROP INDEX IF EXISTS {p}tasks_to_forget",
        f"CREATE INDEX {{p}}tasks_to_forget ON {{p}}tasks ({_caller('owner')}, ended DESC, rest_ms)"
        " WHERE token IS NULL",
        "DROP TRIGGER IF EXISTS {p}task_made",
        f"""
        CREATE TRIGGER {{p}}task_made AFTER INSERT ON {{p}}tasks BEGIN
            INSERT INTO {{p}}counts VALUES
                (new.tenant, new.owner, new.state, 1, 0, 1, 0),
                ('', '', '', 1, 0, 1, 0),
                ('', {_caller("new.owner")}, '*', 1, new.counted, 1, new.created_ms)
                ON CONFLICT (tenant, owner, state) DO UPDATE SET n = n + 1, stored = stored + excluded.stored;
        END
        """,
        "DROP TRIGGER IF EXISTS {p}task_changed",
        f"""
        CREATE TRIGGER {{p}}task_changed AFTER UPDATE OF state ON {{p}}tasks WHEN old.state <> new.state BEGIN
            INSERT INTO {{p}}counts VALUES
                (old.tenant, old.owner, old.state, -1, 0, 1, 0),
                (new.tenant, new.owner, new.state, 1, 0, 1, 0),
                ('', {_caller("new.owner")}, '*', 0, new.counted - old.counted, 1, 0)
                ON CONFLICT (tenant, owner, state) DO UPDATE SET n = n + excluded.n, stored = stored + excluded.stored;
        END
        """,
        f"""
        CREATE TRIGGER {{p}}task_counted AFTER UPDATE OF counted ON {{p}}tasks
            WHEN old.state = new.state AND old.counted <> new.counted BEGIN
            UPDATE {{p}}counts SET stored = stored + new.counted - old.counted WHERE {_account("new.owner")};
        END
        """,
        f"""
        CREATE TRIGGER {{p}}task_removed AFTER DELETE ON {{p}}tasks BEGIN
            UPDATE {{p}}counts SET n = n - 1, stored = stored - old.counted WHERE {_account("old.owner")};
            DELETE FROM {{p}}counts WHERE {_account("old.owner")} AND n = 0;
        END
        """,
        *_STATE_TRIGGERS,
    ),
    5: (
        """
        CREATE TABLE {p}values (
            tenant TEXT NOT NULL,
            owner TEXT NOT NULL,
            context TEXT NOT NULL,
            name TEXT NOT NULL,
            version INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (tenant, owner, context, name)
        ) WITHOUT ROWID
        """,
        "INSERT INTO {p}values SELECT tenant, owner, context, '', version, body FROM {p}states",
        # Its triggers go with it, and do not fire.
        "DROP TABLE {p}states",
        "ALTER TABLE {p}values RENAME TO {p}states",
        *_STATE_TRIGGERS,
        *(
            f"""
            CREATE TRIGGER {{p}}pending_{name} AFTER {change} ON {{p}}tasks WHEN {when} BEGIN
                DELETE FROM {{p}}states WHERE tenant = old.tenant AND owner = old.owner AND context = old.context
                    AND name = 'pending ' || old.id;
            END
            """
            for name, change, when in (
                ("ended", "UPDATE OF ended", "new.ended AND NOT old.ended"),
                ("gone", "DELETE", "NOT old.ended"),
            )
        ),
    ),
    6: (
        "ALTER TABLE {p}entries ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}webhooks ADD COLUMN error TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE {p}webhooks ADD COLUMN error_ms INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX {p}webhooks_stopped ON {p}webhooks (error_ms) WHERE disabled <> ''",
    ),
    7: (
        """
        CREATE TABLE {p}leases (
            id TEXT PRIMARY KEY,
            until REAL NOT NULL,
            lease REAL NOT NULL,
            gone INTEGER NOT NULL DEFAULT 0,
            reaper TEXT NOT NULL DEFAULT ''
        ) WITHOUT ROWID
        """,
        "INSERT INTO {p}leases SELECT id, 0, 0, beat < 0, '' FROM {p}workers",
        "DROP TABLE {p}workers",
        "ALTER TABLE {p}leases RENAME TO {p}workers",
    ),
}


def place(key: int, number: int) -> int:
    """The primary key in ``entries`` of entry `number` of the task with this key."""
    return key << _NUMBER_BITS | number


def number(place: int) -> int:
    """The entry number of a row of ``entries``."""
    return place & MOST_ENTRIES


def is_current(connection: sqlite3.Connection, prefix: str) -> bool:
    """Whether the tables exist and have the schema version of this release.

    Raises:
        StoreError: the schema version is newer than this release.
    """
    return _version(connection, prefix) == VERSION


def _version(connection: sqlite3.Connection, prefix: str) -> int:
    """The schema version of the tables; 0 where there are none."""
    meta = f"{prefix}meta"
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (meta,)).fetchone():
        return 0
    version: int = connection.execute(f"SELECT value FROM {meta} WHERE name = 'schema'").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            f"the tables {prefix}* have schema version {version}, and this release of a2a_sync knows versions up to"
            f" {VERSION}: upgrade the library, or use another file"
        )
    return version


def prepare(connection: sqlite3.Connection, prefix: str) -> None:
    """Create or upgrade the tables, unless another process has just done so. Call it in a write transaction."""
    version = _version(connection, prefix)
    if not version:
        for statement in _TABLES:
            connection.execute(statement.format(p=prefix))
        connection.execute(f"CREATE TABLE {prefix}meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    for added in range(max(version, 1) + 1, VERSION + 1):
        for statement in _SINCE[added]:
            connection.execute(statement.format(p=prefix))
    connection.execute(f"INSERT OR REPLACE INTO {prefix}meta VALUES ('schema', ?)", (VERSION,))


_WEBHOOKS = f"SELECT {WEBHOOK} FROM {{p}}webhooks AS hook JOIN {{p}}tasks AS task ON task.key = hook.task"
_ALIVE = "(SELECT id FROM {p}workers WHERE NOT gone AND reaper = '')"
_FREE = f"hook.holder IS NULL OR substr(hook.holder, 1, instr(hook.holder, '.') - 1) NOT IN {_ALIVE}"
_OWN = "task = (SELECT key FROM {p}tasks WHERE id = ?) AND id = ?"
_ACCOUNTS = "FROM {p}counts AS account INDEXED BY {p}accounts_by_rank"
_RESTING = (
    f"{_ACCOUNTS} CROSS JOIN {{p}}tasks AS task INDEXED BY {{p}}tasks_to_forget"
    f" ON {_caller('task.owner')} = account.owner WHERE account.state = '*' AND token IS NULL AND ended = ?"
)


class Statements:
    """The statements over the tables of one store, with its table prefix.

    Raises:
        ValueError: the prefix is not valid in a table name.
    """

    head: str = f"SELECT {HEAD} FROM {{p}}tasks WHERE id = ?"
    versions = "SELECT id, version, token IS NOT NULL FROM {p}tasks WHERE id IN"
    summaries = (
        "SELECT key, tenant, owner, id, context, state, status_ms, created_ms, version, bytes, token FROM {p}tasks"
    )
    # Only where something waits, all heads are read.
    run_counts = (
        "SELECT queued, working, CASE WHEN queued THEN (SELECT min(status_ms) FROM {p}tasks WHERE state = 'submitted') END"
        " FROM (SELECT ifnull(sum(CASE state WHEN 'submitted' THEN n END), 0) AS queued,"
        " ifnull(sum(CASE state WHEN 'working' THEN n END), 0) AS working FROM {p}counts)"
    )
    all_counts = "SELECT tenant, owner, state, n FROM {p}counts WHERE state > '*' AND n > 0"
    create = (
        "INSERT INTO {p}tasks (id, tenant, owner, context, state, ended, status_ms, status, version, message,"
        " artifacts, metadata, token, compacted, bytes, counted, created_ms, rest_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    extend = "UPDATE {p}tasks SET version = ?, message = ?, artifacts = ?, bytes = ? WHERE key = ?"
    change = (
        "UPDATE {p}tasks SET version = ?, message = ?, artifacts = ?, bytes = ?, counted = ?, state = ?, ended = ?,"
        " status_ms = ?, status = ?, metadata = ?, token = ?, rest_ms = ? WHERE key = ?"
    )
    put = "INSERT INTO {p}entries (place, kind, previous, body, at_ms) VALUES (?, ?, ?, ?, ?)"
    put_request: str = f"INSERT OR REPLACE INTO {{p}}entries (place, kind, body) VALUES (?, {REQUEST}, ?)"
    put_snapshot = (
        "INSERT OR REPLACE INTO {p}snapshots SELECT key, ?, ?, ? FROM {p}tasks WHERE id = ? AND key = ?"
        " AND compacted <= ?"
    )
    sent = (
        "SELECT task.id, send.number, send.fingerprint FROM {p}sends AS send JOIN {p}tasks AS task"
        " ON task.key = send.task WHERE send.digest = ?"
    )
    put_send = "INSERT INTO {p}sends (digest, task, number, fingerprint) VALUES (?, ?, ?, ?)"
    mark_send = "UPDATE {p}entries SET send = ? WHERE place = ?"
    delete_sends = (
        "DELETE FROM {p}sends WHERE digest IN"
        " (SELECT send FROM {p}entries WHERE place >= ? AND place <= ? AND send IS NOT NULL)"
    )
    delete_task = "DELETE FROM {p}tasks WHERE key = ?"
    delete_entries = "DELETE FROM {p}entries WHERE place >= ? AND place <= ?"
    delete_snapshot = "DELETE FROM {p}snapshots WHERE task = ?"
    webhooks: str = f"{_WEBHOOKS} WHERE hook.task = ? ORDER BY hook.number"
    due_webhooks: str = (
        f"{_WEBHOOKS} WHERE hook.open = 1 AND hook.due_ms <= ? AND hook.cursor < task.version AND ({_FREE})"
        " ORDER BY row_number() OVER (PARTITION BY task.owner ORDER BY hook.due_ms), hook.due_ms LIMIT ?"
    )
    claimable_webhook: str = (
        f"{_WEBHOOKS} WHERE task.id = ? AND hook.id = ? AND hook.open = 1 AND hook.cursor < task.version"
        f" AND (hook.holder = ? OR {_FREE})"
    )
    claim_webhook: str = f"UPDATE {{p}}webhooks SET holder = ? WHERE {_OWN}"
    release_webhooks = "UPDATE {p}webhooks SET holder = NULL WHERE open = 1 AND holder = ?"
    settle_webhook: str = (
        f"UPDATE {{p}}webhooks SET cursor = ?, tries = ?, due_ms = ?, disabled = ?, error = ?, error_ms = ?, holder = ?,"
        f" open = ? = '' AND NOT"
        f" EXISTS (SELECT 1 FROM {{p}}tasks AS own WHERE own.key = task AND own.ended AND own.version <= ?)"
        f" WHERE {_OWN} AND revision = ? AND holder = ?"
    )
    add_webhook = (
        "INSERT INTO {p}webhooks (number, task, id, body, version, revision, cursor, tries, due_ms, disabled, open)"
        " SELECT ifnull(max(number), 0) + 1, ?, ?, ?, ?, 1, ?, 0, 0, '', 1 FROM {p}webhooks WHERE task = ?"
    )
    set_webhook = (
        "UPDATE {p}webhooks SET body = ?, version = ?, revision = revision + 1, tries = 0, due_ms = 0, disabled = '',"
        " open = 1 WHERE task = ? AND id = ?"
    )
    stopped_webhooks: str = f"{_WEBHOOKS} WHERE hook.disabled <> '' ORDER BY hook.error_ms DESC LIMIT ?"
    waiting_webhooks: str = (
        f"{_WEBHOOKS} WHERE hook.open = 1 AND hook.cursor < task.version ORDER BY hook.error_ms DESC LIMIT ?"
    )
    webhook_counts = (
        "SELECT count(*), ifnull(sum(task.version - max(hook.cursor, 0)), 0),"
        " (SELECT count(*) FROM {p}webhooks WHERE disabled <> '') FROM {p}webhooks AS hook"
        " JOIN {p}tasks AS task ON task.key = hook.task WHERE hook.open = 1 AND hook.cursor < task.version"
    )
    delete_webhook = "DELETE FROM {p}webhooks WHERE task = ? AND id = ?"
    delete_webhooks = "DELETE FROM {p}webhooks WHERE task = ?"
    state = "SELECT body, version FROM {p}states WHERE tenant = ? AND owner = ? AND context = ? AND name = ?"
    state_version = "SELECT version FROM {p}states WHERE tenant = ? AND owner = ? AND context = ? AND name = ?"
    put_state = (
        "INSERT INTO {p}states (tenant, owner, context, name, version, body) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (tenant, owner, context, name) DO UPDATE SET version = excluded.version, body = excluded.body"
    )
    # Executed after the task was deleted.
    delete_state = (
        "DELETE FROM {p}states AS state WHERE tenant = ? AND owner = ? AND context = ? AND NOT EXISTS"
        " (SELECT 1 FROM {p}tasks AS task INDEXED BY {p}tasks_by_context WHERE task.tenant = state.tenant"
        " AND task.owner = state.owner AND task.context = state.context)"
    )
    next_to_evict: str = (
        f"SELECT {HEAD} FROM {{p}}tasks INDEXED BY {{p}}tasks_to_forget WHERE {_caller('owner')} = ? AND token IS NULL"
        " AND key <> ? ORDER BY ended DESC, rest_ms LIMIT 1"
    )
    account = (
        "SELECT account.n, account.stored, account.rank, total.n FROM {p}counts AS account, {p}counts AS total"
        " WHERE account.tenant = '' AND account.owner = ? AND account.state = '*'"
        " AND total.tenant = '' AND total.owner = '' AND total.state = ''"
    )
    highest_rank: str = f"SELECT max(rank) {_ACCOUNTS} WHERE state = '*'"
    accounts_of_rank: str = f"SELECT owner, n {_ACCOUNTS} WHERE state = '*' AND rank = ? ORDER BY since_ms LIMIT ?"
    set_rank = "UPDATE {p}counts SET rank = ? WHERE tenant = '' AND owner = ? AND state = '*'"
    expired: str = f"SELECT {_TASK_HEAD} {_RESTING} AND rest_ms < ? LIMIT ?"
    ahead: str = f"SELECT key {_RESTING} AND rest_ms > ? LIMIT ?"
    clamp_end_time: str = f"UPDATE {{p}}tasks SET rest_ms = ? WHERE key IN ({ahead})"
    compactable: str = (
        f"SELECT {HEAD} FROM {{p}}tasks INDEXED BY {{p}}tasks_to_compact WHERE token IS NULL"
        f" AND version - compacted >= {COMPACT_FROM} AND rest_ms < ? AND NOT EXISTS (SELECT 1 FROM {{p}}webhooks AS hook"
        f" WHERE hook.task = {{p}}tasks.key AND hook.open = 1 AND hook.cursor < {{p}}tasks.version)"
        " ORDER BY rest_ms LIMIT ?"
    )
    compact = (
        "UPDATE {p}tasks SET compacted = version, bytes = ?1, counted = ?1 WHERE key = ?2 AND id = ?3 AND version = ?4"
        " AND token IS NULL"
    )
    kept_bytes: str = (
        f"SELECT ifnull(sum(length(body)), 0) FROM {{p}}entries WHERE place >= ? AND place <= ? AND kind = {MESSAGE}"
    )
    delete_all_but_messages: str = f"DELETE FROM {{p}}entries WHERE place >= ? AND place <= ? AND kind <> {MESSAGE}"
    entry = "SELECT body FROM {p}entries WHERE place = ?"
    log = "SELECT place, body, at_ms FROM {p}entries WHERE place > ? AND place <= ? ORDER BY place LIMIT ?"
    large_events: str = (
        "SELECT coalesce(sum(length(body)), 0) FROM {p}entries WHERE place > ? AND place <= ?"
        f" AND kind <> {MESSAGE} AND length(body) > {LOG_PAGE_BYTES}"
    )
    artifacts: str = (
        f"SELECT body FROM {{p}}entries WHERE place > ? AND place <= ? AND kind = {ARTIFACT} ORDER BY place"
    )
    messages = (
        "WITH RECURSIVE found (place, previous, wanted) AS (SELECT place, previous, ? FROM {p}entries"
        " WHERE place = ? UNION ALL SELECT entry.place, entry.previous, wanted - 1 FROM found"
        " JOIN {p}entries AS entry ON entry.place = found.previous WHERE wanted <> 1)"
        " SELECT entry.body FROM {p}entries AS entry JOIN found USING (place) ORDER BY place"
    )
    message_sizes: str = messages.replace("SELECT entry.body", "SELECT length(entry.body)") + " DESC"
    snapshot_size = "SELECT number, length(body) FROM {p}snapshots WHERE task = ?"
    artifacts_size: str = (
        f"SELECT ifnull(sum(length(body)), 0) FROM {{p}}entries WHERE place > ? AND place <= ? AND kind = {ARTIFACT}"
    )
    snapshot = "SELECT number, covered, body FROM {p}snapshots WHERE task = ?"
    in_scope = "SELECT sum(n) FROM {p}counts WHERE tenant = ? AND owner = ? AND state > '*'"
    in_context = (
        "SELECT count(*) FROM (SELECT 1 FROM {p}tasks INDEXED BY {p}tasks_by_context"
        " WHERE tenant = ? AND owner = ? AND context = ? LIMIT ?)"
    )
    in_state = "SELECT n FROM {p}counts WHERE tenant = ? AND owner = ? AND state = ?"
    beat = (
        "INSERT INTO {p}workers (id, until, lease) VALUES (?, ?, ?) ON CONFLICT (id)"
        " DO UPDATE SET until = excluded.until, lease = excluded.lease, gone = 0, reaper = ''"
    )
    leave = "UPDATE {p}workers SET gone = 1, until = 0, reaper = '' WHERE id = ?"
    has_others = "SELECT EXISTS (SELECT 1 FROM {p}workers WHERE id <> ?)"
    # A lease that begins in the future is of a time before the machine was restarted.
    lost_worker = (
        "SELECT id, gone FROM (SELECT *, CASE WHEN gone THEN :clock ELSE :now END AS time FROM {p}workers)"
        " WHERE id <> :own AND (until < time OR until - 2 * lease > time) LIMIT 1"
    )
    claim_worker = "UPDATE {p}workers SET until = ?, lease = ?, reaper = ? WHERE id = ?"
    worker_runs = (
        "SELECT worker.id, until - lease, gone OR reaper <> '', (SELECT count(*) FROM {p}tasks WHERE token >= worker.id || '.'"
        " AND token < worker.id || '/') FROM {p}workers AS worker ORDER BY worker.id"
    )
    holds = "SELECT 1 FROM {p}tasks WHERE id = ? AND token = ?"
    deregister = "DELETE FROM {p}workers WHERE id = ? AND reaper = ?"
    # Executed only when a worker has died, so there is no index for it.
    held = "SELECT tenant, owner, id, token FROM {p}tasks WHERE token >= ? || '.' AND token < ? || '/'"
    # Executed twice in a minute.
    missing_workers = (
        "SELECT DISTINCT substr(token, 1, instr(token, '.') - 1) AS worker FROM {p}tasks"
        " WHERE token IS NOT NULL AND worker NOT IN (SELECT id FROM {p}workers)"
    )
    register_missing = "INSERT INTO {p}workers (id, until, lease) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
    by_time = "{p}tasks INDEXED BY {p}tasks_by_time"
    by_context = "{p}tasks INDEXED BY {p}tasks_by_context"

    def __init__(self, prefix: str) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|", prefix):
            raise ValueError(f"prefix must be letters, digits and underscores, not {prefix!r}")
        self.prefix: str = prefix
        for name, statement in vars(Statements).items():
            if not name.startswith("_"):
                setattr(self, name, statement.format(p=prefix))
