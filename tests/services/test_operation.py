"""`a2a-sync migrate`, `copy`, `status` and `workers` with PostgreSQL, and the move of a running history from SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from a2a_sync.cli import main
from a2a_sync.stores import PostgresStore, SQLiteStore
from a2a_sync.stores.base import SentRun, SummaryQuery, TaskQuery
from a2a_sync.testing.storecontract.making import (
    COMPACT_FROM,
    FOREIGN,
    MINE,
    begin,
    chunk,
    done,
    expire_all,
    long,
    resume,
    send,
    status,
    waiting,
)
from a2a_sync.testing.storecontract.retention import seen
from a2a_sync.testing.storecontract.webhooks import ids_of, put
from a2a_sync.types import TaskState
from tests.services.conftest import drop


@pytest.fixture
def own_tables(postgres_url):
    """The tables with the names that the commands use."""
    drop(postgres_url, "a2a_")
    yield
    drop(postgres_url, "a2a_")


def run(*arguments, **environment):
    return CliRunner().invoke(main, arguments, env=environment)


def test_migrate_creates_the_tables_that_apps_use_then(postgres_url, own_tables):
    with closing(PostgresStore(postgres_url, create_tables=False)) as store:
        assert run("migrate", A2A_SYNC_STORE=postgres_url).stderr == "schema version 0 -> 3\n"
        done(store)
    assert run("migrate", postgres_url).stderr == "schema version 3\n"
    sql = run("migrate", "--sql", postgres_url).stdout
    assert len(re.findall(r"^CREATE TABLE", sql, re.M)) >= 9
    assert sql.count("a2a_") > 20


def test_an_unreachable_database_is_an_error_of_one_line_without_secrets():
    for command in ("migrate", "status", "workers"):
        result = run(command, "postgresql://ada:s3cret@127.0.0.1:1/tasks?connect_timeout=1")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("Error: PostgreSQL at 127.0.0.1:1/tasks cannot be reached (OperationalError: ")
        assert "s3cret" not in result.stderr


def test_status_and_workers_show_runs_and_their_processes(postgres_url, own_tables):
    with closing(PostgresStore(postgres_url)) as store:
        store.workers.beat(60)
        run_ = begin(store)
        done(store, owner=FOREIGN[0])
        shown = json.loads(run("status", "--json", A2A_SYNC_STORE=postgres_url).stdout)
        assert shown["tasks"] == {"completed": 1, "working": 1}
        assert (shown["runs"]["running"], shown["workers"]) == (1, 1)
        assert shown["slowest"][0]["id"] == run_.head.id
        assert "working 1" in run("status", postgres_url).stdout
        (worker,) = json.loads(run("workers", "--json", postgres_url).stdout)
        assert (worker["id"], worker["runs"], worker["left"]) == (store.workers.id, 1, False)
        assert re.search(r"seen \d+\.\d s ago  1 runs", run("workers", postgres_url).stdout)


@pytest.mark.parametrize("change", ["state = 'evil'", "token = x'ff'", "version = 'x'", "id = 'a' || char(0)"])
def test_a_file_with_values_that_no_release_wrote_is_an_error_of_one_line(tmp_path, postgres_url, own_tables, change):
    path = tmp_path / "tasks.db"
    with closing(SQLiteStore(path)) as old:
        done(old)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE a2a_tasks SET {change}")
    copied = run("copy", f"sqlite:///{path}", postgres_url)
    assert (copied.exit_code, copied.stderr.count("\n")) == (1, 1)
    assert copied.stderr.startswith("Error: ")


def test_a_running_history_is_copied_with_its_numbers_and_again_what_has_changed(tmp_path, postgres_url, own_tables):
    path = tmp_path / "tasks.db"
    with closing(SQLiteStore(path)) as old, closing(PostgresStore(postgres_url)) as new:
        compacted = long(old)
        assert old.sweep(expire_all(replay=True)).compacted == 1
        sent, asking, open_ = send(old, "k"), waiting(old), begin(old)
        old.append(sent.token, [status(sent.head.id, TaskState.COMPLETED)])
        for n in range(COMPACT_FROM):
            old.append(open_.token, [chunk(open_.head.id, str(n), append=n > 0)])
        old.contexts.set_state(open_.token, b'{"n":1}', expected=0)
        put(old, asking, "w", token="t0ken")
        done(old, owner=FOREIGN[0])
        first = run("copy", f"sqlite:///{path}", A2A_SYNC_STORE=postgres_url)
        assert first.stderr.endswith("5 tasks copied, 0 unchanged\n"), first.stderr
        resumed = resume(old, asking)
        old.append(resumed.token, [chunk(asking, "more"), status(asking, TaskState.COMPLETED)])
        again = run("copy", f"sqlite:///{path}", postgres_url)
        assert again.stderr.endswith("1 tasks copied, 4 unchanged\n"), again.stderr
        for task_id in (compacted, sent.head.id, asking, open_.head.id):
            assert seen(new, task_id) == seen(old, task_id)
            assert new.log(MINE, task_id) == old.log(MINE, task_id)
            assert new.head(MINE, task_id) == old.head(MINE, task_id)
        assert new.list(FOREIGN[0], TaskQuery()).total == 1
        assert new.sent(MINE, "k") == SentRun(sent.head.id, sent.head.version, "print")
        assert new.contexts.state(MINE, "c") == old.contexts.state(MINE, "c")
        assert ids_of(new, asking) == ["w"]
        # The worker of the file counts as one that has left, so its run is offered to the new processes.
        assert [one.id for one in new.inspection.workers() if one.left] == [old.workers.id]
        (held,) = new.workers.runs_of(old.workers.id)
        assert held.token == open_.token
        assert not [one for one in new.inspection.tasks(SummaryQuery()) if one.bytes <= 0]
