"""The console for an agent on the official SDK of protocol 0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.console_tests import ConsoleTests, needs_console
from tests.peers.servers import python_agent

pytestmark = [pytest.mark.live, pytest.mark.timeout(120), needs_console]


@pytest.fixture(scope="module")
def peer() -> Iterator[tuple[str, str]]:
    with python_agent("tests.interop03.sdk_agent") as url:
        yield "a2a-sdk 0.3", url


class TestConsole(ConsoleTests):
    """Those tests."""
