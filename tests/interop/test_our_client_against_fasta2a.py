"""Our client against a server built on fasta2a, which speaks JSON-RPC 1.0 and goes its own way in places."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from a2a_sync import Client, Task, TaskNotFoundError, TaskState, TransportError, UnsupportedOperationError
from tests.live import free_port, live_server
from tests.peers.conversations import OurClient, sent
from tests.peers.record import ERRORS, OURS, PUSH, STREAM, Way, covers, departs

pytest.importorskip("fasta2a", reason="fasta2a is not installed (make interop installs it)")

PEER, ROLE = "fasta2a", OURS
WAYS = [Way("1.0", "JSONRPC")]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("way", WAYS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.fasta_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


class TestOurClient(OurClient):
    name = "fasta"

    @departs("answers with a task, never with a message (3.1.1 leaves it the choice)", "SendMessage")
    def test_an_answer_may_be_a_message(self, client: Client) -> None:
        assert isinstance(client.send("message"), Task)

    @departs(
        "never waits: a send that is not streamed is answered with a task that has not begun (3.2.2)", "SendMessage"
    )
    def test_a_plain_send_is_answered_before_the_task_has_begun(self, client: Client) -> None:
        assert sent(client, "hello", return_immediately=True).state is TaskState.SUBMITTED

    @departs(
        "forgets the words of a question: status.message is not stored, and the stream says the state alone (4.1.2)",
        "SendMessage",
    )
    @departs("takes a message to a task for a new task, whether that exists or not (3.4.3)", "SendMessage", STREAM)
    def test_a_question_is_answered_in_the_same_task(self, client: Client) -> None:
        asked = sent(client, "ask")
        # The client finds the words of the question in the stored history.
        assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Which size?")
        assert asked.status.message is None
        answered = sent(client, "large", task_id=asked.id, context_id=asked.context_id)
        assert answered.id != asked.id
        assert answered.text == "large"

    @covers("SendMessage")
    def test_a_failed_task_is_returned(self, client: Client) -> None:
        assert sent(client, "fail").state is TaskState.FAILED

    @departs("has no list of tasks (3.1.4)", "ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: Client, way: Way) -> None:
        with pytest.raises(UnsupportedOperationError):
            client.list_tasks()

    @covers("SubscribeToTask")
    @departs("answers a cancel with the task as it was; that it was cancelled is told later (3.1.5)", "CancelTask")
    def test_a_waiting_task_is_followed_and_cancelled(self, client: Client, way: Way, url: str) -> None:
        task = sent(client, "wait", return_immediately=True)
        with client.subscribe(task.id) as stream:
            events = iter(stream)
            next(events)
            assert not client.cancel_task(task.id).state.terminal
            list(events)
        assert stream.state is TaskState.CANCELED
        assert client.get_task(task.id).state is TaskState.CANCELED

    @departs("sends no notifications, and answers the methods for them with HTTP status 500 (3.1.7 to 3.1.10)", *PUSH)
    def test_webhooks_are_set_read_listed_and_deleted(self, client: Client, way: Way) -> None:
        assert client.card().capabilities.push_notifications is False
        task = sent(client, "hello")
        for call in (
            lambda: client.create_push_config(task.id, "https://hooks.test/a"),
            lambda: client.get_push_config(task.id, "a"),
            lambda: client.list_push_configs(task.id),
            lambda: client.delete_push_config(task.id, "a"),
        ):
            with pytest.raises(TransportError):
                call()

    @departs("has no extended card (3.1.11)", "GetExtendedAgentCard")
    def test_its_extended_card_is_read(self, client: Client) -> None:
        with pytest.raises(UnsupportedOperationError):
            client.extended_card()

    @covers(ERRORS)
    def test_its_errors_are_ours(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError):
            client.get_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.cancel_task("no-such-task")

    @departs("cancels what is finished without a word (3.1.5)", ERRORS)
    def test_a_finished_task_is_cancelled_without_a_word(self, client: Client) -> None:
        task = sent(client, "hello")
        assert client.cancel_task(task.id).state is TaskState.COMPLETED

    @covers(ERRORS, "SubscribeToTask")
    def test_the_error_of_a_stream_is_told(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError), client.subscribe("no-such-task") as stream:
            list(stream)

    @departs("takes a message to a finished task for a new one (3.4.3)", ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = sent(client, "hello")
        assert sent(client, "more", task_id=task.id).id != task.id
