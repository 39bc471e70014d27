"""An agent as a tool: a plain function that agent frameworks take as it is, with its name, its types and its docstring.

Frameworks read a function's signature and the ``Args:`` of its docstring; nothing here knows any of them. What a model is told of
the agent comes from the agent's card, and so from a peer: it is cut to one line of bounded length.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from a2a_sync.card import AgentCard, AgentSkill
from a2a_sync.errors import TaskFailedError
from a2a_sync.jsontext import dumps
from a2a_sync.types import Artifact, DataPart, Message, Part, Task, TaskState, TextPart

if TYPE_CHECKING:
    from a2a_sync.client.client import Client

#: The key of the request's metadata under which the agent finds the skill that a tool stands for.
SKILL = "skillId"
_LONGEST_NAME = 64
#: What OpenAI's API takes for the description of a tool.
_LONGEST_DESCRIPTION = 1024
#: Words that begin a section of a docstring.
_SECTIONS = re.compile(r"\b(Args|Returns|Raises):")
_DOC = """{about}

Args:
    message: What you want of the agent, in words, with all that it has to know.
    task_id: Leave it empty. Only to answer a question that this tool came back with: the task_id that stands there.
"""


def as_tool(
    client: Client, skill: str | None, name: str, description: str, sending: dict[str, Any]
) -> Callable[..., str]:
    """What `Client.as_tool` gives; `sending` are more arguments for each `send`."""
    card = None if name and description and skill is None else client.card()
    found = card.skill(skill) if card is not None and skill is not None else None
    if found is not None:
        sending = {**sending, "metadata": {**(sending.get("metadata") or {}), SKILL: found.id}}

    def tool(message: str, task_id: str = "") -> str:
        return answer_of(client.send(message, task_id=task_id or None, **sending))

    called = name or tool_name(_title(card, found))
    tool.__name__ = tool.__qualname__ = called
    tool.__doc__ = _DOC.format(about=in_one_line(description or _about(card, found)) or f"Calls the agent {called}.")
    # Not as text: frameworks resolve it where this module's names are not known.
    tool.__annotations__ = {"message": str, "task_id": str, "return": str}
    return tool


# -- what a model reads of the agent ------------------------------------------------------------------------------------


def tool_name(title: str) -> str:
    """A name that every framework takes (a Python identifier of at most 64 ASCII characters) for `title`.

    Where much of the title is lost, something of its hash takes the place, so that other titles have other names.
    """
    words = re.sub(r"[\s_-]+", "_", title.strip().lower())
    name = re.sub(r"[^a-z0-9_]", "", words).strip("_")
    if name != words or len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(title.encode(errors="replace")).hexdigest()[:8]
        name = f"{name[: _LONGEST_NAME - 9] or 'agent'}_{digest}"
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"agent_{name}"[:_LONGEST_NAME]
    return name


def in_one_line(text: str) -> str:
    """`text` as one paragraph that begins no section of a docstring."""
    line = _SECTIONS.sub(r"\1", " ".join(text.split()))
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"


def _title(card: AgentCard | None, skill: AgentSkill | None) -> str:
    agent = card.name if card is not None else ""
    return f"{agent} {skill.id}" if skill is not None else agent


def _about(card: AgentCard | None, skill: AgentSkill | None) -> str:
    if skill is not None:
        examples = f" For example: {'; '.join(skill.examples)}" if skill.examples else ""
        return f"{_sentence(skill.description or skill.name)}{examples}"
    if card is None:
        return ""
    skills = "; ".join(f"{each.name} ({each.description})" if each.description else each.name for each in card.skills)
    return f"{_sentence(card.description)} It can: {skills}" if skills else card.description


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text}." if text[-1:].isalnum() else text


# -- what a model reads of an answer ------------------------------------------------------------------------------------


def answer_of(result: Task | Message) -> str:
    """What a tool says of what came back.

    Raises:
        TaskFailedError: the task failed, was rejected or canceled.
    """
    if isinstance(result, Task):
        if result.state in (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED):
            raise TaskFailedError(result)
        if result.state.interrupted:
            asked = "authorisation is needed" if result.state is TaskState.AUTH_REQUIRED else "input is needed"
            return f'{result.text}\n\n[{asked}: call this tool again with the answer and task_id="{result.id}"]'
    return in_words(result)


def in_words(result: Task | Message) -> str:
    """The result as text, with data as JSON and files by name and URL, found as `Task.text` is."""
    if isinstance(result, Message):
        return _said(result).text
    status = result.status
    if status.message is not None:
        status = replace(status, message=_said(status.message))
    shown = replace(
        result,
        status=status,
        artifacts=tuple(map(_shown, result.artifacts)),
        history=tuple(map(_said, result.history)),
    )
    return shown.text


def _said(message: Message) -> Message:
    return replace(message, parts=tuple(TextPart(line) for line in map(_line, message.parts) if line))


def _shown(artifact: Artifact) -> Artifact:
    return replace(artifact, parts=(TextPart("\n".join(filter(None, _lines(artifact.parts)))),))


def _lines(parts: tuple[Part, ...]) -> Iterator[str]:
    """Neighbouring texts are one: an artifact that was streamed has a part for each piece."""
    for is_text, run in groupby(parts, lambda part: isinstance(part, TextPart)):
        lines = map(_line, run)
        yield from ("".join(lines),) if is_text else lines


def _line(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, DataPart):
        return dumps(part.data).decode()
    about = ", ".join(filter(None, (part.filename, part.media_type, part.url or "")))
    return f"[file: {about}]" if about else f"[file of {len(part.raw or b'')} bytes]"
