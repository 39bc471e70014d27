"""One caller's webhooks that hang, at many host names, against another caller's: these arrive as if they were alone."""

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
#: What the other caller does in the meantime.
SENDS = 15
LIMITS = Limits(push_timeout=2.0, push_pause=0.05, push_longest_pause=0.2, push_attempts=1000, store_poll_interval=0.5)


def loopback(host: str, port: int, *_: Any) -> Any:
    """Every name below ``hang.test``, as a wildcard record has it, and every other one, lead to this machine."""
    return socket.getaddrinfo("127.0.0.1", port, 0, socket.SOCK_STREAM)


def serve(store: Any) -> A2AApp:
    agent = Agent("notifies")
    agent.message(lambda message, context: "done")
    guard = URLGuard(allow=["*.hang.test", "127.0.0.1"], resolve=loopback)
    # Callers are told apart: the calls of this test name theirs.
    push = PushOptions(url_guard=guard)
    return A2AApp(agent, store=store, limits=LIMITS, push=push, auth=lambda environ: None)


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
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield server.getsockname()[1]


def attack(app: A2AApp, port: int, *, tenants: bool) -> None:
    """A thousand webhooks of one caller at twenty names of hosts that hang."""
    for number in range(TASKS):
        tenant = f"tenant-{number}" if tenants else ""
        task = send(app, "attacker", tenant=tenant)
        for index in range(WEBHOOKS_PER_TASK):
            host = f"host-{(number * WEBHOOKS_PER_TASK + index) % HOSTS}.hang.test"
            url = f"http://{host}:{port}/{index}"
            config = TaskPushNotificationConfig(url=url, task_id=task.id, tenant=tenant)
            call(app, "attacker", op.CREATE_PUSH_CONFIG, config)


def delay(app: A2AApp, receiver: Receiver) -> float:
    """How long it takes until the receiver has heard of the end of all tasks of the other caller."""
    began, before = time.monotonic(), len(receiver.posts)
    for _ in range(SENDS):
        send(app, "other", receiver.url)
    receiver.await_posts(lambda posts: sum(state(post.body) in ENDS for post in posts[before:]) >= SENDS)
    return time.monotonic() - began


@pytest.mark.parametrize("tenants", [False, True], ids=["one tenant", "a tenant for each task"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_thousand_hanging_webhooks_of_one_caller_do_not_delay_anothers(
    kind: str, tenants: bool, tmp_path: Any, record_property: pytest.RecordProperty
) -> None:
    store = SQLiteStore(f"{tmp_path}/tasks.db") if kind == "sqlite" else None
    with serve(store) as app, silence() as port, receiving() as receiver:
        alone = max(delay(app, receiver) for _ in range(2))
        attack(app, port, tenants=tenants)
        meanwhile = max(delay(app, receiver) for _ in range(2))
    record_property("delay", f"{alone:.2f} s alone, {meanwhile:.2f} s meanwhile")
    assert meanwhile < 2 * alone + 0.5
