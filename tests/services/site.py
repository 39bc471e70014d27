"""Agents of other test suites over PostgreSQL and Celery: gunicorn serves ``tests.services.site:app``, Celery works for ``…:celery``.

`A2A_TEST_AGENT` selects the agent, by a name or as gunicorn serves it without Celery; `A2A_TEST_STORE` and `A2A_TEST_BROKER` are URLs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery

from a2a_sync import A2AApp
from a2a_sync.integrations.celery import CeleryQueue


def reservation(**options: Any) -> A2AApp:
    from examples.reservation import agent

    return A2AApp(agent, **options)


def scenarios(**options: Any) -> A2AApp:
    from tests.scenarios.agent import make_app

    return make_app(**options)


def asking(**options: Any) -> A2AApp:
    from tests.server.test_ownership import make_app

    return make_app(**options)


def faults(**options: Any) -> A2AApp:
    from tests.faults.agent import make_app

    return make_app(os.environ["FAULT_RUNS"], **options)


def failing(*, store: str, job_queue: CeleryQueue) -> A2AApp:
    from tests.faults.dying import Counter, make_app

    return make_app(Counter(), job_queue=job_queue)


def retrying(*, store: str, job_queue: CeleryQueue) -> A2AApp:
    from tests.faults.dying import RetryingCounter, make_app

    return make_app(RetryingCounter(), job_queue=job_queue)


def pushing(*, store: str, job_queue: CeleryQueue) -> A2AApp:
    from tests.faults.pushing import make_app

    return make_app(job_queue)


AGENTS: dict[str, Callable[..., A2AApp]] = {
    "reservation": reservation,
    "scenarios": scenarios,
    "asking": asking,
    "faults": faults,
    "tests.faults.dying:app()": failing,
    "tests.faults.dying:retrying()": retrying,
    "tests.faults.pushing:make_app()": pushing,
}


def make_site(environment: Mapping[str, str]) -> tuple[Celery, A2AApp]:
    """The Celery application and the app of one process."""
    celery = Celery("agents", broker=environment["A2A_TEST_BROKER"])
    celery.conf.update(
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 10},
    )
    make_app = AGENTS[environment["A2A_TEST_AGENT"]]
    return celery, make_app(store=environment["A2A_TEST_STORE"], job_queue=CeleryQueue(celery, drain_timeout=1.0))


if "A2A_TEST_BROKER" in os.environ:
    celery, app = make_site(os.environ)
