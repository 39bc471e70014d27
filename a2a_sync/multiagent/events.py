"""What happens to an agent, told to listeners: calls, messages that were handled, cancels, transitions of its tasks.

Everything that happens to a task is written to its store, so that is where it is heard of: by an `ObservedStore` in front of
the real one. Nothing below knows that somebody listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from a2a_sync.concurrency.observers import Listeners
from a2a_sync.errors import AgentError
from a2a_sync.lifecycle import Entry, LogEvent, ends_run
from a2a_sync.operations import CANCEL_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE, Call, Endpoint, RunRequest
from a2a_sync.stores import open_store
from a2a_sync.stores.base import (
    UNBOUNDED,
    HeldRun,
    Owner,
    RunRevoked,
    RunToken,
    StartedRun,
    StoreQuota,
    TaskStore,
    Workers,
)
from a2a_sync.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent

CALL = "agent.call"
MESSAGE = "agent.message"
CANCEL = "agent.cancel"
TRANSITION = "task.transition"
NAMES = (CALL, MESSAGE, CANCEL, TRANSITION)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])
#: What a run came to, in the words of its handler.
_REPLIES = {
    TaskState.FAILED: "error",
    TaskState.REJECTED: "rejected",
    TaskState.INPUT_REQUIRED: "input_required",
    TaskState.AUTH_REQUIRED: "auth_required",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Something that has happened. Members that say nothing of it are empty.

    Parameters:
        name: ``agent.call``, ``agent.message``, ``agent.cancel`` or ``task.transition``.
        agent: the name of the agent, as it was given to `AgentEvents`.
        task_id, context_id: the task; of a call that was answered without one, empty.
        before, state: what a transition leads from and to. A new task comes from ``unspecified``.
        status: the status that the task has now.
        reply: what a handled message came to: ``reply``, ``stream``, ``input_required``, ``auth_required``, ``rejected``,
            ``error``, or ``canceled``.
        seconds: how long a call took until it was answered (a stream: until it began), or a run.
        error: the reason of the error by which a call or cancel was refused.
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
    """Listeners for what happens to agents: ``events.on("task.transition", function)``.

    Hand it to ``Agent.start(**events.watch("name"))``, to an app in the same way, or to an `AgentSupervisor`. Functions are
    called with an `AgentEvent`, in the order in which things happened, on a thread of their own; what they raise is logged.
    Only what this process does is told.
    """

    def __init__(self) -> None:
        self._listeners = Listeners()

    def on(self, name: str, listener: _Listener) -> _Listener:
        """Call ``listener(event)`` for each event of this name.

        Raises:
            ValueError: there is no such name.
        """
        if name not in NAMES:
            raise ValueError(f"no event {name!r}; there are {', '.join(NAMES)}")
        return self._listeners.on(name, listener)

    def off(self, name: str, listener: Callable[..., Any]) -> bool:
        """Call it no more; False where it was not called for `name`."""
        return self._listeners.off(name, listener)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that has happened was told; False after `timeout` seconds."""
        return self._listeners.flush(timeout)

    def watch(self, agent: str = "", *, store: TaskStore | str | None = None) -> dict[str, Any]:
        """Arguments for an `A2AApp` whose events are told; `agent` is the name in them. Close a `store` that has a URL with
        ``app.store.close()``."""
        return {
            "store": observed(open_store(store), lambda event: self._tell(event, agent)),
            "interceptors": (lambda endpoint: self._around(endpoint, agent),),
        }

    def _tell(self, event: AgentEvent, agent: str) -> None:
        if self._listeners.wanted(event.name):
            self._listeners.tell(event.name, replace(event, agent=agent))

    def _around(self, endpoint: Endpoint, agent: str) -> Endpoint:
        names = {SEND_MESSAGE: CALL, SEND_STREAMING_MESSAGE: CALL, CANCEL_TASK: CANCEL}

        def timed(call: Call) -> Any:
            name = names.get(call.operation, "")
            if not self._listeners.wanted(name):
                return endpoint(call)
            began = time.perf_counter()
            result, reason = None, "INTERNAL_ERROR"
            try:
                result = endpoint(call)
                reason = ""
                return result
            except AgentError as error:
                reason = error.reason
                raise
            finally:
                task = result if isinstance(result, Task) else None
                event = AgentEvent(
                    name=name,
                    agent=agent,
                    task_id=task.id if task else getattr(result, "task_id", "") or call.task_id,
                    context_id=task.context_id if task else "",
                    seconds=time.perf_counter() - began,
                    error=reason,
                )
                self._listeners.tell(name, event)

        return timed


@dataclass(slots=True)
class _Seen:
    """What was told of a task that has a run."""

    state: TaskState
    context_id: str
    number: int = 0
    began: float = 0.0
    streamed: bool = False


class _Observer:
    """Makes events of what is written to a store. What two threads write at once is told in the order of its numbers."""

    def __init__(self, tell: Callable[[AgentEvent], None]) -> None:
        self._tell = tell
        self._seen: dict[str, _Seen] = {}

    def begun(self, task_id: str, seen: _Seen) -> None:
        """A run begins; or something is about to happen to an idle task."""
        self._seen[task_id] = seen

    def knows(self, task_id: str) -> bool:
        """The task has a run."""
        return task_id in self._seen

    def lost(self, task_id: str) -> None:
        """Its run may not write any more."""
        self._seen.pop(task_id, None)

    def heard(self, task_id: str, entries: Sequence[Entry], ended: bool) -> None:
        seen = self._seen.get(task_id)
        if seen is None:
            return
        ended = ended or any(ends_run(entry.event) for entry in entries)
        for entry in entries:
            if entry.number > seen.number:
                seen.number = entry.number
                self._heard(task_id, seen, entry.event, ended)
        if ended:
            self._seen.pop(task_id, None)
            if seen.began:
                self._tell(
                    AgentEvent(
                        name=MESSAGE,
                        task_id=task_id,
                        context_id=seen.context_id,
                        state=seen.state,
                        reply=self._reply(seen),
                        seconds=time.monotonic() - seen.began,
                    )
                )

    def _heard(self, task_id: str, seen: _Seen, event: LogEvent, ended: bool) -> None:
        if isinstance(event, TaskArtifactUpdateEvent):
            # What comes together with the end is a result; what comes before it was streamed.
            seen.streamed = seen.streamed or not ended
        elif isinstance(event, TaskStatusUpdateEvent) and event.status.state is not seen.state:
            before, seen.state = seen.state, event.status.state
            self._tell(
                AgentEvent(
                    name=TRANSITION,
                    task_id=task_id,
                    context_id=seen.context_id,
                    before=before,
                    state=seen.state,
                    status=event.status,
                )
            )

    @staticmethod
    def _reply(seen: _Seen) -> str:
        if seen.state is TaskState.CANCELED:
            return "canceled"
        return _REPLIES.get(seen.state) or ("stream" if seen.streamed else "reply")


class ObservedStore:
    """`store`, and what is written to it is told: an `AgentEvent` for each transition and each handled message.

    ``tell`` must neither block nor raise: it is called while a run writes.
    """

    def __init__(self, store: TaskStore, tell: Callable[[AgentEvent], None]) -> None:
        self._store = store
        self._observer = _Observer(tell)

    def start_run(
        self,
        scope: Owner,
        request: RunRequest,
        events: Sequence[LogEvent],
        *,
        create: bool,
        quota: StoreQuota = UNBOUNDED,
    ) -> StartedRun:
        """See `TaskStore.start_run`."""
        before = TaskState.UNSPECIFIED if create else self._store.head(scope, request.task_id).status.state
        started = self._store.start_run(scope, request, events, create=create, quota=quota)
        seen = _Seen(before, request.context_id, began=time.monotonic())
        self._observer.begun(request.task_id, seen)
        self._observer.heard(request.task_id, started.entries, False)
        return started

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, max_task_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """See `TaskStore.append`."""
        try:
            entries = self._store.append(token, events, end=end, max_task_bytes=max_task_bytes)
        except RunRevoked:
            self._observer.lost(token.task_id)
            raise
        self._observer.heard(token.task_id, entries, end)
        return entries

    def interrupt(self, scope: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        """See `TaskStore.interrupt`."""
        head = self._store.head(scope, task_id)
        entries = self._store.interrupt(scope, task_id, events)
        if not self._observer.knows(task_id):
            self._observer.begun(task_id, _Seen(head.status.state, head.context_id))
        self._observer.heard(task_id, entries, True)
        return entries

    @property
    def workers(self) -> Workers | None:
        """See `TaskStore.workers`."""
        workers = self._store.workers
        return None if workers is None else cast(Workers, _ObservedWorkers(workers, self._observer))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ObservedWorkers:
    """`workers`, and a run that is taken over from a dead one is known."""

    def __init__(self, workers: Workers, observer: _Observer) -> None:
        self._workers = workers
        self._observer = observer

    def adopt(self, run: HeldRun, request: RunRequest, events: Sequence[LogEvent]) -> StartedRun:
        started = self._workers.adopt(run, request, events)
        self._observer.begun(request.task_id, _Seen(TaskState.WORKING, request.context_id, began=time.monotonic()))
        self._observer.heard(request.task_id, started.entries, False)
        return started

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)


def observed(store: TaskStore, tell: Callable[[AgentEvent], None]) -> TaskStore:
    """`store` as an `ObservedStore`, in the eyes of who uses it."""
    return cast(TaskStore, ObservedStore(store, tell))
