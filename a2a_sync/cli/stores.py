"""``a2a-sync migrate``, ``copy``, ``status`` and ``workers``: the tasks of a store, for operators."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import click

from a2a_sync.cli.text import clean_line, print_json, print_status
from a2a_sync.errors import StoreError
from a2a_sync.stores import SQLiteStore, open_store
from a2a_sync.stores.base import SummaryQuery, TaskStore, TaskSummary, require
from a2a_sync.types import TaskState

_SLOWEST = 5
#: Seconds after which a file is given up that is shown: a damaged or hostile one may hold a view that never ends.
_TIME_LIMIT = 60.0
#: Unfinished tasks of each state that are looked at.
_MOST = 10_000
_UNFINISHED = (TaskState.SUBMITTED, TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)


def _open(ctx: click.Context, param: click.Parameter, value: str) -> TaskStore:
    try:
        if value == "memory:":
            raise ValueError("a store in memory has nothing to show: name one that processes share")
        store = open_store(value)
    except (ValueError, ModuleNotFoundError) as error:
        raise click.BadParameter(str(error), ctx, param) from None
    if isinstance(store, SQLiteStore):
        # Upgrades and copies may take any time. With a limit, whichever it is, Ctrl+C ends them.
        shown = ctx.command in (status, workers)
        store._database.give_up_at = time.monotonic() + _TIME_LIMIT if shown else math.inf
    return store


store_argument: Final = click.argument("store", metavar="[STORE]", envvar="A2A_SYNC_STORE", callback=_open)


_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(epilog="Example: a2a-sync migrate postgresql://app@db/tasks")
@store_argument
@click.option("--sql", is_flag=True, help="Print the statements for an empty database, and change nothing.")
def migrate(store: TaskStore, sql: bool) -> None:
    """Create or upgrade the tables of STORE.

    STORE is a URL, by default that of A2A_SYNC_STORE, which other users do not see. Releases that run already go on
    working with the upgraded tables.
    """
    with closing(store), _reporting():
        if isinstance(store, SQLiteStore):
            # A file is upgraded when it is opened.
            store.versions(["-"])
            print_status("the tables are up to date")
            return
        from a2a_sync.stores.postgres import PostgresStore

        if not isinstance(store, PostgresStore):
            raise click.UsageError("migrates sqlite:///… and postgresql://… only")
        if sql:
            click.echo(store.migration_sql(), nl=False)
        else:
            before, after = store.migrate()
            print_status(f"schema version {before} -> {after}" if before != after else f"schema version {after}")


@click.command(epilog="Example: a2a-sync copy sqlite:///tasks.db postgresql://app@db/tasks")
@click.argument("source", callback=_open)
@click.argument("target", metavar="[TARGET]", envvar="A2A_SYNC_STORE", callback=_open)
def copy(source: TaskStore, target: TaskStore) -> None:
    """Copy the tasks of an SQLite file to PostgreSQL.

    SOURCE is sqlite:///…, TARGET postgresql://…, by default that of A2A_SYNC_STORE.

    Tasks keep their ids, numbers and times, so clients resume their streams. A task that TARGET has is replaced if it has
    changed in SOURCE: copy once while the app runs, and again when it is stopped, which takes little time. Runs that are
    under way are resumed from TARGET as those of a worker that has left.
    """
    from a2a_sync.stores.postgres import PostgresStore

    if not isinstance(source, SQLiteStore) or not isinstance(target, PostgresStore):
        raise click.UsageError("copies from sqlite:///… to postgresql://… only")
    with closing(source), closing(target), _reporting():
        copied = target.copy_from(source, lambda tasks: print_status(f"{tasks} tasks", dim=True))
    print_status(f"{copied.copied} tasks copied, {copied.unchanged} unchanged")


@click.command(epilog="Example: a2a-sync status sqlite:///tasks.db")
@store_argument
@_json_option
def status(store: TaskStore, as_json: bool) -> None:
    """Count tasks, runs, workers and deliveries.

    Shows the tasks of STORE by state, unfinished runs with their ages, workers, and pending deliveries.
    """
    with closing(store), _reporting():
        found = _status(store)
    if as_json:
        print_json(found)
    else:
        _print_status(found)


def _print_status(found: dict[str, Any]) -> None:
    # In a file that was given away, numbers may be text.
    for name, value in found.items():
        if not isinstance(value, list):
            shown = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else value
            click.echo(clean_line(f"{name}: {shown}"))
    for run in found["slowest"]:
        click.echo(
            f"slow: {clean_line(run['id'], 80)}  {run['state']}  {run['age_s']} s  worker {clean_line(run['worker'], 80) or '-'}"
        )


@click.command(epilog="Example: a2a-sync workers postgresql://app@db/tasks")
@store_argument
@_json_option
def workers(store: TaskStore, as_json: bool) -> None:
    """Show the processes that share STORE.

    Shows their heartbeats, and how many runs each holds.
    """
    with closing(store), _reporting():
        found = [worker._asdict() for worker in require(store.inspection, "inspection").workers()]
    if as_json:
        print_json(found)
        return
    for worker in found:
        age = worker["age_s"]
        seen = "lost" if age is None else f"seen {age:.1f} s ago"
        click.echo(
            f"{clean_line(worker['id'], 80)}  {clean_line(worker['name'], 80) or '-'}  {seen}  {worker['runs']} runs"
        )


def _status(store: TaskStore) -> dict[str, Any]:
    inspection = require(store.inspection, "inspection")
    states: Counter[str] = Counter()
    for by_state in inspection.counts().values():
        states.update({str(state): count for state, count in by_state.items()})
    now_ms = time.time_ns() // 1_000_000
    runs: list[TaskSummary] = []
    for state in _UNFINISHED:
        runs += [task for task in inspection.tasks(SummaryQuery(state=state, size=_MOST)) if task.running]
    runs.sort(key=lambda task: task.status_ms)
    ages = [max(0.0, (now_ms - task.status_ms) / 1000) for task in runs]
    pending = inspection.webhook_counts()
    return {
        "tasks": dict(states),
        "runs": {
            "running": sum(task.state is not TaskState.SUBMITTED for task in runs),
            "queued": sum(task.state is TaskState.SUBMITTED for task in runs),
            **{f"older than {age} s": sum(one > age for one in ages) for age in (10, 60, 600, 3600)},
        },
        "deliveries": {"behind": pending.behind, "entries": pending.entries, "stopped": pending.stopped},
        "workers": len(inspection.workers()),
        "bytes": inspection.size(),
        "slowest": [
            {"id": task.id, "state": str(task.state), "age_s": round(age, 1), "worker": task.worker}
            for task, age in list(zip(runs, ages, strict=True))[:_SLOWEST]
        ],
    }


@contextmanager
def _reporting() -> Iterator[None]:
    """End the program with one line where a store fails; a file that was damaged or given away may hold anything."""
    try:
        yield
    except StoreError as error:
        problem = str(error)
    except (ValueError, TypeError, ArithmeticError, LookupError, MemoryError, RecursionError) as error:
        problem = f"the store holds a value that this release cannot read: {error or type(error).__name__}"
    else:
        return
    print_status(f"Error: {problem}", error=True)
    sys.exit(1)
