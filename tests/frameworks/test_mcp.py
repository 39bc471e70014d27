"""Agents as servers of MCP, called by the client of its SDK, in one process and over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    Client,
    DataPart,
    Failed,
    FilePart,
    InputRequired,
    Message,
    RequestContext,
    TaskState,
)
from a2a_sync.testing.servers import socket_server
from tests.engine import eventually

pytest.importorskip("mcp")
import mcp.client as mcp_client
from mcp import StdioServerParameters
from mcp_types import ElicitResult

from a2a_sync.integrations.mcp import mcp_server

CANARY = "canary-93f1"
TIMEOUT = 10.0
WORKS = threading.Event()


def handle(message: Message, context: RequestContext) -> Any:
    match message.text:
        case "data":
            return DataPart({"amount": 5})
        case "files":
            image = FilePart(raw=b"\x89PNG", media_type="image/png")
            sound = FilePart(raw=b"RIFF", media_type="audio/wav")
            text = FilePart(raw=b"%PDF", media_type="application/pdf", filename="a.pdf")
            return [image, sound, text, FilePart(url="https://example.com/b.pdf", filename="b.pdf")]
        case "path":
            return FilePart(raw=b"x", media_type="text/plain", filename="../../.profile")
        case "links":
            return [FilePart(url=url) for url in ("file:///etc/passwd", "javascript:alert(1)", "gs://bucket/a")]
        case "ask":
            return f"{context.ask('Which size?')} and {context.ask('Which colour?')}"
        case "break":
            raise ValueError(CANARY)
        case "wait":
            WORKS.set()
            context.sleep(TIMEOUT)
        case "long":
            context.sleep(6 * TIMEOUT)
    if message.text == "stream":
        context.update("working")
    return f"{message.text} for {context.metadata.get('skillId')} in {context.context_id}"


@pytest.fixture
def app() -> Iterator[A2AApp]:
    WORKS.clear()
    agent = Agent("Shop", description="Sells things.", skills={"buy": "Buys something", "sell": "Sells something"})
    agent.message(handle)
    with A2AApp(agent) as app:
        yield app


@pytest.fixture
def client(app: A2AApp) -> Iterator[Client]:
    with Client(app) as client:
        yield client


def call(
    server: Any, text: str, *, progress: list[str] | None = None, answers: list[Any] | None = None, **ids: Any
) -> Any:
    """The result of one call of the tool ``shop_buy``."""

    async def elicit(context: Any, params: Any) -> ElicitResult:
        assert answers is not None
        given = answers.pop(0)
        answers.append(params.message)
        return (
            ElicitResult(action=given)
            if given in ("decline", "cancel")
            else ElicitResult(action="accept", content={"answer": given})
        )

    async def report(step: float, total: float | None, message: str | None) -> None:
        if progress is not None:
            progress.append(message or "")

    async def run() -> Any:
        options = {} if answers is None else {"elicitation_callback": elicit}
        async with mcp_client.Client(server, **options) as host:
            return await host.call_tool("shop_buy", {"message": text, **ids}, progress_callback=report)

    return asyncio.run(asyncio.wait_for(run(), 3 * TIMEOUT))


def test_skills_whose_names_are_alike_are_tools_too() -> None:
    agent = Agent("Shop", skills={"list items": "One", "list-items": "Two", "List_Items": "Three"})
    agent.message(handle)

    async def run(server: Any) -> Any:
        async with mcp_client.Client(server) as host:
            tools = (await host.list_tools()).tools
            results = [await host.call_tool(tool.name, {"message": "x", "context_id": "c"}) for tool in tools]
            return [(tool.name, result.content[0].text) for tool, result in zip(tools, results, strict=True)]

    with A2AApp(agent) as app, Client(app) as client:
        assert asyncio.run(run(mcp_server(client))) == [
            ("shop_list_items", "x for list items in c"),
            ("shop_list_items_f22a8bb5", "x for list-items in c"),
            ("shop_list_items_b615db96", "x for List_Items in c"),
        ]


def test_each_skill_is_a_tool(client: Client) -> None:
    async def run() -> Any:
        async with mcp_client.Client(mcp_server(client)) as host:
            return (await host.list_tools()).tools

    tools = asyncio.run(run())
    assert [(tool.name, tool.description) for tool in tools] == [
        ("shop_buy", "Buys something."),
        ("shop_sell", "Sells something."),
    ]
    assert set(tools[0].input_schema["properties"]) == {"message", "context_id", "task_id"}
    assert tools[0].input_schema["required"] == ["message"]


def test_text_is_text_and_the_skill_and_the_context_reach_the_agent(client: Client) -> None:
    result = call(mcp_server(client), "hello", context_id="c")
    assert [one.text for one in result.content] == ["hello for buy in c"]
    assert (result.is_error, result.meta["a2a-sync/contextId"]) == (False, "c")


def test_data_is_structured_content(client: Client) -> None:
    result = call(mcp_server(client), "data")
    assert (result.structured_content, result.content[0].text) == ({"amount": 5}, '{"amount":5}')


def test_files_are_images_sounds_resources_and_links(client: Client) -> None:
    image, sound, text, link = call(mcp_server(client), "files").content
    assert (image.type, sound.type, text.type, link.type) == ("image", "audio", "resource", "resource_link")
    assert (image.data, text.resource.mime_type, str(link.uri)) == (
        *("iVBORw==", "application/pdf", "https://example.com/b.pdf"),
    )


def test_a_link_that_leads_to_no_web_page_is_text(client: Client) -> None:
    content = call(mcp_server(client), "links").content
    assert [one.type for one in content] == ["text"] * 3
    assert "file:///etc/passwd" in content[0].text


def test_progress_and_pieces_are_progress_of_the_call(client: Client) -> None:
    progress: list[str] = []
    result = call(mcp_server(client), "stream", progress=progress)
    assert progress[0] == "working"
    assert "".join(progress[1:]) == result.content[0].text


def test_questions_are_asked_through_the_host(client: Client) -> None:
    answers = ["large", "red"]
    result = call(mcp_server(client), "ask", answers=answers)
    assert [one.text for one in result.content] == ["large and red"]
    assert answers == ["Which size?", "Which colour?"]
    assert len(client.list_tasks().tasks) == 1


@pytest.mark.parametrize("answer", ["decline", "cancel"])
def test_a_declined_question_cancels_the_task(client: Client, answer: str) -> None:
    result = call(mcp_server(client), "ask", answers=[answer])
    assert result.is_error
    (task,) = client.list_tasks().tasks
    assert task.state is TaskState.CANCELED


def test_a_host_without_elicitation_reads_the_question_and_answers_with_the_task(client: Client) -> None:
    server = mcp_server(client)
    asked = call(server, "ask").content[0].text
    assert asked.startswith("Which size?\n\n[input is needed")
    task_id = asked.split('"')[1]
    assert call(server, "large", task_id=task_id).content[0].text.startswith("Which colour?")
    assert call(server, "red", task_id=task_id).content[0].text == "large and red"


def test_a_failed_task_is_an_error_without_secrets(client: Client) -> None:
    result = call(mcp_server(client), "break")
    assert (result.is_error, result.content[0].text.partition(" (")[0]) == (True, "internal error")
    assert CANARY not in repr(result)


def test_an_agent_that_cannot_be_reached_is_an_error(client: Client) -> None:
    server = mcp_server(client)
    client.close()
    assert call(server, "x").is_error


def test_a_cancelled_call_cancels_the_task(client: Client) -> None:
    async def run() -> None:
        async with mcp_client.Client(mcp_server(client)) as host:
            calling = asyncio.create_task(host.call_tool("shop_buy", {"message": "wait"}))
            assert await asyncio.to_thread(WORKS.wait, TIMEOUT)
            calling.cancel()
            (task,) = client.list_tasks().tasks
            await asyncio.to_thread(eventually, lambda: client.get_task(task.id).state is TaskState.CANCELED)

    asyncio.run(run())


def test_many_long_calls_delay_no_other_call_and_no_cancel(client: Client) -> None:
    """More than the threads that asyncio has for blocking calls on a small machine, and on most others."""

    async def run() -> None:
        async with mcp_client.Client(mcp_server(client)) as host:
            long = [asyncio.create_task(host.call_tool("shop_buy", {"message": "long"})) for _ in range(40)]
            begun = partial(client.list_tasks, page_size=100)
            await asyncio.to_thread(eventually, lambda: len(begun().tasks) == len(long), seconds=TIMEOUT)
            assert (await asyncio.wait_for(host.call_tool("shop_buy", {"message": "hi"}), TIMEOUT)).content
            assert not any(call.done() for call in long)
            long[-1].cancel()
            await asyncio.to_thread(eventually, lambda: len(begun(status=TaskState.CANCELED).tasks) == 1)
            for calling in long:
                calling.cancel()
            await asyncio.wait(long)

    asyncio.run(run())


def test_the_command_serves_an_agent_over_standard_input_and_output(app: A2AApp) -> None:
    with socket_server(app) as url:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "a2a_sync", "mcp", url], env=dict(os.environ)
        )
        answers = ["large", "red"]
        assert call(command, "ask", answers=answers).content[0].text == "large and red"


def test_the_name_of_a_file_is_one_part_of_the_path_of_its_address(client: Client) -> None:
    (block,) = call(mcp_server(client), "path").content
    assert str(block.resource.uri) == "a2a-sync:///..%2F..%2F.profile"


def test_the_tools_of_a_card_with_very_many_skills_are_bounded() -> None:
    # Eighty thousand fit into a card: minutes, and 1.6 GB.
    agent = Agent("many", skills={f"s{number}": "Does one thing" for number in range(1001)})
    agent.message(lambda message, context: "done")
    with A2AApp(agent) as app, Client(app) as client:
        server = mcp_server(client)
    tools = asyncio.run(server.list_tools())
    assert [tool.name for tool in (tools[0], tools[-1])] == ["many_s0", "many_s999"]


def test_a_skill_that_the_card_no_longer_has_is_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("Shop", skills={"buy": "Buys something", "sell": "Sells something"})
    agent.message(lambda message, context: "done")
    with A2AApp(agent) as app, Client(app) as client:
        first = client.card()
        cards = [first, *[replace(first, skills=first.skills[1:])] * 2]
        monkeypatch.setattr(client, "card", lambda: cards.pop(0))
        server = mcp_server(client)
    assert [tool.name for tool in asyncio.run(server.list_tools())] == ["shop_sell"]


def test_an_answer_of_very_many_parts_is_one_text() -> None:
    # One of 120,000 parts, 1.3 MB, held the event loop of all calls for four seconds.
    agent = Agent("Shop", skills={"buy": "Buys something"})
    agent.message(lambda message, context: [DataPart(number) for number in range(1001)])
    with A2AApp(agent) as app, Client(app) as client:
        (content,) = call(mcp_server(client), "list").content
    assert content.text.split() == [str(number) for number in range(1001)]


def test_of_the_name_of_a_file_256_characters_are_in_its_address() -> None:
    # One of 15 million held the event loop of all calls for four seconds, and took 900 MB.
    agent = Agent("Shop", skills={"buy": "Buys"})
    agent.message(lambda message, context: FilePart(raw=b"x", filename="\U0001f600" * 300))
    with A2AApp(agent) as app, Client(app) as client:
        (content,) = call(mcp_server(client), "hello").content
    assert content.resource.uri == "a2a-sync:///" + "%F0%9F%98%80" * 256


@pytest.mark.parametrize(
    "about",
    [
        {"raw": b"x", "filename": "x" * 1_500_000},
        {"raw": b"x", "media_type": "image/" + "x" * 1_500_000},
        {"url": "https://a.test/" + "x" * 1_500_000},
    ],
    ids=["name", "media type", "URL"],
)
def test_the_names_media_types_and_urls_of_files_are_bounded_like_text(about: dict[str, Any]) -> None:
    agent = Agent("Shop", skills={"buy": "Buys"})
    agent.message(lambda message, context: FilePart(**about))
    with A2AApp(agent) as app, Client(app) as client:
        (content,) = call(mcp_server(client), "hello").content
    assert content.text.startswith("[file: ")
    assert content.text.endswith(" more characters were left out]")
    assert len(content.text) < 1_000_300


@pytest.mark.parametrize("kind", [str, Failed, InputRequired])
@pytest.mark.parametrize("asks", [False, True])
def test_no_answer_has_more_text_than_a_model_can_read(kind: Any, asks: bool) -> None:
    agent = Agent("Shop", skills={"buy": "Buys"})
    agent.message(lambda message, context: kind("x" * 1_500_000))
    with A2AApp(agent) as app, Client(app) as client:
        answers = ["decline"] if asks else None
        result = call(mcp_server(client), "hello", answers=answers)
    (text,) = [answers[0]] if asks and kind is InputRequired else [one.text for one in result.content]
    assert "x\n\n[500000 more characters were left out]" in text
    assert len(text) < 1_000_300
