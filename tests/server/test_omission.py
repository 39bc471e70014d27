"""Large parts left out of the history that is sent back, and of nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, InputRequired, Limits
from a2a_sync.server.omission import OMITTED
from a2a_sync.types import DataPart, FilePart, Message, Role, TextPart
from tests.wsgi import Peer, message

FILE = base64.b64encode(b"x" * 2000).decode()
PARTS = [
    {"text": "small"},
    {"raw": FILE, "filename": "report.pdf", "mediaType": "application/pdf", "metadata": {"k": "v"}},
    {"text": "é" * 600},
    {"data": {"rows": ["y" * 100] * 20}},
    {"url": "https://files.example.com/" + "z" * 2000},
]
seen: list[Any] = []


@pytest.fixture
def app() -> Iterator[A2AApp]:
    agent = Agent("keeper", input_modes=["*/*"])

    @agent.message
    def keep(message: Any, context: Any) -> Any:
        seen[:] = context.history
        return InputRequired("more?")

    with A2AApp(agent, limits=Limits(max_history_part_bytes=1000)) as app:
        yield app


def shown(history: Any) -> list[Any]:
    (first, *_) = history
    assert first["parts"][0] == {"text": "small"}
    assert first["parts"][4]["url"].startswith("https://files.example.com/")
    return [part["text"] for part in first["parts"][1:4]]


LEFT_OUT = [
    "[left out: report.pdf, application/pdf, 2000 bytes]",
    "[left out: text, 1200 bytes]",
    "[left out: data, 2070 bytes]",
]


def test_a_large_part_is_left_out_wherever_a_task_is_sent_back(app: A2AApp) -> None:
    peer = Peer(app)
    sent = peer.call("SendMessage", message(parts=PARTS)).result["task"]
    found = peer.call("GetTask", {"id": sent["id"]}).result
    (listed,) = peer.call("ListTasks", {"historyLength": 10}).result["tasks"]
    with peer.stream("SubscribeToTask", {"id": sent["id"]}) as stream:
        followed = next(stream.events())["task"]
    cancelled = peer.call("CancelTask", {"id": sent["id"]}).result

    for task in (sent, found, listed, followed, cancelled):
        assert shown(task["history"]) == LEFT_OUT
    assert sent["history"][0]["parts"][1]["metadata"] == {"k": "v", OMITTED: 2000}


def test_a_stream_that_begins_with_a_task_leaves_it_out_too(app: A2AApp) -> None:
    with Peer(app).stream("SendStreamingMessage", message(parts=PARTS)) as stream:
        events = list(stream.events())

    assert shown(events[0]["task"]["history"]) == LEFT_OUT
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_the_agent_sees_everything(app: A2AApp) -> None:
    with Client(app) as client:
        file, data = FilePart(raw=b"x" * 2000), DataPart({"rows": ["y" * 2000]})
        client.send(Message(role=Role.USER, parts=(TextPart("z" * 2000), file, data)))

    assert [type(part) for part in seen[0].parts] == [TextPart, FilePart, DataPart]


def test_without_the_limit_nothing_is_left_out() -> None:
    agent = Agent("keeper", input_modes=["*/*"])
    agent.message(lambda message, context: None)
    with A2AApp(agent) as app:
        task = Peer(app).call("SendMessage", message(parts=PARTS)).result["task"]

    assert task["history"][0]["parts"][1]["raw"] == FILE
