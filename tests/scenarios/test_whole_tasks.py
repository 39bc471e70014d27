"""Whole tasks, member by member: equal in process and over each binding and version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from a2a_sync import Client, FilePart, Message, Task, TextPart
from a2a_sync.codec import by_version
from tests.scenarios.agent import make_app

pytestmark = pytest.mark.timeout(60)

MakeClient = Callable[[], Client]

COMMANDS: dict[str, Any] = {
    "text": "echo Ada",
    "stream of text": "count 3",
    "question": "ask",
    "authorisation": "login",
    "rejection": "reject",
    "failure": "publicfail",
    "failure with a reason": "reason sold out",
    "data": "data 1 2 39",
    "stream of data": "pieces a b",
    "file": [TextPart("file"), FilePart(raw=bytes(range(256)), filename="a.bin", media_type="image/x-test")],
    "message": "message",
    "stored message": "stored",
}

#: The ways to obtain the task of a message.
SENDS: dict[str, Callable[[Client, Any], Task | Message]] = {
    "send": lambda client, content: client.send(content),
    "send without a stream": lambda client, content: client.send(content, stream=False),
    "send with history": lambda client, content: client.send(content, history_length=10),
    "send and wait": lambda client, content: _wait(client, content),
    "chat": lambda client, content: client.chat().send(content),
}


def _wait(client: Client, content: Any) -> Task:
    task = client.send(content, return_immediately=True)
    assert isinstance(task, Task)
    return client.wait(task.id)


@pytest.fixture(scope="module")
def reference() -> Iterator[Client]:
    """A client of the same agent, in this process."""
    with make_app() as app, Client(app) as client:
        yield client


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[Client]:
    with make_client() as client:
        yield client


def members(task: Task | Message, version: str = "1.0", *, file_names: bool = True) -> Any:
    """All members of a task, with ids replaced by numbers and timestamps by a placeholder. In 0.3 data has no media type."""
    assert isinstance(task, Task)
    ids: dict[str, str] = {}

    def named(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            lacks = {"mediaType"} if version == "0.3" and "data" in value else set()
            lacks |= set() if file_names else {"filename"}
            return {name: named(member, name) for name, member in value.items() if name not in lacks}
        if isinstance(value, list):
            return [named(member, key) for member in value]
        if key == "timestamp":
            return datetime.fromisoformat(value).tzinfo is not None
        if key == "id" or key.endswith("Id"):
            return ids.setdefault(value, f"id {len(ids)}")
        return re.sub(r"\(id .*\)", "(id …)", value) if isinstance(value, str) else value

    return named(by_version("1.0").dump(task))


@pytest.mark.parametrize("content", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("how", SENDS)
def test_a_task_has_the_same_members_as_in_process(
    client: Client, reference: Client, version: str, supports_file_names: bool, how: str, content: Any
) -> None:
    sent = members(SENDS[how](client, content), version, file_names=supports_file_names)
    assert sent == members(SENDS[how](reference, content), version, file_names=supports_file_names)


@pytest.mark.parametrize("content", COMMANDS.values(), ids=COMMANDS)
def test_a_sent_task_differs_from_the_stored_one_only_in_the_end_of_its_history(client: Client, content: Any) -> None:
    sent = client.send(content)
    assert isinstance(sent, Task)
    stored = client.get_task(sent.id)
    assert (sent.status, sent.artifacts, sent.text) == (stored.status, stored.artifacts, stored.text)
    assert sent.history == stored.history[: len(sent.history)]
    assert len(sent.history) == (2 if content == "stored" else 1)


@pytest.mark.parametrize("stream", [True, False])
def test_the_history_of_a_continued_task_ends_with_the_message_that_continued_it(client: Client, stream: bool) -> None:
    asked = client.send("ask", stream=stream)
    assert isinstance(asked, Task)
    done = client.send("large", task_id=asked.id, stream=stream)
    assert isinstance(done, Task)
    assert [message.text for message in done.history] == ["ask", "Which size?", "large"]


def test_an_answer_missing_from_the_stream_is_fetched_once(client: Client) -> None:
    assert client.send("stored").text == "only stored"
    with client.stream("stored") as stream:
        *_, last = stream
    assert isinstance(last, Task)
    assert stream.resynchronised
    assert stream.text == last.text == "only stored"
    assert client.chat().send("stored").text == "only stored"


def test_an_answer_in_the_message_of_the_status_is_the_text_of_send_stream_and_chat(client: Client) -> None:
    assert client.send("message").text == "no task was needed"
    assert client.send("message", stream=False).text == "no task was needed"
    with client.stream("message") as stream:
        list(stream)
    assert stream.text == "no task was needed"
    assert client.chat().send("message").text == "no task was needed"
    assert client.as_tool()("message") == "no task was needed"
