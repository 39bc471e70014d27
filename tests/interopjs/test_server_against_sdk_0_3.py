"""The client of the last JavaScript SDK of protocol 0.3 against `A2AApp` under gunicorn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interopjs.formats import Format03
from tests.interopjs.server_tests import ServerTests
from tests.peers.record import HTTP_JSON_03, JSONRPC_03, THEIRS
from tests.peers.servers import our_agent

PEER, ROLE = "js-03", THEIRS
TRANSPORTS = [JSONRPC_03, HTTP_JSON_03]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("transport", TRANSPORTS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with our_agent() as url:
        yield url


class TestServer(ServerTests):
    package, format = "a2a-03", Format03()
