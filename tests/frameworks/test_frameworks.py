"""Agent frameworks accept the function of `Client.as_tool`: they derive a schema from it and call it as a tool. No model is called.

These tests need packages that `make test` does not install: ``make frameworks``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import Agent, AgentSkill, Client, InputRequired, Message, TaskArtifactUpdateEvent

langchain = pytest.importorskip("langchain_core.tools")
pydantic_ai = pytest.importorskip("pydantic_ai")
agents = pytest.importorskip("agents")

CONVERT = AgentSkill(id="convert", name="Convert", description="Converts an amount", tags=["money"])


@pytest.fixture
def client() -> Iterator[Client]:
    currency = Agent("Currency Agent", description="Knows currencies.", skills=[CONVERT])

    @currency.message
    def answer(message: Message, context: Any) -> Any:
        if "EUR" not in message.text:
            return InputRequired("From which currency?")
        return f"{context.metadata.get('skillId', 'any')}: 5.40 USD"

    with Client(currency) as client:
        yield client
    currency.close()


def task_id_of_question(text: str) -> str:
    assert text.startswith("From which currency?")
    return text.split('"')[1]


def check_parameters(schema: dict[str, Any]) -> None:
    """Assert that both parameters are strings with a description."""
    assert {name: about["type"] for name, about in schema["properties"].items()} == {
        "message": "string",
        "task_id": "string",
    }
    assert "message" in schema["required"]
    assert schema["properties"]["message"]["description"].startswith("What you want of the agent")
    assert schema["properties"]["task_id"]["description"].startswith("Leave it empty")


# -- LangChain ----------------------------------------------------------------------------------------------------------


def test_langchain_derives_a_schema(client: Client) -> None:
    tool = langchain.StructuredTool.from_function(client.as_tool(), parse_docstring=True)
    assert (tool.name, tool.description) == ("currency_agent", "Knows currencies. It can: Convert (Converts an amount)")
    check_parameters(tool.args_schema.model_json_schema())


def test_langchain_calls_the_tool_and_answers_its_question(client: Client) -> None:
    tool = langchain.tool(client.as_tool("convert"))
    assert tool.name == "currency_agent_convert"
    task_id = task_id_of_question(tool.invoke({"message": "5 in USD"}))
    assert tool.invoke({"message": "EUR", "task_id": task_id}) == "convert: 5.40 USD"
    call = {"name": tool.name, "args": {"message": "5 EUR"}, "id": "c1", "type": "tool_call"}
    assert asyncio.run(tool.ainvoke(call)).content == "convert: 5.40 USD"


# -- Pydantic AI --------------------------------------------------------------------------------------------------------


def test_pydantic_ai_derives_a_schema(client: Client) -> None:
    tool = pydantic_ai.Tool(client.as_tool(), require_parameter_descriptions=True)
    assert (tool.name, tool.description) == ("currency_agent", "Knows currencies. It can: Convert (Converts an amount)")
    check_parameters(tool.function_schema.json_schema)


def test_pydantic_ai_calls_the_tool_in_a_run(client: Client) -> None:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    tool_results: list[str] = []

    def model(messages: list[Any], info: Any) -> Any:
        last = messages[-1].parts[-1]
        if last.part_kind == "user-prompt":
            return ModelResponse([ToolCallPart("currency_agent_convert", {"message": "5 in USD"})])
        tool_results.append(last.content)
        if len(tool_results) == 1:
            answer = {"message": "EUR", "task_id": task_id_of_question(tool_results[0])}
            return ModelResponse([ToolCallPart("currency_agent_convert", answer)])
        return ModelResponse([TextPart("done")])

    agent = pydantic_ai.Agent(FunctionModel(model), tools=[client.as_tool("convert")])
    assert asyncio.run(agent.run("How much is it?")).output == "done"
    assert tool_results[1] == "convert: 5.40 USD"


def test_a_handler_may_yield_inside_a_pydantic_ai_stream() -> None:
    """Pydantic AI streams inside a cancel scope, which must be entered and left by the same asyncio task."""
    from pydantic_ai.models.function import FunctionModel

    async def model(messages: list[Any], info: Any) -> Any:
        for word in ("It ", "is ", "5."):
            yield word

    model_agent = pydantic_ai.Agent(FunctionModel(stream_function=model))
    served = Agent("streams")

    @served.message
    async def answer(message: Message, context: Any) -> Any:
        async with model_agent.run_stream(message.text) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                yield piece

    with served, Client(served) as client:
        assert client.send("How much is it?").text == "It is 5."
        with client.stream("How much is it?") as stream:
            pieces = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
        assert pieces == ["It ", "is ", "5.", "It is 5."]


# -- OpenAI Agents ------------------------------------------------------------------------------------------------------


def test_openai_agents_derives_a_schema(client: Client) -> None:
    tool = agents.function_tool(client.as_tool())
    assert (tool.name, tool.description) == ("currency_agent", "Knows currencies. It can: Convert (Converts an amount)")
    check_parameters(tool.params_json_schema)
    assert tool.strict_json_schema


def test_openai_agents_calls_the_tool_and_answers_its_question(client: Client) -> None:
    from agents.tool_context import ToolContext

    tool = agents.function_tool(client.as_tool("convert"))

    def invoke(**arguments: str) -> str:
        text = json.dumps(arguments)
        context = ToolContext(context=None, tool_name=tool.name, tool_call_id="c1", tool_arguments=text)
        return str(asyncio.run(tool.on_invoke_tool(context, text)))

    task_id = task_id_of_question(invoke(message="5 in USD", task_id=""))
    assert invoke(message="EUR", task_id=task_id) == "convert: 5.40 USD"
