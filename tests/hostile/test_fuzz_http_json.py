"""Five thousand damaged requests of HTTP+JSON in each version: paths, queries, headers and bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from a2a_sync import errors
from a2a_sync.bindings.routes import Paths
from tests.hostile.fuzzed import FuzzTarget, fuzz_target
from tests.hostile.mutations import HttpRequest
from tests.hostile.mutations_http_json import GRAMMARS, damaged_request
from tests.wsgi import CARD, OLD_CARD, Answer, Frame

PATHS = Paths(("1.0", "0.3"))
WRITING = {"SendMessage", "SendStreamingMessage", "CancelTask"}
#: Read operations, each of which must have been accepted at least once.
READING = {version: {"GetTask", "ListTasks", "SubscribeToTask"} for version in ("1.0", "0.3")}
#: The errors that bad input may get: reasons, each with its status. None is an internal error.
REASONS = {
    cls.reason: cls.http_status
    for cls in (
        errors.JSONParseError,
        errors.InvalidRequestError,
        errors.RequestTooLargeError,
        errors.InvalidParamsError,
        errors.TaskNotFoundError,
        errors.TaskNotCancelableError,
        errors.PushNotificationNotSupportedError,
        errors.UnsupportedOperationError,
        errors.ContentTypeNotSupportedError,
        errors.ExtendedAgentCardNotConfiguredError,
        errors.VersionNotSupportedError,
    )
}


@pytest.fixture(scope="module")
def world() -> Iterator[FuzzTarget]:
    with fuzz_target(("JSONRPC", "HTTP+JSON")) as world:
        yield world


def judge(request: HttpRequest, answer: Answer) -> str:
    """The accepted operation or ``""``; asserts that the response is well-formed."""
    path = request.path.partition("?")[0]
    assert answer.status < 500
    if path == "/" and request.method == "POST":
        # A mutation has made it a JSON-RPC request, which is not valid there.
        assert "error" in answer.json
        return ""
    if answer.status in (204, 304) or (request.method == "HEAD" and not answer.body):
        assert answer.body == b""
        return ""
    if answer.status == 200:
        return accepted(path, request, answer)
    judge_error(path, request, answer)
    return ""


def accepted(path: str, request: HttpRequest, answer: Answer) -> str:
    if path in (CARD, OLD_CARD, "/healthz", "/readyz"):
        return "card"
    place = PATHS.find(path)
    assert place is not None, request
    operation = place.operation(request.method)
    if operation.streaming:
        assert answer.headers["Content-Type"] == "text/event-stream"
        judge_stream(answer)
    else:
        types = {"application/json", "application/a2a+json"} if place.version == "1.0" else {"application/json"}
        assert answer.headers["Content-Type"] in types
        assert isinstance(answer.json, dict)
        assert "error" not in answer.json
    if request.method == "POST" and request.body.strip() and request.headers.get("Content-Length") != "0":
        # Accepted JSON must be unambiguous. A body that is announced as empty is not read.
        json.loads(request.body.decode("utf-8-sig"), object_pairs_hook=without_doubles, parse_constant=pytest.fail)
    return operation.name


def without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def judge_stream(answer: Answer) -> None:
    blocks = answer.body.decode().split("\n\n")
    assert blocks.pop() == ""
    for block in blocks:
        frame = Frame(tuple(block.split("\n")))
        if frame.field("data") is not None:
            assert len(frame.json) == 1
            assert frame.json.keys() <= {"task", "message", "statusUpdate", "artifactUpdate"}
            assert frame.field("event") is None


def judge_error(path: str, request: HttpRequest, answer: Answer) -> None:
    error = answer.json["error"]
    assert error["code"] == answer.status
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert " object at 0x" not in error["message"]
    if request.method not in ("GET", "POST", "HEAD") and "details" not in error:
        assert answer.status in (400, 405)  # another resource of the app
        return
    if "details" not in error:
        assert answer.status in (400, 404, 405)
        return
    reason = error["details"][0]["reason"]
    if reason == "METHOD_NOT_FOUND":
        assert answer.status in (404, 405)
        assert (answer.status == 405) == ("Allow" in answer.headers)
    else:
        assert REASONS[reason] == answer.status
    if path.startswith("/v1/"):
        assert (answer.json["message"], answer.headers["Content-Type"]) == (error["message"], "application/json")
    if reason == "INVALID_PARAMS":
        (violations,) = [detail["fieldViolations"] for detail in error["details"] if "fieldViolations" in detail]
        assert all(error["message"].startswith(violation["field"]) for violation in violations)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", GRAMMARS)
def test_damaged_requests_over_http_json(version: str, world: FuzzTarget) -> None:
    world.damage(partial(damaged_request, grammar=GRAMMARS[version]), judge, WRITING)

    assert all(world.counts[name] for name in [*WRITING, *READING[version], "card"]), world.counts
