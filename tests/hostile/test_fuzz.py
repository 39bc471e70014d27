"""Five thousand damaged requests of each version: each is accepted or refused with an error of its own, and only accepted ones write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.fuzzed import World, watched
from tests.hostile.mutations import CALLS, CALLS_V03, GRAMMARS, HttpRequest, requests
from tests.wsgi import Answer, Frame

#: What bad input may be told. Codes of the protocol and of JSON-RPC, but for the one that says the server is at fault.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32009}
WRITING = {"SendMessage", "SendStreamingMessage", "CancelTask", "message/send", "message/stream", "tasks/cancel"}
#: Calls that are no writes and must have been accepted now and then.
READING = {"1.0": {"GetTask", "ListTasks", "SubscribeToTask"}, "0.3": {"tasks/get", "tasks/resubscribe"}}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with watched(("JSONRPC",)) as world:
        yield world


def judge(request: HttpRequest, answer: Answer) -> str:
    """The method that was accepted, or ``""``; whatever the answer is, it has the form of one."""
    assert answer.status < 500
    content_type = answer.headers.get("Content-Type")
    if request.method != "POST" or answer.status in (400, 404, 405):
        assert answer.status in (200, 204, 304, 400, 404, 405)
        return "card" if answer.status in (200, 304) else ""
    if content_type == "text/event-stream":
        return judge_stream(request, answer)
    assert content_type == "application/json"
    assert answer.json["jsonrpc"] == "2.0"
    if "error" not in answer.json:
        assert set(answer.json) == {"jsonrpc", "id", "result"}
        return accepted(request, answer.json["id"])
    judge_error(request, answer)
    return ""


def judge_stream(request: HttpRequest, answer: Answer) -> str:
    blocks = answer.body.decode().split("\n\n")
    assert blocks.pop() == ""
    frames = [Frame(tuple(block.split("\n"))) for block in blocks]
    told = [frame.json for frame in frames if frame.field("data") is not None]
    if len(frames) == 1 and "error" in told[0]:
        # Who reads streams only is told so in one.
        judge_error(request, Answer(answer.status, answer.headers, json.dumps(told[0]).encode()))
        return ""
    assert all(set(event) == {"jsonrpc", "id", "result"} for event in told)
    assert all("kind" in event["result"] or len(event["result"]) == 1 for event in told)
    for event in told:
        accepted(request, event["id"])
    return str(json.loads(request.body.decode("utf-8-sig"))["method"])


def judge_error(request: HttpRequest, answer: Answer) -> None:
    error = answer.error
    assert set(answer.json) == {"jsonrpc", "id", "error"}
    assert error["code"] in CODES, error
    assert (answer.status == 413) == (error["data"][0]["reason"] == "REQUEST_TOO_LARGE")
    assert answer.status in (200, 413)
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert " object at 0x" not in error["message"]
    if error["code"] == -32602:
        (violations,) = [detail["fieldViolations"] for detail in error["data"] if "fieldViolations" in detail]
        assert all(error["message"].startswith(violation["field"]) for violation in violations)
    if error["code"] not in (-32700, -32600, -32005):
        assert answer.json["id"] == json.loads(request.body.decode("utf-8-sig")).get("id")


def accepted(request: HttpRequest, id: Any) -> str:
    """What is accepted is JSON that every strict reader reads alike, and is answered under its own id."""
    call = json.loads(request.body.decode("utf-8-sig"), object_pairs_hook=without_doubles, parse_constant=pytest.fail)
    assert call["jsonrpc"] == "2.0"
    assert call.get("id") == id
    assert call["method"] in CALLS or call["method"] in CALLS_V03
    return str(call["method"])


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


# Threads of the app draw random pauses while requests are drawn; Hypothesis takes that for the doing of a strategy.
@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", GRAMMARS)
def test_damaged_requests_never_hurt(version: str, world: World) -> None:
    world.damage(requests(GRAMMARS[version]), judge, WRITING)

    writing = WRITING & GRAMMARS[version].calls.keys()
    assert all(world.counts[method] for method in [*writing, *READING[version], "card"])
