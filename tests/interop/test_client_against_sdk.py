"""The client against a server on the official SDK, in both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import AgentError, Client, Task, TaskNotFoundError, TransportError
from a2a_sync.errors import UnsupportedOperationError
from tests.peers.client_tests import ClientTests, send_task
from tests.peers.record import (
    ERRORS,
    HTTP_JSON_03,
    HTTP_JSON_10,
    JSONRPC_03,
    JSONRPC_10,
    OURS,
    STREAM,
    Transport,
    covers,
    departs,
)
from tests.peers.servers import python_agent

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

PEER, ROLE = "python", OURS
TRANSPORTS = [JSONRPC_10, HTTP_JSON_10, JSONRPC_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop.sdk_agent") as url:
        yield url


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
class TestClient(ClientTests):
    name = "official"

    @covers("ListTasks")
    def test_a_waiting_task_is_listed(self, client: Client, transport: Transport) -> None:
        task = client.send("wait", return_immediately=True)
        assert isinstance(task, Task)
        if transport.version == "1.0":
            assert task.id in {listed.id for listed in client.iter_tasks(page_size=2)}
        client.cancel_task(task.id)

    @covers(ERRORS)
    def test_a_finished_task_cannot_be_subscribed_to(self, client: Client) -> None:
        task = send_task(client, "hello")
        with pytest.raises(UnsupportedOperationError), client.subscribe(task.id) as stream:
            list(stream)


BREAKS = "closes the connection of a stream instead of sending an error (3.2.3)"


@pytest.mark.parametrize("transport", [HTTP_JSON_03], ids=str)
class TestClientOverHTTPJSON03(ClientTests):
    name = "official"

    @departs("encodes files twice (6.6.1); the client decodes them with `double_base64_files`", "SendMessage")
    def test_files_and_data_are_returned_unchanged(self, client: Client, transport: Transport, url: str) -> None:
        self.check_double_encoded_files(client, transport, url)

    @covers("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig")
    @departs(
        "does not serve these paths (7.7, 7.8)", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"
    )
    def test_webhooks_are_created_read_listed_and_deleted(self, client: Client, transport: Transport) -> None:
        task = send_task(client, "ask")
        assert client.create_push_config(task.id, "https://hooks.test/a", id="a").id == "a"
        assert client.get_push_config(task.id, "a").url == "https://hooks.test/a"
        with pytest.raises(AgentError):
            client.delete_push_config(task.id, "a")

    @covers(ERRORS)
    def test_errors_have_the_exceptions_of_this_library(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError):
            client.get_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.cancel_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.send("hi", task_id="no-such-task", return_immediately=True)

    @departs(BREAKS, ERRORS, STREAM, "SubscribeToTask")
    def test_a_stream_reports_its_error(self, client: Client) -> None:
        with (
            pytest.raises((AgentError, TransportError)),
            client.stream("hi", task_id="no-such-task", timeout=5) as stream,
        ):
            list(stream)

    @departs(BREAKS, ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = send_task(client, "hello")
        with pytest.raises((AgentError, TransportError)):
            client.send("more", task_id=task.id, timeout=5)
