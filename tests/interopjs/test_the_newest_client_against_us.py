"""The newest JavaScript SDK's client against our server under gunicorn, in both versions that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interopjs.their_client import TheirClient
from tests.live import gunicorn
from tests.peers.record import THEIRS, Way

PEER, ROLE = "js", THEIRS
WAYS = [Way("1.0", "JSONRPC"), Way("1.0", "HTTP+JSON"), Way("0.3", "JSONRPC"), Way("0.3", "HTTP+JSON")]

pytestmark = [pytest.mark.live, pytest.mark.timeout(60), pytest.mark.parametrize("way", WAYS, ids=str)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with gunicorn("tests.peers.our_agent:app", threads=16) as server:
        yield server.url


class TestTheirClient(TheirClient):
    package = "a2a-newest"
