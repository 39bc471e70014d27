"""Events of agents for listeners: calls, handled messages, cancels, transitions of tasks.

Transitions and handled messages are derived from the batches that an app publishes (`TaskObserver`); an interceptor
reports calls and cancels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from a2a_sync.concurrency.observers import Listeners
from a2a_sync.errors import AgentError
from a2a_sync.lifecycle import LogEvent, ends_run
from a2a_sync.operations import CANCEL_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE, AnyCall, AnyOperation, interceptor
from a2a_sync.stores.base import TaskBatch
from a2a_sync.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent

CALL = "agent.call"
MESSAGE = "agent.message"
CANCEL = "agent.cancel"
TRANSITION = "task.transition"
NAMES = (CALL, MESSAGE, CANCEL, TRANSITION)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])
#: The events that calls are reported by.
_CALL_EVENTS: dict[AnyOperation, str] = {SEND_MESSAGE: CALL, SEND_STREAMING_MESSAGE: CALL, CANCEL_TASK: CANCEL}
#: The value of `AgentEvent.reply` by the state in which a run has ended.
_REPLIES = {
    TaskState.FAILED: "error",
    TaskState.REJECTED: "rejected",
    TaskState.INPUT_REQUIRED: "input_required",
    TaskState.AUTH_REQUIRED: "auth_required",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event. Members that do not apply to it are empty.

    Parameters:
        name: ``agent.call``, ``agent.message``, ``agent.cancel`` or ``task.transition``.
        agent: the name of the agent, as it was given to `AgentEvents`.
        task_id, context_id: the ids of the task; empty if a call was answered without a task.
        before, state: the states before and after a transition. The state before a new task is ``unspecified``.
        status: the current status of the task.
        reply: the outcome of a handled message: ``reply``, ``stream``, ``input_required``, ``auth_required``,
            ``rejected``, ``error``, or ``canceled``.
        seconds: the duration of a run, or of a call until its answer or the beginning of its stream.
        error: the reason of the error with which a call or cancel was refused.
    """

    name: str
    agent: str = ""
    task_id: str = ""
    context_id: str = ""
    before: TaskState = TaskState.UNSPECIFIED
    state: TaskState = TaskState.UNSPECIFIED
    status: TaskStatus | None = None
    reply: str = ""
    seconds: float = 0.0
    error: str = ""


class AgentEvents:
    """Listeners for events of agents: ``events.on("task.transition", function)``.

    Pass it to ``Agent.start(**events.watch("name"))``, to an app in the same way, or to an `AgentSupervisor`. Listeners
    are called with an `AgentEvent`, in the order of the events, on a thread of their own; their exceptions are logged.
    Only events of this process are reported.
    """

    def __init__(self) -> None:
        self._listeners = Listeners()

    def on(self, name: str, listener: _Listener) -> _Listener:
        """Call ``listener(event)`` for each event of this name.

        Raises:
            ValueError: there is no event of this name.
        """
        if name not in NAMES:
            raise ValueError(f"no event {name!r}; there are {', '.join(NAMES)}")
        return self._listeners.on(name, listener)

    def off(self, name: str, listener: Callable[..., Any]) -> bool:
        """Remove a listener; False if it was not registered for `name`."""
        return self._listeners.off(name, listener)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all events are delivered; False if this takes more than `timeout` seconds."""
        return self._listeners.flush(timeout)

    def watch(self, agent: str = "") -> dict[str, Any]:
        """Arguments for an `A2AApp` that is observed; `agent` is the name in its events."""

        @interceptor
        def timed(call: AnyCall) -> Generator[AnyCall, Any, Any]:
            name = _CALL_EVENTS.get(call.operation, "")
            if not self._listeners.has_listeners(name):
                return (yield call)
            began = time.perf_counter()
            event = AgentEvent(name=name, agent=agent, task_id=call.task_id, error="INTERNAL_ERROR")
            try:
                result = yield call
                event = replace(event, error="", **_ids_of(result, call))
                return result
            except AgentError as error:
                event = replace(event, error=error.reason)
                raise
            finally:
                self._listeners.notify(name, replace(event, seconds=time.perf_counter() - began))

        return {
            "observers": (TaskObserver(lambda event: self._publish(event, agent)),),
            "interceptors": (timed,),
        }

    def _publish(self, event: AgentEvent, agent: str) -> None:
        if self._listeners.has_listeners(event.name):
            self._listeners.notify(event.name, replace(event, agent=agent))


def _ids_of(result: object, call: AnyCall) -> dict[str, Any]:
    if isinstance(result, Task):
        return {"task_id": result.id, "context_id": result.context_id}
    return {"task_id": getattr(result, "task_id", "") or call.task_id}


@dataclass(slots=True)
class _TrackedTask:
    """A task with a run. ``began`` is the monotonic time when the run began; 0 if it did not begin in this process."""

    state: TaskState
    context_id: str = ""
    number: int = 0
    began: float = 0.0
    streamed: bool = False


class TaskObserver:
    """An observer of an app that emits an `AgentEvent` for each transition and each handled message.

    ``emit`` must not block: it is called while a run writes. Batches that several threads store at once are processed
    in the order of their numbers.
    """

    def __init__(self, emit: Callable[[AgentEvent], None]) -> None:
        self._emit = emit
        self._tracked: dict[str, _TrackedTask] = {}

    def __call__(self, batch: TaskBatch) -> None:
        task_id, entries = batch.task_id, batch.entries
        if task_id not in self._tracked and not entries:
            return
        tracked = self._tracked.get(task_id) or self._track(batch)
        ended = batch.ended or any(ends_run(entry.event) for entry in entries)
        for entry in entries:
            if entry.number > tracked.number:
                tracked.number = entry.number
                self._process_event(task_id, tracked, entry.event, ended)
        if ended:
            del self._tracked[task_id]
            # A run that lost its task to another process ends in a state in which the task continues there.
            if tracked.began and tracked.state.paused:
                seconds = time.monotonic() - tracked.began
                message = _event(MESSAGE, task_id, tracked)
                self._emit(replace(message, state=tracked.state, reply=_reply(tracked), seconds=seconds))

    def _track(self, batch: TaskBatch) -> _TrackedTask:
        # The end of an idle task from outside (a cancel) is not a handled message.
        began = 0.0 if batch.ended and not isinstance(batch.entries[0].event, Message) else time.monotonic()
        tracked = self._tracked[batch.task_id] = _TrackedTask(batch.before, began=began)
        return tracked

    def _process_event(self, task_id: str, tracked: _TrackedTask, event: LogEvent, ended: bool) -> None:
        tracked.context_id = event.context_id
        if isinstance(event, TaskArtifactUpdateEvent):
            # Events that are stored together with the end are a result; earlier ones were streamed.
            tracked.streamed = tracked.streamed or not ended
        elif isinstance(event, TaskStatusUpdateEvent) and event.status.state is not tracked.state:
            status, transition = event.status, _event(TRANSITION, task_id, tracked)
            self._emit(replace(transition, before=tracked.state, state=status.state, status=status))
            tracked.state = status.state


def _event(name: str, task_id: str, tracked: _TrackedTask) -> AgentEvent:
    return AgentEvent(name=name, task_id=task_id, context_id=tracked.context_id)


def _reply(tracked: _TrackedTask) -> str:
    if tracked.state is TaskState.CANCELED:
        return "canceled"
    return _REPLIES.get(tracked.state) or ("stream" if tracked.streamed else "reply")
