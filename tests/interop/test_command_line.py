"""The command line against an agent on the official SDK, which serves both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.command_tests import CommandTests, Run
from tests.peers.command_tests import run as run
from tests.peers.servers import python_agent

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop.sdk_agent") as url:
        yield url


class TestCommands(CommandTests):
    def test_the_checks_find_what_the_sdk_does_differently(self, run: Run, url: str) -> None:
        assert self.failed_checks(run, url) == {
            # Its parser gives up, and the answer is an internal error.
            ("JSONRPC 1.0", "limit.nesting"),
            ("JSONRPC 0.3", "limit.nesting"),
            ("JSONRPC 0.3", "error.params"),
        }
