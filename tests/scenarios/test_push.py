"""Push configurations through the client: equal in process, over WSGI and under gunicorn, in each version."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from a2a_sync import Client, Task, TaskNotFoundError, TaskPushNotificationConfig
from a2a_sync.errors import InvalidParamsError
from a2a_sync.types import AuthenticationInfo

pytestmark = pytest.mark.timeout(60)

MakeClient = Callable[[], Client]
#: An address without a listener.
URL = "http://127.0.0.1:9/hook"
SECRET = AuthenticationInfo(scheme="Bearer", credentials="s3cret")


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[Client]:
    with make_client() as client:
        yield client


def interrupted_task_id(client: Client, **options: object) -> str:
    """Create a task in the input-required state; return its id."""
    task = client.send("ask", **options)  # type: ignore[arg-type]
    assert isinstance(task, Task)
    return task.id


def test_configurations_are_created_read_listed_and_deleted(client: Client) -> None:
    task_id = interrupted_task_id(client)
    assert client.list_push_configs(task_id) == []
    first = client.create_push_config(task_id, URL, id="a/b c", token="t0ken", authentication=SECRET)
    assert first == TaskPushNotificationConfig(
        url=URL, id="a/b c", task_id=task_id, token="t0ken", authentication=SECRET
    )
    second = client.create_push_config(task_id, URL)
    assert second.id
    assert client.list_push_configs(task_id) == [first, second]
    assert client.get_push_config(task_id, "a/b c") == first
    for _ in range(2):
        client.delete_push_config(task_id, "a/b c")
    assert client.list_push_configs(task_id) == [second]
    with pytest.raises(TaskNotFoundError):
        client.get_push_config(task_id, "a/b c")


def test_a_webhook_in_a_send_is_listed(client: Client) -> None:
    task_id = interrupted_task_id(client, push_config=TaskPushNotificationConfig(url=URL, token="t0ken"))
    (config,) = client.list_push_configs(task_id)
    assert config == TaskPushNotificationConfig(url=URL, id=task_id, task_id=task_id, token="t0ken")


def test_a_webhook_in_a_streaming_send_is_listed(client: Client) -> None:
    with client.stream("count 2", push_config=URL) as stream:
        list(stream)
        assert stream.task is not None
        assert [config.url for config in client.list_push_configs(stream.task.id)] == [URL]


def test_an_unknown_task_has_no_configurations(client: Client) -> None:
    for call in (
        lambda: client.create_push_config("unknown", URL),
        lambda: client.get_push_config("unknown", "a"),
        lambda: client.list_push_configs("unknown"),
        lambda: client.delete_push_config("unknown", "a"),
    ):
        with pytest.raises(TaskNotFoundError):
            call()


def test_a_url_in_the_private_network_of_the_server_is_refused(client: Client) -> None:
    task_id = interrupted_task_id(client)
    with pytest.raises(InvalidParamsError, match="url"):
        client.create_push_config(task_id, "http://127.0.0.2/hook")
    with pytest.raises(InvalidParamsError, match="url"):
        client.send("echo hi", push_config="http://localhost/hook")
    assert client.list_push_configs(task_id) == []


def test_in_0_3_a_configuration_without_an_id_replaces_the_previous_one(client: Client, version: str) -> None:
    task_id = interrupted_task_id(client)
    for token in ("one", "two"):
        client.create_push_config(task_id, URL, token=token)
    tokens = [config.token for config in client.list_push_configs(task_id)]
    assert tokens == (["two"] if version == "0.3" else ["one", "two"])


def test_all_schemes_of_a_0_3_configuration_are_stored(client: Client, version: str) -> None:
    several = AuthenticationInfo(scheme="Bearer", credentials="s3cret", other_schemes=("Basic", "Digest"))
    task_id = interrupted_task_id(client)
    made = client.create_push_config(task_id, URL, authentication=several)
    assert made == client.get_push_config(task_id, made.id)
    assert made.authentication == (several if version == "0.3" else made.authentication)


def test_each_authentication_scheme_is_validated(client: Client, version: str) -> None:
    wrong = AuthenticationInfo(scheme="Bearer", credentials="s3cret", other_schemes=("no scheme",))
    if version == "0.3":
        with pytest.raises(InvalidParamsError, match="scheme"):
            client.create_push_config(interrupted_task_id(client), URL, authentication=wrong)
