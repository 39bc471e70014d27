"""The Google ADK behind `ADKExecutor`, and behind its `to_a2a`."""

from __future__ import annotations

from typing import Any

from google.adk.a2a.converters.request_converter import convert_a2a_request_to_agent_run_request
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor
from google.adk.a2a.executor.config import A2aAgentExecutorConfig
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, ToolContext

from a2a_sync.integrations.adk import ADKExecutor
from tests.benchmarks.frameworks.sdk import task_store, with_callers
from tests.benchmarks.frameworks.work import FOLDER, PORT, Marking, with_images
from tests.frameworks.brain import SYSTEM, Price
from tests.frameworks.kit_adk import Model as FakeModel


class Model(FakeModel):
    def _turns(self, contents: Any) -> Any:
        self.images.clear()
        return with_images(super()._turns(contents), self.images)


class Priced(Model):
    def answer(self, contents: Any) -> Any:
        return '{"amount": 5}'


def whoami(tool_context: ToolContext) -> str:
    """Name the caller."""
    return tool_context.user_id


def agent(kind: str) -> LlmAgent:
    if kind == "prices":
        return LlmAgent(name="shop", model=Priced(), instruction=SYSTEM, output_schema=Price)
    tools = Marking()
    listed = [tools.add, tools.wait, whoami, FunctionTool(tools.buy, require_confirmation=True)]
    return LlmAgent(name="shop", model=Model(), instruction=SYSTEM, tools=listed, description="a shop")


def runner(kind: str, side: str) -> Runner:
    sessions = (
        InMemorySessionService() if kind == "speed" else SqliteSessionService(str(FOLDER / f"{side}-sessions.db"))
    )
    return Runner(agent=agent(kind), app_name="shop", session_service=sessions)


def ours(kind: str) -> ADKExecutor:
    return ADKExecutor(lambda: runner(kind, "ours"), name="shop")


def streamed(request: Any, part_converter: Any) -> Any:
    made = convert_a2a_request_to_agent_run_request(request, part_converter)
    made.run_config.streaming_mode = StreamingMode.SSE
    return made


def theirs(kind: str) -> Any:
    def executor(runner: Runner) -> A2aAgentExecutor:
        # Without this converter the model is not streamed.
        return A2aAgentExecutor(
            runner=runner, force_new_version=True, config=A2aAgentExecutorConfig(request_converter=streamed)
        )

    served = runner(kind, "theirs")
    options = {"runner": served, "task_store": task_store(kind), "agent_executor_factory": executor}
    return with_callers(to_a2a(served.agent, host="127.0.0.1", port=PORT, **options))
