"""Executors for agents and workflows of frameworks: objects with ``run`` or ``run_stream``.

`chat_messages` creates their input, and `mapper` converts their events.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from a2a_sync.agent.asynchronous import iterate, run_coroutine
from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.agent.results import final_events
from a2a_sync.integrations.chat_messages import from_chat_messages, to_chat_messages
from a2a_sync.integrations.mapper import Mapper, RunEvent
from a2a_sync.multiagent.taskresult import RESULT_NAMES
from a2a_sync.types import Artifact, DataPart, Message, Role, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

__all__ = [
    "AgentRunnerExecutor",
    "RunResult",
    "WorkflowExecutor",
    "workflow_input",
]

#: Roles of chat messages that are not shown to clients.
_PRIVATE = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: its answer, and the chat messages of the run, which become the history of the task.

    Without a `text`, the answer is the last message. `messages` may begin with the input of the run. Messages of the
    system and of the user are omitted: the former must not be shown to clients, and the latter are in the history
    already.
    """

    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()


class AgentRunner(Protocol):
    """An agent of a framework: at least one of these. Both may be ``async def``."""

    def run(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        """The result: text, a `RunResult`, or another value that a handler may return."""

    def run_stream(self, messages: list[dict[str, Any]], **options: Any) -> Iterable[RunEvent]:
        """What happens, as it does."""


class WorkflowRunner(Protocol):
    """A workflow of a framework."""

    def run_stream(self, state: dict[str, Any]) -> Iterable[RunEvent]:
        """What happens, as it does."""


class AgentRunnerExecutor:
    """Serves an `AgentRunner`: ``A2AApp(AgentRunnerExecutor(agent), card=…)``.

    The runner receives the history of the task as chat messages, and `options`. ``run_stream`` is preferred to ``run``.
    The answer becomes the artifact ``result`` and the last message of the history; the final status does not repeat it.
    An exception fails the task as one of a handler does: its text is shown to the client only for a `PublicError` or
    `AgentError`.
    """

    def __init__(self, agent: AgentRunner | Any, **options: Any) -> None:
        if not any(callable(getattr(agent, name, None)) for name in ("run", "run_stream")):
            raise TypeError(f"{type(agent).__name__} has neither run nor run_stream")
        self._agent = agent
        self._options = options

    def prompt(self, context: RequestContext) -> list[dict[str, Any]]:
        """The input of the agent. Override it for another one, such as ``to_chat_messages(context.conversation())``."""
        return to_chat_messages(context.history)

    def execute(self, context: RequestContext) -> None:
        """Run the agent. On the run's worker thread."""
        prompt = self.prompt(context)
        given = _public(prompt)
        if callable(getattr(self._agent, "run_stream", None)):
            follow(self._agent.run_stream(prompt, **self._options), context)
            return
        value = self._agent.run(prompt, **self._options)
        if inspect.iscoroutine(value):
            value = run_coroutine(value, context)
        result = RunResult(value) if isinstance(value, str) else value
        if isinstance(result, RunResult):
            context.emit(*_events_of(result, given, context))
        else:
            context.emit(*final_events(value, context))


class WorkflowExecutor:
    """Serves a `WorkflowRunner`. Its input is `workflow_input` of the message; it ends as an `AgentRunnerExecutor`."""

    def __init__(self, runner: WorkflowRunner | Any) -> None:
        if not callable(getattr(runner, "run_stream", None)):
            raise TypeError(f"{type(runner).__name__} has no run_stream")
        self._runner = runner

    def execute(self, context: RequestContext) -> None:
        """Run the workflow. On the run's worker thread."""
        follow(self._runner.run_stream(workflow_input(context.message)), context)


def workflow_input(message: Message) -> dict[str, Any]:
    """The initial state of a workflow: the text as ``query``, the members of data objects, and the metadata.

    Later ones override earlier ones of the same name.
    """
    state: dict[str, Any] = {"query": message.text} if message.text else {}
    for part in message.parts:
        if isinstance(part, DataPart) and isinstance(part.data, Mapping):
            state.update(part.data)
    return {**state, **message.metadata}


# -- from a run to its task ---------------------------------------------------------------------------------------------


def follow(events: Any, context: RequestContext) -> None:
    """Emit the events of a run; `events` may be an async generator. It is always closed."""
    mapper = Mapper(context.task_id, context.context_id)
    listed = iter(iterate(events, context) if inspect.isasyncgen(events) else events)
    try:
        for event in listed:
            context.check_cancelled()
            _send(mapper, event, context)
            if mapper.state.terminal:
                return
    finally:
        close = getattr(listed, "close", None)
        if close is not None:
            close()
    context.emit(*_ending(mapper.completed(mapper.pending())))


def _send(mapper: Mapper, event: RunEvent, context: RequestContext) -> None:
    before = len(mapper.said)
    mapped = mapper.map_event(event)
    sent: list[Event] = list(mapper.said[before:])
    if isinstance(mapped, TaskStatusUpdateEvent):
        # The task is in the working state already when its run begins.
        sent += [] if mapped.status.state is TaskState.WORKING else _ending(mapped)
    elif mapped is not None:
        sent.append(mapped)
    if sent:
        context.emit(*sent)


def _ending(status: TaskStatusUpdateEvent) -> list[Event]:
    """The events of a final status, in one step: the last message is the result and the end of the history.

    A completed status does not repeat it, because clients that read artifacts and status would show the answer twice.
    """
    message = status.status.message
    if message is None or status.status.state is not TaskState.COMPLETED:
        return [status]
    result = Artifact(name=RESULT_NAMES[0], parts=message.parts)
    silent = replace(status, status=replace(status.status, message=None))
    return [TaskArtifactUpdateEvent(artifact=result, last_chunk=True), message, silent]


def _events_of(result: RunResult, given: list[dict[str, Any]], context: RequestContext) -> list[Event]:
    chats = _public(result.messages)
    if chats[: len(given)] == given:
        del chats[: len(given)]
    # The user's messages of the history are those that clients have sent.
    history = [message for message in from_chat_messages(chats) if message.role is Role.AGENT]
    last = history[-1].text if history else ""
    text = result.text or last
    if text and text == last:
        history.pop()
    mapper = Mapper(context.task_id, context.context_id)
    return [*history, *_ending(mapper.completed(text or None))]


def _public(chats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(chat) for chat in chats if chat.get("role") not in _PRIVATE]
