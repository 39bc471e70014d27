"""Sends with an idempotency key: stored in the transaction that starts the run, deleted with the task."""

from __future__ import annotations

import sqlite3

from a2a_sync.operations import SendKey
from a2a_sync.stores import rows
from a2a_sync.stores.base import AlreadySent, Owner, SentRun
from a2a_sync.stores.rows import HeadRow
from a2a_sync.stores.sqlite.schema import Statements, place


def find(connection: sqlite3.Connection, sql: Statements, owner: Owner, key: str) -> SentRun | None:
    """The send of this owner with this key; None where there was none."""
    row = connection.execute(sql.sent, (rows.send_digest(owner, key),)).fetchone()
    return None if row is None else SentRun._make(row)


def refuse_known(connection: sqlite3.Connection, sql: Statements, owner: Owner, key: SendKey | None) -> None:
    """Check that the idempotency key is new.

    Raises:
        AlreadySent: the owner has a send with this key.
    """
    known = None if key is None else find(connection, sql, owner, key.key)
    if known is not None:
        raise AlreadySent(known)


def keep(connection: sqlite3.Connection, sql: Statements, key: SendKey | None, old: HeadRow, new: HeadRow) -> None:
    """Store the key of the send that changed the task from `old` to `new`."""
    if key is not None:
        digest = rows.send_digest(Owner(new.tenant, new.owner), key.key)
        connection.execute(sql.put_send, (digest, new.key, new.version, key.fingerprint))
        connection.execute(sql.mark_send, (digest, place(new.key, old.version + 1)))
