"""Push configurations at the client: what is asked for, and what is made of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import AgentCard, Client, TaskPushNotificationConfig
from a2a_sync.card import AgentInterface
from a2a_sync.errors import PushNotificationNotSupportedError
from a2a_sync.types import AuthenticationInfo
from tests.client.peer import Peer, peer, results, steps, task

BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
CONFIG = TaskPushNotificationConfig(url="https://example.com/hook", id="c-1", task_id="t-1", token="t0ken")
JSON = {"url": "https://example.com/hook", "id": "c-1", "taskId": "t-1", "token": "t0ken"}
JSON_03 = {
    "taskId": "t-1",
    "pushNotificationConfig": {"url": "https://example.com/hook", "id": "c-1", "token": "t0ken"},
}


def old(server: Peer) -> AgentCard:
    """A card that leads there in protocol 0.3."""
    interface = AgentInterface(url=server.url, protocol_binding="JSONRPC", protocol_version="0.3")
    return replace(server.card(), supported_interfaces=(interface,))


def test_a_url_and_what_is_said_of_it_become_a_configuration() -> None:
    with peer({"CreateTaskPushNotificationConfig": results(JSON)}) as server, Client(server.card()) as client:
        created = client.create_push_config(
            "t-1", "https://example.com/hook", id="c-1", token="t0ken", authentication=BEARER
        )
        asked = server.asked[-1].params
    assert created == CONFIG
    assert asked == {**JSON, "authentication": {"scheme": "Bearer", "credentials": "s3cret"}}


def test_arguments_stand_over_a_whole_configuration_and_nothing_else_of_it_is_lost() -> None:
    given = replace(CONFIG, task_id="other", id="", authentication=BEARER)
    with peer({"CreateTaskPushNotificationConfig": results(JSON)}) as server, Client(server.card()) as client:
        client.create_push_config("t-1", given, token="new")
        asked = server.asked[-1].params
    assert asked == {
        "url": "https://example.com/hook",
        "taskId": "t-1",
        "token": "new",
        "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
    }


def test_configurations_are_listed_to_the_last_page() -> None:
    pages = [{"configs": [{**JSON, "id": "a"}], "nextPageToken": "1"}, {"configs": [{**JSON, "id": "b"}]}]
    with (
        peer({"ListTaskPushNotificationConfigs": steps(*map(results, pages))}) as server,
        Client(server.card()) as client,
    ):
        listed = client.list_push_configs("t-1")
        asked = [asked.params for asked in server.asked]
    assert [config.id for config in listed] == ["a", "b"]
    assert asked == [{"taskId": "t-1"}, {"taskId": "t-1", "pageToken": "1"}]


def test_a_list_that_never_ends_is_read_once() -> None:
    page = {"configs": [JSON], "nextPageToken": "again"}
    with peer({"ListTaskPushNotificationConfigs": results(page)}) as server, Client(server.card()) as client:
        assert client.list_push_configs("t-1") == [CONFIG, CONFIG]


def test_one_configuration_is_read_and_deleted() -> None:
    script = {"GetTaskPushNotificationConfig": results(JSON), "DeleteTaskPushNotificationConfig": results(None)}
    with peer(script) as server, Client(server.card()) as client:
        assert client.get_push_config("t-1", "c-1") == CONFIG
        client.delete_push_config("t-1", "c-1")
        assert [asked.params for asked in server.asked] == [{"taskId": "t-1", "id": "c-1"}] * 2


def test_an_agent_of_0_3_is_asked_in_its_own_words() -> None:
    script = {
        "tasks/pushNotificationConfig/set": results(JSON_03),
        "tasks/pushNotificationConfig/get": results(JSON_03),
        "tasks/pushNotificationConfig/list": results([JSON_03]),
        "tasks/pushNotificationConfig/delete": results(None),
    }
    with peer(script) as server, Client(old(server)) as client:
        assert client.create_push_config("t-1", "https://example.com/hook", token="t0ken") == CONFIG
        assert client.get_push_config("t-1", "c-1") == CONFIG
        assert client.list_push_configs("t-1") == [CONFIG]
        client.delete_push_config("t-1", "c-1")
        asked = [asked.params for asked in server.asked]
    assert asked == [
        {"taskId": "t-1", "pushNotificationConfig": {"url": "https://example.com/hook", "token": "t0ken"}},
        {"id": "t-1", "pushNotificationConfigId": "c-1"},
        {"id": "t-1"},
        {"id": "t-1", "pushNotificationConfigId": "c-1"},
    ]


@pytest.mark.parametrize(
    "given", ["https://example.com/hook", TaskPushNotificationConfig(url="https://example.com/hook")]
)
def test_a_webhook_goes_with_a_send(given: Any) -> None:
    with peer({"SendMessage": results({"task": task("COMPLETED")})}) as server, Client(server.card()) as client:
        client.send("hi", push_config=given, return_immediately=True)
        configuration = server.asked[-1].params["configuration"]
    assert configuration["taskPushNotificationConfig"] == {"url": "https://example.com/hook"}


def test_an_agent_without_push_notifications_says_so() -> None:
    script = {"ListTaskPushNotificationConfigs": lambda asked, line: line.error(-32003)}
    with peer(script) as server, Client(server.card()) as client, pytest.raises(PushNotificationNotSupportedError):
        client.list_push_configs("t-1")
