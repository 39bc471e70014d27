"""gRPC with the official SDK of protocol 0.3: its client against `GRPCServer`, and our client against its server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.grpc import a2a_pb2_grpc
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    GetTaskPushNotificationConfigParams,
    MessageSendConfiguration,
    PushNotificationConfig,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
)

from a2a_sync import A2AApp, Client, DataPart, FilePart, Message, Task, TextPart, errors
from a2a_sync import TaskState as State
from a2a_sync.grpc import GRPCServer
from tests.engine import Background
from tests.interop03.sdk_agent import CommandAgent
from tests.interop03.test_server_against_sdk import message
from tests.peers.async_client import Conversation, events, run
from tests.peers.our_agent import AGENT, LIMITS

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]
TIMEOUT = 30


def card_of(address: str) -> Any:
    """A card that lists gRPC alone."""
    return AgentCard(
        name="n",
        description="d",
        version="1",
        url=address,
        preferred_transport="GRPC",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[],
    )


# -- the official client, our server ------------------------------------------------------------------------------------

#: Runs a conversation with our agent.
Talk = Callable[..., None]


@asynccontextmanager
async def sdk_client(address: str, *, streaming: bool) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        config = ClientConfig(
            grpc_channel_factory=lambda url: channel, supported_transports=["GRPC"], streaming=streaming
        )
        yield ClientFactory(config).create(card_of(address))


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    extended = replace(AGENT.describe(), description="For authenticated callers")
    with (
        A2AApp(AGENT, limits=LIMITS, push=True, extended_card=extended) as app,
        GRPCServer(app, "127.0.0.1:0") as server,
    ):
        address = f"127.0.0.1:{server.port}"

        def talk(conversation: Conversation, *, streaming: bool = True) -> None:
            run(sdk_client(address, streaming=streaming), conversation)

        yield talk


def code_of(error: Any) -> str:
    name: str = error.value.code().name
    return name


def test_a_blocking_send_is_answered_with_the_finished_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, update),) = await events(client.send_message(message("echo Ada")))
        assert update is None
        assert task.status.state == TaskState.completed
        assert task.artifacts[0].parts[0].root.text == "echo: Ada"
        assert (await client.get_task(TaskQueryParams(id=task.id))).artifacts == task.artifacts

    talk(conversation, streaming=False)


def test_a_stream_consists_of_task_updates_and_end(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        received = await events(client.send_message(message("count 5")))
        updates = [update for _, update in received]
        assert updates[0] is None
        assert [update.final for update in updates[1:] if isinstance(update, TaskStatusUpdateEvent)] == [False, True]
        task = received[-1][0]
        assert task.status.state == TaskState.completed
        assert "".join(part.root.text for part in task.artifacts[0].parts) == "1 2 3 4 5 "

    talk(conversation)


def test_a_question_is_answered_in_the_same_task(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        task, update = (await events(client.send_message(message("ask"))))[-1]
        assert (update.status.state, update.final) == (TaskState.input_required, True)
        ids = {"task_id": task.id, "context_id": task.context_id}
        received = await events(client.send_message(message("large", **ids)))
        assert (received[0][0].id, received[-1][0].status.state) == (task.id, TaskState.completed)

    talk(conversation)


def test_a_running_task_is_resubscribed_to_and_cancelled(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        configuration = MessageSendConfiguration(blocking=False)
        stream = client.send_message(message("wait"), configuration=configuration)
        task, _ = await anext(aiter(stream))
        followed = aiter(client.resubscribe(TaskIdParams(id=task.id)))
        assert (await anext(followed))[1] is None  # the task as it was
        cancelled = await client.cancel_task(TaskIdParams(id=task.id))
        assert cancelled.status.state == TaskState.canceled
        assert (await events(followed))[-1][1].status.state == TaskState.canceled
        assert (await events(stream))[-1][0].status.state == TaskState.canceled

    talk(conversation)


def test_a_webhook_is_created_and_read(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        ((task, _),) = await events(client.send_message(message("ask")))
        wanted = PushNotificationConfig(id="a", url="https://hooks.test/a", token="secret")
        made = await client.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=wanted)
        )
        assert (made.task_id, made.push_notification_config.url) == (task.id, wanted.url)
        asked = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="a")
        read = await client.get_task_callback(asked)
        assert (read.push_notification_config.id, read.push_notification_config.token) == ("a", "secret")

    talk(conversation, streaming=False)


def test_errors_have_the_codes_of_grpc(talk: Talk) -> None:
    async def conversation(client: Any) -> None:
        task, _ = (await events(client.send_message(message("echo x"))))[-1]
        unknown = TaskIdParams(id="no-such-task")
        for call, code in (
            (client.get_task(TaskQueryParams(id="no-such-task")), "NOT_FOUND"),
            (client.cancel_task(unknown), "NOT_FOUND"),
            (client.cancel_task(TaskIdParams(id=task.id)), "FAILED_PRECONDITION"),
            (events(client.resubscribe(unknown)), "NOT_FOUND"),
            (events(client.send_message(message("hi", task_id="no-such-task"))), "NOT_FOUND"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                await call
            assert code_of(refused) == code

    talk(conversation)


# -- our client, the official server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def official() -> Iterator[str]:
    """The URL of an agent on the official SDK."""
    ready = threading.Event()
    running: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        handler = DefaultRequestHandler(
            agent_executor=CommandAgent(),
            task_store=InMemoryTaskStore(),
            push_config_store=InMemoryPushNotificationConfigStore(),
        )
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card_of(f"127.0.0.1:{port}"), handler), server)
        await server.start()
        running.append((f"127.0.0.1:{port}", asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        await server.stop(None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="test-sdk", daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT)
    address, loop, stop = running[0]
    yield f"grpc://{address}"
    loop.call_soon_threadsafe(stop.set)
    thread.join(TIMEOUT)


@pytest.fixture
def client(official: str) -> Iterator[Client]:
    with Client(official, protocol_version="0.3") as client:
        yield client


def sent(client: Client, content: Any, **options: Any) -> Task:
    task = client.send(content, **options)
    assert isinstance(task, Task)
    return task


def test_our_client_sends_streams_and_reads(client: Client) -> None:
    task = sent(client, "hello")
    assert (task.state, task.text) == (State.COMPLETED, "hello")
    assert client.get_task(task.id).text == task.text
    stream = client.stream("count 5")
    assert len(list(stream)) > 5
    assert stream.task is not None
    assert (stream.task.state, stream.task.text) == (State.COMPLETED, "1 2 3 4 5 ")
    assert isinstance(client.send("message"), Message)


def test_files_of_the_sdk_are_encoded_twice(official: str, client: Client) -> None:
    parts = [
        TextPart("parts"),
        FilePart(raw=b"\x00\xff", media_type="application/x-a"),
        DataPart({"deep": [{"x": None}]}),
    ]
    with pytest.raises(errors.TransportError):
        client.send(parts)
    with Client(official, protocol_version="0.3", double_base64_files=True) as lenient:
        ((*returned, seen),) = (artifact.parts for artifact in sent(lenient, parts).artifacts)
    assert returned == parts
    assert seen == DataPart({"seen": True})


def test_our_client_answers_a_question(client: Client) -> None:
    asked = sent(client, "ask")
    assert (asked.state, asked.text) == (State.INPUT_REQUIRED, "Which size?")
    done = sent(client, "large", task_id=asked.id, context_id=asked.context_id)
    assert (done.id, done.state) == (asked.id, State.COMPLETED)


def test_our_client_subscribes_and_cancels(client: Client) -> None:
    # A subscription to the SDK sends no event before the next update, so the task has to produce updates.
    task = sent(client, "tick", return_immediately=True)
    with client.subscribe(task.id, timeout=TIMEOUT) as stream:
        next(iter(stream))
        canceled = Background(lambda: client.cancel_task(task.id))
        list(stream)
        assert stream.state is State.CANCELED
    assert canceled.result().state is State.CANCELED


def test_our_client_sets_reads_and_deletes_a_webhook(client: Client) -> None:
    task = sent(client, "ask")
    assert client.create_push_config(task.id, "https://hooks.test/a", id="a").url == "https://hooks.test/a"
    assert client.get_push_config(task.id, "a").url == "https://hooks.test/a"


def test_our_client_sees_the_errors(client: Client) -> None:
    for refused in (
        lambda: client.get_task("no-such-task"),
        lambda: client.cancel_task("no-such-task"),
        lambda: list(client.subscribe("no-such-task")),
    ):
        with pytest.raises(errors.TaskNotFoundError):
            refused()
    with pytest.raises(errors.TaskNotCancelableError):
        client.cancel_task(sent(client, "hello").id)
