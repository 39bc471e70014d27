"""An agent whose processes kill themselves: gunicorn serves ``tests.services.dying:app``, Celery works for ``…:celery``.

The process that reaches a step whose name a file in ``A2A_TEST_FOLDER`` has removes the file and kills itself.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext
from a2a_sync.engine.jobs import JobReference
from a2a_sync.integrations.celery import CeleryQueue

#: The steps of a run from the web process to a worker.
STEPS = ("stored", "sent", "received", "adopted", "begun", "ended")


def die_at(step: str) -> None:
    try:
        Path(os.environ["A2A_TEST_FOLDER"], step).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DyingQueue(CeleryQueue):
    def send(self, job: JobReference) -> None:
        die_at("stored")
        super().send(job)
        die_at("sent")

    def _work(self, *fields: str) -> None:
        die_at("received")
        super()._work(*fields)
        die_at("ended")


agent = Agent("dying", description="Its processes die.", on_worker_lost="retry")


@agent.message
def handle(message: Message, context: RequestContext) -> str:
    die_at("begun")
    return f"{message.text}!"


if "A2A_TEST_BROKER" in os.environ:
    celery = Celery("agents", broker=os.environ["A2A_TEST_BROKER"])
    celery.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)
    app = A2AApp(
        agent,
        store=os.environ["A2A_TEST_STORE"],
        job_queue=DyingQueue(celery, drain_timeout=1.0),
        limits=Limits(worker_heartbeat_interval=1.0),
    )
    workers: Any = app.store.workers
    adopt = workers.adopt

    def adopt_and_die(*arguments: Any) -> Any:
        adopted = adopt(*arguments)
        die_at("adopted")
        return adopted

    workers.adopt = adopt_and_die
