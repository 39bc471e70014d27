"""The client against a server on the official SDK of protocol 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from a2a_sync import AgentError, Client, Task, TaskNotFoundError, TaskState, TransportError
from a2a_sync.errors import InvalidParamsError, UnsupportedOperationError, VersionNotSupportedError
from tests.peers.client_tests import ClientTests, send_task
from tests.peers.record import ERRORS, HTTP_JSON_03, JSONRPC_03, OURS, PUSH, Transport, covers, departs
from tests.peers.servers import python_agent

PEER, ROLE = "python-03", OURS
TRANSPORTS = [JSONRPC_03, HTTP_JSON_03]
BREAKS = "closes the connection of a stream instead of sending an error (3.2.3)"

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop03.sdk_agent") as url:
        yield url


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
class TestClient(ClientTests):
    name = "official"
    refused_send: ClassVar[dict[str, Any]] = {"return_immediately": True}
    #: A subscription to the SDK sends no event before the next update, so the task has to produce updates.
    wait_command = "tick"

    @covers("SendMessage")
    @departs(
        "encodes files twice (6.6.1); the client decodes them with `double_base64_files`",
        "SendMessage",
        transport=HTTP_JSON_03,
    )
    def test_files_and_data_are_returned_unchanged(self, client: Client, transport: Transport, url: str) -> None:
        if transport != HTTP_JSON_03:
            super().test_files_and_data_are_returned_unchanged(client, transport)
            return
        self.check_double_encoded_files(client, transport, url)

    @covers(*PUSH)
    @departs("returns the first webhook of a task for any id (7.6)", PUSH[1])
    @departs("does not serve these paths (7.7, 7.8)", *PUSH[2:], transport=HTTP_JSON_03)
    def test_webhooks_are_created_read_listed_and_deleted(self, client: Client, transport: Transport) -> None:
        task = send_task(client, "ask")
        assert client.create_push_config(task.id, "https://hooks.test/a", id="a").id == "a"
        assert client.get_push_config(task.id, "none").url == "https://hooks.test/a"
        if transport == HTTP_JSON_03:
            with pytest.raises(AgentError):
                client.list_push_configs(task.id)
            return
        client.create_push_config(task.id, "https://hooks.test/b", id="b")
        client.delete_push_config(task.id, "a")
        assert [one.id for one in client.list_push_configs(task.id)] == ["b"]

    @covers(ERRORS)
    @departs(BREAKS, ERRORS, transport=HTTP_JSON_03)
    def test_a_stream_reports_its_error(self, client: Client) -> None:
        for call in (
            lambda: client.stream("hi", task_id="no-such-task", timeout=5),
            lambda: client.subscribe("no-such-task", timeout=5),
        ):
            with pytest.raises((TaskNotFoundError, TransportError)), call() as stream:
                list(stream)

    @covers(ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = send_task(client, "hello")
        with pytest.raises((AgentError, TransportError)):
            client.send("more", task_id=task.id, timeout=5)

    @covers("SendMessage")
    def test_a_non_blocking_send_can_be_waited_for(self, client: Client) -> None:
        task = send_task(client, "count 3", return_immediately=True)
        done = client.wait(task.id, timeout=20)
        assert (done.state, done.text) == (TaskState.COMPLETED, "1 2 3 ")

    @covers("GetTask")
    def test_history_length_limits_the_history(self, client: Client) -> None:
        task = send_task(client, "hello")
        assert client.get_task(task.id).history[0].text == "hello"
        assert len(client.get_task(task.id, history_length=1).history) <= 1


@pytest.mark.parametrize("path", ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_the_card_is_found_at_each_path(path: str, url: str) -> None:
    with Client(url + path) as client:
        card = client.card()
    assert (card.name, card.skill("obey").tags, card.capabilities.streaming) == ("official", ("test",), True)
    offered = [(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]
    assert offered == [("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


def test_a_client_restricted_to_1_0_reports_the_versions_offered(url: str) -> None:
    with (
        Client(url, protocol_version="1.0") as client,
        pytest.raises(VersionNotSupportedError, match=r"offers JSONRPC 0\.3"),
    ):
        client.send("hello")


def test_without_streaming_the_answer_is_the_only_event(url: str) -> None:
    with Client(url + "/plain", timeout=30) as client:
        with client.stream("count 5") as stream:
            (event,) = stream
        assert isinstance(event, Task)
        assert event.text == "1 2 3 4 5 "
        with pytest.raises((UnsupportedOperationError, InvalidParamsError)), client.subscribe(event.id) as subscription:
            list(subscription)
        chat = client.chat()
        asked, done = chat.send("ask"), chat.send("large")
        assert isinstance(asked, Task)
        assert isinstance(done, Task)
        assert (asked.text, done.id, done.state) == ("Which size?", asked.id, TaskState.COMPLETED)
