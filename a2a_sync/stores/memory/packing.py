"""The compact form of events in memory: plain tuples of strings, numbers and times.

The garbage collector traverses every object that may be part of a cycle; with some thousand stored tasks its pauses become
noticeable. It does not track tuples that contain only atomic values, so events are converted to such tuples when they are
stored and converted back when they are read. Ids that equal those of the task are omitted. Rare members (metadata, files,
data parts) are stored as objects; only the events that have them remain tracked. Large data is stored as JSON: objects can
take twenty times as much memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from a2a_sync import jsontext
from a2a_sync.lifecycle import LogEvent
from a2a_sync.sizes import AROUND, around_message, metadata_size, parts_size, texts_size
from a2a_sync.types import (
    Artifact,
    DataPart,
    Message,
    Metadata,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

#: The first item of a packed event is its kind.
Packed: TypeAlias = tuple[Any, ...]
MESSAGE, STATUS, ARTIFACT = range(3)
#: The types of events by that kind.
KINDS: tuple[type[LogEvent], ...] = (Message, TaskStatusUpdateEvent, TaskArtifactUpdateEvent)
#: A data part of more bytes is packed as `_LargeData`.
_MOST_DATA_BYTES = 16 * 1024
#: By the third item of a packed message.
ROLES = {role.value: role for role in Role}
#: By the third item of a packed status event.
STATES = {state.value: state for state in TaskState}
_RARE_IN_MESSAGES = ("metadata", "extensions", "reference_task_ids")
_RARE_IN_ARTIFACTS = ("name", "description", "metadata", "extensions")


class _LargeData(NamedTuple):
    """A data part with much data: the data as JSON, and the part without it."""

    data: bytes
    part: DataPart


_PackedPart: TypeAlias = Part | str | _LargeData


def pack(event: LogEvent, task_id: str, context_id: str) -> tuple[Packed, int]:
    """The packed form of an event of the task with these ids, and its size, which is that of `sizes.event_size`."""
    ids = None if event.task_id == task_id and event.context_id == context_id else (event.task_id, event.context_id)
    if isinstance(event, Message):
        return _pack_message(event, ids)
    metadata, size = event.metadata or None, AROUND
    if metadata is not None:
        size += metadata_size(metadata)
    if isinstance(event, TaskStatusUpdateEvent):
        status, said = event.status, None
        if status.message is not None:
            said, added = pack(status.message, task_id, context_id)
            size += added
        return (STATUS, ids, status.state._value_, status.timestamp, said, metadata), size
    packed, added = _pack_artifact(event, ids, metadata)
    return packed, size + added


def _pack_artifact(
    event: TaskArtifactUpdateEvent, ids: tuple[str, str] | None, metadata: Metadata | None
) -> tuple[Packed, int]:
    made = event.artifact
    parts, size = _pack_parts(made.parts)
    rare = (made.name, made.description, made.metadata or None, made.extensions)
    if any(rare):
        size += texts_size((made.name, made.description, *made.extensions))
        size += metadata_size(made.metadata) if made.metadata else 0
    packed = (
        ARTIFACT,
        ids,
        made.artifact_id,
        parts,
        rare if any(rare) else None,
        event.append,
        event.last_chunk,
        metadata,
    )
    return packed, size


def unpack(packed: Packed, task_id: str, context_id: str) -> LogEvent:
    """The event that was packed for this task."""
    return _UNPACK[packed[0]](packed, task_id, context_id)


def unpack_message(packed: Packed, task_id: str, context_id: str) -> Message:
    """The message that was packed for this task."""
    _, ids, role, message_id, parts, rare = packed
    task_id, context_id = ids or (task_id, context_id)
    return Message(
        role=ROLES[role],
        parts=_unpack_parts(parts),
        message_id=message_id,
        task_id=task_id,
        context_id=context_id,
        **(_named(_RARE_IN_MESSAGES, rare) if rare else {}),
    )


def unpack_artifact(packed: Packed, task_id: str, context_id: str) -> TaskArtifactUpdateEvent:
    """The artifact event that was packed for this task."""
    _, ids, artifact_id, parts, rare, append, last_chunk, metadata = packed
    task_id, context_id = ids or (task_id, context_id)
    rarely_set = _named(_RARE_IN_ARTIFACTS, rare) if rare else {}
    artifact = Artifact(artifact_id=artifact_id, parts=_unpack_parts(parts), **rarely_set)
    return TaskArtifactUpdateEvent(
        task_id=task_id,
        context_id=context_id,
        artifact=artifact,
        append=append,
        last_chunk=last_chunk,
        **_given(metadata),
    )


def unpack_status(packed: Packed, task_id: str, context_id: str) -> TaskStatus:
    """The status of the status event that was packed for this task."""
    _, _, state, timestamp, said, _ = packed
    message = None if said is None else unpack_message(said, task_id, context_id)
    return TaskStatus(state=STATES[state], message=message, timestamp=timestamp)


def _unpack_status_event(packed: Packed, task_id: str, context_id: str) -> TaskStatusUpdateEvent:
    _, ids, *_, metadata = packed
    status = unpack_status(packed, task_id, context_id)
    task_id, context_id = ids or (task_id, context_id)
    return TaskStatusUpdateEvent(task_id=task_id, context_id=context_id, status=status, **_given(metadata))


_UNPACK: tuple[Callable[[Packed, str, str], LogEvent], ...] = (unpack_message, _unpack_status_event, unpack_artifact)


def _pack_message(message: Message, ids: tuple[str, str] | None) -> tuple[Packed, int]:
    rare = (message.metadata or None, message.extensions, message.reference_task_ids)
    parts, size = _pack_parts(message.parts)
    packed = (MESSAGE, ids, message.role._value_, message.message_id, parts, rare if any(rare) else None)
    return packed, size + around_message(message)


def _pack_parts(parts: tuple[Part, ...]) -> tuple[tuple[_PackedPart, ...] | str, int]:
    """Packed parts and their size. A single text, the most frequent case, is stored without a tuple around it."""
    if (
        len(parts) == 1
        and isinstance(part := parts[0], TextPart)
        and not (part.metadata or part.filename or part.media_type)
    ):
        return part.text, parts_size(parts)
    pairs = [_pack_part(part) for part in parts]
    return tuple([packed for packed, _ in pairs]), sum([size for _, size in pairs])


def _pack_part(part: Part) -> tuple[_PackedPart, int]:
    size = parts_size((part,))
    if isinstance(part, TextPart):
        return part if part.metadata or part.filename or part.media_type else part.text, size
    if size > _MOST_DATA_BYTES and isinstance(part, DataPart):
        return _LargeData(jsontext.dumps(part.data), replace(part, data=None)), size
    return part, size


def _unpack_parts(packed: tuple[_PackedPart, ...] | str) -> tuple[Part, ...]:
    if isinstance(packed, str):
        return (TextPart(packed),)
    return tuple([_unpack_part(part) for part in packed])


def _unpack_part(packed: _PackedPart) -> Part:
    if isinstance(packed, str):
        return TextPart(packed)
    return replace(packed.part, data=jsontext.loads_stored(packed.data)) if isinstance(packed, _LargeData) else packed


def _named(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _given(metadata: Metadata | None) -> dict[str, Any]:
    return {} if metadata is None else {"metadata": metadata}
