"""An agent of Pydantic AI: its tool requires an approval."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from a2a_sync import A2AApp
from a2a_sync.integrations.pydantic_ai import PydanticAIBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


def buy(what: str) -> str:
    """Buy something."""
    return f"you have bought a {what}"


async def pretend(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
    """A model without a network."""
    last = messages[-1].parts[-1]
    text = last.content if isinstance(last.content, str) else " ".join(map(str, last.content))
    if last.part_kind == "user-prompt" and (what := wish(text)):
        yield {0: DeltaToolCall("buy", json.dumps({"what": what}), tool_call_id=f"call-{len(messages)}")}
        return
    for word in answer(text, text if last.part_kind == "tool-return" else ""):
        yield word


model = f"openai:{MODEL}" if OPENAI else FunctionModel(stream_function=pretend)
agent = Agent(model, instructions=INSTRUCTIONS, tools=[Tool(buy, requires_approval=True)])
app = A2AApp(PydanticAIBridge(agent, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
