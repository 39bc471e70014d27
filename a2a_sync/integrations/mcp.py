"""`mcp_server`: a remote agent as a server of the Model Context Protocol. Needs ``pip install a2a-sync[mcp]``.

Each skill of the agent is a tool, so that any host of MCP can call it. ``a2a-sync mcp URL`` serves it over standard input and
output.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from a2a_sync.client.client import Client
from a2a_sync.client.tools import MAX_ID_CHARS, can_continue, one_line, tool_result
from a2a_sync.errors import MAX_TEXT, A2AError, shortened
from a2a_sync.integrations.bridge import is_web_file, text_of
from a2a_sync.integrations.remote import AgentTool, RemoteCall
from a2a_sync.jsontext import dumps
from a2a_sync.lifecycle import joined
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    DataPart,
    FilePart,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import (
        AudioContent,
        BlobResourceContents,
        CallToolResult,
        ElicitRequest,
        ElicitRequestFormParams,
        ElicitResult,
        EmbeddedResource,
        ImageContent,
        InputRequiredResult,
        ResourceLink,
        TextContent,
    )
except ImportError as _error:
    raise ImportError("mcp_server needs the SDK of MCP: pip install 'a2a-sync[mcp]'") from _error

__all__ = [
    "mcp_server",
]

logger: Final = get_logger(__name__)

#: The first version of MCP in which a result of a tool can ask for input.
_INPUT_REQUIRED_VERSION = "2026-07-28"
_ANSWER = "answer"
_FORM = {"type": "object", "properties": {_ANSWER: {"type": "string", "title": "Answer"}}, "required": [_ANSWER]}
#: The skills of a card that become tools: each takes three milliseconds and twenty kilobytes, and a card may have 80,000.
_MAX_TOOLS = 1000
#: The parts of an answer that become content each: the SDK needs tens of microseconds for one, on the event loop of all calls.
_MAX_PARTS = 1000
#: The characters of a file's name: each becomes up to twelve of an address.
_MAX_NAME = 256
_FAILED = (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED)

_Result: TypeAlias = CallToolResult | InputRequiredResult


def mcp_server(client: Client, *, name: str = "", security: Any = None, **sending: Any) -> Any:
    """An ``MCPServer`` with a tool for each skill of an agent (the first 1,000), or one for an agent without skills. Reads its card.

    A tool has the arguments ``message``, ``context_id`` and ``task_id``. Progress and pieces of the answer are progress of the
    call. A question is asked through the host's elicitation, where it has one; otherwise it is the result, with the ``task_id``
    for the answer. A call that the host cancels cancels the task.

    Parameters:
        client: the client of the agent.
        name: the name of the server; that of the agent by default.
        security: the ``RequestStateSecurity`` of the server, needed if several processes share a host's questions. By default
            a question can be answered for 600 seconds, in the same process.
        sending: further arguments of `Client.stream`, such as ``timeout``.

    Raises:
        AgentError, TransportError: the card could not be read.
    """
    card = client.card()
    options = {} if security is None else {"request_state_security": security}
    server = MCPServer(name or one_line(card.name), instructions=one_line(card.description), **options)
    skills: list[str | None] = [skill.id for skill in card.skills[:_MAX_TOOLS]]
    if len(card.skills) > _MAX_TOOLS:
        logger.warning("the card of %s has %s skills; the first %s are tools", card.name, len(card.skills), _MAX_TOOLS)
    names: set[str] = set()
    for skill in skills or [None]:
        try:
            tool = AgentTool(client, skill, **sending)
        except KeyError:
            logger.warning(
                "the card of %s has changed while its skills became tools; left out skill %s", card.name, skill
            )
            continue
        tool_name = tool.name
        if tool_name in names:
            # Ids may differ in what names do not have; the SDK would omit the second tool.
            tool_name = f"{tool_name[:55]}_{hashlib.sha256(str(skill).encode(errors='replace')).hexdigest()[:8]}"
        names.add(tool_name)
        server.add_tool(_function(tool), name=tool_name, description=tool.description, structured_output=False)
    return server


def _function(tool: AgentTool) -> Callable[..., Any]:
    async def call(message: str, ctx: Context, context_id: str = "", task_id: str = "") -> _Result:
        if ctx.request_state is not None:
            # Sealed by the server: the host returns it as it was.
            task_id, answered = ctx.request_state, (ctx.input_responses or {}).get(_ANSWER)
            if not isinstance(answered, ElicitResult) or answered.action != "accept":
                await _cancel(tool, task_id)
                return _failure("The question was not answered, so the task was cancelled")
            message = str((answered.content or {}).get(_ANSWER, ""))
        ids = {"task_id": task_id} if task_id else {"context_id": context_id}
        remote = RemoteCall(tool.client, message, **{**tool.options, **{key: id_ for key, id_ in ids.items() if id_}})
        steps = 0
        try:
            async for event, new_text in remote.events():
                for text in _progress(event, new_text):
                    steps += 1
                    await ctx.report_progress(steps, message=text)
        except A2AError as error:
            return _failure(f"The agent could not be called: {error}")
        return _result(remote.result, asks=_elicits(ctx))

    # Types, not text: the SDK evaluates annotations outside this function.
    call.__annotations__ = {"message": str, "ctx": Context, "context_id": str, "task_id": str, "return": Any}
    return call


async def _cancel(tool: AgentTool, task_id: str) -> None:
    try:
        await tool.cancel(task_id)
    except A2AError:
        return  # it has ended


def _elicits(ctx: Context) -> bool:
    capabilities = ctx.client_capabilities
    form = capabilities.elicitation if capabilities is not None else None
    if form is None or (form.form is None and form.url is not None):
        return False
    return (ctx.protocol_version or "") >= _INPUT_REQUIRED_VERSION


def _progress(event: StreamResponse, new_text: str) -> Iterator[str]:
    if new_text:
        yield new_text
    if isinstance(event, TaskStatusUpdateEvent) and not event.status.state.paused and event.status.message:
        yield event.status.message.text


# -- results ------------------------------------------------------------------------------------------------------------


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _result(result: Task | Message | None, *, asks: bool) -> _Result:
    if isinstance(result, Task) and result.state in _FAILED:
        return _failure(shortened(result.text) or f"The task was {result.state.value}")
    if isinstance(result, Task) and result.state.interrupted:
        # Hosts must not ask for secrets in forms, so a login is not asked for.
        if asks and result.state is TaskState.INPUT_REQUIRED and can_continue(result):
            question = shortened(result.text) or "The agent asks for input"
            params = ElicitRequestFormParams(message=question, requested_schema=_FORM)
            return InputRequiredResult(input_requests={_ANSWER: ElicitRequest(params=params)}, request_state=result.id)
        return CallToolResult(content=[TextContent(text=tool_result(result))], _meta=_ids(result))
    parts = _parts(result)
    if result is not None and (len(parts) > _MAX_PARTS or sum(map(_characters, parts)) > MAX_TEXT):
        return CallToolResult(content=[TextContent(text=tool_result(result))], _meta=_ids(result))
    data = [part.data for part in parts if isinstance(part, DataPart)]
    structured = data[0] if len(data) == 1 and isinstance(data[0], dict) else None
    content = [_content(part) for part in parts]
    if result is not None and sum(len(one.text) for one in content if isinstance(one, TextContent)) > MAX_TEXT:
        return CallToolResult(content=[TextContent(text=tool_result(result))], _meta=_ids(result))
    return CallToolResult(content=content, structured_content=structured, _meta=_ids(result))


def _ids(result: Task | Message | None) -> dict[str, str]:
    task_id = result.id if isinstance(result, Task) else ""
    ids = {"contextId": result.context_id if result is not None else "", "taskId": task_id}
    return {f"a2a-sync/{name}": value for name, value in ids.items() if 0 < len(value or "") <= MAX_ID_CHARS}


def _parts(result: Task | Message | None) -> list[Part]:
    if isinstance(result, Message):
        return list(result.parts)
    if result is None:
        return []
    parts = [part for artifact in result.artifacts for part in joined(artifact.parts)]
    answer = result.answer_message
    return parts or (list(answer.parts) if answer is not None else [])


def _characters(part: Part) -> int:
    """The characters of a text, or of what describes a file. Those of data are known when it is written."""
    if isinstance(part, FilePart):
        return len(part.filename) + len(part.media_type) + len(part.url or "")
    return len(part.text) if isinstance(part, TextPart) else 0


def _content(part: Part) -> Any:
    if isinstance(part, TextPart):
        return TextContent(text=part.text)
    if isinstance(part, DataPart):
        return TextContent(text=dumps(part.data).decode())
    # A host may open a link: one to a file of its machine is text.
    return _file(part) if part.raw is not None or is_web_file(part) else TextContent(text=text_of(part))


def _file(part: FilePart) -> Any:
    name, media_type = part.filename[:_MAX_NAME] or "file", part.media_type or "application/octet-stream"
    if part.raw is None:
        return ResourceLink(name=name, uri=part.url or "", mime_type=media_type)
    data = base64.b64encode(part.raw).decode()
    kind = media_type.partition("/")[0]
    if kind == "image":
        return ImageContent(data=data, mime_type=media_type)
    if kind == "audio":
        return AudioContent(data=data, mime_type=media_type)
    uri = f"a2a-sync:///{quote(name, safe='')}"
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=media_type, blob=data))
