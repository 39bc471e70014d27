"""The agent of the chaos run: gunicorn serves ``tests.soak.hosts_agent:app``, Celery works for ``…:celery``.

``count N`` streams N numbers with pauses, ``hold`` waits for its cancel. `CHAOS_FOLDER` has a file for each run of ``hold`` whose
code has not returned.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from a2a_sync import A2AApp, Agent, Limits, Message, PushOptions, RequestContext, URLGuard
from a2a_sync.integrations.celery import CeleryQueue
from a2a_sync.stores import PostgresStore

#: The host of the webhooks.
RECEIVER = "127.0.0.4"

agent = Agent("chaos", description="Counts, while processes die", on_worker_lost="retry")


@agent.message
def handle(message: Message, context: RequestContext) -> None:
    """``NUMBER count N`` or ``NUMBER hold``; each message begins with a number of its own."""
    _, command, *count = message.text.split()
    if command == "hold":
        hold(context)
        return
    # With an id of its own, what a lost run has sent is replaced by the run that replaces it.
    with context.artifact("numbers", artifact_id=f"{message.message_id}-numbers") as numbers:
        for number in range(int(count[0])):
            numbers.write(f"{number} ")
            context.sleep(0.1)


def hold(context: RequestContext) -> None:
    held = Path(os.environ["CHAOS_FOLDER"], f"{context.task_id}.{os.getpid()}")
    held.touch()
    try:
        context.sleep(600)
    finally:
        held.unlink()


if "CHAOS_STORE" in os.environ:
    celery = Celery("chaos", broker=os.environ["CHAOS_REDIS"])
    celery.conf.update(
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 10},
    )
    app = A2AApp(
        agent,
        store=PostgresStore(os.environ["CHAOS_STORE"], pool=4),
        pubsub=os.environ["CHAOS_REDIS"],
        job_queue=CeleryQueue(celery, drain_timeout=2.0),
        limits=Limits(worker_heartbeat_interval=2.0, max_run_attempts=50),
        push=PushOptions(
            url_guard=URLGuard(allow=[RECEIVER]), timeout=5.0, initial_backoff=0.2, max_backoff=2.0, max_attempts=1000
        ),
    )
