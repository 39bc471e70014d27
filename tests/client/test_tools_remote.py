"""`RemoteTool`: its entry in a table of tools, and the results of its handler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_sync import Agent, Client, DataPart, Failed, InputRequired, Rejected
from a2a_sync.client import RemoteTool
from a2a_sync.errors import ConnectError
from a2a_sync.types import Message, Part


def echo(message: Message) -> Any:
    return [describe(part) for part in message.parts]


def describe(part: Part) -> str:
    return json.dumps(part.data) if isinstance(part, DataPart) else getattr(part, "text", "?")


@pytest.fixture
def tool_of():
    """The tool for an agent with this handler."""
    made: list[Any] = []

    def tool_of(handler: Any, **options: Any) -> RemoteTool:
        agent = Agent("remote")
        agent.message(lambda message, context: handler(message))
        client = Client(agent)
        made.extend((client, agent))
        return RemoteTool(client, **options)

    yield tool_of
    for one in made:
        one.close()


def test_it_has_a_name_a_description_and_a_schema(tool_of: Any) -> None:
    tool = tool_of(echo)
    assert tool.tool() == {
        "name": "remote_agent",
        "description": "Call a remote AI agent to perform a task",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The query or task to send to the remote agent"}},
            "required": ["query"],
        },
    }
    assert (tool.name, tool.description, tool.schema["required"]) == (
        "remote_agent",
        tool.tool()["description"],
        ["query"],
    )


def test_all_three_can_be_given(tool_of: Any) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = tool_of(echo, name="weather", description="Knows the weather", schema=schema)
    assert tool.tool() == {"name": "weather", "description": "Knows the weather", "parameters": schema}


@pytest.mark.parametrize("arguments", ['{"query": "hi"}', b'{"query": "hi"}', {"query": "hi"}])
def test_the_handler_takes_json_or_a_dictionary(tool_of: Any, arguments: Any) -> None:
    assert tool_of(echo).handler(arguments) == "hi"


def test_arguments_of_another_schema_reach_the_agent_as_data(tool_of: Any) -> None:
    assert tool_of(echo).handler({"query": "hi", "city": "Rome"}) == 'hi{"city": "Rome"}'
    assert tool_of(echo).handler({"city": "Rome"}) == '{"city": "Rome"}'


@pytest.mark.parametrize("arguments", ["{", "[]", "{}", '{"query": ""}', '{"query": 5}', b"\xff"])
def test_what_is_no_input_is_a_value_error(tool_of: Any, arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"^invalid input: "):
        tool_of(echo).handler(arguments)


def test_an_agent_that_cannot_be_called_is_a_runtime_error_with_its_cause() -> None:
    with Client("http://127.0.0.1:9/", retry=None) as client, pytest.raises(RuntimeError) as caught:
        RemoteTool(client).handler({"query": "hi"})
    assert str(caught.value).startswith("remote agent call failed: ")
    assert isinstance(caught.value.__cause__, ConnectError)


def test_a_question_stands_over_what_the_task_has_made_before(tool_of: Any) -> None:
    def draft(message: Message) -> Any:
        yield "a draft"
        return InputRequired("Shall I go on?")

    assert tool_of(draft).handler({"query": "write"}) == "Shall I go on?"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Failed("no rates"), "Remote agent failed: no rates"),
        (Rejected("not for you"), "not for you"),
        (InputRequired("Which size?"), "Which size?"),
        ({"usd": 5}, '{"usd":5}'),
    ],
)
def test_the_outcome_of_the_task_is_returned_as_text(tool_of: Any, result: Any, said: str) -> None:
    assert tool_of(lambda message: result).handler({"query": "hi"}) == said


@pytest.mark.parametrize("kind", [str, Failed, Rejected, InputRequired])
def test_an_outcome_has_no_more_text_than_a_model_can_read(tool_of: Any, kind: Any) -> None:
    text = tool_of(lambda message: kind("x" * 1_500_000)).handler({"query": "hi"})
    assert text.endswith(" more characters were left out]")
    assert len(text) < 1_000_200


def test_a_task_without_text_is_returned_as_json(tool_of: Any) -> None:
    answer = json.loads(tool_of(lambda message: None).handler({"query": "hi"}))
    assert answer["status"]["state"] == "TASK_STATE_COMPLETED"


def test_it_registers_itself(tool_of: Any) -> None:
    class Tools:
        def __init__(self) -> None:
            self.known: dict[str, Any] = {}

        def register_func(self, name: str, description: str, schema: Any, handler: Any) -> None:
            self.known[name] = (description, schema, handler)

    tools = Tools()
    tool = tool_of(echo, name="ask")
    tool.register(tools)
    description, schema, handler = tools.known["ask"]
    assert (description, schema) == (tool.description, tool.schema)
    assert handler('{"query": "hi"}') == "hi"
