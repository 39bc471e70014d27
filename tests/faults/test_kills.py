"""SIGKILL at every stage of a run: stored entries survive, nothing hangs, and other workers end the lost tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import requests

from a2a_sync import Client, Retry, Task, TaskState
from a2a_sync.lifecycle import Fold
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Owner
from a2a_sync.types import new_id
from tests.engine import eventually
from tests.faults.conftest import Place
from tests.faults.dying import Moment
from tests.live import LiveServer

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

#: The entries of a run that emits three numbers: message, submitted, working; the numbers; the end with the answer.
STAGES = [
    Moment("start_run", "before"),
    Moment("start_run", "after"),
    Moment("append", "before", 4),
    Moment("append", "after", 4),
    Moment("append", "after", 6),
    Moment("end", "before"),
    Moment("end", "after"),
]


class Site:
    """A store and the schedule of the next kill."""

    def __init__(self, place: Place) -> None:
        self.store = place.store
        self.plan = place.runs.with_name("plan")
        self._place = place
        #: Moments after which the task is completed although it is not retried; a run that waits in a queue is not lost.
        self.harmless = {Moment("end", "after"), *([Moment("start_run", "after")] if place.queued else [])}

    @contextmanager
    def server(self, agent: str, workers: int = 2, queues: bool = False) -> Iterator[LiveServer]:
        environment = {"DYING_STORE": self.store, "DYING_PLAN": str(self.plan), "DYING_QUEUES": str(int(queues))}
        target = f"tests.faults.dying:{agent}()"
        with self._place.server(target, workers=workers, environment=environment) as server:
            yield server

    def check(self, task: Task) -> None:
        """The log adds up to the task, the task has no run, and a file is intact."""
        with closing(open_store(self.store)) as store:
            page = store.log(Owner(), task.id)
            assert [entry.number for entry in page.entries] == list(range(1, page.version + 1))
            fold = Fold(Task(id=task.id, context_id=task.context_id, status=task.status))
            for entry in page.entries:
                fold.apply(entry.event)
            assert fold.task() == store.load(Owner(), task.id).task
            assert not page.running
        path = self.store.removeprefix("sqlite:///")
        if path != self.store:
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.fixture
def site(place: Place) -> Site:
    return Site(place)


PATIENT = Retry(max_elapsed=30, initial_backoff=0.02, max_backoff=0.2)


def numbers_in(task: Task) -> list[str]:
    """The numbers in the newest artifact."""
    return task.artifacts[-1].text.split() if task.artifacts else []


def test_tasks_of_a_worker_killed_at_any_stage_are_failed_by_other_workers(site: Site) -> None:
    with site.server("app") as server:
        for moment in STAGES:
            with Client(server.url, retry=PATIENT) as client:
                client.card()
                moment.write(site.plan)
                task = client.send("3", idempotency_key=new_id(), timeout=40)
            assert isinstance(task, Task)
            assert not site.plan.exists(), f"{moment} was not reached"
            if moment in site.harmless or moment == Moment("start_run", "before"):
                # Stored before the kill; or nothing was stored, and the client repeated the send at another worker.
                assert (task.state, numbers_in(task)) == (TaskState.COMPLETED, ["0", "1", "2"]), moment
            else:
                assert (task.state, task.text) == (TaskState.FAILED, "worker lost"), moment
                stored = max(0, moment.number - 3 - (moment.when == "before"))
                assert numbers_in(task) == ["0", "1", "2"][: stored or len(numbers_in(task))], moment
            site.check(task)
        with Client(server.url) as client:
            assert client.list_tasks().total_size == len(STAGES)


def test_retryable_tasks_of_a_killed_worker_are_completed(site: Site) -> None:
    with site.server("retrying") as server:
        for moment in STAGES:
            with Client(server.url, retry=PATIENT) as client:
                client.card()
                moment.write(site.plan)
                task = client.send("3", idempotency_key=new_id(), timeout=40)
            assert isinstance(task, Task)
            assert not site.plan.exists(), f"{moment} was not reached"
            assert (task.state, numbers_in(task)) == (TaskState.COMPLETED, ["0", "1", "2"]), moment
            site.check(task)


@pytest.mark.parametrize("agent", ["app", "retrying"])
def test_a_worker_killed_while_it_stores_queued_pieces_keeps_those_that_were_stored(site: Site, agent: str) -> None:
    every = [str(number) for number in range(200)]
    with site.server(agent, queues=True) as server:
        for moment in (Moment("append", "before"), Moment("append", "after"), Moment("end", "before")):
            with Client(server.url, retry=PATIENT) as client:
                client.card()
                moment.write(site.plan)
                streamed = list(client.stream("200", timeout=40))
                task = client.get_task(streamed[0].id)  # type: ignore[union-attr]
            assert not site.plan.exists(), f"{moment} was not reached"
            if agent == "retrying":
                assert (task.state, numbers_in(task)) == (TaskState.COMPLETED, every), moment
            else:
                assert (task.state, task.text) == (TaskState.FAILED, "worker lost"), moment
                assert numbers_in(task) == every[: len(numbers_in(task))], moment
            site.check(task)


@pytest.mark.parametrize("when", ["before", "after"])
def test_tasks_of_a_process_killed_while_closing_are_retried_by_the_next(site: Site, when: str) -> None:
    with site.server("retrying", workers=1) as server, Client(server.url) as client:
        assert client.send("2").state is TaskState.COMPLETED  # type: ignore[union-attr]
        task = client.send("3 hold", return_immediately=True)
        assert isinstance(task, Task)
        eventually(lambda: client.get_task(task.id).artifacts, "the first number")
        Moment("leave", when).write(site.plan)
        server.terminate()
        assert not site.plan.exists()
    with site.server("retrying", workers=1) as server, Client(server.url) as client:
        eventually(lambda: len(client.get_task(task.id).artifacts) == 2, "the second attempt")
        assert client.cancel_task(task.id).state is TaskState.CANCELED
    site.check(task)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_blocking_send_whose_worker_dies_leaves_no_task_before_its_first_write(site: Site, when: str) -> None:
    with site.server("app") as server, Client(server.url) as client:
        Moment("start_run", when).write(site.plan)
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "3"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        with pytest.raises(requests.ConnectionError):
            requests.post(server.url, json=body, headers={"A2A-Version": "1.0"}, timeout=30)
        assert not site.plan.exists()
        if when == "before":
            assert client.list_tasks().total_size == 0
        else:
            (task,) = client.list_tasks().tasks
            ended = client.wait(task.id, timeout=60)
            if Moment("start_run", "after") in site.harmless:
                assert ended.state is TaskState.COMPLETED
            else:
                # The first number is stored with the task.
                assert (ended.state, ended.text, numbers_in(ended)) == (TaskState.FAILED, "worker lost", ["0"])
            site.check(ended)


def test_a_restarted_server_uses_the_file_of_a_killed_one(site: Site) -> None:
    with site.server("app", workers=2) as server, Client(server.url) as client:
        tasks = [client.send("3 hold", return_immediately=True) for _ in range(6)]
        eventually(lambda: all(client.get_task(task.id).artifacts for task in tasks), "the first numbers")
        server.kill()
    with site.server("app", workers=2) as server, Client(server.url) as client:
        for task in tasks:
            lost = client.wait(task.id, timeout=60)
            assert (lost.state, lost.text) == (TaskState.FAILED, "worker lost")
            site.check(lost)
        assert client.send("3").state is TaskState.COMPLETED  # type: ignore[union-attr]
