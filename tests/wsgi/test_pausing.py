"""Blocking sends that wait without a thread, where the server resumes responses."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from a2a_sync import A2AApp, Limits
from a2a_sync.operations import Endpoint
from a2a_sync.wsgi.pausing import PendingBody
from tests.engine import Background, eventually
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import JSON_HEADERS, Peer, environ_of, message, rpc


class Resumed(socket.socket):
    """The socket of a server that resumes responses."""

    resumes = buffers_writes = received = True


@pytest.fixture
def app() -> Iterator[A2AApp]:
    app = A2AApp(ScenarioAgent(), limits=Limits(disconnect_check_interval=0.02, max_open_streams=2))
    yield app
    app.close(0)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's and the client's end of a connection."""
    ours, theirs = socket.socketpair()
    with theirs, Resumed(fileno=ours.detach()) as server:
        yield server, theirs


class Sent:
    """A send to `app`, and its response."""

    def __init__(self, app: Any, server: socket.socket, path: str = "/", body: bytes = b"") -> None:
        self.named: list[str] = []
        environ = environ_of("POST", path, body or rpc("SendMessage", message("wait")), JSON_HEADERS)
        environ["gunicorn.socket"] = server
        self.body: Iterable[bytes] = app(environ, lambda status, headers, exc_info=None: self.named.append(status))

    @property
    def pending(self) -> PendingBody:
        """The body of a send that waits."""
        assert isinstance(self.body, PendingBody)
        return self.body

    def pause(self, contended: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
        """The pieces of the body, which has paused once."""
        self.pending.allow_pauses(contended)
        pieces = iter(self.pending)
        assert next(pieces) == b""
        assert not self.named
        return pieces


def cancel(app: A2AApp) -> None:
    """Cancel all tasks."""
    peer = Peer(app)
    for task in peer.call("ListTasks", {}).result["tasks"]:
        peer.call("CancelTask", {"id": task["id"]})


@pytest.mark.parametrize("binding", ["JSON-RPC", "HTTP+JSON"])
def test_a_waiting_send_pauses_and_is_resumed_with_its_result(app: A2AApp, binding: str) -> None:
    path, body = ("/message:send", json.dumps(message("wait")).encode()) if binding == "HTTP+JSON" else ("/", b"")
    with connected() as (server, _):
        sent = Sent(app, server, path, body)
        pieces, resumed = sent.pause(), threading.Event()
        sent.pending.resume_when_woken(resumed.set)
        assert not resumed.is_set()

        cancel(app)

        assert resumed.wait(10)
        with ThreadPoolExecutor(1) as another:
            assert b"TASK_STATE_CANCELED" in another.submit(b"".join, pieces).result(30)
        assert sent.named == ["200 OK"]
        assert app.open_streams == 0


def test_a_short_send_is_answered_at_once(app: A2AApp) -> None:
    with connected() as (server, _):
        sent = Sent(app, server, body=rpc("SendMessage", message("echo hi")))
        assert isinstance(sent.body, list)
        assert b"TASK_STATE_COMPLETED" in b"".join(sent.body)


def test_a_response_that_may_not_pause_waits_on_its_thread(app: A2AApp) -> None:
    """Middleware has replaced the body, so that the server cannot pause it."""
    with connected() as (server, _):
        sent = Sent(app, server)
        body = Background(lambda: b"".join(part for part in sent.body))
        assert body.waiting

        cancel(app)

        assert b"TASK_STATE_CANCELED" in body.result(30)
        assert sent.named == ["200 OK"]


def test_a_paused_response_that_may_not_pause_any_more_waits_on_its_thread(app: A2AApp) -> None:
    with connected() as (server, _):
        sent = Sent(app, server)
        pieces = sent.pause()
        sent.pending.forbid_pauses()
        rest = Background(lambda: b"".join(pieces))
        assert rest.waiting

        cancel(app)

        assert b"TASK_STATE_CANCELED" in rest.result(30)


def test_a_paused_send_is_due_when_its_client_left_and_its_task_continues(app: A2AApp) -> None:
    with connected() as (server, client):
        sent = Sent(app, server)
        pieces = sent.pause()
        assert not sent.pending.is_due(time.monotonic())
        client.close()
        body = sent.pending
        eventually(lambda: body.is_due(time.monotonic()), "the next check of the connection")
        assert b"error" in b"".join(pieces)
        assert app.open_streams == 0
        tasks = Peer(app).call("ListTasks", {}).result["tasks"]
        assert [task["status"]["state"] for task in tasks] == ["TASK_STATE_WORKING"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_closed_response_ends_its_call_and_frees_its_place_once(app: A2AApp, begun: bool) -> None:
    with connected() as (server, _):
        sent = Sent(app, server)
        if begun:
            sent.pause()
        assert app.open_streams == 1
        sent.pending.close()
        sent.pending.close()
        assert app.open_streams == 0


def test_waiting_sends_count_as_open_streams(app: A2AApp) -> None:
    with connected() as (server, _):
        waiting = [Sent(app, server) for _ in range(2)]
        refused = Sent(app, server)
        assert refused.named == ["429 Too Many Requests"]
        for sent in waiting:
            sent.pending.close()


def test_a_paused_send_holds_no_thread_of_the_budget() -> None:
    with (
        closing(A2AApp(ScenarioAgent(), limits=Limits(server_threads=3))) as app,
        connected() as (server, _),
    ):
        paused = []
        for _ in range(5):
            paused.append(Sent(app, server))
            paused[-1].pause()
        assert app.open_streams == 5
        for sent in paused:
            sent.pending.close()
        cancel(app)


def test_a_function_as_interceptor_gets_the_result_and_holds_its_thread() -> None:
    results = []

    def note(endpoint: Endpoint) -> Endpoint:
        def noted(call: Any) -> Any:
            results.append(endpoint(call))
            return results[-1]

        return noted

    with (
        closing(A2AApp(ScenarioAgent(), interceptors=[note])) as app,
        connected() as (server, _),
    ):
        sent = Background(lambda: Sent(app, server))
        eventually(lambda: Peer(app).call("ListTasks", {}).result["tasks"], "the task")
        assert sent.waiting
        cancel(app)
        assert b"TASK_STATE_CANCELED" in b"".join(sent.result(30).body)
        assert "canceled" in {str(getattr(result, "state", "")) for result in results}
