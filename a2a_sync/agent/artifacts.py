"""`ArtifactWriter`, which sends an artifact in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from a2a_sync.lifecycle import joined
from a2a_sync.sizes import part_size
from a2a_sync.types import Artifact, Content, Part, TaskArtifactUpdateEvent, TextPart, to_parts

#: The largest artifact, in bytes, that is sent again as a whole when it is complete.
_MAX_REPEATED_BYTES = 1024 * 1024


class ArtifactWriter:
    """Sends one artifact in chunks.

    The first chunk creates the artifact, later chunks extend it, and the end of the ``with`` block completes it.

    The last event replaces the chunks with the whole artifact, adjacent texts joined: some clients, for example those
    of the Google ADK, keep only the content of the last event. An artifact of more than 1 MiB ends with an empty text
    part instead. If an exception leaves the block, the chunks remain and the artifact is not marked as complete. Not
    thread-safe: threads that write concurrently need a writer each.
    """

    def __init__(self, emit: Callable[..., None], template: Artifact, task_id: str, context_id: str) -> None:
        self._emit = emit
        self._template = template
        self._task_id = task_id
        self._context_id = context_id
        self._begun = False
        self._done = False
        self._parts: list[Part] = []

    @property
    def artifact_id(self) -> str:
        """The artifact's id."""
        return self._template.artifact_id

    @property
    def text(self) -> str:
        """The text written so far."""
        return "".join(part.text for part in self._parts if isinstance(part, TextPart))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts written so far, with adjacent texts joined."""
        parts = joined(self._parts)
        self._parts = list(parts)
        return parts

    def write(self, content: Content, *, last: bool = False) -> None:
        """Send one more chunk; `last` completes the artifact after it.

        Raises:
            TaskCancelled: the run has lost the right to write.
            TypeError: `content` is or contains another type.
            ValueError: the artifact is complete already, or `content` is an empty list.
        """
        self._emit(*(self.completing(content) if last else (self.piece(content),)))

    def piece(self, content: Content) -> TaskArtifactUpdateEvent:
        """The event that sends one more chunk. Raises `TypeError` and `ValueError` as `write`."""
        if self._done:
            raise ValueError(f"artifact {self.artifact_id} is complete")
        parts = to_parts(content)
        self._parts += parts
        event = self._event(parts, append=self._begun)
        self._begun = True
        return event

    def restart(self) -> None:
        """Discard the chunks: the next one replaces them, under the same artifact id. It also reopens a complete artifact.

        Nothing is sent: clients keep the old content until the next chunk arrives.
        """
        self._begun = self._done = False
        self._parts = []

    def replace(self, content: Content, *, last: bool = False) -> None:
        """Send `content` in place of everything that was written; `last` completes the artifact with it.

        Raises as `write`, but a complete artifact may be replaced.
        """
        self.restart()
        self.write(content, last=last)

    def completing(self, content: Content) -> list[TaskArtifactUpdateEvent]:
        """The events that send one more chunk and complete the artifact: only one if it is the first chunk."""
        first, piece = not self._begun, self.piece(content)
        if first:
            self._done = True
            return [replace(piece, last_chunk=True)]
        end = self.ending()
        return [piece] if end is None else [piece, end]

    def ending(self) -> TaskArtifactUpdateEvent | None:
        """The event that completes the artifact; None when nothing was written or it is complete."""
        if not self._begun or self._done:
            return None
        self._done = True
        parts = self.parts
        if sum(map(part_size, parts)) <= _MAX_REPEATED_BYTES:
            return self._event(parts, append=False, last_chunk=True)
        # An event needs at least one part: an empty text marks the end and adds nothing (see lifecycle).
        return self._event((TextPart(""),), append=True, last_chunk=True)

    def _event(self, parts: tuple[Part, ...], *, append: bool, last_chunk: bool = False) -> TaskArtifactUpdateEvent:
        if append:
            artifact = Artifact(artifact_id=self._template.artifact_id, parts=parts)
        else:
            artifact = replace(self._template, parts=parts)
        return TaskArtifactUpdateEvent(
            task_id=self._task_id,
            context_id=self._context_id,
            artifact=artifact,
            append=append,
            last_chunk=last_chunk,
        )

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        event = self.ending() if kind is None else None
        if event is not None:
            self._emit(event)
