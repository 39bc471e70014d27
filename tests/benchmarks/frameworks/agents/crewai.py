"""CrewAI behind `CrewBridge`, and behind the functions of its module ``crewai.a2a``, which has no application of its own."""

from __future__ import annotations

from typing import Any

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from crewai import Agent
from crewai.a2a import A2AServerConfig
from crewai.a2a.utils.task import cancel, execute
from crewai.tools import tool

from a2a_sync.integrations.crewai import CrewBridge
from tests.benchmarks.frameworks.sdk import task_store, with_callers
from tests.benchmarks.frameworks.work import PORT, Marking
from tests.crewai.kit import Model
from tests.frameworks.brain import SYSTEM, Price

MODES = ["text/plain", "application/json", "image/png"]
URL = f"http://127.0.0.1:{PORT}/"


class AsyncModel(Model):
    """CrewAI's own server calls models without threads."""

    def supports_multimodal(self) -> bool:
        return True

    async def acall(self, *arguments: Any, **options: Any) -> Any:
        return self.call(*arguments, **options)


class Priced(AsyncModel):
    def answer(self, turns: Any) -> str:
        return '{"amount": 5}'


def agent(kind: str, caller: str = "", **options: Any) -> Agent:
    tools = Marking()

    @tool
    async def wait() -> str:
        """Wait for a long time."""
        return await tools.wait()

    @tool
    def whoami() -> str:
        """Name the caller."""
        return caller

    model = Priced() if kind == "prices" else AsyncModel()
    return Agent(role="shop", goal="sell", backstory=SYSTEM, llm=model, tools=[wait, whoami], **options)


def ours(kind: str) -> CrewBridge:
    def known(context: Any) -> Agent:
        return agent(kind, context.user.id)

    served = known if kind == "known" else agent(kind)
    return CrewBridge(served, name="shop", response_format=Price if kind == "prices" else None)


class Executor(AgentExecutor):
    def __init__(self, served: Agent) -> None:
        self._served = served

    async def execute(self, context: Any, event_queue: Any) -> None:
        await execute(self._served, context, event_queue)

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await cancel(context, event_queue)


def theirs(kind: str) -> Any:
    served = agent(kind, a2a=A2AServerConfig(name="shop", description="a shop", url=URL, default_input_modes=MODES))
    handler = DefaultRequestHandler(agent_executor=Executor(served), task_store=task_store(kind))
    return with_callers(A2AStarletteApplication(agent_card=served.to_agent_card(URL), http_handler=handler).build())
