"""A host of several agents over a store that the environment names, for servers of several workers."""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import Agent, AgentHost, Limits, Message
from a2a_sync.server.metrics import Metrics


def named(name: str, **attributes: Any) -> Agent:
    """An agent that says its name before what it was told; ``wait`` makes it wait."""
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
