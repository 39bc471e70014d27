"""Faults of several machines: the death of a process at each step of a run, and the failover of the database."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from a2a_sync import Client, Task
from a2a_sync.stores import PostgresStore
from a2a_sync.testing.storecontract.making import MINE, begin, chunk
from a2a_sync.types import TaskState, new_id
from tests.live import HOST, gunicorn
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG, a_worker
from tests.services.conftest import psycopg
from tests.services.dying import STEPS
from tests.services.servers import Postgres, Service, program, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dying")


@pytest.fixture(scope="module")
def client(postgres: Postgres, folder: Path) -> Iterator[Client]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        broker = stack.enter_context(redis_broker(folder))
        environment = {"A2A_TEST_FOLDER": str(folder), "A2A_TEST_STORE": url, "A2A_TEST_BROKER": broker.url}
        stack.enter_context(a_worker("tests.services.dying:celery", environment, folder, "-c", "2"))
        options = ("-c", "python:a2a_sync.gunicorn")
        target = "tests.services.dying:app"
        server = stack.enter_context(gunicorn(target, *options, workers=2, environment=environment, wait=LONG))
        yield stack.enter_context(Client(server.url, timeout=LONG))


@pytest.mark.live
@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("step", STEPS)
def test_a_run_is_completed_once_when_its_process_dies_at_a_step(client: Client, folder: Path, step: str) -> None:
    (folder / step).touch()
    context = new_id()
    task = client.send("done", context_id=context, idempotency_key=context, return_immediately=True)
    assert isinstance(task, Task)
    ended = client.wait(task.id, timeout=LONG)
    assert (ended.state, [artifact.text for artifact in ended.artifacts]) == (TaskState.COMPLETED, ["done!"])
    wait_until(lambda: not (folder / step).exists())
    assert client.list_tasks(context_id=context).total_size == 1


class Standby(Postgres):
    """A standby of another server, which follows it until it is promoted."""

    def __init__(self, primary: Postgres) -> None:
        Service.__init__(self)
        self._server = program("postgres") or "postgres"
        self._settings = {}
        self._data = self.folder / "data"
        copy = ("-h", HOST, "-p", str(primary.port), "-U", "postgres", "-X", "stream", "-c", "fast", "-N")
        self.run(program("pg_basebackup") or "pg_basebackup", "-D", self._data, "-R", *copy)


@pytest.fixture
def primary() -> Iterator[Postgres]:
    with closing(Postgres()) as primary:
        primary.start()
        yield primary


@pytest.fixture
def standby(primary: Postgres) -> Iterator[Standby]:
    with closing(Standby(primary)) as standby:
        standby.start()
        yield standby


@pytest.fixture
def pair(primary: Postgres, standby: Standby) -> Iterator[PostgresStore]:
    """A store in that one of both which accepts writes."""
    hosts = f"{HOST}:{primary.port},{HOST}:{standby.port}"
    with closing(PostgresStore(f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write")) as store:
        yield store


def promote(standby: Standby) -> None:
    with psycopg.connect(standby.url, autocommit=True) as session:
        session.execute("SELECT pg_promote()")


def test_an_asynchronous_standby_lacks_the_newest_entries_and_a_run_goes_on_after_the_others(
    primary: Postgres, standby: Standby, pair: PostgresStore
) -> None:
    run = begin(pair)

    def append(count: int) -> list[int]:
        return [pair.append(run.token, [chunk(run.head.id, "x", append=n > 0)])[0].number for n in range(count)]

    before = append(5)
    with psycopg.connect(primary.url, autocommit=True) as session:
        caught_up = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        wait_until(lambda: session.execute(caught_up).fetchone() == (1,))
    standby.stop()
    lost = append(5)
    primary.stop(signal.SIGKILL)
    standby.start()
    promote(standby)
    after = append(3)
    assert (lost[0], after[0]) == (before[-1] + 1, before[-1] + 1)
    log = pair.log(MINE, run.head.id)
    assert [entry.number for entry in log.entries] == list(range(1, after[-1] + 1))
    assert log.running


def test_a_synchronous_standby_goes_on_with_every_acknowledged_entry_once(
    primary: Postgres, standby: Standby, pair: PostgresStore
) -> None:
    with psycopg.connect(primary.url, autocommit=True) as session:
        session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        session.execute("SELECT pg_reload_conf()")
        synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: session.execute(synchronous).fetchone() == (1,))
    run = begin(pair)
    acknowledged: list[int] = []
    some, over = threading.Event(), threading.Event()

    def write() -> None:
        while not over.is_set():
            (entry,) = pair.append(run.token, [chunk(run.head.id, "x", append=bool(acknowledged))])
            acknowledged.append(entry.number)
            if len(acknowledged) % 50 == 0:
                some.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert some.wait(LONG)
    primary.stop(signal.SIGQUIT)
    promote(standby)
    some.clear()
    assert some.wait(LONG), "nothing was written after the failover"
    over.set()
    writer.join(LONG)
    log = [entry.number for entry in pair.log(MINE, run.head.id, limit=1_000_000).entries]
    assert log == list(range(1, acknowledged[-1] + 1))
    assert acknowledged == list(range(4, acknowledged[-1] + 1))
