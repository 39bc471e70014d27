"""The tables of a PostgreSQL store, and the statements over them.

- ``tasks``: the heads. ``scope`` is a digest of tenant and owner, ``account`` the owner that quotas count. ``counted`` is the
  share of the task in its account; ``asked`` is the number of the entry with the message of the newest request. ``write``
  identifies the newest write, so that a writer that lost the connection after its commit finds that it succeeded. ``bulky``
  tasks may be compacted; ``hooked`` ones may have webhooks. No index names ``version``, ``bytes`` or ``artifacts``: appends of
  chunks change no index of this table.
- ``entries``: the logs. Number 0 is the request of the newest run.
- ``accounts``: the tasks and bytes of each owner, which triggers count. Each scope of an account has `SLOTS` rows, so that the
  runs of one owner do not wait for one another; the slot depends on the context, so one transaction changes one row.
- ``snapshots``, ``sends``, ``webhooks``, ``states``: as in `a2a_sync.stores.sqlite.schema`. A webhook is ``behind`` while there
  are entries to deliver.
- ``workers``: the leases of the processes, by the clock of the server in seconds since 1970: see
  `a2a_sync.stores.sqlite.schema`. ``meta``: the schema version, and the oldest release that can use it.

Each statement is one transaction unless a comment says otherwise. A statement that waited for a row lock judges the new row, so
its conditions are exact; the conditions name ``write``, so a repeated statement does nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

from a2a_sync.stores.base import COMPACT_FROM, LOG_PAGE_BYTES, Owner
from a2a_sync.stores.rows import ARTIFACT, COUNT_AFTER, HEAD, MESSAGE, REQUEST, STATUS, WEBHOOK

#: Incremented with every change to the tables, together with a step in `_STEPS`.
VERSION = 3
#: The oldest schema version whose releases can use the tables of `VERSION`.
READABLE_FROM = 2
#: Rows for each scope of an account.
SLOTS = 8
#: The key of the advisory lock that migrations hold: "a2a" and the number of the lock.
MIGRATION_LOCK = 0x61326101
#: The key of the advisory lock that a sweep holds while it removes tasks.
SWEEP_LOCK = 0x61326102


def _counters(*columns: str) -> tuple[str, ...]:
    """The functions of the triggers, which call ``count`` with these columns."""
    new, old = (", ".join(f"{row}.{column}" for column in columns) for row in ("NEW", "OLD"))
    return tuple(
        f"""
        CREATE OR REPLACE FUNCTION {{p}}count_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                PERFORM {{p}}count({new}, {tasks}, {size.format("NEW")});
            ELSIF TG_OP = 'DELETE' THEN
                PERFORM {{p}}count({old}, -{tasks}, -{size.format("OLD")});
            ELSE
                PERFORM {{p}}count({new}, 0, {size.format("NEW")} - {size.format("OLD")});
            END IF;
            RETURN NULL;
        END $$
        """
        for name, tasks, size in (("task", 1, "{}.counted"), ("state", 0, "length({}.body)"))
    )


_STEPS: dict[int, tuple[str, ...]] = {
    1: (
        """
        CREATE TABLE {p}tasks (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id text COLLATE "C" NOT NULL UNIQUE,
            scope bytea NOT NULL,
            tenant text COLLATE "C" NOT NULL,
            owner text COLLATE "C" NOT NULL,
            account text COLLATE "C" NOT NULL,
            context text COLLATE "C" NOT NULL,
            state text COLLATE "C" NOT NULL,
            ended boolean NOT NULL,
            status_ms bigint NOT NULL,
            status bytea NOT NULL,
            metadata bytea,
            version integer NOT NULL,
            message integer NOT NULL,
            artifacts integer NOT NULL,
            asked integer NOT NULL,
            compacted integer NOT NULL DEFAULT 0,
            bulky boolean NOT NULL DEFAULT false,
            hooked boolean NOT NULL,
            bytes bigint NOT NULL,
            counted bigint NOT NULL,
            token text COLLATE "C",
            worker text COLLATE "C",
            created_ms bigint NOT NULL,
            rest_ms bigint NOT NULL,
            write bigint NOT NULL
        ) WITH (fillfactor = 80)
        """,
        "CREATE INDEX {p}tasks_by_time ON {p}tasks (scope, status_ms DESC, id DESC, state)",
        "CREATE INDEX {p}tasks_by_context ON {p}tasks (scope, context)",
        "CREATE INDEX {p}tasks_to_evict ON {p}tasks (account, ended DESC, rest_ms) WHERE token IS NULL",
        "CREATE INDEX {p}tasks_to_remove ON {p}tasks (ended, rest_ms) WHERE token IS NULL",
        "CREATE INDEX {p}tasks_to_compact ON {p}tasks (rest_ms) WHERE token IS NULL AND bulky",
        "CREATE INDEX {p}tasks_by_worker ON {p}tasks (worker) WHERE token IS NOT NULL",
        """
        CREATE TABLE {p}entries (
            task bigint NOT NULL,
            number integer NOT NULL,
            kind smallint NOT NULL,
            at_ms bigint NOT NULL,
            body bytea NOT NULL,
            PRIMARY KEY (task, number)
        )
        """,
        f"CREATE INDEX {{p}}entries_messages ON {{p}}entries (task, number) WHERE kind = {MESSAGE}",
        """
        CREATE TABLE {p}snapshots (
            task bigint PRIMARY KEY,
            number integer NOT NULL,
            covered integer NOT NULL,
            body bytea NOT NULL
        )
        """,
        """
        CREATE TABLE {p}sends (
            digest bytea PRIMARY KEY,
            task bigint NOT NULL,
            number integer NOT NULL,
            fingerprint text NOT NULL
        )
        """,
        "CREATE INDEX {p}sends_by_task ON {p}sends (task)",
        """
        CREATE TABLE {p}webhooks (
            task bigint NOT NULL,
            number integer NOT NULL,
            id text COLLATE "C" NOT NULL,
            body bytea NOT NULL,
            version text NOT NULL,
            revision integer NOT NULL,
            cursor integer NOT NULL,
            tries integer NOT NULL,
            due_ms bigint NOT NULL,
            disabled text NOT NULL,
            error text NOT NULL DEFAULT '',
            error_ms bigint NOT NULL DEFAULT 0,
            open boolean NOT NULL,
            behind boolean NOT NULL,
            holder text COLLATE "C",
            PRIMARY KEY (task, number),
            UNIQUE (task, id)
        )
        """,
        "CREATE INDEX {p}webhooks_due ON {p}webhooks (due_ms) WHERE open AND behind",
        "CREATE INDEX {p}webhooks_stopped ON {p}webhooks (error_ms) WHERE disabled <> ''",
        """
        CREATE TABLE {p}states (
            scope bytea NOT NULL,
            context text COLLATE "C" NOT NULL,
            name text COLLATE "C" NOT NULL,
            account text COLLATE "C" NOT NULL,
            version integer NOT NULL,
            body bytea NOT NULL,
            write bigint NOT NULL,
            PRIMARY KEY (scope, context, name)
        )
        """,
        """
        CREATE TABLE {p}workers (
            id text COLLATE "C" PRIMARY KEY,
            beat bigint NOT NULL,
            seen timestamptz NOT NULL,
            name text NOT NULL DEFAULT ''
        )
        """,
        """
        CREATE TABLE {p}accounts (
            name text COLLATE "C" NOT NULL,
            slot integer NOT NULL,
            tasks bigint NOT NULL,
            bytes bigint NOT NULL,
            since bigint GENERATED ALWAYS AS IDENTITY,
            PRIMARY KEY (name, slot)
        ) WITH (fillfactor = 50)
        """,
        f"""
        CREATE FUNCTION {{p}}count(owner text, context text, n bigint, size bigint) RETURNS void LANGUAGE sql AS $$
            INSERT INTO {{p}}accounts AS account (name, slot, tasks, bytes)
            VALUES (owner, hashtext(context) & {SLOTS - 1}, n, size) ON CONFLICT (name, slot)
            DO UPDATE SET tasks = account.tasks + excluded.tasks, bytes = account.bytes + excluded.bytes
        $$
        """,
        *_counters("account", "context"),
        "CREATE TRIGGER {p}task_added AFTER INSERT OR DELETE ON {p}tasks FOR EACH ROW EXECUTE FUNCTION {p}count_task()",
        "CREATE TRIGGER {p}task_counted AFTER UPDATE OF counted ON {p}tasks"
        " FOR EACH ROW WHEN (OLD.counted <> NEW.counted) EXECUTE FUNCTION {p}count_task()",
        "CREATE TRIGGER {p}state_counted AFTER INSERT OR DELETE OR UPDATE OF body ON {p}states"
        " FOR EACH ROW EXECUTE FUNCTION {p}count_state()",
    ),
    2: (
        """
        ALTER TABLE {p}workers
            ADD COLUMN until double precision NOT NULL DEFAULT 0,
            ADD COLUMN lease double precision NOT NULL DEFAULT 0,
            ADD COLUMN gone boolean NOT NULL DEFAULT false,
            ADD COLUMN reaper text COLLATE "C" NOT NULL DEFAULT ''
        """,
        "UPDATE {p}workers SET gone = beat < 0",
        "ALTER TABLE {p}workers DROP COLUMN beat, DROP COLUMN seen",
        # With thousands of workers, none of them reads all rows to find one whose lease is over.
        "CREATE INDEX {p}workers_until ON {p}workers (until)",
        "CREATE INDEX {p}workers_ahead ON {p}workers ((until - 2 * lease))",
    ),
    # Accounts also count for each scope, so that a list of tasks knows its total.
    3: (
        "LOCK TABLE {p}tasks, {p}states, {p}accounts IN SHARE ROW EXCLUSIVE MODE",
        "DELETE FROM {p}accounts",
        "ALTER TABLE {p}accounts ADD COLUMN scope bytea NOT NULL",
        "ALTER TABLE {p}accounts DROP CONSTRAINT {p}accounts_pkey, ADD PRIMARY KEY (name, scope, slot)",
        f"""
        INSERT INTO {{p}}accounts (name, scope, slot, tasks, bytes)
        SELECT account, scope, hashtext(context) & {SLOTS - 1}, sum(n), sum(size) FROM (
            SELECT account, scope, context, 1 AS n, counted AS size FROM {{p}}tasks
            UNION ALL SELECT account, scope, context, 0, length(body) FROM {{p}}states
        ) AS counted GROUP BY 1, 2, 3
        """,
        "DROP FUNCTION {p}count(text, text, bigint, bigint)",
        f"""
        CREATE FUNCTION {{p}}count(owner text, scope bytea, context text, n bigint, size bigint) RETURNS void LANGUAGE sql AS $$
            INSERT INTO {{p}}accounts AS account (name, scope, slot, tasks, bytes)
            VALUES (owner, scope, hashtext(context) & {SLOTS - 1}, n, size) ON CONFLICT (name, scope, slot)
            DO UPDATE SET tasks = account.tasks + excluded.tasks, bytes = account.bytes + excluded.bytes
        $$
        """,
        *_counters("account", "scope", "context"),
    ),
}


def scope_of(owner: Owner) -> bytes:
    """The value of ``scope`` for an owner."""
    return hashlib.sha256(json.dumps(owner).encode()).digest()[:16]


_META = "CREATE TABLE {p}meta (name text PRIMARY KEY, value bigint NOT NULL)"
_SET_META = (
    "INSERT INTO {p}meta VALUES ('schema', {version}), ('readable_from', {readable}) ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value"
)


def migration(prefix: str, version: int) -> Iterator[str]:
    """The statements that upgrade tables of schema version `version` (0: there are none) to `VERSION`."""
    if not version:
        yield _META.format(p=prefix)
    for step in range(version + 1, VERSION + 1):
        for statement in _STEPS[step]:
            yield statement.format(p=prefix)
    yield _SET_META.format(p=prefix, version=VERSION, readable=READABLE_FROM)


# -- statements -----------------------------------------------------------------------------------------------------------

#: The clock of the server, in seconds since 1970. It stands still during a statement, so indexes can be searched with it.
_CLOCK = "extract(epoch FROM statement_timestamp())::float8"
#: When a task came to rest: by the clock that is ahead, as a process whose clock is behind would make it look old to the others.
_REST_MS = f"greatest(%(now_ms)s, floor({_CLOCK} * 1000)::bigint)"
_TASK_HEAD = ", ".join(f"task.{column}" for column in HEAD.split(", "))
_CALLS = (
    "put AS (INSERT INTO {p}entries (task, number, kind, at_ms, body) SELECT head.key,"
    " head.version - %(n)s::int + item.place::int, item.kind, %(now_ms)s, item.body FROM head,"
    " unnest(%(kinds)s::int[], %(bodies)b::bytea[]) WITH ORDINALITY AS item (kind, body, place))"
)
_PUT_REQUEST = (
    f"request AS (INSERT INTO {{p}}entries (task, number, kind, at_ms, body)"
    f" SELECT key, 0, {REQUEST}, %(now_ms)s, %(request)b FROM head"
    " ON CONFLICT (task, number) DO UPDATE SET at_ms = excluded.at_ms, body = excluded.body)"
)
_PUT_SEND = (
    "send AS (INSERT INTO {p}sends (digest, task, number, fingerprint)"
    " SELECT %(digest)b, key, version, %(fingerprint)s FROM head)"
)
_ADD_WEBHOOK = (
    "INSERT INTO {p}webhooks AS hook (task, number, id, body, version, revision, cursor, tries, due_ms, disabled,"
    " open, behind) SELECT key, (SELECT coalesce(max(number), 0) + 1 FROM {p}webhooks WHERE task = head.key),"
    " %(hook_id)s, %(hook_body)b, %(hook_version)s, 1, CURSOR, 0, 0, '', true, true FROM head ON CONFLICT (task, id)"
    " DO UPDATE SET body = excluded.body, version = excluded.version, revision = hook.revision + 1, tries = 0,"
    " due_ms = 0, disabled = '', open = true, behind = true"
)
_PUT_WEBHOOK = f"hook AS ({_ADD_WEBHOOK})".replace("CURSOR", "version - %(n)s::int")
#: Every append sets it: a row that is set already may be reset by a delivery that has not seen the new entries.
_MARK_BEHIND = (
    "behind AS (UPDATE {p}webhooks AS hook SET behind = true FROM head WHERE head.hooked AND hook.task = head.key"
    " AND hook.open)"
)
_MARK_BEHIND_BUT_NEW = _MARK_BEHIND[:-1] + " AND hook.id <> %(hook_id)s)"
_DELETE_PENDING = (
    "pending AS (DELETE FROM {p}states AS state USING head WHERE head.ended AND state.scope = head.scope"
    " AND state.context = head.context AND state.name = 'pending ' || head.id)"
)
_LOG = (
    "version = version + %(n)s::int, bytes = bytes + %(size)s, artifacts = artifacts + %(artifacts)s::int,"
    " message = CASE WHEN %(last_message)s > 0 THEN version + %(last_message)s::int ELSE message END, write = %(write)s"
)
_STATUS = ", state = %(state)s, ended = %(ended)s, status_ms = %(status_ms)s, status = %(status)b"
_METADATA = ", metadata = %(metadata)b"
_COUNT_ALL = ", counted = bytes + %(size)s"
_COUNT_MUCH = f", counted = CASE WHEN bytes + %(size)s > counted + {COUNT_AFTER} THEN bytes + %(size)s ELSE counted END"
_FREE = (
    f", token = NULL, worker = NULL, rest_ms = {_REST_MS}, bulky = version + %(n)s::int - compacted >= {COMPACT_FROM}"
)
_HOLD = (
    f", token = %(new_token)s, worker = %(worker)s, rest_ms = {_REST_MS}, hooked = hooked OR %(hooked)s,"
    " asked = CASE WHEN %(asked)s > 0 THEN version + %(asked)s::int ELSE 0 END"
)
_FITS = " AND (%(max_bytes)s::bigint IS NULL OR task.bytes + %(size)s <= %(max_bytes)s)"
_NEW_WRITE = " AND task.write <> %(write)s"

#: The conditions under which each kind of write may change a task.
_APPENDABLE = "task.id = %(id)s AND task.token = %(token)s" + _NEW_WRITE + _FITS
_INTERRUPTIBLE = "task.id = %(id)s AND task.scope = %(scope)b AND NOT task.ended" + _NEW_WRITE
_STARTABLE = (
    "task.id = %(id)s AND task.scope = %(scope)b AND task.token IS NULL AND NOT task.ended"
    " AND (%(after)s::bigint IS NULL OR task.version <= %(after)s)" + _NEW_WRITE + _FITS
)

_MESSAGES = (
    f"ARRAY(SELECT body FROM {{p}}entries WHERE task = page.key AND kind = {MESSAGE} AND number <= page.version"
    " ORDER BY number DESC LIMIT %(history)s)"
)
_SNAPSHOT_OF = "{p}snapshots AS snapshot ON snapshot.task = page.key AND %(artifacts)s AND page.artifacts > 0"
_ARTIFACTS = (
    f"ARRAY(SELECT body FROM {{p}}entries WHERE task = page.key AND kind = {ARTIFACT} AND number <= page.version"
    " AND number > coalesce(snapshot.number, 0) AND %(artifacts)s AND page.artifacts > 0 ORDER BY number)"
)
_BODIES = (_MESSAGES, "snapshot.number", "snapshot.covered", "snapshot.body", _ARTIFACTS)


def _within(size: str) -> str:
    """The bodies of a task where `size` is at most the parameter ``max_bytes``, or that is NULL; else NULL."""
    fits = f"%(max_bytes)s::bigint IS NULL OR {size} <= %(max_bytes)s"
    return ", ".join(f"CASE WHEN {fits} THEN {part} END" for part in _BODIES)


_UNCLAIMED = (
    "(hook.holder IS NULL OR split_part(hook.holder, '.', 1) NOT IN (SELECT id FROM {p}workers"
    " WHERE NOT gone AND reaper = ''))"
)


class Statements:
    """The statements over the tables of one store, with its table prefix.

    Raises:
        ValueError: the prefix is not valid in a table name.
    """

    version = "SELECT name, value FROM {p}meta"
    head: str = f"SELECT {HEAD} FROM {{p}}tasks WHERE id = %s"
    head_and_write: str = f"SELECT {HEAD}, write FROM {{p}}tasks WHERE id = %s"
    metadata = "SELECT metadata FROM {p}tasks WHERE id = %s FOR UPDATE"
    versions = "SELECT id, version, token IS NOT NULL FROM {p}tasks WHERE id = ANY(%s::text[])"
    state_before: str = (
        f"SELECT body FROM {{p}}entries WHERE task = %s AND number <= %s AND kind = {STATUS}"
        " ORDER BY number DESC LIMIT 1"
    )
    request = (
        "SELECT task.token IS NOT NULL, task.state, request.body, asked.body FROM {p}tasks AS task"
        " LEFT JOIN {p}entries AS request ON request.task = task.key AND request.number = 0"
        " LEFT JOIN {p}entries AS asked ON asked.task = task.key AND asked.number = task.asked AND task.asked > 0"
        " WHERE task.id = %s AND task.scope = %s"
    )
    load: str = (
        f"SELECT page.*, {_within('page.bytes')} FROM (SELECT {HEAD} FROM {{p}}tasks WHERE id = %(id)s AND scope = %(scope)b) AS page"
        f" LEFT JOIN {_SNAPSHOT_OF}"
    )
    #: Of the newest messages the sizes; of the artifacts the sum.
    sizes: str = (
        f"SELECT ARRAY(SELECT octet_length(body) FROM {{p}}entries WHERE task = %(task)s AND kind = {MESSAGE}"
        " AND number <= %(version)s ORDER BY number DESC LIMIT %(history)s),"
        " (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM {p}snapshots WHERE task = %(task)s) +"
        f" (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM {{p}}entries WHERE task = %(task)s"
        f" AND kind = {ARTIFACT} AND number > coalesce((SELECT number FROM {{p}}snapshots WHERE task = %(task)s), 0))"
    )
    #: The column after ``compacted`` is the bytes of all entries where these are refused; then no entry follows.
    log: str = (
        "SELECT task.version, task.state, task.token IS NOT NULL, task.compacted, refused.bytes, entry.number, entry.body,"
        " entry.at_ms FROM {p}tasks AS task"
        " LEFT JOIN LATERAL (SELECT sum(octet_length(body))::bigint AS bytes FROM {p}entries WHERE task = task.key"
        " AND number > %(after)s AND number <= task.version AND task.bytes > %(refuse_above)s::bigint"
        f" AND kind <> {MESSAGE} AND octet_length(body) > {LOG_PAGE_BYTES}"
        " HAVING sum(octet_length(body)) > %(refuse_above)s) AS refused ON true"
        " LEFT JOIN LATERAL (SELECT number, at_ms, body FROM (SELECT number, at_ms, body,"
        " sum(octet_length(body)) OVER (ORDER BY number) AS total, row_number() OVER (ORDER BY number) AS place"
        " FROM (SELECT number, at_ms, body FROM {p}entries WHERE task = task.key AND number > %(after)s"
        " AND number <= task.version ORDER BY number LIMIT %(limit)s) AS found) AS summed"
        " WHERE place = 1 OR %(max_bytes)s::bigint IS NULL OR total <= %(max_bytes)s) AS entry ON refused.bytes IS NULL"
        " WHERE task.id = %(id)s AND task.scope = %(scope)b ORDER BY entry.number"
    )
    create: str = (
        "WITH head AS (INSERT INTO {p}tasks (id, scope, tenant, owner, account, context, state, ended, status_ms,"
        " status, metadata, version, message, artifacts, asked, hooked, bytes, counted, token, worker, created_ms,"
        " rest_ms, write) VALUES (%(id)s, %(scope)b, %(tenant)s, %(owner)s, %(account)s, %(context)s, %(state)s,"
        " %(ended)s, %(status_ms)s, %(status)b, %(metadata)b, %(n)s, %(last_message)s, %(artifacts)s, %(asked)s,"
        f" %(hooked)s, %(size)s, %(size)s, %(new_token)s, %(worker)s, %(now_ms)s, {_REST_MS}, %(write)s)"
        " ON CONFLICT (id) DO NOTHING RETURNING key, version)"
    )
    sent = (
        "SELECT task.id, send.number, send.fingerprint FROM {p}sends AS send JOIN {p}tasks AS task"
        " ON task.key = send.task WHERE send.digest = %b"
    )
    put_snapshot = (
        "INSERT INTO {p}snapshots AS old (task, number, covered, body) SELECT key, %(number)s, %(covered)s, %(body)b"
        " FROM {p}tasks WHERE key = %(task)s AND compacted <= %(number)s FOR KEY SHARE ON CONFLICT (task) DO UPDATE SET"
        " number = excluded.number, covered = excluded.covered, body = excluded.body WHERE old.number < excluded.number"
    )
    # -- removal: one transaction --
    lock_owned: str = f"SELECT {HEAD} FROM {{p}}tasks WHERE id = %s AND scope = %s FOR UPDATE"
    next_to_evict: str = (
        f"SELECT {HEAD} FROM {{p}}tasks WHERE account = %(account)s AND token IS NULL AND id <> %(id)s"
        " ORDER BY ended DESC, rest_ms LIMIT 1 FOR UPDATE SKIP LOCKED"
    )
    lock_expired: str = (
        f"SELECT {HEAD} FROM {{p}}tasks WHERE token IS NULL AND ended = %s AND rest_ms < %s ORDER BY rest_ms LIMIT %s"
        " FOR UPDATE SKIP LOCKED"
    )
    expired = "SELECT 1 FROM {p}tasks WHERE token IS NULL AND ended = %s AND rest_ms < %s LIMIT 1"
    lock_states = (
        "SELECT 1 FROM {p}states AS state WHERE (scope, context) IN (SELECT scope, context FROM {p}tasks"
        " WHERE key = ANY(%(keys)s::bigint[])) ORDER BY scope, context, name FOR UPDATE"
    )
    remove = (
        "WITH gone AS (DELETE FROM {p}tasks WHERE key = ANY(%(keys)s::bigint[]) RETURNING scope, context, id),"
        " entries AS (DELETE FROM {p}entries WHERE task = ANY(%(keys)s::bigint[])),"
        " snapshots AS (DELETE FROM {p}snapshots WHERE task = ANY(%(keys)s::bigint[])),"
        " sends AS (DELETE FROM {p}sends WHERE task = ANY(%(keys)s::bigint[])),"
        " hooks AS (DELETE FROM {p}webhooks WHERE task = ANY(%(keys)s::bigint[])),"
        " states AS (DELETE FROM {p}states AS state USING gone WHERE state.scope = gone.scope"
        " AND state.context = gone.context AND (state.name = 'pending ' || gone.id OR NOT EXISTS (SELECT 1 FROM"
        " {p}tasks AS task WHERE task.scope = gone.scope AND task.context = gone.context"
        " AND task.key <> ALL(%(keys)s::bigint[]))))"
        " SELECT 1"
    )
    account = "SELECT coalesce(sum(tasks), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM {p}accounts WHERE name = %s"
    count_owned = (
        "SELECT coalesce(sum(tasks), 0)::bigint AS n FROM {p}accounts WHERE name = %(account)s AND scope = %(scope)b"
    )
    count_context = "SELECT count(*) FROM (SELECT 1 FROM {p}tasks WHERE scope = %(scope)b AND context = %(context)s LIMIT %(most)s) AS found"
    largest_accounts = (
        "SELECT name, sum(tasks)::bigint FROM {p}accounts GROUP BY name HAVING sum(tasks) > 0"
        " ORDER BY sum(tasks) DESC, min(since) LIMIT %s"
    )
    delete_accounts = "DELETE FROM {p}accounts WHERE tasks = 0 AND bytes = 0"
    count = "SELECT coalesce(sum(tasks), 0)::bigint FROM {p}accounts"
    clamp_end_times = (
        "UPDATE {p}tasks SET rest_ms = %(now)s WHERE key IN (SELECT key FROM {p}tasks WHERE token IS NULL"
        " AND ended = %(ended)s AND rest_ms > %(now)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
    )
    compactable = (
        "SELECT id, scope FROM {p}tasks AS task WHERE token IS NULL AND bulky AND rest_ms < %s AND NOT EXISTS"
        " (SELECT 1 FROM {p}webhooks AS hook WHERE task.hooked AND hook.task = task.key AND hook.open"
        " AND hook.cursor < task.version) ORDER BY rest_ms LIMIT %s"
    )
    compact: str = (
        "WITH head AS (UPDATE {p}tasks SET compacted = version, bulky = false, bytes = %(left)s, counted = %(left)s"
        " WHERE key = %(task)s AND version = %(version)s AND token IS NULL AND bulky RETURNING key, version),"
        " snapshot AS (INSERT INTO {p}snapshots AS old (task, number, covered, body)"
        " SELECT key, version, %(covered)s, %(body)b FROM head WHERE %(body)b::bytea IS NOT NULL ON CONFLICT (task)"
        " DO UPDATE SET number = excluded.number, covered = excluded.covered, body = excluded.body),"
        f" entries AS (DELETE FROM {{p}}entries AS entry USING head WHERE task = head.key AND kind <> {MESSAGE})"
        " SELECT version FROM head"
    )
    kept_bytes: str = (
        f"SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM {{p}}entries WHERE task = %s AND kind = {MESSAGE}"
    )
    # -- webhooks --
    webhooks: str = (
        f"SELECT {WEBHOOK} FROM {{p}}tasks AS task LEFT JOIN {{p}}webhooks AS hook ON hook.task = task.key"
        " WHERE task.id = %s AND task.scope = %s ORDER BY hook.number"
    )
    # Setting a webhook: one transaction.
    lock_for_webhook = "UPDATE {p}tasks SET hooked = true WHERE id = %(id)s AND scope = %(scope)b RETURNING key"
    other_webhooks = (
        "SELECT count(*) FILTER (WHERE id <> %(hook_id)s), count(*) FILTER (WHERE id = %(hook_id)s) FROM {p}webhooks"
        " WHERE task = %(key)s"
    )
    put_webhook: str = f"WITH head AS (SELECT %(key)s::bigint AS key) {_ADD_WEBHOOK.replace('CURSOR', '-1')}"
    delete_webhook = (
        "WITH task AS (SELECT key FROM {p}tasks WHERE id = %s AND scope = %s),"
        " gone AS (DELETE FROM {p}webhooks AS hook USING task WHERE hook.task = task.key AND hook.id = %s)"
        " SELECT 1 FROM task"
    )
    due_webhooks: str = (
        f"SELECT {WEBHOOK} FROM {{p}}webhooks AS hook JOIN {{p}}tasks AS task ON task.key = hook.task WHERE hook.open"
        f" AND hook.behind AND hook.due_ms <= %s AND hook.cursor < task.version AND {_UNCLAIMED}"
        " ORDER BY row_number() OVER (PARTITION BY task.owner ORDER BY hook.due_ms), hook.due_ms LIMIT %s"
    )
    claim_webhook: str = (
        "UPDATE {p}webhooks AS hook SET holder = %(holder)s FROM {p}tasks AS task WHERE task.id = %(id)s"
        " AND hook.task = task.key AND hook.id = %(hook_id)s AND hook.open AND hook.cursor < task.version"
        f" AND (hook.holder = %(holder)s OR {_UNCLAIMED}) RETURNING {WEBHOOK}"
    )
    settle_webhook = (
        "WITH task AS (SELECT key, version, ended FROM {p}tasks WHERE id = %(id)s FOR SHARE)"
        " UPDATE {p}webhooks AS hook SET cursor = %(cursor)s, tries = %(tries)s, due_ms = %(due_ms)s,"
        " disabled = %(disabled)s, error = %(error)s, error_ms = %(error_ms)s, holder = %(new_holder)s, behind = %(cursor)s < task.version,"
        " open = %(disabled)s = '' AND NOT (task.ended AND task.version <= %(cursor)s) FROM task"
        " WHERE hook.task = task.key AND hook.id = %(hook_id)s AND hook.revision = %(revision)s"
        " AND hook.holder = %(holder)s RETURNING 1"
    )
    stopped_webhooks: str = (
        f"SELECT {WEBHOOK} FROM {{p}}webhooks AS hook JOIN {{p}}tasks AS task ON task.key = hook.task"
        " WHERE hook.disabled <> '' ORDER BY hook.error_ms DESC LIMIT %s"
    )
    waiting_webhooks: str = stopped_webhooks.replace(
        "hook.disabled <> ''", "hook.open AND hook.behind AND hook.cursor < task.version"
    )
    webhook_counts = (
        "SELECT count(*), coalesce(sum(task.version - greatest(hook.cursor, 0)), 0)::bigint,"
        " (SELECT count(*) FROM {p}webhooks WHERE disabled <> '') FROM {p}webhooks AS hook"
        " JOIN {p}tasks AS task ON task.key = hook.task WHERE hook.open AND hook.behind AND hook.cursor < task.version"
    )
    release_webhooks = "UPDATE {p}webhooks SET holder = NULL WHERE open AND holder = %s"
    # -- contexts --
    state = "SELECT body, version, write FROM {p}states WHERE scope = %s AND context = %s AND name = %s"
    add_state = (
        "WITH task AS (SELECT scope, context, account FROM {p}tasks WHERE id = %(id)s AND token = %(token)s FOR SHARE),"
        " put AS (INSERT INTO {p}states (scope, context, name, account, version, body,"
        " write) SELECT scope, context, %(name)s, account, 1, %(body)b, %(write)s FROM task ON CONFLICT DO NOTHING RETURNING 1)"
        " SELECT scope, context, EXISTS (SELECT 1 FROM put) FROM task"
    )
    set_state = (
        "WITH task AS (SELECT scope, context, account FROM {p}tasks WHERE id = %(id)s AND token = %(token)s FOR SHARE),"
        " put AS (UPDATE {p}states AS state SET version = %(expected)s + 1, body = %(body)b, write = %(write)s"
        " FROM task"
        " WHERE state.scope = task.scope AND state.context = task.context AND state.name = %(name)s"
        " AND state.version = %(expected)s RETURNING 1)"
        " SELECT scope, context, EXISTS (SELECT 1 FROM put) FROM task"
    )
    # -- workers --
    beat: str = (
        "INSERT INTO {p}workers (id, name, until, lease)"
        f" VALUES (%(id)s, %(name)s, {_CLOCK} + %(lease)s::float8, %(lease)s::float8) ON CONFLICT (id)"
        " DO UPDATE SET until = excluded.until, lease = excluded.lease, gone = false, reaper = '' RETURNING until - lease"
    )
    leave = "UPDATE {p}workers SET gone = true, until = 0, reaper = '' WHERE id = %s"
    has_others = "SELECT EXISTS (SELECT 1 FROM {p}workers WHERE id <> %s)"
    # A lease that begins in the future was granted before the clock was set back.
    claim_worker: str = (
        "WITH found AS (SELECT id FROM {p}workers WHERE id <> %(own)s AND"
        f" ((gone AND (until < {_CLOCK} OR until - 2 * lease > {_CLOCK})) OR (NOT gone AND until < %(now)s::float8)"
        " OR (NOT gone AND until - 2 * lease > %(now)s::float8)) LIMIT 1 FOR UPDATE SKIP LOCKED)"
        f" UPDATE {{p}}workers AS worker SET until = {_CLOCK} + %(lease)s::float8, lease = %(lease)s::float8,"
        " reaper = %(own)s FROM found WHERE worker.id = found.id RETURNING worker.id, worker.gone"
    )
    worker_summaries: str = (
        f"SELECT id, name, CASE WHEN gone OR reaper <> '' THEN NULL ELSE greatest(0, {_CLOCK} - (until - lease)) END,"
        " gone OR reaper <> '', (SELECT count(*) FROM {p}tasks"
        " WHERE worker = summary.id AND token IS NOT NULL) FROM {p}workers AS summary ORDER BY id"
    )
    holds = "SELECT 1 FROM {p}tasks WHERE id = %s AND token = %s"
    held = "SELECT tenant, owner, id, token FROM {p}tasks WHERE worker = %s AND token IS NOT NULL"
    deregister = "DELETE FROM {p}workers WHERE id = %s AND reaper = %s"
    register_missing: str = (
        "INSERT INTO {p}workers (id, name, until, lease)"
        f" SELECT DISTINCT worker, '', {_CLOCK} + %(lease)s::float8, %(lease)s::float8 FROM {{p}}tasks AS task"
        " WHERE token IS NOT NULL AND worker IS NOT NULL"
        " AND NOT EXISTS (SELECT FROM {p}workers WHERE id = task.worker) ON CONFLICT (id) DO NOTHING"
    )
    # -- inspection --
    summaries = (
        "SELECT key, tenant, owner, id, context, state, status_ms, created_ms, version, bytes, token FROM {p}tasks"
    )
    run_counts = (
        "SELECT count(*) FILTER (WHERE state = 'submitted'), count(*) FILTER (WHERE state = 'working'),"
        " min(status_ms) FILTER (WHERE state = 'submitted') FROM {p}tasks WHERE token IS NOT NULL"
    )
    all_counts = "SELECT tenant, owner, state, count(*) FROM {p}tasks GROUP BY tenant, owner, state"
    size = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r'"
        " AND pg_table_is_visible(oid)"
        " AND relname LIKE replace('{p}', '_', '\\_') || '%%'"
    )

    def __init__(self, prefix: str) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,30}|", prefix):
            raise ValueError(f"prefix must be at most 31 letters, digits and underscores, not {prefix!r}")
        self.prefix: str = prefix.lower()
        for name, statement in vars(Statements).items():
            if isinstance(statement, str) and not name.startswith("_"):
                setattr(self, name, statement.format(p=self.prefix))
        self._writes: dict[tuple[object, ...], str] = {}

    def starting(self, *, send: bool, webhook: bool) -> str:
        """Create a task and start its first run; returns its key. No row: the id exists."""
        parts = [_CALLS, _PUT_REQUEST, *[_PUT_SEND] * send, *[_PUT_WEBHOOK] * webhook]
        return self._write(("create", send, webhook), ", ".join([Statements.create, *parts]) + " SELECT key FROM head")

    def resuming(self, *, adopt: bool, send: bool, webhook: bool, status: bool, metadata: bool, entries: bool) -> str:
        """Start the next run of a task; with `adopt`, replace the token of a run. Returns the head and the state before."""
        condition = _APPENDABLE if adopt else _STARTABLE
        sets = f"{_LOG}{_STATUS * status}{_METADATA * metadata}{_HOLD}{_COUNT_ALL}"
        parts = [*[_CALLS] * entries, _PUT_REQUEST, *[_PUT_SEND] * send, *[_PUT_WEBHOOK] * webhook]
        # A statement may change a row once.
        parts.append(_MARK_BEHIND_BUT_NEW if webhook else _MARK_BEHIND)
        statement = (
            f"WITH old AS (SELECT key, state FROM {{p}}tasks AS task WHERE {condition} FOR UPDATE),"
            f" head AS (UPDATE {{p}}tasks AS task SET {sets} FROM old WHERE task.key = old.key"
            f" RETURNING {_TASK_HEAD}, task.hooked, old.state AS before), {', '.join(parts)}"
            f" SELECT {HEAD}, before FROM head"
        )
        return self._write(("resume", adopt, send, webhook, status, metadata, entries), statement)

    def appending(self, *, interrupt: bool, free: bool, ends: bool, status: bool, metadata: bool, entries: bool) -> str:
        """Append to a task, with a token or by `interrupt`; returns the new version. `ends`: it may become terminal."""
        condition = _INTERRUPTIBLE if interrupt else _APPENDABLE
        sets = f"{_LOG}{_STATUS * status}{_METADATA * metadata}{_FREE * free}{_COUNT_ALL if free else _COUNT_MUCH}"
        parts = [*[_CALLS] * entries, _MARK_BEHIND, *[_DELETE_PENDING] * ends]
        statement = (
            f"WITH head AS (UPDATE {{p}}tasks AS task SET {sets} WHERE {condition} RETURNING key, version, hooked,"
            f" ended, scope, context, id), {', '.join(parts)} SELECT version FROM head"
        )
        return self._write(("append", interrupt, free, ends, status, metadata, entries), statement)

    def listing(self, where: str, *, total: str, bodies: bool) -> str:
        """A page of tasks and the number of all that match `total`; with their bodies, unless the page is large."""
        reading = ""
        if bodies:
            reading = f", {_within('sum(page.bytes) OVER ()')}"
        statement = (
            f"SELECT total.n, page.*{reading} FROM ({total}) AS total LEFT JOIN (SELECT {HEAD} FROM {{p}}tasks"
            f" WHERE {where} ORDER BY status_ms DESC, id DESC LIMIT %(size)s + 1) AS page ON true"
            + (f" LEFT JOIN {_SNAPSHOT_OF}" if bodies else "")
            + " ORDER BY page.status_ms DESC, page.id DESC"
        )
        return statement.format(p=self.prefix)

    def _write(self, key: tuple[object, ...], statement: str) -> str:
        if key not in self._writes:
            self._writes[key] = statement.format(p=self.prefix)
        return self._writes[key]
