"""Large parts of messages omitted from the history in responses: the caller that sent a file of ten megabytes still has it.

The store keeps everything, and agents see everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from a2a_sync import jsontext
from a2a_sync.engine.hub import PolledStream
from a2a_sync.operations import Call, Endpoint, StreamItem
from a2a_sync.server.pending import changed
from a2a_sync.types import DataPart, FilePart, ListTasksResponse, Message, Part, Task, TextPart

#: The metadata key of a placeholder with the size of the omitted part, in bytes.
OMITTED = "a2a_sync/omitted"


def omit_large_parts(most: int, endpoint: Endpoint) -> Endpoint:
    """Wrap `endpoint`: in its results, placeholders replace the parts of the history that have more than `most` bytes."""

    def answered(call: Call[Any, Any]) -> Any:
        return changed(endpoint(call), partial(omitted, streaming=call.operation.streaming))

    def omitted(result: Any, streaming: bool) -> Any:
        if isinstance(result, Task):
            return _omit_in_task(result, most)
        if isinstance(result, ListTasksResponse):
            return replace(result, tasks=tuple(_omit_in_task(task, most) for task in result.tasks))
        return _OmittingStream(result, most) if streaming else result

    return answered


class _OmittingStream:
    """A stream whose tasks have placeholders in their history; its other events have no history."""

    def __init__(self, stream: PolledStream, most: int) -> None:
        self._stream = stream
        self._most = most

    @property
    def task_id(self) -> str:
        return self._stream.task_id

    @property
    def closing(self) -> StreamItem | None:
        return self._stream.closing

    def poll(self, timeout: float) -> list[StreamItem] | None:
        items = self._stream.poll(timeout)
        return items and [self._omit(item) for item in items]

    def notify(self, callback: Callable[[], None]) -> None:
        self._stream.notify(callback)

    def __iter__(self) -> Iterator[StreamItem]:
        return map(self._omit, self._stream)

    def close(self) -> None:
        self._stream.close()

    def _omit(self, item: StreamItem) -> StreamItem:
        return StreamItem(_omit_in_task(item.event, self._most), item.number) if isinstance(item.event, Task) else item


def _omit_in_task(task: Task, most: int) -> Task:
    history = tuple(_omit_in_message(message, most) for message in task.history)
    return task if history == task.history else replace(task, history=history)


def _omit_in_message(message: Message, most: int) -> Message:
    if all(_size(part) <= most for part in message.parts):
        return message
    return replace(message, parts=tuple(part if _size(part) <= most else _placeholder(part) for part in message.parts))


def _size(part: Part) -> int:
    if isinstance(part, FilePart):
        return len(part.raw or b"")
    if isinstance(part, TextPart):
        return len(part.text) if part.text.isascii() else len(part.text.encode("utf-8", "surrogatepass"))
    return len(jsontext.dumps(part.data))


def _placeholder(part: Part) -> TextPart:
    kind = "file" if isinstance(part, FilePart) else "data" if isinstance(part, DataPart) else "text"
    described = ", ".join(filter(None, (part.filename or kind, part.media_type, f"{_size(part)} bytes")))
    return TextPart(f"[left out: {described}]", metadata={**part.metadata, OMITTED: _size(part)})
