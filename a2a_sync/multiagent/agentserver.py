"""`AgentServer`: an agent as a function that takes a task and gives it back with what it has made.

A face over `A2AApp` and `Client`: it knows how a task is shown to such a function and how what comes back becomes events.
Tasks, their threads and their states are the app's, so that it can be served and registered like any other agent.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar, cast

from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.agent.localcalls import WHOLE_HISTORY
from a2a_sync.card import AgentCard
from a2a_sync.client import Client
from a2a_sync.client.content import Content, as_message
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.observers import Listeners
from a2a_sync.errors import (
    AgentError,
    PublicError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.multiagent.events import TRANSITION, AgentEvent, ObservedStore
from a2a_sync.operations import Endpoint, RunRequest
from a2a_sync.stores import open_store
from a2a_sync.stores.base import LOG_PAGE_BYTES, UNBOUNDED, Owner, StartedRun, StoreQuota, TaskStore
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    Artifact,
    Message,
    Metadata,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a_sync.wsgi.app import A2AApp

logger = get_logger(__name__)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])

#: Where the first message of a task says under which id it was submitted.
_GIVEN_ID = "a2a_sync.submitted_as"
_OURS = Owner()
#: How long a finished call waits for slow listeners, in seconds.
_HEARING = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask(Task):
    """A task as an `AgentServer` shows it: frozen like all tasks; the ``with_`` methods give a new one.

    ``id`` is the one it was submitted with, if there was one.
    """

    _log: Callable[[], tuple[TaskStatus, ...]] = field(default=tuple, repr=False, compare=False)
    _stopped: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)

    @property
    def message(self) -> Message:
        """The message that the task began with."""
        return self.history[0]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turns of user and agent: the `history` of other tasks."""
        return self.history

    @property
    def session_id(self) -> str:
        """The `context_id`."""
        return self.context_id

    @property
    def status_history(self) -> tuple[TaskStatus, ...]:
        """All statuses until now, the first one first; read from the task's log at each look, as long as that is kept."""
        return self._log()

    @property
    def cancelled(self) -> bool:
        """Somebody has cancelled the task that the executor works on: stop as soon as you can."""
        return self._stopped()

    def with_artifact(self, content: Any, *, name: str = "", description: str = "") -> Self:
        """The task with one more artifact: text, a part, a list of these, or an `Artifact`."""
        artifact = content
        if not isinstance(content, Artifact):
            artifact = Artifact(parts=as_message(content).parts, name=name, description=description)
        return replace(self, artifacts=(*self.artifacts, artifact))

    def with_message(self, content: Content) -> Self:
        """The task with one more message of the agent."""
        return replace(self, history=(*self.history, _said(content)))

    def with_status(self, state: TaskState | str, content: Content | None = None) -> Self:
        """The task in another state, with a message that explains it: ``task.with_status("input-required", "Which size?")``."""
        message = None if content is None else _said(content)
        return replace(self, status=TaskStatus(state=TaskState(state), message=message))


def _said(content: Content) -> Message:
    return replace(as_message(content), role=Role.AGENT)


#: What an `AgentServer` runs: it may add artifacts and messages, and may set the status.
TaskFunction = Callable[[AgentTask], Task | Awaitable[Task]]


class AgentServer(Closes):
    """An agent for this process, made of a card and a function: ``AgentServer(card, lambda task: task.with_artifact("Hi"))``.

    Parameters:
        card: see `create_agent_card`.
        executor: takes an `AgentTask` and returns it, changed or not; it may be ``async def``. On a worker thread, for several tasks at a time. The task
            is then completed, unless the executor has set another state that ends it or that waits for its client; a task
            that was cancelled meanwhile stays so. What it raises fails the task, and the text of the exception is the
            message of the status: everybody who may see the task may read it. An `AgentExecutor` or `Agent` is taken too.
        store: as for `A2AApp`, as are the other `options`.

    ``server.app`` is the WSGI application; `Client` and `AgentRegistry` take the server as it is. Used with ``with``, or closed
    by `close`.
    """

    def __init__(
        self, card: AgentCard, executor: TaskFunction | Any, *, store: TaskStore | str | None = None, **options: Any
    ) -> None:
        self._listeners = Listeners({"task:cancelled": "task:canceled"})
        self._opened = store is None or isinstance(store, str)
        self._given_ids: dict[str, str] = {}
        runs = executor if hasattr(executor, "execute") else _TaskExecutor(executor, self._shown)
        if getattr(runs, "direct", False):
            raise TypeError("an AgentServer's executor answers with tasks: direct = True is not for it")
        self._store = cast(TaskStore, _NamingStore(open_store(store), self._heard, self._given_ids))
        self.app = A2AApp(runs, card=card, store=self._store, **options)
        self._client = Client(self.app)

    # -- tasks --

    def submit_task(
        self,
        message: Content,
        *,
        id: str | None = None,
        session_id: str | None = None,
        metadata: Metadata | None = None,
        timeout: float | None = None,
    ) -> AgentTask:
        """Run `message` as a new task; the task when it has ended or waits for its client.

        Parameters:
            message: text, parts or a `Message`.
            id: a name of yours for the task, 1 to 255 printable ASCII characters; by default it gets one. The same id and
                content again is the same task and is not run twice.
            session_id: the conversation it belongs to.
            metadata: goes with the request.
            timeout: seconds to wait.

        Raises:
            InvalidParamsError: `id` was used for other content.
            TransportTimeoutError: `timeout` went by; the task goes on.
        """
        first = as_message(message)
        if id is not None:
            first = replace(first, metadata={**first.metadata, _GIVEN_ID: id})
        task = self._client.send(
            first,
            context_id=session_id,
            history_length=WHOLE_HISTORY,
            metadata=metadata,
            idempotency_key=id,
            timeout=timeout,
        )
        return self._done(task)

    def send_message(self, task_id: str, message: Content, *, timeout: float | None = None) -> AgentTask:
        """Go on with a task that waits for its client.

        Raises:
            TaskNotFoundError: there is none.
            UnsupportedOperationError: it does not wait.
        """
        real = self._real_id(task_id)
        task = self._client.get_task(real, history_length=0)
        if not task.state.interrupted:
            raise UnsupportedOperationError(f"The task does not wait for a message: it is {task.state}")
        self._note(real, task_id)
        answer = self._client.send(message, task_id=real, history_length=WHOLE_HISTORY, timeout=timeout)
        return self._done(answer)

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a task and tell its executor (`AgentTask.cancelled`); False if there is none, or none that has not ended."""
        real = self._real_id(task_id)
        try:
            self._note(real, task_id)
            self._client.cancel_task(real)
        except (TaskNotFoundError, TaskNotCancelableError):
            return False
        self._listeners.flush(_HEARING)
        return True

    def get_task(self, task_id: str) -> AgentTask | None:
        """The task as it is now; None if there is none."""
        try:
            return self._shown(self._client.get_task(self._real_id(task_id)))
        except TaskNotFoundError:
            return None

    def get_agent_card(self) -> AgentCard:
        """The card, with what the server can do."""
        return self.app.agent_card()

    # -- listeners --

    def on(self, event: str, listener: _Listener) -> _Listener:
        """Call ``listener(event)`` with an `AgentEvent` when a task comes into a state: ``task:submitted``, ``task:working``,
        ``task:completed``, ``task:failed``, ``task:canceled`` (or ``task:cancelled``), ``task:input-required`` …

        On a thread of their own, in order; what listeners raise is logged and changes nothing. What `submit_task` and its like
        have done was heard when they return. The text of a failure is ``event.status.message.text``.

        Raises:
            ValueError: no task can come into such a state.
        """
        kind, _, state = event.partition(":")
        if kind != "task" or TaskState(state) is TaskState.UNSPECIFIED:
            raise ValueError(f"no event {event!r}; there are task:submitted, task:working and the other states")
        return self._listeners.on(event, listener)

    def off(self, event: str, listener: Callable[..., Any]) -> bool:
        """Call it no more; False where it was not called for `event`."""
        return self._listeners.off(event, listener)

    def _heard(self, event: AgentEvent) -> None:
        if event.name == TRANSITION:
            given = self._given_ids.get(event.task_id)
            if event.state.terminal:
                self._given_ids.pop(event.task_id, None)
            self._listeners.tell(f"task:{event.state}", event if given is None else replace(event, task_id=given))

    # -- as the target of clients --

    def endpoint(self) -> Endpoint:
        """What a client in the same process calls."""
        return self.app.endpoint()

    def agent_card(self) -> AgentCard:
        """What a client in the same process reads; `get_agent_card`."""
        return self.app.agent_card()

    def close(self, timeout: float = 5.0) -> None:
        """Give what runs `timeout` seconds, and end. Idempotent."""
        self._client.close()
        self.app.close(timeout)
        self._listeners.close()
        if self._opened:
            self._store.close()

    # -- ids and shapes --

    def _real_id(self, task_id: str) -> str:
        """The protocol's id of a task that was submitted as `task_id`."""
        sent = self._store.sent(_OURS, task_id)
        return task_id if sent is None else sent.task_id

    def _note(self, real: str, given: str) -> None:
        """What is about to happen to a task is told under its given id, also if it was submitted before this process began."""
        if real != given and not self._store.head(_OURS, real).status.state.terminal:
            self._given_ids.setdefault(real, given)

    def _done(self, task: Task | Message) -> AgentTask:
        if isinstance(task, Message):
            raise TypeError("the executor answered with a message and no task")
        self._listeners.flush(_HEARING)
        return self._shown(task)

    def _shown(self, task: Task, stopped: Callable[[], bool] = lambda: False, scope: Owner = _OURS) -> AgentTask:
        given = task.history[0].metadata.get(_GIVEN_ID) if task.history else None
        if given is not None and ((sent := self._store.sent(_OURS, given)) is None or sent.task_id != task.id):
            # Whoever calls over the wire may write there what they like.
            given = None
        return AgentTask(
            id=given or task.id,
            context_id=task.context_id,
            status=task.status,
            artifacts=task.artifacts,
            history=task.history,
            metadata=task.metadata,
            _log=lambda: self._statuses(task, scope),
            _stopped=stopped,
        )

    def _statuses(self, task: Task, scope: Owner) -> tuple[TaskStatus, ...]:
        try:
            return status_history(self._store, task.id, scope)
        except TaskNotFoundError:
            return (task.status,)


def status_history(store: TaskStore, task_id: str, scope: Owner = _OURS) -> tuple[TaskStatus, ...]:
    """All statuses of a task, the first one first, as long as its log is kept (see `Limits.stream_replay_window`); afterwards the present one.

    Raises:
        TaskNotFoundError: there is no such task.
    """
    found: list[TaskStatus] = []
    after = 0
    while True:
        page = store.log(scope, task_id, after=after, max_bytes=LOG_PAGE_BYTES)
        entries: tuple[Entry, ...] = page.entries
        found += [entry.event.status for entry in entries if isinstance(entry.event, TaskStatusUpdateEvent)]
        if not entries or entries[-1].number >= page.version:
            return tuple(found) or (store.head(scope, task_id).status,)
        after = entries[-1].number


class _NamingStore(ObservedStore):
    """Notes, before anything is told of a new task, under which id it was submitted."""

    def __init__(self, store: TaskStore, tell: Callable[[AgentEvent], None], given_ids: dict[str, str]) -> None:
        super().__init__(store, tell)
        self._given_ids = given_ids

    def start_run(
        self,
        scope: Owner,
        request: RunRequest,
        events: Sequence[LogEvent],
        *,
        create: bool,
        quota: StoreQuota = UNBOUNDED,
    ) -> StartedRun:
        given = request.message.metadata.get(_GIVEN_ID) if create else None
        if given is not None and scope == _OURS and request.key is not None and request.key.key == given:
            self._given_ids[request.task_id] = given
        return super().start_run(scope, request, events, create=create, quota=quota)


class _TaskExecutor:
    """Shows a function the task that a run works on, and emits what it has changed."""

    def __init__(self, function: TaskFunction, shown: Callable[..., AgentTask]) -> None:
        if not callable(function):
            raise TypeError(f"an executor is a function of a task, not {type(function).__name__}")
        self._function = function
        self._shown = shown

    def execute(self, context: RequestContext) -> None:
        """On the run's thread."""
        before = self._shown(context.task, lambda: context.cancelled, context._run.scope)
        context.emit(*self._changes(before, self._call(before, context), context))

    def _call(self, task: AgentTask, context: RequestContext) -> Task:
        try:
            result = self._function(task)
            if inspect.iscoroutine(result):
                from a2a_sync.agent.asynchronous import run_coroutine

                result = run_coroutine(result, context)
        except (AgentError, PublicError):
            raise
        except Exception as error:
            logger.exception("the executor failed")
            raise PublicError(str(error) or type(error).__name__) from error
        if not isinstance(result, Task):
            raise PublicError(f"the executor returned {type(result).__name__}, not the task")
        return result

    @staticmethod
    def _changes(before: AgentTask, after: Task, context: RequestContext) -> list[Event]:
        known = {message.message_id for message in before.history}
        events: list[Event] = [
            TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True)
            for artifact in after.artifacts
            if artifact not in before.artifacts
        ]
        events += [context.agent_message(message) for message in after.history if message.message_id not in known]
        status = after.status
        kept = status.state.terminal or status.state.interrupted
        message = None if status.message is None or status == before.status else context.agent_message(status.message)
        state = status.state if kept else TaskState.COMPLETED
        return [*events, TaskStatusUpdateEvent(status=TaskStatus(state=state, message=message))]
