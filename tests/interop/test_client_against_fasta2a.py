"""The client against a fasta2a server, which speaks JSON-RPC 1.0 and departs from the specification in places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import Client, Task, TaskNotFoundError, TaskState, TransportError
from a2a_sync.errors import UnsupportedOperationError
from tests.peers.client_tests import ClientTests, send_task
from tests.peers.record import ERRORS, JSONRPC_10, OURS, PUSH, STREAM, Transport, covers, departs
from tests.peers.servers import python_agent

pytest.importorskip("fasta2a", reason="fasta2a is not installed (make interop installs it)")

PEER, ROLE = "fasta2a", OURS
TRANSPORTS = [JSONRPC_10]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop.fasta_agent") as url:
        yield url


class TestClient(ClientTests):
    name = "fasta"

    @departs("returns a task, never a message, which 3.1.1 allows", "SendMessage")
    def test_an_answer_may_be_a_message(self, client: Client) -> None:
        assert isinstance(client.send("message"), Task)

    @departs("returns from a blocking send before the run starts (3.2.2)", "SendMessage")
    def test_a_blocking_send_returns_before_the_run_starts(self, client: Client) -> None:
        assert send_task(client, "hello", return_immediately=True).state is TaskState.SUBMITTED

    @departs(
        "does not store `status.message`, and streams the state without it (4.1.2)",
        "SendMessage",
    )
    @departs("starts a new task for a message with a task id (3.4.3)", "SendMessage", STREAM)
    def test_a_question_is_answered_in_the_same_task(self, client: Client) -> None:
        asked = send_task(client, "ask")
        # The client takes the text of the question from the stored history.
        assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
        assert asked.status.message is None
        answered = send_task(client, "large", task_id=asked.id, context_id=asked.context_id)
        assert answered.id != asked.id
        assert answered.text == "large"

    @covers("SendMessage")
    def test_a_failed_task_is_returned(self, client: Client) -> None:
        assert send_task(client, "fail").state is TaskState.FAILED

    @departs("does not implement ListTasks (3.1.4)", "ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: Client, transport: Transport) -> None:
        with pytest.raises(UnsupportedOperationError):
            client.list_tasks()

    @covers("SubscribeToTask")
    @departs("returns the unchanged task from a cancel and reports the new state later (3.1.5)", "CancelTask")
    def test_a_waiting_task_is_subscribed_to_and_cancelled(
        self, client: Client, transport: Transport, url: str
    ) -> None:
        task = send_task(client, "wait", return_immediately=True)
        with client.subscribe(task.id) as stream:
            events = iter(stream)
            next(events)
            assert not client.cancel_task(task.id).state.terminal
            list(events)
        assert stream.state is TaskState.CANCELED
        assert client.get_task(task.id).state is TaskState.CANCELED

    @departs("does not send notifications, and answers their methods with HTTP status 500 (3.1.7 to 3.1.10)", *PUSH)
    def test_webhooks_are_created_read_listed_and_deleted(self, client: Client, transport: Transport) -> None:
        assert client.card().capabilities.push_notifications is False
        task = send_task(client, "hello")
        for call in (
            lambda: client.create_push_config(task.id, "https://hooks.test/a"),
            lambda: client.get_push_config(task.id, "a"),
            lambda: client.list_push_configs(task.id),
            lambda: client.delete_push_config(task.id, "a"),
        ):
            with pytest.raises(TransportError):
                call()

    @departs("does not implement the extended card (3.1.11)", "GetExtendedAgentCard")
    def test_the_extended_card_is_read(self, client: Client) -> None:
        with pytest.raises(UnsupportedOperationError):
            client.extended_card()

    @covers(ERRORS)
    def test_errors_have_the_exceptions_of_this_library(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError):
            client.get_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.cancel_task("no-such-task")

    @departs("does not refuse to cancel a finished task (3.1.5)", ERRORS)
    def test_cancelling_a_finished_task_is_not_refused(self, client: Client) -> None:
        task = send_task(client, "hello")
        assert client.cancel_task(task.id).state is TaskState.COMPLETED

    @covers(ERRORS, "SubscribeToTask")
    def test_a_stream_reports_its_error(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError), client.subscribe("no-such-task") as stream:
            list(stream)

    @departs("starts a new task for a message to a finished task (3.4.3)", ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = send_task(client, "hello")
        assert send_task(client, "more", task_id=task.id).id != task.id
