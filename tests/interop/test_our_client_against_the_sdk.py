"""Our client against a server built on the official SDK, both as they are released."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from a2a_sync import Client, Task, TaskNotFoundError, TaskState, UnsupportedOperationError
from tests.live import free_port, live_server

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")
pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def client(request: pytest.FixtureRequest, url: str) -> Iterator[Client]:
    with Client(url, timeout=30, binding=request.param) as client:
        yield client


def test_its_card_is_read(client: Client) -> None:
    card = client.card()
    assert card.name == "official"
    assert [interface.protocol_version for interface in card.supported_interfaces] == ["1.0", "1.0", "0.3"]


def test_a_send_is_answered(client: Client) -> None:
    task = client.send("hello")
    assert isinstance(task, Task)
    assert (task.state, task.text) == (TaskState.COMPLETED, "hello")
    stored = client.get_task(task.id)
    assert (stored.status.state, stored.artifacts) == (task.status.state, task.artifacts)


def test_a_stream_is_folded_into_what_the_server_stored(client: Client) -> None:
    with client.stream("count 5") as stream:
        events = list(stream)
        folded = stream.task
    assert len(events) >= 7
    assert folded is not None
    assert folded.text == "1 2 3 4 5 "
    assert client.get_task(folded.id).artifacts == folded.artifacts


def test_a_question_is_answered_in_the_same_task(client: Client) -> None:
    chat = client.chat()
    asked = chat.send("ask")
    done = chat.send("large")
    assert isinstance(asked, Task)
    assert isinstance(done, Task)
    assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
    assert (done.id, done.state) == (asked.id, TaskState.COMPLETED)


def test_a_failed_task_is_returned(client: Client) -> None:
    task = client.send("fail")
    assert isinstance(task, Task)
    assert (task.state, task.text) == (TaskState.FAILED, "no luck")


def test_a_waiting_task_is_listed_followed_and_cancelled(client: Client, url: str) -> None:
    task = client.send("wait", return_immediately=True)
    assert isinstance(task, Task)
    assert task.id in {listed.id for listed in client.iter_tasks(page_size=2)}
    ends: list[TaskState] = []
    begun = threading.Event()

    def follow() -> None:
        with Client(url) as other, other.subscribe(task.id, timeout=30) as stream:
            for _ in stream:
                begun.set()
            assert stream.task is not None
            ends.append(stream.task.state)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(20)
    assert client.cancel_task(task.id).state is TaskState.CANCELED
    thread.join(20)
    assert ends == [TaskState.CANCELED]


def test_its_errors_are_ours(client: Client) -> None:
    with pytest.raises(TaskNotFoundError):
        client.get_task("no-such-task")
    task = client.send("hello")
    assert isinstance(task, Task)
    with pytest.raises(UnsupportedOperationError), client.subscribe(task.id) as stream:
        list(stream)
