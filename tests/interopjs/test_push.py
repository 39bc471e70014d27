"""Push notifications: the JavaScript SDKs' servers post to `WebhookReceiver`, and the newest SDK parses those of this library."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, TaskPushNotificationConfig, WebhookReceiver
from a2a_sync.testing.servers import socket_server
from a2a_sync.types import AuthenticationInfo
from tests.engine import TIMEOUT
from tests.interopjs.formats import Format
from tests.interopjs.node import js_client, js_server
from tests.peers.notifications import notifications_of_a_task
from tests.peers.record import HTTP_JSON_03, HTTP_JSON_10, JSONRPC_03, JSONRPC_10, Transport
from tests.push.receiver import LOOPBACK, Receiver, receiving, state

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
NEWEST, LAST_OF_0_3 = "agent_newest.mjs", "agent_0_3.mjs"
SERVERS = [
    (NEWEST, JSONRPC_10),
    (NEWEST, HTTP_JSON_10),
    (NEWEST, JSONRPC_03),
    (NEWEST, HTTP_JSON_03),
    (LAST_OF_0_3, JSONRPC_03),
    (LAST_OF_0_3, HTTP_JSON_03),
]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """The URLs of the agents on the SDKs."""
    with js_server(NEWEST) as newest, js_server(LAST_OF_0_3) as last:
        yield {NEWEST: newest.url, LAST_OF_0_3: last.url}


@pytest.fixture
def posts() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.mark.parametrize(("agent", "transport"), SERVERS, ids=str)
def test_the_receiver_accepts_notifications_with_its_token(
    urls: dict[str, str], agent: str, transport: Transport
) -> None:
    receiver = WebhookReceiver(token="t0ken")
    with socket_server(receiver) as hook:
        accepted = notifications_of_a_task(
            urls[agent], transport, receiver, TaskPushNotificationConfig(url=f"{hook}/hook", token="t0ken")
        )
    assert len(accepted) >= 5
    assert {notification.version for notification in accepted} == {transport.version}


@pytest.mark.parametrize(("agent", "transport"), SERVERS, ids=str)
def test_the_receiver_refuses_notifications_with_another_token(
    urls: dict[str, str], agent: str, transport: Transport
) -> None:
    receiver = WebhookReceiver(token="t0ken")
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watched(environ: Any, start_response: Any) -> Any:
        def start(status: str, *others: Any) -> Any:
            answers.put(status)
            return start_response(status, *others)

        return receiver(environ, start)

    with (
        socket_server(watched) as hook,
        Client(urls[agent], protocol_version=transport.version, protocol_binding=transport.binding) as client,
    ):
        client.send("count 3", push_config=TaskPushNotificationConfig(url=hook, token="another"))
        assert {answers.get(timeout=TIMEOUT) for _ in range(5)} == {"401 Unauthorized"}
    assert list(receiver.notifications(timeout=0)) == []


@pytest.mark.parametrize("transport", [JSONRPC_10, HTTP_JSON_10, JSONRPC_03, HTTP_JSON_03], ids=str)
def test_the_receiver_accepts_notifications_with_its_credentials(urls: dict[str, str], transport: Transport) -> None:
    receiver = WebhookReceiver(authentication=BEARER)
    with socket_server(receiver) as hook:
        config = TaskPushNotificationConfig(url=f"{hook}/hook", authentication=BEARER)
        assert len(notifications_of_a_task(urls[NEWEST], transport, receiver, config)) >= 5


@pytest.mark.parametrize(("agent", "transport"), SERVERS, ids=str)
def test_the_sdks_send_either_the_token_or_the_credentials(
    urls: dict[str, str], agent: str, transport: Transport, posts: Receiver
) -> None:
    config = posts.config(token="t0ken", authentication=BEARER)
    with Client(
        urls[agent], protocol_version=transport.version, protocol_binding=transport.binding, timeout=30
    ) as client:
        client.send("count 3", push_config=config)
    sent = {
        (post.headers.get("authorization"), post.headers.get("x-a2a-notification-token")) for post in posts.await_end()
    }
    assert sent == {("Bearer s3cret", None) if agent == NEWEST else (None, "t0ken")}


@pytest.mark.parametrize("transport", [JSONRPC_10, JSONRPC_03], ids=str)
def test_the_newest_sdk_parses_every_member_of_a_notification(posts: Receiver, transport: Transport) -> None:
    agent = Agent("ours", description="Counts")
    agent.message(lambda message, context: (f"{n} " for n in range(3)))
    with (
        A2AApp(agent, push=LOOPBACK) as app,
        socket_server(app) as url,
        js_client("a2a-newest", url, transport) as client,
    ):
        request = Format().message("go")
        request["configuration"]["taskPushNotificationConfig"] = {"url": posts.url, "token": "t0ken"}
        task = client.call("sendMessage", request)
        came = posts.await_end()
        read = [client.call("readNotification", post.body) for post in came]
    assert {post.headers["x-a2a-notification-token"] for post in came} == {"t0ken"}
    if transport == JSONRPC_10:
        assert read == [post.body for post in came]
    else:
        assert {event["task"]["id"] for event in read} == {task["id"]}
        assert [state(event) for event in read] == [state(post.body) for post in came]
