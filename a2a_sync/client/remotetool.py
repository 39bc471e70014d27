"""`RemoteTool`: an agent as name, description, JSON schema and handler, for those who keep a table of tools themselves.

A face over `Client`; functions for frameworks are made by `Client.as_tool`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from a2a_sync.client.tools import in_words
from a2a_sync.codec import by_version
from a2a_sync.errors import AgentError, JSONParseError, TransportError
from a2a_sync.jsontext import dumps, loads
from a2a_sync.lazymodule import LazyModule
from a2a_sync.types import DataPart, Part, Task, TaskState, TextPart

if TYPE_CHECKING:
    from a2a_sync.client import client as _client
else:
    _client = LazyModule("a2a_sync.client.client")

#: JSON text, or what it says.
Arguments: TypeAlias = str | bytes | Mapping[str, Any]
_QUERY = {"type": "string", "description": "The query or task to send to the remote agent"}
_SCHEMA = {"type": "object", "properties": {"query": _QUERY}, "required": ["query"]}


class ToolRegistry(Protocol):
    """Where tools are registered."""

    def register_func(
        self, name: str, description: str, schema: Mapping[str, Any], handler: Callable[[Arguments], str]
    ) -> Any: ...


class RemoteTool:
    """An agent as a tool with one argument, ``query``, or those of a `schema` of yours.

    What `name` and `description` are by default says nothing of the agent: with several tools, give them.
    """

    def __init__(
        self,
        client: _client.Client,
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
        """What a model is told: ``name``, ``description``, ``parameters``."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.schema)}

    def handler(self, arguments: Arguments) -> str:
        """Call the agent: ``query`` as text, other arguments as data. What it answers, as text; a failed task is told too.

        Raises:
            ValueError: the arguments are no JSON object, or empty.
            RuntimeError: the agent could not be called; the cause is the client's error.
        """
        parts = _parts(arguments)
        try:
            result = self._client.send(parts)
        except (AgentError, TransportError) as error:
            raise RuntimeError(f"remote agent call failed: {error}") from error
        if isinstance(result, Task) and result.state is TaskState.FAILED:
            return f"Remote agent failed: {result.text}" if result.text else "Remote agent failed"
        if isinstance(result, Task) and result.state.interrupted and result.text:
            return result.text
        return in_words(result) or dumps(by_version("1.0").dump(result)).decode()

    def register(self, registry: ToolRegistry) -> None:
        """Put the tool into `registry`."""
        registry.register_func(self.name, self.description, self.schema, self.handler)


def _parts(arguments: Arguments) -> list[Part]:
    try:
        said = dict(arguments) if isinstance(arguments, Mapping) else loads(arguments)
    except JSONParseError as error:
        raise ValueError(f"invalid input: {error.message}") from None
    if not isinstance(said, dict):
        raise ValueError("invalid input: expected an object")
    query = said.pop("query", "")
    if not isinstance(query, str):
        raise ValueError("invalid input: query: expected text")
    parts: list[Part] = [TextPart(query)] if query else []
    parts += [DataPart(said)] if said else []
    if not parts:
        raise ValueError("invalid input: query is missing")
    return parts
