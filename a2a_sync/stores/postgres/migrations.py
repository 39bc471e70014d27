"""Creation and upgrade of the tables of a PostgreSQL store."""

from __future__ import annotations

from a2a_sync.errors import StoreError
from a2a_sync.stores.postgres.database import Connection, query
from a2a_sync.stores.postgres.schema import MIGRATION_LOCK, VERSION, Statements, migration

_ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(%s)"
#: Not `to_regclass`, which may answer from a cache that is older than the lock.
_EXISTS = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relname = %s AND pg_table_is_visible(oid))"


def prepare(connection: Connection, sql: Statements, *, create: bool) -> None:
    """Check the tables before they are used; with `create`, create or upgrade them.

    Raises:
        StoreError: there are none, they are too old, or a newer release has changed them beyond what this one can use.
    """
    if stored_version(connection, sql) >= VERSION:
        return
    if not create:
        raise StoreError(
            f"the tables {sql.prefix}* are missing or older than schema version {VERSION}: run `a2a-sync migrate URL`"
        )
    upgrade(connection, sql)


def upgrade(connection: Connection, sql: Statements) -> int:
    """Create the tables or upgrade them, in one transaction that excludes other migrations; returns the version before."""
    with connection.transaction():
        query(connection, _ADVISORY_LOCK, (MIGRATION_LOCK,))
        version = stored_version(connection, sql)
        if version < VERSION:
            for statement in migration(sql.prefix, version):
                connection.execute(statement)
    return version


def stored_version(connection: Connection, sql: Statements) -> int:
    """The schema version of the tables; 0 where there are none.

    Raises:
        StoreError: this release cannot use them.
    """
    ((exists,),) = query(connection, _EXISTS, (f"{sql.prefix}meta",))
    if not exists:
        return 0
    meta = {str(name): int(value) for name, value in query(connection, sql.version)}
    if meta["readable_from"] > VERSION:
        raise StoreError(
            f"the tables {sql.prefix}* have schema version {meta['schema']}, which releases from schema version"
            f" {meta['readable_from']} on can use, and this one has {VERSION}: upgrade a2a_sync"
        )
    return meta["schema"]
