"""Limits, guardrails, external tools and files of single frameworks: how their runs end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Client, DataPart, FilePart, Task, TaskState
from a2a_sync.integrations.bridge import Bridge
from tests.frameworks.brain import SYSTEM, TIMEOUT, Tools

S = TaskState


def ask(bridge: Bridge, *texts: str | DataPart) -> Task:
    """The task after these messages, which all belong to it."""
    with A2AApp(bridge) as app, Client(app) as client:
        task = client.send(texts[0], timeout=TIMEOUT).task
        for text in texts[1:]:
            task = client.send(text, task_id=task.id, timeout=TIMEOUT).task
        return task


def end(task: Task) -> tuple[TaskState, str]:
    return task.state, task.text


def test_pydantic_ai_stops_at_its_usage_limits() -> None:
    from pydantic_ai.usage import UsageLimits

    from tests.frameworks.kit_pydantic_ai import Kit

    bridge = Kit(Tools()).make(run={"usage_limits": UsageLimits(request_limit=1)})
    assert end(ask(bridge, "add")) == (S.FAILED, "the agent has used as much as it may")


def test_pydantic_ai_asks_for_the_result_of_an_external_tool() -> None:
    from collections.abc import AsyncIterator

    from pydantic_ai import Agent, CallDeferred, Tool
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    from a2a_sync.integrations.pydantic_ai import PydanticAIBridge

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        part = messages[-1].parts[-1]
        if part.part_kind == "tool-return":
            yield f"It is {part.content}."
        else:
            yield {0: DeltaToolCall("look", '{"question": "Which colour?"}', tool_call_id="c1")}

    def look(question: str) -> str:
        raise CallDeferred

    bridge = PydanticAIBridge(Agent(FunctionModel(stream_function=stream), tools=[Tool(look)]), name="looks")
    assert end(ask(bridge, "what is it?")) == (S.INPUT_REQUIRED, "Which colour?")
    assert end(ask(bridge, "what is it?", "red")) == (S.COMPLETED, "It is red.")


def test_the_stream_hooks_of_a_pydantic_ai_agent_see_the_events_and_each_piece_is_sent_once() -> None:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import Hooks
    from pydantic_ai.models.function import FunctionModel

    from a2a_sync.integrations.pydantic_ai import PydanticAIBridge
    from tests.frameworks.kit_pydantic_ai import Kit

    async def observe(context: Any, event: Any) -> None:
        seen.append(event.event_kind)

    seen: list[str] = []
    hooks: Any = Hooks()
    hooks.on.event(observe)
    kit = Kit(Tools())
    tools = [kit.tools.add]
    agent = Agent(FunctionModel(stream_function=kit._stream), tools=tools, instructions=SYSTEM, capabilities=[hooks])
    task = ask(PydanticAIBridge(agent, name="shop"), "add")
    assert end(task) == (S.COMPLETED, "Done: 3.")
    assert {"part_start", "part_delta", "function_tool_call", "function_tool_result"} <= set(seen)


def test_openai_agents_stops_after_too_many_turns() -> None:
    from tests.frameworks.kit_openai_agents import Kit

    bridge = Kit(Tools()).make(run={"max_turns": 1})
    assert end(ask(bridge, "add")) == (S.FAILED, "the agent took too many steps")


def test_openai_agents_rejects_what_a_guardrail_refuses() -> None:
    from agents import Agent, GuardrailFunctionOutput, input_guardrail

    from a2a_sync.integrations.openai_agents import OpenAIAgentsBridge
    from tests.frameworks.kit_openai_agents import FakeModel

    @input_guardrail
    async def refuse(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent = Agent("guarded", instructions=SYSTEM, model=FakeModel(), input_guardrails=[refuse])
    assert end(ask(OpenAIAgentsBridge(agent), "hi")) == (S.REJECTED, "a guardrail of the agent refused the message")


def test_strands_rejects_what_a_guardrail_stops() -> None:
    from collections.abc import AsyncIterator

    from strands import Agent

    from a2a_sync.integrations.strands import StrandsBridge
    from tests.frameworks.kit_strands import FakeModel

    class Guarded(FakeModel):
        async def stream(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
            yield {"messageStart": {"role": "assistant"}}
            yield {"messageStop": {"stopReason": "guardrail_intervened"}}

    bridge = StrandsBridge(lambda context: Agent(model=Guarded()), name="guarded")
    assert end(ask(bridge, "hi")) == (S.REJECTED, "a guardrail of the agent intervened")


def test_an_image_that_pydantic_ai_returns_is_an_artifact() -> None:
    from collections.abc import AsyncIterator

    from pydantic_ai import Agent
    from pydantic_ai.messages import BinaryContent
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    from a2a_sync.integrations.pydantic_ai import PydanticAIBridge

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall(info.output_tools[0].name, '{"what": "boat"}', tool_call_id="c1")}

    def paint(what: str) -> Any:
        return BinaryContent(data=what.encode(), media_type="image/png")

    agent = Agent(FunctionModel(stream_function=stream), output_type=paint)
    (artifact,) = ask(PydanticAIBridge(agent, name="painter"), "a boat").artifacts
    assert artifact.parts == (FilePart(raw=b"boat", media_type="image/png"),)


def test_data_that_the_agent_framework_returns_is_an_artifact() -> None:
    from agent_framework import Agent, ChatResponseUpdate, Content

    from a2a_sync.integrations.agent_framework import AgentFrameworkBridge
    from tests.frameworks.kit_agent_framework import FakeClient

    class Painter(FakeClient):
        async def _stream(self, messages: Any) -> Any:
            image = Content.from_data(b"boat", media_type="image/png")
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text("Here."), image], message_id="m")

    agent = Agent(client=Painter(), instructions=SYSTEM)
    answer, file = ask(AgentFrameworkBridge(agent, name="painter"), "a boat").artifacts
    assert (file.parts, answer.text) == ((FilePart(raw=b"boat", media_type="image/png"),), "Here.")


# LlamaIndex reads all attributes of its agents, also those that Pydantic has deprecated.
@pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated")
@pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated")
def test_an_answer_that_llamaindex_keeps_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

    from a2a_sync.integrations.llamaindex import LlamaIndexBridge
    from tests.frameworks.kit_llamaindex import FakeModel

    async def buy(ctx: Context, what: str) -> str:
        """Buy something."""
        form = await ctx.store.get("form", default={})
        for name in [one for one in ("address", "size") if one not in form]:
            asked = InputRequiredEvent(prefix=f"Which {name}?", name=name)
            answer = await ctx.wait_for_event(
                HumanResponseEvent, waiter_event=asked, waiter_id=name, requirements={"name": name}
            )
            form[name] = answer.response
            await ctx.store.set("form", form)
        return str(form)

    # Types, not text: LlamaIndex evaluates annotations outside this function.
    buy.__annotations__ = {"ctx": Context, "what": str, "return": str}
    (tmp_path / "side_effect.py").write_text("from pydantic import BaseModel\n\nclass Size(BaseModel): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = {"__is_pydantic": True, "qualified_name": "side_effect.Size", "value": {}}
    agent = FunctionAgent(llm=FakeModel(images=[]), tools=[buy], system_prompt=SYSTEM, timeout=None)
    bridge = LlamaIndexBridge(agent, name="shop")
    task = ask(bridge, "buy", DataPart({"1": {"in": data}}), "large")
    assert (task.state, "side_effect.Size" in task.text) == (S.COMPLETED, True)
    assert "side_effect" not in sys.modules


# LlamaIndex reads all attributes of its agents, also those that Pydantic has deprecated.
@pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated")
@pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated")
@pytest.mark.parametrize("wrapped", [False, True], ids=["agent", "workflow with its own serializer"])
def test_data_that_a_tool_keeps_in_a_context_of_llamaindex_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: bool
) -> None:
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
    from workflows.context.serializers import JsonSerializer

    from a2a_sync.integrations.llamaindex import LlamaIndexBridge
    from tests.frameworks.kit_llamaindex import FakeModel

    # What callers have a model pass to a tool.
    data = {"__is_component": True, "qualified_name": "side_effect_2.Size", "value": {}}

    async def buy(ctx: Context, what: str) -> str:
        """Buy something."""
        if await ctx.store.get("cart", default=None) is None:
            await ctx.store.set("cart", {"lines": [{"size": data}, {"size": 2}]})
        answer = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=InputRequiredEvent(prefix="Which size?"),
            waiter_id="size",
        )
        return f"{answer.response}: {await ctx.store.get('cart')}"

    # Types, not text: LlamaIndex evaluates annotations outside this function.
    buy.__annotations__ = {"ctx": Context, "what": str, "return": str}
    (tmp_path / "side_effect_2.py").write_text("class Size:\n    from_dict = staticmethod(str)\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent: Any = FunctionAgent(llm=FakeModel(images=[]), tools=[buy], system_prompt=SYSTEM, timeout=None)
    if wrapped:
        agent = AgentWorkflow(agents=[agent], timeout=None, serializer=JsonSerializer())
    task = ask(LlamaIndexBridge(agent, name="shop"), "buy", "large")
    assert (task.state, "large" in task.text) == (S.COMPLETED, True)
    assert "side_effect_2.Size" in task.text
    assert "{'size': 2}" in task.text
    assert "side_effect_2" not in sys.modules


# LlamaIndex reads all attributes of its agents, also those that Pydantic has deprecated.
@pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated")
@pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated")
def test_a_workflow_of_llamaindex_that_would_execute_pickled_messages_is_not_run() -> None:
    from llama_index.core.agent.workflow import AgentWorkflow
    from workflows.context.serializers import PickleSerializer

    from a2a_sync.integrations.llamaindex import LlamaIndexBridge
    from tests.frameworks.kit_llamaindex import Kit

    workflow = AgentWorkflow(agents=[Kit(Tools()).agent()], timeout=None, serializer=PickleSerializer())
    assert ask(LlamaIndexBridge(workflow, name="shop"), "hello").state is S.FAILED
