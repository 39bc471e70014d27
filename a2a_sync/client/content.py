"""What a user may hand to `send`, as the message that goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from a2a_sync.types import DataPart, FilePart, Message, Part, Role, TextPart

#: What a message can be made of: text, a part, several of them, or a `Message`.
Content: TypeAlias = str | Part | Sequence[str | Part] | Message


def as_message(content: Content, *, task_id: str | None = None, context_id: str | None = None) -> Message:
    """The user's message with this content; ids that are given stand over those in a `Message`.

    Raises:
        TypeError: `content` is nothing a message can be made of.
        ValueError: there is no part.
    """
    if isinstance(content, Message):
        message = content
    else:
        listed = content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
        message = Message(role=Role.USER, parts=tuple(_as_part(item) for item in listed))
    if not message.parts:
        raise ValueError("a message needs at least one part")
    if (task_id is None or task_id == message.task_id) and (context_id is None or context_id == message.context_id):
        return message
    return replace(
        message,
        task_id=message.task_id if task_id is None else task_id,
        context_id=message.context_id if context_id is None else context_id,
    )


def _as_part(item: object) -> Part:
    if isinstance(item, str):
        return TextPart(item)
    if isinstance(item, (TextPart, FilePart, DataPart)):
        return item
    raise TypeError(
        f"a message is text, a TextPart, FilePart or DataPart, a list of these, or a Message; not {type(item).__name__}"
    )
