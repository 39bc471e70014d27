"""This library's agent for all peers, with all features enabled: ``gunicorn tests.peers.our_agent:app``."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from a2a_sync import A2AApp, Limits, Message, RequestContext
from tests.scenarios.agent import ScenarioAgent


class PeersAgent(ScenarioAgent):
    """The scenario agent; ``message`` is answered without a task."""

    name = "scenario"
    direct = True

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        # Reading `context.task` would create a task.
        return (
            context.agent_message("no task was needed")
            if message.text == "message"
            else super().handle_message(message, context)
        )


# Long enough for an answer without a task on a loaded machine.
LIMITS = Limits(
    busy_task_timeout=5.0, disconnect_check_interval=0.2, stream_keepalive_interval=1.0, direct_reply_timeout=2.0
)
AGENT = PeersAgent()
app = A2AApp(
    AGENT,
    store=os.environ.get("PEER_STORE"),
    limits=LIMITS,
    push=True,
    extended_card=replace(AGENT.describe(), description="For authenticated callers"),
)
