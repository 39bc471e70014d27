"""Our client against a server built on the official SDK, both as they are released, in both versions that it speaks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from a2a_sync import AgentError, Client, FilePart, Task, TaskNotFoundError, TransportError, UnsupportedOperationError
from tests.live import free_port, live_server
from tests.peers.conversations import OurClient, sent
from tests.peers.record import ERRORS, OLD_REST, OURS, STREAM, Way, covers, departs

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

PEER, ROLE = "python", OURS
WAYS = [Way("1.0", "JSONRPC"), Way("1.0", "HTTP+JSON"), Way("0.3", "JSONRPC")]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@pytest.mark.parametrize("way", WAYS, ids=str)
class TestOurClient(OurClient):
    name = "official"

    @covers("ListTasks")
    def test_a_waiting_task_is_listed(self, client: Client, way: Way) -> None:
        task = client.send("wait", return_immediately=True)
        assert isinstance(task, Task)
        if way.version == "1.0":
            assert task.id in {listed.id for listed in client.iter_tasks(page_size=2)}
        client.cancel_task(task.id)

    @covers(ERRORS)
    def test_a_finished_task_cannot_be_followed(self, client: Client) -> None:
        task = sent(client, "hello")
        with pytest.raises(UnsupportedOperationError), client.subscribe(task.id) as stream:
            list(stream)


BREAKS = "breaks the connection of a stream instead of telling an error (3.2.3)"


@pytest.mark.parametrize("way", [OLD_REST], ids=str)
class TestOurClientInTheOldHttpJson(OurClient):
    name = "official"

    @departs("encodes files twice (6.6.1): they come through where the client is told so", "SendMessage")
    def test_files_and_data_come_back_as_they_were(self, client: Client, way: Way, url: str) -> None:
        with pytest.raises((AgentError, TransportError)):
            client.send([FilePart(raw=b"\x00\xff")], return_immediately=True)
        with Client(
            url, protocol_version=way.version, protocol_binding=way.binding, double_base64_files=True, timeout=30
        ) as told:
            super().test_files_and_data_come_back_as_they_were(told, way)

    @covers("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig")
    @departs("has no paths for these (7.7, 7.8)", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig")
    def test_webhooks_are_set_read_listed_and_deleted(self, client: Client, way: Way) -> None:
        task = sent(client, "ask")
        assert client.create_push_config(task.id, "https://hooks.test/a", id="a").id == "a"
        assert client.get_push_config(task.id, "a").url == "https://hooks.test/a"
        with pytest.raises(AgentError):
            client.delete_push_config(task.id, "a")

    @covers(ERRORS)
    def test_its_errors_are_ours(self, client: Client) -> None:
        with pytest.raises(TaskNotFoundError):
            client.get_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.cancel_task("no-such-task")
        with pytest.raises(TaskNotFoundError):
            client.send("hi", task_id="no-such-task", return_immediately=True)

    @departs(BREAKS, ERRORS, STREAM, "SubscribeToTask")
    def test_the_error_of_a_stream_is_told(self, client: Client) -> None:
        with (
            pytest.raises((AgentError, TransportError)),
            client.stream("hi", task_id="no-such-task", timeout=5) as stream,
        ):
            list(stream)

    @departs(BREAKS, ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = sent(client, "hello")
        with pytest.raises((AgentError, TransportError)):
            client.send("more", task_id=task.id, timeout=5)
