"""Our client against a server built on the official SDK 0.3, as it was released."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from a2a_sync import (
    Client,
    DataPart,
    FilePart,
    Message,
    Task,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
    TextPart,
    UnsupportedOperationError,
)
from a2a_sync.errors import InvalidParamsError, VersionNotSupportedError
from tests.live import free_port, live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop03.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@pytest.fixture(params=["streaming", "plain"])
def url(request: pytest.FixtureRequest, base: str) -> str:
    return base if request.param == "streaming" else base + "/plain"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, timeout=30) as client:
        yield client


def send(client: Client, content: object, **options: object) -> Task:
    answer = client.send(content, **options)  # type: ignore[arg-type]
    assert isinstance(answer, Task)
    return answer


@pytest.mark.parametrize("path", ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_its_card_is_found_and_read(path: str, base: str) -> None:
    with Client(base + path) as client:
        card = client.card()
    assert (card.name, card.skill("obey").tags, card.capabilities.streaming) == ("official", ("test",), True)
    (interface,) = card.supported_interfaces
    assert (interface.protocol_binding, interface.protocol_version) == ("JSONRPC", "0.3")


def test_a_client_that_insists_on_1_0_says_what_it_found(base: str) -> None:
    with Client(base, version="1.0") as client, pytest.raises(VersionNotSupportedError, match=r"offers JSONRPC 0\.3"):
        client.send("hello")


def test_a_send_is_answered(client: Client) -> None:
    task = send(client, "hello")
    assert (task.state, task.text) == (TaskState.COMPLETED, "hello")
    stored = client.get_task(task.id)
    assert (stored.status, stored.artifacts) == (task.status, task.artifacts)
    assert stored.history[0].text == "hello"


def test_a_send_that_returns_at_once_can_be_waited_for(client: Client) -> None:
    task = send(client, "count 3", return_immediately=True)
    done = client.wait(task.id, timeout=20)
    assert (done.state, done.text) == (TaskState.COMPLETED, "1 2 3 ")


def test_a_stream_is_folded_into_what_the_server_stored(base: str) -> None:
    with Client(base, timeout=30) as client:
        with client.stream("count 5") as stream:
            events = list(stream)
            folded = stream.task
        assert len(events) >= 7
        assert folded is not None
        assert (folded.state, folded.text) == (TaskState.COMPLETED, "1 2 3 4 5 ")
        assert client.get_task(folded.id).artifacts == folded.artifacts


def test_an_agent_that_does_not_stream_is_asked_and_its_answer_is_the_only_event(base: str) -> None:
    with Client(base + "/plain", timeout=30) as client:
        with client.stream("count 5") as stream:
            (event,) = stream
        assert isinstance(event, Task)
        assert event.text == "1 2 3 4 5 "
        with pytest.raises((UnsupportedOperationError, InvalidParamsError)), client.subscribe(event.id) as subscription:
            list(subscription)


def test_a_question_is_answered_in_the_same_task(client: Client) -> None:
    chat = client.chat()
    asked = chat.send("ask")
    done = chat.send("large")
    assert isinstance(asked, Task)
    assert isinstance(done, Task)
    assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
    assert (done.id, done.state) == (asked.id, TaskState.COMPLETED)


def test_an_answer_without_a_task_is_a_message(client: Client) -> None:
    answer = client.send("message")
    assert isinstance(answer, Message)
    assert answer.text == "no task was needed"


def test_a_failed_task_is_returned(client: Client) -> None:
    task = send(client, "fail")
    assert (task.state, task.text) == (TaskState.FAILED, "no luck")


def test_every_kind_of_part_travels_both_ways(client: Client) -> None:
    parts = [
        TextPart("parts", metadata={"lang": "en"}),
        FilePart(raw=bytes(range(256)), filename="a.bin", media_type="image/x-test"),
        FilePart(url="https://files.example/a", media_type="text/plain"),
        DataPart({"a": [1, None]}),
        DataPart([1, "x"]),
    ]
    task = send(client, parts)
    *returned, seen = task.artifacts[0].parts
    assert returned == parts
    assert seen == DataPart({"seen": True})


def test_a_waiting_task_is_followed_and_cancelled(base: str) -> None:
    with Client(base, timeout=30) as client:
        # Its streams do not begin with the task: only an event tells that one is followed.
        task = send(client, "tick", return_immediately=True)
        ends: list[TaskState] = []
        begun = threading.Event()

        def follow() -> None:
            with Client(base) as other, other.subscribe(task.id, timeout=30) as stream:
                for _ in stream:
                    begun.set()
                ends.append(stream.state)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert begun.wait(20)
        assert client.cancel_task(task.id).state is TaskState.CANCELED
        thread.join(20)
        assert ends == [TaskState.CANCELED]


def test_its_errors_are_ours(client: Client) -> None:
    with pytest.raises(TaskNotFoundError):
        client.get_task("no-such-task")
    with pytest.raises(TaskNotFoundError):
        client.send("hi", task_id="no-such-task")
    task = send(client, "hello")
    with pytest.raises(TaskNotCancelableError):
        client.cancel_task(task.id)
    # What a server of 0.3 says of a message to a task that has ended.
    with pytest.raises(InvalidParamsError, match="terminal"):
        client.send("more", task_id=task.id)


def test_the_history_is_as_long_as_was_asked_for(client: Client) -> None:
    task = send(client, "hello")
    assert client.get_task(task.id, history_length=0).history == ()
    assert len(client.get_task(task.id, history_length=1).history) <= 1


def test_what_0_3_cannot_do_is_refused_without_a_call(client: Client) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"0\.3 has no ListTasks"):
        client.list_tasks()
