"""An agent whose runs wait until they are cancelled, with the default limits."""

from __future__ import annotations

from a2a_sync import A2AApp, Agent, Message, RequestContext

agent = Agent("patient", description="Waits")


@agent.message
def wait(message: Message, context: RequestContext) -> None:
    """Wait for a cancel, for at most a minute."""
    context.sleep(60)


app = A2AApp(agent)
