"""Five thousand damaged requests of each version: each is accepted or gets an error, and only accepted ones write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.hostile.fuzzed import FuzzTarget, fuzz_target
from tests.hostile.mutations import CALLS, CALLS_V03, GRAMMARS, HttpRequest, damaged_request
from tests.wsgi import Answer, Frame

#: The errors that bad input may get: codes of the protocol and of JSON-RPC, except for internal errors.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32009}
WRITING = {"SendMessage", "SendStreamingMessage", "CancelTask", "message/send", "message/stream", "tasks/cancel"}
#: Read operations that must have been accepted at least once.
READING = {"1.0": {"GetTask", "ListTasks", "SubscribeToTask"}, "0.3": {"tasks/get", "tasks/resubscribe"}}


@pytest.fixture(scope="module")
def world() -> Iterator[FuzzTarget]:
    with fuzz_target(("JSONRPC",)) as world:
        yield world


def judge(request: HttpRequest, answer: Answer) -> str:
    """The accepted method or ``""``; asserts that the response is well-formed."""
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
    answers = [frame.json for frame in frames if frame.field("data") is not None]
    if len(frames) == 1 and "error" in answers[0]:
        # A caller that accepts streams only gets the error as one.
        judge_error(request, Answer(answer.status, answer.headers, json.dumps(answers[0]).encode()))
        return ""
    assert all(set(event) == {"jsonrpc", "id", "result"} for event in answers)
    assert all("kind" in event["result"] or len(event["result"]) == 1 for event in answers)
    for event in answers:
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
    """The accepted method of valid, unambiguous JSON, after a check of the response's id."""
    call = json.loads(request.body.decode("utf-8-sig"), object_pairs_hook=without_doubles, parse_constant=pytest.fail)
    assert call["jsonrpc"] == "2.0"
    assert call.get("id") == id
    assert call["method"] in CALLS or call["method"] in CALLS_V03
    return str(call["method"])


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", GRAMMARS)
def test_damaged_requests(version: str, world: FuzzTarget) -> None:
    world.damage(partial(damaged_request, grammar=GRAMMARS[version]), judge, WRITING)

    writing = WRITING & GRAMMARS[version].calls.keys()
    assert all(world.counts[method] for method in [*writing, *READING[version], "card"])
