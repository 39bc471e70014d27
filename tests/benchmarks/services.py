"""PostgreSQL and Celery beside an SQLite file, and beside the cluster mode of a2a-sdk on the same server.

Private instances of the services, as in `tests.services`: they need the Debian packages postgresql and redis-server.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from a2a_sync import Client, Task, TaskState
from tests.benchmarks import exchanges, servers
from tests.benchmarks.delivery import delays
from tests.benchmarks.load import Exchange, Sample, drive
from tests.benchmarks.rows import Row, alternate, at_least, at_most, load, row, throughput
from tests.benchmarks.servers import Server, Setup
from tests.live import HOST, free_port
from tests.services.servers import Postgres, program

IDLE_STREAMS, IDLE_SECONDS = 1_000, 20.0
MANY, FEW = 1_000_000, 1_000
_ROUNDS = 3
#: Asynchronous commit, as the SQLite file has.
_ASYNC = "?options=-csynchronous_commit%3Doff"


def services() -> Iterator[Row]:
    """PostgreSQL and Celery beside SQLite and a2a-sdk's cluster mode, with private servers."""
    with _postgres() as server, tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
        yield from _delivery(server, f"sqlite:///{folder}/shared.db")
        yield from _sends(server)
        yield _celery(server)
        yield _takeover(server)


def idle_streams() -> Iterator[Row]:
    """Many idle streams over PostgreSQL."""
    with _postgres() as server:
        yield from _idle(server)


def many_tasks() -> Iterator[Row]:
    """A million tasks of one owner in PostgreSQL."""
    with _postgres() as server:
        yield from _million(server)


@contextmanager
def _postgres() -> Iterator[Postgres]:
    # On the core of the load, as `pin_generator` was called: its work is not that of the measured servers.
    with closing(Postgres()) as server:
        server.start()
        yield server


@contextmanager
def _database(server: Postgres) -> Iterator[str]:
    """A database of its own, as a URL."""
    import psycopg

    name = f"bench_{time.monotonic_ns()}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.url.rpartition("/")[0] + "/" + name


def _read(url: str, statement: str) -> Any:
    import psycopg

    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchone() if found.description is not None else None


def _on(url: str, **variables: str) -> Setup:
    return servers.ours(STORE=url, **variables)


# -- times ----------------------------------------------------------------------------------------------------------------


def _delivery(server: Postgres, file: str) -> Iterator[Row]:
    with _database(server) as url, ExitStack() as stack:
        pairs = [[stack.enter_context(Server(setup)) for _ in range(2)] for setup in (_on(url), _on(file))]
        times = [[delays(*pair)[1] for pair in pairs] for _ in range(_ROUNDS)]
        ours, sqlite = ([one[place] for one in times] for place in (0, 1))
        yield row("event in another process, PostgreSQL / SQLite", ours, sqlite, "ms", at_most(3, None))
    with _database(server) as url, _database(server) as theirs, ExitStack() as stack:
        cluster = servers.uvicorn("sdk", "sdk:app", CLUSTER=theirs.replace("postgresql:", "postgresql+asyncpg:"))
        pairs = [[stack.enter_context(Server(setup)) for _ in range(2)] for setup in (_on(url), cluster)]
        times = [[delays(*pair)[1] for pair in pairs] for _ in range(_ROUNDS)]
        ours, sdk = ([one[place] for one in times] for place in (0, 1))
        yield row("the same / a2a-sdk's cluster mode", ours, sdk, "ms", at_most(1 / 50, 1 / 100))


def _sends(server: Postgres) -> Iterator[Row]:
    with _database(server) as url, ExitStack() as stack:
        started = [stack.enter_context(Server(setup)) for setup in (_on(url + _ASYNC), servers.SQLITE)]
        ours, sqlite = alternate(*(load(one, exchanges.send) for one in started), rounds=5)
        name = "blocking send over 16 connections, PostgreSQL (asynchronous commit) / SQLite"
        yield throughput(name, ours, sqlite, at_least(0.45, None))


def _celery(server: Postgres) -> Row:
    """What Celery adds to a blocking send, in milliseconds."""
    port = free_port()
    broker = f"redis://{HOST}:{port}/0"
    with _database(server) as url, ExitStack() as stack:
        _process(stack, [program("redis-server") or "redis-server", "--port", str(port), "--bind", HOST, "--save", ""])
        queued = _on(url, BROKER=broker)
        command = [sys.executable, "-m", "celery", "-A", "ours:celery", "worker", "-P", "threads", "-c", "4"]
        environment = {"STORE": url, "BROKER": broker}
        _process(stack, [*command, "--without-gossip", "--without-mingle"], cwd=servers.AGENTS, **environment)
        started = [stack.enter_context(Server(setup)) for setup in (queued, _on(url))]
        for one in started:
            one.load(exchanges.send, connections=1, seconds=5.0)
        taken = alternate(*(load(one, exchanges.send, connections=1) for one in started), rounds=5)
        celery, direct = ([sample.p50 * 1e3 for sample in samples] for samples in taken)
        added = statistics.median(one - other for one, other in zip(celery, direct, strict=True))
        shown = f"{statistics.median(celery):.1f} : {statistics.median(direct):.1f} ms"
        return Row("Celery over Redis, ms added to a blocking send", added, shown=shown, **at_most(10, None))


def _process(stack: ExitStack, command: list[str], cwd: Path | None = None, **environment: str) -> None:
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def stop() -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    stack.callback(stop)


def _takeover(server: Postgres) -> Row:
    """Seconds from the kill of a process until the run that it held has ended in another one."""
    taken = []
    with _database(server) as url, ExitStack() as stack:
        heir = stack.enter_context(Server(_on(url)))
        for _ in range(_ROUNDS):
            dying = stack.enter_context(Server(_on(url)))
            with Client(dying.url) as client:
                task = client.send("sleep:600", return_immediately=True)
            assert isinstance(task, Task)
            # Its heart has beaten, and that of the other process for the length of a lease.
            time.sleep(6.5 + len(taken))
            began = time.monotonic()
            dying.kill()
            with Client(heir.url) as client:
                ended = client.wait(task.id, timeout=60)
            taken.append(time.monotonic() - began)
            assert ended.text == "worker lost", ended
    shown = ", ".join(f"{one:.1f}" for one in taken) + " s"
    return Row("take-over of a run after kill -9, seconds", max(taken), shown=shown, **at_most(8, None))


# -- idle streams ----------------------------------------------------------------------------------------------------------


def _idle(server: Postgres) -> Iterator[Row]:
    """Streams of waiting tasks, at another process than the one that made them."""
    with _database(server) as url, ExitStack() as stack:
        setup = servers.ours(worker="gevent", STORE=url, RUNS=str(IDLE_STREAMS + 100))
        here, there = (stack.enter_context(Server(setup)) for _ in range(2))
        tasks: list[dict[str, Any]] = []

        def ask() -> Exchange:
            tasks.append({})
            return exchanges.turn(tasks[-1])

        drive(here.port, ask, connections=8, exchanges=IDLE_STREAMS)
        for task in [task for task in tasks if task][:IDLE_STREAMS]:
            stack.enter_context(_subscribed(there.port, task["id"]))
        # Each new stream reads its log once at the next poll, and idle sessions report their statistics ten seconds late.
        time.sleep(25)
        count = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        logs = "SELECT idx_scan + seq_scan FROM pg_stat_user_tables WHERE relname = 'a2a_entries'"
        before, processor = [_read(url, one)[0] for one in (count, logs)], there.cpu()
        time.sleep(IDLE_SECONDS)
        busy = (there.cpu() - processor) / IDLE_SECONDS
        # Statistics are reported up to a second late.
        time.sleep(1.5)
        queries, reads = (_read(url, one)[0] - old for one, old in zip((count, logs), before, strict=True))
        name = f"{IDLE_STREAMS:,} idle streams, "
        shown = f"{reads} in {IDLE_SECONDS:g} s"
        yield Row(name + "reads of logs", reads, shown=shown, **at_most(0, None))
        shown = f"{queries / IDLE_SECONDS:.1f} a second, of two processes"
        yield Row(name + "statements a second", queries / IDLE_SECONDS, shown=shown, **at_most(5, None))
        yield Row(name + "share of a core", busy, shown=f"{busy:.1%}", **at_most(0.06, None))


@contextmanager
def _subscribed(port: int, task_id: str) -> Iterator[None]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        found = b""
        while b"\ndata:" not in found:
            found += connection.recv(65536)
            assert found.startswith(b"HTTP/1.1 200"), found[:200]
        yield


# -- a million tasks of one owner --------------------------------------------------------------------------------------------


def _million(server: Postgres) -> Iterator[Row]:
    with _database(server) as many, _database(server) as few, ExitStack() as stack:
        for url, count in ((many, MANY), (few, FEW)):
            _fill(url, count)
        for state, exact, most in (
            (None, True, 60),
            (TaskState.COMPLETED, False, 60),
            (TaskState.COMPLETED, True, None),
        ):
            times = _page_times(many, exact, state)
            filtered = f" in one state, exact_totals={exact}" if state else ""
            name = f"ListTasks page with {MANY:,} tasks of one owner{filtered}, ms"
            shown = f"{min(times):.1f} to {max(times):.1f}"
            yield Row(name, statistics.median(times), shown=shown, **at_most(most, None))
        started = [stack.enter_context(Server(_on(url + _ASYNC))) for url in (many, few)]
        steps: list[Callable[[], Sample]] = [load(one, exchanges.send, connections=4) for one in started]
        large, small = ([sample.p50 * 1e3 for sample in taken] for taken in alternate(*steps, rounds=5))
        yield row(f"send with {MANY:,} tasks / with {FEW:,}", large, small, "ms", at_most(1.15, None))


def _page_times(url: str, exact: bool, state: TaskState | None) -> list[float]:
    """Milliseconds of pages of ListTasks, with warm connections."""
    from a2a_sync.stores import PostgresStore
    from a2a_sync.stores.base import Owner, TaskQuery

    taken = []
    with closing(PostgresStore(url, exact_totals=exact)) as store:
        for _ in range(12):
            began = time.perf_counter()
            assert len(store.list(Owner(), TaskQuery(state=state, size=50)).tasks) == 50
            taken.append((time.perf_counter() - began) * 1e3)
    return taken[2:]


def _fill(url: str, count: int) -> None:
    """Make `count` finished tasks of one owner, by copies of one that the library has stored."""
    import psycopg

    from a2a_sync.stores import PostgresStore
    from a2a_sync.stores.base import Owner
    from a2a_sync.testing.storecontract.making import done

    with closing(PostgresStore(url)) as store:
        done(store, owner=Owner(), task_id="model")
    with psycopg.connect(url, autocommit=True) as connection:
        columns = [
            name
            for (name,) in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'a2a_tasks'::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum"
            )
        ]
        values = ", ".join(
            {"key": "n + 1000", "id": "'filled ' || n", "context": "'context ' || n", "status_ms": "status_ms - n"}.get(
                name, name
            )
            for name in columns
        )
        with connection.transaction():
            # One row of the counters would be changed a million times in one transaction.
            connection.execute("ALTER TABLE a2a_tasks DISABLE TRIGGER USER")
            connection.execute(
                f"INSERT INTO a2a_tasks ({', '.join(columns)}) OVERRIDING SYSTEM VALUE SELECT {values} FROM a2a_tasks,"
                f" generate_series(1, {count}) AS n WHERE id = 'model'"
            )
            connection.execute("ALTER TABLE a2a_tasks ENABLE TRIGGER USER")
            connection.execute(
                "INSERT INTO a2a_entries SELECT n + 1000, entry.number, kind, at_ms, body FROM a2a_entries AS entry"
                f" JOIN a2a_tasks AS task ON task.key = entry.task, generate_series(1, {count}) AS n WHERE id = 'model'"
            )
            connection.execute(f"UPDATE a2a_accounts SET tasks = tasks + {count}, bytes = bytes + {count} * 100")
            connection.execute(f"ALTER TABLE a2a_tasks ALTER COLUMN key RESTART WITH {count + 10_000}")
        connection.execute("VACUUM ANALYZE")
