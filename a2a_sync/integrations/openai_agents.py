"""`OpenAIAgentsBridge`: agents of the OpenAI Agents SDK. Needs ``pip install a2a-sync[openai-agents]``.

The input items of the model are kept in the memory of the conversation; the SDK's sessions are not used. Tools with
``needs_approval`` become questions. The SDK sends traces to api.openai.com unless ``agents.set_tracing_disabled(True)`` is called.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from a2a_sync.client.client import Client
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
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
from a2a_sync.integrations.remote import AgentModel, AgentTool, calls_of_run, remote_calls
from a2a_sync.types import FilePart, Part, TaskState, new_id

try:
    from agents import (
        InputGuardrailTripwireTriggered,
        MaxTurnsExceeded,
        Model,
        ModelResponse,
        OutputGuardrailTripwireTriggered,
        RunConfig,
        Runner,
        RunState,
        function_tool,
    )
    from agents.tool_context import ToolContext
    from agents.usage import Usage as SDKUsage
    from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent
except ImportError as _error:
    raise ImportError("OpenAIAgentsBridge needs the SDK: pip install 'a2a-sync[openai-agents]'") from _error

__all__ = [
    "OpenAIAgentsBridge",
    "remote_model",
    "remote_tool",
]

_COUNTS = ("input_tokens", "output_tokens", "requests")


class OpenAIAgentsBridge(Bridge):
    """Serves an `Agent` of the SDK, with its handoffs: ``A2AApp(OpenAIAgentsBridge(agent, description="…"), store=…)``.

    Parameters:
        agent: the agent that receives the messages, or a function that makes it.
        run: further arguments of ``Runner.run_streamed``, such as ``max_turns``.
        options: those of `Bridge`. ``deps`` becomes the context of the run.
    """

    public: Mapping[type[BaseException], tuple[TaskState, str]] = {
        MaxTurnsExceeded: (TaskState.FAILED, "the agent took too many steps"),
        InputGuardrailTripwireTriggered: (TaskState.REJECTED, "a guardrail of the agent refused the message"),
        OutputGuardrailTripwireTriggered: (TaskState.FAILED, "a guardrail of the agent refused its answer"),
    }
    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "application/pdf")

    def __init__(self, agent: Any, *, run: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(agent, **options)
        self._run = run or {}

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the agent with the items of the conversation, or resume it with the decisions about its tools."""
        agent = await self.agent()
        pending: Any = turn.pending or {"kept": len(turn.memory), "used": [0, 0, 0], "calls": {}}
        calls = pending["calls"]
        remote_calls.set(calls)
        content = [_content(part) for part in turn.parts()]
        given: Any = [*turn.memory, {"role": "user", "content": content}]
        if turn.resumes:
            given = await RunState.from_json(agent, pending["state"], context_override=turn.deps)
            items = given.get_interruptions()
            for item in items:
                if calls.get(_call_id(item), {}).get("task"):
                    await _continue(item, calls, turn.answers[_call_id(item)])
            decided = {**pending["decided"], **turn.answers}
            if asking := [item for item in items if calls.get(_call_id(item), {}).get("task")]:
                yield Ask([_question(item, calls) for item in asking], {**pending, "decided": decided})
                return
            for item in items:
                agreed = _call_id(item) in calls or decided[_call_id(item)] is True
                (given.approve if agreed else given.reject)(item)
        options = {"run_config": RunConfig(group_id=turn.context.key), **self._run}
        result = Runner.run_streamed(agent, given, context=turn.deps, **options)
        try:
            async for event in result.stream_events():
                for one in _reported(event):
                    yield one
        finally:
            result.cancel()
        used = [getattr(result.context_wrapper.usage, name) for name in _COUNTS]
        yield Usage(*(now - before for now, before in zip(used, pending["used"], strict=True)))
        if result.interruptions:
            state = result.to_state().to_json(context_serializer=lambda _: {})
            # Mappings are written in spite of the serializer.
            state["context"]["context"] = {}
            kept = {"kept": pending["kept"], "used": used, "state": state, "calls": calls, "decided": {}}
            yield Ask([_question(item, calls) for item in result.interruptions], kept)
            return
        yield Remember(json.loads(json.dumps(result.to_input_list()[pending["kept"] :])))
        for one in final_of(result.final_output):
            yield one


def _content(part: Part) -> dict[str, Any]:
    if not isinstance(part, FilePart) or not is_web_file(part):
        return {"type": "input_text", "text": text_of(part)}
    url = part.url
    if part.raw is not None:
        url = f"data:{part.media_type};base64,{base64.b64encode(part.raw).decode()}"
    if part.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.raw is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": url}


def _reported(event: Any) -> Iterator[BridgeEvent]:
    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
        yield Text(event.data.delta, event.data.item_id)
    elif event.type == "run_item_stream_event" and event.name == "tool_called":
        raw = event.item.raw_item
        yield ToolCall(id=_of(raw, "call_id"), name=_of(raw, "name"), arguments=_of(raw, "arguments"))
    elif event.type == "run_item_stream_event" and event.name == "tool_output":
        yield ToolResult(tool_call_id=_of(event.item.raw_item, "call_id"), content=str(event.item.output))


def _of(raw: Any, name: str) -> Any:
    return (raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)) or ""


def _call_id(item: Any) -> str:
    return str(_of(item.raw_item, "call_id") or _of(item.raw_item, "id"))


def _question(item: Any, calls: dict[str, dict[str, Any]]) -> Question:
    if (call := calls.get(_call_id(item))) is not None:
        return Question(id=_call_id(item), text=call["text"], tool=item.tool_name or "")
    return Question.approval(_call_id(item), item.tool_name or "", parsed(_of(item.raw_item, "arguments")))


# -- remote agents as tools ---------------------------------------------------------------------------------------------


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of an agent that `OpenAIAgentsBridge` serves; its questions are interruptions of the run.

    Only a call that has not begun can interrupt a run of the SDK, so the remote agent is called when the SDK asks whether the
    tool needs approval, and continued before the run is resumed. It receives no message twice.

    The parameters are those of `AgentTool`.
    """
    remote = _Remote(AgentTool(client, skill, name=name, description=description, **options))

    async def call(context: ToolContext[Any], message: str) -> str:
        return str(_calls()[context.tool_call_id]["text"])

    # Types, not text: the SDK evaluates annotations outside this module.
    call.__annotations__ = {"context": ToolContext[Any], "message": str, "return": str}
    about = {"name_override": remote.tool.name, "description_override": remote.tool.description}
    return function_tool(call, needs_approval=remote.asks, **about)


class _Remote:
    def __init__(self, tool: AgentTool) -> None:
        self.tool = tool

    async def asks(self, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Call the agent; whether its task waits for an answer."""
        calls = _calls()
        if call_id not in calls:
            calls[call_id] = await self.tool.resume(None, str(arguments.get("message", "")))
        return bool(calls[call_id]["task"])


def _calls() -> dict[str, dict[str, Any]]:
    return calls_of_run("OpenAIAgentsBridge")


async def _continue(item: Any, calls: dict[str, dict[str, Any]], answer: Any) -> None:
    (tool,) = (tool for tool in item.agent.tools if tool.name == item.tool_name)
    calls[_call_id(item)] = await tool.needs_approval.__self__.tool.resume(calls[_call_id(item)], "", answer)


# -- remote agents as models --------------------------------------------------------------------------------------------


def remote_model(client: Client, **options: Any) -> Model:
    """A remote agent as the model of an agent: ``Agent("clerk", model=remote_model(client))``, also behind handoffs.

    The agent receives the messages after its last answer, and neither instructions nor tools. Its context and its waiting task are in
    the id of that answer.

    Parameters:
        client: the client of the agent.
        options: further arguments of `Client.stream`, such as ``timeout``.
    """
    return _RemoteModel(AgentModel(client, **options))


class _RemoteModel(Model):  # type: ignore[misc]
    def __init__(self, agent: AgentModel) -> None:
        self._agent = agent

    async def get_response(self, system_instructions: Any, input: Any, *arguments: Any, **options: Any) -> Any:
        async for event in self.stream_response(system_instructions, input, *arguments, **options):
            if event.type == "response.completed":
                return ModelResponse(output=event.response.output, usage=SDKUsage(requests=1), response_id=None)
        raise AssertionError("the last event is the response")

    async def stream_response(
        self, system_instructions: Any, input: Any, *arguments: Any, **options: Any
    ) -> AsyncIterator[Any]:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        text, mark = self._agent.since(_said(item) for item in items)
        about = {"item_id": new_id(), "output_index": 0, "content_index": 0, "logprobs": []}
        number = 0
        async for piece in self._agent.send(text, mark):
            if isinstance(piece, str):
                delta = {"type": "response.output_text.delta", "delta": piece, "sequence_number": number, **about}
                yield ResponseTextDeltaEvent.model_validate(delta)
                number += 1
                continue
            content = [{"type": "output_text", "text": piece.text, "annotations": [], "logprobs": []}]
            message = {
                "type": "message",
                "id": piece.mark,
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
            response = {"id": new_id(), "created_at": 0, "model": "a2a", "object": "response", "output": [message]}
            response |= {"parallel_tool_calls": False, "tool_choice": "none", "tools": []}
            completed = {"type": "response.completed", "response": response, "sequence_number": number}
            yield ResponseCompletedEvent.model_validate(completed)


def _said(item: Any) -> tuple[str, str, str]:
    """The role, the text and the id of an item of the conversation."""
    content = _of(item, "content")
    texts = [content] if isinstance(content, str) else [_of(part, "text") for part in content or ()]
    return _of(item, "role"), "\n".join(filter(None, texts)), _of(item, "id")
