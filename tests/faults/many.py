"""A server for thousands of streams: ``gunicorn tests.faults.many:app``. Tasks wait until they are cancelled."""

from __future__ import annotations

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext

agent = Agent("many", description="Waits for a cancel")


@agent.message
def wait(message: Message, context: RequestContext) -> None:
    """Wait for a cancel, for at most ten minutes."""
    context.sleep(600)


app = A2AApp(agent, limits=Limits(max_open_streams=6000))
