"""Faults of several machines: processes that die or sleep, clocks that are set, lost messages, the failover of the database."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import Client, Task
from a2a_sync.engine.membership import WorkerMembership
from a2a_sync.stores import PostgresStore, open_pubsub
from a2a_sync.stores.base import Expiry, HeldRun, LostWorker, Owner
from a2a_sync.stores.postgres import schema
from a2a_sync.stores.redispubsub import RedisPubSub
from a2a_sync.testing.storecontract.making import MINE, begin, chunk, done, waiting
from a2a_sync.types import TaskArtifactUpdateEvent, TaskState, new_id
from tests.engine import TIMEOUT
from tests.engine.test_bridge import (
    test_streams_are_exact_while_messages_are_lost_doubled_and_reordered,  # noqa: F401
)
from tests.live import HOST, LiveServer, gunicorn
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


# -- processes that sleep -------------------------------------------------------------------------------------------------


#: How long a process is stopped, in seconds: far beyond its lease.
STOPPED = 60.0


class Sleeper:
    """A run that writes again and again, and the process that executes it: one of gunicorn's, or of Celery's."""

    def __init__(self, stack: ExitStack, postgres: Postgres, folder: Path, executes: str) -> None:
        folder.mkdir()
        self.folder = folder
        url = stack.enter_context(postgres.database())
        environment = {"A2A_TEST_FOLDER": str(folder), "A2A_TEST_STORE": url}
        if executes == "celery":
            environment["A2A_TEST_BROKER"] = stack.enter_context(redis_broker(folder)).url
            stack.enter_context(a_worker("tests.services.queued:celery", environment, folder, "-c", "2"))
        # Otherwise gunicorn kills a worker that is stopped for so long.
        options = ("-c", "python:a2a_sync.gunicorn", "--timeout", str(int(STOPPED + LONG)))
        server = gunicorn("tests.services.queued:app", *options, workers=2, environment=environment, wait=LONG)
        self.client = stack.enter_context(Client(stack.enter_context(server).url, timeout=LONG))
        self.store = stack.enter_context(closing(PostgresStore(url)))
        task = self.client.send("write", return_immediately=True).task
        self.task_id = task.id
        self.pid = self.process("begun")
        wait_until(lambda: self.store.load(Owner(), task.id).task.artifacts, LONG)

    def process(self, name: str, but: int = 0) -> int:
        """The process of the run, when it has begun or ended, beside the process `but`."""
        found: list[int] = []

        def look() -> bool:
            pids = {int(path.name.rpartition("-")[2]) for path in self.folder.glob(f"{name}-{self.task_id}-*")}
            found[:] = pids - {but}
            return bool(found)

        wait_until(look, LONG)
        return found[0]


@pytest.mark.live
@pytest.mark.timeout(3 * LONG)
def test_a_process_that_sleeps_beyond_its_lease_writes_nothing_more(postgres: Postgres, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # Both at the same time, since a minute passes.
        sleepers = [Sleeper(stack, postgres, tmp_path / kind, kind) for kind in ("web", "celery")]
        for one in sleepers:
            os.kill(one.pid, signal.SIGSTOP)
            stack.callback(os.kill, one.pid, signal.SIGCONT)
        stopped = time.monotonic()
        heirs = [one.process("begun", but=one.pid) for one in sleepers]
        threading.Event().wait(stopped + STOPPED - time.monotonic())
        for one in sleepers:
            os.kill(one.pid, signal.SIGCONT)
        for one, heir in zip(sleepers, heirs, strict=True):
            assert one.process("ended") == one.pid
            (one.folder / "go").touch()
            assert one.client.wait(one.task_id, timeout=LONG).state is TaskState.COMPLETED
            log = one.store.log(Owner(), one.task_id, limit=100_000)
            assert [entry.number for entry in log.entries] == list(range(1, log.version + 1))
            writers = [
                set(map(int, entry.event.artifact.text.split()))
                for entry in log.entries
                if isinstance(entry.event, TaskArtifactUpdateEvent) and not entry.event.last_chunk
            ]
            assert [writer for writer, _ in itertools.groupby(writers)] == [{one.pid}, {heir}]


# -- releases that follow one another ---------------------------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.timeout(3 * LONG)
def test_a_rolling_deployment_with_new_tables_loses_no_run(store_url: str, tmp_path: Path) -> None:
    environment = {"A2A_TEST_FOLDER": str(tmp_path), "A2A_TEST_STORE": store_url}

    def version() -> int:
        with psycopg.connect(store_url) as session:
            return int(session.execute("SELECT value FROM a2a_meta WHERE name = 'schema'").fetchone()[0])

    def release(stack: ExitStack, module: str) -> tuple[LiveServer, Client]:
        options = ("-c", "python:a2a_sync.gunicorn")
        app = gunicorn(f"{module}:app", *options, workers=2, environment=environment, wait=LONG)
        server = stack.enter_context(app)
        return server, stack.enter_context(Client(server.url, timeout=LONG))

    with ExitStack() as stack:
        former, before = release(stack, "tests.services.former")
        task = before.send("write", return_immediately=True).task
        wait_until(lambda: list(tmp_path.glob(f"begun-{task.id}-*")), LONG)
        assert version() == schema.VERSION - 1
        migrate = [sys.executable, "-m", "a2a_sync", "migrate", store_url]
        subprocess.run(migrate, check=True, timeout=LONG, capture_output=True)
        assert version() == schema.VERSION
        assert before.send("former").text.startswith("former by")
        _, after = release(stack, "tests.services.queued")
        assert after.send("new").text.startswith("new by")
        assert after.get_task(task.id).state is TaskState.WORKING
        stream = after.subscribe(task.id)
        next(stream)
        former.terminate(LONG)
        # A process of the new release has the run now.
        wait_until(lambda: len(list(tmp_path.glob(f"begun-{task.id}-*"))) == 2, LONG)
        (tmp_path / "go").touch()
        events = list(stream)
        store = stack.enter_context(closing(PostgresStore(store_url)))
        log = store.log(Owner(), task.id, limit=100_000)
    assert events
    assert stream.task.state is TaskState.COMPLETED
    assert [entry.number for entry in log.entries] == list(range(1, log.version + 1))


# -- clocks that are set --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(store_url: str) -> Iterator[Callable[[float], None]]:
    """Sets the clock that statements of ``stepped_url`` read, in seconds ahead of the clock of the server."""
    with psycopg.connect(store_url, autocommit=True) as session:
        session.execute("CREATE SCHEMA stepped")
        session.execute("CREATE TABLE stepped.ahead AS SELECT '0 s'::interval AS step")
        session.execute(
            "CREATE FUNCTION stepped.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS"
            " $$ SELECT pg_catalog.statement_timestamp() + step FROM stepped.ahead $$"
        )
        yield lambda seconds: session.execute("UPDATE stepped.ahead SET step = make_interval(secs => %s)", (seconds,))


@pytest.mark.parametrize("step", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_of_the_database_that_is_set_kills_no_worker(
    store_url: str, clock: Callable[[float], None], step: float
) -> None:
    url = f"{store_url}?options=-csearch_path%3Dstepped,pg_catalog"
    lost: queue.Queue[HeldRun] = queue.Queue()
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(PostgresStore(url))) for _ in range(4)]
        living, early, late, _ = workers = [
            stack.enter_context(closing(WorkerMembership(store.workers, lost.put, beat=1.0))) for store in stores
        ]
        for worker in workers:
            worker.join()
        held = [begin(store).token for store in stores[:3]]
        wait_until(lambda: all(worker._time_of_store() is not None for worker in workers))
        early._halt()
        clock(step)
        # Those that died before and after the step are found, by a worker that could have judged the living one as well.
        assert lost.get(timeout=TIMEOUT).token == held[1]
        late._halt()
        assert lost.get(timeout=TIMEOUT).token == held[2]
        assert abs(living._ahead - workers[3]._ahead) < 60
        assert lost.empty()
        assert stores[0].workers.holds(held[0])


def test_a_process_that_waits_long_for_a_connection_takes_no_living_worker_for_dead(store_url: str) -> None:
    lost: queue.Queue[HeldRun] = queue.Queue()
    with closing(PostgresStore(store_url)) as living, closing(PostgresStore(store_url, pool=1)) as busy:
        own, watcher = (WorkerMembership(store.workers, lost.put, beat=0.5) for store in (living, busy))
        with closing(own), closing(watcher):
            own.join()
            held = begin(living).token
            watcher.join()
            wait_until(lambda: watcher._time_of_store() is not None)
            pool = busy._database._pool
            for _ in range(3):
                connection, generation = pool.lease(time.monotonic() + TIMEOUT)
                time.sleep(2.0)  # four beats
                pool.give_back(connection, generation)
            assert lost.empty()
            own._halt()
            assert lost.get(timeout=TIMEOUT).token == held


def test_runs_of_a_worker_that_left_are_claimed_again_after_a_clock_of_the_database_went_back(
    store_url: str, clock: Callable[[float], None]
) -> None:
    url = f"{store_url}?options=-csearch_path%3Dstepped,pg_catalog"
    with ExitStack() as stack:
        leaving, reaper, other = (stack.enter_context(closing(PostgresStore(url))).workers for _ in range(3))
        for worker in (leaving, reaper, other):
            worker.beat(1.0)
        leaving.leave()
        assert reaper.claim_lost(1.0, now=None) == LostWorker(leaving.id, True)
        clock(-3600.0)
        assert other.claim_lost(1.0, now=None) == LostWorker(leaving.id, True)


def test_a_task_that_ends_while_the_clock_of_its_process_is_behind_is_not_old_for_others(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    week = 7 * 86_400_000
    now = time.time_ns() // 1_000_000
    expiry = Expiry(now=None, ended=now - week, waiting=now - week, replay=now - week)
    with closing(PostgresStore(store_url)) as store:
        with monkeypatch.context() as patch:
            patch.setattr("a2a_sync.concurrency.clock.time_ns", lambda: time.time_ns() - 8 * 86_400_000_000_000)
            tasks = [done(store), waiting(store, at=None)]
        assert store.sweep(expiry).removed == 0
        assert set(store.versions(tasks)) == set(tasks)


# -- messages that are lost -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_broker(tmp_path_factory.mktemp("messages")) as broker:
        yield broker.url


@pytest.fixture(params=["notify", "redis", "redis with entries"])
def make_shared(
    request: pytest.FixtureRequest, make_postgres_store: Callable[..., Any], redis_url: str
) -> Callable[[], tuple[Any, Any]]:
    pubsubs: dict[str, Callable[[Any], Any]] = {
        "notify": lambda store: store.pubsub(),
        "redis": lambda store: open_pubsub(redis_url),
        "redis with entries": lambda store: RedisPubSub(redis_url, key="a key of these tests"),
    }

    def make() -> tuple[Any, Any]:
        store = make_postgres_store()
        return store, pubsubs[request.param](store)

    return make


# -- failover -------------------------------------------------------------------------------------------------------------


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
