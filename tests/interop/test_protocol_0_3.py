"""Protocol 0.3 between us and the newest official SDK, which still speaks it when it must."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Client, DataPart, FilePart, TextPart
from a2a_sync import Task as OurTask
from a2a_sync import TaskNotCancelableError as OurTaskNotCancelableError
from a2a_sync import TaskNotFoundError as OurTaskNotFoundError
from a2a_sync import TaskState as OurTaskState
from tests.live import free_port, gunicorn, live_server
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import CARD, OLD_CARD, Peer

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import Parse

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


# -- our cards, read by the SDK -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize(
    ("version", "offered"), [("", ["1.0", "1.0", "0.3"]), ("1.0", ["1.0", "1.0", "0.3"]), ("0.3", ["0.3.0", "0.3.0"])]
)
def test_every_form_of_our_card_is_read(version: str, offered: list[str], path: str) -> None:
    with A2AApp(ScenarioAgent(), url="https://agent.test/x") as app:
        document = Peer(app).request("GET", path, headers={"A2A-Version": version}).json
    card = parse_agent_card(document)
    assert (card.name, card.skills[0].id, card.capabilities.streaming) == ("scenario", "obey", True)
    assert [one.protocol_version for one in card.supported_interfaces] == offered
    assert {one.url.rstrip("/") for one in card.supported_interfaces} == {"https://agent.test/x"}


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
def test_the_pure_form_of_1_0_has_no_member_that_the_official_card_does_not_know(path: str) -> None:
    with A2AApp(ScenarioAgent(), url="https://agent.test/x") as app:
        body = Peer(app).request("GET", path, headers={"A2A-Version": "1.0"}).body
    card = Parse(body, AgentCard(), ignore_unknown_fields=False)
    assert card.name == "scenario"


# -- its client, which finds nothing but 0.3, against us ----------------------------------------------------------------


@pytest.fixture(scope="module")
def our_url() -> Iterator[str]:
    with gunicorn("tests.scenarios.agent:app", threads=16, environment={"SCENARIO_STORE": "memory:"}) as server:
        yield server.url


def talk(url: str, conversation: Callable[[Any], Awaitable[None]], *, streaming: bool = True) -> None:
    """Have a conversation in 0.3, for at most 40 seconds."""

    async def main() -> None:
        async with httpx.AsyncClient(timeout=30) as http:
            old = {"headers": {"A2A-Version": "0.3"}}
            card = await A2ACardResolver(http, url).get_agent_card(http_kwargs=old)
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)
            await asyncio.wait_for(conversation(client), 40)

    asyncio.run(main())


def request(text: str, **ids: str) -> Any:
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    return SendMessageRequest(message=message)


async def events(stream: Any) -> list[Any]:
    return [event async for event in stream]


def test_its_send_is_answered(our_url: str) -> None:
    async def conversation(client: Any) -> None:
        (answer,) = await events(client.send_message(request("echo Ada")))
        assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer.task.artifacts[0].parts[0].text == "echo: Ada"
        assert await client.get_task(GetTaskRequest(id=answer.task.id)) == answer.task

    talk(our_url, conversation, streaming=False)


def test_its_stream_is_the_task_its_updates_and_its_end(our_url: str) -> None:
    async def conversation(client: Any) -> None:
        received = await events(client.send_message(request("count 5")))
        kinds = [event.WhichOneof("payload") for event in received]
        assert kinds == ["task", "status_update", *["artifact_update"] * 6, "status_update"]
        text = "".join(part.text for event in received[2:8] for part in event.artifact_update.artifact.parts)
        assert text == "1 2 3 4 5 "

    talk(our_url, conversation)


def test_it_is_asked_follows_and_cancels(our_url: str) -> None:
    async def conversation(client: Any) -> None:
        asked = (await events(client.send_message(request("ask"))))[-1].status_update
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        ids = {"task_id": asked.task_id, "context_id": asked.context_id}
        last = (await events(client.send_message(request("large", **ids))))[-1]
        assert last.status_update.status.state == TaskState.TASK_STATE_COMPLETED

        stream = client.send_message(request("wait"))
        task = (await anext(aiter(stream))).task
        followed: list[Any] = []
        begun = asyncio.Event()

        async def follow() -> None:
            async for event in client.subscribe(SubscribeToTaskRequest(id=task.id)):
                followed.append(event)
                begun.set()

        follower = asyncio.create_task(follow())
        await begun.wait()
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        await follower
        assert followed[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
        await events(stream)
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="no-such-task"))

    talk(our_url, conversation)


# -- our client, pinned to 0.3, against its server ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def its_url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@pytest.fixture
def client(its_url: str) -> Iterator[Client]:
    with Client(its_url, version="0.3", timeout=30) as client:
        yield client


def test_our_send_is_answered(client: Client) -> None:
    task = client.send("hello")
    assert isinstance(task, OurTask)
    assert (task.state, task.text) == (OurTaskState.COMPLETED, "hello")
    stored = client.get_task(task.id)
    assert (stored.status.state, stored.artifacts) == (task.status.state, task.artifacts)


def test_our_stream_is_folded_into_what_it_stored(client: Client) -> None:
    with client.stream("count 5") as stream:
        events = list(stream)
        folded = stream.task
    assert len(events) >= 7
    assert folded is not None
    assert folded.text == "1 2 3 4 5 "
    assert client.get_task(folded.id).artifacts == folded.artifacts


def test_our_parts_arrive(client: Client) -> None:
    parts = [
        TextPart("parts"),
        FilePart(raw=bytes(range(256)), filename="a.bin", media_type="image/x-test"),
        FilePart(url="https://files.example/a", media_type="text/plain"),
        DataPart({"a": [1.5, None]}),
        DataPart([True, "x"]),
    ]
    task = client.send(parts)
    assert isinstance(task, OurTask)
    assert list(client.get_task(task.id).history[0].parts) == parts


def test_we_are_asked_follow_and_cancel(client: Client, its_url: str) -> None:
    chat = client.chat()
    asked, done = chat.send("ask"), chat.send("large")
    assert isinstance(asked, OurTask)
    assert isinstance(done, OurTask)
    assert (asked.state, done.id, done.state) == (OurTaskState.INPUT_REQUIRED, asked.id, OurTaskState.COMPLETED)

    task = client.send("wait", return_immediately=True)
    assert isinstance(task, OurTask)
    ends: list[OurTaskState] = []
    begun = threading.Event()

    def follow() -> None:
        with Client(its_url, version="0.3") as other, other.subscribe(task.id, timeout=30) as stream:
            for _ in stream:
                begun.set()
            ends.append(stream.state)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(20)
    assert client.cancel_task(task.id).state is OurTaskState.CANCELED
    thread.join(20)
    assert ends == [OurTaskState.CANCELED]
    with pytest.raises(OurTaskNotCancelableError):
        client.cancel_task(task.id)
    with pytest.raises(OurTaskNotFoundError):
        client.get_task("no-such-task")
