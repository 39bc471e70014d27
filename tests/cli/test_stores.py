"""The commands for operators, over an SQLite file."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from a2a_sync.cli import main, stores
from a2a_sync.stores import SQLiteStore
from a2a_sync.testing.storecontract.making import begin, done
from tests.engine import eventually


@pytest.fixture
def url(tmp_path: Path) -> str:
    with closing(SQLiteStore(tmp_path / "tasks.db")) as store:
        store.workers.beat(60)
        begin(store, task_id="t"), done(store)
    return f"sqlite:///{tmp_path / 'tasks.db'}"


@pytest.fixture
def run() -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_status_counts_tasks_runs_workers_and_deliveries(run: Callable[..., Result], url: str) -> None:
    shown = json.loads(run("status", url, "--json").stdout)
    assert shown["tasks"] == {"completed": 1, "working": 1}
    assert shown["runs"]["running"] == shown["workers"] == 1
    assert shown["deliveries"] == {"behind": 0, "entries": 0, "stopped": 0}
    assert [run["id"] for run in shown["slowest"]] == ["t"]
    lines = run("status", url).stdout.splitlines()
    assert "tasks: completed 1, working 1" in lines
    assert [line for line in lines if line.startswith("slow: t  working  ")]


def test_workers_are_listed_with_their_runs(run: Callable[..., Result], url: str) -> None:
    (worker,) = json.loads(run("workers", url, "--json").stdout)
    assert (worker["left"], worker["runs"]) == (False, 1)
    assert re.fullmatch(rf"{worker['id']}  -  seen \d+\.\d s ago  1 runs\n", run("workers", url).stdout)


def test_a_hostile_file_changes_no_terminal(run: Callable[..., Result], url: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        changed = 0
        for table in names:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            column = "id" if table.endswith("workers") else "worker"
            if column in columns:
                changed += database.execute(f"UPDATE {table} SET {column} = ?", ("\x1b]0;x\x07",)).rowcount
    assert changed
    for command in ("status", "workers"):
        result = run(command, url)
        assert result.exit_code == 0
        assert result.stdout.replace("\n", "").isprintable()


def test_no_number_of_a_hostile_file_is_text_for_a_terminal(run: Callable[..., Result], url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        columns = ", ".join(row[1] for row in database.execute("PRAGMA table_info(a2a_counts)") if row[1] != "n")
        database.execute("ALTER TABLE a2a_counts RENAME TO other")
        database.execute(
            f"CREATE VIEW a2a_counts AS SELECT {columns}, char(27) || ']0;x' || char(7) AS n FROM other"
            " WHERE state = 'completed'"
        )
    result = run("status", url)
    assert "tasks: completed" in result.stdout
    assert result.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "change",
    ["state = 'evil\x1b'", "state = x'ff'", "status_ms = 'x', state = 'working'"],
)
def test_values_that_no_release_wrote_are_an_error_of_one_line(
    run: Callable[..., Result], url: str, change: str
) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(f"UPDATE a2a_tasks SET {change}")
    result = run("status", url)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: ")
    assert result.stderr[:-1].isprintable()


def test_a_file_needs_no_migration(run: Callable[..., Result], url: str) -> None:
    assert run("migrate", url).stderr == "the tables are up to date\n"


@pytest.mark.parametrize("command", [["status", "memory:"], ["migrate", "mysql://ada:s3cret@h/d"], ["workers"]])
def test_a_store_that_cannot_be_shown_is_wrong_usage(run: Callable[..., Result], command: list[str]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "s3cret" not in result.stderr


def test_copies_go_from_a_file_to_a_database(run: Callable[..., Result], url: str) -> None:
    pytest.importorskip("psycopg", reason="needs the extra postgres")
    result = run("copy", url, url)
    assert result.exit_code == 2
    assert "postgresql://" in result.stderr


_ENDLESS = "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number) SELECT"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "table", "rows"),
    [
        ("status", "counts", "'' AS tenant, '' AS owner, 'working' AS state, n, 0 AS stored FROM number WHERE n < 0"),
        ("workers", "workers", "n AS id, 0 AS until, 0 AS lease, 0 AS gone, '' AS reaper FROM number WHERE n < 0"),
        ("status", "meta", "'schema' AS name, n AS value FROM number WHERE n < 0"),
    ],
)
def test_a_file_that_never_ends_is_given_up(
    run: Callable[..., Result], url: str, monkeypatch: pytest.MonkeyPatch, command: str, table: str, rows: str
) -> None:
    monkeypatch.setattr(stores, "_TIME_LIMIT", 0.5)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(f"ALTER TABLE a2a_{table} RENAME TO other")
        database.execute(f"CREATE VIEW a2a_{table} AS {_ENDLESS} {rows}")
    result = run(command, url)
    assert result.exit_code == 1
    assert "takes too long to read" in result.stderr


@pytest.mark.slow
def test_control_c_ends_the_upgrade_of_a_file_that_never_ends(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("ALTER TABLE a2a_meta RENAME TO other")
        database.execute(f"CREATE VIEW a2a_meta AS {_ENDLESS} 'schema' AS name, n AS value FROM number WHERE n < 0")
    # A shell that starts the tests in the background ignores Ctrl+C for all that it starts.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from a2a_sync.cli import main; main()"
    command = [sys.executable, "-c", program, "migrate", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            # More than it takes to start: the statement is executed by now.
            eventually(lambda: _processor_time(process.pid) > 3, "the statement", seconds=60)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 1
        finally:
            process.kill()
        assert process.stderr is not None
        assert "the command was interrupted" in process.stderr.read()


def _processor_time(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
