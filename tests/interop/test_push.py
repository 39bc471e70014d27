"""Push notifications between our library and the official SDK: its server posts to our receiver, and we post in its types."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from a2a_sync import (
    A2AApp,
    Agent,
    AuthenticationInfo,
    Client,
    PushNotification,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    WebhookReceiver,
)
from tests.engine import PATIENCE
from tests.live import free_port, live_server
from tests.push.receiver import LOOPBACK, Receiver, receiving

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

from a2a.types import StreamResponse
from google.protobuf.json_format import ParseDict

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...


@pytest.fixture
def webhook() -> Iterator[tuple[WebhookReceiver, str]]:
    """A receiver that wants token and credentials, and its URL."""
    receiver = WebhookReceiver(token="t0ken", authentication=BEARER)
    server = make_server("127.0.0.1", 0, receiver, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield receiver, f"http://127.0.0.1:{server.port}/hook"
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


@pytest.mark.parametrize(
    ("version", "binding"), [("1.0", "JSONRPC"), ("1.0", "HTTP+JSON"), ("0.3", "JSONRPC"), ("0.3", "HTTP+JSON")]
)
def test_what_its_server_posts_is_taken_by_our_receiver(
    url: str, webhook: tuple[WebhookReceiver, str], version: str, binding: str
) -> None:
    receiver, hook = webhook
    config = TaskPushNotificationConfig(url=hook, token="t0ken", authentication=BEARER)
    with Client(url, protocol_version=version, protocol_binding=binding, timeout=30) as client:
        task = client.send("count 3", push_config=config)
    assert isinstance(task, Task)
    told: list[PushNotification] = []
    for notification in receiver.notifications(timeout=PATIENCE):
        told.append(notification)
        status = getattr(notification.event, "status", None)
        if status is not None and status.state is TaskState.COMPLETED:
            break
    assert {notification.task_id for notification in told} == {task.id}
    assert len(told) >= 5


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_what_we_post_its_types_read_to_the_last_member(receiver: Receiver) -> None:
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
