"""About how many bytes of JSON a message or an event makes, without making it: never less than what it carries.

Every member that a peer can choose is counted. Escapes are not: control characters take six bytes each as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from a2a_sync import jsontext
from a2a_sync.lifecycle import Entry
from a2a_sync.types import (
    Artifact,
    FilePart,
    Message,
    Metadata,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

__all__ = [
    "artifact_size",
    "around_message",
    "base_size",
    "entry_size",
    "event_size",
    "fit",
    "memory_size",
    "message_size",
    "metadata_size",
    "part_size",
    "parts_size",
    "task_size",
    "texts_size",
]

#: For names, ids of the usual length and punctuation: of a message, an event or an artifact, and of a part.
AROUND, AROUND_PART = 256, 32
#: What is larger counts as so many bytes.
_MOST_MEMORY = 1024 * 1024 * 1024
#: What is nested deeper does not count: no decoder of this library returns it.
_MOST_LEVELS = 1000
#: What `AROUND` has for the ids of a message, in bytes.
_USUAL_IDS = 128


def texts_size(texts: Iterable[str]) -> int:
    """The bytes of texts."""
    text = "".join(texts)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def part_size(part: Part) -> int:
    """The bytes of what a part carries: of a file before it is encoded."""
    size = texts_size((part.filename, part.media_type))
    if isinstance(part, TextPart):
        return size + texts_size((part.text,))
    if isinstance(part, FilePart):
        return size + len(part.raw or b"") + texts_size((part.url or "",))
    return size + len(jsontext.dumps(part.data))


def memory_size(message: Message, metadata: Metadata) -> int:
    """About how many bytes of memory a message and the metadata sent with it need. Small objects need up to thirty times their JSON."""
    size = (_objects_size(metadata) if metadata else 0) + (_objects_size(message.metadata) if message.metadata else 0)
    for part in message.parts:
        if isinstance(part, TextPart):
            size += sys.getsizeof(part.text)
        elif isinstance(part, FilePart):
            size += sys.getsizeof(part.raw)
        else:
            size += _objects_size(part.data)
        if part.metadata:
            size += _objects_size(part.metadata)
    return size


def _objects_size(value: object) -> int:
    size, level = 0, [value]
    # A value that was not decoded may contain itself.
    for _ in range(_MOST_LEVELS):
        if not level or size >= _MOST_MEMORY:
            break
        # All at once, and without empty ones: a message of 1 MB may have 500,000 objects.
        size += sum(map(sys.getsizeof, level))
        inner: list[object] = []
        for one in level:
            if one:
                # Those that a decoder makes; to ask for a `Mapping` takes five times as long.
                if isinstance(one, dict):
                    inner += one
                    inner += one.values()
                elif isinstance(one, list):
                    inner += one
        level = inner
    return size


def message_size(message: Message) -> int:
    """A message."""
    return around_message(message) + parts_size(message.parts)


def around_message(message: Message) -> int:
    """A message without its parts."""
    ids = message.message_id + message.context_id + message.task_id
    size = AROUND + max(0, (len(ids) if ids.isascii() else texts_size((ids,))) - _USUAL_IDS)
    if message.extensions or message.reference_task_ids:
        size += texts_size((*message.extensions, *message.reference_task_ids))
    return size + metadata_size(message.metadata) if message.metadata else size


def artifact_size(artifact: Artifact) -> int:
    """An artifact."""
    size = AROUND + parts_size(artifact.parts)
    if artifact.name or artifact.description or artifact.extensions:
        size += texts_size((artifact.name, artifact.description, *artifact.extensions))
    return size + metadata_size(artifact.metadata) if artifact.metadata else size


def event_size(event: Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> int:
    """An entry of a task's log. Each is measured when it is written, so the usual ones take few calls."""
    if isinstance(event, TaskStatusUpdateEvent):
        size = AROUND if event.status.message is None else _status(event.status)
    elif isinstance(event, Message):
        return message_size(event)
    else:
        size = artifact_size(event.artifact)
    return size + metadata_size(event.metadata) if event.metadata else size


def entry_size(entry: Entry) -> int:
    """An entry of a log, computed once."""
    if not entry.size:
        entry.size = len(next(iter(entry.encoded.values()))) if entry.encoded else event_size(entry.event)
    return entry.size


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
    if (
        len(parts) == 1
        and isinstance(part := parts[0], TextPart)
        and part.text.isascii()
        and not (part.metadata or part.filename or part.media_type)
    ):
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
