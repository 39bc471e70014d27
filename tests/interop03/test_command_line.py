"""The command line against an agent on the official SDK of protocol 0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.command_tests import CommandTests, Run
from tests.peers.command_tests import run as run
from tests.peers.servers import python_agent

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with python_agent("tests.interop03.sdk_agent") as url:
        yield url


class TestCommands(CommandTests):
    def test_the_checks_find_what_the_sdk_does_differently(self, run: Run, url: str) -> None:
        assert self.failed_checks(run, url) == {
            # Its parser gives up, and the answer is an internal error.
            ("JSONRPC 0.3", "limit.nesting"),
            ("HTTP+JSON 0.3", "limit.nesting"),
            # Over HTTP+JSON it answers a body that it cannot read with status 500.
            ("HTTP+JSON 0.3", "error.not-json"),
            ("HTTP+JSON 0.3", "error.params"),
            ("HTTP+JSON 0.3", "limit.body"),
        }
