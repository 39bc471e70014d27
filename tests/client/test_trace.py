"""``Client(trace=…)``: each message on the wire, in order and without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from a2a_sync import A2AApp, Agent, Client, TaskNotFoundError
from a2a_sync.auth import BearerAuth
from a2a_sync.client import Frame
from a2a_sync.testing import client_of


@pytest.fixture
def app() -> Iterator[A2AApp]:
    agent = Agent("echo", description="Repeats")
    agent.message(lambda message, context: iter(["one ", "two"]))
    with A2AApp(agent, auth=BearerAuth({"s3cret": "ada"})) as made:
        yield made


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_requests_responses_and_events_are_traced_in_order(app: A2AApp, binding: str, version: str) -> None:
    frames: list[Frame] = []
    options = {"auth": "s3cret", "protocol_binding": binding, "protocol_version": version}
    with client_of(app, "wsgi", trace=frames.append, headers={"X-Key": "hidden"}, **options) as client:
        task = client.send("hello").task
        client.get_task(task.id)
    first, *events, asked, answered = frames
    assert (first.sent, first.method, first.headers["Content-Type"].endswith("json")) == (True, "POST", True)
    assert "hello" in json.dumps(json.loads(first.body))
    if (version, binding) == ("0.3", "HTTP+JSON"):
        # No stream: the client sends a plain message there.
        assert [event.status for event in events] == [200]
        return
    assert len(events) >= 3
    assert all(not event.sent and event.status in (0, 200) for event in events)
    assert '"two"' in events[-2].body.decode()
    assert (asked.sent, answered.sent, answered.status) == (True, False, 200)
    assert task.id in answered.body.decode()
    assert "s3cret" not in repr(frames)
    assert "hidden" not in repr(frames)


def test_errors_of_the_agent_are_traced_too(app: A2AApp) -> None:
    frames: list[Frame] = []
    with client_of(app, "wsgi", trace=frames.append, auth="s3cret") as client, pytest.raises(TaskNotFoundError):
        client.get_task("missing")
    assert json.loads(frames[-1].body)["error"]["code"] == -32001


def test_headers_of_one_call_are_masked(app: A2AApp) -> None:
    frames: list[Frame] = []
    with client_of(app, "wsgi", trace=frames.append, auth="s3cret") as client:
        client.send("x", headers={"Authorization-Like": "hidden"})
    assert frames[0].headers["authorization-like"] == "***"


def test_a_client_without_trace_is_as_before(app: A2AApp) -> None:
    with client_of(app, "wsgi", auth="s3cret") as client:
        assert isinstance(client, Client)
        assert client.send("x").text == "one two"
