"""An agent whose runs RQ executes: ``rq worker --url redis://… a2a``."""

from __future__ import annotations

import os

from redis import Redis
from rq import Queue

from a2a_sync import A2AApp, Agent, Message, RequestContext
from a2a_sync.engine.jobs import FunctionQueue

queue = Queue("a2a", connection=Redis.from_url(os.environ["A2A_TEST_BROKER"]))
agent = Agent("queued", description="Runs in RQ workers.")


@agent.message
def handle(message: Message, context: RequestContext) -> str:
    return f"{message.text} by {os.getpid()}"


def send(job: str) -> None:
    # The description is what the log of the worker shows: by default the arguments, with the token of the run.
    queue.enqueue("tests.services.rq_agent.run", job, description="a run", result_ttl=0, job_timeout=3600)


def run(job: str) -> None:
    jobs.work(job)


jobs = FunctionQueue(send)
app = A2AApp(agent, store=os.environ["A2A_TEST_STORE"], job_queue=jobs)
