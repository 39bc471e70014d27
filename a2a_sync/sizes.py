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

#: For names, ids and punctuation: of a message, an event or an artifact, and of a part.
_AROUND, _AROUND_PART = 256, 32


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
    size = _AROUND + _parts(message.parts)
    return size + _metadata(message.metadata) if message.metadata else size


def artifact_size(artifact: Artifact) -> int:
    """An artifact."""
    size = _AROUND + len(artifact.name) + len(artifact.description) + _parts(artifact.parts)
    return size + _metadata(artifact.metadata) if artifact.metadata else size


def event_size(event: Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> int:
    """An entry of a task's log. Each is measured when it is written, so the usual ones take few calls."""
    if isinstance(event, TaskStatusUpdateEvent):
        size = _AROUND if event.status.message is None else _status(event.status)
    elif isinstance(event, Message):
        return message_size(event)
    else:
        artifact = event.artifact
        size = _AROUND + len(artifact.name) + len(artifact.description) + _parts(artifact.parts)
        if artifact.metadata:
            size += _metadata(artifact.metadata)
    return size + _metadata(event.metadata) if event.metadata else size


def base_size(task: Task) -> int:
    """A task without its history."""
    size = _status(task.status) + sum(map(artifact_size, task.artifacts))
    return size + _metadata(task.metadata) if task.metadata else size


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
    return _AROUND if status.message is None else _AROUND + message_size(status.message)


def _parts(parts: Sequence[Part]) -> int:
    if len(parts) == 1 and isinstance(part := parts[0], TextPart) and not part.metadata and part.text.isascii():
        return _AROUND_PART + len(part.text)
    size = 0
    for part in parts:
        size += _AROUND_PART + part_size(part)
        if part.metadata:
            size += _metadata(part.metadata)
        if isinstance(part, FilePart) and part.raw:
            size += len(part.raw) // 3
    return size


def _metadata(metadata: Mapping[str, Any]) -> int:
    return len(jsontext.dumps(dict(metadata)))
