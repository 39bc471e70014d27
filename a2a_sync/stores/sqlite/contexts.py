"""The values of contexts in an SQLite file: set in one transaction, deleted with the last task of the context."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from a2a_sync.stores.base import STATE, Owner, RunToken, StateConflict, StoredState
from a2a_sync.stores.rows import HeadRow
from a2a_sync.stores.sqlite.database import Database
from a2a_sync.stores.sqlite.schema import Statements


@dataclass(eq=False, repr=False)
class SQLiteContexts:
    """The `Contexts` of an `SQLiteStore`."""

    _database: Database
    _sql: Statements
    #: Returns the row of the task of a current token, or raises `RunRevoked`.
    _held: Callable[[sqlite3.Connection, RunToken], HeadRow]

    def state(self, owner: Owner, context_id: str, name: str = STATE) -> StoredState:
        """See `Contexts.state`."""
        return self._database.read(lambda connection: self._find(connection, owner, context_id, name))

    def set_state(self, token: RunToken, body: bytes, *, expected: int, name: str = STATE) -> None:
        """See `Contexts.set_state`."""

        def work(connection: sqlite3.Connection) -> None:
            row = self._held(connection, token)
            owner = Owner(row.tenant, row.owner)
            value = (*owner, row.context, name)
            # The value itself may be large, and other writers wait.
            version = connection.execute(self._sql.state_version, value).fetchone()
            if (version[0] if version is not None else 0) != expected:
                raise StateConflict(self._find(connection, owner, row.context, name))
            connection.execute(self._sql.put_state, (*value, expected + 1, body))

        self._database.write(work)

    def _find(self, connection: sqlite3.Connection, owner: Owner, context_id: str, name: str) -> StoredState:
        row = connection.execute(self._sql.state, (*owner, context_id, name)).fetchone()
        return StoredState() if row is None else StoredState(*row)
