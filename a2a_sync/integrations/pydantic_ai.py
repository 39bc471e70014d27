"""`PydanticAIBridge`: agents of Pydantic AI. Needs ``pip install a2a-sync[pydantic-ai]``.

The messages of the model are kept in the memory of the conversation, without system prompts and instructions. Tools that
require approval, and tools that are executed by the caller, become questions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from a2a_sync.client.client import Client
from a2a_sync.concurrency.eventloop import loop_executor
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
    as_json,
    final_of,
    is_web_file,
    reported_by,
    text_of,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentModel, AgentTool, as_message
from a2a_sync.jsontext import dumps
from a2a_sync.types import FilePart, Part, TaskState

try:
    from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, Tool, messages
    from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt, UseThreadExecutor
    from pydantic_ai.exceptions import ApprovalRequired, UsageLimitExceeded
    from pydantic_ai.models import Model, StreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel
except ImportError as _error:
    raise ImportError("PydanticAIBridge needs Pydantic AI: pip install 'a2a-sync[pydantic-ai]'") from _error

__all__ = [
    "PydanticAIBridge",
    "remote_model",
    "remote_tool",
]

#: The member of a deferred call's metadata with the question of a remote agent.
_QUESTION = "a2a_question"


class PydanticAIBridge(Bridge):
    """Serves an `Agent` of Pydantic AI: ``A2AApp(PydanticAIBridge(agent, description="…"), store=…)``.

    Parameters:
        agent: the agent, or a function that makes it.
        run: further arguments of ``Agent.iter``, such as ``usage_limits``.
        options: those of `Bridge`. ``deps`` becomes the dependencies of the agent.
    """

    public: Mapping[type[BaseException], tuple[TaskState, str]] = {
        UsageLimitExceeded: (TaskState.FAILED, "the agent has used as much as it may")
    }
    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "audio/*", "application/pdf")

    def __init__(self, agent: Any, *, run: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(agent, **options)
        self._run = run or {}

    def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the agent with the messages of the conversation, or resume it with the results of its deferred tools."""
        return reported_by(partial(self._answer, turn))

    async def _answer(self, turn: Turn, report: Callable[[BridgeEvent], None]) -> None:
        agent = await self.agent()
        pending: Any = turn.pending or {"messages": turn.memory, "kept": len(turn.memory)}
        output = agent.output_type
        types = [*output, DeferredToolRequests] if isinstance(output, list) else [output, DeferredToolRequests]
        pieces = _Pieces(report)
        # Its own threads are as many for all callers as one of them can use.
        own = [ReinjectSystemPrompt(), UseThreadExecutor(loop_executor())]
        async with agent.iter(
            None if turn.resumes else [_content(part) for part in turn.parts()],
            output_type=types,
            message_history=messages.ModelMessagesTypeAdapter.validate_json(dumps(pending["messages"])),
            deferred_tool_results=_results(pending, turn) if turn.resumes else None,
            deps=turn.deps,
            capabilities=[*own, *self._run.get("capabilities", ()), pieces],
            **{name: value for name, value in self._run.items() if name != "capabilities"},
        ) as run:
            hooks = run.ctx.deps.root_capability
            hooked = hooks.has_wrap_run_event_stream or hooks.has_on_event
            async for node in run:
                if agent.is_call_tools_node(node) or (hooked and agent.is_model_request_node(node)):
                    async with node.stream(run.ctx) as events:
                        async for event in events:
                            pieces.take(event)
        result = run.result
        used = result.usage
        report(Usage(used.input_tokens, used.output_tokens, used.requests))
        history = result.all_messages()
        if isinstance(result.output, DeferredToolRequests):
            requests = result.output
            about = {"approvals": [one.tool_call_id for one in requests.approvals], "metadata": requests.metadata}
            report(Ask(list(_questions(requests)), {**pending, "messages": _kept(history), **about}))
            return
        report(Remember(_kept(history[pending["kept"] :])))
        for one in _final(result):
            report(one)


@dataclass
class _Pieces(AbstractCapability[Any]):  # type: ignore[misc]
    """Streams the answers of the model as they arrive; the agent's own stream costs several locks for each piece."""

    report: Callable[[BridgeEvent], None]
    step: int = 0

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        return replace(request_context, model=_Streaming(request_context.model, ctx, self.take))

    def take(self, event: Any) -> None:
        for one in _reported(event, str(self.step)):
            self.step += isinstance(one, ToolResult)
            self.report(one)


class _Streaming(WrapperModel):  # type: ignore[misc]
    """A model whose requests are streamed."""

    def __init__(self, model: Model, context: Any, take: Callable[[Any], None]) -> None:
        super().__init__(model)
        self._context = context
        self._take = take

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        asked = (messages, model_settings, model_request_parameters, self._context)
        async with self.wrapped.request_stream(*asked) as stream:
            async for event in stream:
                self._take(event)
            return stream.get()


def _content(part: Part) -> Any:
    if not isinstance(part, FilePart) or not is_web_file(part):
        return text_of(part)
    if part.raw is not None:
        return messages.BinaryContent(data=part.raw, media_type=part.media_type or "application/octet-stream")
    kinds = {"image": messages.ImageUrl, "audio": messages.AudioUrl, "video": messages.VideoUrl}
    return kinds.get(part.media_type.partition("/")[0], messages.DocumentUrl)(url=part.url)


def _reported(event: Any, step: str) -> Iterator[BridgeEvent]:
    match event:
        case messages.PartStartEvent(part=messages.TextPart(content=text)):
            yield Text(text, step)
        case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
            yield Text(text, step)
        case messages.FunctionToolCallEvent(part=call):
            yield ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=call.args_as_dict())
        case messages.FunctionToolResultEvent(part=part):
            failed = getattr(part, "outcome", "success") != "success"
            yield ToolResult(tool_call_id=part.tool_call_id, content=_shown(part.content), is_error=failed)


def _shown(content: Any) -> str:
    return content if isinstance(content, str) else dumps(as_json(content)).decode()


def _final(result: Any) -> Iterator[BridgeEvent]:
    for message in result.new_messages():
        for part in message.parts if isinstance(message, messages.ModelResponse) else ():
            if isinstance(part, messages.FilePart):
                yield File(FilePart(raw=part.content.data, media_type=part.content.media_type))
    if isinstance(result.output, messages.BinaryContent):
        yield File(FilePart(raw=result.output.data, media_type=result.output.media_type))
    else:
        yield from final_of(result.output)


def _kept(history: Sequence[Any]) -> list[Any]:
    """The messages as JSON, without prompts of the agent."""
    kept = []
    for message in history:
        if isinstance(message, messages.ModelRequest):
            parts = [part for part in message.parts if not isinstance(part, messages.SystemPromptPart)]
            message = replace(message, parts=parts, instructions=None)
        kept.append(message)
    listed: list[Any] = json.loads(messages.ModelMessagesTypeAdapter.dump_json(kept))
    return listed


# -- questions ----------------------------------------------------------------------------------------------------------


def _questions(requests: Any) -> Iterator[Question]:
    metadata = requests.metadata
    for call in requests.approvals:
        question = Question.approval(call.tool_call_id, call.tool_name, call.args_as_dict())
        asked = metadata.get(call.tool_call_id, {}).get(_QUESTION)
        yield replace(question, kind="question", text=asked) if asked else question
    for call in requests.calls:
        text = str(call.args_as_dict().get("question", "")) or f"What is the result of {call.tool_name}?"
        yield Question(id=call.tool_call_id, text=text, tool=call.tool_name, arguments=call.args_as_dict())


def _results(pending: Any, turn: Turn) -> Any:
    # The remote tool is called again with the answer to its question, whatever that is.
    metadata = {
        id_: {**kept, "answer": turn.answers.get(id_)} if _QUESTION in kept else kept
        for id_, kept in pending["metadata"].items()
    }
    approvals = {
        id_: answer is True or _QUESTION in metadata.get(id_, {})
        for id_, answer in turn.answers.items()
        if id_ in pending["approvals"]
    }
    calls = {id_: answer for id_, answer in turn.answers.items() if id_ not in pending["approvals"]}
    return DeferredToolResults(approvals=approvals, calls=calls, metadata=metadata)


# -- remote agents as tools ---------------------------------------------------------------------------------------------


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of an agent that `PydanticAIBridge` serves; its questions are deferred calls.

    A resumed agent continues the task of the remote one; it sends no message twice.

    The parameters are those of `AgentTool`.
    """
    agent = AgentTool(client, skill, name=name, description=description, **options)

    async def call(context: RunContext[Any], message: str) -> str:
        kept = (context.tool_call_metadata or {}) if context.tool_call_approved else {}
        if _QUESTION in kept:
            message = as_message(kept["answer"])
        answer = await agent.answer(message, kept.get("task", ""))
        if answer.task_id:
            raise ApprovalRequired({_QUESTION: answer.text, "task": answer.task_id})
        return answer.text

    return Tool(call, takes_ctx=True, name=agent.name, description=agent.description)


# -- remote agents as models --------------------------------------------------------------------------------------------


def remote_model(client: Client, **options: Any) -> Model:
    """A remote agent as the model of an agent: ``Agent(remote_model(client))``.

    The agent receives the messages after its last answer, and neither instructions nor tools. Its context and its waiting task are in
    the ``provider_response_id`` of that answer.

    Parameters:
        client: the client of the agent.
        options: further arguments of `Client.stream`, such as ``timeout``.
    """
    return _RemoteModel(AgentModel(client, **options))


class _RemoteModel(Model):  # type: ignore[misc]
    model_name = "a2a"
    system = "a2a"

    def __init__(self, agent: AgentModel) -> None:
        super().__init__()
        self._agent = agent

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        text, mark = self._agent.since(turn for message in messages for turn in _said(message))
        async with aclosing(self._agent.send(text, mark)) as pieces:  # type: ignore[type-var]
            yield _Streamed(model_request_parameters=model_request_parameters, pieces=pieces)


@dataclass
class _Streamed(StreamedResponse):  # type: ignore[misc]
    pieces: Any = None
    model_name = provider_name = "a2a"
    provider_url = None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def timestamp(self) -> datetime:
        return self.began

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        async for piece in self.pieces:
            if isinstance(piece, str):
                for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=piece):
                    yield event
            else:
                self.provider_response_id = piece.mark

    async def close_stream(self) -> None:
        await self.pieces.aclose()


def _said(message: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(message, messages.ModelResponse):
        yield "assistant", message.text or "", message.provider_response_id or ""
        return
    for part in message.parts:
        if isinstance(part, messages.UserPromptPart):
            content = [part.content] if isinstance(part.content, str) else part.content
            yield "user", "\n".join(one for one in content if isinstance(one, str)), ""
