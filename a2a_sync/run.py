"""One run: user code on one thread, its events checked, stored and published.

A run writes with its token, under a lock of its own, so its entries reach the log and the listeners in one order. Whoever
ends a task from outside (cancel, time limit) takes the token away in the store; a run that finds that out stops, and what
it still emits is refused and logged. A *direct* run begins without a task and gets one as soon as it needs one.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from a2a_sync.errors import A2AError, InternalError, PublicError
from a2a_sync.events import EventHub
from a2a_sync.executor import Event, RequestContext, TaskCancelled
from a2a_sync.lifecycle import ArtifactFold, Entry, LogEvent, check, ends_run
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import RunRevoked, Scope, StartedRun, StoredTask, TaskEnded, TaskStore
from a2a_sync.types import (
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    new_id,
)

logger = logging.getLogger(__name__)

#: The run whose code is being executed here; a blocking in-process send looks at it.
current_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("a2a_sync_run", default=None)


def utc_now() -> datetime:
    """Now in UTC, cut to milliseconds (spec 5.6.1)."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def status_event(request: RunRequest, state: TaskState, text: str = "") -> TaskStatusUpdateEvent:
    """A status of the request's task, stamped, with an agent message where there is something to say."""
    task_id, context_id = request.task_id, request.context_id
    message = None
    if text:
        message = Message(role=Role.AGENT, parts=(TextPart(text),), task_id=task_id, context_id=context_id)
    status = TaskStatus(state=state, message=message, timestamp=utc_now())
    return TaskStatusUpdateEvent(task_id=task_id, context_id=context_id, status=status)


class Run:
    """See the module. Attributes without underscore may be read from any thread."""

    def __init__(
        self,
        executor: Any,
        store: TaskStore,
        hub: EventHub,
        scope: Scope,
        request: RunRequest,
        *,
        create: bool,
        on_over: Callable[[Run], None],
    ) -> None:
        self.request = request
        self.scope = scope
        self.cancel_event = threading.Event()
        self.began = self.last_event = time.monotonic()
        self.started: StartedRun | None = None
        self.answer: Message | None = None
        self.error: A2AError | None = None
        self._executor = executor
        self._store = store
        self._hub = hub
        self._create = create
        self._on_over = on_over
        self._lock = threading.RLock()
        self._over = False
        self._state = TaskState.UNSPECIFIED
        self._artifacts: set[str] = set()
        self._artifacts_complete = create
        self._callbacks_lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._decided: threading.Event | None = None

    # -- beginning --

    def begin(self, *, ready: bool) -> StartedRun:
        """Store the request and the first entries; `ready` says that a thread is free, so that the task is working at once.

        Raises:
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: as the store says; nothing was stored.
        """
        with self._lock:
            if self.started is None:
                request = self.request
                events: list[LogEvent] = [request.message]
                if self._create:
                    events.append(status_event(request, TaskState.SUBMITTED))
                if ready or not self._create:
                    events.append(status_event(request, TaskState.WORKING))
                self.started = self._store.start_run(self.scope, request, events, create=self._create)
                self._state = self.started.head.status.state
                self._hub.publish(request.task_id, self.started.entries, ended=False)
                if self._decided is not None:
                    self._decided.set()
            return self.started

    def begin_direct(self) -> None:
        """Let the run begin without a task; see `decide`."""
        self._decided = threading.Event()

    def decide(self, timeout: float) -> StartedRun | None:
        """Give a direct run `timeout` seconds to answer with a message; else make it an ordinary task.

        None: `answer` is set and there is no task.

        Raises:
            A2AError: the run ended with an error and without a task.
        """
        assert self._decided is not None
        self._decided.wait(timeout)
        with self._lock:
            if self.error is not None:
                raise self.error
            return None if self.answer is not None else self.begin(ready=True)

    # -- the port of the context --

    def emit(self, *events: Event) -> None:
        """Check, store and publish `events` in one step."""
        with self._lock:
            self._refuse_if_over(events)
            self.begin(ready=True)
            stamped = self._stamp(events)
            self._state = check(self._state, stamped)
            self._append(stamped, end=any(map(ends_run, stamped)))

    def stored(self) -> StoredTask:
        """The task as the store has it now."""
        self.begin(ready=True)
        return self._store.load(self.scope, self.request.task_id)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        with self._callbacks_lock:
            if not self.cancel_event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    # -- the thread of the run --

    def execute(self) -> None:
        """Run the user's code to its end; called once, on the run's thread. Lets no exception out."""
        current_run.set(self)
        try:
            if self._state is TaskState.SUBMITTED:
                self.emit(status_event(self.request, TaskState.WORKING))
            self._execute()
        except (TaskCancelled, TaskEnded):
            self._stopped()
        except A2AError as error:
            self._fail(error.message, error)
        except PublicError as error:
            self._fail(str(error))
        except BaseException:
            incident = new_id()[:8]
            logger.exception("run failed (id %s)", incident, extra=self._extra())
            text = f"internal error (id {incident})"
            self._fail(text, InternalError(text))
        finally:
            self._over = True
            if self._decided is not None:
                self._decided.set()
            self._on_over(self)

    def _execute(self) -> None:
        self._begin_idle_clock()
        events = self._executor.execute(RequestContext(self))
        if events is not None:
            try:
                for event in events:
                    self._take(event)
            finally:
                close = getattr(events, "close", None)
                if close is not None:
                    close()
        self._complete()

    def _begin_idle_clock(self) -> None:
        self.began = self.last_event = time.monotonic()
        if self.cancel_event.is_set():
            raise TaskCancelled(self.request.task_id)

    def _take(self, event: Event) -> None:
        """One event that the executor yielded. A message alone is its answer: direct, or in the final status."""
        if not isinstance(event, Message):
            self.emit(event)
            return
        with self._lock:
            if self._decided is not None and self.started is None:
                self.answer = replace(event, task_id="", context_id=event.context_id or self.request.context_id)
                self._over = True
                return
            self.emit(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.COMPLETED, message=event)))

    def _complete(self) -> None:
        """The executor returned: end the run if it has not ended itself."""
        with self._lock:
            if self._over:
                return
            if self._state is TaskState.AUTH_REQUIRED:
                self._append((), end=True)
            else:
                self.emit(status_event(self.request, TaskState.COMPLETED))

    def _fail(self, text: str, error: A2AError | None = None) -> None:
        with self._lock:
            if self._decided is not None and self.started is None and error is not None:
                self.error, self._over = error, True
                return
        try:
            self.emit(status_event(self.request, TaskState.FAILED, text))
        except (TaskCancelled, TaskEnded):
            self._stopped()
        except Exception:
            incident = new_id()[:8]
            logger.exception("a run's end could not be stored (id %s)", incident, extra=self._extra())
            # Whoever waits must not wait for an end that never comes.
            self._hub.fail(self.request.task_id, InternalError(f"internal error (id {incident})"))

    def _stopped(self) -> None:
        logger.info("run stopped from outside", extra=self._extra())

    # -- ending from outside --

    def stop(self) -> None:
        """The task was ended by somebody else: tell the user's code. Never blocks on it."""
        with self._callbacks_lock:
            self.cancel_event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a cancel callback failed", extra=self._extra())

    # -- writing --

    def _refuse_if_over(self, events: Sequence[Event]) -> None:
        if self._over or self.cancel_event.is_set():
            kinds = ", ".join(type(event).__name__ for event in events)
            logger.warning("refused %s: the run has ended", kinds, extra=self._extra())
            raise TaskCancelled(self.request.task_id)

    def _append(self, events: Sequence[LogEvent], *, end: bool) -> tuple[Entry, ...]:
        assert self.started is not None
        try:
            entries = self._store.append(self.started.token, events, end=end)
        except RunRevoked:
            self._over = True
            self.cancel_event.set()
            raise TaskCancelled(self.request.task_id) from None
        self.last_event = time.monotonic()
        self._over = end
        self._hub.publish(self.request.task_id, entries, ended=end)
        return entries

    def _stamp(self, events: Sequence[Event]) -> list[LogEvent]:
        """Events with the task's ids, times, and each question to the client once in the history (design: history)."""
        stamped: list[LogEvent] = []
        asked = {event.message_id for event in events if isinstance(event, Message)}
        for event in events:
            match event:
                case TaskStatusUpdateEvent():
                    event = self._stamp_status(event)
                    message = event.status.message
                    if message is not None and event.status.state.interrupted and message.message_id not in asked:
                        stamped.append(message)
                    stamped.append(event)
                case TaskArtifactUpdateEvent():
                    stamped.append(self._stamp_artifact(event))
                case Message():
                    stamped.append(self._stamp_message(event))
                case _:
                    raise TypeError(f"an executor yields events, not {type(event).__name__}")
        return stamped

    def _stamp_message(self, message: Message) -> Message:
        request = self.request
        if message.task_id == request.task_id and message.context_id == request.context_id:
            return message
        return replace(message, task_id=request.task_id, context_id=request.context_id)

    def _stamp_status(self, event: TaskStatusUpdateEvent) -> TaskStatusUpdateEvent:
        request, status = self.request, event.status
        message = status.message and self._stamp_message(status.message)
        if message is status.message and event.task_id == request.task_id and status.timestamp is not None:
            return event
        return TaskStatusUpdateEvent(
            task_id=request.task_id,
            context_id=request.context_id,
            status=TaskStatus(state=status.state, message=message, timestamp=utc_now()),
            metadata=event.metadata,
        )

    def _stamp_artifact(self, event: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent:
        known = event.artifact.artifact_id in self._artifacts
        if event.append and not known:
            # An append to an unknown artifact is accepted from user code and never sent (design: artifact append).
            known = self._known_before(event.artifact.artifact_id)
        self._artifacts.add(event.artifact.artifact_id)
        return replace(
            event, task_id=self.request.task_id, context_id=self.request.context_id, append=event.append and known
        )

    def _known_before(self, artifact_id: str) -> bool:
        """An earlier run of the task made this artifact. Read once, when first needed."""
        if not self._artifacts_complete:
            earlier = ArtifactFold(self._store.load(self.scope, self.request.task_id, history=0).task.artifacts)
            self._artifacts |= {artifact.artifact_id for artifact in earlier.artifacts()}
            self._artifacts_complete = True
        return artifact_id in self._artifacts

    def _extra(self) -> dict[str, str]:
        return {"task_id": self.request.task_id, "context_id": self.request.context_id}
