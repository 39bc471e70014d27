"""The tests of faults once more, over PostgreSQL, and where Celery executes the runs: cut streams, killed servers, crowds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from a2a_sync import Client
from tests.faults import test_restarts
from tests.faults.agent import make_app
from tests.faults.conftest import Place
from tests.faults.crowd import Crowd
from tests.faults.test_followers import *  # noqa: F403
from tests.faults.test_followers import TwoProcesses, machines
from tests.faults.test_restarts import *  # noqa: F403
from tests.faults.test_streams import *  # noqa: F403
from tests.faults.test_streams import serving
from tests.live import gunicorn
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG, a_worker

pytestmark = [pytest.mark.live, pytest.mark.timeout(2 * LONG)]


@pytest.fixture(params=["postgres", "celery"])
def place(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Iterator[Place]:
    runs = tmp_path / "runs"
    if request.param == "postgres":
        yield Place(store_url, runs)
        return
    with ExitStack() as stack:
        broker = stack.enter_context(redis_broker(tmp_path))
        site = {"A2A_TEST_AGENT": "faults", "A2A_TEST_STORE": store_url, "A2A_TEST_BROKER": broker.url}
        variables = {**site, "FAULT_RUNS": str(runs), "FAULT_BEAT": "1"}
        stack.enter_context(a_worker("tests.services.site:celery", variables, tmp_path, "-P", "threads", "-c", "24"))
        yield Place(store_url, runs, "tests.services.site:app", variables, queued=1)


@pytest.fixture
def address(store_url: str) -> Iterator[tuple[str, int]]:
    with serving(make_app(store=store_url)) as address:
        yield address


@pytest.fixture
def machine(store_url: str) -> Iterator[type[TwoProcesses]]:
    yield from machines(store_url, 10)


# With Celery, the run outlives the web server; `test_faults.py` kills Celery workers.
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_the_stream_of_a_lost_run_ends_with_its_failure(site: test_restarts.Site) -> None:
    test_restarts.test_the_stream_of_a_lost_run_ends_with_its_failure(site)


def test_a_crowd_of_clients_at_several_workers(place: Place) -> None:
    options = ("-c", "python:a2a_sync.gunicorn")
    environment = {**place.environment, "FAULT_BEAT": "5"}
    with gunicorn(place.target, *options, threads=8, workers=3, environment=environment) as server:
        crowd = Crowd(server.url, limit=LONG)
        crowd.run(40, lambda made: made >= 4)
        if crowd.failures:
            raise crowd.failures[0]
        with Client(server.url) as client:
            assert client.list_tasks(status="working").total_size == 0
        assert "Traceback" not in server.log
    assert sum(crowd.done.values()) == 160
