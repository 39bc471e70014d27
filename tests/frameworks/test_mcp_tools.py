"""Tools of MCP servers inside agents: the session is opened once, on the loop that all runs share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from mcp import StdioServerParameters
from mcp.client import Client as McpClient
from pydantic_ai import Agent, Tool
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from a2a_sync import A2AApp, Client, RequestContext
from a2a_sync import Agent as Handler
from a2a_sync.integrations.pydantic_ai import PydanticAIBridge
from tests.live import ROOT

TIMEOUT = 90.0
SERVER = StdioServerParameters(command=sys.executable, args=["-m", "tests.frameworks.mcp_tools"], cwd=str(ROOT))


async def model(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        yield str(last.content)
    else:
        yield {0: DeltaToolCall(info.function_tools[0].name, "{}", tool_call_id="c1")}


async def make_agent() -> Agent:
    """An agent with the tools of a session that stays open, as the frameworks' own classes for MCP do."""
    session = McpClient(SERVER)
    await session.__aenter__()

    async def process() -> str:
        result = await session.call_tool("process", {})
        return str(result.content[0].text)

    return Agent(FunctionModel(stream_function=model), tools=[Tool(process)])


def test_all_runs_of_a_bridge_use_one_session() -> None:
    with A2AApp(PydanticAIBridge(make_agent, name="front")) as app, Client(app) as client:
        answers = {client.send("go", timeout=TIMEOUT).text for _ in range(5)}
    assert len(answers) == 1
    assert answers.pop().startswith("process ")


def test_a_session_may_be_opened_for_each_message_of_a_handler() -> None:
    agent = Handler("front")

    @agent.message
    async def answer(message: Any, context: RequestContext) -> AsyncIterator[str]:
        async with McpClient(SERVER) as session:
            result = await session.call_tool("process", {})
            yield str(result.content[0].text)

    with agent, Client(agent) as client:
        answers = {client.send("go", timeout=TIMEOUT).text for _ in range(2)}
    assert len(answers) == 2
