"""Completes and checks the events of an agent for the log: ids, times, contents, and questions in the history.

A stored event is sent to every reader of its task for as long as the task lives. What no codec can write is therefore refused
here, while the code that made it is still on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from a2a_sync.concurrency import clock
from a2a_sync.jsontext import dumps
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.types import (
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


def utc_now() -> datetime:
    """Now in UTC, cut to milliseconds (spec 5.6.1)."""
    return datetime.fromtimestamp(clock.time_ns() // 1_000_000 / 1000, UTC)


def status_event(
    request: RunRequest, state: TaskState, text: str = "", *, at: datetime | None = None
) -> TaskStatusUpdateEvent:
    """A status of the request's task, with the present time or `at`, and with an agent message where there is a text."""
    task_id, context_id = request.task_id, request.context_id
    message = None
    if text:
        message = Message(role=Role.AGENT, parts=(TextPart(text),), task_id=task_id, context_id=context_id)
    status = TaskStatus(state=state, message=message, timestamp=at or utc_now())
    return TaskStatusUpdateEvent(task_id=task_id, context_id=context_id, status=status)


class Stamp:
    """Stamps the events of one run. `earlier` gives the ids of the artifacts that its task had before; None: it is new.

    Used under the run's lock. The effects of a call count only after `commit`, so a step that could not be stored has none.
    """

    def __init__(self, request: RunRequest, earlier: Callable[[], Iterable[str]] | None) -> None:
        self._task_id = request.task_id
        self._context_id = request.context_id
        self._earlier = earlier
        # Dictionaries without values: an empty set needs more than three times their memory, and each run has these four.
        self._artifacts: dict[str, None] = {}
        self._stored_messages: dict[str, None] = {}
        self._new_artifacts: dict[str, None] = {}
        self._new_messages: dict[str, None] = {}

    def __call__(self, events: Sequence[LogEvent]) -> list[LogEvent]:
        """The events for the log. Each message that asks the client for something comes before its status, once.

        Raises:
            TypeError: something is no event, or holds what is no part.
            ValueError: a content cannot be written as JSON.
        """
        self._new_artifacts = {}
        self._new_messages = dict.fromkeys(event.message_id for event in events if isinstance(event, Message))
        stamped: list[LogEvent] = []
        for event in events:
            match event:
                case TaskStatusUpdateEvent():
                    status = self._status(event)
                    stamped += [*self._question(status.status), status]
                case TaskArtifactUpdateEvent():
                    stamped.append(self._artifact(event))
                case Message():
                    stamped.append(self._message(event))
                case _:
                    raise TypeError(f"an executor yields events, not {type(event).__name__}")
        return stamped

    def commit(self) -> None:
        """Keep the effects of the last call, whose events were stored."""
        self._artifacts |= self._new_artifacts
        self._stored_messages |= self._new_messages

    def _question(self, status: TaskStatus) -> list[Message]:
        message = status.message
        if (
            message is None
            or not status.state.interrupted
            or message.message_id in self._stored_messages | self._new_messages
        ):
            return []
        self._new_messages[message.message_id] = None
        return [message]

    def _message(self, message: Message) -> Message:
        parts = _checked(message.parts, "message")
        if message.metadata:
            _check_metadata(message.metadata, "message")
        ours = message.task_id == self._task_id and message.context_id == self._context_id
        if ours and message.role is Role.AGENT and parts is message.parts:
            return message
        return replace(message, role=Role.AGENT, parts=parts, task_id=self._task_id, context_id=self._context_id)

    def _status(self, event: TaskStatusUpdateEvent) -> TaskStatusUpdateEvent:
        if event.metadata:
            _check_metadata(event.metadata, "status")
        status = event.status
        if status.timestamp is not None and status.timestamp.tzinfo is None:
            raise ValueError("status.timestamp: a time zone is needed")
        message = status.message and self._message(status.message)
        ours = event.task_id == self._task_id and event.context_id == self._context_id
        if ours and message is status.message and status.timestamp is not None:
            return event
        return TaskStatusUpdateEvent(
            task_id=self._task_id,
            context_id=self._context_id,
            status=TaskStatus(state=status.state, message=message, timestamp=status.timestamp or utc_now()),
            metadata=event.metadata,
        )

    def _artifact(self, event: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent:
        if event.metadata:
            _check_metadata(event.metadata, "artifact event")
        artifact, parts = event.artifact, _checked(event.artifact.parts, "artifact")
        if artifact.metadata:
            _check_metadata(artifact.metadata, "artifact")
        if parts is not artifact.parts:
            artifact = replace(artifact, parts=parts)
        # An append to an unknown artifact is accepted from an agent and stored as a new one, as readers have nothing to append to.
        append = event.append and self._known(artifact.artifact_id)
        self._new_artifacts[artifact.artifact_id] = None
        ours = event.task_id == self._task_id and event.context_id == self._context_id
        if ours and artifact is event.artifact and append is event.append:
            return event
        return TaskArtifactUpdateEvent(
            task_id=self._task_id,
            context_id=self._context_id,
            artifact=artifact,
            append=append,
            last_chunk=event.last_chunk,
            metadata=event.metadata,
        )

    def _known(self, artifact_id: str) -> bool:
        if artifact_id in self._artifacts or artifact_id in self._new_artifacts:
            return True
        if self._earlier is not None:
            # Read once, when first needed.
            self._artifacts |= dict.fromkeys(self._earlier())
            self._earlier = None
        return artifact_id in self._artifacts


def _checked(parts: Collection[Part], where: str) -> tuple[Part, ...]:
    if not isinstance(parts, (tuple, list)):
        raise TypeError(f"{where}.parts: expected a tuple of parts, not {type(parts).__name__}")
    if not parts:
        raise ValueError(f"{where}.parts: at least one part is needed")
    for index, part in enumerate(parts):
        _check_part(part, f"{where}.parts[{index}]")
    return parts if isinstance(parts, tuple) else tuple(parts)


def _check_part(part: object, where: str) -> None:
    if isinstance(part, TextPart):
        if not isinstance(part.text, str):
            raise TypeError(f"{where}.text: expected str, not {type(part.text).__name__}")
        if not part.text.isascii():
            _check_json(part.text, f"{where}.text")
    elif isinstance(part, DataPart):
        _check_json(part.data, f"{where}.data")
    elif not isinstance(part, Part):
        raise TypeError(f"{where}: expected a part, not {type(part).__name__}")
    if part.metadata:
        _check_metadata(part.metadata, where)


def _check_metadata(metadata: Metadata, where: str) -> None:
    _check_json(dict(metadata), f"{where}.metadata")


def _check_json(value: object, where: str) -> None:
    try:
        dumps(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
