"""What user code puts into messages and artifacts: parts from whatever it gives, and an artifact sent piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeAlias

from a2a_sync.types import Artifact, DataPart, FilePart, Message, Part, TaskArtifactUpdateEvent, TextPart

Content: TypeAlias = "str | Part | Iterable[str | Part] | Message"


def to_parts(content: Content) -> tuple[Part, ...]:
    """Parts from text, a part, a list of them, or a message.

    Raises:
        TypeError: something else is in it.
        ValueError: it is empty.
    """
    if isinstance(content, Message):
        return content.parts
    if isinstance(content, str):
        # A plain one: what is stored shall not keep alive what a text of another class knows.
        return (TextPart(str(content)),)
    if isinstance(content, (TextPart, FilePart, DataPart)):
        return (content,)
    if isinstance(content, (bytes, Mapping)) or not isinstance(content, Iterable):
        raise TypeError(f"expected text, a part or a list of parts, not {type(content).__name__}")
    parts = tuple(part for item in content for part in to_parts(item))
    if not parts:
        raise ValueError("a message or artifact needs at least one part")
    return parts


class ArtifactWriter:
    """Sends one artifact in pieces: the first makes it, the others extend it, leaving the ``with`` block completes it.

    Leaving by an exception completes nothing: what was written stays, unmarked. One thread at a time may write; threads
    that work side by side take a writer each.
    """

    def __init__(self, emit: Callable[[TaskArtifactUpdateEvent], None], template: Artifact) -> None:
        self._emit = emit
        self._template = template
        self._begun = False
        self._done = False
        self._text: list[str] = []

    @property
    def artifact_id(self) -> str:
        """The artifact's id."""
        return self._template.artifact_id

    @property
    def text(self) -> str:
        """The text written so far."""
        return "".join(self._text)

    def write(self, content: Content, *, last: bool = False) -> None:
        """Send one more piece; `last` completes the artifact with it.

        Raises:
            TaskCancelled: the run may not write any more.
            ValueError: the artifact is complete already.
        """
        self._emit(self.piece(content, last=last))

    def piece(self, content: Content, *, last: bool = False) -> TaskArtifactUpdateEvent:
        """The event that `write` would send."""
        if self._done:
            raise ValueError(f"artifact {self.artifact_id} is complete")
        parts = to_parts(content)
        self._text += [part.text for part in parts if isinstance(part, TextPart)]
        head = self._template
        artifact = (
            Artifact(artifact_id=head.artifact_id, parts=parts)
            if self._begun
            else Artifact(
                artifact_id=head.artifact_id,
                name=head.name,
                description=head.description,
                metadata=head.metadata,
                parts=parts,
            )
        )
        event = TaskArtifactUpdateEvent(artifact=artifact, append=self._begun, last_chunk=last)
        self._begun, self._done = True, last
        return event

    def ending(self) -> TaskArtifactUpdateEvent | None:
        """The event that completes the artifact; None when nothing was written or it is complete."""
        # Parts may not be empty, so "complete" is said with an empty text that adds nothing (see lifecycle).
        return self.piece("", last=True) if self._begun and not self._done else None

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        event = self.ending() if kind is None else None
        if event is not None:
            self._emit(event)
