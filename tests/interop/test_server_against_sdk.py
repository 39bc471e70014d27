"""The sdk_client SDK's client against `A2AApp` under gunicorn, in both protocol versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_sync import Client
from tests.peers.async_client import Conversation, events, run
from tests.peers.record import (
    CARD,
    ERRORS,
    HTTP_JSON_03,
    HTTP_JSON_10,
    JSONRPC_03,
    JSONRPC_10,
    PUSH,
    STREAM,
    THEIRS,
    Transport,
    covers,
    departs,
)
from tests.peers.servers import our_agent

pytest.importorskip("a2a", reason="the sdk_client SDK is not installed (make interop installs it)")

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

PEER, ROLE = "python", THEIRS
TRANSPORTS = [JSONRPC_10, HTTP_JSON_10, JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_agent(request.param, tmp_path_factory.mktemp("interop")) as url:
        yield url


@asynccontextmanager
async def sdk_client(url: str, transport: Transport, *, streaming: bool) -> AsyncIterator[Any]:
    """The SDK's client for the agent at `url`, created from the card of the transport's version."""
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card(
            http_kwargs={"headers": {"A2A-Version": transport.version}}
        )
        if transport.version == "1.0":
            assert {one.protocol_version for one in card.supported_interfaces} == {"1.0", "0.3"}
        config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[transport.binding])
        yield ClientFactory(config).create(card)


#: Runs a conversation with the agent.
Talk = Callable[..., None]


@pytest.fixture
def talk(url: str, transport: Transport) -> Talk:
    """A function that runs a conversation with the agent."""

    def talk(conversation: Conversation, *, streaming: bool = True) -> None:
        run(sdk_client(url, transport, streaming=streaming), conversation)

    return talk


def request(text: str, *, return_immediately: bool = False, **ids: str) -> Any:
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    return SendMessageRequest(
        message=message, configuration=SendMessageConfiguration(return_immediately=return_immediately)
    )


def kinds(received: list[Any]) -> list[str]:
    return [event.WhichOneof("payload") for event in received]


@covers(CARD, "SendMessage", "GetTask")
def test_a_blocking_send_is_answered_with_the_finished_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        (answer,) = await events(client.send_message(request("echo Ada")))
        assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer.task.artifacts[0].parts[0].text == "echo: Ada"
        stored = await client.get_task(GetTaskRequest(id=answer.task.id))
        assert stored == answer.task

    talk(conversation, streaming=False)


@covers("SendMessage")
def test_an_answer_may_be_a_message(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        (answer,) = await events(client.send_message(request("message")))
        assert answer.message.parts[0].text == "no task was needed"

    talk(conversation, streaming=False)


@covers("SendMessage", "CancelTask")
def test_a_non_blocking_send_returns_the_current_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        (answer,) = await events(client.send_message(request("wait", return_immediately=True)))
        assert answer.task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        cancelled = await client.cancel_task(CancelTaskRequest(id=answer.task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED

    talk(conversation, streaming=False)


@covers("SendMessage", "GetTask")
def test_the_bytes_of_a_file_are_equal_on_both_sides(talk: Talk, url: str) -> None:
    raw = b"\0\xff 8 by"

    async def conversation(client: Any) -> None:
        parts = [Part(text="file"), Part(raw=raw, media_type="image/png")]
        message = Message(message_id="m-1", role=Role.ROLE_USER, parts=parts)
        (answer,) = await events(client.send_message(SendMessageRequest(message=message)))
        stored = await client.get_task(GetTaskRequest(id=answer.task.id))
        for task in (answer.task, stored):
            assert task.artifacts[0].parts[0].raw == raw
            assert task.history[0].parts[1].raw == raw
        with Client(url) as ours:
            assert ours.get_task(answer.task.id).artifacts[0].files[0].raw == raw

    talk(conversation, streaming=False)


@covers(STREAM)
def test_a_stream_consists_of_task_updates_and_end(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        received = await events(client.send_message(request("count 5")))
        assert kinds(received) == ["task", "status_update", *["artifact_update"] * 6, "status_update"]
        *pieces, whole = (event.artifact_update for event in received[2:8])
        assert "".join(part.text for piece in pieces for part in piece.artifact.parts) == "1 2 3 4 5 "
        assert (whole.append, whole.last_chunk) == (False, True)
        assert "".join(part.text for part in whole.artifact.parts) == "1 2 3 4 5 "
        assert received[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED

    talk(conversation)


@covers(STREAM)
def test_a_question_is_answered_in_the_same_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        asked = (await events(client.send_message(request("ask"))))[-1].status_update
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        received = await events(
            client.send_message(request("large", task_id=asked.task_id, context_id=asked.context_id))
        )
        assert received[0].task.id == asked.task_id
        assert received[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED

    talk(conversation)


@covers("ListTasks")
def test_tasks_are_listed_page_by_page(talk: Talk, transport: Transport) -> None:
    async def conversation(client: Any) -> None:
        if transport.version == "0.3":
            with pytest.raises(NotImplementedError):
                await client.list_tasks(ListTasksRequest())
            return
        listed = f"listed {transport}"
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

    talk(conversation, streaming=False)


@covers("SubscribeToTask", "CancelTask", ERRORS)
def test_a_running_task_is_subscribed_to_and_cancelled(talk: Talk) -> None:
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

    talk(conversation)


@covers(*PUSH)
@departs("its client does not implement it in this binding", *PUSH[2:], transport=HTTP_JSON_03)
def test_webhooks_are_created_read_listed_and_deleted(talk: Talk, transport: Transport) -> None:
    async def conversation(client: Any) -> None:
        (asked,) = await events(client.send_message(request("ask")))
        task_id = asked.task.id
        for name in ("a", "b"):
            wanted = TaskPushNotificationConfig(task_id=task_id, id=name, url=f"https://hooks.test/{name}", token="t")
            made = await client.create_task_push_notification_config(wanted)
            assert (made.task_id, made.id, made.url) == (task_id, name, f"https://hooks.test/{name}")
        one = GetTaskPushNotificationConfigRequest(task_id=task_id, id="a")
        read = await client.get_task_push_notification_config(one)
        assert (read.id, read.url) == ("a", "https://hooks.test/a")

        async def listed() -> set[str]:
            all_of_it = ListTaskPushNotificationConfigsRequest(task_id=task_id)
            return {config.id for config in (await client.list_task_push_notification_configs(all_of_it)).configs}

        if transport == HTTP_JSON_03:
            with pytest.raises(NotImplementedError):
                await listed()
            return
        assert await listed() == {"a", "b"}
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="a")
        )
        assert await listed() == {"b"}

    talk(conversation, streaming=False)


@covers("GetExtendedAgentCard")
def test_the_extended_card_is_read(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert (card.name, card.description) == ("scenario", "For authenticated callers")

    talk(conversation)


@covers(ERRORS)
def test_an_unknown_task_raises_the_error_of_the_sdk(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="no-such-task"))
        with pytest.raises(TaskNotFoundError):
            await events(client.send_message(request("hi", task_id="no-such-task")))

    talk(conversation)
