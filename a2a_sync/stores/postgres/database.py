"""One PostgreSQL database: connections, retries while it cannot be reached, and error messages. It knows no table.

A connection is lost where the server restarts, a proxy closes it, or a statement takes too long. Whether the statement took
effect is then unknown, so work is repeated on a new connection and has to recognise what it did before.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import StoreError

try:
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError("PostgresStore needs psycopg 3: pip install 'a2a-sync[postgres]'") from _missing

_T = TypeVar("_T")
#: The rows of a result.
Rows: TypeAlias = list[tuple[Any, ...]]

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
#: Seconds for which one statement may take. Longer ones are given up together with their connection.
_STATEMENT_TIMEOUT = 15.0
#: Defaults of the connection, where the URL does not set them: a server that is gone is noticed in about half a minute.
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "a2a_sync",
    # Of a database in SQL_ASCII, text would arrive as bytes.
    "client_encoding": "UTF8",
}
#: The server refuses statements for now, or refused this one because of another one; a repetition may succeed.
_PASSING = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "25P03",  # idle in transaction for too long
        "25P04",  # transaction timeout
        "53300",  # too many connections
        "55P03",  # lock not available
        "57014",  # canceled: by an administrator, or after the statement_timeout of the role
        "57P01",  # the server stops
        "57P02",  # the server restarts after a crash
        "57P03",  # the server starts
        "57P05",  # idle session timeout
        "25006",  # read-only: this server is no longer the primary
    }
)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements have a time limit, so that a server that hangs holds no thread."""

    #: In seconds; None: no limit yet.
    limit: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See psycopg."""
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


def query(connection: Connection, statement: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> Rows:
    """Execute a statement; all rows of its result, none where it has no result."""
    cursor = connection.execute(statement, values, binary=True)
    return cursor.fetchall() if cursor.description is not None else []


def parse_url(url: str) -> dict[str, str]:
    """The parameters of a connection URL, completed by defaults.

    Raises:
        ValueError: it is no URL of PostgreSQL. The message does not contain it, as it may hold a password.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("a PostgreSQL URL begins with postgresql://, as in postgresql://user@host:5432/database")
    try:
        if "\0" in url:
            # The C library would read the URL up to it.
            raise psycopg.ProgrammingError
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (psycopg.ProgrammingError, UnicodeError) as error:
        kind = type(error).__name__
    else:
        return {**_DEFAULTS, **given}
    # The original message may quote the password.
    raise ValueError(
        f"the PostgreSQL URL cannot be parsed ({kind}): write postgresql://user:password@host:5432/database?option=value,"
        " with special characters percent-encoded"
    )


def public_name(parameters: Mapping[str, str]) -> str:
    """The address of a database for messages: without user and password."""
    host = parameters.get("host") or os.environ.get("PGHOST") or "local socket"
    port = parameters.get("port") or os.environ.get("PGPORT") or "5432"
    database = parameters.get("dbname") or os.environ.get("PGDATABASE") or "the default database"
    return f"PostgreSQL at {host}:{port}/{database}"


class _Pool:
    """The connections of one process. Calls that wait for one get it in the order in which they came."""

    def __init__(self, size: int) -> None:
        self.prepared = False
        self.preparing = threading.Lock()
        #: None: not known yet. True: a proxy gives statements to changing sessions of the server.
        self.pooled: bool | None = None
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._free = size
        self._waiting: deque[threading.Event] = deque()
        self._generation = 0

    def lease(self, deadline: float) -> tuple[Connection | None, int] | None:
        """An idle connection, or None in its place: the caller opens one. None: all were in use until `deadline`."""
        if not self._await_turn(deadline):
            return None
        with self._lock:
            return (self._idle.pop() if self._idle else None), self._generation

    def _await_turn(self, deadline: float) -> bool:
        """Wait until this call may use a connection; False: `deadline` came first."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        came = False
        try:
            came = turn.wait(max(0.0, deadline - time.monotonic()))
        finally:
            if not came:
                # It may have come meanwhile, and belongs to another call then.
                self._withdraw(turn)
        return came

    def _withdraw(self, turn: threading.Event) -> None:
        with self._lock:
            if turn.is_set():
                self._pass_on()
            else:
                self._waiting.remove(turn)

    def _pass_on(self) -> None:
        """Let the next call use what another one does not need. With the lock."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._free += 1

    def give_back(self, connection: Connection | None, generation: int) -> None:
        """End a lease. A connection of a generation that was discarded is closed; None: there is none to give back."""
        with self._lock:
            if connection is not None and generation == self._generation:
                self._idle.append(connection)
                connection = None
            self._pass_on()
        if connection is not None:
            connection.close()

    def discard_all(self) -> None:
        """Close all idle connections, and those in use when they are given back."""
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Database:
    """Runs work on connections to one database. Nothing is opened before the first call.

    Safe to use from any thread and after a fork; under gevent, psycopg waits for the server without blocking other greenlets.

    Parameters:
        url: of the database.
        size: connections of each process; further calls wait.
        timeout: seconds for which a call waits for a connection, and for which it is repeated.
        prepare: called in each process before the first work.
    """

    def __init__(self, url: str, *, size: int, timeout: float, prepare: Callable[[Connection], None]) -> None:
        self._parameters = parse_url(url)
        self.name: str = public_name(self._parameters)
        self._size = size
        self._timeout = timeout
        self._prepare = prepare
        #: By process: connections of a parent are neither used nor closed, which would end its sessions.
        self._by_pid: dict[int, _Pool] = {}

    def __repr__(self) -> str:
        return f"<Database {self.name}>"

    @property
    def pooled(self) -> bool:
        """A proxy such as PgBouncer gives statements to changing sessions of the server; known after the first call."""
        return bool(self._pool.pooled)

    def run(self, work: Callable[[Connection], _T], *, timeout: float | None = None, prepared: bool = True) -> _T:
        """Call `work` with a connection in autocommit mode, again and again while the database cannot be reached.

        `work` must recognise what an earlier call of it has done. `timeout` is how long, in seconds, it is repeated. Without `prepared`,
        nothing is prepared before it.

        Raises:
            StoreError: the database cannot be reached, or refuses a statement.
        """
        pool = self._pool
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(pool, work, deadline, prepared)
            except psycopg.Error as error:
                if not _is_passing(error):
                    raise self._failed(error) from error
                if time.monotonic() + pause > deadline:
                    raise self._unreachable(error) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def connect(self, *, limit: float | None = None, **parameters: str) -> Connection:
        """A new connection in autocommit mode, apart from the pool; the caller closes it."""
        connection = Connection.connect(make_conninfo("", **{**self._parameters, **parameters}), autocommit=True)
        connection.limit = _STATEMENT_TIMEOUT if limit is None else limit
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        return connection

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        pool = self._by_pid.pop(os.getpid(), None)
        if pool is not None:
            pool.discard_all()

    @property
    def _pool(self) -> _Pool:
        pid = os.getpid()
        return self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Pool(self._size))

    def _once(self, pool: _Pool, work: Callable[[Connection], _T], deadline: float, prepared: bool) -> _T:
        leased = pool.lease(deadline)
        if leased is None:
            raise StoreError(
                f"{self.name}: all {self._size} connections of this process were in use for {self._timeout:g} s; raise pool=",
                transient=True,
            )
        connection, generation = leased
        try:
            if connection is None:
                connection = self._open(pool)
            if prepared and not pool.prepared:
                self._first_use(pool, connection)
            return work(connection)
        except psycopg.Error as error:
            if _is_passing(error) and (connection is None or connection.closed):
                # The other connections were lost as well, most likely.
                pool.discard_all()
            raise
        finally:
            usable = connection is not None and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
            if connection is not None and not usable:
                connection.close()
            pool.give_back(connection if usable else None, generation)

    def _open(self, pool: _Pool) -> Connection:
        connection = self.connect()
        try:
            if pool.pooled is None:
                # PgBouncer answers with an id of its own when a connection begins.
                (row,) = query(connection, "SELECT pg_backend_pid()")
                pool.pooled = row[0] != connection.info.backend_pid
            if pool.pooled:
                connection.prepare_threshold = None
        except BaseException:
            connection.close()
            raise
        return connection

    def _first_use(self, pool: _Pool, connection: Connection) -> None:
        with pool.preparing:
            if not pool.prepared:
                self._prepare(connection)
                pool.prepared = True

    # -- errors -------------------------------------------------------------------------------------------------------

    def _failed(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"{self.name} refused a statement ({described(error)})")

    def _unreachable(self, error: psycopg.Error) -> StoreError:
        return StoreError(
            f"{self.name} cannot be reached ({described(error)}); a write was not acknowledged, and nothing stored is lost",
            transient=True,
        )


def described(error: psycopg.Error) -> str:
    """The class of a database error, its code, and its first line. Values of the statement are not in it."""
    code = f" {error.sqlstate}" if error.sqlstate else ""
    text = error.diag.message_primary or str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}{code}: {text}"


def _is_passing(error: psycopg.Error) -> bool:
    """A repetition may succeed: the connection was lost, or the server refuses statements for now."""
    if error.sqlstate is not None:
        return error.sqlstate in _PASSING or error.sqlstate.startswith("08")
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


class HeartConnection:
    """One connection for heartbeats, apart from the pool and its locks: a busy process must not look dead.

    For one thread at a time; a forked child opens its own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the connection is the parent's, and is neither used nor closed."""
        self._inherited = getattr(self, "_connection", None)
        self._connection: Connection | None = None

    def execute(self, statement: str, values: Mapping[str, Any], *, limit: float) -> Rows:
        """Execute a statement within `limit` seconds, on a new connection where the last one was lost; the rows of its result.

        Raises:
            StoreError: the database cannot be reached.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._database.connect(limit=limit)
                self._connection.prepare_threshold = None
            return query(self._connection, statement, values)
        except psycopg.Error as error:
            self.close()
            raise StoreError(f"{self._database.name}: no heartbeat ({described(error)})") from error

    def close(self) -> None:
        """Close the connection; `execute` opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
