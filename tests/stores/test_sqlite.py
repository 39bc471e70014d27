"""The contract over `SQLiteStore`, and what only it promises."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from a2a_sync.errors import StoreError, TaskNotFoundError
from a2a_sync.operations import RunRequest
from a2a_sync.stores import open_store
from a2a_sync.stores.base import HEAD_BYTES, AlreadySent, LargeResult, LostWorker, Owner, StoredState, TaskQuery
from a2a_sync.stores.sqlite import SQLiteStore, database, schema
from a2a_sync.testing.storecontract import StoreContract
from a2a_sync.testing.storecontract.making import (
    MINE,
    TIMEOUT,
    begin,
    chunk,
    concurrently,
    done,
    ids,
    message,
    send,
    status,
)
from a2a_sync.types import (
    Artifact,
    AuthenticationInfo,
    DataPart,
    SendMessageConfiguration,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
)
from tests.engine import Background
from tests.stopwatch import Stopwatch, set_clock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tasks.db"


@pytest.fixture
def make_store(path):
    stores = []

    def make(path=path, **options):
        stores.append(SQLiteStore(path, **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


class TestSQLiteStore(StoreContract):
    persistent = True

    @pytest.fixture
    def make_store(self, make_store):
        return make_store


def connect(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def each_connection(monkeypatch, change) -> None:
    """Call `change` with every connection that a store opens from now on."""
    original = sqlite3.connect

    def connecting(*args, **options):
        connection = original(*args, **options)
        change(connection)
        return connection

    monkeypatch.setattr(database, "sqlite3", SimpleNamespace(**{**vars(sqlite3), "connect": connecting}))


# -- opening ------------------------------------------------------------------------------------------------------------


def test_a_new_store_opens_nothing_before_it_is_used(path):
    store = SQLiteStore(path)
    assert store.workers is not None
    assert not path.exists()
    begin(store)
    store.close()
    assert path.exists()
    assert not Path(f"{path}-wal").exists()


@pytest.mark.parametrize("name", ["", ":memory:", "file:tasks.db?mode=memory"])
def test_a_path_that_names_no_file_is_refused_with_a_hint(name):
    with pytest.raises(ValueError, match="MemoryStore"):
        SQLiteStore(name)


@pytest.mark.parametrize(
    "options",
    [
        {"max_tasks": 0},
        {"busy_timeout": -1},
        {"synchronous": "off"},
        {"prefix": "a b"},
        {"prefix": "x; DROP TABLE y"},
    ],
)
def test_arguments_out_of_range_are_refused(path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SQLiteStore(path, **options)


def test_a_relative_path_stays_the_same_file_when_the_process_moves(tmp_path, monkeypatch, make_store):
    monkeypatch.chdir(tmp_path)
    store = make_store("here.db")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    done(store)
    assert (tmp_path / "here.db").exists()


def test_tasks_outlive_the_store_that_made_them(make_store):
    first = make_store()
    run = begin(first)
    first.append(run.token, [chunk(run.head.id, "x")])
    first.close()
    second = make_store()
    second.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
    assert second.load(MINE, run.head.id).task.artifacts[0].text == "x"
    assert first.head(MINE, run.head.id).status.state is TaskState.COMPLETED


def test_keys_of_sends_outlive_the_store_that_took_them(make_store):
    first = make_store()
    run = send(first, "k")
    first.close()
    with pytest.raises(AlreadySent) as caught:
        send(make_store(), "k")
    assert caught.value.run.task_id == run.head.id


def test_stores_with_different_prefixes_share_a_file_and_no_task(make_store):
    one, two = make_store(prefix="one_"), make_store(prefix="two_")
    task_id = done(one)
    assert ids(one, TaskQuery()) == [task_id]
    assert ids(two, TaskQuery()) == []


@pytest.mark.parametrize("prefix", ["a b", "a;", "1a", "é_", "x--", 'x"'])
def test_a_prefix_that_is_no_name_is_refused_at_once(make_store, prefix):
    with pytest.raises(ValueError, match="becomes part of the tables' names"):
        make_store(prefix=prefix)


def test_a_file_of_a_newer_release_is_refused_in_one_sentence(path, make_store):
    store = make_store()
    task_id = done(store)
    store.close()
    with connect(path) as connection:
        connection.execute("UPDATE a2a_meta SET value = 1234 WHERE name = 'schema'")
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.head(MINE, task_id)
        assert "1234" in str(caught.value)
        assert "up to 7" in str(caught.value)
        assert "\n" not in str(caught.value)


def earlier(path: Path, version: int) -> None:
    """Rewrite the file with the tables of an earlier version, and all in them that these had."""
    with connect(path) as connection:
        connection.execute(f"ATTACH '{path}.old' AS old")
        made = [*schema._TABLES, *(one for added in range(2, version + 1) for one in schema._SINCE[added])]
        with sqlite3.connect(f"{path}.old") as old:
            for statement in made:
                old.execute(statement.format(p="a2a_"))
            old.execute("CREATE TABLE a2a_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
            triggers = old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for trigger, _ in triggers:
                old.execute(f"DROP TRIGGER {trigger}")
        for (table,) in connection.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'").fetchall():
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA old.table_info({table})"))
            if "beat" not in columns:
                connection.execute(f"INSERT INTO old.{table} ({columns}) SELECT {columns} FROM main.{table}")
        connection.execute(
            "INSERT INTO old.a2a_workers SELECT id, CASE WHEN gone THEN -1 ELSE 5 END FROM main.a2a_workers"
        )
        if version < 4:
            connection.execute("DELETE FROM old.a2a_counts WHERE state = '*'")
        connection.execute("UPDATE old.a2a_meta SET value = ? WHERE name = 'schema'", (version,))
    with sqlite3.connect(f"{path}.old") as old:
        for _, statement in triggers:
            old.execute(statement)
    for name in (f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)
    Path(f"{path}.old").replace(path)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_a_file_of_an_earlier_release_gets_what_it_lacks(path, make_store, version):
    store = make_store()
    seats = [Owner("t", f"{seat}ada") for seat in ("", "echo\x1f", "sum\x1f")]
    task_ids = [done(store, owner=owner) for owner in [*seats, MINE, *[Owner("", "bob")] * 3]]
    run = begin(store)
    store.workers.beat(3600)
    if version >= 3:
        store.contexts.set_state(run.token, b'{"a":1}', expected=0)
    counted = "SELECT owner, n, stored FROM a2a_counts WHERE state = '*' ORDER BY owner"
    with connect(path) as connection:
        before = connection.execute(counted).fetchall()
    store.close()
    earlier(path, version)
    results = concurrently(
        *[partial(upgraded.webhooks.of_task, seats[0], task_ids[0]) for upgraded in [make_store() for _ in range(4)]]
    )
    assert results == [()] * 4
    assert store.head(seats[1], task_ids[1]).version == 4
    # It stopped before the upgrade: its run is taken over.
    heir = make_store().workers
    assert heir.claim_lost(60, now=heir.beat(60)) == LostWorker(store.workers.id, left=False)
    if version >= 3:
        assert store.contexts.state(MINE, "c") == StoredState(b'{"a":1}', 1)
    with connect(path) as connection:
        assert connection.execute(counted).fetchall() == before
    assert [(name, tasks) for name, tasks, _ in before] == [("ada", 5), ("bob", 3)]
    small = make_store(max_tasks=8)
    done(small, owner=Owner("", "carol"))
    assert small.list(Owner("", "bob"), TaskQuery()).total == 3
    with pytest.raises(TaskNotFoundError):
        small.head(seats[0], task_ids[0])


def test_threads_that_use_a_new_file_first_at_once_all_come_up(make_store):
    stores = [make_store(), make_store()]
    results = concurrently(*[lambda store=store: done(store) for store in stores * 4])
    assert sorted(results) == sorted(ids(stores[0], TaskQuery()))
    assert len(results) == 8


# -- processes ----------------------------------------------------------------------------------------------------------


def processes(path: Path, count: int, tasks: int, chunks: int) -> list[list[str]]:
    """What so many writers print that are let go at the same moment."""
    command = [sys.executable, "-m", "tests.stores.writer", str(path), str(tasks), str(chunks)]
    writers = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        printed = [writer.communicate(timeout=TIMEOUT) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(TIMEOUT)
    assert [writer.returncode for writer in writers] == [0] * count, [error for _, error in printed]
    return [out.split() for out, _ in printed]


@pytest.mark.slow
def test_eight_processes_that_start_at_once_on_an_empty_file_all_come_up(path, make_store):
    made = processes(path, 8, 5, 1)
    store = make_store()
    assert store.list(MINE, TaskQuery()).total == 40
    assert sorted(ids(store, TaskQuery(size=100))) == sorted(task_id for some in made for task_id in some)


def test_two_processes_that_write_at_once_lose_nothing(path, make_store):
    ((one,), (two,)) = processes(path, 2, 1, 1000)
    store = make_store()
    for task_id in (one, two):
        page = store.log(MINE, task_id, limit=2000)
        assert [entry.number for entry in page.entries] == list(range(1, 1004))
        assert store.load(MINE, task_id).task.artifacts[0].text == "".join(f"{n} " for n in range(1000))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_store_works_on_both_sides_of_a_fork(path, make_store):
    finished = subprocess.run(
        [sys.executable, "-m", "tests.stores.forker", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    with connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert make_store().list(MINE, TaskQuery(state=TaskState.WORKING)).total >= 16


# -- the lock -----------------------------------------------------------------------------------------------------------


def test_a_locked_file_is_an_error_after_the_busy_timeout_and_reads_go_on(path, make_store):
    store = make_store(busy_timeout=0.2)
    run = begin(store)
    with connect(path) as other:
        other.execute("BEGIN IMMEDIATE")
        watch = Stopwatch()
        with pytest.raises(StoreError, match=r"locked.*0\.2 s"):
            store.append(run.token, [chunk(run.head.id, "x")])
        assert watch.within(2, least=0.1)
        assert store.load(MINE, run.head.id).version == 3
        assert make_store().load(MINE, run.head.id).version == 3
        other.execute("ROLLBACK")
    assert store.append(run.token, [chunk(run.head.id, "x")])[0].number == 4


def test_a_reader_that_takes_its_time_stops_no_write(path, make_store):
    store = make_store(busy_timeout=0.2)
    run = begin(store)
    with connect(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM a2a_tasks").fetchall()
        store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
        assert reader.execute("SELECT state FROM a2a_tasks").fetchone() == ("working",)
    assert store.head(MINE, run.head.id).status.state is TaskState.COMPLETED


def test_a_write_waits_for_the_lock_and_then_succeeds(path, make_store):
    store = make_store(busy_timeout=TIMEOUT)
    run = begin(store)
    with connect(path) as other:
        other.execute("BEGIN IMMEDIATE")
        began = threading.Event()

        def append():
            began.set()
            return store.append(run.token, [chunk(run.head.id, "x")])

        results: list[object] = []
        thread = threading.Thread(target=lambda: results.append(append()), daemon=True)
        thread.start()
        assert began.wait(TIMEOUT)
        thread.join(0.1)
        assert thread.is_alive()
        assert results == []
        other.execute("COMMIT")
        thread.join(TIMEOUT)
    assert [entry.number for entry in results[0]] == [4]


def test_threads_behind_a_locked_file_all_hear_of_it_in_time(path, make_store):
    store = make_store(busy_timeout=0.2)
    run = begin(store)
    with connect(path) as other:
        other.execute("BEGIN IMMEDIATE")
        watch = Stopwatch()
        results = concurrently(*[lambda: store.append(run.token, [])] * 6)
        assert watch.within(3)
    assert [type(result) for result in results] == [StoreError] * 6


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="needs gevent")
def test_greenlets_go_on_while_one_waits_for_the_lock(path):
    program = """
        from gevent import monkey; monkey.patch_all()
        import sqlite3, sys, gevent
        from a2a_sync.stores.sqlite import SQLiteStore, database, schema
        from a2a_sync.testing.storecontract.making import begin, chunk
        store = SQLiteStore(sys.argv[1], busy_timeout=20)
        run = begin(store)
        other = sqlite3.connect(sys.argv[1], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writers = [gevent.spawn(store.append, run.token, [chunk(run.head.id, "x")]) for _ in range(3)]
        for _ in range(30):
            gevent.sleep(0.01)
        assert not any(writer.ready() for writer in writers)
        other.execute("COMMIT")
        gevent.joinall(writers, timeout=20, raise_error=True)
        assert sorted(writer.value[0].number for writer in writers) == [4, 5, 6]
        store.close(); other.close()
        print("went on")
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert finished.stdout == "went on\n", finished.stderr


# -- what breaks --------------------------------------------------------------------------------------------------------


def test_a_full_database_stores_nothing_of_a_write_and_works_again_with_space(path, make_store, monkeypatch):
    pages = [10**6]
    each_connection(monkeypatch, lambda connection: connection.execute(f"PRAGMA max_page_count = {pages[0]}"))
    store = make_store()
    run = begin(store)
    task_id = run.head.id
    store.append(run.token, [chunk(task_id, "kept")])
    store.close()
    before = store.load(MINE, task_id)
    store.close()
    with connect(path) as connection:
        pages[0] = connection.execute("PRAGMA page_count").fetchone()[0] + 2
    large = [status(task_id, TaskState.WORKING), *[chunk(task_id, "x" * 3000, append=True) for _ in range(20)]]
    with pytest.raises(StoreError, match="full"):
        store.append(run.token, large, end=True)
    with pytest.raises(StoreError, match="full"):
        begin(store, text="x" * 50_000)
    assert store.load(MINE, task_id) == before
    assert store.list(MINE, TaskQuery()).total == 1
    store.close()
    pages[0] = 10**6
    assert store.append(run.token, large, end=True)[-1].number == 25
    with connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path, make_store):
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(StoreError, match="not an SQLite database") as caught:
        begin(make_store())
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert path.read_bytes() == b"Dear diary, " * 1000


def test_a_damaged_file_is_an_error_that_says_so(path, make_store):
    store = make_store()
    for _ in range(50):
        done(store)
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreError, match="damaged"):
        done(store)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/tasks.db", "its directory does not exist.* create the directory"),
        (".", "directory; name a file that this user may write"),
        ("file/tasks.db", "Not a directory; name a file"),
        ("x" * 300, "too long; name a file"),
        ("loop", "symbolic links; name a file"),
    ],
)
def test_a_path_that_cannot_be_opened_is_an_error_that_says_why(tmp_path, make_store, name, reason):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match=f"^{re.escape(str(tmp_path))}.* cannot be opened: .*{reason}"):
        begin(make_store(tmp_path / name))


@pytest.mark.parametrize("name", ["tasks\0.db", "tasks\ud800.db"])
def test_a_path_that_no_file_can_have_is_refused_before_its_use(name):
    with pytest.raises(ValueError, match=r"no file can have the path 'tasks.*use another one"):
        SQLiteStore(name)
    with pytest.raises(ValueError, match="no file can have the path"):
        open_store(f"sqlite:///{name}")


@contextmanager
def as_an_ordinary_user() -> Iterator[Path]:
    """A folder with access for every user; in it root gives up its rights, so that read-only files are read-only."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(before)
        shutil.rmtree(folder)


def test_a_read_only_file_is_an_error_that_says_so(make_store):
    with as_an_ordinary_user() as folder:
        store = make_store(folder / "tasks.db")
        run = begin(store)
        store.close()
        (folder / "tasks.db").chmod(0o444)
        with pytest.raises(StoreError, match="read-only"):
            store.append(run.token, [])
        store.close()


def test_what_json_cannot_say_is_refused_before_anything_is_stored(make_store):
    store = make_store()
    run = begin(store)
    bad = TaskArtifactUpdateEvent(artifact=Artifact(parts=(DataPart(float("nan")),)))
    with pytest.raises(ValueError, match="JSON"):
        store.append(run.token, [chunk(run.head.id, "x"), bad])
    assert store.append(run.token, [chunk(run.head.id, "x")])[0].number == 4


def test_a_run_keeps_its_message_once(make_store):
    run = begin(make_store())
    kept = [entry.encoded for entry in run.entries if not entry.streamed]
    assert kept == [{}]
    assert all(entry.encoded for entry in run.entries if entry.streamed)


def test_credentials_of_a_request_are_not_stored(path, make_store):
    sent = message("t")
    hook = TaskPushNotificationConfig(
        url="https://example.com",
        token="s3cret-token",
        authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret-credentials"),
    )
    configuration = SendMessageConfiguration(history_length=1, task_push_notification_config=hook)
    request = RunRequest(message=sent, configuration=configuration)
    store = make_store()
    store.start_run(MINE, request, [sent], create=True)
    kept = replace(configuration, task_push_notification_config=None)
    assert store.request(MINE, "t").request == replace(request, configuration=kept)
    store.close()
    assert b"s3cret" not in path.read_bytes()


def test_owners_without_tasks_leave_no_rows(path, make_store):
    store = make_store(max_tasks=5)
    for n in range(20):
        done(store, owner=Owner("", str(n)))
    for n in range(15, 20):
        (task_id,) = ids(store, TaskQuery(), Owner("", str(n)))
        store.delete(Owner("", str(n)), task_id)
    with connect(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables}
    assert {name: count for name, count in rows.items() if count} == {"a2a_meta": 1, "a2a_counts": 1}


# -- cost ---------------------------------------------------------------------------------------------------------------


def test_a_large_message_is_stored_once(path, make_store):
    store = make_store()
    begin(store, text="x" * 3_000_000)
    store.close()
    assert 3_000_000 < path.stat().st_size < 3_500_000


class Steps:
    """Counts the steps of SQLite's machine, ten at a time."""

    def __init__(self, monkeypatch) -> None:
        self.taken = 0
        each_connection(monkeypatch, lambda connection: connection.set_progress_handler(self.step, 10))

    def step(self) -> int:
        self.taken += 1
        return 0

    def of(self, call) -> int:
        before = self.taken
        call()
        return self.taken - before


@pytest.mark.slow
def test_no_operation_costs_more_steps_when_more_tasks_are_stored(make_store, monkeypatch):
    steps = Steps(monkeypatch)
    store = make_store()

    def costs() -> dict[str, int]:
        run = begin(store, context_id="mine")
        task_id = run.head.id
        query = TaskQuery(history=1, size=20)
        seen = store.list(MINE, query).next
        return {
            "start": steps.of(lambda: begin(store)),
            "append": steps.of(lambda: store.append(run.token, [chunk(task_id, "x")])),
            "end": steps.of(lambda: store.append(run.token, [status(task_id, TaskState.COMPLETED)], end=True)),
            "head": steps.of(lambda: store.head(MINE, task_id)),
            "load": steps.of(lambda: store.load(MINE, task_id)),
            "log": steps.of(lambda: store.log(MINE, task_id)),
            "page": steps.of(lambda: store.list(MINE, query)),
            "next page": steps.of(lambda: store.list(MINE, replace(query, after=seen))),
            "page of a state": steps.of(lambda: store.list(MINE, replace(query, state=TaskState.COMPLETED))),
            "page of a state without tasks": steps.of(lambda: store.list(MINE, replace(query, state=TaskState.FAILED))),
            "page of a context": steps.of(lambda: store.list(MINE, replace(query, context_id="mine"))),
            "foreign page": steps.of(lambda: store.list(Owner("foreign"), query)),
            "delete": steps.of(lambda: store.delete(MINE, task_id)),
        }

    for _ in range(100):
        done(store)
    few = costs()
    for _ in range(1500):
        done(store)
    many = costs()
    assert all(few.values())
    assert {name: cost for name, cost in many.items() if cost > 1.2 * few[name] + 3} == {}


@pytest.mark.slow
def test_the_thousandth_turn_costs_as_many_steps_as_an_early_one(make_store, monkeypatch):
    steps = Steps(monkeypatch)
    store = make_store()
    task_id = begin(store).head.id
    store.interrupt(MINE, task_id, [])

    def turn() -> None:
        sent = message(task_id)
        events = [sent, status(task_id, TaskState.WORKING)]
        run = store.start_run(MINE, RunRequest(message=sent), events, create=False)
        store.append(run.token, [status(task_id, TaskState.INPUT_REQUIRED)], end=True)
        store.load(MINE, task_id, history=2)
        store.load(MINE, task_id, history=0)

    turn()
    early = steps.of(turn)
    for _ in range(1000):
        turn()
    assert 0 < steps.of(turn) <= 1.1 * early + 2


def test_many_chunks_are_not_folded_again_at_each_read(make_store, monkeypatch):
    steps = Steps(monkeypatch)
    store = make_store()
    run = begin(store)
    store.append(run.token, [chunk(run.head.id, "x", append=n > 0) for n in range(1000)], end=True)
    first = steps.of(lambda: store.load(MINE, run.head.id))
    again = steps.of(lambda: store.load(MINE, run.head.id))
    assert 0 < again < first / 5


@pytest.mark.slow
def test_reading_a_growing_artifact_writes_no_more_than_its_chunks_did(path, make_store):
    store = make_store()
    run = begin(store)
    snapshots = set()
    for n in range(40):
        store.append(run.token, [chunk(run.head.id, "x", append=n + m > 0) for m in range(100)])
        assert len(store.load(MINE, run.head.id).task.artifacts[0].parts) == 100 * (n + 1)
        with connect(path) as connection:
            snapshots.add(connection.execute("SELECT covered FROM a2a_snapshots").fetchone()[0])
    assert len(snapshots) >= 4
    assert sum(snapshots) < 2 * 4000


def written(path: Path, chunks: int) -> tuple[int, int, int]:
    """Rows written, bytes written and bytes kept for one artifact of so many chunks, read once at the end."""
    with pytest.MonkeyPatch.context() as patch:
        opened: list[sqlite3.Connection] = []
        each_connection(patch, opened.append)
        store = SQLiteStore(path)
        before = _bytes_written()
        run = begin(store)
        for n in range(chunks):
            store.append(run.token, [chunk(run.head.id, "word ", append=n > 0)])
        store.append(run.token, [status(run.head.id, TaskState.COMPLETED)], end=True)
        assert len(store.load(MINE, run.head.id).task.artifacts[0].parts) == chunks
        rows = sum(_changes(connection) for connection in opened)
        store.close()
    return rows, _bytes_written() - before, path.stat().st_size


def _changes(connection: sqlite3.Connection) -> int:
    try:
        return connection.total_changes
    except sqlite3.ProgrammingError:
        return 0  # closed: that of a heart, maybe another store's


def _bytes_written() -> int:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.slow
def test_four_times_the_chunks_write_four_times_the_rows_and_bytes(tmp_path):
    small = written(tmp_path / "small.db", 8_000)
    large = written(tmp_path / "large.db", 32_000)
    assert small[0] < 2.1 * 8_000
    for few, many in zip(small, large, strict=True):
        assert many == pytest.approx(4 * few, rel=0.1)


def test_what_is_in_use_when_a_store_closes_is_closed_when_it_is_done(path, make_store):
    """A connection that is not closed keeps its file open, and on CPython 3.13 is warned of."""
    store = make_store()
    begin(store)
    inside, go_on = threading.Event(), threading.Event()
    used = []

    def work(connection):
        used.append(connection)
        inside.set()
        assert go_on.wait(TIMEOUT)

    reader = Background(lambda: store._database.read(work))
    assert inside.wait(TIMEOUT)
    store.close()
    go_on.set()
    reader.result(TIMEOUT)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used[0].execute("SELECT 1")


def test_a_new_file_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    path, known, link = tmp_path / "tasks.db", tmp_path / "known.db", tmp_path / "link.db"
    known.touch(0o640)
    link.symlink_to(tmp_path / "target.db")
    before = os.umask(0o022)
    try:
        for store in (SQLiteStore(path), SQLiteStore(known), SQLiteStore(link)):
            begin(store)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir() if file.is_file()}
    assert {modes[name] for name in modes if name.startswith(("tasks.db", "target.db"))} == {0o600}
    assert {modes[name] for name in modes if name.startswith("known.db")} == {0o640}


def test_a_long_transaction_gives_other_processes_a_turn_before_the_next(make_store, monkeypatch):
    """They poll the lock of the file, and would lose against threads that queue for it in this process."""
    pauses: list[float] = []
    set_clock(monkeypatch, database, sleep=pauses.append)
    store = make_store()
    begin(store)
    pauses.clear()
    monkeypatch.setattr(database, "_LONG_WRITE", 1000.0)
    begin(store)
    begin(store)
    assert pauses == []
    monkeypatch.setattr(database, "_LONG_WRITE", 0.0)
    begin(store)
    begin(store)
    assert len(pauses) == 1
    assert 0 < pauses[0] <= 0.02


def test_a_context_that_is_not_sorted_at_once_counts_as_all_tasks_of_the_owner(make_store, monkeypatch):
    """Its tasks are looked for in the order of time among all tasks."""
    monkeypatch.setattr("a2a_sync.stores.sqlite._SORTED_AT_ONCE", 2)
    store = make_store()
    for context_id in ("c", "c", "other"):
        begin(store, context_id=context_id)
    query = TaskQuery(context_id="c", history=0, size=1, refuse_above=40 * HEAD_BYTES)
    for _ in range(38):
        begin(store, context_id="other")
    assert store.list(MINE, query).total == 2
    begin(store, context_id="c")
    with pytest.raises(LargeResult):
        store.list(MINE, query)
