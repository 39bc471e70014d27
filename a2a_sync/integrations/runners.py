"""Executors for agents and workflows of frameworks: objects with ``run`` or ``run_stream``.

`chat_messages` creates their input, and `mapper` converts their events.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from a2a_sync.agent.asynchronous import iterate, run_coroutine
from a2a_sync.agent.executor import RequestContext
from a2a_sync.agent.results import final_events
from a2a_sync.concurrency.closing import closed_after
from a2a_sync.integrations.bridge import Bridge, BridgeEvent, Final, Turn
from a2a_sync.integrations.chat_messages import from_chat_messages, to_chat_messages
from a2a_sync.integrations.mapper import Mapper, RunEvent
from a2a_sync.types import DataPart, Message, Role, TaskArtifactUpdateEvent, TaskState

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
        """The events of the run, as they happen."""


class WorkflowRunner(Protocol):
    """A workflow of a framework."""

    def run_stream(self, state: dict[str, Any]) -> Iterable[RunEvent]:
        """The events of the run, as they happen."""


class AgentRunnerExecutor(Bridge):
    """Serves an `AgentRunner`: ``A2AApp(AgentRunnerExecutor(agent), card=…)``.

    The runner receives the history of the task as chat messages, and `options`. ``run_stream`` is preferred to ``run``.
    The answer becomes the artifact ``result`` and the last message of the history; the final status does not repeat it.
    An exception fails the task as one of a handler does: its text is shown to the client only for a `PublicError` or
    `AgentError`.
    """

    def __init__(self, agent: AgentRunner | Any, **options: Any) -> None:
        if not any(callable(getattr(agent, name, None)) for name in ("run", "run_stream")):
            raise TypeError(f"{type(agent).__name__} has neither run nor run_stream")
        super().__init__(agent)
        self._agent = agent
        self._options = options

    def prompt(self, context: RequestContext) -> list[dict[str, Any]]:
        """The input of the agent. Override it for another one, such as ``to_chat_messages(context.conversation())``."""
        return to_chat_messages(context.history)

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run the agent. On the run's worker thread."""
        context = turn.context
        prompt = self.prompt(context)
        given = _without_system_messages(prompt)
        if callable(getattr(self._agent, "run_stream", None)):
            yield from _followed(self._agent.run_stream(prompt, **self._options), context)
            return
        value = self._agent.run(prompt, **self._options)
        if inspect.iscoroutine(value):
            value = run_coroutine(value, context)
        if isinstance(value, (str, RunResult)):
            yield from _result_events(RunResult(value) if isinstance(value, str) else value, given)
        else:
            yield final_events(value, context)


class WorkflowExecutor(Bridge):
    """Serves a `WorkflowRunner`. Its input is `workflow_input` of the message; it ends as an `AgentRunnerExecutor`."""

    def __init__(self, runner: WorkflowRunner | Any) -> None:
        if not callable(getattr(runner, "run_stream", None)):
            raise TypeError(f"{type(runner).__name__} has no run_stream")
        super().__init__(runner)
        self._runner = runner

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run the workflow. On the run's worker thread."""
        return _followed(self._runner.run_stream(workflow_input(turn.message)), turn.context)


def workflow_input(message: Message) -> dict[str, Any]:
    """The initial state of a workflow: the text as ``query``, the members of data objects, and the metadata.

    Later ones override earlier ones of the same name.
    """
    state: dict[str, Any] = {"query": message.text} if message.text else {}
    for part in message.parts:
        if isinstance(part, DataPart) and isinstance(part.data, Mapping):
            state.update(part.data)
    return {**state, **message.metadata}


# -- from a run to the events of a bridge -------------------------------------------------------------------------------


def _followed(events: Any, context: RequestContext) -> Iterator[BridgeEvent]:
    """The events of a run; `events` may be an async generator. It is always closed."""
    mapper = Mapper(context.task_id, context.context_id)
    listed = iter(iterate(events, context) if inspect.isasyncgen(events) else events)
    with closed_after(listed):
        for event in listed:
            context.check_cancelled()
            before = len(mapper.said)
            mapped = mapper.map_event(event)
            yield from mapper.said[before:]
            if isinstance(mapped, TaskArtifactUpdateEvent):
                yield mapped
            elif mapped is not None and mapped.status.state is TaskState.FAILED:
                yield mapped
                return
            elif mapper.state.terminal:
                break
    if (message := mapper.pending()) is not None:
        yield Final(message.text)


def _result_events(result: RunResult, given: list[dict[str, Any]]) -> Iterator[BridgeEvent]:
    chats = _without_system_messages(result.messages)
    if chats[: len(given)] == given:
        del chats[: len(given)]
    # The user's messages of the history are those that clients have sent.
    history = [message for message in from_chat_messages(chats) if message.role is Role.AGENT]
    last = history[-1].text if history else ""
    text = result.text or last
    if text and text == last:
        history.pop()
    yield from history
    yield Final(text)


def _without_system_messages(chats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(chat) for chat in chats if chat.get("role") not in _PRIVATE]
