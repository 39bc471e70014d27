"""The values of contexts in PostgreSQL: set by one statement, deleted with the last task of the context."""

from __future__ import annotations

import secrets
from typing import Any

from a2a_sync.stores.base import STATE, Owner, RunToken, StateConflict, StoredState, revoked
from a2a_sync.stores.postgres.database import Connection, Database, query
from a2a_sync.stores.postgres.schema import Statements, scope_of


class PostgresContexts:
    """The `Contexts` of a `PostgresStore`."""

    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql

    def state(self, owner: Owner, context_id: str, name: str = STATE) -> StoredState:
        """See `Contexts.state`."""
        value = (scope_of(owner), context_id, name)
        return self._database.run(lambda connection: self._find(connection, value)[0])

    def set_state(self, token: RunToken, body: bytes, *, expected: int, name: str = STATE) -> None:
        """See `Contexts.set_state`."""
        values: dict[str, Any] = {
            "id": token.task_id,
            "token": token.value,
            "name": name,
            "body": body,
            "expected": expected,
        }
        values["write"] = own = secrets.randbits(62)
        statement = self._sql.set_state if expected else self._sql.add_state

        def work(connection: Connection) -> None:
            found = query(connection, statement, values)
            if not found:
                raise revoked(token)
            (scope, context_id, stored), *_ = found
            if not stored:
                current, write = self._find(connection, (scope, context_id, name))
                # A repetition after a lost connection finds its own write.
                if write != own:
                    raise StateConflict(current)

        self._database.run(work)

    def _find(self, connection: Connection, value: tuple[Any, ...]) -> tuple[StoredState, int]:
        """A value, and the identity of the write that set it."""
        for body, version, write in query(connection, self._sql.state, value):
            return StoredState(body, version), write
        return StoredState(), -1
