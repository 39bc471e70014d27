"""Our client against a server built on the last JavaScript SDK of protocol 0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_sync import Client, TaskNotCancelableError, TaskNotFoundError
from a2a_sync.errors import InternalError
from tests.interopjs.node import js_server
from tests.peers.conversations import OurClient, sent
from tests.peers.record import ERRORS, OLD_REST, OURS, STREAM, Way, covers, departs

PEER, ROLE = "js-03", OURS
WAYS = [Way("0.3", "JSONRPC"), OLD_REST]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with js_server("agent03.mjs") as server:
        yield server.url


@pytest.mark.parametrize("way", WAYS, ids=str)
class TestOurClient(OurClient):
    name = "official-js-0.3"

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

    @covers(ERRORS, STREAM, "SubscribeToTask")
    @departs("answers every refused stream with an internal error (8)", ERRORS, way=OLD_REST)
    def test_the_error_of_a_stream_is_told(self, client: Client, way: Way) -> None:
        if way != OLD_REST:
            super().test_the_error_of_a_stream_is_told(client)
            return
        with pytest.raises(InternalError), client.stream("hi", task_id="no-such-task") as stream:
            list(stream)
