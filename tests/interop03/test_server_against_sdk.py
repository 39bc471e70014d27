"""The client of the sdk_client SDK of protocol 0.3 against `A2AApp` under gunicorn, over both bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)

from tests.peers.async_client import Conversation, events, run
from tests.peers.record import CARD, ERRORS, HTTP_JSON_03, JSONRPC_03, STREAM, THEIRS, Transport, covers, departs
from tests.peers.servers import our_agent

PEER, ROLE = "python-03", THEIRS
TRANSPORTS = [JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_agent(request.param, tmp_path_factory.mktemp("interop")) as url:
        yield url


@asynccontextmanager
async def sdk_client(url: str, transport: Transport, *, streaming: bool, path: str) -> AsyncIterator[Any]:
    """The SDK's client for the agent at `url`, created from the card, which it requests without a version."""
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card(path)
        config = ClientConfig(
            httpx_client=http, streaming=streaming, supported_transports=[transport.binding], use_client_preference=True
        )
        yield ClientFactory(config).create(card)


#: Runs a conversation with the agent.
Talk = Callable[..., None]


@pytest.fixture
def talk(url: str, transport: Transport) -> Talk:
    """A function that runs a conversation with the agent."""

    def talk(conversation: Conversation, *, streaming: bool = True, path: str = NEW) -> None:
        run(sdk_client(url, transport, streaming=streaming, path=path), conversation)

    return talk


@contextmanager
def refused(code: int, status: int) -> Iterator[None]:
    """Expect an error: its code over JSON-RPC, its status over HTTP+JSON, where the SDK does not report the code."""
    with pytest.raises((A2AClientJSONRPCError, A2AClientHTTPError)) as caught:
        yield
    error = caught.value
    assert (error.error.code if isinstance(error, A2AClientJSONRPCError) else error.status_code) in (code, status)


def message(words: str, *more: Part, **ids: str) -> Message:
    return Message(role=Role.user, message_id="m-1", parts=[Part(root=TextPart(text=words)), *more], **ids)


@covers(CARD)
@pytest.mark.parametrize("path", [NEW, OLD])
def test_the_card_is_read_at_both_paths(path: str, url: str, talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        card = client._card
        assert (card.name, card.protocol_version, card.url) == ("scenario", "0.3.0", url + "/")
        assert card.capabilities.streaming

    talk(conversation, path=path)


@covers("SendMessage", "GetTask")
def test_a_blocking_send_is_answered_with_the_finished_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, update),) = await events(client.send_message(message("echo Ada")))
        assert update is None
        assert task.status.state == TaskState.completed
        assert task.artifacts[0].parts[0].root.text == "echo: Ada"
        assert await client.get_task(TaskQueryParams(id=task.id)) == task

    talk(conversation, streaming=False)


@covers("SendMessage", "CancelTask")
def test_a_non_blocking_send_returns_the_current_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        configuration = MessageSendConfiguration(blocking=False)
        ((task, _),) = await events(client.send_message(message("wait"), configuration=configuration))
        assert task.status.state in (TaskState.submitted, TaskState.working)
        cancelled = await client.cancel_task(TaskIdParams(id=task.id))
        assert cancelled.status.state == TaskState.canceled

    talk(conversation, streaming=False)


@covers(STREAM)
def test_a_stream_consists_of_task_updates_and_end(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        received = await events(client.send_message(message("count 5")))
        updates = [update for _, update in received]
        assert updates[0] is None
        assert [update.kind for update in updates[1:]] == [
            "status-update",
            *["artifact-update"] * 6,
            "status-update",
        ]
        assert [update.final for update in updates[1:] if isinstance(update, TaskStatusUpdateEvent)] == [False, True]
        task = received[-1][0]
        assert task.status.state == TaskState.completed
        # The SDK merges the chunks by its own rules.
        assert "".join(part.root.text for part in task.artifacts[0].parts) == "1 2 3 4 5 "

    talk(conversation)


@covers(STREAM)
def test_a_question_is_answered_in_the_same_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        task, update = (await events(client.send_message(message("ask"))))[-1]
        assert (update.status.state, update.final) == (TaskState.input_required, True)
        ids = {"task_id": task.id, "context_id": task.context_id}
        received = await events(client.send_message(message("large", **ids)))
        assert received[0][0].id == task.id
        assert received[-1][0].status.state == TaskState.completed

    talk(conversation)


@covers("SubscribeToTask", "CancelTask")
def test_a_running_task_is_resubscribed_to_and_cancelled(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        stream = client.send_message(message("wait"))
        task, _ = await anext(aiter(stream))
        followed: list[Any] = []
        begun = asyncio.Event()

        async def follow() -> None:
            async for event in client.resubscribe(TaskIdParams(id=task.id)):
                followed.append(event)
                begun.set()

        follower = asyncio.create_task(follow())
        await begun.wait()
        cancelled = await client.cancel_task(TaskIdParams(id=task.id))
        assert cancelled.status.state == TaskState.canceled
        await follower
        assert followed[0][1] is None  # the task as it was
        assert followed[-1][1].status.state == TaskState.canceled
        assert (await events(stream))[-1][0].status.state == TaskState.canceled

    talk(conversation)


@covers("SendMessage")
def test_files_and_data_are_sent_and_received(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        file = Part(root=FilePart(file=FileWithBytes(bytes="AAEC/w==", mime_type="image/png", name="a.png")))
        ((task, _),) = await events(client.send_message(message("file", file)))
        copy = task.artifacts[0].parts[0].root.file
        assert (copy.bytes, copy.mime_type, copy.name) == ("AAEC/w==", "image/x-test", "copy.bin")
        assert task.history[0].parts[1].root.file.name == "a.png"
        ((summed, _),) = await events(client.send_message(message("data 1 2 39")))
        part = summed.artifacts[0].parts[0].root
        assert isinstance(part, DataPart)
        assert part.data == {"numbers": [1, 2, 39], "total": 42}

    talk(conversation, streaming=False)


@covers("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig")
def test_a_webhook_is_created_and_read(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, _),) = await events(client.send_message(message("ask")))
        wanted = PushNotificationConfig(id="a", url="https://hooks.test/a", token="secret")
        made = await client.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=wanted)
        )
        assert (made.task_id, made.push_notification_config) == (task.id, wanted)
        asked = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="a")
        assert (await client.get_task_callback(asked)).push_notification_config.url == "https://hooks.test/a"

    talk(conversation, streaming=False)


@covers("GetExtendedAgentCard")
def test_the_extended_card_is_read(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        assert (await client.get_card()).description == "For authenticated callers"

    talk(conversation)


@covers(ERRORS)
def test_errors_have_the_codes_of_0_3(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, _),) = await events(client.send_message(message("echo x")))
        with refused(-32001, 404):
            await client.get_task(TaskQueryParams(id="no-such-task"))
        with refused(-32001, 404):
            await client.cancel_task(TaskIdParams(id="no-such-task"))
        with refused(-32002, 400):
            await client.cancel_task(TaskIdParams(id=task.id))

    talk(conversation, streaming=False)


@covers(ERRORS)
@departs(
    "its client reports status 400 for every refused subscription",
    ERRORS,
    transport=HTTP_JSON_03,
)
def test_a_stream_reports_its_error(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, _), *_) = await events(client.send_message(message("echo x")))
        for stream, code, status in (
            (client.send_message(message("hi", task_id="no-such-task")), -32001, 404),
            (client.resubscribe(TaskIdParams(id="no-such-task")), -32001, 400),
            (client.resubscribe(TaskIdParams(id=task.id)), -32004, 400),
            (client.send_message(message("more", task_id=task.id)), -32004, 400),
        ):
            with refused(code, status):
                await events(stream)

    talk(conversation)
