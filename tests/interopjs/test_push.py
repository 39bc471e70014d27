"""Push notifications between our library and the JavaScript SDKs: their servers post to our receiver, and theirs reads ours."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

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
from a2a_sync.testing.servers import socket_server
from tests.engine import PATIENCE
from tests.interopjs.node import js_client, js_server
from tests.interopjs.shapes import Shape
from tests.peers.record import OLD_REST, Way
from tests.push.receiver import LOOPBACK, Receiver, receiving, state

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

NEW, NEW_REST, OLD = Way("1.0", "JSONRPC"), Way("1.0", "HTTP+JSON"), Way("0.3", "JSONRPC")
BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
NEWEST, LAST_OF_0_3 = "newest_agent.mjs", "agent03.mjs"
SERVERS = [
    (NEWEST, NEW),
    (NEWEST, NEW_REST),
    (NEWEST, OLD),
    (NEWEST, OLD_REST),
    (LAST_OF_0_3, OLD),
    (LAST_OF_0_3, OLD_REST),
]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Where the agents on the SDKs are."""
    with js_server(NEWEST) as newest, js_server(LAST_OF_0_3) as last:
        yield {NEWEST: newest.url, LAST_OF_0_3: last.url}


@pytest.fixture
def posts() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def told(url: str, way: Way, receiver: WebhookReceiver, config: TaskPushNotificationConfig) -> list[PushNotification]:
    """What a receiver takes of a task that counts to three."""
    with Client(url, protocol_version=way.version, protocol_binding=way.binding, timeout=30) as client:
        task = client.send("count 3", push_config=config)
    assert isinstance(task, Task)
    taken = []
    for notification in receiver.notifications(timeout=PATIENCE):
        assert notification.task_id == task.id
        taken.append(notification)
        status = getattr(notification.event, "status", None)
        if status is not None and status.state is TaskState.COMPLETED:
            return taken
    raise AssertionError(f"no end among {taken}")


@pytest.mark.parametrize(("agent", "way"), SERVERS, ids=str)
def test_what_their_server_posts_with_our_token_is_taken_by_our_receiver(
    urls: dict[str, str], agent: str, way: Way
) -> None:
    receiver = WebhookReceiver(token="t0ken")
    with socket_server(receiver) as hook:
        taken = told(urls[agent], way, receiver, TaskPushNotificationConfig(url=f"{hook}/hook", token="t0ken"))
    assert len(taken) >= 5
    assert {notification.version for notification in taken} == {way.version}


@pytest.mark.parametrize(("agent", "way"), SERVERS, ids=str)
def test_what_their_server_posts_with_another_token_is_refused(urls: dict[str, str], agent: str, way: Way) -> None:
    receiver = WebhookReceiver(token="t0ken")
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watched(environ: Any, start_response: Any) -> Any:
        def start(status: str, *others: Any) -> Any:
            answers.put(status)
            return start_response(status, *others)

        return receiver(environ, start)

    with (
        socket_server(watched) as hook,
        Client(urls[agent], protocol_version=way.version, protocol_binding=way.binding) as client,
    ):
        client.send("count 3", push_config=TaskPushNotificationConfig(url=hook, token="another"))
        assert {answers.get(timeout=PATIENCE) for _ in range(5)} == {"401 Unauthorized"}
    assert list(receiver.notifications(timeout=0)) == []


@pytest.mark.parametrize("way", [NEW, NEW_REST, OLD, OLD_REST], ids=str)
def test_what_the_newest_posts_with_our_credentials_is_taken_by_our_receiver(urls: dict[str, str], way: Way) -> None:
    receiver = WebhookReceiver(authentication=BEARER)
    with socket_server(receiver) as hook:
        config = TaskPushNotificationConfig(url=f"{hook}/hook", authentication=BEARER)
        assert len(told(urls[NEWEST], way, receiver, config)) >= 5


@pytest.mark.parametrize(("agent", "way"), SERVERS, ids=str)
def test_of_token_and_credentials_their_servers_send_one(
    urls: dict[str, str], agent: str, way: Way, posts: Receiver
) -> None:
    config = posts.config(token="t0ken", authentication=BEARER)
    with Client(urls[agent], protocol_version=way.version, protocol_binding=way.binding, timeout=30) as client:
        client.send("count 3", push_config=config)
    sent = {
        (post.headers.get("authorization"), post.headers.get("x-a2a-notification-token")) for post in posts.await_end()
    }
    assert sent == {("Bearer s3cret", None) if agent == NEWEST else (None, "t0ken")}


@pytest.mark.parametrize("way", [NEW, OLD], ids=str)
def test_what_we_post_is_read_by_the_newest_to_the_last_member(posts: Receiver, way: Way) -> None:
    agent = Agent("ours", description="Counts")
    agent.message(lambda message, context: (f"{n} " for n in range(3)))
    with A2AApp(agent, push=LOOPBACK) as app, socket_server(app) as url, js_client("a2a-newest", url, way) as client:
        request = Shape().message("go")
        request["configuration"]["taskPushNotificationConfig"] = {"url": posts.url, "token": "t0ken"}
        task = client.call("sendMessage", request)
        came = posts.await_end()
        read = [client.call("readNotification", post.body) for post in came]
    assert {post.headers["x-a2a-notification-token"] for post in came} == {"t0ken"}
    if way == NEW:
        assert read == [post.body for post in came]
    else:
        assert {event["task"]["id"] for event in read} == {task["id"]}
        assert [state(event) for event in read] == [state(post.body) for post in came]
