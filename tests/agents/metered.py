"""An agent with metrics, for several workers."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Agent, Message, RequestContext
from a2a_sync.server.metrics import Metrics

agent = Agent("metered", description="Is counted")


@agent.message
def answer(message: Message, context: RequestContext) -> str:
    """Answers immediately."""
    return "counted"


app = A2AApp(agent, store=os.environ.get("METERED_STORE"), metrics=Metrics())
