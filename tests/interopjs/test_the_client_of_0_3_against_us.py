"""The client of the last JavaScript SDK of protocol 0.3 against our server under gunicorn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interopjs.shapes import OldShape
from tests.interopjs.their_client import TheirClient
from tests.live import gunicorn
from tests.peers.record import THEIRS, Way

PEER, ROLE = "js-03", THEIRS
WAYS = [Way("0.3", "JSONRPC"), Way("0.3", "HTTP+JSON")]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("way", WAYS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with gunicorn("tests.peers.our_agent:app", threads=16) as server:
        yield server.url


class TestTheirClient(TheirClient):
    package, shape = "a2a-03", OldShape()
