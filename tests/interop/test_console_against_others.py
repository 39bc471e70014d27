"""The console for agents on the official SDK and on FastA2A."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.console_tests import ConsoleTests, needs_console
from tests.peers.servers import python_agent

pytestmark = [pytest.mark.live, pytest.mark.timeout(120), needs_console]


@pytest.fixture(scope="module", params=["a2a-sdk", "fasta2a"])
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The name and the URL of an agent on another implementation."""
    package, module = {"a2a-sdk": ("a2a", "sdk_agent"), "fasta2a": ("fasta2a", "fasta_agent")}[request.param]
    pytest.importorskip(package, reason=f"{request.param} is not installed (make interop installs it)")
    with python_agent(f"tests.interop.{module}") as url:
        yield request.param, url


class TestConsole(ConsoleTests):
    """Those tests."""
