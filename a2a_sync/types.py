"""The data model of A2A 1.0 as frozen dataclasses, shared by all versions and bindings.

The objects hold data and offer read-only views (``.text``, ``.state``). Codecs handle JSON and protocol versions.
Sequences are tuples and objects are frozen, so threads share them without copies. Dictionaries inside (``metadata``,
``data``) must not be changed once they are part of an object.

As in ProtoJSON, an absent string is ``""``. ``None`` marks absence only where the protocol distinguishes absent from default
(``history_length``, ``streaming`` …).
"""

from __future__ import annotations

import enum
import json
import mimetypes
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

from a2a_sync.display import Displayed, one_line, plain_path, write_new
from a2a_sync.errors import DataPartError, InvalidParamsError, NoTaskError, VersionNotSupportedError

__all__ = [
    "Artifact",
    "AuthenticationInfo",
    "CancelTaskRequest",
    "DataPart",
    "DeleteTaskPushNotificationConfigRequest",
    "FilePart",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "JSON",
    "JSONObject",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "Message",
    "Metadata",
    "Part",
    "Reply",
    "Role",
    "SendMessageConfiguration",
    "SendMessageRequest",
    "SendMessageResponse",
    "StreamResponse",
    "SubscribeToTaskRequest",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TextPart",
    "UpdateEvent",
    "from_dict",
    "new_id",
]

JSON: TypeAlias = Any
Metadata: TypeAlias = Mapping[str, JSON]
_T = TypeVar("_T")


class _EmptyMetadata(dict[str, Any]):
    """The empty dictionary that all objects without metadata share, which saves memory in stores."""

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("metadata is read-only; pass it when the object is created")

    __setitem__ = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> Any:
        return dict, ()


#: The default of every metadata: the one empty dictionary. Without a frame of Python, as each part of each message asks for it.
_empty_metadata: Callable[[], Metadata] = repeat(_EmptyMetadata()).__next__


#: Random numbers of 64 bits that are not used yet. The system is asked for many at once, because each call releases the
#: interpreter lock, and a busy process waits up to 5 ms to get it back.
_random: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


def new_id() -> str:
    """Return a new opaque identifier without ``/``, ``:`` or ``%``, so that it fits into any path.

    A UUID that begins with the time (RFC 9562, version 7, with 12 bits for parts of a millisecond): new ids are adjacent in
    an index, so that a store with many tasks writes as fast as an empty one, and tasks of one millisecond sort in order of
    creation. The last 62 bits are random.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    moment = milliseconds << 80 | 7 << 76 | rest * 4096 // 1_000_000 << 64
    try:
        random = _random.pop()
    except IndexError:
        random, *others = memoryview(os.urandom(2048)).cast("Q")
        _random.extend(others)
    number = moment | 2 << 62 | random >> 2
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class JSONObject:
    """The base of the types of the protocol: conversion to and from JSON, in either version of the protocol."""

    __slots__ = ()

    def to_dict(self, version: str = "1.0") -> dict[str, JSON]:
        """The object in the JSON form of the protocol: names in camel case, bytes in base64, times as text.

        Parameters:
            version: ``"1.0"`` or ``"0.3"``, in the form of JSON-RPC. Members that the version does not have are omitted.

        Raises:
            ValueError: a timestamp has no time zone, or a card is written in 0.3 and has no interface of 0.3.
            VersionNotSupportedError: there is no such version, or it has no such type.
        """
        value: dict[str, JSON] = _convert_with_codec(version, lambda codec: codec.dump(self))
        return value

    def to_json(self, version: str = "1.0", *, indent: int | None = None) -> str:
        """`to_dict` as text. Parameters and errors are those of `to_dict`; `indent` is that of `json.dumps`."""
        return json.dumps(self.to_dict(version), indent=indent, ensure_ascii=False)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    @classmethod
    def from_dict(cls, value: Mapping[str, JSON], version: str = "1.0") -> Self:
        """The object of `value`, which is the result of `to_dict` or of `json.loads`.

        Raises:
            InvalidParamsError: a member is missing or invalid; the message names it.
            VersionNotSupportedError: there is no such version, or it has no such type.
        """
        found: Self = from_dict(cls, value, version)
        return found


def from_dict(cls: Any, value: Mapping[str, JSON], version: str = "1.0") -> Any:
    """As `JSONObject.from_dict`, of a class or of a union: `Part`, `StreamResponse`, `SendMessageResponse`."""
    found = _convert_with_codec(version, lambda codec: codec.load(cls, dict(value)))
    if isinstance(cls, type) and not isinstance(found, cls):
        raise InvalidParamsError(f"expected a {cls.__name__}, got a {type(found).__name__}")
    return found


def _convert_with_codec(version: str, convert: Callable[[Any], Any]) -> Any:
    # The only import of a higher layer: codecs consist of these types.
    from a2a_sync.codec import by_version

    codec = by_version(version)
    try:
        return convert(codec)
    except KeyError as unknown:
        raise VersionNotSupportedError(f"Protocol {version} has no {unknown.args[0]!r}") from None


class TaskState(enum.StrEnum):
    """The state of a task (spec 4.1.3). Codecs write the names of each protocol version.

    ``CANCELLED`` is another name of ``CANCELED``, and ``TaskState("cancelled")`` is the same state.
    """

    UNSPECIFIED = "unspecified"
    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    CANCELLED = "canceled"
    INPUT_REQUIRED = "input-required"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"

    @classmethod
    def _missing_(cls, value: object) -> TaskState | None:
        # The protocol's spelling has one L.
        if value == "cancelled":
            return cls.CANCELED
        raise ValueError(
            f"{value!r} is no state of a task; the states are {', '.join(repr(state.value) for state in cls)}"
        )

    @property
    def terminal(self) -> bool:
        """The task has ended and cannot continue."""
        return self in _TERMINAL

    @property
    def interrupted(self) -> bool:
        """The task waits for input from its client."""
        return self in _INTERRUPTED

    @property
    def paused(self) -> bool:
        """Terminal or interrupted: a blocking send returns."""
        return self in _PAUSED


_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
_PAUSED = _TERMINAL | _INTERRUPTED
#: States in which the message of the status takes precedence over artifacts.
_MESSAGE_FIRST_STATES = _INTERRUPTED | {TaskState.FAILED, TaskState.REJECTED}


class Role(enum.StrEnum):
    """The author of a message."""

    UNSPECIFIED = "unspecified"
    USER = "user"
    AGENT = "agent"


# -- parts (spec 4.1.6) -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart(JSONObject):
    """A piece of text."""

    text: str = field(kw_only=False)
    metadata: Metadata = field(default_factory=_empty_metadata)
    filename: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart(JSONObject):
    """A file: its bytes in ``raw``, or its address in ``url``; exactly one of the two.

    Check a peer's ``url`` before fetching it: it may point into your own network.
    """

    raw: bytes | None = None
    url: str | None = None
    metadata: Metadata = field(default_factory=_empty_metadata)
    filename: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        if (self.raw is None) == (self.url is None):
            raise ValueError("a FilePart has either raw bytes or a url")

    def __repr__(self) -> str:
        content = f"url={self.url!r}" if self.raw is None else f"raw=<{len(self.raw)} bytes>"
        more = [
            f"{name}={value!r}" for name in ("filename", "media_type", "metadata") if (value := getattr(self, name))
        ]
        return f"FilePart({', '.join([content, *more])})"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bytes to the file `path`, or to a new file in the folder `path`; returns the path of the file.

        In a folder, the file has the name of the part, without directories and with no characters except letters,
        digits and ``._-``.

        Raises:
            ValueError: the part has an address in place of bytes; fetch it first.
            OSError: the file cannot be written.
        """
        if self.raw is None:
            raise ValueError(f"this part has no bytes, only the address {self.url}: check it, then fetch it")
        if Path(path).is_dir():
            return write_new(plain_path(path, self.filename), self.raw)
        Path(path).write_bytes(self.raw)
        return Path(path)

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], *, media_type: str = "", metadata: Metadata | None = None
    ) -> FilePart:
        """The file at `path`, read now. The media type is guessed from the name unless it is given.

        Raises:
            OSError: the file cannot be read.
        """
        path = Path(path)
        guessed = media_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return cls(raw=path.read_bytes(), filename=path.name, media_type=guessed, metadata=metadata or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart(JSONObject):
    """A JSON value of any kind, ``None`` included."""

    data: JSON = field(kw_only=False)
    metadata: Metadata = field(default_factory=_empty_metadata)
    filename: str = ""
    media_type: str = ""

    @classmethod
    def of(cls, value: object, *, metadata: Metadata | None = None) -> DataPart:
        """A data part from a dataclass instance (or a dict, list, number …).

        Raises:
            DataPartError: the value cannot be written as JSON.
        """
        from a2a_sync.datapart import to_json

        return cls(to_json(value), metadata=metadata or {}, media_type="application/json")

    def data_as(self, cls: type[_T]) -> _T:
        """The data as an instance of your dataclass `cls`. Takes some microseconds a value: with ``async def``, call it for large data
        in a thread (`asyncio.to_thread`).

        Raises:
            DataPartError: a member is missing or of the wrong type; the message names it.
        """
        from a2a_sync.datapart import from_json

        return from_json(self.data, cls)


Part: TypeAlias = TextPart | FilePart | DataPart


def _text(parts: Iterable[Part], between: str) -> str:
    # Joining makes a list in any case, and a list is made faster than a generator is run.
    return between.join([part.text for part in parts if isinstance(part, TextPart)])


def _data(parts: Iterable[Part]) -> JSON:
    """The value of the first data part; None without one."""
    return next((part.data for part in parts if isinstance(part, DataPart)), None)


def joined_text(parts: Iterable[Part]) -> Iterator[Part]:
    """`parts` with neighbouring plain texts as one: the chunks of a stream are parts."""
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, TextPart) and not part.media_type:
            pieces.append(part.text)
            continue
        if pieces:
            yield TextPart("".join(pieces))
            pieces = []
        yield part
    if pieces:
        yield TextPart("".join(pieces))


def _save(parts: Iterable[Part], name: str, folder: str | os.PathLike[str]) -> list[Path]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for part in joined_text(parts):
        if isinstance(part, FilePart):
            if part.raw is not None:
                written.append(part.save(folder))
            continue
        text, suffix = (part.text, ".txt") if isinstance(part, TextPart) else (json.dumps(part.data, indent=2), ".json")
        path = plain_path(folder, part.filename or f"{name}{suffix}")
        written.append(write_new(path, text.encode("utf-8", "replace")))
    return written


def to_parts(content: Content) -> tuple[Part, ...]:
    """Parts from text, a part, a list of them, or a message.

    Raises:
        TypeError: `content` is or contains another type.
        ValueError: `content` is an empty list.
    """
    if isinstance(content, Message):
        return content.parts
    if isinstance(content, str):
        # Convert to plain `str`: an instance of a subclass in the task would keep its attributes alive.
        return (TextPart(str(content)),)
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, bytes | bytearray | Mapping) or not isinstance(content, Iterable):
        raise TypeError(_no_content(content))
    parts = tuple(part for item in content for part in to_parts(item))
    if not parts:
        raise ValueError("a message or artifact needs at least one part")
    return parts


def _no_content(content: object) -> str:
    kind, advice = type(content).__name__, ""
    if isinstance(content, bytes | bytearray):
        advice = "; send bytes as FilePart(raw=…)"
    elif isinstance(content, type):
        kind, advice = f"the class {content.__name__}", "; give an instance"
    elif isinstance(content, bool | int | float | Mapping):
        advice = f"; send {'a mapping' if isinstance(content, Mapping) else 'values'} as DataPart(…)"
    return f"expected text, a part or a list of parts, not {kind}{advice}"


# -- messages, artifacts, tasks (spec 4.1) ------------------------------------------------------------------------------


class Reply(Displayed, JSONObject):
    """What `Client.send` returns: the base of `Task` and `Message`, and of nothing else."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The text of the answer."""
        raise NotImplementedError(f"{type(self).__name__} is neither a Task nor a Message")

    @property
    def task(self) -> Task:
        """The task; the reply itself if it is one.

        Raises:
            NoTaskError: the agent answered with a message instead of a task.
        """
        raise NoTaskError("the agent answered with a message, which has no task; check for `Message` first")


class _WithParts:
    """What messages and artifacts have in common."""

    __slots__ = ()
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The file parts."""
        return tuple(part for part in self.parts if isinstance(part, FilePart))

    @property
    def data(self) -> JSON:
        """The value of the first data part; None without one."""
        return _data(self.parts)

    def data_as(self, cls: type[_T]) -> _T:
        """The first data part as your dataclass `cls`; raises `DataPartError`."""
        for part in self.parts:
            if isinstance(part, DataPart):
                return part.data_as(cls)
        raise DataPartError(f"{cls.__name__}: there is no data part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(_WithParts, Reply):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    message_id: str = field(default_factory=new_id)
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata = field(default_factory=_empty_metadata)
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    def __repr__(self) -> str:
        files = f", {len(self.files)} files" if self.files else ""
        return f"<Message of {self.role}: {one_line(self.text)!r}{files}>"

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        return f"Message of {self.role}", [("task", self.task_id), ("context", self.context_id)], list(self.parts)

    @property
    def text(self) -> str:
        """The text parts, joined by line breaks."""
        return _text(self.parts, "\n")


#: What a message or an artifact can be made of: text, a part, several of them, or a message.
Content: TypeAlias = str | Part | Iterable[str | Part] | Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact(_WithParts, Displayed, JSONObject):
    """A result of a task."""

    parts: tuple[Part, ...]
    artifact_id: str = field(default_factory=new_id)
    name: str = ""
    description: str = ""
    metadata: Metadata = field(default_factory=_empty_metadata)
    extensions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        files = f", {len(self.files)} files" if self.files else ""
        return f"<Artifact {self.name or self.artifact_id!r}: {one_line(self.text)!r}{files}>"

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        facts = [("description", self.description), ("id", self.artifact_id)]
        return f"Artifact {self.name or self.artifact_id}", facts, list(joined_text(self.parts))

    @property
    def text(self) -> str:
        """The text parts, joined without a separator: the chunks of a stream are parts."""
        return _text(self.parts, "")

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the files, texts and data of the artifact into `folder`, which is created; returns the paths.

        Raises:
            OSError: a file cannot be written.
        """
        return _save(self.parts, self.name or "artifact", folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus(JSONObject):
    """A state, its message, and the time of the change (an aware datetime in UTC)."""

    state: TaskState
    message: Message | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Reply):
    """A unit of work: its state, its results and its conversation, oldest message first."""

    id: str
    status: TaskStatus
    context_id: str = ""
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata = field(default_factory=_empty_metadata)

    def __repr__(self) -> str:
        artifacts = f", {len(self.artifacts)} artifacts" if len(self.artifacts) > 1 else ""
        return f"<Task {self.id} {self.state}: {one_line(self.text)!r}{artifacts}>"

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        facts = [("state", self.state), ("id", self.id), ("context", self.context_id), ("messages", len(self.history))]
        answer = self.answer_message
        return "Task", facts, [*self.artifacts, *(() if answer is None else (answer,))]

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The files of the artifacts, then those of `answer_message`."""
        return tuple(part for part in self._parts() if isinstance(part, FilePart))

    @property
    def data(self) -> JSON:
        """The value of the first data part of the artifacts, then of `answer_message`; None without one."""
        return _data(self._parts())

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the contents of all artifacts into `folder`, as `Artifact.save` does; returns the paths."""
        return [path for artifact in self.artifacts for path in artifact.save(folder)]

    def _parts(self) -> Iterator[Part]:
        for artifact in self.artifacts:
            yield from artifact.parts
        if self.answer_message is not None:
            yield from self.answer_message.parts

    @property
    def task(self) -> Task:
        """The task itself."""
        return self

    @property
    def state(self) -> TaskState:
        """The state: ``task.status.state``."""
        return self.status.state

    @property
    def text(self) -> str:
        """The text of the answer: the texts of the artifacts, one per line. Without artifacts, the text of the status
        message, or else of the agent's last message.

        Artifacts come last for tasks that are interrupted, failed or rejected. While a task is submitted or working, only
        artifacts count: its messages report progress.
        """
        artifact_text = "\n".join(text for text in (artifact.text for artifact in self.artifacts) if text)
        message_text = next((message.text for message in self._answer_messages if message.text), "")
        return (
            (message_text or artifact_text) if self.state in _MESSAGE_FIRST_STATES else (artifact_text or message_text)
        )

    @property
    def answer_message(self) -> Message | None:
        """The message with the answer of a paused task that has none in an artifact: the message of the status, else the last
        message of the agent in the history since the last one of the user. None if there is none or the task is not paused."""
        return next(iter(self._answer_messages), None)

    @property
    def _answer_messages(self) -> list[Message]:
        last = self.history[-1] if self.history and self.history[-1].role is Role.AGENT else None
        return [message for message in (self.status.message, last) if message is not None and self.state.paused]

    def artifact(self, name: str) -> Artifact:
        """The artifact with this name, or with this id.

        Raises:
            KeyError: there is none; the message lists the names or ids of the existing artifacts.
        """
        for artifact in self.artifacts:
            if name in (artifact.name, artifact.artifact_id):
                return artifact
        known = ", ".join(repr(artifact.name or artifact.artifact_id) for artifact in self.artifacts)
        raise KeyError(f"no artifact {name!r}; the task has {known or 'no artifacts'}")


# -- events (spec 4.2) --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatusUpdateEvent(JSONObject):
    """A task's status changed.

    ``final`` is the member of protocol 0.3 that marks the last event of a stream; None in 1.0, which has no such member.
    Comparisons ignore it; when the event is sent, it is derived from the state.
    """

    task_id: str = ""
    context_id: str = ""
    status: TaskStatus
    metadata: Metadata = field(default_factory=_empty_metadata)
    final: bool | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArtifactUpdateEvent(JSONObject):
    """An artifact was made or replaced (``append`` false) or extended by these parts (``append`` true)."""

    task_id: str = ""
    context_id: str = ""
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata = field(default_factory=_empty_metadata)


UpdateEvent: TypeAlias = TaskStatusUpdateEvent | TaskArtifactUpdateEvent
#: What travels on a stream (spec: StreamResponse).
StreamResponse: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
#: What a send answers with (spec: SendMessageResponse).
SendMessageResponse: TypeAlias = Task | Message


# -- push configuration (spec 4.3) --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationInfo(JSONObject):
    """How the agent authenticates itself to a webhook: an HTTP scheme and its credentials.

    Protocol 0.3 has a list of schemes. The first is ``scheme``, which is what deliveries use; ``other_schemes`` are the rest,
    which protocol 1.0 cannot carry.
    """

    scheme: str
    credentials: str = field(default="", repr=False)
    other_schemes: tuple[str, ...] = ()


#: Metadata of a disabled webhook: the reason.
WEBHOOK_DISABLED = "urn:a2a-sync:push:disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPushNotificationConfig(JSONObject):
    """A webhook of a task. ``metadata`` is set by the agent; the protocol has no such member."""

    url: str
    id: str = ""
    task_id: str = ""
    tenant: str = ""
    token: str = field(default="", repr=False)
    authentication: AuthenticationInfo | None = None
    metadata: Metadata = field(default_factory=_empty_metadata)

    def __repr__(self) -> str:
        # Paths and queries of webhooks are often secrets.
        origin = "/".join(self.url.split("/", 3)[:3]).rpartition("@")[2].partition("?")[0]
        return f"TaskPushNotificationConfig(id={self.id!r}, task_id={self.task_id!r}, receiver={origin!r})"

    @property
    def disabled(self) -> str:
        """The reason why the agent disabled the webhook, until it is set again; empty if it is active. Set by agents of this library."""
        return str(self.metadata.get(WEBHOOK_DISABLED, ""))


# -- requests and responses (spec 3.2, 9.4) -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageConfiguration(JSONObject):
    """Options for the answer to a send."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request(JSONObject):
    """What each request has."""

    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequest(_Request):
    """SendMessage and SendStreamingMessage."""

    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Metadata = field(default_factory=_empty_metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTaskRequest(_Request):
    """GetTask."""

    id: str
    history_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasksRequest(_Request):
    """ListTasks."""

    context_id: str = ""
    status: TaskState = TaskState.UNSPECIFIED
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: datetime | None = None
    include_artifacts: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasksResponse(JSONObject):
    """A page of tasks, newest status first; ``total_size`` counts all matching tasks."""

    tasks: tuple[Task, ...] = ()
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTaskRequest(_Request):
    """CancelTask."""

    id: str
    metadata: Metadata = field(default_factory=_empty_metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeToTaskRequest(_Request):
    """SubscribeToTask."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTaskPushNotificationConfigRequest(_Request):
    """GetTaskPushNotificationConfig. An empty ``id``, which only protocol 0.3 allows, means the first webhook of the task."""

    task_id: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTaskPushNotificationConfigsRequest(_Request):
    """ListTaskPushNotificationConfigs."""

    task_id: str
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTaskPushNotificationConfigsResponse(JSONObject):
    """The webhooks of a task."""

    configs: tuple[TaskPushNotificationConfig, ...] = ()
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTaskPushNotificationConfigRequest(_Request):
    """DeleteTaskPushNotificationConfig."""

    task_id: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExtendedAgentCardRequest(_Request):
    """GetExtendedAgentCard."""
