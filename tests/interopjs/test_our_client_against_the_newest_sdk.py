"""Our client against a server built on the newest JavaScript SDK, in both versions that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import Client
from a2a_sync.errors import InvalidParamsError
from tests.interopjs.node import js_server
from tests.peers.conversations import OurClient, sent
from tests.peers.record import OLD_REST, OURS, PUSH, Way, covers, departs

PEER, ROLE = "js", OURS
WAYS = [Way("1.0", "JSONRPC"), Way("1.0", "HTTP+JSON"), Way("0.3", "JSONRPC"), OLD_REST]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("way", WAYS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with js_server("newest_agent.mjs") as server:
        yield server.url


class TestOurClient(OurClient):
    name = "official-js"

    @covers("ListTasks")
    @departs("answers with an empty list of tasks, whatever there is", "ListTasks", way=OLD_REST)
    def test_tasks_are_listed_page_by_page(self, client: Client, way: Way) -> None:
        if way != OLD_REST:
            super().test_tasks_are_listed_page_by_page(client, way)
            return
        sent(client, "hello")
        assert client.list_tasks().tasks == ()

    @covers(*PUSH)
    @departs("wants a new configuration as the whole body, not as its member `config` (3.5.3)", *PUSH, way=OLD_REST)
    def test_webhooks_are_set_read_listed_and_deleted(self, client: Client, way: Way) -> None:
        if way != OLD_REST:
            super().test_webhooks_are_set_read_listed_and_deleted(client, way)
            return
        task = sent(client, "ask")
        with pytest.raises(InvalidParamsError):
            client.create_push_config(task.id, "https://hooks.test/a", id="a")
        assert client.list_push_configs(task.id) == []
