"""Strands behind `StrandsBridge`, and behind its `A2AServer`."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.multiagent.a2a import A2AServer
from strands.session.file_session_manager import FileSessionManager

from a2a_sync.integrations.strands import StrandsBridge
from tests.benchmarks.frameworks.sdk import task_store, with_callers
from tests.benchmarks.frameworks.work import FOLDER, PORT, Marking, with_images
from tests.frameworks.brain import SYSTEM, Call, Price
from tests.frameworks.kit_strands import FakeModel


class Model(FakeModel):
    def _turns(self, messages: Any) -> Any:
        self.images = []
        return with_images(super()._turns(messages), self.images)


class Priced(Model):
    def answer(self, messages: Any) -> Any:
        return [Call("Price", {"amount": 5})]


def approve(event: BeforeToolCallEvent) -> None:
    use = event.tool_use
    if use["name"] == "buy":
        reason = {"kind": "approval", "tool": "buy", "arguments": use["input"], "text": "Buy it?"}
        if event.interrupt("approve", reason=reason) is not True:
            event.cancel_tool = "not approved"


@tool(context=True)
def whoami(tool_context: ToolContext) -> str:
    """Name the caller."""
    state = tool_context.invocation_state
    request = state.get("a2a_request_context")
    return str(state["deps"] if request is None else request.call_context.user.user_name)


def make(kind: str, **options: Any) -> Agent:
    about = {"name": "shop", "description": "a shop", "callback_handler": None}
    if kind == "prices":
        return Agent(model=Priced(), system_prompt=SYSTEM, structured_output_model=Price, **about, **options)
    tools = Marking()
    listed = [tool(tools.add), tool(tools.buy), tool(tools.wait), whoami]
    agent = Agent(model=Model(), tools=listed, system_prompt=SYSTEM, **about, **options)
    agent.add_hook(approve, BeforeToolCallEvent)
    return agent


def ours(kind: str) -> StrandsBridge:
    return StrandsBridge(lambda context: make(kind), name="shop", deps=lambda context: context.user and context.user.id)


def theirs(kind: str) -> Any:
    def with_session(context_id: str) -> Agent:
        if kind == "speed":
            return make(kind)
        return make(kind, session_manager=FileSessionManager(context_id, str(FOLDER / "sessions")))

    options = {"task_store": task_store(kind), "enable_a2a_compliant_streaming": True}
    return with_callers(A2AServer(agent_factory=with_session, port=PORT, **options).to_starlette_app())
