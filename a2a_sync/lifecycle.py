"""A task is a log: which entries are legal, and what they add up to.

Everything that affects a task's state is in this module, which uses no clocks, ids, IO or locks. `check` is strict and guards
what a server writes; `Fold` is lenient and reads whatever a server sent. The same fold serves the stores, over their own log,
and the client, over the stream of a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_sync.errors import A2AError
from a2a_sync.types import (
    JSON,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

__all__ = [
    "ArtifactFold",
    "Entry",
    "IllegalTransition",
    "LogEvent",
]

#: The status of a task without status events.
NO_STATUS: Final = TaskStatus(state=TaskState.UNSPECIFIED)
#: What a log entry can hold. Messages build the history and are not streamed; the other two are.
LogEvent: TypeAlias = Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Undecoded:
    """An object that may decode its ``event`` when that is first used, with the function ``_decode``."""

    __slots__ = ("_decode",)
    _decode: Callable[[], Any]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name != "event":
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            # Two threads at once make two equal events.
            event = self.event = self._decode()
            return event


@dataclass(slots=True)
class Entry(Undecoded):
    """One numbered entry of a task's log.

    ``encoded`` caches the event's bytes per protocol version: an entry is encoded once, however many read it.
    ``at_ms`` is when it was stored, in milliseconds since 1970; 0 where the store does not know. ``size`` is about how many bytes
    of JSON the event makes; 0 until the size is needed. An entry that a store has read decodes its event when that is first used:
    streams need few of them.
    """

    number: int
    event: LogEvent
    encoded: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    at_ms: int = field(default=0, repr=False, compare=False)
    size: int = field(default=0, repr=False, compare=False)
    #: Of an event that is not decoded.
    _kind: type[LogEvent] | None = field(default=None, init=False, repr=False, compare=False)
    _role: Role | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def read(
        cls,
        number: int,
        kind: type[LogEvent],
        decode: Callable[[], LogEvent],
        encoded: dict[str, bytes],
        at_ms: int,
        *,
        size: int,
        role: Role | None = None,
    ) -> Entry:
        """An entry of a store, without its event.

        Parameters:
            number, encoded, at_ms, size: as in the class.
            kind: the type of the event.
            decode: returns the event.
            role: that of a message, None where it is not known.
        """
        entry = cls.__new__(cls)
        entry.number, entry.encoded, entry.at_ms, entry.size = number, encoded, at_ms, size
        entry._kind, entry._role, entry._decode = kind, role, decode
        return entry

    @property
    def kind(self) -> type[LogEvent]:
        """The type of the event."""
        return self._kind or type(self.event)

    @property
    def role(self) -> Role | None:
        """The role of a message; None of other events."""
        if self._role is None and not self.streamed and isinstance(self.event, Message):
            return self.event.role
        return self._role

    @property
    def streamed(self) -> bool:
        """The entry is part of streams (spec 3.1.2: a task's stream has no messages)."""
        return not issubclass(self.kind, Message)


class IllegalTransition(A2AError, ValueError):
    """An entry that the task's state does not allow."""


_ANY_OPEN = frozenset(TaskState) - {TaskState.UNSPECIFIED, TaskState.SUBMITTED}

#: From each state, the states a status event may lead to. Terminal states lead nowhere (spec 3.1.6, 5.3).
TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.UNSPECIFIED: frozenset({TaskState.SUBMITTED}),
    TaskState.SUBMITTED: _ANY_OPEN,
    TaskState.WORKING: _ANY_OPEN,
    TaskState.INPUT_REQUIRED: _ANY_OPEN,
    TaskState.AUTH_REQUIRED: _ANY_OPEN,
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.REJECTED: frozenset(),
}


#: The states that end a run, and those at which a blocked send returns.
_ENDS_RUN = frozenset(state for state in TaskState if state.terminal) | {TaskState.INPUT_REQUIRED}
_PAUSES = frozenset(state for state in TaskState if state.paused)


def check(state: TaskState, events: Iterable[LogEvent]) -> TaskState:
    """Check `events` one after the other against a task in `state`; the state they lead to.

    Raises:
        IllegalTransition: an event is not allowed; none of them may be stored.
    """
    for event in events:
        if not (allowed := TRANSITIONS[state]):
            raise IllegalTransition(f"the task is {state}; nothing can follow")
        if isinstance(event, TaskStatusUpdateEvent):
            if event.status.state not in allowed:
                raise IllegalTransition(f"a task cannot go from {state} to {event.status.state}")
            state = event.status.state
        elif isinstance(event, TaskArtifactUpdateEvent) and not event.artifact.parts:
            raise IllegalTransition("an artifact needs at least one part")
    return state


def ends_run(event: LogEvent) -> bool:
    """The entry ends its run, whatever wrote it: a terminal state, or a question to the client."""
    return isinstance(event, TaskStatusUpdateEvent) and event.status.state in _ENDS_RUN


def end_run(events: Sequence[LogEvent]) -> bool:
    """The last of `events` ends their run.

    Raises:
        IllegalTransition: an earlier one does.
    """
    for place, event in enumerate(events, 1):
        if isinstance(event, TaskStatusUpdateEvent) and event.status.state in _ENDS_RUN:
            if place < len(events):
                raise IllegalTransition("nothing can follow an event that ends the run")
            return True
    return False


def pauses(event: LogEvent) -> bool:
    """A blocked send returns at this entry."""
    return isinstance(event, TaskStatusUpdateEvent) and event.status.state in _PAUSES


def _is_end_marker(event: TaskArtifactUpdateEvent) -> bool:
    """An appended last chunk of one empty text: it says "complete" and adds nothing (parts may not be empty)."""
    parts = event.artifact.parts
    return event.last_chunk and len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].text


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts, neighbouring texts that differ in nothing else as one. What is sent in pieces has a part for each piece."""
    whole: list[Part] = []
    for _, group in groupby(parts, _text_kind):
        first, *others = group
        if isinstance(first, TextPart) and others:
            texts = (part.text for part in (first, *others) if isinstance(part, TextPart))
            whole.append(replace(first, text="".join(texts)))
        else:
            whole += [first, *others]
    return tuple(whole)


def _text_kind(part: Part) -> object:
    return (part.media_type, part.filename, part.metadata) if isinstance(part, TextPart) else None


class _GrowingArtifact:
    """An artifact to which chunks are appended. Its parts, metadata and extensions grow in place: n chunks cost n steps."""

    __slots__ = ("_extensions", "_head", "_metadata", "_parts")

    def __init__(self, head: Artifact) -> None:
        #: Holds what no chunk has added to.
        self._head = head
        self._parts: list[Part] = list(head.parts)
        self._metadata: dict[str, JSON] | None = None
        self._extensions: dict[str, None] | None = None

    def append(self, event: TaskArtifactUpdateEvent) -> None:
        """Add what a chunk has."""
        new, head = event.artifact, self._head
        if not _is_end_marker(event):
            self._parts.extend(new.parts)
        if new.name or new.description:
            self._head = replace(head, name=new.name or head.name, description=new.description or head.description)
        if new.metadata:
            if self._metadata is None:
                self._metadata = dict(head.metadata)
            self._metadata.update(new.metadata)
        if new.extensions:
            if self._extensions is None:
                self._extensions = dict.fromkeys(head.extensions)
            self._extensions.update(dict.fromkeys(new.extensions))

    def artifact(self) -> Artifact:
        """The artifact so far, which later chunks do not change."""
        head, metadata, extensions = self._head, self._metadata, self._extensions
        if len(head.parts) == len(self._parts) and metadata is None and extensions is None:
            return head
        return replace(
            head,
            parts=tuple(self._parts),
            metadata=head.metadata if metadata is None else dict(metadata),
            extensions=head.extensions if extensions is None else tuple(extensions),
        )


class ArtifactFold:
    """Artifacts in the order of their first appearance."""

    __slots__ = ("_artifacts",)

    def __init__(self, artifacts: Iterable[Artifact] = ()) -> None:
        self._artifacts: dict[str, _GrowingArtifact] = {}
        for artifact in artifacts:
            self._artifacts[artifact.artifact_id] = _GrowingArtifact(artifact)

    def apply(self, event: TaskArtifactUpdateEvent) -> None:
        """Make, replace or extend an artifact. An append to an unknown id makes it (lenient)."""
        new = event.artifact
        known = self._artifacts.get(new.artifact_id) if event.append else None
        if known is None:
            self._artifacts[new.artifact_id] = _GrowingArtifact(new)
        else:
            known.append(event)

    def __contains__(self, artifact_id: str) -> bool:
        return artifact_id in self._artifacts

    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts so far."""
        return tuple([growing.artifact() for growing in self._artifacts.values()])


class Fold:
    """What a task looks like after a sequence of snapshots and events. Lenient: it never refuses."""

    __slots__ = ("_artifacts", "_context_id", "_handed_out", "_history", "_id", "_known", "_metadata", "_status")

    def __init__(self, task: Task | None = None) -> None:
        self._id = self._context_id = ""
        self._status = NO_STATUS
        self._artifacts = ArtifactFold()
        self._history: list[Message] = []
        self._metadata: dict[str, object] = {}
        #: A task that was returned refers to `_metadata`.
        self._handed_out = False
        self._known = False
        if task is not None:
            self.apply(task)

    def apply(self, event: Task | LogEvent) -> None:
        """Take one more event; a Task replaces all that was known."""
        match event:
            case Task():
                self._id, self._context_id = event.id, event.context_id
                self._status = event.status
                self._artifacts = ArtifactFold(event.artifacts)
                self._history = list(event.history)
                self._metadata, self._handed_out = dict(event.metadata), False
                self._known = True
            case Message():
                self._history.append(event)
            case TaskStatusUpdateEvent():
                if not (self._id and self._context_id):
                    self._name(event)
                self._status = event.status
                if event.metadata:
                    if self._handed_out:
                        self._metadata, self._handed_out = dict(self._metadata), False
                    self._metadata.update(event.metadata)
            case TaskArtifactUpdateEvent():
                if not (self._id and self._context_id):
                    self._name(event)
                self._artifacts.apply(event)

    def _name(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        self._id = self._id or event.task_id
        self._context_id = self._context_id or event.context_id
        self._known = True

    def task(self) -> Task | None:
        """The task so far; None while nothing has named one."""
        if not self._known:
            return None
        self._handed_out = True
        return Task(
            id=self._id,
            context_id=self._context_id,
            status=self._status,
            artifacts=self._artifacts.artifacts(),
            history=tuple(self._history),
            metadata=self._metadata,
        )
