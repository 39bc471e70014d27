"""A host of several agents over a store from the environment, for servers with several workers."""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import Agent, AgentHost, Limits, Message
from a2a_sync.server.metrics import Metrics


def named(name: str, **attributes: Any) -> Agent:
    """Answers with its name and the text; ``wait`` runs until it is cancelled."""
    agent = Agent(name, description=f"The agent {name}", **attributes)

    @agent.message
    def answer(message: Message, context: Any) -> str:
        if message.text == "wait":
            context.sleep(60)
        return f"{name}: {message.text}"

    return agent


def host() -> AgentHost:
    metrics = Metrics() if "PROMETHEUS_MULTIPROC_DIR" in os.environ else None
    agents = {name: named(name) for name in ("one", "two", "three")}
    return AgentHost(
        agents, store=os.environ.get("MANY_STORE"), limits=Limits(worker_heartbeat_interval=0.5), metrics=metrics
    )
