"""Records which operations work with which peer, in which role, version and binding; `tests.peers.page` reads the records.

A test module defines `PEER`, `ROLE` and `TRANSPORTS`. Its tests name the operations that they verify with `covers` and
`departs`, and the transport is a parameter of type `Transport`. Each test appends one JSON line per operation to a file in
the folder named by the environment variable `INTEROP_RECORDS`. Suites import the hook into their ``conftest.py``.
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

Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]

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
class Transport:
    """A protocol version and a binding."""

    version: str
    binding: Binding

    def __str__(self) -> str:
        return f"{self.version} {self.binding}"


JSONRPC_10, HTTP_JSON_10 = Transport("1.0", "JSONRPC"), Transport("1.0", "HTTP+JSON")
JSONRPC_03, HTTP_JSON_03 = Transport("0.3", "JSONRPC"), Transport("0.3", "HTTP+JSON")
#: Tested without a record: the page has no columns of gRPC.
GRPC_10, GRPC_03 = Transport("1.0", "GRPC"), Transport("0.3", "GRPC")


@dataclass(frozen=True)
class Observation:
    """The result of one test for one operation."""

    peer: str
    role: str
    transport: str
    row: str
    passed: bool
    #: The peer's package and release.
    release: str
    #: How the peer departs from the specification, as verified by the test.
    departure: str = ""


def covers(*rows: str) -> pytest.MarkDecorator:
    """Mark a test that verifies these operations."""
    assert set(rows) <= set(ROWS), rows
    return pytest.mark.covers(rows)


def departs(why: str, *rows: str, transport: Transport | None = None) -> pytest.MarkDecorator:
    """Mark a test that verifies a departure of the peer from the specification, over every transport or over one.

    Parameters:
        why: the departure, with the section of the specification; a note of the page.
        rows: the operations concerned.
        transport: the only transport concerned; over others the operations of `covers` count.
    """
    assert set(rows) <= set(ROWS), rows
    return pytest.mark.departs(why, rows, transport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    folder = os.environ.get("INTEROP_RECORDS")
    repeated = report.failed and getattr(item, "execution_count", 1) <= (item.config.getoption("reruns", 0) or 0)
    counts = hasattr(item.module, "PEER") and not repeated  # type: ignore[attr-defined]
    if folder and counts and (report.when == "call" or report.failed):
        Path(folder).mkdir(parents=True, exist_ok=True)
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in _observations(item, passed=report.passed))
    return report


def _observations(item: Any, *, passed: bool) -> Iterator[Observation]:
    """The observations of a test, for its own transport or the first one of its module."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    transports = [value for value in parameters if isinstance(value, Transport)] or [item.module.TRANSPORTS[0]]
    peer, role = item.module.PEER, item.module.ROLE
    release = _release(peer)
    covered = {row for mark in item.iter_markers("covers") for row in mark.args[0]}
    for transport in transports:
        departures = [mark.args for mark in item.iter_markers("departs") if mark.args[2] in (None, transport)]
        for why, rows, _ in departures:
            for row in rows:
                yield Observation(peer, role, str(transport), row, passed, release, why)
        for row in covered.difference(*(rows for _, rows, only in departures if only)):
            yield Observation(peer, role, str(transport), row, passed, release)


@cache
def _release(peer: str) -> str:
    package = {"python": "a2a-sdk", "python-03": "a2a-sdk"}.get(peer, peer)
    if peer.startswith("js"):
        wanted = json.loads((Path(__file__).parents[1] / "interopjs" / "package.json").read_text())["dependencies"]
        alias: str = wanted["a2a-03" if peer == "js-03" else "a2a-newest"]
        return alias.removeprefix("npm:").replace("@", " ").strip().replace("a2a-js", "@a2a-js", 1)
    return f"{package} {version(package)}"
