"""One SQLite file: connections, transactions, retries while it is locked, and error messages.

The busy handler of SQLite would block every greenlet of a gevent worker. Its timeout is therefore zero, and this module
retries whole transactions. It does not depend on any table.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeVar

from a2a_sync.concurrency.gevent import original
from a2a_sync.errors import StoreError

_T = TypeVar("_T")

#: Idle connections to keep; further ones are closed after use.
_IDLE = 4
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02
#: After a transaction that has held the file for longer, in seconds, other processes get a turn before this one's next writer.
_LONG_WRITE = 0.02
#: Seconds for which a fork waits for transactions, and transactions for a fork.
_FORK_LIMIT = 5.0

#: Steps of a statement between two checks of `Database.give_up_at`: about a hundredth of a second.
_STEPS = 1_000_000

_PRAGMAS = (
    "PRAGMA cache_size = -8192",
    # Fewer checkpoints: pages that change often are copied to the file less often.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
)


class _Connections:
    """The connections of one process. Its writing threads queue on a lock instead of polling the lock of the file."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        #: The time before which the next writer does not begin.
        self.pause_until = 0.0
        #: Held while `Database.write_apart` has a connection open; not patched by gevent, for native threads.
        self.apart = original("_thread", "allocate_lock")()
        self.prepared = False
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._closed = False
        self._forks = 0
        self._holds_apart = False

    def lease(self) -> sqlite3.Connection | None:
        """An idle connection, or None: the caller opens one. Pass either to `give_back`."""
        with self._changed:
            if self._forks:
                self._changed.wait_for(lambda: not self._forks, _FORK_LIMIT)
            self._in_use += 1
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: sqlite3.Connection | None, *, usable: bool) -> None:
        """End a lease. A connection that is not usable or not needed is closed."""
        with self._changed:
            if connection is not None and usable and not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                connection = None
            if connection is None:
                self._returned()
                return
        connection.close()
        with self._changed:
            self._returned()

    def _returned(self) -> None:
        self._in_use -= 1
        if self._forks:
            self._changed.notify_all()

    def close(self) -> None:
        """Close idle connections, and from now on those that are given back."""
        self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def before_fork(self) -> None:
        """Wait for transactions, close all connections, and block new ones until `after_fork`."""
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: not self._in_use, _FORK_LIMIT)
        self.close_idle()
        self._holds_apart = self.apart.acquire(timeout=_FORK_LIMIT)

    def after_fork(self) -> None:
        if self._holds_apart:
            self.apart.release()
        with self._changed:
            self._forks = max(self._forks - 1, 0)
            self._changed.notify_all()


@dataclass(eq=False, repr=False)
class Database:
    """Runs transactions on the file at `path`. Nothing is opened before the first one.

    On first use in each process, `is_ready` is called in a read transaction; if it returns False, `prepare` is called in a
    write transaction. `busy_timeout` is how long, in seconds, a transaction waits for other processes; `synchronous` is the
    pragma of SQLite. If the file is deleted or replaced while it is in use, operations fail until `close`. Safe to use from
    any thread, and after a fork.
    """

    path: str
    _: KW_ONLY
    busy_timeout: float
    synchronous: str
    is_ready: Callable[[sqlite3.Connection], bool]
    prepare: Callable[[sqlite3.Connection], None]

    def __post_init__(self) -> None:
        self._pragmas = (f"PRAGMA synchronous = {self.synchronous}", *_PRAGMAS)
        self._by_pid: dict[int, _Connections] = {}
        #: Device and inode of the opened file; a forked child continues with the same file.
        self._file: tuple[int, int] | None = None
        #: When statements are given up, in seconds of the monotonic clock; None: never, and signals wait for their end. Set before
        #: the first use, for files that may hold anything: a view without an end.
        self.give_up_at: float | None = None
        _databases.add(self)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` in a read transaction and return its result. It sees one snapshot of the file.

        Raises:
            StoreError: the file cannot be read.
        """
        return self._attempt(self._ready(), "BEGIN", work, self._deadline())

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement finds, in a transaction of its own."""
        return self.read(lambda connection: connection.execute(statement, values).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], _T], *, wait: bool = True, check_file: bool = True) -> _T:
        """Run `work` in a write transaction and return its result. It may be called again after a conflict.

        With `check_file` the call fails if the file was deleted or replaced; needed for writes that are acknowledged.

        Raises:
            StoreError: the file cannot be written, or is locked for longer than the limit (without `wait`: is locked).
        """
        connections = self._ready(check_file)
        deadline = self._deadline() if wait else 0.0
        if not connections.writing.acquire(timeout=self.busy_timeout if wait else 0):
            raise self._locked()
        began = 0.0

        def timed(connection: sqlite3.Connection) -> _T:
            nonlocal began
            began = time.monotonic()
            return work(connection)

        try:
            if wait and (pause := connections.pause_until - time.monotonic()) > 0:
                time.sleep(pause)
            return self._attempt(connections, "BEGIN IMMEDIATE", timed, deadline)
        finally:
            if began and (ended := time.monotonic()) - began > _LONG_WRITE:
                # Writers of other processes poll; without a pause they would find the file locked each time.
                connections.pause_until = ended + _LONGEST_PAUSE
            connections.writing.release()

    def write_apart(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """As `write`, on a temporary connection and without the lock that the other threads of this process queue on.

        For heartbeats, which must not wait behind many threads, nor under gevent behind greenlets that are not scheduled.

        Raises:
            StoreError: as `write`.
        """
        connections = self._ready()

        def once() -> None:
            with connections.apart:
                connection = self.connect()
                try:
                    _transaction(connection, "BEGIN IMMEDIATE", work)
                finally:
                    connection.close()

        self._retry_while_locked(once, self._deadline())

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are given back. The next use opens new ones."""
        connections = self._by_pid.pop(os.getpid(), None)
        if connections is not None:
            connections.close()
        self._file = None

    def connect(self) -> sqlite3.Connection:
        """Open a connection and set its pragmas. Only the first connection may create the file.

        Raises:
            StoreError: the file was deleted or replaced.
        """
        opened = self._file
        if opened is None:
            self._create()
        name = self.path if opened is None else f"{Path(self.path).as_uri()}?mode=rw"
        connection = sqlite3.connect(name, timeout=0, isolation_level=None, check_same_thread=False, uri=bool(opened))
        try:
            if opened is not None:
                self._check_file(opened)
            if self.give_up_at is not None:
                connection.set_progress_handler(self._gives_up, _STEPS)
            for pragma in self._pragmas:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    def _gives_up(self) -> bool:
        return self.give_up_at is not None and time.monotonic() > self.give_up_at

    def _create(self) -> None:
        """Create the file, which contains the credentials of webhooks, for this user only. SQLite copies the mode to its log."""
        with contextlib.suppress(OSError):
            # The file exists, or SQLite reports why it cannot be created. SQLite follows links, also to a file that does not exist yet.
            os.close(os.open(os.path.realpath(self.path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    # -- opening ------------------------------------------------------------------------------------------------------

    def _ready(self, check_file: bool = True) -> _Connections:
        """The connections of this process. Those of a parent process remain unused: SQLite forbids using or closing them."""
        pid = os.getpid()
        connections = self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Connections())
        if check_file and self._file is not None:
            self._check_file(self._file)
        if not connections.prepared:
            self._first_use(connections)
        return connections

    def _first_use(self, connections: _Connections) -> None:
        if not connections.writing.acquire(timeout=self.busy_timeout):
            raise self._locked()
        try:
            if not connections.prepared:
                deadline = self._deadline()
                self._attempt(connections, "", _switch_to_wal, deadline)
                if not self._attempt(connections, "BEGIN", self.is_ready, deadline):
                    self._attempt(connections, "BEGIN IMMEDIATE", self.prepare, deadline)
                if self._file is None:
                    found = os.stat(self.path)
                    self._file = found.st_dev, found.st_ino
                connections.prepared = True
        finally:
            connections.writing.release()

    def _check_file(self, opened: tuple[int, int]) -> None:
        """Refuse to use a file that was unlinked: writes to it would be lost when the process exits.

        Raises:
            StoreError: another file, or none, is at the path.
        """
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            what = "deleted"
        except OSError:
            # The next statement reports the error.
            return
        else:
            if (found.st_dev, found.st_ino) == opened:
                return
            what = "replaced"
        raise StoreError(
            f"{self.path} was {what} while in use; put the file back, or restart every process that uses it"
        )

    # -- transactions -------------------------------------------------------------------------------------------------

    def _attempt(
        self, connections: _Connections, begin: str, work: Callable[[sqlite3.Connection], _T], deadline: float
    ) -> _T:
        return self._retry_while_locked(lambda: self._once(connections, begin, work), deadline)

    def _retry_while_locked(self, once: Callable[[], _T], deadline: float) -> _T:
        """Call `once` and return its result; retry with backoff while the file is locked."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return once()
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise self._broken(error) from error
                if time.monotonic() + pause > deadline:
                    raise self._locked() from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 1.3, _LONGEST_PAUSE)

    def _once(self, connections: _Connections, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
        connection, usable = connections.lease(), True
        try:
            if connection is None:
                connection = self.connect()
            return _transaction(connection, begin, work)
        except sqlite3.Error as error:
            usable = _is_busy(error) and connection is not None and not connection.in_transaction
            raise
        finally:
            connections.give_back(connection, usable=usable and self._by_pid.get(os.getpid()) is connections)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return time.monotonic() + self.busy_timeout

    def _locked(self) -> StoreError:
        return StoreError(
            f"{self.path} is locked: other connections have been writing to it for {self.busy_timeout:g} s"
        )

    def _broken(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreError(f"{self.path} cannot be opened: {self._refusal() or error}")
        return StoreError(f"{self.path} {_SENTENCES.get(code, 'cannot be used')} ({error})")

    def _refusal(self) -> str:
        """Why the system does not open the file, and what to do; empty where it opens it."""
        try:
            os.close(os.open(self.path, os.O_RDWR))
        except FileNotFoundError:
            return "its directory does not exist, or this user may not create files in it; create the directory, or change its mode"
        except OSError as error:
            return f"{os.strerror(error.errno or 0)}; name a file that this user may write"
        return ""


_SENTENCES = {
    sqlite3.SQLITE_READONLY: "cannot be written: the file or its directory is read-only",
    sqlite3.SQLITE_PERM: "cannot be opened: no permission",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_INTERRUPT: "takes too long to read, or the command was interrupted",
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
    """Use a write-ahead log: readers do not wait for writers. The mode is persistent; the switch locks the file."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL").fetchone()


# -- fork ---------------------------------------------------------------------------------------------------------------
# SQLite tracks the locks of a process in memory, which a fork copies: a child would assume that it holds the locks of its
# parent. So no connection may be open during a fork, and a fork waits for running transactions.

_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _each_open(call: Callable[[_Connections], None]) -> None:
    for database in list(_databases):
        connections = database._by_pid.get(os.getpid())
        if connections is not None:
            call(connections)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each_open(_Connections.before_fork),
        after_in_parent=lambda: _each_open(_Connections.after_fork),
    )
