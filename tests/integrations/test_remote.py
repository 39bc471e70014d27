from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, TaskState
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.integrations import remote
from a2a_sync.integrations.remote import RemoteCall
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
