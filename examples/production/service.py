"""The agent of the production layout: docs/howto/kubernetes.md and docs/howto/job-queues.md explain the files beside it.

Web servers run ``gunicorn service:app``, workers ``celery -A service:celery worker``. All settings come from the environment.
"""

from __future__ import annotations

import os

from celery import Celery

from a2a_sync import A2AApp, Agent, AgentSkill, HTTPOptions, Message, RequestContext
from a2a_sync.integrations.celery import CeleryQueue
from a2a_sync.stores import PostgresStore

celery = Celery("agents", broker=os.environ["BROKER"])
celery.conf.update(
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 10},
)
skill = AgentSkill(id="write", name="Write", description="Writes a report", tags=["example"])
agent = Agent("reports", description="Writes reports", skills=[skill], on_worker_lost="retry")


@agent.message
def write(message: Message, context: RequestContext) -> None:
    """Write the text word by word. The id makes a repeated run replace what a lost one has written."""
    with context.artifact("report", artifact_id=f"{message.message_id}-report") as report:
        for word in message.text.split():
            report.write(f"{word} ")
            context.sleep(0.05)


app = A2AApp(
    agent,
    # Through PgBouncer. `a2a-sync migrate` creates the tables.
    store=PostgresStore(os.environ["STORE"], create_tables=False),
    pubsub=os.environ["PUBSUB"],
    job_queue=CeleryQueue(celery, drain_timeout=30),
    http=HTTPOptions(trusted_proxies=int(os.environ.get("TRUSTED_PROXIES", "0"))),
)
