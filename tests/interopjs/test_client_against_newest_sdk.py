"""The client against a server on the newest JavaScript SDK, in both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import Client
from a2a_sync.errors import InvalidParamsError
from tests.interopjs.node import js_server
from tests.peers.client_tests import ClientTests, send_task
from tests.peers.record import (
    HTTP_JSON_03,
    HTTP_JSON_10,
    JSONRPC_03,
    JSONRPC_10,
    OURS,
    PUSH,
    Transport,
    covers,
    departs,
)

PEER, ROLE = "js", OURS
TRANSPORTS = [JSONRPC_10, HTTP_JSON_10, JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with js_server("agent_newest.mjs") as server:
        yield server.url


class TestClient(ClientTests):
    name = "official-js"

    @covers("ListTasks")
    @departs("always returns an empty list of tasks", "ListTasks", transport=HTTP_JSON_03)
    def test_tasks_are_listed_page_by_page(self, client: Client, transport: Transport) -> None:
        if transport != HTTP_JSON_03:
            super().test_tasks_are_listed_page_by_page(client, transport)
            return
        send_task(client, "hello")
        assert client.list_tasks().tasks == ()

    @covers(*PUSH)
    @departs(
        "expects a new configuration as the body, not as its member `config` (3.5.3)", *PUSH, transport=HTTP_JSON_03
    )
    def test_webhooks_are_created_read_listed_and_deleted(self, client: Client, transport: Transport) -> None:
        if transport != HTTP_JSON_03:
            super().test_webhooks_are_created_read_listed_and_deleted(client, transport)
            return
        task = send_task(client, "ask")
        with pytest.raises(InvalidParamsError):
            client.create_push_config(task.id, "https://hooks.test/a", id="a")
        assert client.list_push_configs(task.id) == []
