"""Agents that send without end: what a client keeps of them is bounded."""

from __future__ import annotations

import itertools

import pytest

from a2a_sync import Client
from a2a_sync.client import client as client_module
from a2a_sync.client import stream as stream_module
from a2a_sync.errors import MalformedResponseError
from tests.client.peer import Asked, Line, chunk, peer, status, task

MIB = 1024 * 1024


def test_an_artifact_without_end_is_not_kept_without_end() -> None:
    sent = []

    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        for number in range(1000):
            line.event(chunk("x" * MIB))
            sent.append(number)

    with (
        peer({"SendStreamingMessage": endless}) as server,
        Client(server.card(), retry=None, timeout=60) as client,
        pytest.raises(MalformedResponseError, match="larger"),
    ):
        client.send("hi")

    assert 60 < len(sent) < 120


def test_artifacts_without_end_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_TASK_BYTES", 100_000)

    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        for number in itertools.count():
            artifact = {"artifactId": f"a-{number}", "parts": [{"text": "x"}], "metadata": {f"m{number}": 1}}
            line.event({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact}})

    with (
        peer({"SendStreamingMessage": endless}) as server,
        Client(server.card(), retry=None, timeout=60) as client,
        pytest.raises(MalformedResponseError, match="larger"),
    ):
        list(client.stream("hi"))


def test_what_replaces_an_artifact_does_not_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_TASK_BYTES", 100_000)

    def long(asked: Asked, line: Line) -> None:
        events = [chunk("x" * 10_000, append=False) for _ in range(50)]
        line.stream({"task": task()}, *events, status("COMPLETED"))

    with peer({"SendStreamingMessage": long}) as server, Client(server.card(), retry=None, timeout=60) as client:
        assert len(client.send("hi").text) == 10_000


def test_pages_without_end_are_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_PAGES", 50)
    numbers = itertools.count()

    def page(asked: Asked, line: Line) -> None:
        line.result({"tasks": [], "nextPageToken": str(next(numbers)), "pageSize": 50, "totalSize": 1})

    with peer({"ListTasks": page}) as server, Client(server.card(), retry=None, timeout=60) as client:
        with pytest.raises(MalformedResponseError, match="more than 50 pages"):
            list(client.iter_tasks())
        assert len(server.asked) == 50


def test_a_page_token_without_end_is_refused() -> None:
    with (
        peer({"ListTasks": lambda asked, line: line.result({"tasks": [], "nextPageToken": "x" * MIB})}) as server,
        Client(server.card(), retry=None, timeout=60) as client,
        pytest.raises(MalformedResponseError, match="page token is too long"),
    ):
        list(client.iter_tasks())
