"""What only `PostgresStore` promises: lost answers, restarts, forks, hung servers, messages, migrations, and no secrets in texts."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import pytest
import werkzeug.test

from a2a_sync import A2AApp, Agent, Client
from a2a_sync.engine import runs
from a2a_sync.errors import StoreError, TaskNotFoundError, UnavailableError
from a2a_sync.limits import MAX_ID_LENGTH
from a2a_sync.operations import RunRequest, SendKey
from a2a_sync.stores import PostgresStore, open_store
from a2a_sync.stores.base import (
    AlreadySent,
    Expiry,
    Owner,
    RunRevoked,
    StateConflict,
    StoreQuota,
    TaskBatch,
    TaskEnded,
    TaskQuery,
    TaskVersion,
)
from a2a_sync.stores.postgres import database, migrations, retention, schema
from a2a_sync.testing.storecontract.making import (
    MINE,
    TIMEOUT,
    begin,
    chunk,
    concurrently,
    done,
    expire_all,
    long,
    message,
    resume,
    status,
)
from a2a_sync.testing.storecontract.webhooks import claimed, due, holder, ids_of, webhook
from a2a_sync.types import TaskState
from tests.certificates import Authority
from tests.engine import Served
from tests.live import HOST, ROOT
from tests.services.conftest import psycopg
from tests.services.servers import Postgres, wait_until


@pytest.fixture
def make_store(make_postgres_store):
    return make_postgres_store


@pytest.fixture
def store(make_store):
    return make_store()


@contextmanager
def lost_answer(monkeypatch, marker):
    """The connection is lost after the next statement that contains `marker` has taken effect."""
    original, lost = database.Connection.execute, []

    def execute(self, statement, *arguments, **options):
        cursor = original(self, statement, *arguments, **options)
        if marker in statement and not lost:
            lost.append(statement)
            self.close()
            raise psycopg.OperationalError("the connection was lost")
        return cursor

    with monkeypatch.context() as patch:
        patch.setattr(database.Connection, "execute", execute)
        yield
    assert lost


@contextmanager
def statements(monkeypatch):
    """The list of the statements that are executed in the block."""
    original, executed = database.Connection.execute, []

    def execute(self, statement, *arguments, **options):
        executed.append(statement)
        return original(self, statement, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(database.Connection, "execute", execute)
        yield executed


@contextmanager
def blocked_append(store, run, url):
    """An append that waits for a lock, until the block ends, and a function that selects from the blocked sessions."""
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(url) as blocker,
        psycopg.connect(url, autocommit=True) as watching,
    ):
        blocker.execute(f"SELECT 1 FROM {store._sql.prefix}tasks FOR UPDATE")

        def of_blocked(what):
            blocked = f"SELECT {what} FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            return watching.execute(blocked, (blocker.info.backend_pid,)).fetchall()

        yield threads.submit(store.append, run.token, [chunk("t", "x")]), of_blocked


def with_options(url, options):
    """The URL with settings of the session."""
    return urlunsplit(urlsplit(url)._replace(query=urlencode({"options": options}, quote_via=quote)))


# -- lost answers -----------------------------------------------------------------------------------------------------------


def test_a_task_whose_creation_was_not_acknowledged_is_created_once(store, monkeypatch):
    done(store)
    with lost_answer(monkeypatch, "INSERT INTO"):
        run = begin(store, task_id="t")
    assert (run.head.version, [entry.number for entry in run.entries]) == (3, [1, 2, 3])
    assert store.head(MINE, "t").version == 3
    store.append(run.token, [chunk("t", "x")], end=True)


def test_a_send_with_a_key_whose_start_was_not_acknowledged_is_no_repetition(store, monkeypatch):
    done(store)
    sent = message("t")
    request = RunRequest(message=sent, key=SendKey("k", "print"))
    with lost_answer(monkeypatch, "INSERT INTO"):
        run = store.start_run(MINE, request, [sent, status("t", TaskState.WORKING)], create=True)
    assert store.sent(MINE, "k").task_id == run.head.id == "t"
    with pytest.raises(AlreadySent):
        store.start_run(MINE, request, [sent, status("t", TaskState.WORKING)], create=True)


def test_an_append_that_was_not_acknowledged_is_stored_once(store, monkeypatch):
    run = begin(store)
    with lost_answer(monkeypatch, "UPDATE"):
        (entry,) = store.append(run.token, [chunk(run.head.id, "once")])
    assert entry.number == 4
    (entry,) = store.append(run.token, [chunk(run.head.id, "next", append=True)])
    assert entry.number == 5
    with lost_answer(monkeypatch, "UPDATE"):
        (entry,) = store.append(run.token, [status(run.head.id, TaskState.COMPLETED, metadata={"a": 1})], end=True)
    assert entry.number == 6
    assert [entry.number for entry in store.log(MINE, run.head.id).entries] == [1, 2, 3, 4, 5, 6]
    assert not store.head(MINE, run.head.id).running


def test_a_resumed_run_and_an_interrupt_that_were_not_acknowledged_are_stored_once(store, monkeypatch):
    run = begin(store)
    task_id = run.head.id
    store.append(run.token, [status(task_id, TaskState.INPUT_REQUIRED)])
    with lost_answer(monkeypatch, "UPDATE"):
        run = resume(store, task_id)
    assert (run.before, run.head.version) == (TaskState.INPUT_REQUIRED, 6)
    store.append(run.token, [chunk(task_id, "x")])
    with lost_answer(monkeypatch, "UPDATE"):
        (entry,) = store.interrupt(MINE, task_id, [status(task_id, TaskState.CANCELED)])
    assert entry.number == 8
    with pytest.raises(TaskEnded):
        store.interrupt(MINE, task_id, [status(task_id, TaskState.CANCELED)])
    with pytest.raises(RunRevoked):
        store.append(run.token, [chunk(task_id, "late")])


def test_an_adopted_run_that_was_not_acknowledged_belongs_to_its_new_worker(make_store, monkeypatch):
    store, other = make_store(), make_store()
    run = begin(store)
    (held,) = other.workers.runs_of(store.workers.id)
    request = other.request(MINE, run.head.id).request
    with lost_answer(monkeypatch, "UPDATE"):
        adopted = other.workers.adopt(held, request, [status(run.head.id, TaskState.WORKING)])
    other.append(adopted.token, [chunk(run.head.id, "mine")])
    with pytest.raises(RunRevoked):
        store.workers.adopt(held, request, [])


def test_a_value_of_a_context_that_was_not_acknowledged_is_set_once(store, monkeypatch):
    run = begin(store)
    for version in range(2):
        with lost_answer(monkeypatch, "AS (INSERT" if version == 0 else "AS (UPDATE"):
            store.contexts.set_state(run.token, b"%d" % version, expected=version)
    with pytest.raises(StateConflict):
        store.contexts.set_state(run.token, b"1", expected=1)
    assert store.contexts.state(MINE, "c") == (b"1", 2)


@contextmanager
def lost_commit(monkeypatch):
    """The connection is lost after the next transaction of several statements was committed."""
    original, lost = psycopg.Transaction.__exit__, []

    def leave(self, kind, *arguments):
        original(self, kind, *arguments)
        if kind is None and not lost:
            lost.append(self)
            self.connection.close()
            raise psycopg.OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Transaction, "__exit__", leave)
        yield
    assert lost


def test_writes_of_a_webhook_that_were_not_acknowledged_take_effect_once(store, monkeypatch):
    run = begin(store)
    task_id = run.head.id
    with lost_commit(monkeypatch):
        store.webhooks.put(MINE, webhook(task_id), most=1)
    assert ids_of(store, task_id) == ["w"]
    with lost_answer(monkeypatch, "SET holder"):
        held = claimed(store, task_id)
    assert held.holder == holder(store)
    with lost_answer(monkeypatch, "SET cursor"):
        assert store.webhooks.settle(replace(held, cursor=1, tries=2))
    assert claimed(store, task_id).tries == 2
    with lost_answer(monkeypatch, "holder = NULL"):
        store.webhooks.release(held.holder)
    assert due(store) == ["w"]
    with lost_answer(monkeypatch, "DELETE"):
        store.webhooks.delete(MINE, task_id, "w")
    assert ids_of(store, task_id) == []


def test_removals_and_compactions_that_were_not_acknowledged_harm_nothing_else(store, monkeypatch):
    removed, compacted = done(store), long(store)
    with lost_commit(monkeypatch):
        store.delete(MINE, removed)
    whole = store.load(MINE, compacted).task
    with lost_answer(monkeypatch, "compacted"):
        store.sweep(expire_all(replay=True))
    assert store.load(MINE, compacted).task == whole
    running, expired = begin(store), done(store)
    with lost_commit(monkeypatch):
        store.sweep(expire_all(ended=True))
    assert store.list(MINE, TaskQuery()).total == 1
    with pytest.raises(TaskNotFoundError):
        store.log(MINE, expired)
    store.append(running.token, [chunk(running.head.id, "x")])


def test_a_heartbeat_that_was_not_acknowledged_counts_and_the_next_one_connects_again(make_store, monkeypatch):
    store, other = make_store(), make_store()
    store.workers.beat(1)
    with lost_answer(monkeypatch, "workers"), pytest.raises(StoreError, match="no heartbeat"):
        store.workers.beat(60)
    assert [one.id for one in other.inspection.workers() if not one.left] == [store.workers.id]
    store.workers.beat(60)
    assert [one.id for one in other.inspection.workers() if not one.left] == [store.workers.id]


# -- outages ------------------------------------------------------------------------------------------------------------------


def test_runs_survive_a_crash_of_the_server_without_losing_or_doubling_entries(postgres, make_store):
    store = make_store(postgres.url, retry_timeout=TIMEOUT * 2)
    runs = [begin(store) for _ in range(4)]
    under_way, restarted = threading.Barrier(len(runs) + 1), threading.Event()

    def write(run):
        texts = []
        for n in range(400):
            store.append(run.token, [chunk(run.head.id, str(n), append=n > 0)])
            texts.append(str(n))
            if n == 20:
                under_way.wait(TIMEOUT)
            if n > 100 and restarted.is_set():
                break
        return texts

    def crash():
        under_way.wait(TIMEOUT)
        postgres.restart(signal.SIGQUIT)
        restarted.set()

    *written, _ = concurrently(*[partial(write, run) for run in runs], crash)
    for run, texts in zip(runs, written, strict=True):
        assert isinstance(texts, list), texts
        (artifact,) = store.load(MINE, run.head.id).task.artifacts
        assert [part.text for part in artifact.parts] == texts


def test_an_unreachable_server_is_named_with_the_class_of_the_error_and_without_secrets(caplog):
    url = "postgresql://ada:s3cret@127.0.0.1:1/tasks"
    with closing(PostgresStore(url, timeout=0)) as store, caplog.at_level(logging.DEBUG):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/tasks cannot be reached \(OperationalError: ") as caught:
            store.head(MINE, "t")
        with pytest.raises(StoreError, match=r"no heartbeat|cannot be reached"):
            store.workers.beat(60)
        texts = [str(caught.value), repr(store), repr(vars(store)["_database"]), store.workers.store_id, caplog.text]
    assert not [text for text in texts if "s3cret" in text]


def test_tls_and_a_password_file_work_as_in_libpq(tmp_path, monkeypatch):
    with closing(Postgres()) as server:
        certificate, key = Authority(tmp_path).issue(HOST)
        server.use_tls(Path(certificate).read_bytes(), Path(key).read_bytes())
        server.start()
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'very secret'")
        (tmp_path / "passwords").write_text(f"{HOST}:{server.port}:*:app:very secret\n")
        (tmp_path / "passwords").chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(tmp_path / "passwords"))
        monkeypatch.setenv("PGSSLROOTCERT", str(tmp_path / "ca.pem"))
        url = f"postgresql://app@{HOST}:{server.port}/postgres?sslmode=verify-full"
        with closing(PostgresStore(url)) as store:
            task_id = done(store)
            assert store.load(MINE, task_id).task.state is TaskState.COMPLETED
            encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert store._database.run(lambda connection: database.query(connection, encrypted)) == [(True,)]
        monkeypatch.setenv("PGPASSFILE", "/nonexistent")
        with closing(PostgresStore(url, timeout=0)) as store, pytest.raises(StoreError, match="password"):
            store.head(MINE, task_id)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3cret with spaces@h/tasks",
        "postgresql://ada:s3cret@[h/tasks",
        "postgresql://ada:s3cret@h/tasks?pasword=s3cret",
        "postgresql://ada:s3cret@h/tasks\0",
        "postgresql://ada:s3cret@h/\ud800",
        "postgresql://ada:s3cret%ff@h/tasks",
        "mysql://ada:s3cret@h/tasks",
    ],
)
def test_a_url_that_is_wrong_is_refused_without_showing_it(url):
    with pytest.raises(ValueError, match=r"URL|store must be") as caught:
        open_store(url)
    error = caught.value
    while error is not None:
        assert "s3cret" not in f"{error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_server_that_hangs_does_not_hold_a_call_beyond_its_limit(postgres, make_store, monkeypatch):
    monkeypatch.setattr(database, "_STATEMENT_TIMEOUT", 1.0)
    store = make_store(postgres.url, timeout=0)
    task_id = done(store)
    postgres.freeze()
    try:
        with pytest.raises(StoreError, match="cannot be reached"):
            store.head(MINE, task_id)
    finally:
        postgres.thaw()
    wait_until(lambda: _succeeds(lambda: store.head(MINE, task_id)))


@pytest.mark.parametrize("retried", [False, True])
def test_a_task_that_is_stored_after_its_send_has_failed_does_not_stay_unfinished(make_store, monkeypatch, retried):
    monkeypatch.setattr(database, "_STATEMENT_TIMEOUT", 1.0)
    monkeypatch.setattr(runs, "_SEARCH_INTERVAL", 0.5)
    store = make_store(timeout=0)
    agent = Agent("late", on_worker_lost="retry" if retried else "fail")
    agent.message(lambda message, context: "done")
    with A2AApp(agent, store=store) as app, Client(app, retry=None) as client:
        client.send("go")
        with store._database.connect() as blocker:
            blocker.execute(f"BEGIN; LOCK TABLE {store._sql.prefix}tasks IN SHARE MODE")
            with pytest.raises(UnavailableError):
                client.send("go", idempotency_key="k")
            # The task is looked for once, and is not there.
            wait_until(lambda: not app._engine.runs._watchdog._unstored)
        wait_until(lambda: client.list_tasks().total_size == 2)
        wait_until(lambda: all(task.state.terminal for task in client.list_tasks().tasks))
        assert client.send("go", idempotency_key="k").task.state is (
            TaskState.COMPLETED if retried else TaskState.FAILED
        )


def _succeeds(call):
    try:
        call()
    except StoreError:
        return False
    return True


def test_a_call_for_which_no_connection_is_free_fails_at_its_limit(make_store, postgres_url):
    store = make_store(pool=1, timeout=0.2)
    run = begin(store)
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute(f"SELECT 1 FROM {store._sql.prefix}tasks FOR UPDATE")
        waiting = threading.Thread(target=lambda: store.append(run.token, []), daemon=True)
        waiting.start()
        wait_until(lambda: not store._database._pool._free)
        with pytest.raises(StoreError, match="raise pool="):
            store.head(MINE, run.head.id)
    waiting.join(TIMEOUT)
    assert not waiting.is_alive()


def test_calls_that_wait_for_a_connection_get_it_in_the_order_in_which_they_came():
    pool, order = database._Pool(1), []
    deadline = time.monotonic() + TIMEOUT

    def wait(number):
        connection, generation = pool.lease(deadline)
        order.append(number)
        pool.give_back(connection, generation)

    _, generation = pool.lease(deadline)
    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=wait, args=(number,), daemon=True))
        threads[-1].start()
        wait_until(lambda number=number: len(pool._waiting) > number)
    assert pool.lease(time.monotonic()) is None
    pool.give_back(None, generation)
    # A call that comes now does not overtake them.
    wait(5)
    assert order == [0, 1, 2, 3, 4, 5]


def test_many_streams_that_begin_at_once_in_one_process_share_its_connections(make_store):
    gate = threading.Event()
    served = Served(lambda message, context: gate.wait(TIMEOUT), store=make_store(), server_threads=1000)
    with closing(served):
        task_id = served.begin()
        together = threading.Barrier(500)

        def subscribe():
            together.wait(TIMEOUT)
            return served.subscribe(task_id).poll(0)

        firsts = concurrently(*[subscribe] * 500)
        gate.set()
        assert {first[0].event.id if isinstance(first, list) else repr(first) for first in firsts} == {task_id}


def test_a_call_that_gets_no_connection_is_refused_and_may_be_repeated(make_store, caplog):
    store = make_store(pool=1, timeout=0.1)
    agent = Agent("busy")
    agent.message(lambda message, context: "done")
    with A2AApp(agent, store=store) as app, Client(app) as client:
        task = client.send("go").task
        pool = store._database._pool
        connection, generation = pool.lease(time.monotonic() + TIMEOUT)
        for call in (partial(client.get_task, task.id), partial(client.subscribe, task.id), partial(client.send, "go")):
            with pytest.raises(UnavailableError) as caught:
                call()
            assert caught.value.retry_after == 1.0
        answer = werkzeug.test.Client(app).get(f"/tasks/{task.id}", headers={"A2A-Version": "1.0"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json["error"]["status"] == "UNAVAILABLE"
        pool.give_back(connection, generation)
        assert client.get_task(task.id).status == task.status
        assert client.list_tasks().total_size == 1
    refusals = [record for record in caplog.records if record.getMessage().startswith("request failed: PostgreSQL at ")]
    assert [record.exc_info for record in refusals] == [None] * 4
    assert all("raise pool=" in record.getMessage() for record in refusals)


# -- processes ----------------------------------------------------------------------------------------------------------------


def test_a_store_works_before_and_after_a_fork(postgres_url, prefix):
    command = [sys.executable, "-m", "tests.services.forker", postgres_url, prefix]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_message_reaches_other_processes_and_not_its_sender(make_store):
    stores = make_store(), make_store()
    done(stores[0])
    got = [], []
    came = threading.Event()
    with closing(stores[0].pubsub()) as one, closing(stores[1].pubsub()) as two:
        one.start(lambda task_id, batch: got[0].append(task_id), lambda: None)
        two.start(lambda task_id, batch: (got[1].append(task_id), task_id == "last" and came.set()), lambda: None)
        wait_until(lambda: one.healthy and two.healthy)
        for n in range(3000):
            one.publish(TaskBatch(MINE, f"{n:040}"))
        one.publish(TaskBatch(MINE, "last"))
        assert came.wait(TIMEOUT)
    assert set(got[1]) == {*(f"{n:040}" for n in range(3000)), "last"}
    assert got[0] == []


def test_ids_of_a_kilobyte_are_stored_and_named_in_messages(make_store):
    long_id = "\N{GRINNING FACE}" * MAX_ID_LENGTH
    owner, (one, two), came = Owner(long_id, long_id), (make_store(), make_store()), threading.Event()
    sent = replace(message(long_id), context_id=long_id)
    request = RunRequest(message=sent, key=SendKey(long_id, "print"))
    run = one.start_run(
        owner, request, [sent, replace(status(long_id, TaskState.WORKING), context_id=long_id)], create=True
    )
    one.contexts.set_state(run.token, b"value", expected=0)
    assert two.sent(owner, long_id).task_id == two.load(owner, long_id).task.id == long_id
    assert two.list(owner, TaskQuery(context_id=long_id)).total == 1
    assert two.contexts.state(owner, long_id).body == b"value"
    with closing(one.pubsub()) as sender, closing(two.pubsub()) as receiver:
        receiver.start(lambda task_id, batch: task_id == long_id and came.set(), lambda: None)
        wait_until(lambda: receiver.healthy)
        sender.publish(TaskBatch(owner, long_id))
        assert came.wait(TIMEOUT)


def test_a_statement_that_an_administrator_cancels_is_executed_again(make_store, postgres_url):
    # A run whose write was canceled had failed, and its send got an internal error.
    store = make_store()
    run = begin(store)
    with blocked_append(store, run, postgres_url) as (append, of_blocked):
        wait_until(lambda: of_blocked("pg_cancel_backend(pid)"))
        wait_until(lambda: of_blocked("pg_cancel_backend(pid)") or append.done())
    assert [entry.number for entry in append.result(TIMEOUT)] == [4]
    assert [entry.number for entry in store.log(MINE, run.head.id).entries] == [1, 2, 3, 4]


def test_a_statement_that_takes_longer_than_the_role_may_is_executed_again(make_store, postgres_url):
    store = make_store(with_options(postgres_url, "-c statement_timeout=100"))
    run = begin(store)
    began = set()
    with blocked_append(store, run, postgres_url) as (append, of_blocked):

        def waited_twice():
            began.update(of_blocked("query_start"))
            return len(began) > 1 or append.done()

        wait_until(waited_twice)
    assert len(began) > 1
    assert [entry.number for entry in append.result(TIMEOUT)] == [4]


def test_a_transaction_that_the_server_ends_while_its_process_is_busy_is_begun_again(postgres_url):
    url = with_options(postgres_url, "-c idle_in_transaction_session_timeout=50")
    limited, calls = database.Database(url, size=1, timeout=TIMEOUT, prepare=lambda connection: None), []
    with closing(limited), psycopg.connect(postgres_url, autocommit=True) as watching:

        def work(connection):
            calls.append(connection.info.backend_pid)
            with connection.transaction():
                database.query(connection, "SELECT 1")
                if len(calls) == 1:
                    sessions = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
                    wait_until(lambda: not watching.execute(sessions, (calls[0],)).fetchall())
                return database.query(connection, "SELECT 2")

        assert limited.run(work) == [(2,)]
    assert len(calls) == 2


def test_a_listener_reports_a_gap_after_its_connection_was_lost(postgres, make_store):
    store = make_store(postgres.url)
    done(store)
    gaps, came = [], threading.Event()
    with closing(store.pubsub()) as pubsub, closing(make_store(postgres.url).pubsub()) as other:
        pubsub.start(lambda task_id, batch: came.set(), lambda: gaps.append(1))
        wait_until(lambda: pubsub.healthy)
        postgres.restart(signal.SIGQUIT)
        wait_until(lambda: len(gaps) == 2 and pubsub.healthy)

        def published():
            other.publish(TaskBatch(MINE, "t"))
            return came.wait(0.05)

        wait_until(published)


def test_behind_a_pooler_there_are_no_messages_and_the_log_says_what_to_do(make_store, pgbouncer_url, caplog):
    with closing(make_store(pgbouncer_url).pubsub()) as pubsub:
        pubsub.start(lambda task_id, batch: None, lambda: None)
        wait_until(lambda: "pubsub=" in caplog.text)
        assert not pubsub.healthy


def test_deliveries_and_appends_at_the_same_time_lose_no_wake_up(store):
    for _ in range(40):
        run = begin(store)
        task_id = run.head.id
        store.webhooks.put(MINE, webhook(task_id), most=1)
        store.workers.beat(60)
        (stored,) = store.webhooks.of_task(MINE, task_id)
        claimed = store.webhooks.claim(stored, f"{store.workers.id}.me")
        settled = replace(claimed, cursor=claimed.head)
        append = partial(store.append, run.token, [chunk(task_id, "x")])
        concurrently(append, partial(store.webhooks.settle, settled, release=True))
        assert task_id in [one.task_id for one in store.webhooks.due(now_ms=0, limit=1000)]
        store.delete(MINE, task_id)


def test_a_log_that_is_read_while_it_is_compacted_is_whole_or_says_that_it_was_compacted(store):
    compacted = 0
    for _ in range(20):
        task_id, pages = long(store), []

        def read(task_id=task_id, pages=pages):
            pages.extend(store.log(MINE, task_id, limit=10_000) for _ in range(10))

        concurrently(read, partial(store.sweep, expire_all(replay=True)))
        assert len(pages) == 10
        for page in pages:
            compacted += bool(page.compacted)
            numbers = [entry.number for entry in page.entries]
            assert page.compacted == page.version or numbers == list(range(1, page.version + 1))
    assert compacted


def test_two_last_tasks_of_a_context_that_are_deleted_at_once_leave_no_values(store):
    for _ in range(20):
        one, two = begin(store), begin(store)
        store.contexts.set_state(one.token, b"x", expected=0)
        concurrently(partial(store.delete, MINE, one.head.id), partial(store.delete, MINE, two.head.id))
        assert store.contexts.state(MINE, "c").version == 0


def test_evictions_of_one_owner_do_not_make_others_wait(store, postgres_url):
    quota = StoreQuota(max_bytes=3_000)
    for n in range(20):
        run = begin(store, owner=Owner("", "greedy"), task_id=f"g{n}", quota=quota)
        store.append(run.token, [status(f"g{n}", TaskState.COMPLETED)])
    prefix = store._sql.prefix
    with psycopg.connect(postgres_url) as blocker:
        # An eviction that takes long: its transaction holds the tasks and the account of its owner.
        blocker.execute(f"SELECT 1 FROM {prefix}tasks WHERE owner = 'greedy' FOR UPDATE")
        blocker.execute(f"SELECT 1 FROM {prefix}accounts WHERE name = 'greedy' FOR UPDATE")
        for n in range(20):
            begin(store, owner=Owner("", f"o{n}"), quota=quota)


def test_a_store_with_many_tasks_is_counted_and_ranked_once_in_many_creations(make_store, postgres_url, monkeypatch):
    store = make_store(max_tasks=3_000)
    done(store, owner=Owner("", "many"))
    prefix = store._sql.prefix
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        found = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
        columns = {name for (name,) in connection.execute(found, (f"{prefix}tasks",))} - {"key", "id"}
        names = ", ".join(sorted(columns))
        connection.execute(
            f"INSERT INTO {prefix}tasks (id, {names}) SELECT n::text, {names} FROM {prefix}tasks, generate_series(1, 2999) AS n"
        )
        with statements(monkeypatch) as executed:
            for n in range(30):
                done(store, owner=Owner("", f"other {n}"))
        reading_all = [one for one in executed if re.search(f"{prefix}(tasks LIMIT|accounts(?! WHERE name))", one)]
        assert 10 <= len(reading_all) <= 22, "two of them for each three creations"
        counted = f"SELECT count(*), count(*) FILTER (WHERE owner = 'many') FROM {prefix}tasks"
        assert connection.execute(counted).fetchone() == (3_000, 2_970)


def test_a_ranking_of_accounts_is_used_until_others_may_have_more_tasks(make_store, monkeypatch):
    monkeypatch.setattr(retention, "_CREATIONS_PER_COUNT", 1)
    monkeypatch.setattr(retention, "_RANKED", 2)
    store = make_store(max_tasks=9)
    for name in "aaabbbccc":
        done(store, owner=Owner("", name))
    with statements(monkeypatch) as executed:
        for name in "def":
            done(store, owner=Owner("", name))
    assert [store.list(Owner("", name), TaskQuery()).total for name in "abcdef"] == [2, 2, 2, 1, 1, 1]
    assert executed.count(store._sql.largest_accounts) == 2


def test_a_sweep_deletes_the_counters_of_owners_whose_tasks_were_evicted_or_deleted(make_store, postgres_url):
    store = make_store(max_tasks=2)
    owners = [Owner("", str(n)) for n in range(6)]
    tasks = [done(store, owner=owner) for owner in owners]
    store.delete(owners[-1], tasks[-1])
    store.sweep(Expiry())
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(f"SELECT name FROM {store._sql.prefix}accounts").fetchall() == [("4",)]


# -- the schema -----------------------------------------------------------------------------------------------------------------


def test_processes_that_begin_at_once_create_the_tables_once(make_store):
    stores = [make_store() for _ in range(6)]
    assert concurrently(*[partial(store.versions, ["t"]) for store in stores]) == [{}] * 6
    done(stores[0])


def test_tables_are_not_created_where_migrations_are_run_apart(make_store):
    with pytest.raises(StoreError, match="a2a-sync migrate"):
        make_store(create_tables=False).head(MINE, "t")
    done(make_store())
    assert make_store(create_tables=False).list(MINE, TaskQuery()).total == 1


def test_a_database_in_another_encoding_is_used(postgres_url, prefix):
    """A server that was set up under the locale C has SQL_ASCII."""
    name = f"{prefix}ascii"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
        try:
            url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
            with closing(PostgresStore(url)) as store:
                assert store.migrate() == (0, schema.VERSION)
                assert store.migrate() == (schema.VERSION, schema.VERSION)
                task_id = done(store, owner=Owner("", "Žofie"))
                assert store.load(Owner("", "Žofie"), task_id).task.id == task_id
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_tables_of_a_newer_release_are_used_as_long_as_it_allows_that(make_store, postgres_url, prefix):
    task_id = done(make_store())
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"UPDATE {prefix}meta SET value = {schema.VERSION + 1} WHERE name = 'schema'")
        assert make_store().versions([task_id]) == {task_id: TaskVersion(4, False)}
        connection.execute(f"UPDATE {prefix}meta SET value = {schema.VERSION + 1} WHERE name = 'readable_from'")
    with pytest.raises(StoreError, match="upgrade a2a_sync"):
        make_store().head(MINE, task_id)


def test_an_upgrade_counts_the_tasks_that_are_there(make_store, postgres_url, prefix, monkeypatch):
    other = Owner("tenant", MINE.id)
    with monkeypatch.context() as old:
        old.setattr(schema, "VERSION", 2)
        old.setattr(migrations, "VERSION", 2)
        former = make_store()
        for owner in (MINE, MINE, other):
            done(former, owner=owner)
    store = make_store()
    assert [store.list(owner, TaskQuery()).total for owner in (MINE, other, Owner())] == [2, 1, 0]
    # Processes of the former release go on.
    task_id = done(former)
    assert store.list(MINE, TaskQuery()).total == 3
    store.delete(MINE, task_id)
    assert store.list(MINE, TaskQuery()).total == 2
    counted = f"SELECT sum(tasks)::int, sum(bytes)::int FROM {prefix}accounts"
    stored = f"SELECT count(*)::int, sum(counted)::int FROM {prefix}tasks"
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(counted).fetchone() == connection.execute(stored).fetchone()


def test_ids_of_tasks_of_one_owner_end_with_its_shard(store):
    ends = {store.new_task_id(MINE)[-3:] for _ in range(20)}
    assert len(ends) == 1
    assert len({store.new_task_id(Owner("", str(n)))[-3:] for n in range(200)}) > 100
