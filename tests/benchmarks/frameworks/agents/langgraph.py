"""LangChain's agents behind `LangGraphBridge`; `langgraph dev` serves the graphs of this module by itself."""

from __future__ import annotations

from typing import Any

import aiosqlite
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.runtime import get_runtime

from a2a_sync.integrations.langgraph import LangGraphBridge
from tests.benchmarks.frameworks.work import FOLDER, Marking, with_images
from tests.frameworks.brain import SYSTEM, Price, think
from tests.frameworks.kit_langgraph import _ROLES
from tests.frameworks.kit_langgraph import Model as FakeModel


class Model(FakeModel):
    def _answer(self, messages: Any) -> Any:
        turns = [(_ROLES[one.type], str(one.text)) for one in messages if one.type in _ROLES]
        blocks = [block for one in messages if isinstance(one.content, list) for block in one.content]
        return think(with_images(turns, [one for one in blocks if isinstance(one, dict) and "image" in one["type"]]))


def agent(saver: Any = None, **options: Any) -> Any:
    tools = Marking()

    @tool
    def whoami(config: RunnableConfig) -> str:
        """Name the caller."""
        context = get_runtime().context
        user = config["configurable"].get("langgraph_auth_user_id")
        return str(context if isinstance(context, str) else user)

    listed = [tool(tools.add), tool(tools.wait), tool(tools.buy), whoami]
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"buy": {"allowed_decisions": ["approve", "reject"]}})]
    return create_agent(Model(), listed, system_prompt=SYSTEM, middleware=middleware, checkpointer=saver, **options)


def ours(kind: str) -> LangGraphBridge:
    async def made() -> Any:
        if kind == "prices":
            return prices(InMemorySaver())
        if kind == "speed":
            return agent(InMemorySaver())
        return agent(AsyncSqliteSaver(await aiosqlite.connect(FOLDER / "ours-graph.db")))

    return LangGraphBridge(made, name="shop", deps=lambda context: context.user and context.user.id)


def prices(saver: Any = None) -> Any:
    """An agent with a structured answer."""
    from langchain.agents.structured_output import ToolStrategy

    class Priced(Model):
        def _answer(self, messages: Any) -> Any:
            from tests.frameworks.brain import Call

            return [Call("Price", {"amount": 5})]

    return create_agent(Priced(), [], system_prompt=SYSTEM, response_format=ToolStrategy(Price), checkpointer=saver)


#: The graphs of ``langgraph.json``.
shop_graph, prices_graph = agent(), prices()
