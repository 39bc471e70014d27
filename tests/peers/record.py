"""Which operations were seen to work with which peer, in which role, version and binding: what `tests.peers.page` is made of.

A module of tests names its `PEER` and its `ROLE`, its tests say with `covers` which operations they are about, and a `Way`
among a test's parameters says how they were called. Every test leaves one line for each in the folder that the variable
`INTEROP_RECORDS` names. A suite takes the hook into its ``conftest.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest

Binding = Literal["JSONRPC", "HTTP+JSON"]

CARD = "agent card"
STREAM = "SendStreamingMessage"
ERRORS = "errors"
#: The rows of the page.
ROWS = (
    CARD,
    "SendMessage",
    STREAM,
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
    ERRORS,
)
PUSH = ROWS[7:11]

OURS, THEIRS = "our client", "their client"


@dataclass(frozen=True)
class Way:
    """How two peers speak to each other."""

    version: str
    binding: Binding

    def __str__(self) -> str:
        return f"{self.version} {self.binding}"


#: What is rarest, and most often different.
OLD_REST = Way("0.3", "HTTP+JSON")


@dataclass(frozen=True)
class Seen:
    """One operation in one test."""

    peer: str
    role: str
    way: str
    row: str
    passed: bool
    #: The peer's release.
    release: str
    #: What the peer does instead of what the specification says; the test shows that.
    departure: str = ""


def covers(*rows: str) -> pytest.MarkDecorator:
    """The test shows that these operations work."""
    assert set(rows) <= set(ROWS), rows
    return pytest.mark.covers(rows)


def departs(why: str, *rows: str, way: Way | None = None) -> pytest.MarkDecorator:
    """The test shows what the peer does instead of what the specification says: in every way, or in one where it `covers` others."""
    assert set(rows) <= set(ROWS), rows
    return pytest.mark.departs(why, rows, way)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    folder = os.environ.get("INTEROP_RECORDS")
    if folder and hasattr(item.module, "PEER") and (report.when == "call" or report.failed):  # type: ignore[attr-defined]
        Path(folder).mkdir(parents=True, exist_ok=True)
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as file:
            file.writelines(json.dumps(asdict(seen)) + "\n" for seen in _seen(item, passed=report.passed))
    return report


def _seen(item: Any, *, passed: bool) -> Iterator[Seen]:
    """What a test has shown, under its own ways, or those of its module."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    ways = [value for value in parameters if isinstance(value, Way)] or [item.module.WAYS[0]]
    peer, role = item.module.PEER, item.module.ROLE
    release = _release(peer)
    covered = {row for mark in item.iter_markers("covers") for row in mark.args[0]}
    for way in ways:
        departures = [mark.args for mark in item.iter_markers("departs") if mark.args[2] in (None, way)]
        for why, rows, _ in departures:
            for row in rows:
                yield Seen(peer, role, str(way), row, passed, release, why)
        for row in covered.difference(*(rows for _, rows, only in departures if only)):
            yield Seen(peer, role, str(way), row, passed, release)


@cache
def _release(peer: str) -> str:
    package = {"python": "a2a-sdk", "python-03": "a2a-sdk"}.get(peer, peer)
    if peer.startswith("js"):
        wanted = json.loads((Path(__file__).parents[1] / "interopjs" / "package.json").read_text())["dependencies"]
        alias: str = wanted["a2a-03" if peer == "js-03" else "a2a-newest"]
        return alias.removeprefix("npm:").replace("@", " ").strip().replace("a2a-js", "@a2a-js", 1)
    return f"{package} {version(package)}"
