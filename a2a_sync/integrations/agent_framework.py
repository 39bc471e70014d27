"""`AgentFrameworkBridge`: agents of the Microsoft Agent Framework. Needs ``pip install a2a-sync[agent-framework]``.

The messages are kept in the memory of the conversation, and each task has a session of its own. Tools that require approval
become questions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from a2a_sync.client.client import Client
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
    File,
    Question,
    Remember,
    Text,
    Turn,
    Usage,
    final_of,
    is_web_file,
    parsed,
    text_of,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentTool, calls_of_run, remote_calls
from a2a_sync.types import FilePart, Part

try:
    from agent_framework import AgentSession, Content, FunctionTool, Message, UserInputRequiredException
except ImportError as _error:
    raise ImportError("AgentFrameworkBridge needs the framework: pip install 'a2a-sync[agent-framework]'") from _error

__all__ = [
    "AgentFrameworkBridge",
    "remote_tool",
]


class AgentFrameworkBridge(Bridge):
    """Serves an `Agent` of the framework: ``A2AApp(AgentFrameworkBridge(agent, description="…"), store=…)``.

    `options` are those of `Bridge`; ``deps`` becomes the argument ``deps`` of `FunctionInvocationContext.kwargs`.
    """

    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "audio/*", "application/pdf")

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the agent with the messages of the conversation, or with the decisions about its tools."""
        agent = await self.agent()
        pending: Any = turn.pending or {"messages": turn.memory, "kept": len(turn.memory), "calls": {}}
        calls = pending["calls"]
        remote_calls.set(calls)
        before = [Message.from_dict(one) for one in pending["messages"]]
        contents = [_content(part) for part in turn.parts()]
        if turn.resumes:
            requests = [Content.from_dict(one) for one in pending["requests"]]
            contents = [_response(one, calls, turn.answers[one.id]) for one in requests]
        asked = Message(role="user", contents=contents)
        # Approvals are valid in the session that asked, which has the messages until then.
        session = AgentSession.from_dict(pending["session"]) if turn.resumes else agent.create_session()
        given = [asked] if turn.resumes else [*before, asked]
        options = {"session": session, "function_invocation_kwargs": {"deps": turn.deps}}
        stream = agent.run(given, stream=True, **options)
        shown: dict[str, Any] = {}
        async for update in stream:
            for content in update.contents:
                for event in _reported(content, update.message_id or str(len(shown)), shown):
                    yield event
        response = await stream.get_final_response()
        used = response.usage_details or {}
        answers = [one for one in response.messages if one.role == "assistant"]
        yield Usage(used.get("input_token_count") or 0, used.get("output_token_count") or 0, len(answers))
        messages = [*before, asked, *response.messages]
        if requests := response.user_input_requests:
            kept = {"messages": _dumped(messages), "kept": pending["kept"], "requests": _dumped(requests)}
            kept |= {"session": json.loads(json.dumps(session.to_dict())), "calls": calls}
            yield Ask([_question(one, calls) for one in requests], kept)
            return
        yield Remember(_dumped(_decided(messages))[pending["kept"] :])
        for event in _final(response):
            yield event


def _content(part: Part) -> Any:
    if not isinstance(part, FilePart) or not is_web_file(part):
        return Content.from_text(text_of(part))
    if part.raw is not None:
        return Content.from_data(part.raw, media_type=part.media_type or "application/octet-stream")
    return Content.from_uri(part.url or "", media_type=part.media_type or "application/octet-stream")


def _reported(content: Any, message: str, calls: dict[str, Any]) -> Iterator[BridgeEvent]:
    if content.type == "text" and content.text:
        yield Text(content.text, message)
    elif content.type == "function_call":
        # The arguments may arrive in fragments, which are an object only when they are complete.
        call = calls[content.call_id] = calls[content.call_id] + content if content.call_id in calls else content
        if isinstance(arguments := parsed(call.arguments), dict):
            yield ToolCall(id=call.call_id, name=call.name, arguments=arguments)
    elif content.type == "function_result":
        failed = content.exception is not None
        yield ToolResult(tool_call_id=content.call_id, content=str(content.result), is_error=failed)


def _final(response: Any) -> Iterator[BridgeEvent]:
    for content in (content for message in response.messages for content in message.contents):
        if content.type == "data":
            raw = base64.b64decode((content.uri or "").partition(",")[2])
            yield File(FilePart(raw=raw, media_type=content.media_type or ""))
    said = [message.text for message in response.messages if message.role == "assistant" and message.text]
    yield from final_of(response.value if response.value is not None else said[-1] if said else None)


def _dumped(values: list[Any]) -> list[Any]:
    listed: list[Any] = json.loads(json.dumps([value.to_dict() for value in values]))
    return listed


def _decided(messages: list[Any]) -> list[Any]:
    """The messages without requests for approval and responses to them, by which calls would be made again."""
    kept = []
    for message in messages:
        contents = []
        for content in message.contents:
            if content.type == "function_approval_request":
                contents.append(content.function_call)
            elif content.type != "function_approval_response":
                contents.append(content)
        if contents:
            kept.append(Message(role=message.role, contents=contents))
    return kept


def _response(request: Any, calls: dict[str, dict[str, Any]], answer: Any) -> Any:
    call = calls.get(request.function_call.call_id)
    if call is not None:
        # The remote tool runs again with the answer to its question, whatever that is.
        call["answer"] = answer
    return request.to_function_approval_response(call is not None or answer is True)


def _question(request: Any, calls: dict[str, dict[str, Any]]) -> Question:
    call = request.function_call
    if call.call_id in calls:
        return Question(id=request.id, text=calls[call.call_id]["text"], tool=call.name)
    return Question.approval(request.id, call.name, call.parse_arguments())


# -- remote agents as tools ---------------------------------------------------------------------------------------------


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of an agent that `AgentFrameworkBridge` serves; its questions are requests for user input.

    A resumed agent continues the task of the remote one; it sends no message twice.

    The parameters are those of `AgentTool`.
    """
    return _RemoteTool(AgentTool(client, skill, name=name, description=description, **options))


class _RemoteTool(FunctionTool):  # type: ignore[misc]
    def __init__(self, agent: AgentTool) -> None:
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        super().__init__(name=agent.name, description=agent.description, input_model=schema, func=agent.answer)
        self._agent = agent

    async def invoke(self, *, arguments: Any = None, tool_call_id: str | None = None, **options: Any) -> Any:
        """Call the agent, or continue its task. The base class would not pass the id of the call on."""
        calls = calls_of_run("AgentFrameworkBridge")
        id_, message = tool_call_id or "", str(dict(arguments)["message"])
        kept = calls.get(id_)
        calls[id_] = call = await self._agent.resume(kept, message, kept["answer"] if kept else None)
        if call["task"]:
            # The framework finds the request of a response by the id of its call.
            name = f"{id_}-{call['number']}"
            function_call = Content.from_function_call(id_, self.name, arguments={"message": message}, id=name)
            raise UserInputRequiredException([Content.from_function_approval_request(name, function_call)])
        return [Content.from_text(call["text"])]
