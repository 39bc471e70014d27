"""One SQLite file: connections, transactions, waiting for the lock, and what is said when it cannot be used.

SQLite's own waiting would stop every greenlet of a gevent worker, so its busy timeout is zero and the waiting is done
here, between transactions and never inside one. This room knows no tables.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from a2a_sync.errors import StoreError

_T = TypeVar("_T")

#: Connections that wait for their next use; more are closed after it.
_IDLE = 4
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02

_PRAGMAS = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA cache_size = -8192",
    # Pages that are written again and again reach the file itself less often.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
)


class _Connections:
    """What one process has open. Threads of a process write one after the other, so that they queue and do not spin."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.prepared = False
        self.idle: list[sqlite3.Connection] = []
        #: Keeps what a fork caught in use from being collected, which would close it in the child.
        self.open: set[sqlite3.Connection] = set()

    def close(self, connection: sqlite3.Connection) -> None:
        self.open.discard(connection)
        connection.close()

    def close_idle(self) -> None:
        while True:
            try:
                connection = self.idle.pop()
            except IndexError:
                return
            self.close(connection)


class Database:
    """Runs transactions on the file at `path`. Nothing is opened before the first one.

    At the first use in each process, `is_ready` is asked in a read transaction, and where it is not, `prepare` is
    called in a write transaction. `busy_timeout` is how long, in seconds, a transaction waits for other processes.
    Safe to use from any thread, and after a fork.
    """

    def __init__(
        self,
        path: str,
        *,
        busy_timeout: float,
        is_ready: Callable[[sqlite3.Connection], bool],
        prepare: Callable[[sqlite3.Connection], None],
    ) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._is_ready = is_ready
        self._prepare = prepare
        self._by_pid: dict[int, _Connections] = {}
        _databases.add(self)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What `work` returns, over one consistent view of the file.

        Raises:
            StoreError: the file cannot be read.
        """
        return self._attempt(self._ready(), "BEGIN", work, self._deadline())

    def write(self, work: Callable[[sqlite3.Connection], _T], *, wait: bool = True) -> _T:
        """What `work` returns; all it wrote is stored, or nothing is. It may be called again after a conflict.

        Raises:
            StoreError: the file cannot be written, or is locked for longer than the limit (at all: not `wait`).
        """
        connections = self._ready()
        deadline = self._deadline() if wait else 0.0
        if not connections.writing.acquire(timeout=self._busy_timeout if wait else 0):
            raise self._locked()
        try:
            return self._attempt(connections, "BEGIN IMMEDIATE", work, deadline)
        finally:
            connections.writing.release()

    def close(self) -> None:
        """Close what waits for its next use; what is in use follows when it is done. The next use opens anew."""
        connections = self._by_pid.pop(os.getpid(), None)
        if connections is not None:
            connections.prepared = False
            connections.close_idle()

    def connect(self) -> sqlite3.Connection:
        """A new connection, set up."""
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    # -- opening ------------------------------------------------------------------------------------------------------

    def _ready(self) -> _Connections:
        """This process's connections. A parent's stay in the table, unused and unclosed: SQLite forbids both after a fork."""
        pid = os.getpid()
        connections = self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Connections())
        if not connections.prepared:
            self._first_use(connections)
        return connections

    def _first_use(self, connections: _Connections) -> None:
        if not connections.writing.acquire(timeout=self._busy_timeout):
            raise self._locked()
        try:
            if not connections.prepared:
                deadline = self._deadline()
                self._attempt(connections, "", _switch_to_wal, deadline)
                if not self._attempt(connections, "BEGIN", self._is_ready, deadline):
                    self._attempt(connections, "BEGIN IMMEDIATE", self._prepare, deadline)
                connections.prepared = True
        finally:
            connections.writing.release()

    # -- transactions -------------------------------------------------------------------------------------------------

    def _attempt(
        self, connections: _Connections, begin: str, work: Callable[[sqlite3.Connection], _T], deadline: float
    ) -> _T:
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(connections, begin, work)
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise self._broken(error) from error
                if time.monotonic() + pause > deadline:
                    raise self._locked() from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 1.3, _LONGEST_PAUSE)

    def _once(self, connections: _Connections, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            connection = connections.idle.pop()
        except IndexError:
            connection = self.connect()
            connections.open.add(connection)
        usable = True
        try:
            return _transaction(connection, begin, work)
        except sqlite3.Error as error:
            usable = _is_busy(error) and not connection.in_transaction
            raise
        finally:
            if usable and len(connections.idle) < _IDLE and self._by_pid.get(os.getpid()) is connections:
                connections.idle.append(connection)
            else:
                connections.close(connection)

    # -- what went wrong ----------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return time.monotonic() + self._busy_timeout

    def _locked(self) -> StoreError:
        return StoreError(f"{self.path} is locked: others have been writing to it for {self._busy_timeout:g} s")

    def _broken(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return StoreError(f"{self.path} {_SENTENCES.get(code, 'cannot be used')} ({error})")


_SENTENCES = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: no such directory, or no permission",
    sqlite3.SQLITE_READONLY: "cannot be written: the file or its directory is read-only",
    sqlite3.SQLITE_PERM: "cannot be opened: no permission",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
    sqlite3.SQLITE_TOOBIG: "cannot hold an entry of this size",
}
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def _transaction(connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
    if not begin:
        return work(connection)
    connection.execute(begin)
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Readers then never wait for writers. The file remembers it; switching needs the file for itself for a moment."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL").fetchone()


# -- fork ---------------------------------------------------------------------------------------------------------------

_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _close_before_fork() -> None:
    """Let no connection cross a fork: what waits for its next use is closed, and opened again when it comes."""
    for database in list(_databases):
        connections = database._by_pid.get(os.getpid())
        if connections is not None:
            connections.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_before_fork)
