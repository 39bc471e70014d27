from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    Client,
    Failed,
    InputRequired,
    Message,
    Rejected,
    RequestContext,
    Task,
    TaskState,
    TaskStatus,
)
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.integrations import remote
from a2a_sync.integrations.remote import AgentModel, AgentTool, ModelAnswer, RemoteCall, ToolAnswer
from tests.engine import eventually

TIMEOUT = 30.0


class Gate:
    """A client whose streams are returned late."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.open = threading.Event()

    def stream(self, *arguments: Any, **options: Any) -> Any:
        stream = self.client.stream(*arguments, **options)
        self.open.wait(TIMEOUT)
        return stream

    def cancel_task(self, *arguments: Any, **options: Any) -> Any:
        return self.client.cancel_task(*arguments, **options)


def test_a_call_that_is_abandoned_before_its_first_event_cancels_the_task() -> None:
    works = threading.Event()
    agent = Agent("clerk")

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        works.set()
        context.sleep(TIMEOUT)
        return "late"

    with A2AApp(agent) as app, Client(app) as client:
        gate: Any = Gate(client)

        async def abandon() -> None:
            call = asyncio.create_task(RemoteCall(gate, "order").run())
            assert await asyncio.to_thread(works.wait, TIMEOUT)
            call.cancel()
            await asyncio.wait([call])
            gate.open.set()

        asyncio.run(abandon())
        (task,) = client.list_tasks().tasks
        eventually(lambda: client.get_task(task.id).state is TaskState.CANCELED)


def test_a_call_that_is_abandoned_while_its_agent_does_not_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept its thread for `Timeout.read`, 75 seconds."""
    monkeypatch.setattr(remote, "_NAME_SECONDS", 0.2)
    ended = threading.Event()

    class Observed(Client):
        def stream(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().stream(*arguments, **options)
            finally:
                ended.set()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        card = AgentCard(
            name="silent",
            description="never answers",
            version="1",
            supported_interfaces=(AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),),
        )

        async def abandon(client: Client) -> None:
            call = asyncio.create_task(RemoteCall(client, "order").run())
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                connection.settimeout(TIMEOUT)
                await asyncio.to_thread(connection.recv, 10_000)
                call.cancel()
                await asyncio.wait([call])
                assert await asyncio.to_thread(ended.wait, TIMEOUT)

        with Observed(card) as client:
            asyncio.run(abandon(client))


class CountedStream:
    """A stream, and the number of events that were read of it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.read = 0

    def __enter__(self) -> CountedStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()

    def __iter__(self) -> Any:
        for event in self.stream:
            self.read += 1
            yield event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def test_no_more_is_read_of_an_agent_than_its_consumer_takes() -> None:
    agent = Agent("talker")

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        for number in range(300):
            context.update(f"{number}")
        return "done"

    with A2AApp(agent) as app, Client(app) as client:
        counted: list[CountedStream] = []

        class Counting:
            def stream(self, *arguments: Any, **options: Any) -> Any:
                counted.append(CountedStream(client.stream(*arguments, **options)))
                return counted[0]

        async def consume() -> list[str]:
            talker: Any = Counting()
            call = RemoteCall(talker, "talk")
            texts = []
            async for event, _ in call.events():
                if not texts:
                    ended = lambda: client.list_tasks().tasks[0].state is TaskState.COMPLETED  # noqa: E731
                    await asyncio.to_thread(eventually, ended)
                    await asyncio.to_thread(eventually, lambda: counted[0].read > 16)
                    client.list_tasks()
                    assert counted[0].read <= 18
                texts.append(
                    event.status.message.text if getattr(event, "status", None) and event.status.message else ""
                )
            return texts

        texts = asyncio.run(asyncio.wait_for(consume(), TIMEOUT))
        assert [text for text in texts if text.isdecimal()] == [str(number) for number in range(300)]


# -- answers of hostile agents ------------------------------------------------------------------------------------------


def answering(result: Any) -> Agent:
    """An agent with one answer to all messages."""
    agent = Agent("talker")
    agent.message(lambda message, context: result)
    return agent


def streamed(message: Message, context: RequestContext) -> Any:
    for _ in range(3):
        yield "x" * 600_000


def asking(message: Message, context: RequestContext) -> Any:
    yield "x" * 600_000
    return InputRequired("y" * 600_000)


@pytest.mark.parametrize("kind", [str, Failed, Rejected, InputRequired])
def test_no_answer_of_a_tool_has_more_text_than_a_model_can_read(kind: Any) -> None:
    with answering(kind("x" * 1_500_000)) as agent, Client(agent) as client:
        tool = AgentTool(client)
        *_, last = tool.send_blocking("order")
        assert isinstance(last, ToolAnswer)
        for text in (last.text, asyncio.run(tool.answer("order")).text):
            assert text.endswith("x\n\n[500000 more characters were left out]")
            assert len(text) < 1_000_200
        assert bool(last.task_id) == (kind is InputRequired)


@pytest.mark.parametrize(("handler", "missing"), [(streamed, 800_000), (asking, 200_000)])
def test_no_answer_of_a_model_has_more_text_than_a_framework_copies(handler: Any, missing: int) -> None:
    agent = Agent("talker")
    agent.message(handler)

    async def send(client: Client) -> list[Any]:
        return [piece async for piece in AgentModel(client).send("order")]

    with agent, Client(agent) as client:
        *pieces, answer = asyncio.run(send(client))
    assert isinstance(answer, ModelAnswer)
    assert "".join(pieces) == answer.text
    note = f"\n\n[{missing} more characters were left out]"
    assert answer.text.endswith(note)
    assert len(answer.text) == 1_000_000 + len(note)


class ToldStream:
    """A stream without events, whose result is known."""

    message = None
    state = TaskState.INPUT_REQUIRED

    def __init__(self, task: Task) -> None:
        self.task = task
        self.task_id = task.id

    def __enter__(self) -> ToldStream:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __iter__(self) -> Any:
        return iter(())


class Teller(Client):
    """A client whose agent asks a question with ids of five million characters."""

    def stream(self, *arguments: Any, **options: Any) -> Any:
        long = "i" * 5_000_000
        return ToldStream(Task(id=long, context_id=long, status=TaskStatus(state=TaskState.INPUT_REQUIRED)))


def test_no_framework_keeps_an_id_that_is_too_long() -> None:
    with Teller("http://127.0.0.1:9/") as client:
        answer = asyncio.run(AgentTool(client, name="clerk", description="sells").answer("order"))
        assert answer == (
            "\n\n[input is needed: this tool cannot continue the task, because its id is too long]",
            "",
        )

        async def send() -> list[Any]:
            return [piece async for piece in AgentModel(client).send("order")]

        *_, (text, mark) = asyncio.run(send())
        assert text == "The agent needs an answer"
        assert len(mark) < 200
