"""`Mapper`: converts the events of a framework's run (start, message delta, tool result …) to events of a task.

The names for runs are those of agent frameworks, not of the protocol. A mapper belongs to one task and is used by one
thread; it neither stores nor sends anything.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from a2a_sync.engine.stamp import utc_now
from a2a_sync.lifecycle import Fold, IllegalTransition
from a2a_sync.types import (
    JSON,
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    UpdateEvent,
    new_id,
)

__all__ = [
    "Mapper",
    "RunEvent",
    "RunEventType",
    "ToolCall",
    "ToolResult",
]


class RunEventType(enum.StrEnum):
    """The types of events of a run. Events of other types are ignored."""

    RUN_START = "run_start"
    RUN_END = "run_end"
    RUN_ERROR = "run_error"
    MESSAGE_START = "message_start"
    MESSAGE_DELTA = "message_delta"
    MESSAGE_END = "message_end"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_ARGS = "tool_call_args"
    TOOL_CALL_END = "tool_call_end"
    TOOL_CALL_RESULT = "tool_call_result"
    STEP_START = "step_start"
    STEP_END = "step_end"
    STEP_SKIPPED = "step_skipped"
    PARALLEL_START = "parallel_start"
    PARALLEL_END = "parallel_end"
    ROUTE_SELECTED = "route_selected"
    LOOP_ITERATION = "loop_iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool, with its arguments as JSON text or as the decoded value."""

    id: str = ""
    name: str = ""
    arguments: JSON = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call."""

    tool_call_id: str = ""
    content: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event of a run.

    Parameters:
        type: a `RunEventType`, or another string.
        message_id: the framework's id of the message that begins, continues or ends.
        delta: the next chunk of the text of the message.
        tool_call, tool_result: the call and the result in events of tools.
        error: the reason why the run failed. Its text is shown to the client.
    """

    type: str = field(kw_only=False)
    message_id: str = ""
    delta: str = ""
    tool_call: ToolCall | None = None
    tool_result: ToolResult | None = None
    error: BaseException | str | None = None


class Mapper:
    """Converts the events of a run to those of one task, and accumulates them. To be used on one thread at a time.

    Ids that are not given are generated.
    """

    def __init__(self, task_id: str = "", context_id: str = "") -> None:
        self.task_id: str = task_id or new_id()
        self.context_id: str = context_id or new_id()
        self._state = TaskState.SUBMITTED
        self._depth = 0
        self._fold = Fold()
        self._said: list[Message] = []
        self._pieces: list[str] = []

    @property
    def state(self) -> TaskState:
        """The state of the last status event; ``submitted`` at first."""
        return self._state

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages of the run except the last one, oldest first."""
        return tuple(self._said)

    # -- events, one by one --

    def status_update(self, state: TaskState, message: Message | str | None = None) -> TaskStatusUpdateEvent:
        """The event that sets the state of the task.

        Raises:
            IllegalTransition: the task has ended already.
        """
        if self._state.terminal:
            raise IllegalTransition(f"the task is {self._state}; nothing can follow")
        self._state = state
        status = TaskStatus(state=state, message=self._message(message), timestamp=utc_now())
        event = TaskStatusUpdateEvent(task_id=self.task_id, context_id=self.context_id, status=status)
        self._fold.apply(event)
        return event

    def artifact_update(self, artifact: Artifact) -> TaskArtifactUpdateEvent:
        """The event that adds a complete artifact to the task."""
        event = TaskArtifactUpdateEvent(
            task_id=self.task_id, context_id=self.context_id, artifact=artifact, last_chunk=True
        )
        self._fold.apply(event)
        return event

    def submitted(self) -> TaskStatusUpdateEvent:
        """The event of a task that was accepted."""
        return self.status_update(TaskState.SUBMITTED)

    def working(self) -> TaskStatusUpdateEvent:
        """The event of a run that has begun."""
        return self.status_update(TaskState.WORKING)

    def input_required(self, prompt: Message | str) -> TaskStatusUpdateEvent:
        """The event that asks the client for input. It ends the run of the task, not the task."""
        return self.status_update(TaskState.INPUT_REQUIRED, prompt)

    def completed(self, message: Message | str | None = None) -> TaskStatusUpdateEvent:
        """The event of a task that has succeeded."""
        return self.status_update(TaskState.COMPLETED, message)

    def failed(self, message: Message | str) -> TaskStatusUpdateEvent:
        """The event of a task that has failed; `message` is the reason, which is shown to the client."""
        return self.status_update(TaskState.FAILED, message)

    def canceled(self) -> TaskStatusUpdateEvent:
        """The event of a task that was canceled."""
        return self.status_update(TaskState.CANCELED)

    # -- a run --

    def map_event(self, event: RunEvent) -> UpdateEvent | None:
        """The event of the task for `event`; None for most of them.

        The start of the outermost run becomes ``working``, its end ``completed`` with the last message of the run. An
        error of any run becomes ``failed``, and later events are ignored. The result of a tool becomes an artifact
        named after the tool.
        """
        if self._state.terminal:
            return None
        match event.type:
            case RunEventType.RUN_START:
                self._depth += 1
                return self.working() if self._depth == 1 else None
            case RunEventType.RUN_END:
                ends = self._depth == 1
                self._depth = max(self._depth - 1, 0)
                return self.completed(self.pending()) if ends else None
            case RunEventType.RUN_ERROR:
                return self.failed(str(event.error or "") or "unknown error")
            case RunEventType.MESSAGE_START:
                self._begin_message()
            case RunEventType.MESSAGE_DELTA:
                self._pieces.append(event.delta)
            case RunEventType.TOOL_CALL_RESULT if event.tool_result is not None:
                return self.artifact_update(_artifact(event.tool_call, event.tool_result))
        return None

    def map_stream(self, events: Iterable[RunEvent]) -> Iterator[UpdateEvent]:
        """The events of the task for all `events`, in order."""
        for event in events:
            mapped = self.map_event(event)
            if mapped is not None:
                yield mapped

    def pending(self) -> Message | None:
        """The last message of the run so far; None if there is none."""
        text = "".join(self._pieces)
        return self._text_message(text) if text else None

    def _begin_message(self) -> None:
        before = self.pending()
        if before is not None:
            self._said.append(before)
        self._pieces = []

    # -- what they add up to --

    def create_task(self, history: Iterable[Message] = ()) -> Task:
        """The task as it is after all events so far."""
        task = self._fold.task() or Task(id=self.task_id, status=TaskStatus(state=self._state, timestamp=utc_now()))
        return replace(
            task, id=self.task_id, context_id=self.context_id, status=self._status(task), history=tuple(history)
        )

    def _status(self, task: Task) -> TaskStatus:
        # Artifacts may precede the first status.
        return task.status if task.status.state is self._state else TaskStatus(state=self._state, timestamp=utc_now())

    def complete(self, artifacts: Iterable[Artifact] = (), history: Iterable[Message] = ()) -> Task:
        """The ended task, with `artifacts` in addition to those of the run.

        Unless it has ended already, it is completed with the last message of the run.
        """
        for artifact in artifacts:
            self.artifact_update(artifact)
        if not self._state.terminal:
            self.completed(self.pending())
        return self.create_task(history)

    def _message(self, message: Message | str | None) -> Message | None:
        if not isinstance(message, Message):
            return None if message is None else self._text_message(message)
        return replace(message, role=Role.AGENT, task_id=self.task_id, context_id=self.context_id)

    def _text_message(self, text: str) -> Message:
        return Message(role=Role.AGENT, parts=(TextPart(text),), task_id=self.task_id, context_id=self.context_id)


def _artifact(call: ToolCall | None, result: ToolResult) -> Artifact:
    call = call or ToolCall(id=result.tool_call_id)
    about = {
        "tool_call_id": call.id or result.tool_call_id,
        "tool_name": call.name,
        "is_error": result.is_error,
    }
    parts = (TextPart(result.content),)
    return Artifact(name=call.name or "tool", description="Tool execution result", parts=parts, metadata=about)
