"""Messages that hold more than a server wants to keep: refused by the name of the member, with nothing stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Limits
from tests.wsgi import Peer, message, message_v03, rpc


@pytest.fixture
def peer() -> Iterator[Peer]:
    agent = Agent("echo")
    agent.message(lambda message, context: "yes")
    with A2AApp(agent, limits=Limits(max_message_parts=3, max_metadata_bytes=100)) as app:
        yield Peer(app)


def with_message(**members: Any) -> dict[str, Any]:
    said = message()
    said["message"].update(members)
    return said


PART = {"text": "x"}
TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "parts": (with_message(parts=[PART] * 4), "message.parts"),
    "message id": (with_message(messageId="x" * 257), "message.messageId"),
    "context id": (with_message(contextId="x" * 257), "message.contextId"),
    "task id": (with_message(taskId="x" * 257), "message.taskId"),
    "references": (with_message(referenceTaskIds=["x"] * 101), "message.referenceTaskIds"),
    "a long reference": (with_message(referenceTaskIds=["x" * 3000]), "message.referenceTaskIds"),
    "extensions": (with_message(extensions=["urn:x"] * 101), "message.extensions"),
    "metadata of the message": (with_message(metadata={"x": "y" * 100}), "message.metadata"),
    "metadata": ({**message(), "metadata": {"x": ["y"] * 50}}, "metadata"),
    "tenant": ({**message(), "tenant": "x" * 257}, "tenant"),
    "NUL in the message id": (with_message(messageId="a\0b"), "message.messageId"),
    "NUL in the context id": (with_message(contextId="a\0b"), "message.contextId"),
    "NUL in the task id": (with_message(taskId="a\0b"), "message.taskId"),
    "NUL in the id of a referenced task": (with_message(referenceTaskIds=["t", "a\0b"]), "message.referenceTaskIds"),
    "NUL in the tenant": ({**message(), "tenant": "a\0b"}, "tenant"),
    "output modes": (
        {**message(), "configuration": {"acceptedOutputModes": ["text/plain"] * 101}},
        "configuration.acceptedOutputModes",
    ),
}


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(("params", "member"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_much_is_refused_by_its_name(peer: Peer, method: str, params: dict[str, Any], member: str) -> None:
    answer = peer.call(method, params)

    assert answer.error["code"] == -32602
    (violation,) = answer.error["data"][1]["fieldViolations"]
    assert violation["field"] == member
    assert "must h" in violation["description"]
    assert peer.call("ListTasks", {}).result["totalSize"] == 0


def test_so_it_is_in_0_3(peer: Peer) -> None:
    said = message_v03(metadata={"x": "y" * 100})
    answer = peer.request("POST", "/", rpc("message/send", said), {"Content-Type": "application/json"})

    assert answer.error["code"] == -32602
    assert answer.error["message"].startswith("message.metadata: must have at most 100 bytes")


def test_as_much_as_is_allowed_passes(peer: Peer) -> None:
    said = {
        **with_message(
            parts=[PART] * 3,
            messageId="x" * 256,
            contextId="é" * 256,
            referenceTaskIds=["x"] * 100,
            metadata={"x": "y" * 90},
        ),
        "tenant": "t" * 256,
    }

    assert peer.call("SendMessage", said).result["task"]["contextId"] == "é" * 256
