"""The Google ADK: `ADKExecutor` serves its agents, `RemoteAgent` calls agents. Needs ``pip install a2a-sync[adk]``.

The sessions of the ADK hold the conversations. Neither ``a2a-sdk`` nor the ADK's own support of the protocol is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Any

from a2a_sync.concurrency.eventloop import loop_executor
from a2a_sync.integrations.adk_calls import CREDENTIAL, new_message, question
from a2a_sync.integrations.adk_parts import (
    terminal_state,
    to_a2a_message,
    to_a2a_part,
    to_adk_content,
    to_adk_part,
)
from a2a_sync.integrations.adk_remote import RemoteAgent
from a2a_sync.integrations.adk_sessions import Sessions
from a2a_sync.integrations.bridge import (
    About,
    Ask,
    Bridge,
    BridgeEvent,
    File,
    Question,
    Refused,
    Section,
    Text,
    Turn,
    Usage,
    final_of,
    from_adk,
    parsed,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.jsontext import dumps
from a2a_sync.types import FilePart, TaskState

try:
    from google.adk.agents import LoopAgent
    from google.adk.agents.invocation_context import LlmCallsLimitExceededError
    from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig
    from google.genai import types
except ImportError as _error:
    raise ImportError("ADKExecutor needs the Google ADK: pip install 'a2a-sync[adk]'") from _error
try:
    from google.adk.utils._sync_runner import _use_executor_for_sync_callables as _tools_on
except ImportError:  # it is not documented
    _tools_on = None

__all__ = [
    "ADKExecutor",
    "RemoteAgent",
    "terminal_state",
    "to_a2a_message",
    "to_a2a_part",
    "to_adk_content",
    "to_adk_part",
]

_ESCALATION = "escalate"
_ABOUT = ("invocation_id", "author", "usage_metadata", "grounding_metadata", "citation_metadata")


class ADKExecutor(Bridge):
    """Serves the agent of a `Runner` of the ADK: ``A2AApp(ADKExecutor(runner, description="…"), store=…)``.

    Parameters:
        runner: the runner, or a function that makes it.
        run_config: the ``RunConfig`` of all runs. By default texts are streamed, and synchronous tools run on threads.
        on_escalate: the state of a task whose agent escalates and has no parent that it escalates to.
        expose_errors: whether callers see the texts of exceptions.
        options: those of `Bridge`. ``deps`` becomes ``state["temp:deps"]`` of the run, which the ADK does not store.
    """

    public: Mapping[type[BaseException], tuple[TaskState, str]] = {
        LlmCallsLimitExceededError: (TaskState.FAILED, "the agent took too many steps")
    }
    modes: Sequence[str] = ("text/plain", "application/json", "image/*", "audio/*", "video/*", "application/pdf")
    exclusive = True
    decision = "confirmed"

    def __init__(
        self,
        runner: Any,
        *,
        run_config: RunConfig | None = None,
        on_escalate: TaskState = TaskState.INPUT_REQUIRED,
        expose_errors: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(runner, **{"name": getattr(runner, "app_name", ""), "status_text": "auto", **options})
        # The threads of the ADK are as many for all callers as one of them can use.
        self._own_threads = _tools_on is not None and run_config is None
        pool = None if self._own_threads else ToolThreadPoolConfig(max_workers=32)
        self._config = run_config or RunConfig(streaming_mode=StreamingMode.SSE, tool_thread_pool_config=pool)
        self._escalated = TaskState(on_escalate)
        self._expose_errors = expose_errors

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the agent in the session of the conversation, or resume it with the responses to its calls."""
        runner = await self.agent()
        sessions = Sessions(runner, turn)
        await sessions.begin()
        named = {**(self._config.custom_metadata or {}), "a2a_metadata": dict(turn.context.metadata)}
        options: dict[str, Any] = {"run_config": self._config.model_copy(update={"custom_metadata": named})}
        if turn.deps is not None:
            options["state_delta"] = {"temp:deps": turn.deps}
        about = {"user_id": sessions.user, "session_id": sessions.session}
        run = _Run(runner.agent)
        threads = _tools_on(loop_executor()) if self._own_threads else nullcontext()
        try:
            with threads:
                async with aclosing(runner.run_async(**about, new_message=new_message(turn), **options)) as events:
                    async for event in events:
                        for one in run.reported(event):
                            yield one
                        for name, version in event.actions.artifact_delta.items():
                            file = await runner.artifact_service.load_artifact(
                                **sessions.where, filename=name, version=version
                            )
                            if file is not None and isinstance(part := to_a2a_part(file), FilePart):
                                yield File(part, name)
        except Exception as error:
            if not self._expose_errors:
                raise
            raise Refused(str(error) or type(error).__name__) from error
        run.check()
        if run.calls:
            pending, remembered = sessions.asks()
            pending = {**pending, "calls": [(call.id, call.name) for call in run.calls]}
            questions = [question(call, from_adk(turn.message)) for call in run.calls]
            yield remembered
            yield Ask(questions, pending, run.calls[-1].name == CREDENTIAL)
            return
        yield await sessions.ends(run.invocation)
        for one in run.ending(self._escalated):
            yield one


class _Run:
    """What one run has given so far."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._step = 0
        self._streamed = self._escalates = False
        self._final = ""
        self._ended: Any = None
        self._error: Any = None
        self.calls: list[types.FunctionCall] = []
        self._about: dict[str, Any] = {}
        self.invocation = ""

    def reported(self, event: Any) -> Iterator[BridgeEvent]:
        """The events of the bridge for one of the ADK."""
        self.invocation = event.invocation_id or self.invocation
        if event.error_code or event.error_message:
            self._error = event
        content = [part for part in (event.content.parts or () if event.content else ()) if not part.thought]
        text = "".join(part.text for part in content if part.text)
        if text and self._ended is not None:
            # Another agent, or the next round of a loop, speaks after a final response.
            yield Section(self._ended.author)
            self._ended = None
        if event.partial:
            self._streamed = self._streamed or bool(text)
            yield Text(text, str(self._step))
            return
        if text and not self._streamed:
            yield Text(text, str(self._step))
        if text:
            self._final, self._step, self._streamed = text, self._step + 1, False
        yield from self._others(event, content)
        if text and event.is_final_response():
            self._ended = event
        self._escalates = self._escalates or (bool(event.actions.escalate) and not self._in_loop(event.author))
        shown = event.model_dump(mode="json", exclude_none=True, include=set(_ABOUT))
        self._about.update({f"adk_{name}": value for name, value in shown.items()})

    def _others(self, event: Any, parts: list[types.Part]) -> Iterator[BridgeEvent]:
        waits = event.long_running_tool_ids or set()
        for part in parts:
            if (call := part.function_call) is not None:
                if call.id in waits:
                    self.calls.append(call)
                else:
                    yield ToolCall(id=call.id or "", name=call.name or "", arguments=call.args)
            elif (answer := part.function_response) is not None:
                if all(call.id != answer.id for call in self.calls):
                    content = dumps(answer.response).decode()
                    yield ToolResult(tool_call_id=answer.id or "", content=content)
            elif (part.inline_data or part.file_data) and isinstance(file := to_a2a_part(part), FilePart):
                yield File(file)
        if used := event.usage_metadata:
            yield Usage(used.prompt_token_count or 0, used.candidates_token_count or 0, 1)

    def _find(self, author: str) -> Any:
        find = getattr(self._agent, "find_agent", None)
        return find(author) if find is not None else None

    def _in_loop(self, author: str) -> bool:
        agent = self._find(author)
        while agent is not None and not isinstance(agent, LoopAgent):
            agent = agent.parent_agent
        return agent is not None

    def check(self) -> None:
        """Raise the error that an event has reported."""
        if self._error is not None:
            text = self._error.error_message or "An error occurred during processing"
            raise Refused(text, metadata={"adk_error_code": self._error.error_code or ""})

    def ending(self, escalated: TaskState) -> Iterator[BridgeEvent]:
        """The events after the last one of the ADK."""
        yield About(self._about)
        if self._escalates:
            yield About({"adk_escalate": True})
            if escalated is TaskState.INPUT_REQUIRED:
                yield Ask([Question(id=_ESCALATION, text=self._final)])
                return
        agent = self._find(self._ended.author) if self._ended is not None else None
        declared = getattr(agent, "output_schema", None) is not None
        yield from final_of((parsed(self._final) if declared else self._final) or None)
