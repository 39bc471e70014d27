"""An agent whose runs Dramatiq executes: ``dramatiq tests.services.dramatiq_agent``."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from a2a_sync import A2AApp, Agent, Message, RequestContext
from a2a_sync.engine.jobs import FunctionQueue

dramatiq.set_broker(RedisBroker(url=os.environ["A2A_TEST_BROKER"]))


@dramatiq.actor(max_retries=0, time_limit=3_600_000)
def run(job: str) -> None:
    jobs.work(job)


agent = Agent("queued", description="Runs in Dramatiq workers.")


@agent.message
def handle(message: Message, context: RequestContext) -> str:
    return f"{message.text} by {os.getpid()}"


jobs = FunctionQueue(run.send)
app = A2AApp(agent, store=os.environ["A2A_TEST_STORE"], job_queue=jobs)
