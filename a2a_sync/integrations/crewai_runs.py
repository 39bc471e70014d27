"""Runs of crews, agents and flows of CrewAI as events of a bridge: `a2a_sync.integrations.crewai` imports this module."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

from crewai.events.base_events import BaseEvent
from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import scoped_hooks
from crewai.types.streaming import StreamSession
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.streaming import create_frame_generator, create_frame_streaming_state

from a2a_sync.integrations.bridge import BridgeEvent, Note, Text, Turn, Usage, as_json, final_of, parsed
from a2a_sync.integrations.mapper import ToolCall, ToolResult

PROGRESS = "a2a_remote_progress"
_CHUNK = "llm_stream_chunk"
#: Where a canceled run stops, besides at tokens.
_STOPS = (InterceptionPoint.PRE_STEP, InterceptionPoint.PRE_MODEL_CALL, InterceptionPoint.PRE_TOOL_CALL)
#: How a model without function calling begins what it only thinks, and its answer.
_THOUGHTS, _ANSWER = ("Thought:", "Action:"), "Final Answer:"


def followed(
    run: Callable[[], Any], turn: Turn, task: str = "", show: bool = True
) -> Generator[BridgeEvent, None, Any]:
    """The events of a run, which has a thread; its result is that of the generator. `task`: whose tokens are shown."""

    def stop(*_: Any) -> None:
        if turn.context.cancelled:
            raise HookAborted("the task was canceled")

    def sink(source: Any, event: BaseEvent) -> None:
        if event.type == _CHUNK:
            stop()
        # Not the frame of the event, which has all its members as JSON, with agents and crews.
        state.sync_queue.put(cast(Any, event))

    def stoppable() -> Any:
        with scoped_hooks({point: [stop] for point in _STOPS}):
            return run()

    results: list[Any] = []
    sessions: list[StreamSession[Any]] = []
    said: dict[str, tuple[str, int]] = {}
    state = create_frame_streaming_state(results)
    event: Any
    for event in create_frame_generator(state._replace(sink=sink), stoppable, sessions):
        if event.type == _CHUNK and show and not event.tool_call:
            if not task or event.task_id == task:
                text, shown = said.get(event.call_id, ("", 0))
                visible = _spoken(text + event.chunk)
                yield Text(visible[shown:], event.call_id)
                said[event.call_id] = text + event.chunk, max(shown, len(visible))
        elif event.type == PROGRESS and event.note:
            yield Note(event.note)
        elif event.type == "tool_usage_started":
            yield ToolCall(id=event.event_id, name=event.tool_name, arguments=as_json(parsed(event.tool_args)))
        elif event.type == "tool_usage_finished":
            yield ToolResult(tool_call_id=event.started_event_id or "", content=str(event.output))
        elif event.type == "tool_usage_error":
            yield ToolResult(tool_call_id=event.started_event_id or "", content="failed", is_error=True)
    return results[0]


def _spoken(text: str) -> str:
    """What callers may see of the text of a model: not the thoughts and actions of one without function calling."""
    _, found, answer = text.partition(_ANSWER)
    if found:
        return answer.lstrip()
    begins = text.lstrip()
    return "" if any(begins.startswith(mark) or mark.startswith(begins) for mark in _THOUGHTS) else text


def usage_of(used: UsageMetrics) -> Usage:
    return Usage(used.prompt_tokens, used.completion_tokens, used.successful_requests)


def answer_of(output: Any) -> Iterator[BridgeEvent]:
    """The answer: declared outputs and values of flows. Other members of a `CrewOutput` have the prompts of all tasks."""
    declared = getattr(output, "pydantic", None) or getattr(output, "json_dict", None)
    yield from final_of(declared if declared is not None else getattr(output, "raw", output))
