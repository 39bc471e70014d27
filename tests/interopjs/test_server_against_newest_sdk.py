"""The newest JavaScript SDK's client against `A2AApp` under gunicorn, in both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interopjs.server_tests import ServerTests
from tests.peers.record import HTTP_JSON_03, HTTP_JSON_10, JSONRPC_03, JSONRPC_10, THEIRS
from tests.peers.servers import our_agent

PEER, ROLE = "js", THEIRS
TRANSPORTS = [JSONRPC_10, HTTP_JSON_10, JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with our_agent() as url:
        yield url


class TestServer(ServerTests):
    package = "a2a-newest"
