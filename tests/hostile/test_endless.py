"""Agents that send without end: the memory of a client is limited."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
import requests

from a2a_sync import Client, Retry
from a2a_sync.card import AgentExtension
from a2a_sync.client import waiting
from a2a_sync.client.cards import MAX_CARD_BYTES
from a2a_sync.errors import MalformedResponseError, TaskNotFoundError, TransportError
from a2a_sync.integrations import remote
from a2a_sync.integrations.remote import AgentModel, AgentTool, RemoteCall, RemoteEvent
from a2a_sync.multiagent import AgentRegistry
from a2a_sync.operations import IDEMPOTENT_SEND
from tests.client.peer import Asked, Line, chunk, peer, results, status, task
from tests.hostile.test_large_answers import peak
from tests.live import ROOT

MIB = 1024 * 1024


def test_the_size_of_an_endless_artifact_is_limited() -> None:
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


@pytest.mark.parametrize("kind", ["heartbeats", "breaks"])
def test_an_abandoned_call_of_an_agent_that_names_no_task_ends(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(remote, "_NAME_SECONDS", 0.1)
    called, ended = threading.Semaphore(0), threading.Event()

    def silent(asked: Asked, line: Line) -> None:
        called.release()
        if kind == "breaks":
            line.hang_up()
            return
        line.start_stream()
        while not line.pause(0.01):
            line.piece(b": still here\n\n")

    class Watched(RemoteCall):
        def _read(self) -> Iterator[RemoteEvent]:
            try:
                yield from super()._read()
            finally:
                ended.set()

    async def abandon(client: Client) -> None:
        call = asyncio.create_task(Watched(client, "hi").run())
        # The second attempt of a call that is repeated is under way, or over.
        for _ in range(1 if kind == "heartbeats" else 2):
            assert await asyncio.to_thread(called.acquire, timeout=30)
        call.cancel()
        await asyncio.wait([call])
        assert await asyncio.to_thread(ended.wait, 30)

    forever = Retry(max_elapsed=1e6, initial_backoff=0.01, max_backoff=0.01)
    with peer({"SendStreamingMessage": silent}) as server:
        card = server.card()
        if kind == "breaks":
            extensions = (AgentExtension(uri=IDEMPOTENT_SEND),)
            card = replace(card, capabilities=replace(card.capabilities, extensions=extensions))
        with Client(card, retry=forever) as client:
            asyncio.run(abandon(client))


def test_the_size_of_endless_pages_of_webhooks_is_limited() -> None:
    pages = itertools.count(1)

    def endless(asked: Asked, line: Line) -> None:
        config = {"id": "c", "taskId": "t-1", "url": f"https://example.com/{'x' * 1000}"}
        line.result({"configs": [config] * 10, "nextPageToken": str(next(pages))})

    with (
        peer({"ListTaskPushNotificationConfigs": endless}) as server,
        Client(server.card(), retry=None, timeout=60, max_response_bytes=100_000) as client,
        pytest.raises(MalformedResponseError, match="larger than max_response_bytes"),
    ):
        client.list_push_configs("t-1")
    assert next(pages) < 20


def test_the_size_of_endless_artifacts_is_limited() -> None:
    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        for number in itertools.count():
            artifact = {"artifactId": f"a-{number}", "parts": [{"text": "x"}], "metadata": {f"m{number}": 1}}
            line.event({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact}})

    with (
        peer({"SendStreamingMessage": endless}) as server,
        Client(server.card(), retry=None, timeout=60, max_task_bytes=100_000) as client,
        pytest.raises(MalformedResponseError, match="larger"),
    ):
        list(client.stream("hi"))


def test_the_size_of_endless_messages_to_a_known_task_is_limited() -> None:
    # They were not measured before a task was: 141 MB were received and 736 MB kept.
    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        for number in range(10_000):
            parts = [{"text": "x" * 1000}]
            line.event({"message": {"messageId": f"m-{number}", "role": "ROLE_AGENT", "taskId": "t-1", "parts": parts}})

    with (
        peer({"SubscribeToTask": endless}) as server,
        Client(server.card(), retry=None, timeout=60, max_task_bytes=100_000) as client,
        pytest.raises(MalformedResponseError, match="larger"),
    ):
        list(client.subscribe("t-1"))


def test_snapshots_that_a_cut_stream_reads_count() -> None:
    def cut(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event(status("WORKING"))
        line.hang_up()

    big = task(artifacts=[{"artifactId": "a", "parts": [{"text": "x" * 200_000}]}])
    quick = Retry(initial_backoff=0.01, max_backoff=0.01)
    with (
        peer({"SendStreamingMessage": cut, "SubscribeToTask": cut, "GetTask": results(big)}) as server,
        Client(server.card(), retry=quick, timeout=60, max_task_bytes=100_000) as client,
        pytest.raises(MalformedResponseError, match="max_task_bytes"),
    ):
        list(client.stream("hi"))
    assert len([one for one in server.asked if b"GetTask" in one.body]) == 1


def test_a_replaced_artifact_counts_once() -> None:
    def long(asked: Asked, line: Line) -> None:
        events = [chunk("x" * 10_000, append=False) for _ in range(50)]
        line.stream({"task": task()}, *events, status("COMPLETED"))

    with (
        peer({"SendStreamingMessage": long}) as server,
        Client(server.card(), retry=None, timeout=60, max_task_bytes=100_000) as client,
    ):
        assert len(client.send("hi").text) == 10_000


def test_the_number_of_interim_responses_is_limited() -> None:
    def endless(asked: Asked, line: Line) -> None:
        for _ in range(20_000):
            line.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with (
        peer({"GetTask": endless}) as server,
        Client(server.card(), retry=None, timeout=60) as client,
        pytest.raises(TransportError, match="interim"),
    ):
        client.get_task("t-1")


def test_the_number_of_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_PAGES", 50)
    numbers = itertools.count()

    def page(asked: Asked, line: Line) -> None:
        line.result({"tasks": [], "nextPageToken": str(next(numbers)), "pageSize": 50, "totalSize": 1})

    with peer({"ListTasks": page}) as server, Client(server.card(), retry=None, timeout=60) as client:
        with pytest.raises(MalformedResponseError, match="more than 50 pages"):
            list(client.iter_tasks())
        assert len(server.asked) == 50


def test_a_long_page_token_is_refused() -> None:
    with (
        peer({"ListTasks": lambda asked, line: line.result({"tasks": [], "nextPageToken": "x" * MIB})}) as server,
        Client(server.card(), retry=None, timeout=60) as client,
        pytest.raises(MalformedResponseError, match="page token is too long"),
    ):
        list(client.iter_tasks())


def test_the_size_of_a_response_is_limited() -> None:
    history = [{"messageId": f"m-{n}", "role": "ROLE_AGENT", "parts": [{"text": "x" * 1000}]} for n in range(200)]
    large = {**task(), "history": history}
    with peer({"GetTask": lambda asked, line: line.result(large)}) as server:
        with (
            Client(server.card(), retry=None, timeout=60, max_response_bytes=100_000) as client,
            pytest.raises(MalformedResponseError, match="max_response_bytes"),
        ):
            client.get_task("t-1")
        with Client(server.card(), retry=None, timeout=60, max_response_bytes=1_000_000) as client:
            assert len(client.get_task("t-1").history) == 200


def test_the_size_of_a_card_is_limited() -> None:
    # Parsing one with six million keys took a gigabyte, and delayed all threads by 17 seconds.
    large = b'{"name": "large", "supportedInterfaces": [], "more": "%b"}' % (b"x" * MAX_CARD_BYTES)
    with (
        peer(lambda asked, line: line.answer(large, Content_Type="application/json")) as server,
        AgentRegistry() as registry,
    ):
        registry.register("large", server.url)
        assert registry.find_agents_with_skill("any") == []
        with pytest.raises(MalformedResponseError, match=f"larger than {MAX_CARD_BYTES} bytes"):
            registry.client("large").card()


def test_a_card_is_limited_by_the_limit_of_its_client_too() -> None:
    large = b'{"name": "large", "supportedInterfaces": [], "more": "%b"}' % (b"x" * 10_000)
    with (
        peer(lambda asked, line: line.answer(large, Content_Type="application/json")) as server,
        Client(server.url, retry=None, timeout=60, max_response_bytes=5_000) as client,
        pytest.raises(MalformedResponseError, match="larger than 5000 bytes \\(max_response_bytes"),
    ):
        client.card()


def test_the_body_of_a_redirect_is_limited_with_a_session_too() -> None:
    # requests reads it before it returns the response: one of 500 KB that was compressed took a gigabyte.
    sent = []

    def endless(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\n\r\n")
        for number in range(1000):
            line.send(b"x" * 100_000)
            sent.append(number)
        line.hang_up()

    def note(response: requests.Response, **_: object) -> None:
        targets.append(response.headers["Location"])

    targets: list[str] = []
    with (
        peer({"GetTask": endless}) as server,
        requests.Session() as session,
        Client(server.card(), session=session, retry=None, timeout=60, max_response_bytes=1_000_000) as client,
    ):
        session.hooks["response"] = note  # type: ignore[assignment]
        with pytest.raises(MalformedResponseError, match="max_response_bytes"):
            client.get_task("t-1")

    assert len(sent) < 500
    assert targets == ["/elsewhere"]


@pytest.mark.parametrize("name", ["max_response_bytes", "max_task_bytes"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Client("http://agent.test", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["stream", "snapshots", "model", "call", "tool", "get_task"])
def test_memory_of_a_client_of_an_endless_agent_is_limited(call: str) -> None:
    """In a separate process, whose memory is measured."""

    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        for number in range(1000 if call == "stream" else 200):
            # Each replaces those before it, so that the task stays small.
            if call == "snapshots":
                line.event({"task": {**task(), "artifacts": [text(number)]}})
            elif call in ("model", "call", "tool"):
                line.event(chunk(chr(65 + number % 26) * MIB, append=False))
            else:
                line.event({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": text(number)}})
        line.event(status("COMPLETED"))
        line.end_stream()

    def large(asked: Asked, line: Line) -> None:
        count = 200 if asked.params["id"] == "t-1" else 0
        line.result({**task(), "artifacts": [text(number) for number in range(count)]})

    def text(number: int) -> dict[str, object]:
        return {"artifactId": f"a-{number}", "parts": [{"text": "x" * MIB}]}

    with peer({"SendStreamingMessage": endless, "GetTask": large}) as server:
        command = [sys.executable, "-m", "tests.hostile.test_endless", server.url, call]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": str(MIB)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    # Pieces of a limited body and one copy of them; of a task, the events, what they add up to, and its JSON to measure it.
    assert int(done.stdout) < 8 * 8 * MIB


def main(url: str, call: str) -> None:
    limits = {"max_response_bytes": 8 * MIB, "max_task_bytes": 8 * MIB}
    with Client.for_endpoint(url + "/rpc", streaming=True, retry=None, timeout=50, **limits) as client:
        with suppress(MalformedResponseError, TaskNotFoundError):
            client.get_task("small")
        calls: dict[str, Callable[[], object]] = {
            "get_task": lambda: client.get_task("t-1"),
            "model": lambda: asyncio.run(read_all(AgentModel(client).send("hi"))),
            "call": lambda: asyncio.run(read_all(RemoteCall(client, "hi").events())),
            "tool": lambda: list(AgentTool(client, name="tool", description="a tool").send_blocking("hi")),
        }
        before = peak()
        with nullcontext() if call == "snapshots" else pytest.raises(MalformedResponseError) as refused:
            calls.get(call, lambda: deque(client.stream("hi"), maxlen=0))()
        assert refused is None or refused.value.agent == url + "/rpc"
        assert refused is None or refused.value.task_id == "t-1"
        print(peak() - before)


async def read_all(items: AsyncIterator[object]) -> None:
    async for _ in items:
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
