"""A server for thousands of streams: ``gunicorn tests.faults.many:app``. Tasks wait until they are cancelled."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext

agent = Agent("many", description="Waits for a cancel")


@agent.message
def wait(message: Message, context: RequestContext) -> None:
    """Wait for a cancel, for at most ten minutes."""
    context.sleep(600)


app = A2AApp(
    agent,
    store=os.environ.get("MANY_STORE"),
    limits=Limits(max_open_streams=int(os.environ.get("MANY_STREAMS", "6000"))),
)
