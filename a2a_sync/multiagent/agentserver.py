"""`AgentServer`: an agent as a function that takes a task and returns it with its results.

A layer over `A2AApp` and `Client`: it converts a task for such a function, and the returned task to events. The app
manages tasks, threads and states, so that the server can be served and registered like any other agent.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from a2a_sync.agent.executor import AgentExecutor, Event, RequestContext
from a2a_sync.agent.inprocess import WHOLE_HISTORY
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.card import AgentCard
from a2a_sync.client import Client
from a2a_sync.client.arguments import as_message
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.observers import Listeners
from a2a_sync.errors import (
    AgentError,
    PublicError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.multiagent.events import TRANSITION, AgentEvent, TaskObserver
from a2a_sync.operations import Endpoint
from a2a_sync.stores.base import LOG_PAGE_BYTES, Owner, TaskBatch, TaskStore
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    Artifact,
    Content,
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

logger: Final = get_logger(__name__)

_Listener = TypeVar("_Listener", bound=Callable[..., Any])

#: The metadata key, in the first message of a task, of the id that the task was submitted with.
_SUBMITTED_ID = "a2a_sync.submitted_as"
_NO_OWNER = Owner()
#: Seconds that a finished call waits for slow listeners.
_LISTENER_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask(Task):
    """A task of an `AgentServer`. Immutable like all tasks; the ``with_`` methods return a new one.

    ``id`` is the id that the task was submitted with, if any.
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
        """All statuses so far, oldest first.

        Each access reads them from the store; see the function `status_history`.
        """
        return self._log()

    @property
    def cancelled(self) -> bool:
        """Whether the task was canceled; the executor should end soon."""
        return self._stopped()

    def with_artifact(self, content: Any, *, name: str = "", description: str = "") -> Self:
        """The task with one more artifact: text, a part, a list of these, or an `Artifact`."""
        artifact = content
        if not isinstance(content, Artifact):
            artifact = Artifact(parts=as_message(content).parts, name=name, description=description)
        return replace(self, artifacts=(*self.artifacts, artifact))

    def with_message(self, content: Content) -> Self:
        """The task with one more message of the agent."""
        return replace(self, history=(*self.history, _as_agent_message(content)))

    def with_status(self, state: TaskState | str, content: Content | None = None) -> Self:
        """The task in another state, with a message: ``task.with_status("input-required", "Which size?")``."""
        message = None if content is None else _as_agent_message(content)
        return replace(self, status=TaskStatus(state=TaskState(state), message=message))


def _as_agent_message(content: Content) -> Message:
    return replace(as_message(content), role=Role.AGENT)


#: What an `AgentServer` runs: it may add artifacts and messages, and may set the status.
TaskFunction = Callable[[AgentTask], Task | Awaitable[Task]]


class AgentServer(Closes):
    """An agent made of a card and a function: ``AgentServer(card, lambda task: task.with_artifact("Hi"))``.

    Parameters:
        card: see `create_agent_card`.
        executor: takes an `AgentTask` and returns it, changed or not; it may be ``async def``. It is called on worker
            threads, for several tasks concurrently. The task is then completed, unless the executor has set another
            terminal or interrupted state, or the task was cancelled meanwhile. An exception fails the task, and its
            text becomes the message of the status, which every caller with access to the task can read. An
            `AgentExecutor` or `Agent` is accepted too.
        store: as for `A2AApp`.
        options: other options of `A2AApp`.

    ``server.app`` is the WSGI application; `Client` and `AgentRegistry` accept the server itself. Use it with ``with``,
    or call `close`.

    Raises:
        TypeError: `executor` is neither callable nor an executor, or has ``direct = True``.
    """

    def __init__(
        self,
        card: AgentCard,
        executor: TaskFunction | AgentExecutor,
        *,
        store: TaskStore | str | None = None,
        **options: Any,
    ) -> None:
        self._listeners = Listeners({"task:cancelled": "task:canceled"})
        self._observer = TaskObserver(self._publish)
        self._submitted_ids: dict[str, str] = {}
        runs = executor if isinstance(executor, AgentExecutor) else _TaskExecutor(executor, self._as_agent_task)
        if AgentSpec.of(runs).direct:
            raise TypeError("an AgentServer's executor answers with tasks: direct = True is not for it")
        observers = (self._observe, *options.pop("observers", ()))
        self.app: A2AApp = A2AApp(runs, card=card, store=store, observers=observers, **options)
        self._store = self.app.store
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
        """Run `message` as a new task, wait until it has ended or is interrupted, and return it.

        Parameters:
            message: text, parts or a `Message`.
            id: your id for the task, 1 to 255 printable ASCII characters; by default one is generated. Submitting the
                same content with the same id again returns the same task and does not run it again.
            session_id: the context id of the task.
            metadata: the metadata of the request.
            timeout: seconds to wait.

        Raises:
            InvalidParamsError: `id` was used for other content.
            TransportTimeoutError: `timeout` seconds have passed; the task continues.
        """
        first = as_message(message)
        if id is not None:
            first = replace(first, metadata={**first.metadata, _SUBMITTED_ID: id})
        task = self._client.send(
            first,
            context_id=session_id,
            history_length=WHOLE_HISTORY,
            metadata=metadata,
            idempotency_key=id,
            timeout=timeout,
        )
        return self._finished_task(task)

    def send_message(self, task_id: str, message: Content, *, timeout: float | None = None) -> AgentTask:
        """Continue an interrupted task with `message`; wait as `submit_task`, for `timeout` seconds.

        Raises:
            TaskNotFoundError: there is no such task.
            UnsupportedOperationError: the task is not interrupted.
        """
        real = self._task_id(task_id)
        task = self._client.get_task(real, history_length=0)
        if not task.state.interrupted:
            raise UnsupportedOperationError(f"The task does not wait for a message: it is {task.state}")
        self._track_submitted_id(real, task_id)
        answer = self._client.send(message, task_id=real, history_length=WHOLE_HISTORY, timeout=timeout)
        return self._finished_task(answer)

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a task and notify its executor (`AgentTask.cancelled`); False if it does not exist or has ended."""
        real = self._task_id(task_id)
        try:
            self._track_submitted_id(real, task_id)
            self._client.cancel_task(real)
        except (TaskNotFoundError, TaskNotCancelableError):
            return False
        self._listeners.flush(_LISTENER_TIMEOUT)
        return True

    def get_task(self, task_id: str) -> AgentTask | None:
        """The task as it is now; None if there is none."""
        try:
            return self._as_agent_task(self._client.get_task(self._task_id(task_id)))
        except TaskNotFoundError:
            return None

    def get_agent_card(self) -> AgentCard:
        """The card, with what the server can do."""
        return self.app.agent_card()

    # -- listeners --

    def on(self, event: str, listener: _Listener) -> _Listener:
        """Call ``listener(event)`` with an `AgentEvent` when a task enters a state. The events are ``task:submitted``, ``task:working``, ``task:completed``, ``task:failed``, ``task:canceled`` (or
        ``task:cancelled``), ``task:input-required`` and the other states.

        Listeners are called in order on a thread of their own; their exceptions are logged. Before `submit_task`,
        `send_message` and `cancel_task` return, they wait up to 5 seconds for the listeners of their events. The text
        of a failure is ``event.status.message.text``.

        Raises:
            ValueError: there is no such event or state.
        """
        kind, _, state = event.partition(":")
        if kind != "task" or TaskState(state) is TaskState.UNSPECIFIED:
            raise ValueError(f"no event {event!r}; there are task:submitted, task:working and the other states")
        return self._listeners.on(event, listener)

    def off(self, event: str, listener: Callable[..., Any]) -> bool:
        """Remove a listener; False if it was not registered for `event`."""
        return self._listeners.off(event, listener)

    def _observe(self, batch: TaskBatch) -> None:
        first = batch.entries[0].event if batch.entries else None
        if batch.before is TaskState.UNSPECIFIED and batch.owner == _NO_OWNER and isinstance(first, Message):
            given = self._submitted_id(first, batch.task_id)
            if given is not None:
                self._submitted_ids[batch.task_id] = given
        self._observer(batch)

    def _publish(self, event: AgentEvent) -> None:
        if event.name == TRANSITION:
            given = self._submitted_ids.get(event.task_id)
            if event.state.terminal:
                self._submitted_ids.pop(event.task_id, None)
            self._listeners.notify(f"task:{event.state}", event if given is None else replace(event, task_id=given))

    # -- as the target of clients --

    def endpoint(self) -> Endpoint:
        """The endpoint that a client in the same process calls."""
        return self.app.endpoint()

    def agent_card(self) -> AgentCard:
        """The card that a client in the same process reads, as `get_agent_card`."""
        return self.app.agent_card()

    def close(self, timeout: float = 5.0) -> None:
        """Close the app, whose runs get `timeout` seconds to end, the client and the listeners. Idempotent."""
        self._client.close()
        self.app.close(timeout)
        self._listeners.close()

    # -- ids and shapes --

    def _task_id(self, task_id: str) -> str:
        """The protocol's id of the task that was submitted with the id `task_id`."""
        sent = self._store.sent(_NO_OWNER, task_id)
        return task_id if sent is None else sent.task_id

    def _track_submitted_id(self, real: str, given: str) -> None:
        """Report coming events of a task under its given id, also if it was submitted before this process started."""
        if real != given and not self._store.head(_NO_OWNER, real).status.state.terminal:
            self._submitted_ids.setdefault(real, given)

    def _finished_task(self, task: Task | Message) -> AgentTask:
        if isinstance(task, Message):
            raise TypeError("the executor answered with a message and no task")
        self._listeners.flush(_LISTENER_TIMEOUT)
        return self._as_agent_task(task)

    def _as_agent_task(
        self, task: Task, stopped: Callable[[], bool] = lambda: False, owner: Owner = _NO_OWNER
    ) -> AgentTask:
        given = self._submitted_id(task.history[0], task.id) if task.history else None
        return AgentTask(
            id=given or task.id,
            context_id=task.context_id,
            status=task.status,
            artifacts=task.artifacts,
            history=task.history,
            metadata=task.metadata,
            _log=lambda: self._statuses(task, owner),
            _stopped=stopped,
        )

    def _submitted_id(self, message: Message, task_id: str) -> str | None:
        """The id that `submit_task` was given for the task with this first message; None if there is none."""
        given = message.metadata.get(_SUBMITTED_ID)
        # Callers over the wire can set the same metadata, so the id counts only with the idempotency key of
        # `submit_task`.
        if (
            not isinstance(given, str)
            or (sent := self._store.sent(_NO_OWNER, given)) is None
            or sent.task_id != task_id
        ):
            return None
        return given

    def _statuses(self, task: Task, owner: Owner) -> tuple[TaskStatus, ...]:
        try:
            return status_history(self._store, task.id, owner)
        except TaskNotFoundError:
            return (task.status,)


def status_history(store: TaskStore, task_id: str, owner: Owner = _NO_OWNER) -> tuple[TaskStatus, ...]:
    """All statuses of a task, oldest first; only the current one if its log was compacted.

    Raises:
        TaskNotFoundError: there is no such task.
    """
    found: list[TaskStatus] = []
    after = 0
    while True:
        page = store.log(owner, task_id, after=after, max_bytes=LOG_PAGE_BYTES)
        entries = page.entries
        found += [entry.event.status for entry in entries if isinstance(entry.event, TaskStatusUpdateEvent)]
        if not entries or entries[-1].number >= page.version:
            return tuple(found) or (store.head(owner, task_id).status,)
        after = entries[-1].number


class _TaskExecutor:
    """Calls a function with the task of the run, and emits its changes as events."""

    def __init__(self, function: TaskFunction, shown: Callable[..., AgentTask]) -> None:
        if not callable(function):
            raise TypeError(f"an executor is a function of a task, not {type(function).__name__}")
        self._function = function
        self._as_agent_task = shown

    def execute(self, context: RequestContext) -> None:
        """Run the function, on the thread of the run."""
        before = self._as_agent_task(context.task, lambda: context.cancelled, context._run.owner)
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
