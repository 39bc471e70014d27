"""Hanging webhooks of one caller at many host names do not delay the notifications of another caller."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Limits, PushOptions, SQLiteStore, URLGuard
from a2a_sync import operations as op
from a2a_sync.operations import Call, CallContext, Principal
from a2a_sync.types import (
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TextPart,
)
from tests.push.receiver import ENDS, Receiver, receiving, state

pytestmark = pytest.mark.timeout(90)

HOSTS, TASKS, WEBHOOKS_PER_TASK = 20, 100, 10
#: The load of the other caller.
SENDS = 15
LIMITS = Limits(store_poll_interval=0.5)


def loopback(host: str, port: int, *_: Any) -> Any:
    """Resolve every host name to loopback, like a wildcard record for ``hang.test``."""
    return socket.getaddrinfo("127.0.0.1", port, 0, socket.SOCK_STREAM)


def serve(store: Any) -> A2AApp:
    agent = Agent("notifies")
    agent.message(lambda message, context: "done")
    guard = URLGuard(allow=["*.hang.test", "127.0.0.1"], resolve=loopback)
    # The calls of this test set their caller themselves.
    push = PushOptions(url_guard=guard, timeout=2.0, initial_backoff=0.05, max_backoff=0.2, max_attempts=1000)
    return A2AApp(agent, store=store, limits=LIMITS, push=push, auth=lambda request: None)


def call(app: A2AApp, caller: str, operation: op.Operation, request: Any) -> Any:
    return app.endpoint()(Call(operation, request, CallContext(principal=Principal(id=caller))))


def send(app: A2AApp, caller: str, url: str = "", tenant: str = "") -> Task:
    message = Message(role=Role.USER, parts=(TextPart("go"),))
    config = TaskPushNotificationConfig(url=url) if url else None
    configuration = SendMessageConfiguration(task_push_notification_config=config)
    request = SendMessageRequest(message=message, configuration=configuration, tenant=tenant)
    task = call(app, caller, op.SEND_MESSAGE, request)
    assert isinstance(task, Task)
    return task


@contextmanager
def silence() -> Iterator[int]:
    """A server that accepts connections and never answers; yields its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield server.getsockname()[1]


def attack(app: A2AApp, port: int, *, tenants: bool) -> None:
    """Create a thousand webhooks of one caller at twenty hanging hosts."""
    for number in range(TASKS):
        tenant = f"tenant-{number}" if tenants else ""
        task = send(app, "attacker", tenant=tenant)
        for index in range(WEBHOOKS_PER_TASK):
            host = f"host-{(number * WEBHOOKS_PER_TASK + index) % HOSTS}.hang.test"
            url = f"http://{host}:{port}/{index}"
            config = TaskPushNotificationConfig(url=url, task_id=task.id, tenant=tenant)
            call(app, "attacker", op.CREATE_PUSH_CONFIG, config)


def delay(app: A2AApp, receiver: Receiver) -> float:
    """Seconds until the receiver has got the end of all tasks of the other caller."""
    began, before = time.monotonic(), len(receiver.posts)
    for _ in range(SENDS):
        send(app, "other", receiver.url)
    receiver.await_posts(lambda posts: sum(state(post.body) in ENDS for post in posts[before:]) >= SENDS)
    return time.monotonic() - began


@pytest.mark.parametrize("tenants", [False, True], ids=["one tenant", "a tenant for each task"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_thousand_hanging_webhooks_do_not_delay_those_of_another_caller(
    kind: str, tenants: bool, tmp_path: Any, record_property: pytest.RecordProperty
) -> None:
    store = SQLiteStore(f"{tmp_path}/tasks.db") if kind == "sqlite" else None
    with serve(store) as app, silence() as port, receiving() as receiver:
        alone = max(delay(app, receiver) for _ in range(2))
        attack(app, port, tenants=tenants)
        meanwhile = max(delay(app, receiver) for _ in range(2))
    record_property("delay", f"{alone:.2f} s alone, {meanwhile:.2f} s meanwhile")
    assert meanwhile < 2 * alone + 0.5
