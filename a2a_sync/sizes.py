"""About how many bytes of JSON a message or an event makes, without making it: never less than what it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from a2a_sync import jsontext
from a2a_sync.types import (
    Artifact,
    FilePart,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

__all__ = [
    "artifact_size",
    "base_size",
    "event_size",
    "fit",
    "message_size",
    "metadata_size",
    "part_size",
    "parts_size",
    "task_size",
]

#: For names, ids and punctuation: of a message, an event or an artifact, and of a part.
AROUND, AROUND_PART = 256, 32


def part_size(part: Part) -> int:
    """The bytes of what a part carries: of a file before it is encoded."""
    if isinstance(part, TextPart):
        text = part.text
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if isinstance(part, FilePart):
        return len(part.raw or b"") + len(part.url or "")
    return len(jsontext.dumps(part.data))


def message_size(message: Message) -> int:
    """A message."""
    size = AROUND + parts_size(message.parts)
    return size + metadata_size(message.metadata) if message.metadata else size


def artifact_size(artifact: Artifact) -> int:
    """An artifact."""
    size = AROUND + len(artifact.name) + len(artifact.description) + parts_size(artifact.parts)
    return size + metadata_size(artifact.metadata) if artifact.metadata else size


def event_size(event: Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> int:
    """An entry of a task's log. Each is measured when it is written, so the usual ones take few calls."""
    if isinstance(event, TaskStatusUpdateEvent):
        size = AROUND if event.status.message is None else _status(event.status)
    elif isinstance(event, Message):
        return message_size(event)
    else:
        artifact = event.artifact
        size = AROUND + len(artifact.name) + len(artifact.description) + parts_size(artifact.parts)
        if artifact.metadata:
            size += metadata_size(artifact.metadata)
    return size + metadata_size(event.metadata) if event.metadata else size


def base_size(task: Task) -> int:
    """A task without its history."""
    size = _status(task.status) + sum(map(artifact_size, task.artifacts))
    return size + metadata_size(task.metadata) if task.metadata else size


def task_size(task: Task) -> int:
    """A task."""
    return base_size(task) + sum(map(message_size, task.history))


def fit(task: Task, most: int) -> Task:
    """`task` with the newest messages only that fit into `most` bytes beside what else it holds."""
    left, kept = most - base_size(task), 0
    for message in reversed(task.history):
        left -= message_size(message)
        if left < 0:
            break
        kept += 1
    return task if kept == len(task.history) else replace(task, history=task.history[len(task.history) - kept :])


def _status(status: TaskStatus) -> int:
    return AROUND if status.message is None else AROUND + message_size(status.message)


def parts_size(parts: Sequence[Part]) -> int:
    """The parts of a message or an artifact."""
    if len(parts) == 1 and isinstance(part := parts[0], TextPart) and not part.metadata and part.text.isascii():
        return AROUND_PART + len(part.text)
    size = 0
    for part in parts:
        size += AROUND_PART + part_size(part)
        if part.metadata:
            size += metadata_size(part.metadata)
        if isinstance(part, FilePart) and part.raw:
            size += len(part.raw) // 3
    return size


def metadata_size(metadata: Mapping[str, Any]) -> int:
    """Metadata that is not empty."""
    return len(jsontext.dumps(dict(metadata)))
