"""Print an answer as it arrives: results to standard output, progress to standard error."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import click

from a2a_sync import (
    Artifact,
    DataPart,
    FilePart,
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
from a2a_sync.cli.text import clean_json, print_status, rich_console
from a2a_sync.display import clean
from a2a_sync.lifecycle import joined
from a2a_sync.types import StreamResponse


def artifact_heading(title: str, media_type: str) -> str:
    """The heading of an artifact."""
    return f"artifact {title}" + (f" ({media_type})" if media_type else "")


def _is_markdown(part: Part) -> bool:
    return isinstance(part, TextPart) and part.media_type.partition(";")[0].strip() == "text/markdown"


def _added(old: tuple[Part, ...], new: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """What `new` adds to the end of `old`; None if it changes something else."""
    if not old or len(new) < len(old) or old[:-1] != new[: len(old) - 1]:
        return None
    last, same = old[-1], new[len(old) - 1]
    rest = new[len(old) :]
    if last == same:
        return rest
    if not (isinstance(last, TextPart) and isinstance(same, TextPart) and same.text.startswith(last.text)):
        return None
    if replace(same, text=last.text) != last:
        return None
    return (replace(same, text=same.text[len(last.text) :]), *rest)


class Transcript:
    """Prints one exchange. `data`: print data parts too (unless they are saved).

    `show_event` may be called with every event of a stream, or never: `finish` prints what was not printed yet.
    """

    def __init__(self, *, data: bool = True) -> None:
        self._began = time.monotonic()
        self._data = data
        self._printed: dict[str, int] = {}
        self._parts: dict[str, list[Part]] = {}
        self._current = ""
        self._state = TaskState.UNSPECIFIED
        #: A line of text is open.
        self.mid_line: bool = False

    def show_event(self, event: StreamResponse) -> None:
        """Print the new content of `event`."""
        match event:
            case Task():
                self._print_state(event.status)
                self._forget_artifacts_without(event)
                self._print_artifacts(event)
            case TaskStatusUpdateEvent():
                self._print_state(event.status)
            case TaskArtifactUpdateEvent():
                self._print_update(event)

    def finish(self, answer: Task | Message) -> None:
        """Print the rest of the answer and the final state."""
        if isinstance(answer, Message):
            self._print_message(answer)
            return
        self._print_artifacts(answer)
        self.end_line()
        message = answer.answer_message
        if answer.state.interrupted or (answer.state is TaskState.COMPLETED and not self._printed):
            if message is not None:
                self._print_message(message)
        elif answer.state is TaskState.COMPLETED:
            if answer.text and not any(artifact.text for artifact in answer.artifacts):
                self._print_message(Message(role=Role.AGENT, parts=(TextPart(answer.text),)))
        elif message is not None and message.text:
            print_status(f"{answer.state}: {message.text}", error=True)
        print_status(f"[{self._elapsed()}] {answer.state}, task {answer.id}", dim=True)

    # -- status --

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.2f} s"

    def _print_state(self, status: TaskStatus) -> None:
        text = status.message.text if status.message is not None else ""
        changed, self._state = status.state is not self._state, status.state
        if status.state.paused or not (text or changed):
            return
        self.end_line()
        print_status(f"[{self._elapsed()}] {status.state}" + (f": {text}" if text else ""), dim=True)

    # -- artifacts --

    def _print_update(self, event: TaskArtifactUpdateEvent) -> None:
        artifact = event.artifact
        parts: tuple[Part, ...] | None = artifact.parts
        if not event.append:
            parts = _added(joined(self._parts.get(artifact.artifact_id, ())), joined(artifact.parts))
            if parts is None:
                self._discard_printed(artifact)
                parts = artifact.parts
        if parts:
            self._print_parts(artifact, parts)
        if event.last_chunk:
            self._parts.pop(artifact.artifact_id, None)

    def _discard_printed(self, artifact: Artifact) -> None:
        self._parts.pop(artifact.artifact_id, None)
        if self._printed.pop(artifact.artifact_id, 0):
            self.end_line()
            print_status(f"artifact {artifact.name or artifact.artifact_id} is replaced", dim=True)
        self._current = ""

    def _forget_artifacts_without(self, task: Task) -> None:
        """Forget the artifacts that this snapshot does not have: an agent can send ever new ones."""
        for artifact_id in self._printed.keys() - {artifact.artifact_id for artifact in task.artifacts}:
            del self._printed[artifact_id]
            self._parts.pop(artifact_id, None)
            if artifact_id == self._current:
                self._current = ""

    def _print_artifacts(self, task: Task) -> None:
        for artifact in task.artifacts:
            if artifact.artifact_id not in self._printed:
                if not self._print_as_page(artifact):
                    self._print_parts(artifact, artifact.parts)
            elif missed := artifact.text[self._printed[artifact.artifact_id] :]:
                self._print_parts(artifact, (TextPart(missed),))

    def _print_parts(self, artifact: Artifact, parts: tuple[Part, ...]) -> None:
        if artifact.artifact_id != self._current:
            self.end_line()
            self._current = artifact.artifact_id
            known = artifact.artifact_id in self._printed
            self._printed.setdefault(artifact.artifact_id, 0)
            if artifact.name or known:
                print_status(
                    artifact_heading(artifact.name or artifact.artifact_id, parts[0].media_type if parts else ""),
                    dim=True,
                )
        self._parts.setdefault(artifact.artifact_id, []).extend(parts)
        for part in parts:
            if isinstance(part, TextPart):
                self._printed[artifact.artifact_id] += len(part.text)
            self._print_part(part)

    def _print_as_page(self, artifact: Artifact) -> bool:
        """Print a whole Markdown text as a page, on a terminal with rich installed."""
        if not artifact.parts or not all(_is_markdown(part) for part in artifact.parts):
            return False
        console = rich_console()
        if console is None:
            return False
        from rich.markdown import Markdown
        from rich.segment import Segment, Segments

        self.end_line()
        self._printed[artifact.artifact_id] = len(artifact.text)
        # Without hyperlinks, so that the text of a link cannot hide its target. Cleaned after Markdown too, which decodes
        # character references.
        page = console.render(Markdown(clean(artifact.text), hyperlinks=False))
        console.print(Segments(Segment(clean(one.text), one.style, one.control) for one in page))
        return True

    def _print_message(self, message: Message) -> None:
        for part in message.parts:
            self.end_line()
            self._print_part(part)
        self.end_line()

    # -- parts --

    def _print_part(self, part: Part) -> None:
        match part:
            case TextPart():
                self._print_text(part)
            case DataPart() if self._data:
                self.end_line()
                click.echo(clean_json(part.data, indent=2))
            case FilePart(url=str(url)):
                self.end_line()
                print_status(f"the file {part.filename or ''} is at {url} (not fetched)")

    def _print_text(self, part: TextPart) -> None:
        text = clean(part.text)
        if text:
            click.echo(text, nl=False)
            self.mid_line = not text.endswith("\n")
            sys.stdout.flush()

    def end_line(self) -> None:
        """End an open line of text, because the next output may go to standard error."""
        if self.mid_line:
            click.echo()
            self.mid_line = False
