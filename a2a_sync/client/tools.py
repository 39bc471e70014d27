"""An agent as a tool: a function for agent frameworks (`Client.as_tool`), or an entry of a table of tools (`RemoteTool`).

Frameworks read the signature of a function and the ``Args:`` of its docstring; no framework is imported here. What a model reads
about the agent comes from the agent's card, and so from a peer: it is cut to one line of bounded length.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from a2a_sync.card import AgentCard, AgentSkill
from a2a_sync.display import clean
from a2a_sync.errors import AgentError, JSONParseError, TaskFailedError, TransportError, shortened
from a2a_sync.jsontext import dumps, loads
from a2a_sync.limits import MAX_ID_LENGTH
from a2a_sync.types import Artifact, Content, DataPart, Message, Part, Task, TaskState, TextPart

#: The key of the request's metadata with the skill of a tool.
SKILL = "skillId"
_MAX_NAME_CHARS = 64
#: The limit of OpenAI's API for the description of a tool.
_MAX_DESCRIPTION_CHARS = 1024
#: No longer id is given to a model, or kept by a framework: an agent chooses it.
MAX_ID_CHARS = 10 * MAX_ID_LENGTH
#: Words that begin a section of a docstring.
_SECTIONS = re.compile(r"\b(Args|Returns|Raises):")
_DOC = """{about}

Args:
    message: What you want of the agent, in words, with all that it has to know.
    task_id: Leave it empty. Only to answer a question that this tool returned: the task_id in its result.
"""


def make_tool(
    send: Callable[[str, str | None], Task | Message],
    card: AgentCard | None,
    skill: AgentSkill | None,
    *,
    name: str = "",
    description: str = "",
) -> Callable[..., str]:
    """A function that sends messages to an agent, for `Client.as_tool`.

    Parameters:
        send: sends a message; its second argument is the id of the task to continue.
        card: the card of the agent, for name and description; None if both are given.
        skill: the skill of the card that the tool is for.
        name: a name in place of the one made from the card.
        description: a description in place of the card's.
    """

    def tool(message: str, task_id: str = "") -> str:
        return tool_result(send(message, task_id or None))

    identifier = name or tool_name(_title(card, skill))
    tool.__name__ = tool.__qualname__ = identifier
    tool.__doc__ = _DOC.format(
        about=one_line(description or _describe(card, skill)) or f"Calls the agent {identifier}."
    )
    # Types, not text: frameworks evaluate annotations outside this module.
    tool.__annotations__ = {"message": str, "task_id": str, "return": str}
    return tool


# -- name and description -----------------------------------------------------------------------------------------------


def tool_name(title: str) -> str:
    """A name for `title` that every framework accepts: a Python identifier of at most 64 ASCII characters.

    If characters of the title are dropped, a part of its hash is added, so that different titles have different names.
    """
    words = re.sub(r"[\s_-]+", "_", title.strip().lower())
    name = re.sub(r"[^a-z0-9_]", "", words).strip("_")
    if name != words or len(name) > _MAX_NAME_CHARS:
        digest = hashlib.sha256(title.encode(errors="replace")).hexdigest()[:8]
        name = f"{name[: _MAX_NAME_CHARS - 9] or 'agent'}_{digest}"
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"agent_{name}"[:_MAX_NAME_CHARS]
    return name


def one_line(text: str) -> str:
    """`text` as one line of bounded length, without control characters, which starts no section of a docstring."""
    line = _SECTIONS.sub(r"\1", " ".join(clean(text).split()))
    return line if len(line) <= _MAX_DESCRIPTION_CHARS else line[: _MAX_DESCRIPTION_CHARS - 1] + "…"


def _title(card: AgentCard | None, skill: AgentSkill | None) -> str:
    agent = card.name if card is not None else ""
    return f"{agent} {skill.id}" if skill is not None else agent


def _describe(card: AgentCard | None, skill: AgentSkill | None) -> str:
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


# -- results as text ----------------------------------------------------------------------------------------------------


def tool_result(result: Task | Message) -> str:
    """The text that a tool returns for a result, with at most 1,000,000 characters of it.

    Raises:
        TaskFailedError: the task failed, was rejected or canceled.
    """
    if isinstance(result, Task) and result.state.interrupted:
        asked = "authorisation is needed" if result.state is TaskState.AUTH_REQUIRED else "input is needed"
        how = f'call this tool again with the answer and task_id="{result.id}"'
        if not can_continue(result):
            how = "this tool cannot continue the task, because its id is too long"
        return f"{shortened(result.text)}\n\n[{asked}: {how}]"
    return shortened(answer_text(result))


def can_continue(task: Task) -> bool:
    """A tool can continue this task: its id is not too long to be given to a model."""
    return len(task.id) <= MAX_ID_CHARS


def answer_text(result: Task | Message) -> str:
    """The whole text of an answer.

    Raises:
        TaskFailedError: the task failed, was rejected or canceled.
    """
    if isinstance(result, Task) and result.state in (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED):
        raise TaskFailedError(result)
    return result_text(result)


def result_text(result: Task | Message) -> str:
    """The text of a result as in `Task.text`, with data as JSON and files by name and URL."""
    if isinstance(result, Message):
        return _message_as_text(result).text
    status = result.status
    if status.message is not None:
        status = replace(status, message=_message_as_text(status.message))
    shown = replace(
        result,
        status=status,
        artifacts=tuple(map(_artifact_as_text, result.artifacts)),
        history=tuple(map(_message_as_text, result.history)),
    )
    return shown.text


def _message_as_text(message: Message) -> Message:
    return replace(message, parts=tuple(TextPart(line) for line in map(_part_line, message.parts) if line))


def _artifact_as_text(artifact: Artifact) -> Artifact:
    return replace(artifact, parts=(TextPart("\n".join(filter(None, _part_lines(artifact.parts)))),))


def _part_lines(parts: tuple[Part, ...]) -> Iterator[str]:
    """One line per part; adjacent text parts are joined, because a streamed artifact has one for each chunk."""
    for is_text, run in groupby(parts, lambda part: isinstance(part, TextPart)):
        lines = map(_part_line, run)
        yield from ("".join(lines),) if is_text else lines


def _part_line(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, DataPart):
        return dumps(part.data).decode()
    about = ", ".join(filter(None, (part.filename, part.media_type, part.url or "")))
    return f"[file: {about}]" if about else f"[file of {len(part.raw or b'')} bytes]"


# -- a tool with a schema -----------------------------------------------------------------------------------------------

#: The arguments of a tool call: JSON text, or its value.
Arguments: TypeAlias = str | bytes | Mapping[str, Any]
_QUERY = {"type": "string", "description": "The query or task to send to the remote agent"}
_SCHEMA = {"type": "object", "properties": {"query": _QUERY}, "required": ["query"]}


class ToolRegistry(Protocol):
    """A table of tools in which `RemoteTool.register` puts a tool."""

    def register_func(
        self, name: str, description: str, schema: Mapping[str, Any], handler: Callable[[Arguments], str]
    ) -> object: ...


class SendsMessages(Protocol):
    """The method of a client that `RemoteTool` uses; `Client` has it."""

    def send(self, message: Content, /) -> Task | Message: ...


class RemoteTool:
    """An agent as a tool with one argument, ``query``, or with the arguments of `schema`.

    The default `name` and `description` do not identify the agent: with several tools, pass both.
    """

    def __init__(
        self,
        client: SendsMessages,
        *,
        name: str = "remote_agent",
        description: str = "Call a remote AI agent to perform a task",
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = client
        self.name = name
        self.description = description
        self.schema: Mapping[str, Any] = _SCHEMA if schema is None else schema

    def tool(self) -> dict[str, Any]:
        """The description of the tool for a model: ``name``, ``description``, ``parameters``."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.schema)}

    def handler(self, arguments: Arguments) -> str:
        """Call the agent with ``query`` as text and other arguments as data; its answer as text, also that of a failed task.

        At most 1,000,000 characters of the answer are returned.

        Raises:
            ValueError: the arguments are no JSON object, or empty.
            RuntimeError: the agent could not be called; the cause is the client's error.
        """
        parts = _parts(arguments)
        try:
            result = self._client.send(parts)
        except (AgentError, TransportError) as error:
            raise RuntimeError(f"remote agent call failed: {error}") from error
        return shortened(_remote_tool_result(result))

    def register(self, registry: ToolRegistry) -> None:
        """Register the tool in `registry`."""
        registry.register_func(self.name, self.description, self.schema, self.handler)


def _remote_tool_result(result: Task | Message) -> str:
    if isinstance(result, Task) and result.state is TaskState.FAILED:
        return f"Remote agent failed: {result.text}" if result.text else "Remote agent failed"
    if isinstance(result, Task) and result.state.interrupted and result.text:
        return result.text
    return result_text(result) or dumps(result.to_dict()).decode()


def _parts(arguments: Arguments) -> list[Part]:
    try:
        values = dict(arguments) if isinstance(arguments, Mapping) else loads(arguments)
    except JSONParseError as error:
        raise ValueError(f"invalid input: {error.message}") from None
    if not isinstance(values, dict):
        raise ValueError("invalid input: expected an object")
    query = values.pop("query", "")
    if not isinstance(query, str):
        raise ValueError("invalid input: query: expected text")
    parts: list[Part] = [TextPart(query)] if query else []
    parts += [DataPart(values)] if values else []
    if not parts:
        raise ValueError("invalid input: query is missing")
    return parts
