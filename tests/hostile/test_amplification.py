"""Small or ordinary input whose processing takes much more time or memory than its size suggests."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Artifact,
    MemoryStore,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    jsontext,
)
from a2a_sync.auth import BearerAuth
from a2a_sync.bindings.sse import BlockSource, EventReader
from a2a_sync.errors import JSONParseError
from a2a_sync.lifecycle import Fold
from tests.agents.shared import agent
from tests.hostile.cycles import frames_in_cycles
from tests.wsgi import Peer, rpc

MIB = 1024 * 1024


@contextmanager
def cpu_time(most: float) -> Iterator[None]:
    """The block takes less than `most` seconds of processor time."""
    began = time.process_time()
    yield
    assert time.process_time() - began < most


def data_message(items: bytes) -> bytes:
    """A send of one data part with an array of `items`, which end with a comma."""
    return rpc(
        "SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": "HERE"}]}}
    ).replace(b'"HERE"', b"[" + items[:-1] + b"]")


@pytest.mark.parametrize("item", [b"[[[[[[[[[[]]]]]]]]]],", b"[],", b"{},", b'{"a":{}},'])
@pytest.mark.parametrize("path", ["/", "/message:send"])
def test_a_body_of_very_many_arrays_is_refused_at_once(item: bytes, path: str) -> None:
    # One such body of 10 MB took sixteen seconds and a gigabyte.
    body = data_message(item * (10_000_000 // len(item)))
    if path != "/":
        body = body[body.index(b'"params": ') + 10 : -1]
    with A2AApp(agent, store=MemoryStore()) as app, cpu_time(2.0):
        answer = Peer(app).post(body, path=path)

    assert b"arrays and objects" in answer.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", b"{"),
        ("/", rpc("SendMessage", {"message": {"messageId": "m", "role": "NONE", "parts": [{"text": "hi"}]}})),
        ("/", rpc("GetTask", {"id": "none"})),
        ("/message:send", b"{"),
        ("/message:send", b'{"message": {"messageId": "m", "role": "NONE", "parts": [{"text": "hi"}]}}'),
        ("/tasks/none:cancel", b"{}"),
    ],
)
def test_a_refused_request_is_freed_at_once(path: str, body: bytes) -> None:
    # Its body stayed in memory until the garbage collector ran, which counts objects and not bytes.
    with A2AApp(agent, store=MemoryStore()) as app:
        peer = Peer(app)
        peer.post(body, path=path)
        with frames_in_cycles() as left:
            assert peer.post(body, path=path).status == (200 if path == "/" else 400 if "message" in path else 404)
        assert not left


def test_realistic_bodies_are_far_from_the_number_of_arrays() -> None:
    positions = b"[12.345678,45.678901]," * (10 * MIB // 22)
    assert len(jsontext.loads(b"[" + positions[:-1] + b"]")) == 10 * MIB // 22
    brackets_in_text = b'["' + b"[{" * (5 * MIB) + b'"]'
    assert jsontext.loads(brackets_in_text)


def test_an_answer_of_very_many_arrays_is_refused_at_once() -> None:
    body = b"[" + (b"[[[[[[[[[[]]]]]]]]]]," * (60 * MIB // 21))[:-1] + b"]"
    with cpu_time(8.0), pytest.raises(JSONParseError, match="arrays and objects"):
        jsontext.loads(body, max_depth=jsontext.MAX_ANSWER_DEPTH)


def test_the_cost_of_a_stream_is_linear_in_its_metadata() -> None:
    fold = Fold()
    working = TaskStatus(state=TaskState.WORKING)
    # 40,000 events took ten seconds.
    with cpu_time(2.0):
        for number in range(40_000):
            metadata: dict[str, Any] = {f"k{number}": "v"}
            fold.apply(TaskStatusUpdateEvent(task_id="t", context_id="c", status=working, metadata=metadata))

    task = fold.task()
    assert task is not None
    fold.apply(TaskStatusUpdateEvent(task_id="t", context_id="c", status=working, metadata={"k0": "changed"}))
    assert len(task.metadata) == 40_000
    assert task.metadata["k0"] == "v"
    changed = fold.task()
    assert changed is not None
    assert changed.metadata["k0"] == "changed"


def test_the_cost_of_a_stream_is_linear_in_what_is_said_of_an_artifact() -> None:
    fold = Fold()

    def append(**members: Any) -> None:
        artifact = Artifact(artifact_id="a", parts=(TextPart("x"),), **members)
        fold.apply(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=True))

    append(metadata={f"k{number}": "v" for number in range(100_000)}, extensions=tuple(map(str, range(100_000))))
    # 1,000 events, 200 KB, took eleven seconds.
    with cpu_time(2.0):
        for number in range(1_000):
            append(name=f"n{number}", metadata={"k0": number}, extensions=("e",))

    task = fold.task()
    assert task is not None
    append(metadata={"k0": "changed"}, extensions=("f",))
    (artifact,) = task.artifacts
    assert (artifact.name, artifact.metadata["k0"], artifact.extensions[-1]) == ("n999", 999, "e")
    changed = fold.task()
    assert changed is not None
    assert (changed.artifacts[0].metadata["k0"], changed.artifacts[0].extensions[-1]) == ("changed", "f")


def test_a_stream_of_blank_lines_is_skipped_at_once() -> None:
    pieces = iter([b"\n" * MIB] * 100 + [b"data: 1\n\n"])
    # A hundred MiB, a hundred KB compressed, took a minute.
    with cpu_time(3.0):
        events = list(EventReader(BlockSource(lambda: next(pieces, b""))))
    assert [event.data for event in events] == ["1"]


def test_a_block_of_very_many_names_that_begin_like_an_id_is_read_at_once() -> None:
    # 160,000 lines, 1.6 MB, took 19 seconds, in the square of their number.
    names = b"".join(b"id%d:x\n" % number for number in range(80_000))
    pieces = iter([b"id: 7\ndata: 1\n" + names + b"\n"])
    with cpu_time(1.0):
        (event,) = EventReader(BlockSource(lambda: next(pieces, b"")))
    assert (event.data, event.id) == ("1", "7")


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b"id:\n", b"x\n"])
@pytest.mark.parametrize("end", [b"data: }\n\n", b"data: }\n"])
def test_an_event_of_very_many_lines_takes_the_memory_of_its_bytes(line: bytes, end: bytes) -> None:
    # One of 64 MiB, 65 KB compressed, took 908 MB, and 1,959 MB where the stream ended without its last blank line.
    body = b"data: {\n" + line * (2 * MIB // len(line)) + end
    pieces = iter([body[start : start + 8192] for start in range(0, len(body), 8192)])
    tracemalloc.start()
    try:
        (event,) = EventReader(BlockSource(lambda: next(pieces, b"")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (event.data[:2], event.data[-2:]) == ("{\n", "\n}")
    assert peak < 6 * len(body)


@pytest.mark.parametrize("line", [b"data\n", b"data: " + b"x" * (16 * 1024) + b"\n"])
def test_greenlets_run_while_an_event_of_many_or_long_lines_is_read(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They waited for ten seconds.
    turns: list[None] = []
    monkeypatch.setattr("a2a_sync.bindings.sse.let_greenlets_run", lambda: turns.append(None))
    pieces = iter([b"data: {\n" + line * (MIB // len(line)) + b"data: }\n\n"])
    assert len(list(EventReader(BlockSource(lambda: next(pieces, b""))))) == 1
    assert len(turns) >= 16


@pytest.mark.parametrize("path", ["/tasks", "/"])
def test_a_long_accept_header_costs_little_without_credentials(path: str) -> None:
    # Each of 57 KB took 60 ms, so 50 a second stopped a worker.
    headers = {"A2A-Version": "1.0", "Accept": '"a",' * 25_000}
    with A2AApp(agent, auth=BearerAuth({"known": "ada"})) as app, cpu_time(1.0):
        for _ in range(20):
            assert Peer(app).request("GET", path, headers=headers).status in (401, 405)
