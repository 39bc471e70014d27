"""The stock client of the Google ADK stores an answer once, whichever way the agent sends it. No model is called.

These tests need packages that `make test` does not install: ``make frameworks``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, DataPart, Message
from a2a_sync.integrations.mapper import RunEvent
from a2a_sync.integrations.runners import AgentRunnerExecutor
from a2a_sync.testing.servers import socket_server

remote_a2a_agent = pytest.importorskip("google.adk.agents.remote_a2a_agent")
run_config = pytest.importorskip("google.adk.agents.run_config")
runners = pytest.importorskip("google.adk.runners")
sessions = pytest.importorskip("google.adk.sessions")
types = pytest.importorskip("google.genai.types")

# The ADK warns once for each of its experimental parts.
pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning")

WORDS = ("one ", "two ", "three")


def generator(message: Message, context: Any) -> Iterator[Any]:
    yield from WORDS


def generator_that_returns(message: Message, context: Any) -> Any:
    yield from WORDS[:2]
    return WORDS[2]


async def asynchronous_generator(message: Message, context: Any) -> Any:
    for word in WORDS:
        yield word


def writer(message: Message, context: Any) -> None:
    with context.artifact("words") as artifact:
        for word in WORDS:
            artifact.write(word)


def writer_with_a_last_piece(message: Message, context: Any) -> None:
    artifact = context.artifact("words")
    for word in WORDS:
        artifact.write(word, last=word is WORDS[-1])


def result(message: Message, context: Any) -> str:
    return "".join(WORDS)


def text_and_data(message: Message, context: Any) -> Iterator[Any]:
    yield from WORDS
    yield DataPart({"count": 3})


class Runs:
    def run(self, messages: Any) -> str:
        return "".join(WORDS)


class Streams:
    def run_stream(self, messages: Any) -> Iterator[RunEvent]:
        yield RunEvent("run_start")
        yield RunEvent("message_start")
        for word in WORDS:
            yield RunEvent("message_delta", delta=word)
        yield RunEvent("run_end")


HANDLERS = (
    generator,
    generator_that_returns,
    asynchronous_generator,
    writer,
    writer_with_a_last_piece,
    result,
    text_and_data,
)


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    with ExitStack() as stack:

        def start(executor: Any) -> str:
            card = None if isinstance(executor, Agent) else AgentCard(name="words", description="d", version="1")
            app = stack.enter_context(A2AApp(executor, card=card))
            return stack.enter_context(socket_server(app))

        yield start


async def stored_texts(url: str, mode: str) -> list[str]:
    """The agent's texts in the session of an ADK runner after one exchange."""
    agent = remote_a2a_agent.RemoteA2aAgent(name="remote", agent_card=f"{url}/.well-known/agent-card.json")
    service = sessions.InMemorySessionService()
    runner = runners.Runner(agent=agent, app_name="test", session_service=service)
    session = await service.create_session(app_name="test", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text="go")])
    config = run_config.RunConfig(streaming_mode=run_config.StreamingMode[mode])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=config):
        pass
    session = await service.get_session(app_name="test", user_id="u", session_id=session.id)
    contents = [event.content for event in session.events if event.author == "remote" and event.content]
    return [part.text for content in contents for part in content.parts or () if part.text]


@pytest.mark.parametrize("mode", ["SSE", "NONE"])
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_an_adk_session_stores_an_answer_once(serve: Callable[[Any], str], handler: Any, mode: str) -> None:
    agent = Agent("words", description="d")
    agent.message(handler)
    assert asyncio.run(stored_texts(serve(agent), mode)) == ["one two three"]


@pytest.mark.parametrize("mode", ["SSE", "NONE"])
@pytest.mark.parametrize("runner", [Runs, Streams])
def test_an_adk_session_stores_the_answer_of_a_framework_runner_once(
    serve: Callable[[Any], str], runner: Any, mode: str
) -> None:
    assert asyncio.run(stored_texts(serve(AgentRunnerExecutor(runner())), mode)) == ["one two three"]
