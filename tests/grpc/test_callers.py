"""Callers over gRPC as over HTTP: tokens, rates, quotas, metrics, webhooks, traces, agents that come later, and forks."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from a2a_sync import (  # noqa: E402
    A2AApp,
    AgentHost,
    Client,
    Limits,
    Message,
    RateLimit,
    RequestContext,
    Task,
    TaskState,
)
from a2a_sync.auth import ApiKeyAuth, BearerAuth, JWTAuth  # noqa: E402
from a2a_sync.errors import (  # noqa: E402
    OverloadedError,
    PermissionDeniedError,
    TaskNotFoundError,
    UnauthenticatedError,
)
from a2a_sync.limits import OwnerQuota  # noqa: E402
from a2a_sync.operations import NAMED_MARK  # noqa: E402
from a2a_sync.server.metrics import Metrics  # noqa: E402
from a2a_sync.telemetry.tracing import outgoing  # noqa: E402
from a2a_sync.testing import wsgi_session  # noqa: E402
from a2a_sync.testing.servers import socket_server  # noqa: E402
from tests.auth.test_jwt_auth import AUDIENCE, ISSUER, pem, token  # noqa: E402
from tests.engine import eventually  # noqa: E402
from tests.grpc.agent import Worker, channel, client_of, path, serving  # noqa: E402
from tests.grpc.test_server import send_data  # noqa: E402
from tests.push.receiver import LOOPBACK, receiving, texts  # noqa: E402


def sent(client: Client, text: str, **options: Any) -> Task:
    task = client.send(text, **options)
    assert isinstance(task, Task)
    return task


def test_a_json_web_token_names_the_caller_and_its_scopes() -> None:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, key=pem("one"))
    with serving(auth=auth, required_scopes={"CancelTask": "cancel"}) as server:
        with client_of(server, auth=token(scope="cancel")) as client, client_of(server, auth=token()) as poor:
            task = sent(client, "wait", return_immediately=True)
            with pytest.raises(PermissionDeniedError, match="needs the scope cancel"):
                poor.cancel_task(task.id)
            assert client.cancel_task(task.id).state is TaskState.CANCELED
        for wrong in (token(kid="two"), token(exp=1), token(aud="another")):
            with client_of(server, auth=wrong) as client, pytest.raises(UnauthenticatedError) as refused:
                client.list_tasks()
            assert 'error="invalid_token"' in refused.value.challenges[0]


def test_a_client_sends_its_key_as_the_card_asks() -> None:
    app = A2AApp(Worker(), auth=ApiKeyAuth({"k": "ada"}, header="X-Key"))
    with serving(app), Client(app.agent_card("http://agent.test/"), prefer=["GRPC"], auth={"apiKey": "k"}) as client:
        assert client.send("hi").text == "worker: hi"


def test_a_key_in_a_header_that_grpc_keeps_for_bytes_is_sent() -> None:
    app = A2AApp(Worker(), auth=ApiKeyAuth({"k": "ada"}, header="X-Key-Bin"))
    with serving(app), Client(app.agent_card("http://agent.test/"), prefer=["GRPC"], auth={"apiKey": "k"}) as client:
        # Servers of this library accept no credentials of bytes.
        with pytest.raises(UnauthenticatedError):
            client.send("hi")
        with pytest.raises(UnauthenticatedError), client.stream("hi") as stream:
            list(stream)


def test_credentials_stay_on_the_origin_that_was_named() -> None:
    app = A2AApp(Worker(), auth=BearerAuth({"known": "ada"}))
    with serving(app) as server, socket_server(app) as url:
        with client_of(server, auth="known") as named:
            assert named.send("hi").text == "worker: hi"
        with Client(url, auth="known") as over_http:
            assert over_http.send("hi").text == "worker: hi"
        with (
            Client(url, auth="known", prefer=["GRPC"]) as elsewhere,
            pytest.raises(UnauthenticatedError, match="credentials were not sent, because the card names an address"),
        ):
            elsewhere.send("hi")


def test_a_caller_above_its_rate_gets_the_time_to_retry() -> None:
    with serving(interceptors=[RateLimit(1, 3600)]) as server, client_of(server, retry=None) as client:
        client.list_tasks()
        with pytest.raises(OverloadedError) as refused:
            client.list_tasks()
        assert refused.value.retry_after is not None
        assert 3000 < refused.value.retry_after <= 3600


def test_blocking_sends_and_streams_of_an_owner_are_bounded_together() -> None:
    auth = BearerAuth({"a": "ada", "b": "bob"})
    limits = Limits(disconnect_check_interval=0.1)
    app = A2AApp(Worker(), auth=auth, owner_quota=OwnerQuota(max_open_streams=2), limits=limits)
    with (
        serving(app) as server,
        channel(server) as opened,
        client_of(server, auth="a", retry=None) as ada,
        client_of(server, auth="b") as bob,
    ):
        stream = ada.stream("wait")
        next(iter(stream))
        send = opened.unary_unary(path("SendMessage"))
        waiting = send.future(send_data("wait"), metadata=(("authorization", "Bearer a"),), timeout=60)
        eventually(lambda: app.open_streams == 2, "both calls")
        with pytest.raises(OverloadedError, match="of this caller"):
            ada.stream("wait")
        assert bob.send("hi").text == "worker: hi"
        for task in ada.list_tasks().tasks:
            ada.cancel_task(task.id)
        assert waiting.result(60)


def test_expensive_requests_count_for_the_owner_that_the_app_names() -> None:
    app = A2AApp(
        Worker(), auth=BearerAuth({"g": "gateway"}), owner=lambda call: f"user {call.context.headers['x-user']}"
    )
    times = app._engine.responses.quotas.times
    with serving(app) as server, ExitStack() as clients:
        greedy, honest = (
            clients.enter_context(client_of(server, auth="g", headers={"X-User": name}, retry=None))
            for name in ("greedy", "honest")
        )
        for name in (f"{NAMED_MARK}user greedy", "gateway"):
            times.add(name, (0.0, time.thread_time() - 1000.0))
            for _ in range(2):
                app._engine.responses.begin(name, expensive=False)
        with pytest.raises(OverloadedError, match="too many expensive requests of this caller"):
            greedy.list_tasks()
        assert honest.send("hi").text == "worker: hi"


def test_calls_of_both_transports_are_counted_in_one_registry() -> None:
    metrics = Metrics()
    app = A2AApp(Worker(), metrics=metrics)
    with serving(app) as server, client_of(server) as client:
        client.list_tasks()
        with pytest.raises(TaskNotFoundError):
            client.get_task("0" * 36)
        with Client("http://agent.test", session=wsgi_session(app)) as over_http:
            over_http.list_tasks()

    def counted(operation: str, outcome: str) -> Any:
        return metrics.registry.get_sample_value("a2a_calls_total", {"operation": operation, "outcome": outcome})

    assert (counted("ListTasks", "ok"), counted("GetTask", "TASK_NOT_FOUND")) == (2, 1)


def test_a_webhook_of_a_send_is_notified() -> None:
    with receiving() as receiver, serving(push=LOOPBACK) as server, client_of(server) as client:
        sent(client, "count 2", push_config=receiver.config(token="t-1"))
        posts = receiver.await_end()
        assert {post.headers["x-a2a-notification-token"] for post in posts} == {"t-1"}
        assert texts(posts)[-1] == "completed"


def test_an_agent_that_is_added_later_is_served_and_listed() -> None:
    host = AgentHost({"one": Worker()})
    with serving(host) as server:
        late = Worker()
        late.name = "late"
        app = host.add("late", late)
        listed = [
            one for one in app.agent_card("http://agent.test/").supported_interfaces if one.protocol_binding == "GRPC"
        ]
        assert [(one.tenant, one.protocol_version) for one in listed] == [("late", "1.0")]
        with Client(app.agent_card("http://agent.test/"), prefer=["GRPC"]) as client:
            assert client.send("hi").text == "late: hi"
        host.remove("late", timeout=0)
        with (
            client_of(server, tenant="late") as client,
            pytest.raises(Exception, match="there is no agent named 'late'"),
        ):
            client.send("hi")


def test_a_tenant_sees_its_own_tasks_only() -> None:
    with serving() as server, client_of(server, tenant="a") as first, client_of(server, tenant="b") as second:
        task = sent(first, "hi")
        assert first.get_task(task.id).text == task.text
        with pytest.raises(TaskNotFoundError):
            second.get_task(task.id)
        assert second.list_tasks().tasks == ()


class Traced(Worker):
    """Answers with the trace of its request."""

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        return str(outgoing())


def test_the_trace_of_the_caller_reaches_the_run() -> None:
    sent_with = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with serving(A2AApp(Traced())) as server, client_of(server) as client:
        assert "4bf92f3577b34da6a3ce929d0e0e4736" in client.send("hi", headers=sent_with).text


FORK = """
import os, sys
from a2a_sync import Client
client = Client(sys.argv[1], timeout=60)
assert client.send("before").text == "worker: before"
child = os.fork()
if child == 0:
    ok = client.send("child").text == "worker: child"
    os._exit(0 if ok else 1)
for _ in range(5):
    assert client.send("parent").text == "worker: parent"
assert os.waitpid(child, 0)[1] == 0
assert client.send("after").text == "worker: after"
"""


def test_a_client_may_be_used_on_both_sides_of_a_fork() -> None:
    with serving() as server:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, f"grpc://127.0.0.1:{server.port}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
