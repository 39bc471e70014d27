"""`ADKExecutor` and the conversion of parts: the tests of a2a_ex, which the bridge was written after, and the rules of the ADK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, SequentialAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import LongRunningFunctionTool
from google.genai import types

from a2a_sync import A2AApp, Client, DataPart, FilePart, Message, Role, TaskState, TextPart
from a2a_sync.auth import BearerAuth, Principal
from a2a_sync.integrations.adk import (
    ADKExecutor,
    terminal_state,
    to_a2a_message,
    to_a2a_part,
    to_adk_content,
    to_adk_part,
)
from a2a_sync.testing import client_of
from a2a_sync.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from tests.engine import texts
from tests.frameworks.brain import CANARY, TIMEOUT, Call
from tests.frameworks.kit_adk import Model

S = TaskState
# The ADK warns once for each of its experimental parts, and of agents that workflows will replace.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning"),
    pytest.mark.filterwarnings("ignore:(Sequential|Loop)Agent is deprecated:DeprecationWarning"),
]


class Says(BaseAgent):
    """An agent that yields these events."""

    events: list[Any] = []

    async def _run_async_impl(self, ctx: Any) -> Any:
        for event in self.events:
            yield event.model_copy(
                update={"author": self.name, "invocation_id": ctx.invocation_id, "id": Event.new_id()}
            )


def said(text: str, **members: Any) -> Event:
    return Event(author="x", content=types.Content(role="model", parts=[types.Part(text=text)]), **members)


def runner_of(agent: Any, **services: Any) -> Runner:
    return Runner(agent=agent, app_name="test", session_service=InMemorySessionService(), **services)


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    made: list[Any] = []

    def serve(agent: Any, services: Any = None, **options: Any) -> Client:
        app = A2AApp(ADKExecutor(runner_of(agent, **(services or {})), **options))
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


# -- parts (converter_test) ---------------------------------------------------------------------------------------------

CALL = types.FunctionCall(name="search", id="fc-1", args={"q": "test"})
RESPONSE = types.FunctionResponse(name="search", id="fr-1", response={"result": "ok"})
PARTS = [
    (types.Part(text="hello"), TextPart("hello")),
    (types.Part(text="thinking…", thought=True), TextPart("thinking…", metadata={"adk_thought": True})),
    (
        types.Part(inline_data=types.Blob(data=b"raw", mime_type="image/png", display_name="a.png")),
        FilePart(raw=b"raw", media_type="image/png", filename="a.png"),
    ),
    (
        types.Part(file_data=types.FileData(file_uri="https://example.com/a.pdf", mime_type="application/pdf")),
        FilePart(url="https://example.com/a.pdf", media_type="application/pdf"),
    ),
    (
        types.Part(function_call=CALL, thought_signature=b"\x01"),
        DataPart(
            {"name": "search", "id": "fc-1", "args": {"q": "test"}},
            metadata={"adk_type": "function_call", "adk_thought_signature": "AQ=="},
        ),
    ),
    (
        types.Part(function_response=RESPONSE),
        DataPart(
            {"name": "search", "id": "fr-1", "response": {"result": "ok"}}, metadata={"adk_type": "function_response"}
        ),
    ),
    (
        types.Part(executable_code=types.ExecutableCode(code="1 + 1", language="PYTHON")),
        DataPart({"code": "1 + 1", "language": "PYTHON"}, metadata={"adk_type": "executable_code"}),
    ),
    (
        types.Part(
            inline_data=types.Blob(
                data=b'<a2a_datapart_json>{"data":{"key":"value"}}</a2a_datapart_json>', mime_type="text/plain"
            )
        ),
        DataPart({"key": "value"}),
    ),
]


@pytest.mark.parametrize(("adk", "ours"), PARTS)
def test_parts_are_converted_in_both_directions(adk: Any, ours: Any) -> None:
    assert to_a2a_part(adk) == ours
    assert to_adk_part(ours) == adk


def test_parts_without_an_equivalent_are_omitted(caplog: Any) -> None:
    assert to_a2a_part(types.Part()) is None
    assert to_adk_part(DataPart({"nonsense": 1}, metadata={"adk_type": "function_call"})) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


@pytest.mark.parametrize(("role", "other"), [(Role.USER, "user"), (Role.AGENT, "model")])
def test_messages_and_contents_are_converted_in_both_directions(role: Role, other: str) -> None:
    content = to_adk_content(Message(role=role, parts=(TextPart("hi"),)))
    assert (content.role, content.parts[0].text) == (other, "hi")
    message = to_a2a_message(content, "ctx-1", "task-1")
    assert (message.role, message.context_id, message.task_id, message.text) == (role, "ctx-1", "task-1", "hi")


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (Event(author="a", error_code="500", error_message="server error"), S.FAILED),
        (Event(author="a", error_message="something broke"), S.FAILED),
        (Event(author="a", long_running_tool_ids={"tool-1"}), S.INPUT_REQUIRED),
        (Event(author="a", actions=EventActions(escalate=True)), S.INPUT_REQUIRED),
        (said("done"), S.COMPLETED),
    ],
)
def test_an_event_has_a_terminal_state(event: Event, state: TaskState) -> None:
    assert terminal_state(event) is state


# -- runs (adk_executor_test, integration_test) -------------------------------------------------------------------------


def test_a_text_is_an_artifact_and_the_text_of_the_status(serve: Any) -> None:
    client = serve(Says(name="echo", events=[said("Hello!")]))
    with client.stream("hi") as stream:
        events = list(stream)
    artifacts = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert (artifacts[-1].artifact.text, artifacts[-1].last_chunk, artifacts[-1].append) == ("Hello!", True, False)
    last = events[-1]
    assert isinstance(last, TaskStatusUpdateEvent)
    assert (last.status.state, last.status.message.text) == (S.COMPLETED, "Hello!")
    assert last.metadata["adk_author"] == "echo"


def test_every_final_response_is_an_artifact_named_after_its_agent(serve: Any) -> None:
    steps = [Says(name="writer", events=[said("Part 1")]), Says(name="editor", events=[said("Part 2")])]
    task = serve(SequentialAgent(name="both", sub_agents=steps)).send("go").task
    assert [(artifact.name, artifact.text) for artifact in task.artifacts] == [
        ("writer", "Part 1"),
        ("result", "Part 2"),
    ]


def test_an_error_event_fails_the_task(serve: Any) -> None:
    events = [Event(author="err", error_code="500", error_message="server error")]
    task = serve(Says(name="err", events=events)).send("fail").task
    assert (task.state, task.text, task.metadata["adk_error_code"]) == (S.FAILED, "server error", "500")


class Raises(BaseAgent):
    async def _run_async_impl(self, ctx: Any) -> Any:
        raise RuntimeError(CANARY)
        yield


@pytest.mark.parametrize("shown", [False, True])
def test_the_text_of_an_exception_is_hidden_unless_it_is_to_be_shown(serve: Any, shown: bool) -> None:
    task = serve(Raises(name="bad"), expose_errors=shown).send("go").task
    assert (task.state, CANARY in task.to_json()) == (S.FAILED, shown)


ESCALATES = said("Need help", actions=EventActions(escalate=True))


def test_an_escalation_requires_input(serve: Any) -> None:
    client = serve(Says(name="esc", events=[ESCALATES]))
    task = client.send("help").task
    assert (task.state, task.text, task.metadata["adk_escalate"]) == (S.INPUT_REQUIRED, "Need help", True)
    assert client.send("here", task_id=task.id).task.state is S.INPUT_REQUIRED


def test_an_escalation_may_complete_the_task(serve: Any) -> None:
    task = serve(Says(name="esc", events=[ESCALATES]), on_escalate=S.COMPLETED).send("help").task
    assert (task.state, task.text) == (S.COMPLETED, "Need help")


def test_an_escalation_that_ends_a_loop_is_none_of_the_task(serve: Any) -> None:
    loop = LoopAgent(name="loop", sub_agents=[Says(name="esc", events=[ESCALATES])], max_iterations=3)
    after = Says(name="after", events=[said("Done")])
    task = serve(SequentialAgent(name="both", sub_agents=[loop, after])).send("help").task
    assert (task.state, [artifact.text for artifact in task.artifacts]) == (S.COMPLETED, ["Need help", "Done"])


def test_events_without_content_complete_the_task(serve: Any) -> None:
    task = serve(Says(name="empty", events=[Event(author="empty")])).send("nothing").task
    assert (task.state, task.artifacts) == (S.COMPLETED, ())


def test_saved_artifacts_become_artifacts(serve: Any) -> None:
    class Paints(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> Any:
            part = types.Part(inline_data=types.Blob(data=b"boat", mime_type="image/png"))
            where = {"app_name": ctx.app_name, "user_id": ctx.user_id, "session_id": ctx.session.id}
            version = await ctx.artifact_service.save_artifact(**where, filename="boat.png", artifact=part)
            yield said("Here.", actions=EventActions(artifact_delta={"boat.png": version}), invocation_id="i")

    task = serve(Paints(name="painter"), services={"artifact_service": InMemoryArtifactService()}).send("go").task
    assert sorted(artifact.name for artifact in task.artifacts) == ["boat.png", "result"]
    assert task.artifact("boat.png").files == (FilePart(raw=b"boat", media_type="image/png"),)


class Remembers(BaseAgent):
    """Says its user, its session, and how many messages it has received there."""

    seen: list[Any] = []

    async def _run_async_impl(self, ctx: Any) -> Any:
        turns = [event for event in ctx.session.events if event.author == "user"]
        self.seen.append((ctx.user_id, ctx.session.id, dict(ctx.run_config.custom_metadata["a2a_metadata"])))
        yield said(str(len(turns)), invocation_id=ctx.invocation_id)


def test_a_conversation_is_one_session_of_its_caller() -> None:
    agent = Remembers(name="counts", seen=[])
    auth = BearerAuth(lambda token: {"a": "ada", "b": "bob"}.get(token))
    with (
        A2AApp(ADKExecutor(runner_of(agent)), auth=auth) as app,
        client_of(app, "wsgi", auth="a") as ada,
        client_of(app, "wsgi", auth="b") as bob,
    ):
        assert [ada.send("x", context_id="c", metadata={"n": 1}).text for _ in range(2)] == ["1", "2"]
        assert bob.send("x", context_id="c").text == "1"
        assert ada.send("x", context_id="d").text == "1"
    assert agent.seen[0] == ("ada", "c", {"n": 1})
    assert len({(user, session) for user, session, _ in agent.seen}) == 3


def test_a_caller_without_a_name_has_a_user_for_each_conversation(serve: Any) -> None:
    agent = Remembers(name="counts", seen=[])
    client = serve(agent)
    client.send("x", context_id="c")
    client.send("x", context_id="c", tenant="t")
    assert [user for user, _, _ in agent.seen] == ["A2A_USER_c", "t/A2A_USER_c"]


def test_callers_that_are_one_owner_share_a_session() -> None:
    agent = Remembers(name="counts", seen=[])
    auth = BearerAuth(lambda token: token)
    with (
        A2AApp(ADKExecutor(runner_of(agent)), auth=auth, owner=lambda call: "team") as app,
        client_of(app, "wsgi", auth="ada") as ada,
        client_of(app, "wsgi", auth="bob") as bob,
    ):
        assert [client.send("x", context_id="c").text for client in (ada, bob, ada)] == ["1", "2", "3"]
    assert {user for user, _, _ in agent.seen} == {"@owner/team"}


def test_one_callers_owners_are_users_of_their_own() -> None:
    agent = Remembers(name="counts", seen=[])
    auth = BearerAuth(lambda token: Principal(id="gateway", claims={"user": token}))
    with (
        A2AApp(
            ADKExecutor(runner_of(agent)), auth=auth, owner=lambda call: call.context.principal.claims["user"]
        ) as app,
        client_of(app, "wsgi", auth="ada") as ada,
        client_of(app, "wsgi", auth="bob") as bob,
    ):
        assert [client.send("x", context_id="c").text for client in (ada, bob, ada)] == ["1", "1", "2"]
    assert {user for user, _, _ in agent.seen} == {"@owner/ada", "@owner/bob"}


def test_a_caller_answers_the_question_of_another_one_of_the_same_owner() -> None:
    auth = BearerAuth(lambda token: token)
    with (
        A2AApp(ADKExecutor(runner_of(asking())), auth=auth, owner=lambda call: "team") as app,
        client_of(app, "wsgi", auth="ada") as ada,
        client_of(app, "wsgi", auth="bob") as bob,
    ):
        assert bob.send("red", task_id=ada.send("what?").task.id).text == "It is red."


# -- long-running tools and credentials ---------------------------------------------------------------------------------


class Asks(Model):
    def answer(self, contents: list[types.Content]) -> Any:
        last = contents[-1].parts[-1]
        if last.function_response:
            return f"It is {last.function_response.response['result']}."
        return [Call("colour", {"question": "Which colour?"})]


def colour(question: str) -> None:
    """Ask for a colour."""


def asking() -> LlmAgent:
    return LlmAgent(name="asks", model=Asks(), instruction=CANARY, tools=[LongRunningFunctionTool(colour)])


def test_the_result_of_a_long_running_tool_is_asked_for(serve: Any) -> None:
    client = serve(asking())
    task = client.send("what?").task
    (part,) = [part for part in task.status.message.parts if isinstance(part, DataPart)]
    assert (task.state, task.text, part.data["tool"]) == (S.INPUT_REQUIRED, "Which colour?", "colour")
    assert client.send("red", task_id=task.id).text == "It is red."


def test_an_agent_of_the_adk_receives_the_call_and_responds_to_it(serve: Any) -> None:
    client = serve(asking())
    asked = client.send(TextPart("what?", metadata={"is_user_input": True})).task
    (part,) = asked.status.message.parts
    assert isinstance(part, DataPart)
    assert part.metadata == {"adk_type": "function_call", "adk_is_long_running": True}
    assert (part.data["name"], part.data["args"]) == ("colour", {"question": "Which colour?"})
    response = {"id": part.data["id"], "name": "colour", "response": {"result": "blue"}}
    answer = DataPart(response, metadata={"adk_type": "function_response"})
    assert client.send(answer, task_id=asked.id).text == "It is blue."


def test_secrets_of_a_credential_are_not_sent(serve: Any) -> None:
    oauth = {"authUri": "https://login", "state": "s", "clientSecret": CANARY, "clientId": CANARY}
    config = {
        "authScheme": {"type": "oauth2"},
        "credentialKey": "k",
        "rawAuthCredential": {"oauth2": oauth},
        "exchangedAuthCredential": {"oauth2": oauth},
    }
    args = {"functionCallId": "f", "authConfig": config}
    call = types.FunctionCall(id="c1", name="adk_request_credential", args=args)
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    event = Event(author="login", content=content, long_running_tool_ids={"c1"})
    task = serve(Says(name="login", events=[event])).send("go").task
    assert task.state is S.AUTH_REQUIRED
    assert "https://login" in task.to_json()
    assert CANARY not in task.to_json()


def test_callers_cannot_respond_to_calls_that_they_were_not_asked_about(serve: Any) -> None:
    response = {"id": "c1", "name": "buy", "response": {"confirmed": True}}
    part = DataPart(response, metadata={"adk_type": "function_response"})
    agent = Says(name="echo", events=[said("Hello!")])
    assert serve(agent).send(["hi", part]).text == "Hello!"


# -- what runs leave behind ---------------------------------------------------------------------------------------------


class Sleeps(BaseAgent):
    started: Any = None
    stopped: Any = None

    async def _run_async_impl(self, ctx: Any) -> Any:
        turns = [
            event.content.parts[0].text for event in ctx.session.events if event.author == "user" and event.content
        ]
        if turns[-1] == "sleep":
            self.started.set()
            try:
                await asyncio.sleep(TIMEOUT)
            finally:
                self.stopped.set()
        yield said(" ".join(turns), invocation_id=ctx.invocation_id)


def test_a_cancel_stops_a_sleeping_agent(serve: Any) -> None:
    agent = Sleeps(name="sleeps", started=threading.Event(), stopped=threading.Event())
    client = serve(agent)
    with client.stream("sleep", context_id="c") as stream:
        next(iter(stream))
        assert agent.started.wait(TIMEOUT)
        assert client.cancel_task(stream.task_id).state is S.CANCELED
    assert agent.stopped.wait(2)


def test_the_history_has_each_message_once(serve: Any) -> None:
    client = serve(Says(name="echo", events=[said("Hello!")]))
    task = client.send("hi").task
    assert texts(client.get_task(task.id).history) == ["user: hi", "agent: Hello!"]
