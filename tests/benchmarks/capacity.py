"""What a deployment needs, computed from measured unit costs: ``python -m tests.benchmarks.capacity [--measure]``.

Prints two tables of docs/explanation/scale.md: the needs of 1 to 10,000 hosts, and the simulation of their leases, messages and polls.
``--measure`` measures the unit costs on this machine, over a private PostgreSQL, and prints them; without it, those of `RECORDED` count.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

import psycopg

from a2a_sync.stores import PostgresStore
from a2a_sync.testing.storecontract.making import begin, chunk, expire_all, status
from a2a_sync.types import TaskState
from tests.benchmarks.simulation import Setup, Simulation
from tests.services.servers import Postgres

#: Messages per second of one Redis server; assumed.
_REDIS = 50_000
HOSTS = (1, 10, 100, 10_000)


@dataclass(frozen=True, kw_only=True)
class Units:
    """Costs of one operation: milliseconds of processor time of the database server, and bytes.

    Parameters:
        task: a task is created, and its run ends.
        append: one statement with one piece of text.
        gathered: one statement with ten pieces.
        lease: a heartbeat and a look for dead workers.
        versions: one poll of 1,000 followed tasks.
        due: one poll for webhooks that are due.
        notify: NOTIFY, without listeners.
        wake: what one listener adds to a NOTIFY.
        wal: bytes of the write-ahead log for a task with 30 appends of ten pieces.
        stored: bytes of tables and indexes for such a task when its log has been compacted.
    """

    task: float
    append: float
    gathered: float
    lease: float
    versions: float
    due: float
    notify: float
    wake: float
    wal: float
    stored: float


#: Measured on two cores of a virtual machine, PostgreSQL 15 without fsync. One core of yours may be twice as fast.
RECORDED = Units(
    task=0.7,
    append=0.14,
    gathered=0.16,
    lease=0.23,
    versions=1.7,
    due=0.05,
    notify=0.055,
    wake=0.01862,
    wal=108_155,
    stored=7_373,
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one host does.

    Parameters:
        processes: web and worker processes.
        streams: runs at once, each followed by one stream.
        run: seconds that a run takes.
        appends: statements per second of a run; each has ten pieces of text.
        pool: connections of a process that are in use at once.
        cores: of one database server, of which `share` may be busy.
        wal: bytes of the write-ahead log per second that one server writes and replicates.
        kept: hours for which tasks are kept.
    """

    processes: int = 8
    streams: int = 100
    run: float = 30.0
    appends: float = 1.0
    pool: float = 2.0
    cores: int = 32
    share: float = 0.5
    wal: float = 100e6
    kept: float = 24.0


@dataclass(frozen=True)
class Needs:
    """What `hosts` hosts need, by `Load` and `Units`."""

    hosts: int
    load: Load
    units: Units

    @property
    def beat(self) -> float:
        """The heartbeat that suits this size, in seconds."""
        return 2.0 if self.hosts <= 10 else 10.0

    @property
    def processes(self) -> int:
        return self.hosts * self.load.processes

    @property
    def tasks(self) -> float:
        """Per second."""
        return self.hosts * self.load.streams / self.load.run

    @property
    def appends(self) -> float:
        """Per second."""
        return self.hosts * self.load.streams * self.load.appends

    @property
    def background(self) -> float:
        """Statements per second for leases and polls."""
        return self.processes * (2 / self.beat + 2 / 5.0)

    def background_cores(self) -> float:
        polled = self.load.streams / self.load.processes / 1000
        each = self.units.lease / self.beat + (self.units.versions * polled + self.units.due) / 5.0
        return self.processes * each / 1000

    def write_cores(self) -> float:
        return (self.tasks * self.units.task + self.appends * self.units.gathered) / 1000

    def notify_cores(self) -> float:
        """Cores for NOTIFY, were it used at this size: every message wakes every process."""
        messages = min(self.appends, self.processes * 200.0)  # one per process and five milliseconds
        return messages * (self.units.notify + self.units.wake * self.processes) / 1000

    def databases(self) -> int:
        """Primary servers: as many as the processor time or the write-ahead log needs."""
        busy = (self.background_cores() + self.write_cores()) / (self.load.cores * self.load.share)
        return math.ceil(max(busy, self.tasks * self.units.wal / self.load.wal))

    def row(self) -> str:
        """A row of the table in docs/explanation/scale.md."""
        by_notify = self.processes <= 30
        messages = "NOTIFY" if by_notify else f"Redis: {math.ceil(self.appends / _REDIS)}"
        connections = self.processes * self.load.pool
        terabytes = self.tasks * 3600 * self.load.kept * self.units.stored / 1e12
        return (
            f"| {self.hosts:,} | {self.processes:,} | {self.hosts * self.load.streams:,} | {self.tasks:,.0f} | {self.appends:,.0f}"
            f" | {self.write_cores():.2f} | {self.background_cores():.3f} | {self.notify_cores():,.1f} | {messages} | {self.databases()}"
            f" | {connections:,.0f} | {self.tasks * self.units.wal / 1e6:,.1f} | {terabytes:,.2f} | {3 * self.beat:g} s |"
        )


TITLE = (
    "| hosts | processes | streams | tasks/s | appends/s | cores: writes | cores: leases, polls | cores: NOTIFY | messages by"
    " | databases | connections | WAL MB/s | TB a day | take-over within |"
)


# -- measuring ----------------------------------------------------------------------------------------------------------


def measure() -> Units:
    """The unit costs on this machine. Needs PostgreSQL; takes about half a minute."""
    with closing(Postgres()) as server:
        server.start()
        with closing(PostgresStore(server.url)) as store:
            meter = _Meter(server)
            runs = [begin(store) for _ in range(1000)]  # also the tasks that are polled
            ids = [run.head.id for run in runs]

            def task() -> None:
                run = begin(store)
                store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)

            def append(pieces: int) -> Callable[[], None]:
                run = begin(store)
                return lambda: (
                    store.append(run.token, [chunk(run.head.id, "a word or two ", append=True)] * pieces) and None
                )

            def lease() -> None:
                now = store.workers.beat(4.0)
                store.workers.claim_lost(2.0, now=now)

            wal, stored = meter.bytes_per_task(store)
            notify, wake = meter.notify()
            return Units(
                task=meter.cost(task, 1000),
                append=meter.cost(append(1), 2000),
                gathered=meter.cost(append(10), 2000),
                lease=meter.cost(lease, 2000),
                versions=meter.cost(lambda: store.versions(ids), 100),
                due=meter.cost(lambda: store.webhooks.due(now_ms=0, limit=100), 1000),
                notify=notify,
                wake=wake,
                wal=wal,
                stored=stored,
            )


class _Meter:
    """Processor time and bytes of a server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def cost(self, work: Callable[[], object], times: int) -> float:
        """Milliseconds of processor time of the server for one call."""
        for _ in range(times // 10):
            work()
        before = self._seconds()
        for _ in range(times):
            work()
        return round((self._seconds() - before) / times * 1000, 4)

    def _seconds(self) -> float:
        parent = self._server._process.pid
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                _, _, rest = path.read_text().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            values = rest.split()
            if int(values[1]) == parent or path.parent.name == str(parent):
                ticks += int(values[11]) + int(values[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def bytes_per_task(self, store: PostgresStore) -> tuple[float, float]:
        """Bytes of the write-ahead log, and of the compacted tables, for a task with 30 appends of ten pieces."""
        count = 50
        self._compact(store)
        wal, tables = self._ask("SELECT pg_current_wal_lsn() - '0/0'"), self._ask(_SIZE)
        for _ in range(count):
            run = begin(store)
            for _ in range(30):
                store.append(run.token, [chunk(run.head.id, secrets.token_hex(7), append=True) for _ in range(10)])
            store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
        written = self._ask("SELECT pg_current_wal_lsn() - '0/0'") - wal
        self._compact(store)
        return round(written / count), round((self._ask(_SIZE) - tables) / count)

    def _compact(self, store: PostgresStore) -> None:
        while store.sweep(expire_all(replay=True)).more:
            pass
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute("VACUUM FULL")

    def notify(self) -> tuple[float, float]:
        """The cost of a NOTIFY, and what each listener adds."""
        listeners = 40
        with psycopg.connect(self._server.url, autocommit=True) as sender:
            alone = self.cost(lambda: sender.execute("SELECT pg_notify('a', 'b')"), 2000)
            others = [psycopg.connect(self._server.url, autocommit=True) for _ in range(listeners)]
            for other in others:
                other.execute("LISTEN a")
            heard = self.cost(lambda: sender.execute("SELECT pg_notify('a', 'b')"), 500)
            for other in others:
                other.close()
        return alone, round((heard - alone) / listeners, 5)

    def _ask(self, statement: str) -> float:
        with psycopg.connect(self._server.url) as connection:
            row = connection.execute(statement).fetchone()
            assert row is not None
            return float(row[0])


_SIZE = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'a2a%'"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.capacity", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the unit costs here")
    options = parser.parse_args()
    units = measure() if options.measure else RECORDED
    for one in fields(units):
        print(f"{one.name} = {getattr(units, one.name):g}")
    print(f"\n{TITLE}\n|{' --- |' * (TITLE.count('|') - 1)}")
    for hosts in HOSTS:
        print(Needs(hosts, Load(), units).row())
    print(
        "\n| processes | statements/s | for each process | messages received for each sent | take-over, median | longest | latest event |"
    )
    print(f"|{' --- |' * 7}")
    for processes in (10, 100, 1_000, 10_000):
        print(Simulation(Setup(processes=processes)).run().row())


if __name__ == "__main__":
    main()
