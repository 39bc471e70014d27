"""The table of ownership once more: over PostgreSQL, and where Celery executes the runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from a2a_sync import A2AApp
from tests.server.test_ownership import *  # noqa: F403
from tests.server.test_ownership import make_app
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import a_worker
from tests.services.servers import Postgres
from tests.services.site import make_site


@pytest.fixture(scope="module", params=["postgres", pytest.param("celery", marks=pytest.mark.live)])
def app(
    request: pytest.FixtureRequest, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[A2AApp]:
    folder = tmp_path_factory.mktemp("ownership")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        if request.param == "postgres":
            yield stack.enter_context(make_app(store=url))
            return
        broker = stack.enter_context(redis_broker(folder))
        environment = {"A2A_TEST_AGENT": "asking", "A2A_TEST_STORE": url, "A2A_TEST_BROKER": broker.url}
        stack.enter_context(a_worker("tests.services.site:celery", environment, folder, "-P", "threads", "-c", "4"))
        yield stack.enter_context(make_site(environment)[1])
