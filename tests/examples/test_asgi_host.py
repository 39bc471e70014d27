"""The FastAPI service: its own routes, and the agent mounted beside them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import requests

from a2a_sync import Client, TaskArtifactUpdateEvent
from tests.live import LiveServer, uvicorn
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with uvicorn("examples.asgi_host.app:service", "--timeout-graceful-shutdown", "10") as server:
        yield server


TEXT = "the cat and the hat"


def test_the_agent_and_the_service_count_alike(server: LiveServer) -> None:
    counted = requests.post(server.url + "/words", json=TEXT, timeout=60).json()
    with Client(server.url + "/agents/words") as client:
        assert client.send(TEXT).text == "".join(f"{word}: {number}\n" for word, number in counted.items())


def test_each_word_is_a_chunk(server: LiveServer) -> None:
    with Client(server.url + "/agents/words") as client, client.stream(TEXT) as stream:
        chunks = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert chunks[0] == "the: 2\n"


def test_a_stopping_server_closes_the_agent_in_its_lifespan() -> None:
    with uvicorn("examples.asgi_host.app:service", "--timeout-graceful-shutdown", "10") as server:
        with Client(server.url + "/agents/words") as client:
            client.send(TEXT)
        watch = Stopwatch()
        assert server.terminate() in (0, -signal.SIGTERM)
        assert watch.within(8)
        assert "Traceback" not in server.log
