"""Pydantic AI behind `PydanticAIBridge`, and behind fasta2a."""

from __future__ import annotations

from typing import Any

from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.models.function import FunctionModel

from a2a_sync.integrations.pydantic_ai import PydanticAIBridge
from tests.benchmarks.frameworks.work import PORT, Marking, with_images
from tests.frameworks.brain import SYSTEM
from tests.frameworks.kit_pydantic_ai import Kit


class Shop(Kit):
    def _turns(self, messages: Any) -> Any:
        self.images = []
        return with_images(super()._turns(messages), self.images)


def agent(kind: str) -> Any:
    shop = Shop(Marking())
    if kind == "prices":
        return shop.structured()._given

    def whoami(context: RunContext[Any]) -> str:
        return str(context.deps)

    tools = [shop.tools.add, shop.tools.wait, whoami, Tool(shop.tools.buy, requires_approval=True)]
    model = FunctionModel(stream_function=shop._stream)
    return Agent(model, tools=tools, system_prompt=SYSTEM, instructions=SYSTEM, name="shop")


def ours(kind: str) -> PydanticAIBridge:
    return PydanticAIBridge(agent(kind), name="shop", deps=lambda context: context.user and context.user.id)


def theirs(kind: str) -> Any:
    # It has no storage but the one in memory, and nothing passes the caller to the agent.
    return agent_to_a2a(agent(kind), name="shop", url=f"http://127.0.0.1:{PORT}", description="a shop")
