"""Runs that Celery executes, over real brokers: gunicorn, Celery workers, and what happens when one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery

from a2a_sync import A2AApp, Agent, Client
from a2a_sync.engine.jobs import JobReference
from a2a_sync.integrations.celery import CeleryQueue
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Owner
from a2a_sync.types import Task, TaskState, TaskStatusUpdateEvent
from tests.live import LiveServer, gunicorn
from tests.services.brokers import Broker, PrivateBroker, private_redis, rabbitmq_broker, redis_broker
from tests.services.celeryworkers import LONG, kill_worker, start_worker

pytestmark = [pytest.mark.live]

TARGET = "tests.services.queued"
BROKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Broker]]] = {
    "redis": redis_broker,
    "rabbitmq": rabbitmq_broker,
    "private redis": private_redis,
}


class Site:
    """A broker, gunicorn and Celery workers over one SQLite file."""

    def __init__(self, broker: Broker, folder: Path, pool: str) -> None:
        self.broker, self.folder, self.pool = broker, folder, pool
        self.environment = {
            "A2A_TEST_FOLDER": str(folder),
            "A2A_TEST_BROKER": broker.url,
            "A2A_TEST_STORE": f"sqlite:///{folder}/tasks.db",
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.server: LiveServer
        self.client: Client

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start a Celery worker with two processes or threads."""
        number = len(self.workers)
        options = ("-P", self.pool, "-c", "2", "--loglevel", "info")
        log = self.folder / f"celery-{number}.log"
        worker = start_worker(f"{TARGET}:celery", self.environment, log, *options, name=f"w{number}")
        self.workers.append(worker)
        return worker

    def begin(self, text: str) -> Task:
        task = self.client.send(text, return_immediately=True)
        assert isinstance(task, Task)
        return task

    def begun(self, task: Task, *, but: int = 0) -> int:
        """The process that executes a run which waits, when there is one."""
        return next(int(path.name.rsplit("-", 1)[1]) for path in self.files(f"begun-{task.id}-*", but))

    def files(self, pattern: str, but: int = 0) -> list[Path]:
        """The files of this pattern, when there are some beside that of the process `but`."""
        found: list[Path] = []

        def look() -> bool:
            found[:] = [path for path in self.folder.glob(pattern) if not path.name.endswith(f"-{but}")]
            return bool(found)

        self.wait_until(look)
        return found

    def wait_until(self, condition: object) -> None:
        deadline = time.monotonic() + LONG
        assert callable(condition)
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            # Another process makes it true, which has no way to say so.
            time.sleep(0.05)

    def finish(self, task: Task) -> Task:
        """Let the runs that wait end, and return the task at its end."""
        (self.folder / "go").touch()
        return self.client.wait(task.id, timeout=LONG)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("celery-*.log")))


@contextlib.contextmanager
def a_site(kind: str, pool: str, folder: Path, **variables: str) -> Iterator[Site]:
    (folder / "broker").mkdir()
    with BROKERS[kind](folder / "broker") as broker:
        site = Site(broker, folder, pool)
        site.environment.update(variables)
        try:
            site.add_worker()
            with (
                gunicorn(f"{TARGET}:app", environment=site.environment, wait=LONG) as site.server,
                Client(site.server.url, timeout=LONG) as site.client,
            ):
                yield site
        finally:
            for worker in site.workers:
                kill_worker(worker)


@pytest.fixture(scope="module", params=["redis prefork", "redis threads", "rabbitmq prefork"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    kind, pool = request.param.split()
    # Each job is delivered several times, which changes nothing.
    with a_site(kind, pool, tmp_path_factory.mktemp(kind), A2A_TEST_SENDS="6") as site:
        yield site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with a_site("private redis", "prefork", tmp_path) as made:
        yield made


def test_a_blocking_send_is_executed_by_a_worker(shared: Site) -> None:
    text, _, process = shared.client.send("hello").text.partition(" by ")
    assert text == "hello"
    # Celery's processes lead a group of their own.
    assert os.getpgid(int(process)) == shared.workers[0].pid


def test_a_stream_shows_what_a_worker_yields(shared: Site) -> None:
    stream = shared.client.stream("stream one two three")
    states = [event.status.state for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    assert states == [TaskState.WORKING, TaskState.COMPLETED]
    assert stream.task is not None
    assert stream.task.artifacts[0].text == "onetwothree"


def test_a_question_is_asked_and_answered_in_workers(shared: Site) -> None:
    asked = shared.client.send("ask")
    assert isinstance(asked, Task)
    assert (asked.state, shared.client.send("large", task_id=asked.id).text) == (
        TaskState.INPUT_REQUIRED,
        "large pizza",
    )


def test_a_cancel_stops_the_code_in_its_worker(shared: Site) -> None:
    task = shared.begin("wait")
    shared.begun(task)
    assert shared.client.cancel_task(task.id).state is TaskState.CANCELED
    shared.files(f"canceled-{task.id}")


def test_a_job_that_is_delivered_six_times_is_executed_once(shared: Site) -> None:
    task = shared.begin("wait")
    shared.begun(task)
    # One of two processes or threads is busy, so the other one has refused the repetitions before it executes this.
    assert shared.client.send("hello").text.startswith("hello by ")
    shared.client.cancel_task(task.id)
    shared.files(f"canceled-{task.id}")
    with contextlib.closing(open_store(shared.environment["A2A_TEST_STORE"])) as store:
        events = [entry.event for entry in store.log(Owner(), task.id).entries]
    states = [event.status.state for event in events if isinstance(event, TaskStatusUpdateEvent)]
    assert states == [TaskState.SUBMITTED, TaskState.WORKING, TaskState.CANCELED]


def test_messages_that_are_no_jobs_are_discarded(shared: Site) -> None:
    task = shared.begin("wait")
    shared.begun(task)
    forged: list[tuple[object, ...]] = [
        ("", "", task.id, "forged.token"),
        ("", "eve", task.id, ""),
        ("", "", "\ud800", ""),
        ("", "", "\0", ""),
        (None, {}, [], 1),
        ("too", "few"),
        (),
    ]
    for arguments in forged * 3:
        celery = Celery("forger", broker=shared.environment["A2A_TEST_BROKER"])
        celery.send_task("a2a.run", args=arguments, ignore_result=True)
    assert shared.client.send("hello").text.startswith("hello by ")
    assert shared.client.cancel_task(task.id).state is TaskState.CANCELED
    shared.files(f"canceled-{task.id}")
    # Of each of the five that are not four texts of UTF-8.
    log = shared.folder / "celery-0.log"
    shared.wait_until(lambda: log.read_text().count("that is not a job") >= 15)
    assert len(list(shared.folder.glob(f"begun-{task.id}-*"))) == 1


def test_a_run_whose_process_is_killed_goes_on_in_another_one(site: Site) -> None:
    task = site.begin("wait")
    killed = site.begun(task)
    os.kill(killed, signal.SIGKILL)
    again = site.begun(task, but=killed)
    assert site.finish(task).text == f"done by {again}"


def test_a_run_of_a_dead_worker_goes_on_in_another_one(site: Site) -> None:
    task = site.begin("wait")
    killed = site.begun(task)
    kill_worker(site.workers[0])
    site.add_worker()
    again = site.begun(task, but=killed)
    assert site.finish(task).text == f"done by {again}"


def test_a_worker_that_shuts_down_hands_its_runs_over(site: Site) -> None:
    task = site.begin("wait")
    first = site.begun(task)
    site.add_worker()
    os.kill(site.workers[0].pid, signal.SIGTERM)
    again = site.begun(task, but=first)
    assert site.workers[0].wait(LONG) == 0
    assert site.finish(task).text == f"done by {again}"


def test_jobs_that_a_broker_loses_are_sent_again(site: Site) -> None:
    kill_worker(site.workers[0])
    task = site.begin("hello")
    assert isinstance(site.broker, PrivateBroker)
    site.broker.kill()
    meanwhile = site.begin("hello")
    assert (task.state, meanwhile.state) == (TaskState.SUBMITTED, TaskState.SUBMITTED)
    site.broker.start()
    site.add_worker()
    for one in (task, meanwhile):
        assert site.client.wait(one.id, timeout=LONG).state is TaskState.COMPLETED


def test_events_of_celery_do_not_show_the_token_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    celery = Celery("agents", broker="memory://")
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(celery, "send_task", lambda name, **options: sent.append(options))
    CeleryQueue(celery, queue="agents").send(JobReference("tenant", "ada", "task", "secret"))
    assert (sent[0]["args"], sent[0]["queue"]) == (("tenant", "ada", "task", "secret"), "agents")
    assert sent[0]["argsrepr"] == "('task',)"


def test_two_apps_of_one_celery_application_need_two_names(tmp_path: Path) -> None:
    celery = Celery("agents", broker="memory://")
    agent = Agent("queued", description="d")
    agent.message(lambda message, context: "done")
    store = f"sqlite:///{tmp_path}/tasks.db"
    A2AApp(agent, store=store, job_queue=CeleryQueue(celery))
    with pytest.raises(ValueError, match="pass CeleryQueue"):
        A2AApp(agent, store=store, job_queue=CeleryQueue(celery))
    A2AApp(agent, store=store, job_queue=CeleryQueue(celery, task_name="another"))
