"""The client against a server on the last JavaScript SDK of protocol 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from a2a_sync import Client
from a2a_sync.errors import InternalError
from tests.interopjs.node import js_server
from tests.peers.client_tests import ClientTests
from tests.peers.record import ERRORS, HTTP_JSON_03, JSONRPC_03, OURS, STREAM, Transport, covers, departs

PEER, ROLE = "js-03", OURS
TRANSPORTS = [JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with js_server("agent_0_3.mjs") as server:
        yield server.url


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
class TestClient(ClientTests):
    name = "official-js-0.3"
    refused_send: ClassVar[dict[str, Any]] = {"return_immediately": True}

    @covers(ERRORS, STREAM, "SubscribeToTask")
    @departs("answers every refused stream with an internal error (8)", ERRORS, transport=HTTP_JSON_03)
    def test_a_stream_reports_its_error(self, client: Client, transport: Transport) -> None:
        if transport != HTTP_JSON_03:
            super().test_a_stream_reports_its_error(client)
            return
        with pytest.raises(InternalError), client.stream("hi", task_id="no-such-task") as stream:
            list(stream)
