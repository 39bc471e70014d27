"""kill -9 at every stage of a run: what was stored is there, nothing hangs, and the other workers end what was lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from a2a_sync import Client, Retry, SQLiteStore, Task, TaskState
from a2a_sync.lifecycle import Fold
from a2a_sync.stores.base import Owner
from a2a_sync.types import new_id
from tests.engine import eventually
from tests.faults.dying import Moment
from tests.live import LiveServer, gunicorn

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

#: Entries of a run that tells three numbers: the message, submitted, working; the numbers; then the end, with its answer.
STAGES = [
    Moment("start_run", "before"),
    Moment("start_run", "after"),
    Moment("append", "before", 4),
    Moment("append", "after", 4),
    Moment("append", "after", 6),
    Moment("end", "before"),
    Moment("end", "after"),
]
#: Where the end was stored before the process died, the task has ended well.
ENDED = {Moment("end", "after")}


class Site:
    """One store and the plan for the next death."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "tasks.db"
        self.plan = folder / "plan"

    @contextmanager
    def server(self, agent: str, workers: int = 2) -> Iterator[LiveServer]:
        environment = {"DYING_STORE": str(self.store), "DYING_PLAN": str(self.plan)}
        options = ("-c", "python:a2a_sync.gunicorn")
        target = f"tests.faults.dying:{agent}()"
        with gunicorn(target, *options, threads=8, workers=workers, environment=environment) as server:
            yield server

    def check(self, task: Task) -> None:
        """The log adds up to the task; nobody holds it; the file is sound."""
        with closing(SQLiteStore(self.store)) as store:
            page = store.log(Owner(), task.id)
            assert [entry.number for entry in page.entries] == list(range(1, page.version + 1))
            fold = Fold(Task(id=task.id, context_id=task.context_id, status=task.status))
            for entry in page.entries:
                fold.apply(entry.event)
            assert fold.task() == store.load(Owner(), task.id).task
            assert not page.running
        with closing(sqlite3.connect(self.store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


PATIENT = Retry(max_elapsed=30, initial_backoff=0.02, max_backoff=0.2)


def told(task: Task) -> list[str]:
    """What the newest artifact says, number by number."""
    return task.artifacts[-1].text.split() if task.artifacts else []


def test_tasks_of_a_worker_that_dies_at_any_stage_are_failed_by_the_others(site: Site) -> None:
    with site.server("app") as server:
        for moment in STAGES:
            with Client(server.url, retry=PATIENT) as client:
                client.card()
                moment.write(site.plan)
                task = client.send("3", idempotency_key=new_id(), timeout=40)
            assert isinstance(task, Task)
            assert not site.plan.exists(), f"nobody came to {moment}"
            if moment in ENDED or moment == Moment("start_run", "before"):
                # Stored before the death; or nothing was, and the same send was made again elsewhere.
                assert (task.state, told(task)) == (TaskState.COMPLETED, ["0", "1", "2"]), moment
            else:
                assert (task.state, task.text) == (TaskState.FAILED, "worker lost"), moment
                stored = max(0, moment.number - 3 - (moment.when == "before"))
                assert told(task) == ["0", "1", "2"][: stored or len(told(task))], moment
            site.check(task)
        with Client(server.url) as client:
            assert client.list_tasks().total_size == len(STAGES)


def test_tasks_that_may_run_again_do_and_come_to_their_end(site: Site) -> None:
    with site.server("careful") as server:
        for moment in STAGES:
            with Client(server.url, retry=PATIENT) as client:
                client.card()
                moment.write(site.plan)
                task = client.send("3", idempotency_key=new_id(), timeout=40)
            assert isinstance(task, Task)
            assert not site.plan.exists(), f"nobody came to {moment}"
            assert (task.state, told(task)) == (TaskState.COMPLETED, ["0", "1", "2"]), moment
            site.check(task)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_while_it_closes_leaves_its_tasks_to_the_next(site: Site, when: str) -> None:
    with site.server("careful", workers=1) as server, Client(server.url) as client:
        assert client.send("2").state is TaskState.COMPLETED  # type: ignore[union-attr]
        task = client.send("3 hold", return_immediately=True)
        assert isinstance(task, Task)
        eventually(lambda: client.get_task(task.id).artifacts, "the first number")
        Moment("leave", when).write(site.plan)
        server.terminate()
        assert not site.plan.exists()
    with site.server("careful", workers=1) as server, Client(server.url) as client:
        eventually(lambda: len(client.get_task(task.id).artifacts) == 2, "the second attempt")
        assert client.cancel_task(task.id).state is TaskState.CANCELED
    site.check(task)


def test_a_server_that_dies_whole_leaves_a_file_that_the_next_one_works_with(site: Site) -> None:
    with site.server("app", workers=2) as server, Client(server.url) as client:
        tasks = [client.send("3 hold", return_immediately=True) for _ in range(6)]
        eventually(lambda: all(client.get_task(task.id).artifacts for task in tasks), "the first numbers")
        server.kill()
    with site.server("app", workers=2) as server, Client(server.url) as client:
        for task in tasks:
            lost = client.wait(task.id, timeout=30)
            assert (lost.state, lost.text) == (TaskState.FAILED, "worker lost")
            site.check(lost)
        assert client.send("3").state is TaskState.COMPLETED  # type: ignore[union-attr]
