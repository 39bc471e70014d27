"""What every host framework provides for a mounted agent, tested with clients of real servers."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
import requests

from a2a_sync import A2AApp, Client, Task, TaskState
from tests.hosts.host import Host
from tests.hosts.sites import BODY, PREFIX, THREADS, HostedAgent
from tests.live import LiveServer, gunicorn, gunicorn_gevent, uvicorn
from tests.stopwatch import Stopwatch
from tests.wsgi import CARD, JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

SITES = {
    "flask blueprint": (gunicorn, "flask_site:application"),
    "flask dispatcher": (gunicorn, "flask_site:dispatched"),
    "django urls": (gunicorn, "django_site:application"),
    "django dispatcher": (gunicorn, "django_site:dispatched"),
    "pyramid": (gunicorn, "pyramid_site:application"),
    "starlette": (uvicorn, "asgi_site:starlette"),
    "fastapi": (uvicorn, "asgi_site:fastapi"),
    "django on asgi": (uvicorn, "django_site:asgi"),
    "asgi alone": (uvicorn, "asgi_site:alone"),
}
#: With gevent a client occupies a greenlet instead of a thread.
GEVENT_SITES = {
    "flask blueprint, gevent": (gunicorn_gevent, "flask_site:application"),
    "django urls, gevent": (gunicorn_gevent, "django_site:application"),
    "django dispatcher, gevent": (gunicorn_gevent, "django_site:dispatched"),
    "pyramid, gevent": (gunicorn_gevent, "pyramid_site:application"),
}
#: These pass the stream itself to the worker of `a2a_sync.gunicorn`, so without events it holds no thread.
PAUSING = ("flask dispatcher", "django dispatcher", "pyramid")
where_threads_are_few = pytest.mark.parametrize("host", SITES.items(), ids=SITES, indirect=True)


@pytest.fixture(scope="module", params=[*SITES.items(), *GEVENT_SITES.items()], ids=lambda site: site[0])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    name, (serve, site) = request.param
    started: Callable[..., AbstractContextManager[LiveServer]] = serve
    options = {"threads": THREADS} if serve is gunicorn else {}
    with started(f"tests.hosts.sites.{site}", **options) as server:
        made = Host(name, server, "" if name == "asgi alone" else PREFIX)
        yield made
        made.cancel_everything()


@pytest.fixture
def client(host: Host) -> Iterator[Client]:
    with host.client() as made:
        yield made


def test_the_card_has_the_mounted_url(host: Host) -> None:
    for path in (CARD, "/.well-known/agent.json"):
        answer = host.session().get(host.url + path, timeout=60)
        assert answer.status_code == 200
        addresses = {one["protocolBinding"]: one["url"] for one in answer.json()["supportedInterfaces"]}
        assert addresses == {"JSONRPC": host.url + "/", "HTTP+JSON": host.url}


def test_the_trailing_slash_is_optional_and_not_redirected(host: Host) -> None:
    # Django's patterns and Starlette's mounts match after the slash; the card has it.
    bare = [] if host.name.startswith(("django urls", "starlette", "fastapi")) else [""]
    for end in ["/", *bare]:
        answer = requests.post(
            host.url + end, data=rpc("ListTasks"), headers=JSON_HEADERS, timeout=20, allow_redirects=False
        )
        assert answer.json()["result"]["tasks"] == []


def test_the_agent_receives_the_user_of_the_host(host: Host, client: Client) -> None:
    # The dispatcher runs before the framework's authentication.
    expected = "anonymous" if "dispatcher" in host.name else "ada"
    assert client.send("user").text == expected


def test_events_are_not_buffered(client: Client) -> None:
    with client.stream("wait") as stream:
        for _ in stream:
            # With a buffering server this would block: the stream ends only after the cancel below.
            if stream.task is not None and stream.task.status.message is not None:
                client.cancel_task(stream.task.id)
        assert stream.state == "canceled"


def test_a_chunked_body_is_read(host: Host) -> None:
    body = rpc("SendMessage", message("echo " + "x" * 20_000))
    pieces = iter([body[:10], body[10:11], body[11:]])
    answer = host.post(pieces)
    assert answer.json()["result"]["task"]["artifacts"][0]["parts"][0]["text"] == "echo: " + "x" * 20_000


def test_an_encoded_slash_is_part_of_the_id(host: Host) -> None:
    answer = host.session().get(host.url + "/tasks/a%2Fb", headers={"A2A-Version": "1.0"}, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


def test_a_body_over_the_limit_is_refused(host: Host) -> None:
    body = rpc("SendMessage", message("x" * BODY))
    assert host.post(body).status_code == 413
    assert host.post(iter([body[:100], body[100:]])).status_code == 413
    assert host.answers(5)


def test_a_non_streaming_response_may_be_compressed(host: Host) -> None:
    answer = host.post(rpc("SendMessage", message("echo " + "x" * 2000)), **{"Accept-Encoding": "gzip"})
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@where_threads_are_few
def test_disconnected_streams_release_their_threads_within_two_seconds(host: Host) -> None:
    with host.streams("wait"):
        assert host.answers(10) if host.name in PAUSING else not host.answers(0.3)
    watch = Stopwatch()
    with host.streams("wait"):
        assert watch.within(2.0)


def blocked_send(host: Host, client: Client) -> socket.socket:
    """Open a connection with a blocking send that has created its task."""
    before = client.list_tasks().total_size
    deadline = time.monotonic() + 60
    connection = host.send("SendMessage", "wait")
    while client.list_tasks().total_size == before:
        assert time.monotonic() < deadline, host.server.log
        if select.select([connection], [], [], 0.05)[0]:
            connection.close()  # no free thread
            connection = host.send("SendMessage", "wait")
    return connection


@where_threads_are_few
def test_disconnected_blocking_sends_release_their_threads_within_two_seconds(host: Host, client: Client) -> None:
    def begin(stack: ExitStack) -> None:
        for _ in range(THREADS - 1):
            stack.enter_context(blocked_send(host, client))

    with ExitStack() as stack:
        begin(stack)
        if host.name not in PAUSING:
            stack.enter_context(host.stream("wait"))
            assert not host.answers(0.3)
    watch = Stopwatch()
    with ExitStack() as stack:
        if host.name in PAUSING:
            begin(stack)
        else:
            stack.enter_context(host.streams("wait"))
        assert watch.within(2.0)
    # A client that disconnects does not cancel its task (spec 3.2.2).
    assert {task.state for task in client.list_tasks().tasks[: THREADS - 1]} == {TaskState.WORKING}


@where_threads_are_few
def test_streams_that_are_not_read_are_closed_and_release_their_threads(host: Host) -> None:
    with host.streams("flood"):
        watch = Stopwatch()
        with host.streams("wait"):
            assert watch.within(5.0)


def test_a_stream_is_complete(client: Client) -> None:
    task = client.send("wait", return_immediately=True)
    assert isinstance(task, Task)
    with client.subscribe(task.id) as stream:
        next(iter(stream))
        assert client.cancel_task(task.id).state is TaskState.CANCELED
        list(stream)
        assert stream.state == "canceled"


def test_a_stopping_asgi_server_ends_streams_and_runs_in_time(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    options = ("--timeout-graceful-shutdown", "1")
    with uvicorn("tests.hosts.sites.asgi_site:stopping", *options, environment={"STORE": store}) as server:
        host = Host("asgi", server, "")
        with host.stream("wait"):
            watch = Stopwatch()
            server.terminate()
            assert watch.within(6.0)
    with A2AApp(HostedAgent(), store=store) as app, Client(app) as client:
        (task,) = client.list_tasks().tasks
        assert (task.state, task.text) == (TaskState.FAILED, "server stopped")
