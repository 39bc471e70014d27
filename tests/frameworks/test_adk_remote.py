"""`RemoteAgent`: agents of this library in a runner of the Google ADK. The tests of a2a_ex, and the rules of the ADK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from a2a_sync import A2AApp, Agent, Client, InputRequired, Message, Rejected, TaskState, TextPart
from a2a_sync.integrations.adk import RemoteAgent
from a2a_sync.integrations.bridge import Bridge, Note, Text
from a2a_sync.testing.servers import socket_server
from tests.engine import eventually
from tests.frameworks.brain import CANARY, TIMEOUT, Tools
from tests.frameworks.kit_adk import Kit

S = TaskState
MODES = [StreamingMode.SSE, StreamingMode.NONE]
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning"),
    pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning"),
]


class Caller:
    """A session of a runner, with its events."""

    def __init__(self, agent: Any, mode: StreamingMode = StreamingMode.SSE) -> None:
        self.agent = agent
        self.sessions = InMemorySessionService()
        self.runner = Runner(agent=agent, app_name="test", session_service=self.sessions)
        self.config = RunConfig(streaming_mode=mode)
        self.session = asyncio.run(self.sessions.create_session(app_name="test", user_id="u")).id

    def say(self, *parts: Any) -> list[Event]:
        """The events of one turn."""
        content = types.Content(
            role="user", parts=[types.Part(text=part) if isinstance(part, str) else part for part in parts]
        )

        async def run() -> list[Event]:
            about = {"user_id": "u", "session_id": self.session, "run_config": self.config}
            return [event async for event in self.runner.run_async(new_message=content, **about)]

        return asyncio.run(run())

    def stored(self) -> list[str]:
        """The texts of agents in the session."""
        about = {"app_name": "test", "user_id": "u", "session_id": self.session}
        session = asyncio.run(self.sessions.get_session(**about))
        return [text for event in session.events if event.author != "user" for text in texts(event)]


def texts(event: Event) -> list[str]:
    return [part.text for part in (event.content.parts or () if event.content else ()) if part.text]


@pytest.fixture
def remote() -> Iterator[Callable[..., RemoteAgent]]:
    made: list[Any] = []

    def remote(handler: Any, **options: Any) -> RemoteAgent:
        if isinstance(handler, Bridge):
            app = A2AApp(handler)
        else:
            agent = Agent("remote", description="Knows things.")
            agent.message(handler)
            app = A2AApp(agent)
        made.append(app)
        return RemoteAgent("remote", app, **options)

    yield remote
    for one in made:
        one.close()


def echo(message: Message, context: Any) -> str:
    return f"echo: {message.text}"


def words(message: Message, context: Any) -> Iterator[str]:
    yield from ("one ", "two ", "three")


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_said_once(remote: Any, mode: Any) -> None:
    caller = Caller(remote(echo), mode)
    events = caller.say("hello")
    assert caller.stored() == ["echo: hello"]
    assert {event.author for event in events} == {"remote"}
    assert [event.turn_complete for event in events if event.turn_complete] == [True]


def test_pieces_are_partial_events(remote: Any) -> None:
    caller = Caller(remote(words))
    events = caller.say("go")
    assert [texts(event) for event in events if event.partial] == [["one "], ["two "], ["three"]]
    assert caller.stored() == ["one two three"]
    again = Caller(remote(words), StreamingMode.NONE)
    assert [event for event in again.say("go") if event.partial] == []


def test_progress_is_a_thought(remote: Any) -> None:
    class Notes(Bridge):
        def events(self, turn: Any) -> Any:
            return [Note("looking"), Text("found")]

    (thought, *_) = Caller(remote(Notes(None, name="notes"))).say("go")
    assert (thought.content.parts[0].text, thought.content.parts[0].thought) == ("looking", True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("handler", "code", "text"),
    [
        (lambda message, context: Rejected("not for me"), "remote_agent_rejected", "not for me"),
        (lambda message, context: 1 / 0, "remote_agent_error", "internal error"),
    ],
)
def test_a_failed_task_is_an_error_event(remote: Any, mode: Any, handler: Any, code: str, text: str) -> None:
    def answer(message: Message, context: Any) -> Any:
        return handler(message, context)

    (event,) = Caller(remote(answer), mode).say("go")
    assert (event.error_code, event.content) == (code, None)
    assert event.error_message.startswith(text)


def test_an_agent_that_cannot_be_reached_is_an_error_event() -> None:
    (event,) = Caller(RemoteAgent("remote", "http://127.0.0.1:9", timeout=1.0, retry=None)).say("go")
    assert event.error_message.startswith("A2A request failed: ")


def size(message: Message, context: Any) -> Any:
    if message.text == "pizza":
        return InputRequired("Which size?")
    return f"{context.history[0].text} {message.text}"


@pytest.mark.parametrize("mode", MODES)
def test_a_question_is_a_call_and_its_response_continues_the_task(remote: Any, mode: Any) -> None:
    caller = Caller(remote(size), mode)
    (asked,) = caller.say("pizza")
    (call,) = asked.get_function_calls()
    assert asked.long_running_tool_ids == {call.id}
    assert (call.name, call.args) == ("mock_function_call_for_required_user_input", {"input_required": "Which size?"})
    response = types.FunctionResponse(id=call.id, name=call.name, response={"result": "large"})
    caller.say(types.Part(function_response=response))
    assert caller.stored() == ["pizza large"]


@pytest.mark.parametrize("mode", MODES)
def test_text_answers_a_question_too(remote: Any, mode: Any) -> None:
    caller = Caller(remote(size), mode)
    caller.say("pizza")
    caller.say("small")
    assert caller.stored() == ["pizza small"]


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_continues_after_an_answer_without_content(remote: Any, mode: Any) -> None:
    def asks(message: Message, context: Any) -> Any:
        return {"order": InputRequired("which size?"), "large": None}.get(message.text, f"echo: {message.text}")

    caller = Caller(remote(asks), mode)
    caller.say("order")
    caller.say("large")
    caller.say("hello")
    assert caller.stored()[-1] == "echo: hello"


def test_a_conversation_is_one_context_and_each_message_is_sent_once(remote: Any) -> None:
    seen: list[Any] = []

    def listen(message: Message, context: Any) -> str:
        seen.append((context.context_id, message.text, message.parts[0].metadata))
        return "ok"

    caller = Caller(remote(listen))
    caller.say("one")
    caller.say("two")
    assert [text for _, text, _ in seen] == ["one", "two"]
    assert len({context for context, _, _ in seen}) == 1
    assert seen[0][2] == {"is_user_input": True}


def test_other_agents_are_quoted(remote: Any) -> None:
    class Local(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> Any:
            part = types.Part(text="local says hi")
            call = types.FunctionCall(name="adk_request_credential", args={"secret": CANARY})
            parts = [part, types.Part(function_call=call)]
            content = types.Content(role="model", parts=parts)
            yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)

    both = SequentialAgent(name="both", sub_agents=[Local(name="local"), remote(echo)])
    caller = Caller(both)
    caller.say("orchestrate")
    assert caller.stored() == ["local says hi", "echo: orchestrate\n[local] said: local says hi"]


def test_the_description_is_that_of_the_card(remote: Any) -> None:
    agent = remote(echo)
    Caller(agent).say("hi")
    assert agent.description == 'A remote agent that says of itself: "Knows things."'
    given = remote(echo, description="Mine.")
    Caller(given).say("hi")
    assert given.description == "Mine."


def test_no_content_is_an_error_event(remote: Any) -> None:
    (event,) = Caller(remote(echo)).say(types.Part(text="x", thought=True))
    assert event.error_message == "no user content"


def test_metadata_of_a_peer_sets_harmless_actions_only(remote: Any) -> None:
    actions = {"escalate": True, "state_delta": {"a": 1}, "transfer_to_agent": "other"}

    def acts(message: Message, context: Any) -> None:
        with context.artifact("result", metadata={"adk_actions": actions}) as artifact:
            artifact.write("done")

    event = next(event for event in Caller(remote(acts)).say("go") if not event.partial)
    assert (event.actions.escalate, event.actions.state_delta, event.actions.transfer_to_agent) == (True, {}, None)


def test_a_run_that_is_abandoned_cancels_the_task() -> None:
    started = threading.Event()
    agent = Agent("slow")

    @agent.message
    def slow(message: Message, context: Any) -> Iterator[str]:
        yield "begins"
        started.set()
        context.sleep(TIMEOUT)

    with A2AApp(agent) as app, Client(app) as client:
        caller = Caller(RemoteAgent("remote", app))

        async def abandon() -> None:
            content = types.Content(role="user", parts=[types.Part(text="go")])
            about = {"user_id": "u", "session_id": caller.session, "run_config": caller.config}
            events = caller.runner.run_async(new_message=content, **about)
            await anext(events)
            assert await asyncio.to_thread(started.wait, TIMEOUT)
            await events.aclose()

        asyncio.run(abandon())
        (task,) = client.list_tasks().tasks
        eventually(lambda: client.get_task(task.id).state is S.CANCELED)


# -- a bridge to the ADK behind it --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_approval_of_an_agent_of_the_adk_passes_both_bridges(mode: Any) -> None:
    kit = Kit(Tools())
    with A2AApp(kit.make()) as app:
        caller = Caller(RemoteAgent("remote", app), mode)
        asked = caller.say("buy")[-1]
        (call,) = asked.get_function_calls()
        assert (call.name, call.args["originalFunctionCall"]["args"]) == ("adk_request_confirmation", {"what": "boat"})
        response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
        caller.say(types.Part(function_response=response))
        assert kit.tools.bought == ["boat"]
        assert caller.stored()[-1] == "Done: bought a boat."


@pytest.mark.parametrize("legacy", [True, False])
def test_the_stock_client_of_the_adk_keeps_streamed_answers_hears_each_once_and_approves(legacy: bool) -> None:
    remote_a2a_agent = pytest.importorskip("google.adk.agents.remote_a2a_agent")
    kit = Kit(Tools())
    with A2AApp(kit.make(interval=0)) as app, socket_server(app) as url:
        card = f"{url}/.well-known/agent-card.json"
        caller = Caller(remote_a2a_agent.RemoteA2aAgent(name="remote", agent_card=card, use_legacy=legacy))
        # Its connections belong to one event loop.
        with asyncio.Runner() as loop:
            run, asyncio_run = loop.run, asyncio.run
            asyncio.run = run  # type: ignore[assignment]
            try:
                events = caller.say("one")
                pieces = [text for event in events if event.partial for text in texts(event)]
                assert len(pieces) > 1
                caller.say("two")
                assert caller.stored() == ["You said: one.", "You said: one, two."]
                asked = caller.say("buy")[-1]
                (call,) = asked.get_function_calls()
                response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
                caller.say(types.Part(function_response=response))
            finally:
                asyncio.run = asyncio_run
        assert (kit.tools.bought, caller.stored()[-1]) == (["boat"], "Done: bought a boat.")


def test_a_text_part_of_the_adk_is_not_answered_in_the_status() -> None:
    kit = Kit(Tools())
    with A2AApp(kit.make()) as app, Client(app) as client:
        assert client.send(TextPart("x", metadata={"is_user_input": True})).task.status.message is None
        assert client.send("x").task.status.message.text == "You said: x."
