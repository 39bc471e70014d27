"""Tests of the client against an agent on another implementation: one class, which a module subclasses for its peer.

All agents have the same commands, selected by the first word of the message: ``count N`` streams numbers as one artifact, ``ask``
asks a question, ``wait`` waits for a cancel, ``fail`` fails, ``parts`` returns the parts, ``message`` answers without a task, and
any other text is echoed.
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
    TaskNotFoundError,
    TaskState,
    TextPart,
    TransportError,
)
from a2a_sync.errors import TaskNotCancelableError, UnsupportedOperationError
from tests.peers.record import CARD, ERRORS, GRPC_03, HTTP_JSON_03, JSONRPC_03, PUSH, STREAM, Transport, covers


def without_filename(part: Part) -> Part:
    """The part without its filename."""
    return replace(part, filename="")


def send_task(client: Client, content: Any, **options: Any) -> Task:
    """Send a message that is answered with a task."""
    answer = client.send(content, **options)
    assert isinstance(answer, Task)
    return answer


class ClientTests:
    """The client against a peer's agent. A subclass defines the class attributes, its module the `url`."""

    #: The name in the agent's card.
    name: ClassVar[str]
    #: The command of a task that runs until it is cancelled.
    wait_command: ClassVar[str] = "wait"
    #: Options of a send that the agent refuses.
    refused_send: ClassVar[dict[str, Any]] = {}
    #: What a data part holds.
    data: ClassVar[dict[str, Any]] = {"n": 1, "deep": [{"x": None}]}

    @pytest.fixture
    def client(self, transport: Transport, url: str) -> Iterator[Client]:
        with Client(url, protocol_version=transport.version, protocol_binding=transport.binding, timeout=30) as client:
            yield client

    @covers(CARD)
    def test_the_card_is_read(self, client: Client, transport: Transport) -> None:
        card = client.card()
        assert (card.name, card.skill("obey").tags, card.capabilities.streaming) == (self.name, ("test",), True)
        offered = {(one.protocol_version[:3], one.protocol_binding) for one in card.supported_interfaces}
        assert (transport.version, transport.binding) in offered

    @covers("SendMessage", "GetTask")
    def test_a_send_is_answered_with_the_finished_task(self, client: Client) -> None:
        task = send_task(client, "hello")
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
        task = send_task(client, "fail")
        assert (task.state, task.text) == (TaskState.FAILED, "no luck")

    @covers("SendMessage")
    def test_files_and_data_are_returned_unchanged(self, client: Client, transport: Transport) -> None:
        # The proto of 0.3 has no filenames; some servers send them.
        names = transport not in (HTTP_JSON_03, GRPC_03)
        parts = [
            TextPart("parts"),
            FilePart(raw=b"\x00\xff", filename="a.bin", media_type="application/x-a"),
            FilePart(url="https://files.test/b.png", filename="b.png", media_type="image/png"),
            DataPart(self.data),
        ]
        task = send_task(client, parts)
        assert task.state is TaskState.COMPLETED
        ((*returned, seen),) = (artifact.parts for artifact in task.artifacts)
        assert [without_filename(part) for part in returned] == [without_filename(part) for part in parts]
        assert not names or returned == parts
        assert seen == DataPart({"seen": True})

    def check_double_encoded_files(self, client: Client, transport: Transport, url: str) -> None:
        """For peers that encode files twice (6.6.1): an error by default, equal files with ``double_base64_files``."""
        with pytest.raises((AgentError, TransportError)):
            client.send([FilePart(raw=b"\x00\xff")], return_immediately=True)
        with Client(
            url,
            protocol_version=transport.version,
            protocol_binding=transport.binding,
            double_base64_files=True,
            timeout=30,
        ) as lenient:
            ClientTests.test_files_and_data_are_returned_unchanged(self, lenient, transport)

    @covers(STREAM, "GetTask")
    def test_the_events_of_a_stream_add_up_to_the_stored_task(self, client: Client) -> None:
        with client.stream("count 5") as stream:
            events = list(stream)
            folded = stream.task
        assert len(events) >= 7
        assert folded is not None
        assert (folded.state, folded.text) == (TaskState.COMPLETED, "1 2 3 4 5 ")
        assert client.get_task(folded.id).text == folded.text

    @covers("ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: Client, transport: Transport) -> None:
        if transport in (JSONRPC_03, GRPC_03):
            with pytest.raises(UnsupportedOperationError, match=r"0\.3 has no ListTasks"):
                client.list_tasks()
            return
        if transport == HTTP_JSON_03:
            with pytest.raises(AgentError):
                client.list_tasks()
            return
        first = send_task(client, "hello")
        for _ in range(2):
            send_task(client, "hello", context_id=first.context_id)
        page = client.list_tasks(context_id=first.context_id, page_size=2)
        assert len(page.tasks) == 2
        rest = client.list_tasks(context_id=first.context_id, page_size=2, page_token=page.next_page_token)
        assert len({task.id for task in (*page.tasks, *rest.tasks)}) == 3
        assert not rest.next_page_token

    @covers("SendMessage", "SubscribeToTask", "CancelTask")
    def test_a_waiting_task_is_subscribed_to_and_cancelled(
        self, client: Client, transport: Transport, url: str
    ) -> None:
        task = send_task(client, self.wait_command, return_immediately=True)
        assert not task.state.terminal
        ends: list[TaskState] = []
        begun = threading.Event()

        def follow() -> None:
            with (
                Client(url, protocol_version=transport.version, protocol_binding=transport.binding) as other,
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
    def test_webhooks_are_created_read_listed_and_deleted(self, client: Client, transport: Transport) -> None:
        task = send_task(client, "ask")
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
    def test_the_extended_card_is_read(self, client: Client) -> None:
        card = client.extended_card()
        assert (card.name, card.description) == (self.name, "For authenticated callers")

    @covers(ERRORS)
    def test_errors_have_the_exceptions_of_this_library(self, client: Client) -> None:
        for refused in (
            lambda: client.get_task("no-such-task"),
            lambda: client.cancel_task("no-such-task"),
            lambda: client.send("hi", task_id="no-such-task", **self.refused_send),
        ):
            with pytest.raises(TaskNotFoundError):
                refused()
        with pytest.raises(TaskNotCancelableError):
            client.cancel_task(send_task(client, "hello").id)

    @covers(ERRORS, STREAM, "SubscribeToTask")
    def test_a_stream_reports_its_error(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError), client.stream("hi", task_id="no-such-task") as stream:
            list(stream)
        with pytest.raises(TaskNotFoundError), client.subscribe("no-such-task") as stream:
            list(stream)

    @covers(ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = send_task(client, "hello")
        with pytest.raises(AgentError):
            client.send("more", task_id=task.id)
