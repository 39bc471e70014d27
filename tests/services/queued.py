"""An agent whose runs Celery executes: gunicorn serves ``tests.services.queued:app``, Celery works for ``…:celery``.

The text of a message chooses what happens; ``A2A_TEST_FOLDER`` has a file for each run that has begun and waits. Without
``A2A_TEST_BROKER``, gunicorn executes the runs. ``A2A_TEST_SENDS`` is how often each job is sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from celery import Celery

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext
from a2a_sync.engine.jobs import JobReference
from a2a_sync.integrations.celery import CeleryQueue

FOLDER = Path(os.environ["A2A_TEST_FOLDER"])

BROKER = os.environ.get("A2A_TEST_BROKER")


class RepeatingQueue(CeleryQueue):
    def send(self, job: JobReference) -> None:
        for _ in range(int(os.environ.get("A2A_TEST_SENDS", "1"))):
            super().send(job)


celery = Celery("agents", broker=BROKER)
celery.conf.update(
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 10},
)
agent = Agent("queued", description="Runs in Celery workers.", on_worker_lost="retry")


@agent.message
def handle(message: Message, context: RequestContext) -> Iterator[str] | str:
    kind, _, rest = message.text.partition(" ")
    if kind == "stream":
        return iter(rest.split())
    if kind == "ask":
        return f"{context.ask('Which size?')} pizza"
    if kind == "wait":
        return wait(context)
    if kind == "write":
        return write(context)
    return f"{message.text} by {os.getpid()}"


def wait(context: RequestContext) -> str:
    """Wait until the file ``go`` exists or the task is canceled."""
    (FOLDER / f"begun-{context.task_id}-{os.getpid()}").touch()
    canceled = threading.Event()
    context.on_cancel(canceled.set)
    while not (FOLDER / "go").exists():
        if canceled.wait(0.05):
            (FOLDER / f"canceled-{context.task_id}").touch()
            return "canceled"
    return f"done by {os.getpid()}"


def write(context: RequestContext) -> Iterator[str]:
    """Write the id of the process again and again, until the file ``go`` exists or a write is refused."""
    (FOLDER / f"begun-{context.task_id}-{os.getpid()}").touch()
    try:
        while not (FOLDER / "go").exists():
            yield f"{os.getpid()} "
            context.sleep(0.05)
    finally:
        (FOLDER / f"ended-{context.task_id}-{os.getpid()}").touch()


app = A2AApp(
    agent,
    store=os.environ["A2A_TEST_STORE"],
    job_queue=None if BROKER is None else RepeatingQueue(celery, drain_timeout=1.0),
    limits=Limits(worker_heartbeat_interval=1.0, store_poll_interval=0.2),
)
