"""The tests of dialogues, turns and values of contexts once more, over PostgreSQL: without and with Celery."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from a2a_sync import Client, Message, TaskState
from a2a_sync.integrations.celery import CeleryQueue
from tests.agent import test_dialogue, test_state
from tests.agent.test_dialogue import *  # noqa: F403
from tests.agent.test_state import *  # noqa: F403
from tests.agent.test_turns import *  # noqa: F403
from tests.engine import Gate, Served, eventually, serving
from tests.live import gunicorn
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG, a_worker

TARGET = "tests.services.site"
#: Names of the Celery tasks: each app has its own.
NAMES = (f"dialogue-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def celery_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Celery worker on threads of this process, which sees the variables of a test's handler, over a real broker."""
    with redis_broker(tmp_path_factory.mktemp("broker")) as broker:
        celery = Celery("worker", broker=broker.url)
        celery.conf.worker_hijack_root_logger = False
        with start_worker(
            celery, pool="threads", concurrency=24, loglevel="warning", perform_ping_check=False, shutdown_timeout=LONG
        ) as worker:
            yield worker


class ServedByCelery(Served):
    """An app that begins runs, and another one over the same tables whose Celery worker executes them."""

    def __init__(self, handler: Any, *, stores: Callable[[], Any], worker: Any, **limits: Any) -> None:
        name = next(NAMES)
        queue = CeleryQueue(Celery("web", broker=worker.app.conf.broker_url), task_name=name)
        super().__init__(handler, store=stores(), job_queue=queue, **limits)
        queue = CeleryQueue(worker.app, task_name=name)
        self.worker = Served(handler, store=stores(), job_queue=queue, **limits)
        worker.consumer.update_strategies()
        self.worker.app.start()

    def quiet(self) -> None:
        super().quiet()
        eventually(lambda: not self.worker.app._engine.runs.running, "quiet")

    def close(self) -> None:
        super().close()
        self.worker.close()


@pytest.fixture(params=["postgres", "celery"])
def serve(
    request: pytest.FixtureRequest, make_postgres_store: Callable[..., Any], prefix: str
) -> Iterator[Callable[..., Served]]:
    prefixes = (f"{prefix}{number}_" for number in itertools.count())
    if request.param == "postgres":
        yield from serving(lambda: make_postgres_store(prefix=next(prefixes)))
        return
    worker = request.getfixturevalue("celery_worker")
    made: list[Served] = []

    def make(handler: Any, **options: Any) -> Served:
        one = next(prefixes)
        made.append(ServedByCelery(handler, stores=lambda: make_postgres_store(prefix=one), worker=worker, **options))
        return made[-1]

    yield make
    for served in made:
        served.close()


# An agent that answers without a task does so in the process that is called, and is refused with a job queue.
@pytest.mark.parametrize("serve", ["postgres"], indirect=True)
def test_a_direct_agent_that_asks_gets_a_task(serve: Callable[..., Served]) -> None:
    test_dialogue.test_a_direct_agent_that_asks_gets_a_task(serve)


@pytest.mark.parametrize("serve", ["postgres"], indirect=True)
def test_a_direct_run_that_changes_it_gets_a_task(serve: Callable[..., Served]) -> None:
    test_state.test_a_direct_run_that_changes_it_gets_a_task(serve)


# A cancel handler runs in the process that is called, and changes no values of a run elsewhere.
@pytest.mark.parametrize("serve", ["postgres"], indirect=True)
def test_a_cancel_handler_may_read_it_and_change_it_while_a_run_goes_on(serve: Callable[..., Served]) -> None:
    test_state.test_a_cancel_handler_may_read_it_and_change_it_while_a_run_goes_on(serve)


def test_a_dialogue_runs_in_the_celery_worker_and_not_in_the_app_that_was_called(
    celery_worker: Any, make_postgres_store: Callable[..., Any]
) -> None:
    gate = Gate()

    def handler(message: Message, context: Any) -> str:
        gate.block()
        return str(context.ask("What?"))

    served = ServedByCelery(handler, stores=make_postgres_store, worker=celery_worker)
    task_id = served.begin("go")
    gate.wait()
    assert [one.app._engine.runs.running for one in (served, served.worker)] == [0, 1]
    gate.open.set()
    assert served.until(task_id, TaskState.INPUT_REQUIRED).text == "What?"
    assert served.send("this", task_id=task_id).text == "this"
    served.close()


@pytest.mark.live
def test_each_answer_of_a_dialogue_is_handled_by_a_job(store_url: str, tmp_path: Path) -> None:
    with redis_broker(tmp_path) as broker:
        environment = {"A2A_TEST_AGENT": "reservation", "A2A_TEST_STORE": store_url, "A2A_TEST_BROKER": broker.url}
        with (
            a_worker(f"{TARGET}:celery", environment, tmp_path, "-c", "2"),
            gunicorn(f"{TARGET}:app", workers=2, environment=environment, wait=LONG) as server,
            Client(server.url, timeout=LONG) as client,
        ):
            chat = client.chat()
            answers = [chat.send(text) for text in ("A table, please", "four", "4", "sunday", "no", "yes")]
    assert [answer.text for answer in answers[:-1]] == [
        "For how many people?",
        "A number, please. For how many people?",
        "Which day? (Friday, Saturday, Sunday)",
        "Any wishes?",
        "A table for 4 on Sunday: shall I reserve it?",
    ]
    assert answers[-1].task.artifacts[0].parts[0].data == {"people": 4, "day": "Sunday", "note": ""}
