"""Push notifications: the official SDK's server posts to `WebhookReceiver`, and the SDK's types parse those of this library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import A2AApp, Agent, Client, Task, TaskPushNotificationConfig, WebhookReceiver
from a2a_sync.testing.servers import socket_server
from a2a_sync.types import AuthenticationInfo
from tests.peers.notifications import notifications_of_a_task
from tests.peers.record import HTTP_JSON_03, HTTP_JSON_10, JSONRPC_03, JSONRPC_10, Transport
from tests.peers.servers import python_agent
from tests.push.receiver import LOOPBACK, Receiver, receiving

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

from a2a.types import StreamResponse
from google.protobuf.json_format import ParseDict

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop.sdk_agent") as url:
        yield url


@pytest.mark.parametrize("transport", [JSONRPC_10, HTTP_JSON_10, JSONRPC_03, HTTP_JSON_03], ids=str)
def test_the_receiver_accepts_notifications_of_the_sdk(url: str, transport: Transport) -> None:
    receiver = WebhookReceiver(token="t0ken", authentication=BEARER)
    with socket_server(receiver) as hook:
        config = TaskPushNotificationConfig(url=f"{hook}/hook", token="t0ken", authentication=BEARER)
        accepted = notifications_of_a_task(url, transport, receiver, config)
    assert len(accepted) >= 5


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_the_types_of_the_sdk_parse_every_member_of_a_notification(receiver: Receiver) -> None:
    agent = Agent("ours", description="Counts")
    agent.message(lambda message, context: (f"{n} " for n in range(3)))
    with A2AApp(agent, push=LOOPBACK) as app, Client(app) as client:
        task = client.send("go", push_config=receiver.config())
        assert isinstance(task, Task)
        client.create_push_config(task.id, receiver.config(), id="later")
        posts = receiver.await_posts(lambda posts: any("task" in post.body for post in posts))
    read = [ParseDict(post.body, StreamResponse()) for post in posts]
    assert [event.WhichOneof("payload") for event in read].count("task") == 1
    assert read[0].status_update.task_id == task.id
