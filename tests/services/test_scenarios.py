"""The scenarios once more: gunicorn with two workers over PostgreSQL, without and with Celery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from a2a_sync import Client
from tests.live import gunicorn
from tests.scenarios.conftest import (  # noqa: F401
    Way,
    make_client,
    supports_file_names,
    supports_lists,
    supports_references,
    version,
)
from tests.scenarios.test_message_context import *  # noqa: F403
from tests.scenarios.test_push import *  # noqa: F403
from tests.scenarios.test_scenarios import *  # noqa: F403
from tests.scenarios.test_whole_tasks import *  # noqa: F403
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG, a_worker
from tests.services.servers import Postgres

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

WAYS = [
    pytest.param(("postgres", "1.0", "JSONRPC"), id="postgres-1.0"),
    pytest.param(("postgres", "0.3", "HTTP+JSON"), id="postgres-0.3-rest"),
    pytest.param(("celery", "1.0", "HTTP+JSON"), id="celery-1.0-rest"),
    pytest.param(("celery", "0.3", "JSONRPC"), id="celery-0.3"),
]


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    kind, version, binding = request.param  # noqa: F811
    folder = tmp_path_factory.mktemp("scenarios")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        if kind == "postgres":
            target, environment = "tests.scenarios.agent:app", {"SCENARIO_STORE": url}
        else:
            broker = stack.enter_context(redis_broker(folder))
            target = "tests.services.site:app"
            environment = {"A2A_TEST_AGENT": "scenarios", "A2A_TEST_STORE": url, "A2A_TEST_BROKER": broker.url}
            options = ("-P", "threads", "-c", "24")
            stack.enter_context(a_worker("tests.services.site:celery", environment, folder, *options))
        server = stack.enter_context(gunicorn(target, threads=24, workers=2, environment=environment, wait=LONG))
        make = lambda: Client(server.url, protocol_version=version, protocol_binding=binding)  # noqa: E731
        yield make, version, binding
