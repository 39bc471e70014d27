"""Our agent for every peer, with all that it can do: ``gunicorn tests.peers.our_agent:app``."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from a2a_sync import A2AApp, Limits, Message, RequestContext
from tests.scenarios.agent import ScenarioAgent


class PeersAgent(ScenarioAgent):
    """Does what the scenario asks for; a message that needs no task gets none."""

    name = "scenario"
    direct = True

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        # To look at the task would be to ask for one.
        return (
            context.agent_message("no task was needed")
            if message.text == "message"
            else super().handle_message(message, context)
        )


# A busy machine may take its time to answer without a task.
LIMITS = Limits(
    busy_task_timeout=5.0, disconnect_check_interval=0.2, stream_keepalive_interval=1.0, direct_reply_timeout=2.0
)
AGENT = PeersAgent()
app = A2AApp(
    AGENT,
    store=os.environ.get("PEER_STORE"),
    limits=LIMITS,
    push=True,
    extended_card=replace(AGENT.describe(), description="For callers that are known"),
)
