"""The official SDK's client against our server under gunicorn, both as they are released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.live import gunicorn

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = f"sqlite:///{tmp_path_factory.mktemp('interop') / 'tasks.db'}" if request.param == "sqlite" else "memory:"
    with gunicorn("tests.scenarios.agent:app", threads=16, environment={"SCENARIO_STORE": store}) as server:
        yield server.url


@asynccontextmanager
async def official(url: str, binding: str, *, streaming: bool) -> AsyncIterator[Any]:
    """The SDK's client for the agent at `url`, made from its card."""
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding])
        yield ClientFactory(config).create(card)


#: Where the agent is, and the binding to call it in.
Way = tuple[str, str]


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def way(request: pytest.FixtureRequest, url: str) -> Way:
    return url, request.param


def talk(way: Way, conversation: Callable[[Any], Awaitable[None]], *, streaming: bool = True) -> None:
    """Have a conversation with the agent, for at most 40 seconds."""

    async def main() -> None:
        async with official(*way, streaming=streaming) as client:
            await asyncio.wait_for(conversation(client), 40)

    asyncio.run(main())


def request(text: str, **ids: str) -> Any:
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    return SendMessageRequest(message=message)


async def events(stream: Any) -> list[Any]:
    return [event async for event in stream]


def kinds(received: list[Any]) -> list[str]:
    return [event.WhichOneof("payload") for event in received]


def test_a_blocking_send_is_answered_with_the_finished_task(way: Way) -> None:
    async def conversation(client: Any) -> None:
        (answer,) = await events(client.send_message(request("echo Ada")))
        assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer.task.artifacts[0].parts[0].text == "echo: Ada"
        stored = await client.get_task(GetTaskRequest(id=answer.task.id))
        assert stored == answer.task

    talk(way, conversation, streaming=False)


def test_a_stream_is_the_task_its_updates_and_its_end(way: Way) -> None:
    async def conversation(client: Any) -> None:
        received = await events(client.send_message(request("count 5")))
        assert kinds(received) == ["task", "status_update", *["artifact_update"] * 6, "status_update"]
        text = "".join(part.text for event in received[2:8] for part in event.artifact_update.artifact.parts)
        assert text == "1 2 3 4 5 "
        assert received[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED

    talk(way, conversation)


def test_a_question_is_answered_in_the_same_task(way: Way) -> None:
    async def conversation(client: Any) -> None:
        asked = (await events(client.send_message(request("ask"))))[-1].status_update
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        received = await events(
            client.send_message(request("large", task_id=asked.task_id, context_id=asked.context_id))
        )
        assert received[0].task.id == asked.task_id
        assert received[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED

    talk(way, conversation)


def test_tasks_are_listed_page_by_page(way: Way) -> None:
    async def conversation(client: Any) -> None:
        listed = f"listed {way[1]}"
        ids = set()
        for _ in range(3):
            (answer,) = await events(client.send_message(request("echo x", context_id=listed)))
            ids.add(answer.task.id)
        first = await client.list_tasks(ListTasksRequest(context_id=listed, page_size=2))
        assert (len(first.tasks), first.total_size) == (2, 3)
        rest = await client.list_tasks(
            ListTasksRequest(context_id=listed, page_size=2, page_token=first.next_page_token)
        )
        assert {task.id for page in (first, rest) for task in page.tasks} == ids
        assert not rest.next_page_token

    talk(way, conversation, streaming=False)


def test_a_running_task_is_subscribed_to_and_cancelled(way: Way) -> None:
    async def conversation(client: Any) -> None:
        stream = client.send_message(request("wait"))
        task: Task = (await anext(aiter(stream))).task
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
        assert kinds(followed)[0] == "task"
        assert followed[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
        last = (await events(stream))[-1]
        assert last.status_update.status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(UnsupportedOperationError):
            await events(client.subscribe(SubscribeToTaskRequest(id=task.id)))

    talk(way, conversation)


def test_an_unknown_task_is_the_sdks_own_error(way: Way) -> None:
    async def conversation(client: Any) -> None:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="no-such-task"))

    talk(way, conversation)
