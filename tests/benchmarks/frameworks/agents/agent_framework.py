"""The Microsoft Agent Framework behind `AgentFrameworkBridge`, and behind its `A2AExecutor`."""

from __future__ import annotations

from typing import Any

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import Agent, FileHistoryProvider, FunctionInvocationContext, tool
from agent_framework.a2a import A2AExecutor
from starlette.applications import Starlette

from a2a_sync.integrations.agent_framework import AgentFrameworkBridge
from tests.benchmarks.frameworks.sdk import task_store, with_callers
from tests.benchmarks.frameworks.work import FOLDER, PORT, Marking, with_images
from tests.frameworks.brain import SYSTEM, Price
from tests.frameworks.kit_agent_framework import FakeClient


class Model(FakeClient):
    def _turns(self, messages: Any) -> Any:
        self.images = []
        return with_images(super()._turns(messages), self.images)


class Priced(Model):
    def answer(self, messages: Any) -> Any:
        return '{"amount": 5}'


def agent(kind: str, **options: Any) -> Agent:
    if kind == "prices":
        return Agent(client=Priced(), instructions=SYSTEM, default_options={"response_format": Price}, **options)
    tools = Marking()

    @tool
    def whoami(ctx: FunctionInvocationContext) -> str:
        """Name the caller."""
        return str(ctx.kwargs.get("deps"))

    buy = tool(tools.buy, name="buy", approval_mode="always_require")
    listed = [tool(tools.add, name="add"), tool(tools.wait, name="wait"), whoami, buy]
    return Agent(client=Model(), instructions=SYSTEM, tools=listed, name="shop", **options)


def ours(kind: str) -> AgentFrameworkBridge:
    return AgentFrameworkBridge(agent(kind), name="shop", deps=lambda context: context.user and context.user.id)


def theirs(kind: str) -> Any:
    # Without a provider of its own each message is a conversation.
    kept = {} if kind == "speed" else {"context_providers": [FileHistoryProvider(FOLDER / "history")]}
    card = AgentCard(
        name="shop",
        description="a shop",
        version="1",
        default_input_modes=["text"],
        default_output_modes=["text"],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{PORT}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
    )
    executor = A2AExecutor(agent(kind, **kept), stream=True)
    handler = DefaultRequestHandler(agent_executor=executor, task_store=task_store(kind), agent_card=card)
    return with_callers(Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]))
