"""What our client says to every peer's agent: one class of tests, which a module takes over for its peer.

The agents are all alike: they do what the first word of the message says. ``count N`` streams numbers as one artifact, ``ask``
asks, ``wait`` waits to be cancelled, ``fail`` fails, ``parts`` sends the parts back, ``message`` answers without a task, anything
else is sent back as it came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from a2a_sync import (
    AgentError,
    Client,
    DataPart,
    FilePart,
    Message,
    Part,
    Task,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
    TextPart,
    UnsupportedOperationError,
)
from tests.peers.record import CARD, ERRORS, OLD_REST, PUSH, STREAM, Way, covers


def nameless(part: Part) -> Part:
    """The part without its file's name."""
    return replace(part, filename="")


def sent(client: Client, content: Any, **options: Any) -> Task:
    """The task that a message has made."""
    answer = client.send(content, **options)
    assert isinstance(answer, Task)
    return answer


class OurClient:
    """Our client against a peer's agent. A module's own class says what the agent is called and gives its `url`."""

    #: The name in the agent's card.
    name: ClassVar[str]

    @pytest.fixture
    def client(self, way: Way, url: str) -> Iterator[Client]:
        with Client(url, protocol_version=way.version, protocol_binding=way.binding, timeout=30) as client:
            yield client

    @covers(CARD)
    def test_its_card_is_read(self, client: Client, way: Way) -> None:
        card = client.card()
        assert (card.name, card.skill("obey").tags, card.capabilities.streaming) == (self.name, ("test",), True)
        offered = {(one.protocol_version[:3], one.protocol_binding) for one in card.supported_interfaces}
        assert (way.version, way.binding) in offered

    @covers("SendMessage", "GetTask")
    def test_a_send_is_answered_with_the_finished_task(self, client: Client) -> None:
        task = sent(client, "hello")
        assert (task.state, task.text) == (TaskState.COMPLETED, "hello")
        stored = client.get_task(task.id)
        assert (stored.id, stored.state, stored.artifacts) == (task.id, task.state, task.artifacts)

    @covers("SendMessage")
    def test_an_answer_may_be_a_message(self, client: Client) -> None:
        answer = client.send("message")
        assert isinstance(answer, Message)
        assert answer.text == "no task was needed"

    @covers("SendMessage")
    def test_a_question_is_answered_in_the_same_task(self, client: Client) -> None:
        chat = client.chat()
        asked = chat.send("ask")
        done = chat.send("large")
        assert isinstance(asked, Task)
        assert isinstance(done, Task)
        assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
        assert (done.id, done.state, done.text) == (asked.id, TaskState.COMPLETED, "large")

    @covers("SendMessage")
    def test_a_failed_task_is_returned(self, client: Client) -> None:
        task = sent(client, "fail")
        assert (task.state, task.text) == (TaskState.FAILED, "no luck")

    @covers("SendMessage")
    def test_files_and_data_come_back_as_they_were(self, client: Client, way: Way) -> None:
        # The proto of 0.3 knows no names of files; some servers do.
        names = way != OLD_REST
        parts = [
            TextPart("parts"),
            FilePart(raw=b"\x00\xff", filename="a.bin", media_type="application/x-a"),
            FilePart(url="https://files.test/b.png", filename="b.png", media_type="image/png"),
            DataPart({"n": 1, "deep": [{"x": None}]}),
        ]
        task = sent(client, parts)
        assert task.state is TaskState.COMPLETED
        ((*returned, seen),) = (artifact.parts for artifact in task.artifacts)
        assert [nameless(part) for part in returned] == [nameless(part) for part in parts]
        assert not names or returned == parts
        assert seen == DataPart({"seen": True})

    @covers(STREAM, "GetTask")
    def test_a_stream_is_folded_into_what_the_server_stored(self, client: Client) -> None:
        with client.stream("count 5") as stream:
            events = list(stream)
            folded = stream.task
        assert len(events) >= 7
        assert folded is not None
        assert (folded.state, folded.text) == (TaskState.COMPLETED, "1 2 3 4 5 ")
        assert client.get_task(folded.id).text == folded.text

    @covers("ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: Client, way: Way) -> None:
        if way == Way("0.3", "JSONRPC"):
            with pytest.raises(UnsupportedOperationError, match=r"0\.3 has no ListTasks"):
                client.list_tasks()
            return
        if way == OLD_REST:
            with pytest.raises(AgentError):
                client.list_tasks()
            return
        first = sent(client, "hello")
        for _ in range(2):
            sent(client, "hello", context_id=first.context_id)
        page = client.list_tasks(context_id=first.context_id, page_size=2)
        assert len(page.tasks) == 2
        rest = client.list_tasks(context_id=first.context_id, page_size=2, page_token=page.next_page_token)
        assert len({task.id for task in (*page.tasks, *rest.tasks)}) == 3
        assert not rest.next_page_token

    @covers("SendMessage", "SubscribeToTask", "CancelTask")
    def test_a_waiting_task_is_followed_and_cancelled(self, client: Client, way: Way, url: str) -> None:
        task = sent(client, "wait", return_immediately=True)
        assert not task.state.terminal
        ends: list[TaskState] = []
        begun = threading.Event()

        def follow() -> None:
            with (
                Client(url, protocol_version=way.version, protocol_binding=way.binding) as other,
                other.subscribe(task.id, timeout=30) as stream,
            ):
                for _ in stream:
                    begun.set()
                ends.append(stream.state)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert begun.wait(20)
        assert client.cancel_task(task.id).state is TaskState.CANCELED
        thread.join(20)
        assert ends == [TaskState.CANCELED]

    @covers(*PUSH)
    def test_webhooks_are_set_read_listed_and_deleted(self, client: Client, way: Way) -> None:
        task = sent(client, "ask")
        made = client.create_push_config(task.id, "https://hooks.test/a", id="a", token="secret")
        assert (made.task_id, made.id, made.url, made.token) == (task.id, "a", "https://hooks.test/a", "secret")
        client.create_push_config(task.id, "https://hooks.test/b", id="b")
        assert client.get_push_config(task.id, "a").url == "https://hooks.test/a"
        assert {one.id for one in client.list_push_configs(task.id)} == {"a", "b"}
        client.delete_push_config(task.id, "a")
        assert [one.id for one in client.list_push_configs(task.id)] == ["b"]
        with pytest.raises(AgentError):
            client.get_push_config(task.id, "a")

    @covers("GetExtendedAgentCard")
    def test_its_extended_card_is_read(self, client: Client) -> None:
        card = client.extended_card()
        assert (card.name, card.description) == (self.name, "For callers that are known")

    @covers(ERRORS)
    def test_its_errors_are_ours(self, client: Client) -> None:
        for refused in (
            lambda: client.get_task("no-such-task"),
            lambda: client.cancel_task("no-such-task"),
            lambda: client.send("hi", task_id="no-such-task"),
        ):
            with pytest.raises(TaskNotFoundError):
                refused()
        with pytest.raises(TaskNotCancelableError):
            client.cancel_task(sent(client, "hello").id)

    @covers(ERRORS, STREAM, "SubscribeToTask")
    def test_the_error_of_a_stream_is_told(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError), client.stream("hi", task_id="no-such-task") as stream:
            list(stream)
        with pytest.raises(TaskNotFoundError), client.subscribe("no-such-task") as stream:
            list(stream)

    @covers(ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = sent(client, "hello")
        with pytest.raises(AgentError):
            client.send("more", task_id=task.id)
