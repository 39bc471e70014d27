"""Section F, second part: the client and streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_sync import Task, TaskState
from a2a_sync import errors as e
from a2a_sync.errors import StreamInterruptedError
from tests.client.peer import Asked, Line, Script
from tests.conformance.clients import BINDINGS, refused
from tests.conformance.stage import chunk, enveloped, operation_of, raw, staged, status, stream, task
from tests.conformance.suite import F, Level
from tests.conformance.system import Lab
from tests.conformance.wire import ERROR_INFO

# -- streams ------------------------------------------------------------------------------------------------------------


def _frames(*results: Any) -> list[str]:
    return [json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, ensure_ascii=False) for result in results]


@F.line("V1-CSTR-01", Level.MUST, "a stream is parsed in every form that the SSE standard allows, at any fragmentation")
def streams_are_read_in_every_form(lab: Lab) -> None:
    first, second, third = _frames({"task": task("WORKING")}, chunk("\u00e9\U0001f355"), status("COMPLETED"))
    head, comma, tail = second.partition(", ")
    for newline in ("\n", "\r\n", "\r"):
        lines = [
            f"data:{first}",
            ": a comment",
            "retry: 10",
            "unknown: field",
            "",
            "",
            ":",
            "event: message",
            f"data: {head}{comma}",
            f"data: {tail}",
            "",
            f"data: {third}",
            "",
            "",
        ]
        data = b"\xef\xbb\xbf" + newline.join(lines).encode()
        for every in (1, 3, 7, 4096):
            with staged(parts={"SendStreamingMessage": raw(data, every)}) as stage, lab.client(stage.url) as client:
                with client.stream("hi") as events:
                    assert len(list(events)) == 3
                assert events.task is not None
                assert (events.task.text, events.task.state) == ("\u00e9\U0001f355", TaskState.COMPLETED)


@F.line("V1-CSTR-02", Level.SDK, "an error instead of a stream, or within it, is raised")
def errors_of_streams_are_raised(lab: Lab) -> None:
    no = refused(-32004, "UNSUPPORTED_OPERATION", 400)
    for binding in BINDINGS:
        with (
            staged(binding, parts={"SendStreamingMessage": no}) as stage,
            lab.client(stage.url) as client,
            pytest.raises(e.UnsupportedOperationError),
            client.stream("hi") as events,
        ):
            list(events)
        for named in ("", "event: error\n"):
            script = _cut_by_an_error(named)
            with (
                staged(binding, parts={"SendStreamingMessage": script}) as stage,
                lab.client(stage.url) as client,
                client.stream("hi") as events,
            ):
                next(events)
                with pytest.raises(e.UnsupportedOperationError):
                    list(events)


def _cut_by_an_error(named: str) -> Script:
    info = [{"@type": ERROR_INFO, "reason": "UNSUPPORTED_OPERATION", "domain": "a2a-protocol.org"}]

    def script(asked: Asked, line: Line) -> None:
        rest = operation_of(asked)[1]
        first: Any = {"task": task("WORKING")}
        error: dict[str, Any]
        if rest:
            error = {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": "no", "details": info}}
        else:
            first = enveloped(asked, first)
            error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32004, "message": "no", "data": info}}
        line.start_stream()
        line.piece(f"data: {json.dumps(first)}\n\n{named}data: {json.dumps(error)}\n\n".encode())
        line.end_stream()

    return script


@F.line("V1-CSTR-03", Level.MUST, "chunks of artifacts are appended or replace the previous content")
def pieces_are_put_together(lab: Lab) -> None:
    events = [
        {"task": task("WORKING")},
        chunk("a"),
        chunk("b", append=True),
        chunk("old", artifact="a-2", lastChunk=True),
        chunk("new", artifact="a-2"),
        chunk("c", append=True, lastChunk=True),
        status("COMPLETED"),
    ]
    for binding in BINDINGS:
        with staged(binding, parts={"SendStreamingMessage": events}) as stage, lab.client(stage.url) as client:
            sent = client.send("hi")
            assert isinstance(sent, Task)
            assert [artifact.text for artifact in sent.artifacts] == ["abc", "new"]


@F.line("V1-CSTR-04", Level.SHOULD, "a broken stream is resumed")
def broken_streams_are_taken_up(lab: Lab) -> None:
    for binding in BINDINGS:
        parts = {
            "SendStreamingMessage": stream({"task": task("WORKING")}, chunk("a"), end=False),
            "SubscribeToTask": stream({"task": task("WORKING", artifacts=[_artifact("a")])}, status("COMPLETED")),
        }
        with staged(binding, parts=parts) as stage, lab.client(stage.url) as client:
            sent = client.send("hi")
            assert isinstance(sent, Task)
            assert (sent.text, sent.state) == ("a", TaskState.COMPLETED)
            assert stage.operations[:2] == ["SendStreamingMessage", "SubscribeToTask"]
    cut = stream({"task": task("WORKING")}, end=False)
    with (
        staged(parts={"SendStreamingMessage": cut}) as stage,
        lab.client(stage.url, retry=None) as client,
        pytest.raises(StreamInterruptedError),
    ):
        client.send("hi")


def _artifact(text: str) -> dict[str, Any]:
    return {"artifactId": "a-1", "parts": [{"text": text}]}


@F.line("V1-CSTR-05", Level.MUST, "a stream may end with a task, or with a question")
def ends_of_streams_are_understood(lab: Lab) -> None:
    whole = {"task": task("COMPLETED", artifacts=[_artifact("a")])}
    for events, state in (
        ([{"task": task("WORKING")}, chunk("a"), status("COMPLETED"), whole], TaskState.COMPLETED),
        ([{"task": task("WORKING")}, status("INPUT_REQUIRED")], TaskState.INPUT_REQUIRED),
        ([{"task": task("WORKING")}, status("AUTH_REQUIRED")], TaskState.AUTH_REQUIRED),
    ):
        with staged(parts={"SendStreamingMessage": events}) as stage, lab.client(stage.url) as client:
            with client.stream("hi") as stream_of_task:
                list(stream_of_task)
            assert stream_of_task.task is not None
            assert stream_of_task.task.state is state
            # If the stream had no response, the client may request only the stored task.
            assert stage.operations[0] == "SendStreamingMessage"
            assert set(stage.operations[1:]) <= {"GetTask"}
