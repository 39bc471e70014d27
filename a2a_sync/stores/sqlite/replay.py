"""A replay cache for webhook receivers, in an SQLite file that several processes share."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from a2a_sync.errors import StoreError
from a2a_sync.stores.sqlite.database import Database

_PREPARE = (
    "CREATE TABLE IF NOT EXISTS a2a_replay"
    " (key TEXT PRIMARY KEY, expires REAL NOT NULL, evictable INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS a2a_replay_expires ON a2a_replay (evictable, expires)",
)
_KNOWN = "SELECT 1 FROM a2a_replay WHERE key = ?"
_EXPIRE = "DELETE FROM a2a_replay WHERE evictable IN (0, 1) AND expires <= ?"
_COUNT = "SELECT count(*) FROM a2a_replay"
_EVICT = "DELETE FROM a2a_replay WHERE key IN (SELECT key FROM a2a_replay WHERE evictable = 1 ORDER BY expires LIMIT ?)"
_ADD = "INSERT INTO a2a_replay VALUES (?, ?, ?)"
_DISCARD = "DELETE FROM a2a_replay WHERE key = ?"
_IS_READY = "SELECT 1 FROM sqlite_master WHERE name = 'a2a_replay_expires'"

#: A difference between two clocks that counts as slew, not as a step, in seconds.
_TOLERANCE = 1.0


class SQLiteReplayCache:
    """A `ReplayCache` in the SQLite file at `path`, for all receiver processes of one machine that open it.

    The file is created on first use; it may be that of an `SQLiteStore`. At most `size` keys are stored. `busy_timeout` is
    how long, in seconds, a write waits for other processes. Keys expire by the system clock, as signatures do, and are not
    removed before it has been stable in this process for as long as a key is valid. Each call is one write transaction. No
    keys are lost when a process is killed; the newest may be lost on power failure. Safe to use from any thread, in any
    number of processes, and before and after a fork.

    Raises:
        ValueError: `path` does not name a file, or another argument is out of range.
    """

    def __init__(self, path: str | os.PathLike[str], *, size: int = 100_000, busy_timeout: float = 5.0) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise ValueError(f"SQLiteReplayCache needs the path of a file, not {name!r}")
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        if busy_timeout < 0:
            raise ValueError(f"busy_timeout must not be negative, not {busy_timeout}")
        self._size = size
        #: By how much the system clock is ahead of the monotonic one, and since when.
        self._ahead = self._since = 0.0
        self._is_stable_for(0.0)
        self._database = Database(
            str(Path(name).absolute()),
            busy_timeout=busy_timeout,
            synchronous="normal",
            is_ready=lambda connection: connection.execute(_IS_READY).fetchone() is not None,
            prepare=_prepare,
        )

    def add(self, key: str, ttl: float, *, evict: bool) -> bool:
        """See `ReplayCache.add`."""
        now, stable = time.time(), self._is_stable_for(ttl)

        def work(connection: sqlite3.Connection) -> bool:
            if stable:
                connection.execute(_EXPIRE, (now,))
            if connection.execute(_KNOWN, (key,)).fetchone():
                return False
            surplus = connection.execute(_COUNT).fetchone()[0] + 1 - self._size
            if surplus > 0 and (not evict or connection.execute(_EVICT, (surplus,)).rowcount < surplus):
                raise StoreError(f"the replay cache holds {self._size} keys that are still valid")
            connection.execute(_ADD, (key, now + ttl, int(evict)))
            return True

        return self._database.write(work)

    def _is_stable_for(self, ttl: float) -> bool:
        """Whether the system clock was not stepped in the last `ttl` seconds, as far as calls of this process have seen."""
        now = time.monotonic()
        ahead = time.time() - now
        if abs(ahead - self._ahead) > _TOLERANCE:
            self._since = now
        self._ahead = ahead
        return now - self._since >= ttl

    def discard(self, key: str) -> None:
        """See `ReplayCache.discard`."""
        self._database.write(lambda connection: connection.execute(_DISCARD, (key,)))

    def close(self) -> None:
        """Close connections; the next use opens them again."""
        self._database.close()


def _prepare(connection: sqlite3.Connection) -> None:
    for statement in _PREPARE:
        connection.execute(statement)
