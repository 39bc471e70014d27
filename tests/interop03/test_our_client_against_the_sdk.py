"""Our client against a server built on the official SDK 0.3, as it was released."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from a2a_sync import (
    AgentError,
    Client,
    FilePart,
    Task,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
    TransportError,
    UnsupportedOperationError,
)
from a2a_sync.errors import InvalidParamsError, VersionNotSupportedError
from tests.live import free_port, live_server
from tests.peers.conversations import OurClient, sent
from tests.peers.record import ERRORS, OLD_REST, OURS, PUSH, Way, covers, departs

PEER, ROLE = "python-03", OURS
WAYS = [Way("0.3", "JSONRPC"), OLD_REST]
BREAKS = "breaks the connection of a stream instead of telling an error (3.2.3)"

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop03.sdk_agent", str(port)]
    with live_server(command, f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@pytest.mark.parametrize("way", WAYS, ids=str)
class TestOurClient(OurClient):
    name = "official"

    @covers("SubscribeToTask", "CancelTask")
    def test_a_waiting_task_is_followed_and_cancelled(self, client: Client, way: Way, url: str) -> None:
        # Its streams do not begin with the task: only an event tells that one is followed.
        task = sent(client, "disconnect_check_interval", return_immediately=True)
        ends: list[TaskState] = []
        begun = threading.Event()

        def follow() -> None:
            with Client(url, protocol_binding=way.binding) as other, other.subscribe(task.id, timeout=30) as stream:
                for _ in stream:
                    begun.set()
                ends.append(stream.state)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert begun.wait(20)
        assert client.cancel_task(task.id).state is TaskState.CANCELED
        thread.join(20)
        assert ends == [TaskState.CANCELED]

    @covers("SendMessage")
    @departs("encodes files twice (6.6.1): they come through where the client is told so", "SendMessage", way=OLD_REST)
    def test_files_and_data_come_back_as_they_were(self, client: Client, way: Way, url: str) -> None:
        if way != OLD_REST:
            super().test_files_and_data_come_back_as_they_were(client, way)
            return
        with pytest.raises((AgentError, TransportError)):
            client.send([FilePart(raw=b"\x00\xff")], return_immediately=True)
        with Client(
            url, protocol_version=way.version, protocol_binding=way.binding, double_base64_files=True, timeout=30
        ) as told:
            super().test_files_and_data_come_back_as_they_were(told, way)

    @covers(*PUSH)
    @departs("answers with the first webhook of a task, whatever the id that was asked for (7.6)", PUSH[1])
    @departs("has no paths for these (7.7, 7.8)", *PUSH[2:], way=OLD_REST)
    def test_webhooks_are_set_read_listed_and_deleted(self, client: Client, way: Way) -> None:
        task = sent(client, "ask")
        assert client.create_push_config(task.id, "https://hooks.test/a", id="a").id == "a"
        assert client.get_push_config(task.id, "none").url == "https://hooks.test/a"
        if way == OLD_REST:
            with pytest.raises(AgentError):
                client.list_push_configs(task.id)
            return
        client.create_push_config(task.id, "https://hooks.test/b", id="b")
        client.delete_push_config(task.id, "a")
        assert [one.id for one in client.list_push_configs(task.id)] == ["b"]

    @covers(ERRORS)
    def test_its_errors_are_ours(self, client: Client) -> None:
        for refused in (
            lambda: client.get_task("no-such-task"),
            lambda: client.cancel_task("no-such-task"),
            lambda: client.send("hi", task_id="no-such-task", return_immediately=True),
        ):
            with pytest.raises(TaskNotFoundError):
                refused()
        with pytest.raises(TaskNotCancelableError):
            client.cancel_task(sent(client, "hello").id)

    @covers(ERRORS)
    @departs(BREAKS, ERRORS, way=OLD_REST)
    def test_the_error_of_a_stream_is_told(self, client: Client) -> None:
        for call in (
            lambda: client.stream("hi", task_id="no-such-task", timeout=5),
            lambda: client.subscribe("no-such-task", timeout=5),
        ):
            with pytest.raises((TaskNotFoundError, TransportError)), call() as stream:
                list(stream)

    @covers(ERRORS)
    def test_a_message_to_a_finished_task_is_refused(self, client: Client) -> None:
        task = sent(client, "hello")
        with pytest.raises((AgentError, TransportError)):
            client.send("more", task_id=task.id, timeout=5)

    @covers("SendMessage")
    def test_a_send_that_returns_at_once_can_be_waited_for(self, client: Client) -> None:
        task = sent(client, "count 3", return_immediately=True)
        done = client.wait(task.id, timeout=20)
        assert (done.state, done.text) == (TaskState.COMPLETED, "1 2 3 ")

    @covers("GetTask")
    def test_the_history_is_as_long_as_was_asked_for(self, client: Client) -> None:
        task = sent(client, "hello")
        assert client.get_task(task.id).history[0].text == "hello"
        assert len(client.get_task(task.id, history_length=1).history) <= 1


@pytest.mark.parametrize("path", ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_its_card_is_found_at_each_of_its_paths(path: str, url: str) -> None:
    with Client(url + path) as client:
        card = client.card()
    assert (card.name, card.skill("obey").tags, card.capabilities.streaming) == ("official", ("test",), True)
    offered = [(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]
    assert offered == [("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


def test_a_client_that_insists_on_1_0_says_what_it_found(url: str) -> None:
    with (
        Client(url, protocol_version="1.0") as client,
        pytest.raises(VersionNotSupportedError, match=r"offers JSONRPC 0\.3"),
    ):
        client.send("hello")


def test_an_agent_that_does_not_stream_is_asked_and_its_answer_is_the_only_event(url: str) -> None:
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
