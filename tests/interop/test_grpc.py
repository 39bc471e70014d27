"""gRPC with the official SDK: its client against `GRPCServer`, and our client against its server, in both protocol versions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")
grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make interop` installs")

from a2a.client import ClientConfig, ClientFactory  # noqa: E402
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc  # noqa: E402
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler  # noqa: E402
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler  # noqa: E402
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore  # noqa: E402
from a2a.types import (  # noqa: E402
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
    a2a_pb2_grpc,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError  # noqa: E402

from a2a_sync import Client, Task, errors  # noqa: E402
from a2a_sync import TaskState as State  # noqa: E402
from a2a_sync.grpc import GRPCServer  # noqa: E402
from tests.interop.sdk_agent import CommandAgent  # noqa: E402
from tests.peers.our_agent import AGENT, LIMITS  # noqa: E402

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("version", ["1.0", "0.3"])]
TIMEOUT = 30


def card_of(address: str) -> Any:
    """A card that lists gRPC alone."""
    return AgentCard(
        name="n",
        description="d",
        version="1",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(protocol_binding="GRPC", protocol_version=version, url=address) for version in ("1.0", "0.3")
        ],
    )


# -- the official client, our server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from a2a_sync import A2AApp

    with A2AApp(AGENT, limits=LIMITS, push=True) as app, GRPCServer(app, "127.0.0.1:0") as server:
        yield f"127.0.0.1:{server.port}"


def talk(address: str, version: str, conversation: Any) -> None:
    async def run() -> None:
        card = card_of(address)
        del card.supported_interfaces[1 if version == "1.0" else 0]
        config = ClientConfig(grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=["GRPC"])
        client = ClientFactory(config).create(card)
        try:
            await asyncio.wait_for(conversation(client), TIMEOUT)
        finally:
            await client.close()

    asyncio.run(run())


def request(text: str, **ids: str) -> Any:
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    return SendMessageRequest(message=message)


def test_the_official_client_streams_and_reads_a_task(address: str, version: str) -> None:
    async def conversation(client: Any) -> None:
        received = [event async for event in client.send_message(request("echo Ada"))]
        task_id = received[0].task.id
        assert received[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        task = await client.get_task(GetTaskRequest(id=task_id))
        assert task.artifacts[0].parts[0].text == "echo: Ada"
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task_id))
        if version == "1.0":
            assert task_id in [one.id for one in (await client.list_tasks(ListTasksRequest())).tasks]

    talk(address, version, conversation)


def test_the_official_client_subscribes_and_cancels(address: str, version: str) -> None:
    async def conversation(client: Any) -> None:
        stream = client.send_message(request("wait"))
        task_id = (await anext(stream)).task.id
        followed = client.subscribe(SubscribeToTaskRequest(id=task_id))
        assert (await anext(followed)).task.id == task_id
        canceled = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        rest = [event async for event in followed]
        assert rest[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED

    talk(address, version, conversation)


def test_the_official_client_sees_the_errors(address: str, version: str) -> None:
    async def conversation(client: Any) -> None:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="missing"))

    talk(address, version, conversation)


def test_the_official_client_sets_and_reads_a_webhook(address: str, version: str) -> None:
    async def conversation(client: Any) -> None:
        received = [event async for event in client.send_message(request("ask"))]
        task_id = received[0].task.id
        url = "https://93.184.215.14/hook"
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task_id, id="c-1", url=url)
        )
        read = await client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task_id, id="c-1")
        )
        assert read.url == url
        listed = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task_id)
        )
        assert [one.id for one in listed.configs] == ["c-1"]

    talk(address, version, conversation)


# -- our client, the official server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def official() -> Iterator[str]:
    """The address of an agent on the official SDK."""
    ready = threading.Event()
    running: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        handler = DefaultRequestHandler(
            agent_executor=CommandAgent(),
            task_store=InMemoryTaskStore(),
            agent_card=card_of(f"127.0.0.1:{port}"),
            push_config_store=InMemoryPushNotificationConfigStore(),
        )
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
        await server.start()
        running.append((f"127.0.0.1:{port}", asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        await server.stop(None)

    # `asyncio.run` ends the tasks that the SDK leaves: collected later, they block the thread that collects them.
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT)
    address, loop, stop = running[0]
    yield address
    loop.call_soon_threadsafe(stop.set)
    thread.join(TIMEOUT)
    assert not thread.is_alive()


@pytest.fixture
def client(official: str, version: str) -> Iterator[Client]:
    with Client(f"grpc://{official}", protocol_version=version) as client:
        yield client


def test_our_client_sends_streams_and_reads(client: Client) -> None:
    task = client.send("echo Ada")
    assert isinstance(task, Task)
    assert (task.state, task.text) == (State.COMPLETED, "echo Ada")
    assert client.get_task(task.id).text == task.text
    stream = client.stream("count 5")
    assert len(list(stream)) > 5
    assert stream.task is not None
    assert stream.task.text.split() == ["1", "2", "3", "4", "5"]
    assert client.send("message").text == "no task was needed"


def test_our_client_answers_a_question_and_cancels(client: Client) -> None:
    asked = client.send("ask")
    assert isinstance(asked, Task)
    assert asked.state is State.INPUT_REQUIRED
    assert client.send("echo large", task_id=asked.id, context_id=asked.context_id).text == "echo large"
    stream = client.stream("wait")
    first = next(iter(stream))
    assert isinstance(first, Task)
    assert client.cancel_task(first.id).state is State.CANCELED


def test_our_client_sees_the_errors(client: Client) -> None:
    with pytest.raises(errors.TaskNotFoundError):
        client.get_task("missing")
    done = client.send("echo Ada")
    assert isinstance(done, Task)
    with pytest.raises(errors.TaskNotCancelableError):
        client.cancel_task(done.id)


def test_our_client_sets_and_reads_a_webhook(client: Client) -> None:
    asked = client.send("ask")
    assert isinstance(asked, Task)
    client.create_push_config(asked.id, "https://hooks.example.com/a2a", id="c-1")
    assert client.get_push_config(asked.id, "c-1").url == "https://hooks.example.com/a2a"
    assert [one.id for one in client.list_push_configs(asked.id)] == ["c-1"]
    client.delete_push_config(asked.id, "c-1")
    assert not list(client.list_push_configs(asked.id))
