"""What the pages show of a task: its log in order, as a conversation, as rows, and as bands of states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from a2a_sync.agent.dialogue import MARK
from a2a_sync.codec import by_version
from a2a_sync.console.values import indent_json
from a2a_sync.lifecycle import ArtifactFold, Entry, joined
from a2a_sync.stores.base import LOG_PAGE_BYTES, SMALL_BYTES, LargeResult, Owner, StoredTask, TaskStore, time_ms
from a2a_sync.types import (
    Artifact,
    FilePart,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
)

#: Entries that are read for the order of a conversation and for the bands; artifacts after them come at its end.
MAX_ENTRIES = 10_000
#: The number of the last entry that is stored when a task is created.
_FIRST_STATES = 3
#: Marks of entries on an axis of time.
MAX_TICKS = 400
#: Rows of a page of the log.
ROWS = 200
#: Characters of an entry that are shown.
_MAX_SHOWN = 20_000
#: The codec in which entries are shown.
_CODEC = by_version("1.0")


@dataclass(frozen=True, slots=True)
class Turn:
    """One bubble of a conversation: a message, or an artifact."""

    kind: str
    id: str
    mine: bool
    parts: tuple[Part, ...]
    name: str = ""
    description: str = ""


class Band(NamedTuple):
    """The entries from `first` to `last`, during which the task was in `state`."""

    state: TaskState
    first: int
    last: int


class Clock(NamedTuple):
    """The entries of a log on an axis of time, whose ends are 0 and 1.

    `bands` are a state, where it begins, how much of the axis it has, and its seconds. `begin_ms` is since 1970.
    """

    begin_ms: int
    length_ms: int
    bands: list[tuple[TaskState, float, float, float]]
    ticks: list[float]

    @property
    def begin(self) -> str:
        """The time of day (UTC) of the first entry."""
        return _clock(self.begin_ms)

    @property
    def end(self) -> str:
        """The time of day (UTC) of the last entry."""
        return _clock(self.begin_ms + self.length_ms)


@dataclass(frozen=True, slots=True)
class Record:
    """A task at one version: as a whole, as a conversation, and as bands."""

    task: Task
    version: int
    running: bool
    turns: list[Turn]
    bands: list[Band]
    options: list[str] = field(default_factory=list)
    clock: Clock | None = None

    @property
    def title(self) -> str:
        """The first text of the user."""
        texts = (message.text for message in self.task.history if message.role is Role.USER)
        first = " ".join(next(texts, "").split())
        return first[:120] + ("…" if len(first) > 120 else "") or "A task without text"


#: Reserves bytes for a large task, or raises `OverloadedError`.
Reserve: TypeAlias = Callable[[int], None]


def load_task(store: TaskStore, owner: Owner, task_id: str, reserve: Reserve, history: int | None = None) -> StoredTask:
    """The task as it is now; bytes are reserved for it before it is read, if it is large.

    Raises:
        TaskNotFoundError: the owner does not have it.
        OverloadedError: too many large tasks are read at once.
    """
    try:
        return store.load(owner, task_id, history=history, refuse_above=SMALL_BYTES)
    except LargeResult as large:
        reserve(large.size)
        return store.load(owner, task_id, history=history)


def read_record(store: TaskStore, owner: Owner, task_id: str, reserve: Reserve) -> Record:
    """The task as it is now. Raises as `load_task`."""
    stored = load_task(store, owner, task_id, reserve)
    turns: list[Turn] = []
    bands: list[Band] = []
    times: dict[int, int] = {}
    artifacts = {one.artifact_id: one for one in stored.task.artifacts}
    # What was streamed is also a message of the history; it is shown once.
    contents = {_content(one.parts) for one in stored.task.artifacts}
    shown = {
        one.message_id for one in stored.task.history if one.role is Role.AGENT and _content(one.parts) in contents
    }
    for entry in read_log(store, owner, task_id, upto=stored.version):
        event = entry.event
        times[entry.number] = entry.at_ms
        if isinstance(event, Message):
            _add_message(turns, shown, event)
        elif isinstance(event, TaskArtifactUpdateEvent):
            artifact = artifacts.pop(event.artifact.artifact_id, None)
            if artifact is not None:
                turns.append(_artifact_turn(artifact))
        else:
            if event.status.message is not None:
                _add_message(turns, shown, event.status.message)
            bands.append(Band(event.status.state, entry.number, stored.version))
            if entry.number <= _FIRST_STATES:
                times |= _accepted(times, event.status, entry.number)
    for message in stored.task.history:
        _add_message(turns, shown, message)
    turns += map(_artifact_turn, artifacts.values())
    if stored.task.status.message is not None:
        _add_message(turns, shown, stored.task.status.message)
    merged = _merge(bands, stored.task.state)
    options = _options(stored.task)
    return Record(stored.task, stored.version, stored.running, turns, merged, options, _clock_of(merged, times))


def _accepted(times: dict[int, int], status: TaskStatus, number: int) -> dict[int, int]:
    """The times of the first entries up to `number`: their states have the time of the message, and may be stored later."""
    at_ms = min(times[number], time_ms(status.timestamp) or times[number])
    return {earlier: min(at, at_ms) for earlier, at in times.items()} | {number: at_ms}


def read_log(store: TaskStore, owner: Owner, task_id: str, *, upto: int) -> Iterator[Entry]:
    """The first entries of a log, up to a number, and at most `MAX_ENTRIES`."""
    after = 0
    while after < min(upto, MAX_ENTRIES):
        page = store.log(owner, task_id, after=after, max_bytes=LOG_PAGE_BYTES)
        for entry in page.entries:
            if entry.number > upto:
                return
            yield entry
        if not page.entries:
            return
        after = page.entries[-1].number


def _add_message(turns: list[Turn], shown: set[str], message: Message) -> None:
    if message.message_id not in shown:
        shown.add(message.message_id)
        turns.append(Turn("message", message.message_id, message.role is Role.USER, joined(message.parts)))


def _content(parts: tuple[Part, ...]) -> tuple[object, ...]:
    """What parts hold, as a key: a task may have very many messages and artifacts."""
    return tuple(
        (*(getattr(part, name, None) for name in ("text", "raw", "url")), repr(getattr(part, "data", None)))
        for part in joined(parts)
    )


def _artifact_turn(artifact: Artifact) -> Turn:
    return Turn("artifact", artifact.artifact_id, False, joined(artifact.parts), artifact.name, artifact.description)


def _merge(bands: list[Band], state: TaskState) -> list[Band]:
    """One band for each change of the state, without gaps. `state` where nothing is left of the log."""
    merged: list[Band] = []
    for band in bands:
        if merged and merged[-1].state is band.state:
            continue
        if merged:
            merged[-1] = merged[-1]._replace(last=band.first - 1)
        merged.append(band if merged else band._replace(first=1))
    return merged or [Band(state, 1, 1)]


def _clock_of(bands: list[Band], times: dict[int, int]) -> Clock | None:
    """The axis of time; None where times are unknown, or where all entries have the same."""
    known = {number: at for number, at in times.items() if at}
    if not known or len(known) < len(times) or max(known.values()) <= min(known.values()):
        return None
    begin, length = min(known.values()), max(known.values()) - min(known.values())
    starts = [(band.state, known[band.first] - begin) for band in bands if band.first in known]
    ends = [*(at for _, at in starts[1:]), length]
    placed = [
        (state, at / length, (end - at) / length, (end - at) / 1000)
        for (state, at), end in zip(starts, ends, strict=True)
    ]
    every = max(1, len(known) // MAX_TICKS)
    return Clock(begin, length, placed, [(at - begin) / length for at in list(known.values())[::every]])


def _options(task: Task) -> list[str]:
    """The options of the question that the task waits for."""
    if task.state is not TaskState.INPUT_REQUIRED or task.status.message is None:
        return []
    mark = task.status.message.metadata.get(MARK)
    options = mark.get("options") if isinstance(mark, dict) else None
    return [one for one in options if isinstance(one, str)][:20] if isinstance(options, list) else []


def find_part(
    store: TaskStore, owner: Owner, task_id: str, kind: str, item: str, place: int, reserve: Reserve
) -> FilePart | None:
    """A file of an artifact or a message of the task. Raises as `load_task`."""
    if kind == "artifact":
        fold = ArtifactFold(load_task(store, owner, task_id, reserve, history=0).task.artifacts)
        parts = next((joined(one.parts) for one in fold.artifacts() if one.artifact_id == item), ())
    else:
        turns = read_record(store, owner, task_id, reserve).turns
        parts = next((one.parts for one in turns if one.kind == "message" and one.id == item), ())
    found = parts[place] if 0 <= place < len(parts) else None
    return found if isinstance(found, FilePart) and found.raw is not None else None


def row_of(entry: Entry) -> dict[str, Any]:
    """An entry as a row of the log: what it is, its size, and its JSON."""
    event = entry.event
    row: dict[str, Any] = {"n": entry.number, "state": "", "time": _clock(entry.at_ms), "artifact": "", "text": ""}
    body = encode_entry(entry)
    if isinstance(event, Message):
        row["kind"] = "message"
    elif isinstance(event, TaskArtifactUpdateEvent):
        row |= {"kind": "artifact", "artifact": event.artifact.artifact_id}
        if event.append and all(isinstance(part, TextPart) for part in event.artifact.parts):
            row["text"] = event.artifact.text
    else:
        row |= {"kind": "status", "state": str(event.status.state)}
    return row | {"size": len(body), "json": indent_json(body, _MAX_SHOWN)}


def _clock(at_ms: int) -> str:
    """A time of day (UTC) with milliseconds; ``""`` where the time is unknown."""
    return f"{time.strftime('%H:%M:%S', time.gmtime(at_ms / 1000))}.{at_ms % 1000:03}" if at_ms else ""


def encode_entry(entry: Entry) -> bytes:
    """The event of an entry as JSON of protocol 1.0."""
    return _CODEC.encode_item(entry)
