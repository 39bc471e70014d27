"""About how many bytes of JSON a message or an event makes, without making it: never less than what it carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        return _text(part.text)
    if isinstance(part, FilePart):
        return len(part.raw or b"") + len(part.url or "")
    return len(jsontext.dumps(part.data))


def message_size(message: Message) -> int:
    """A message."""
    return _AROUND + _parts(message.parts) + _metadata(message.metadata)


def artifact_size(artifact: Artifact) -> int:
    """An artifact."""
    named = len(artifact.name or "") + len(artifact.description or "")
    return _AROUND + named + _parts(artifact.parts) + _metadata(artifact.metadata)


def event_size(event: Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> int:
    """An entry of a task's log."""
    if isinstance(event, Message):
        return message_size(event)
    if isinstance(event, TaskStatusUpdateEvent):
        return _status(event.status) + _metadata(event.metadata)
    return artifact_size(event.artifact) + _metadata(event.metadata)


def base_size(task: Task) -> int:
    """A task without its history."""
    return _status(task.status) + _metadata(task.metadata) + sum(map(artifact_size, task.artifacts))


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


def _parts(parts: Iterable[Part]) -> int:
    size = 0
    for part in parts:
        size += _AROUND_PART + part_size(part) + _metadata(part.metadata)
        if isinstance(part, FilePart) and part.raw:
            size += len(part.raw) // 3
    return size


def _text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _metadata(metadata: Mapping[str, Any]) -> int:
    return len(jsontext.dumps(dict(metadata))) if metadata else 0
