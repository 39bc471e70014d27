"""The values that a handler may return, and the events for each kind of value.

Results become artifacts, messages of the agent become history, questions and refusals become the status (spec 3.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from a2a_sync.agent.artifacts import ArtifactWriter
from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.concurrency.closing import closed_after
from a2a_sync.jsontext import dumps
from a2a_sync.types import (
    Artifact,
    Content,
    DataPart,
    Message,
    Metadata,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    to_parts,
)


@dataclass(frozen=True, slots=True)
class _EndingResult:
    """A result that ends the run in a state other than completed, with a message."""

    content: Content
    metadata: Metadata = field(default_factory=dict, kw_only=True)


class InputRequired(_EndingResult):
    """Ask the client for input. The run ends; the client's next message calls the handler again."""

    __slots__ = ()
    state = TaskState.INPUT_REQUIRED


class AuthRequired(_EndingResult):
    """Ask the client to authorise something, out of band (spec 7.6). The next message calls the handler again."""

    __slots__ = ()
    state = TaskState.AUTH_REQUIRED


class Rejected(_EndingResult):
    """Decline the task; the content is the reason."""

    __slots__ = ()
    state = TaskState.REJECTED


class Failed(_EndingResult):
    """Fail the task, with a reason that is shown to the client: content, an exception, or any other value.

    An exception is shown as its text, or the name of its class if it has no text; another value as JSON, or else its
    `repr`.
    """

    __slots__ = ()
    state = TaskState.FAILED

    def __init__(self, content: Any, *, metadata: Metadata | None = None) -> None:
        object.__setattr__(self, "content", _reason(content))
        object.__setattr__(self, "metadata", metadata or {})


def _reason(value: Any) -> Content:
    with suppress(TypeError, ValueError):
        return value if isinstance(value, Message) else to_parts(value)
    if isinstance(value, BaseException):
        return str(value) or type(value).__name__
    try:
        return dumps(value).decode()
    except (TypeError, ValueError):
        return repr(value)


@dataclass(frozen=True, slots=True)
class StreamingResult:
    """Send each item of the iterable `chunks` as soon as it is produced, as for a generator handler."""

    chunks: Iterable[Any]


#: The name of the artifact that the text of a generator or `StreamingResult` becomes.
STREAMED_TEXT = "answer"
_EVENTS = (TaskStatusUpdateEvent, TaskArtifactUpdateEvent)


def _is_data(value: object) -> bool:
    """Whether `value` is user data: a mapping, or an instance of a dataclass that the protocol does not define."""
    if isinstance(value, (Part, *_EVENTS, Message, Artifact, _EndingResult, StreamingResult)):
        return False
    return isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type))


def _as_content(value: Any) -> tuple[Part, ...]:
    """The parts of a result: of text, parts, data, and lists of these."""
    if isinstance(value, str):
        return to_parts(value)
    if _is_data(value):
        return (DataPart.of(value),)
    if isinstance(value, (list, tuple)):
        return to_parts([part for item in value for part in _as_content(item)])
    return to_parts(value)


def final_events(value: Any, context: RequestContext) -> list[Event]:
    """The events that end a run whose handler returned `value`; they have to be stored atomically.

    Raises:
        TypeError: a handler may not return a value of this type.
        DataPartError: a dataclass or dict cannot be encoded as JSON.
    """
    if value is None or isinstance(value, Message):
        return [_status(TaskState.COMPLETED, value)]
    if isinstance(value, (InputRequired, AuthRequired, Rejected, Failed)):
        return [_status(value.state, context.agent_message(value.content), value.metadata)]
    if isinstance(value, _EVENTS):
        return [value]
    artifact = value if isinstance(value, Artifact) else Artifact(parts=_as_content(value))
    message = context.agent_message(artifact.parts)
    # With ids: an event without them is made again when it is stored.
    done = TaskArtifactUpdateEvent(
        task_id=message.task_id, context_id=message.context_id, artifact=artifact, last_chunk=True
    )
    return [done, message, _status(TaskState.COMPLETED)]


def _status(
    state: TaskState, message: Message | None = None, metadata: Metadata | None = None
) -> TaskStatusUpdateEvent:
    if message is not None and message.role is not Role.AGENT:
        message = replace(message, role=Role.AGENT)
    return TaskStatusUpdateEvent(status=TaskStatus(state=state, message=message), metadata=metadata or {})


class ChunkStream:
    """Sends the items of an iterable: text, parts and data as chunks of one artifact, the rest unchanged."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._writer: ArtifactWriter | None = None

    def send(self, chunks: Iterable[Any]) -> None:
        """Send all items, then the final events for the return value of the iterable, which is closed in any case."""
        iterator = iter(chunks)
        with closed_after(iterator):
            result = self._send_all(iterator)
        self._context.emit(*self._final_events(result))

    def _send_all(self, iterator: Iterator[Any]) -> Any:
        while True:
            self._context.check_cancelled()
            try:
                item = next(iterator)
            except StopIteration as stop:
                return stop.value
            self._context.emit(self._event(item)) if item != "" else None

    def _event(self, item: Any) -> Event:
        if isinstance(item, str):
            return self._text_writer().piece(item)
        if isinstance(item, (*_EVENTS, Message)):
            return item
        if isinstance(item, Artifact):
            return TaskArtifactUpdateEvent(artifact=item, last_chunk=True)
        if isinstance(item, (_EndingResult, StreamingResult)) or item is None:
            raise TypeError(f"a generator returns {type(item).__name__}, it does not yield it")
        return self._text_writer().piece(_as_content(item))

    def _text_writer(self) -> ArtifactWriter:
        if self._writer is None:
            self._writer = self._context.artifact(STREAMED_TEXT)
        return self._writer

    def _final_events(self, result: Any) -> list[Event]:
        events: list[Event] = []
        last_chunk = isinstance(result, (str, list, tuple, Part))
        if last_chunk and result:
            events += self._text_writer().completing(_as_content(result))
        elif self._writer is not None:
            end = self._writer.ending()
            if end is not None:
                events.append(end)
        if self._writer is not None and self._writer.parts:
            events.append(self._context.agent_message(self._writer.parts))
        return events + final_events(None if last_chunk else result, self._context)
