"""`LlamaIndexBridge`: agents and agent workflows of LlamaIndex. Needs ``pip install a2a-sync[llamaindex]``.

The chat messages are kept in the memory of the conversation. An `InputRequiredEvent` becomes a question: the run is stored
and ended, and its answer continues it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from a2a_sync.client.client import Client
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
    Data,
    Note,
    Question,
    Remember,
    Text,
    Turn,
    Usage,
    as_json,
    final_of,
    text_of,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentTool, ToolAnswer, as_message
from a2a_sync.jsontext import dumps
from a2a_sync.types import FilePart, Part, TaskState

try:
    from llama_index.core.agent.workflow import workflow_events as happened
    from llama_index.core.base.llms.types import AudioBlock, ChatMessage, DocumentBlock, ImageBlock, TextBlock
    from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
    from llama_index.core.tools import FunctionTool
    from llama_index.core.workflow import Context, Event, HumanResponseEvent, InputRequiredEvent
    from workflows.context.serializers import JsonSerializer, PickleSerializer
    from workflows.errors import WorkflowTimeoutError
    from workflows.events import WorkflowIdleEvent
except ImportError as _error:
    raise ImportError("LlamaIndexBridge needs LlamaIndex: pip install 'a2a-sync[llamaindex]'") from _error
try:
    from workflows.runtime.types.results import StepWorkerStateContextVar as _step
except ImportError:  # it is not documented
    _step = None

__all__ = [
    "LlamaIndexBridge",
    "RemoteProgress",
    "remote_tool",
]


#: The members by which LlamaIndex recognises an object that it has stored.
_MARKS = {"__is_pydantic", "__is_component"}
#: Characters whose tokens are counted at a time.
_PIECE = 4096


class LlamaIndexBridge(Bridge):
    """Serves an agent or an `AgentWorkflow`: ``A2AApp(LlamaIndexBridge(agent, description="…"), store=…)``.

    Parameters:
        agent: the agent, or a function that makes it.
        memory: makes the memory of a run of the messages of the conversation. The default is a `ChatMemoryBuffer`, which
            gives the model as many of them as fit into its context.
        options: those of `Bridge`. ``deps`` becomes the value ``deps`` in the store of the workflow's context.
    """

    public: Mapping[type[BaseException], tuple[TaskState, str]] = {
        WorkflowTimeoutError: (TaskState.FAILED, "the agent took too long")
    }
    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "audio/*", "application/pdf")

    def __init__(self, agent: Any, *, memory: Callable[[list[Any]], BaseMemory] | None = None, **options: Any) -> None:
        super().__init__(agent, **options)
        self._memory = memory

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the agent with the messages of the conversation, or continue the run that waits for an answer."""
        agent = await self.agent()
        serializer = getattr(agent, "serializer", None)
        if isinstance(serializer, PickleSerializer):
            raise TypeError("LlamaIndexBridge: a PickleSerializer executes what callers send; use a JsonSerializer")
        pending: Any = turn.pending or {"messages": turn.memory, "kept": len(turn.memory)}
        messages = [_Message.model_validate(one) for one in pending["messages"]]
        if not (turn.resumes or self._memory):
            messages = await asyncio.to_thread(_fitting, _buffer(agent, []), messages)
            pending["kept"] = len(messages)
        memory = self._memory(messages) if self._memory else _buffer(agent, messages)
        context = Context.from_dict(agent, pending["context"]) if turn.resumes else Context(agent)
        await context.store.set("deps", turn.deps)
        if turn.resumes:
            handler = agent.run(ctx=context)
            await handler.ctx.store.set("memory", memory)
        else:
            blocks = [_block(part) for part in turn.parts(urls=False)]
            handler = agent.run(user_msg=_Message(role="user", blocks=blocks), memory=memory, ctx=context)
        # A context is stored without the requirements of its waiting steps, which run again to state them. An answer that
        # is sent before would be taken by any of them.
        resuming = turn.resumes and '"has_requirements": true' in json.dumps(pending["context"])
        if turn.resumes and not resuming:
            _answer(handler, pending["asked"], turn.answers)
        asked: dict[str, Any] = {}
        step = 0
        try:
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, InputRequiredEvent):
                    asked[f"{len(asked) + 1}"] = _fields(event)
                elif isinstance(event, WorkflowIdleEvent) and resuming:
                    resuming = False
                    asked.clear()
                    _answer(handler, pending["asked"], turn.answers)
                elif isinstance(event, WorkflowIdleEvent) and asked:
                    break
                else:
                    step += isinstance(event, happened.ToolCallResult)
                    for one in _reported(event, str(step)):
                        yield one
            said = _dumped(await memory.aget_all())
            if asked:
                for name in ("deps", "memory"):
                    # Dependencies must not be stored, and the memory is stored apart.
                    await handler.ctx.store.set(name, None)
                kept = {
                    "messages": said,
                    "kept": pending["kept"],
                    "asked": asked,
                    "context": _stored(handler.ctx, serializer),
                }
                yield Ask([Question.of(id_, fields) for id_, fields in asked.items()], kept)
                return
            result = await handler
        finally:
            await handler.cancel_run()
        yield Remember(said[pending["kept"] :])
        agents = isinstance(result, happened.AgentOutput)
        for one in final_of(result.response.content or "" if agents else result):
            yield one
        if agents and result.structured_response is not None:
            yield Data(result.structured_response)


class _Message(ChatMessage):  # type: ignore[misc]
    """A message with a short `repr`: LlamaIndex makes that of each event for its spans, on the event loop of all runs."""

    def __repr__(self) -> str:
        return f"ChatMessage(role={self.role!r}, blocks={len(self.blocks)})"


# Stored contexts name the classes of their values.
_Message.__module__, _Message.__name__ = ChatMessage.__module__, ChatMessage.__name__


def _fitting(buffer: Any, messages: list[Any]) -> list[Any]:
    """The newest messages, to the first that does not fit into `buffer`. For each that it omits, that counts the tokens of all later ones."""
    tokens = 0
    for place in range(len(messages) - 1, -1, -1):
        tokens += len(buffer.tokenizer_fn(str(messages[place].content)))
        if tokens > buffer.token_limit:
            return messages[place:]
    return messages


def _buffer(agent: Any, messages: list[Any]) -> ChatMemoryBuffer:
    buffer = ChatMemoryBuffer.from_defaults(chat_history=messages, llm=getattr(agent, "llm", None))
    buffer.tokenizer_fn = partial(_tokens, buffer.tokenizer_fn, buffer.token_limit)
    return buffer


def _tokens(tokenize: Callable[[str], list[Any]], limit: int, text: str) -> list[Any]:
    """The tokens of `text`, up to the piece with which they exceed `limit`. A word that two pieces share may have a token more.

    For one long word a tokenizer takes much time and 40 bytes for each character, and no cancel ends it.
    """
    tokens: list[Any] = []
    for start in range(0, len(text), _PIECE):
        tokens += tokenize(text[start : start + _PIECE])
        if len(tokens) > limit:
            break
    return tokens


def _dumped(messages: list[Any]) -> list[Any]:
    return [json.loads(message.model_dump_json()) for message in messages if message.role != "system"]


def _block(part: Part) -> Any:
    if not isinstance(part, FilePart) or part.raw is None:
        # LlamaIndex fetches the URLs of its blocks itself, from any address that it can reach.
        return TextBlock(text=text_of(part))
    kind = part.media_type.partition("/")[0]
    data = base64.b64encode(part.raw)
    if kind == "image":
        return ImageBlock(image=data, image_mimetype=part.media_type)
    if kind == "audio":
        return AudioBlock(audio=data)
    return DocumentBlock(data=data, title=part.filename or None, document_mimetype=part.media_type)


def _reported(event: Any, step: str) -> Iterator[BridgeEvent]:
    if isinstance(event, happened.AgentStream):
        yield Text(event.delta or "", step)
    elif isinstance(event, happened.ToolCallResult):
        output = event.tool_output
        yield ToolResult(tool_call_id=event.tool_id, content=str(output.content), is_error=output.is_error)
    elif isinstance(event, happened.ToolCall):
        yield ToolCall(id=event.tool_id, name=event.tool_name, arguments=event.tool_kwargs)
    elif isinstance(event, RemoteProgress):
        if event.note:
            yield Note(event.note)
    elif isinstance(event, happened.AgentOutput):
        # The framework does not count tokens.
        yield Usage(requests=1)


def _stored(context: Any, serializer: Any) -> Any:
    """The context without the answered waits of `remote_tool`, each of which would run its step once more."""
    stored = context.to_dict(serializer=_inert(serializer))
    for worker in stored.get("workers", {}).values():
        waiters = worker.get("collected_waiters", [])
        worker["collected_waiters"] = [
            one for one in waiters if not one["resolved_event"] or not one["waiter_id"].startswith("a2a-")
        ]
    return stored


def _answer(handler: Any, asked: dict[str, Any], answers: Any) -> None:
    for id_, fields in asked.items():
        # The fields of the question are what the waiting step recognises its answer by.
        handler.ctx.send_event(HumanResponseEvent(**{**fields, "response": answers[id_]}))


class _Inert(JsonSerializer):  # type: ignore[misc]
    """Writes data that LlamaIndex would take for an object, and import its class, as text."""

    def serialize_value(self, value: Any) -> Any:
        if isinstance(value, dict) and not _MARKS.isdisjoint(value):
            return dumps(as_json(value)).decode()
        return super().serialize_value(value)


def _inert(own: Any) -> Any:
    """The serializer `own` of a workflow, as `_Inert` if it writes JSON."""
    serializer = JsonSerializer() if own is None else copy(own)
    if isinstance(serializer, JsonSerializer):
        serializer.__class__ = type("Inert", (_Inert, type(serializer)), {})
    return serializer


def _fields(event: Any) -> dict[str, Any]:
    """The members of an event, those without a declaration included."""
    fields: dict[str, Any] = event.model_dump(mode="json")
    return {**fields, **fields.pop("_data", {})}


# -- remote agents as tools ---------------------------------------------------------------------------------------------


class RemoteProgress(Event):  # type: ignore[misc]
    """Progress of a remote agent (`note`), or the next characters of its answer (`delta`), in the stream of the workflow."""

    agent: str
    note: str = ""
    delta: str = ""


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of an agent; its questions are `InputRequiredEvent` of the workflow.

    A resumed workflow continues the task of the remote agent; it sends no message twice. Progress and pieces of the answer are
    written to the stream of the workflow.

    The parameters are those of `AgentTool`.
    """
    agent = AgentTool(client, skill, name=name, description=description, **options)

    async def send(ctx: Context, message: str, task_id: str) -> ToolAnswer:
        async for item in agent.send(message, task_id):
            if isinstance(item, ToolAnswer):
                return item
            progress = {"note": item} if isinstance(item, str) else {"delta": item["text"]}
            ctx.write_event_to_stream(RemoteProgress(agent=agent.name, **progress))
        raise AssertionError("the last item is the answer")

    async def call(ctx: Context, message: str) -> str:
        # The step of the tool runs again from here when a question is answered.
        key = f"a2a-{hashlib.sha256(f'{agent.name}:{_call_id()}:{message}'.encode()).hexdigest()[:16]}"
        kept: Any = await ctx.store.get(key, default=None)
        if kept is None:
            answer = await send(ctx, message, "")
            kept = {"number": 1, "text": answer.text, "task": answer.task_id}
        while kept["task"]:
            await ctx.store.set(key, kept)
            waiter = f"{key}-{kept['number']}"
            response = await ctx.wait_for_event(
                HumanResponseEvent,
                waiter_event=InputRequiredEvent(prefix=kept["text"], kind="question", a2a=waiter),
                waiter_id=waiter,
                requirements={"a2a": waiter},
                timeout=None,
            )
            answer = await send(ctx, as_message(response.response), kept["task"])
            kept = {"number": kept["number"] + 1, "text": answer.text, "task": answer.task_id}
        await ctx.store.set(key, None)
        return str(kept["text"])

    # Types, not text: LlamaIndex evaluates annotations outside this module.
    call.__annotations__ = {"ctx": Context, "message": str, "return": str}
    return FunctionTool.from_defaults(async_fn=call, name=agent.name, description=agent.description)


def _call_id() -> str:
    """The id of the call that the running step is for, by which calls with the same message differ."""
    step = _step.get(None) if _step is not None else None
    return str(getattr(step.event, "tool_id", "")) if step is not None else ""
