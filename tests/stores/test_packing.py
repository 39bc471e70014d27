"""Packed events come back as they were, and the usual ones are nothing to the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from a2a_sync.sizes import event_size
from a2a_sync.stores.memory.packing import pack, unpack
from a2a_sync.types import (
    Artifact,
    DataPart,
    FilePart,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

IDS = {"task_id": "t", "context_id": "c"}
NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

MESSAGE = Message(role=Role.AGENT, parts=(TextPart("yes"),), message_id="m", **IDS)
STATUS = TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING, timestamp=NOW), **IDS)
ARTIFACT = TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", parts=(TextPart("x"),)), last_chunk=True, **IDS)
USUAL = [
    MESSAGE,
    replace(MESSAGE, parts=(TextPart("one"), TextPart("two")), role=Role.USER),
    STATUS,
    replace(STATUS, status=replace(STATUS.status, state=TaskState.INPUT_REQUIRED, message=MESSAGE)),
    ARTIFACT,
    replace(ARTIFACT, append=True, last_chunk=False),
    replace(ARTIFACT, artifact=replace(ARTIFACT.artifact, name="report", description="of the day")),
]
RARE = [
    replace(MESSAGE, metadata={"a": [1]}, extensions=("e",), reference_task_ids=("r",)),
    replace(MESSAGE, task_id="another", context_id="one"),
    replace(MESSAGE, parts=()),
    replace(
        MESSAGE,
        parts=(TextPart("a", filename="f"), TextPart("b", media_type="text/x"), TextPart("c", metadata={"k": 1})),
    ),
    replace(
        MESSAGE, parts=(DataPart({"x": [None]}), FilePart(raw=b"\0\xff"), FilePart(url="https://x/"), TextPart(""))
    ),
    replace(STATUS, metadata={"k": "v"}),
    replace(STATUS, status=TaskStatus(state=TaskState.SUBMITTED)),
    replace(STATUS, task_id="another", status=replace(STATUS.status, message=replace(MESSAGE, context_id="one"))),
    replace(ARTIFACT, metadata={"k": "v"}, context_id="one"),
    replace(ARTIFACT, artifact=replace(ARTIFACT.artifact, metadata={"k": "v"}, extensions=("e",))),
    replace(ARTIFACT, artifact=replace(ARTIFACT.artifact, name="ü", description="d", extensions=("e", "ä"))),
    replace(MESSAGE, message_id="ü" * 256, extensions=("ä",)),
    replace(
        MESSAGE,
        parts=(
            DataPart(["ä" * 20_000, 1.5, None], metadata={"k": 1}, filename="f", media_type="m"),
            DataPart({"x": {"": [True]}, "y": "y" * 20_000}),
        ),
    ),
    replace(ARTIFACT, artifact=replace(ARTIFACT.artifact, parts=(DataPart("x" * 20_000),))),
]


@pytest.mark.parametrize("event", USUAL + RARE)
def test_what_was_packed_comes_back(event):
    packed, size = pack(event, **IDS)
    assert unpack(packed, **IDS) == event
    assert size == event_size(event)


@pytest.mark.parametrize("event", USUAL)
def test_the_garbage_collector_has_nothing_to_do_with_a_usual_event(event):
    gc.freeze()  # what earlier tests left behind would be searched too
    packed, _ = pack(event, **IDS)
    gc.collect()  # it notices what it may forget level by level
    gc.collect()
    assert not gc.is_tracked(packed)


@pytest.mark.slow
def test_large_data_takes_little_more_memory_than_its_json():
    def short_keys(part: int) -> dict[str, int]:
        return {f"{part}-{key}": key for key in range(20_000)}

    tracemalloc.start()
    try:
        packed, size = pack(replace(MESSAGE, parts=(DataPart(short_keys(1)), DataPart(short_keys(2)))), **IDS)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 1.2 * size
    assert [part.data for part in unpack(packed, **IDS).parts] == [short_keys(1), short_keys(2)]
