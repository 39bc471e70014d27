"""`StrandsBridge`: agents of Strands. Needs ``pip install a2a-sync[strands]``.

An agent of Strands holds its messages, so each run has an agent of its own. The messages are kept in the memory of the
conversation. Interrupts of tools and hooks become questions.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from a2a_sync.agent.executor import RequestContext
from a2a_sync.client.client import Client
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
    Data,
    Final,
    Question,
    Refused,
    Remember,
    Text,
    Turn,
    Usage,
    as_json,
    text_of,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentTool, as_message
from a2a_sync.jsontext import dumps
from a2a_sync.types import FilePart, Part, TaskState

try:
    from strands import ToolContext, tool
    from strands.handlers.callback_handler import null_callback_handler
    from strands.types._snapshot import Snapshot
    from strands.types.session import decode_bytes_values, encode_bytes_values
except ImportError as _error:
    raise ImportError("StrandsBridge needs Strands: pip install 'a2a-sync[strands]'") from _error

__all__ = [
    "StrandsBridge",
    "remote_tool",
]

_STOPPED = {
    "limit_output_tokens": (TaskState.FAILED, "the agent has used as much as it may"),
    "limit_total_tokens": (TaskState.FAILED, "the agent has used as much as it may"),
    "limit_turns": (TaskState.FAILED, "the agent took too many steps"),
    "max_tokens": (TaskState.FAILED, "the answer is longer than it may be"),
    "content_filtered": (TaskState.REJECTED, "a guardrail of the agent intervened"),
    "guardrail_intervened": (TaskState.REJECTED, "a guardrail of the agent intervened"),
}


class StrandsBridge(Bridge):
    """Serves agents that a function makes: ``A2AApp(StrandsBridge(make_agent, name="…"), store=…)``.

    Parameters:
        agent: a function of the `RequestContext`, which may be ``async def``. It returns a new agent for each run, on the
            event loop of the runs.
        options: those of `Bridge`. ``deps`` becomes ``invocation_state["deps"]``.
    """

    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "application/pdf")

    def __init__(self, agent: Callable[[RequestContext], Any], **options: Any) -> None:
        if not callable(agent) or hasattr(agent, "stream_async"):
            raise TypeError("StrandsBridge needs a function that makes an agent for each run: lambda context: Agent(…)")
        super().__init__(agent, **options)

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run a new agent with the messages of the conversation, or resume one with the answers to its interrupts."""
        agent = self._given(turn.context)
        agent = await agent if inspect.isawaitable(agent) else agent
        # The default one prints the conversation.
        agent.callback_handler = null_callback_handler
        pending: Any = turn.pending or {"kept": len(turn.memory)}
        prompt: Any = [_content(part) for part in turn.parts(urls=False)]
        if turn.resumes:
            agent.load_snapshot(Snapshot.from_dict(decode_bytes_values(pending["snapshot"])))
            answers = turn.answers.items()
            prompt = [{"interruptResponse": {"interruptId": id_, "response": answer}} for id_, answer in answers]
        else:
            agent.messages = decode_bytes_values(turn.memory)
        stop = threading.Event()
        turn.context.on_cancel(stop.set)
        result, requests = None, 0
        state = {"deps": turn.deps}
        async for event in agent.stream_async(prompt, invocation_state=state, cancel_signal=stop):
            if "data" in event:
                yield Text(event["data"], str(requests))
            elif "message" in event:
                requests += event["message"]["role"] == "assistant"
                for one in _reported(event["message"]):
                    yield one
            elif "result" in event:
                result = event["result"]
        assert result is not None
        used = result.metrics.accumulated_usage
        yield Usage(used["inputTokens"], used["outputTokens"], requests)
        if result.stop_reason == "interrupt":
            snapshot = encode_bytes_values(agent.take_snapshot(preset="session").to_dict())
            questions = [Question.of(one.id, one.reason, one.name) for one in result.interrupts]
            yield Ask(questions, {**pending, "snapshot": snapshot})
            return
        if result.stop_reason in _STOPPED:
            state_, text = _STOPPED[result.stop_reason]
            raise Refused(text, state_)
        yield _remembered(encode_bytes_values(agent.messages), pending["kept"], turn.memory)
        yield Final("".join(block.get("text", "") for block in result.message["content"]))
        if result.structured_output is not None:
            yield Data(as_json(result.structured_output))


def _remembered(messages: list[Any], kept: int, memory: list[Any]) -> Remember:
    """The new messages; all of them if the agent's conversation manager has changed the earlier ones."""
    if len(messages) >= kept and messages[:kept] == memory[:kept]:
        return Remember(messages[kept:])
    return Remember(lambda before: messages)


def _content(part: Part) -> dict[str, Any]:
    if not isinstance(part, FilePart) or part.raw is None:
        return {"text": text_of(part)}
    kind, _, format_ = part.media_type.partition("/")
    if kind == "image":
        return {"image": {"format": format_, "source": {"bytes": part.raw}}}
    return {"document": {"format": format_, "name": part.filename or "file", "source": {"bytes": part.raw}}}


def _reported(message: Any) -> Iterator[BridgeEvent]:
    for block in message["content"]:
        if call := block.get("toolUse"):
            yield ToolCall(id=call["toolUseId"], name=call["name"], arguments=call["input"])
        elif result := block.get("toolResult"):
            texts = [one["text"] if "text" in one else dumps(one.get("json")).decode() for one in result["content"]]
            failed = result["status"] == "error"
            yield ToolResult(tool_call_id=result["toolUseId"], content="\n".join(texts), is_error=failed)


# -- remote agents as tools ---------------------------------------------------------------------------------------------


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of an agent; its questions are interrupts of the agent.

    A resumed agent continues the task of the remote one; it sends no message twice. The tool is no generator, which Strands
    would not close when a run is canceled, so its progress is not shown.

    The parameters are those of `AgentTool`.
    """
    agent = AgentTool(client, skill, name=name, description=description, **options)

    async def call(message: str, tool_context: ToolContext) -> str:
        key, state = f"a2a-{tool_context.tool_use['toolUseId']}", tool_context.agent.state
        kept: Any = state.get(key) or {"number": 0, "task": ""}
        while True:
            if kept["task"]:
                reason = {"kind": "question", "text": kept["question"]}
                message = as_message(tool_context.interrupt(f"a2a-{kept['number']}", reason=reason))
            answer = await agent.answer(message, kept["task"])
            if not answer.task_id:
                state.delete(key)
                return answer.text
            kept = {"number": kept["number"] + 1, "task": answer.task_id, "question": answer.text}
            state.set(key, kept)

    return tool(name=agent.name, description=agent.description, context=True)(call)
