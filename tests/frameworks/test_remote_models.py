"""Remote agents as models of frameworks: each message is sent once, and the conversation is one of the remote agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, Task, TaskArtifactUpdateEvent, TaskState
from a2a_sync.integrations.bridge import Bridge
from a2a_sync.integrations.remote import AgentModel
from tests.engine import texts
from tests.frameworks.brain import CANARY, TIMEOUT


def openai_agents(client: Client) -> Bridge:
    from agents import Agent, set_tracing_disabled

    from a2a_sync.integrations.openai_agents import OpenAIAgentsBridge, remote_model

    set_tracing_disabled(True)
    return OpenAIAgentsBridge(Agent("front", instructions=CANARY, model=remote_model(client)))


def langgraph(client: Client) -> Bridge:
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    from a2a_sync.integrations.langgraph import LangGraphBridge, remote_model

    agent = create_agent(remote_model(client), [], system_prompt=CANARY, checkpointer=InMemorySaver())
    return LangGraphBridge(agent, name="front")


def pydantic_ai(client: Client) -> Bridge:
    from pydantic_ai import Agent

    from a2a_sync.integrations.pydantic_ai import PydanticAIBridge, remote_model

    return PydanticAIBridge(Agent(remote_model(client), instructions=CANARY), name="front")


class Clerk:
    """A remote agent that streams, asks, remembers the texts of its conversation, and fails."""

    def __init__(self) -> None:
        agent = Agent("clerk")
        agent.message(self.answer)
        self.app = A2AApp(agent)
        self.client = Client(self.app)

    def answer(self, message: Message, context: RequestContext) -> Any:
        if message.text == "break":
            raise ValueError(CANARY)
        if message.text == "order":
            return f"ordered: {context.ask('Which size?')}"
        asked = [one.text for one in context.conversation() if one.role.value == "user"]
        return (word for word in ("You ", "said: ", ", ".join(asked), "."))


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    clerk = Clerk()
    with clerk.app, clerk.client:
        yield clerk


@pytest.fixture(params=[openai_agents, langgraph, pydantic_ai])
def client(request: pytest.FixtureRequest, clerk: Clerk, tmp_path: Path) -> Iterator[Client]:
    bridge: Callable[[Client], Bridge] = request.param
    with A2AApp(bridge(clerk.client), store=f"sqlite:///{tmp_path}/tasks.db") as app, Client(app) as client:
        yield client


def send(client: Client, text: str) -> Task:
    return client.send(text, context_id="c", timeout=TIMEOUT * 3).task


def ask(clerk: Clerk, text: str, mark: str) -> list[Any]:
    async def pieces() -> list[Any]:
        return [piece async for piece in AgentModel(clerk.client).send(text, mark)]

    return asyncio.run(pieces())


def test_an_answer_is_streamed(client: Client) -> None:
    with client.stream("hello") as stream:
        pieces = [event for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert len(pieces) > 1
    assert stream.text == "You said: hello."


def test_each_message_is_sent_once_to_one_context_without_instructions(client: Client, clerk: Clerk) -> None:
    assert send(client, "one").artifacts[0].text == "You said: one."
    assert send(client, "two").artifacts[0].text == "You said: one, two."
    remote = [clerk.client.get_task(task.id) for task in clerk.client.list_tasks().tasks]
    assert len({task.context_id for task in remote}) == 1
    assert CANARY not in repr(remote)


def test_a_question_is_an_answer_and_the_next_message_continues_its_task(client: Client, clerk: Clerk) -> None:
    assert send(client, "order").artifacts[0].text == "Which size?"
    assert send(client, "large").artifacts[0].text == "ordered: large"
    (remote,) = clerk.client.list_tasks().tasks
    messages = texts(clerk.client.get_task(remote.id).history)
    assert [text for text in messages if text.startswith("user")] == ["user: order", "user: large"]


def test_a_failed_task_fails_the_run(client: Client) -> None:
    task = send(client, "break")
    assert task.state is TaskState.FAILED
    assert CANARY not in task.to_json()


def test_a_handoff_reaches_the_remote_agent(clerk: Clerk) -> None:
    from agents import Agent, set_tracing_disabled
    from agents.testing import assistant_message, function_call

    from a2a_sync.integrations.openai_agents import OpenAIAgentsBridge, remote_model
    from tests.frameworks.kit_openai_agents import FakeModel

    class HandsOff(FakeModel):
        def _output(self, items: Any) -> list[Any]:
            return [assistant_message("Let me see."), function_call("transfer_to_clerk", {}, call_id="c1")]

    set_tracing_disabled(True)
    front = Agent(
        "front", instructions=CANARY, model=HandsOff(), handoffs=[Agent("clerk", model=remote_model(clerk.client))]
    )
    with A2AApp(OpenAIAgentsBridge(front)) as app, Client(app) as client:
        assert client.send("hello", timeout=TIMEOUT * 3).text == "You said: hello\n\n[another agent] Let me see.."


@pytest.mark.parametrize("mark", ["", "msg_a2a_", "msg_a2a_%%", "msg_a2a_W10", "resp_1"])
def test_a_mark_that_is_none_begins_a_conversation(clerk: Clerk, mark: str) -> None:
    assert ask(clerk, "hello", mark)[-1].text == "You said: hello."


def test_the_ids_that_one_remote_agent_answers_with_are_not_sent_to_another(clerk: Clerk) -> None:
    waiting = clerk.client.send("order").task
    agent = Agent("other")
    agent.message(lambda message, context: message.text)
    with A2AApp(agent) as app, Client(app) as other:
        foreign = AgentModel(other)._mark(waiting.context_id, waiting.id)
    turns = [("user", "hello", ""), ("assistant", "Sure?", foreign), ("user", "yes", "")]
    text, mark = AgentModel(clerk.client).since(turns)
    assert (text, mark) == ("hello\n\n[another agent] Sure?\n\nyes", "")
    own = AgentModel(clerk.client)._mark(waiting.context_id, waiting.id)
    assert AgentModel(clerk.client).since([*turns, ("assistant", "Which size?", own)]) == ("", own)
    for sent in (foreign, own):
        ask(clerk, "large", sent)
    assert clerk.client.get_task(waiting.id).text == "ordered: large"
    assert len(clerk.client.list_tasks().tasks) == 2
