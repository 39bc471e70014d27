"""One run: the agent's code on one thread, its events checked, stored and published.

A run writes with its token, under a lock of its own, so its entries reach the log and the listeners in one order. What ends a
task from outside (cancel, time limit) revokes the token in the store; a run whose token was revoked stops, and what it still
emits is refused and logged. The code of a run may be called before its task is stored, which is then stored together with the
first events, or after a moment. Such a run is *direct* if it may answer with a message and no task.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from a2a_sync.agent.dialogue import WaitsForAnswer
from a2a_sync.agent.executor import Event, RequestContext, TaskCancelled
from a2a_sync.agent.memory import ValueTooLargeError
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.concurrency import clock
from a2a_sync.concurrency.closing import closed_after
from a2a_sync.concurrency.gevent import Caller, gevent_hub_caller, let_greenlets_run, on_native_thread
from a2a_sync.concurrency.keyedlocks import KeyedLocks
from a2a_sync.concurrency.quotas import ProcessorTimes, current_owner
from a2a_sync.engine.around import close_database_connections
from a2a_sync.engine.chunks import MAX_QUEUED, ChunkWriter, is_text_chunk
from a2a_sync.engine.hub import EventHub, Signal
from a2a_sync.engine.stamp import Stamp, status_event, utc_now
from a2a_sync.engine.stopping import StopSignal
from a2a_sync.errors import AgentError, OverloadedError, PublicError, RequestTooLargeError, TaskNotFoundError
from a2a_sync.lifecycle import Entry, LogEvent, check, end_run
from a2a_sync.limits import Limits
from a2a_sync.operations import RunRequest, quota_owner
from a2a_sync.stores.base import (
    STATE,
    Owner,
    OwnerFull,
    RunRevoked,
    StartedRun,
    StoreConflict,
    StoredTask,
    StoreQuota,
    TaskEnded,
    TaskFull,
    TaskStore,
    require,
)
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger, log_context
from a2a_sync.telemetry.tracing import traced
from a2a_sync.types import Message, Role, TaskState, TaskStatus, TaskStatusUpdateEvent

logger: Final = get_logger(__name__)

#: How long a run waits for others of its owner to change large values, in seconds; then it does so beside them.
_LOCK_TIMEOUT = 5.0
#: Under gevent, a run that emits events without waiting lets other greenlets run after so many seconds.
_TIME_SLICE = 0.005

#: The run whose code is executed here; a blocking in-process send reads it.
current_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("a2a_sync_run", default=None)


@dataclass(eq=False, repr=False, slots=True)
class Run:
    """See the module. Attributes without underscore may be read from any thread.

    ``began`` and ``last_event`` are monotonic times, None until the agent's code is called; ``thread`` executes that code.
    ``unstored`` is the reason of an end that the store refused, or of a start that it may have stored: the task may look as if
    it ran, and `finish` must be retried.

    Parameters:
        executor: the agent's code.
        store, hub: the log of the task, and its listeners.
        owner: the owner of the task.
        request: what the run works on.
        after: see `RunManager.begin`.
        quota: how much the run may add to the store.
        on_over: called when nothing is left to do for the run.
        chunk_writer: stores queued pieces of text.
        value_locks: for changes of the values of contexts.
        reads: for what the agent's code reads of tasks.
        times: the processor time of what the run stores counts for the owner; None: its message is small, and it does not count.
        limits: of the app.
        debug: an unexpected exception fails the task with its traceback.
    """

    executor: AgentSpec
    store: TaskStore
    hub: EventHub
    owner: Owner
    request: RunRequest
    _: KW_ONLY
    after: int | None
    quota: StoreQuota
    on_over: Callable[[Run], None]
    chunk_writer: ChunkWriter
    value_locks: KeyedLocks
    reads: LargeReads
    times: ProcessorTimes | None
    limits: Limits
    debug: bool = False
    began: float | None = field(default=None, init=False)
    last_event: float | None = field(default=None, init=False)
    thread: int | None = field(default=None, init=False)
    started: StartedRun | None = field(default=None, init=False)
    answer: Message | None = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)
    unstored: str = field(default="", init=False)
    emitted: bool = field(default=False, init=False)
    #: The run has ended, or was ended: it writes nothing more. Its code may not have returned yet.
    over: bool = field(default=False, init=False)
    #: The state of the task, as far as this run has changed it.
    state: TaskState = field(default=TaskState.UNSPECIFIED, init=False)
    #: Of a run whose code is called first: wakes when it has answered, has a task, or has ended.
    decided: Signal | None = field(default=None, init=False)
    #: It may answer with a message and no task.
    direct: bool = field(default=False, init=False)
    #: Set when the code of the run is to stop.
    cancel_event: threading.Event = field(init=False)
    _stopping: StopSignal = field(init=False)
    _stamp: Stamp = field(init=False)
    _parent: Run | None = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    #: Held across an append and its publication, so that entries reach the log and the listeners in one order. Acquired
    #: before `_lock`, which is not held while queued chunks are stored: the handler queues further ones meanwhile.
    _append_lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _queued: list[LogEvent] = field(default_factory=list, init=False)
    _flush_scheduled: bool = field(default=False, init=False)
    #: Why queued chunks could not be stored; raised by the next `emit`.
    _flush_error: BaseException | None = field(default=None, init=False)
    _accepted: datetime | None = field(default=None, init=False)
    _subscribed: bool = field(default=False, init=False)
    #: When other greenlets could run last, as far as `emit` knows.
    _paused_at: float = field(default_factory=time.monotonic, init=False)
    _quota_owner: str = field(init=False)

    def __post_init__(self) -> None:
        self._quota_owner = quota_owner(self.owner.id)
        self._stopping = StopSignal()
        self.cancel_event = self._stopping.event
        # Not a method: the run, and its message, would wait for a garbage collection.
        earlier = None if self.after is None else partial(_artifact_ids, self.store, self.owner, self.request.task_id)
        self._stamp = Stamp(self.request, earlier)
        self._parent = current_run.get()

    # -- beginning --

    def begin(self, *, ready: bool, events: Sequence[LogEvent] = ()) -> StartedRun:
        """Store the request, the first entries and `events` in one step, unless that was done before.

        Parameters:
            ready: a thread is free, so that the task is working at once; it is too when the code of the run was called.
            events: what the run has emitted.

        Raises:
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: from the store; nothing was stored.
            RequestTooLargeError: the task would hold more bytes than it may; nothing was stored.
            OverloadedError: the run was stopped before it began, or its owner's tasks hold as many bytes as they may.
        """
        with self._lock:
            if self.started is None:
                if self.error is not None:
                    raise self.error
                if self.over or self.cancel_event.is_set():
                    raise OverloadedError("the server is stopping; try again", retry_after=1.0)
                request = self.request
                first: list[LogEvent] = [request.message]
                now = self._accepted or utc_now()
                if self.after is None:
                    first.append(status_event(request, TaskState.SUBMITTED, at=now))
                if ready or self.began is not None or self.after is not None:
                    first.append(status_event(request, TaskState.WORKING, at=now))
                ends = end_run(events)
                # No other process can write to a task that is stored with its end.
                if not ends or self.after is not None:
                    self.subscribe()
                try:
                    self.started = self.store.start_run(
                        self.owner,
                        request,
                        [*first, *events],
                        create=self.after is None,
                        after=self.after,
                        quota=self.quota,
                    )
                except TaskFull:
                    raise RequestTooLargeError(self._too_large()) from None
                except OwnerFull as full:
                    for evicted in full.evicted:
                        self.hub.removed(evicted)
                    raise OverloadedError(
                        "the tasks of this caller have reached their limit of bytes; retry when one has ended",
                        retry_after=60.0,
                    ) from None
                except (AgentError, StoreConflict):
                    raise
                except BaseException as error:
                    # A store that fails after its commit has a run that is not executed.
                    self.unstored = "internal error: the start of the run was lost"
                    self.error = error
                    raise
                self.state = self.started.head.status.state
                self.over = self.over or ends
                self._publish(self.started.entries, before=self.started.before, ended=ends)
                for evicted in self.started.evicted:
                    self.hub.removed(evicted)
                if self.decided is not None:
                    self.decided.wake()
            return self.started

    def take_over(self, started: StartedRun) -> None:
        """Begin as a run that another worker began and lost; `started` holds the token that replaces its token."""
        with self._lock:
            self.started = started
            self.state = started.head.status.state
        self._publish(started.entries, before=started.before)

    def begin_unstored(self, decided: Signal, *, direct: bool) -> None:
        """Let the code of the run be called before its task is stored; see `decide`."""
        self.decided = decided
        self.direct = direct
        self._accepted = utc_now()

    def decide(self) -> StartedRun | None:
        """Store the task, if it is not stored yet, and unless the run has answered with a message.

        None: `answer` is set and there is no task.

        Raises:
            AgentError: a direct run ended with an error and without a task.
            OverloadedError, RequestTooLargeError, StoreError: the task cannot be stored; the run must be stopped.
        """
        if self.started is not None:
            return self.started
        with self._lock:
            if self.answer is not None:
                return None
            try:
                return self.begin(ready=False)
            except BaseException:
                # The caller gets an error, so no task may be created later.
                self.over = True
                raise

    # -- the port of the context --

    def emit(self, *events: Event) -> None:
        """Check, store and publish `events` in one step; over a store that ``queues_chunks``, a piece of text is only queued.

        Raises what an earlier piece of text met in the store; that piece stays queued, and `events` are not stored.
        """
        try:
            if self.started is not None and self.store.queues_chunks and is_text_chunk(events):
                self._queue(events)
                return
            with self._append_lock, self._lock:
                self._refuse_if_over(events)
                if self._flush_error is not None:
                    self._raise_flush_error()
                stamped = self._stamp(events)
                state = check(TaskState.WORKING if self.started is None else self.state, stamped)
                began = None if self.times is None else self.times.now()
                if self.started is None:
                    self._begin_with(stamped)
                else:
                    self._append(stamped, end=end_run(stamped))
                if began is not None and self.times is not None and time.monotonic() - began[0] >= self.times.least:
                    self.times.add(self._quota_owner, began)
                self._stamp.commit()
                self.emitted = True
                self.state = state
            if time.monotonic() - self._paused_at >= _TIME_SLICE and not self.over:
                self._let_greenlets_run()
        except RunRevoked:
            self.token_lost()
            raise TaskCancelled(self.request.task_id) from None
        except TaskFull:
            raise PublicError(self._too_large()) from None

    def _begin_with(self, events: Sequence[LogEvent]) -> None:
        """`begin` with `events`; without them, if they are what makes the task too large."""
        try:
            self.begin(ready=True, events=events)
        except (RequestTooLargeError, OverloadedError):
            self.begin(ready=True)
            self._append(events, end=end_run(events))

    def _let_greenlets_run(self) -> None:
        """Under gevent, let others run from time to time: a handler that waits for nothing would keep all calls from going on."""
        let_greenlets_run()
        self._paused_at = time.monotonic()

    # -- queued chunks --

    def _queue(self, chunk: Sequence[Event]) -> None:
        with self._lock:
            self._refuse_if_over(chunk)
            self._raise_flush_error()
            stamped = self._stamp(chunk)
            check(self.state, stamped)
            self._stamp.commit()
            self._queued += stamped
            self.emitted = True
            self.last_event = clock.monotonic()
            full = len(self._queued) >= MAX_QUEUED
            scheduled, self._flush_scheduled = self._flush_scheduled, True
        if not scheduled and not self.chunk_writer.schedule(self._flush_in_background):
            self._flush_scheduled, full = False, True
        if full:
            self.flush()
            # A handler that waits for nothing would keep its streams, and all other calls, from going on.
            let_greenlets_run()

    def flush(self) -> None:
        """Store and publish the chunks that are queued.

        Raises:
            StoreError, RunRevoked, TaskFull: from the store; the chunks stay queued.
        """
        with self._append_lock:
            if self._queued and not self.over:
                self._append((), end=False)

    def _flush_in_background(self) -> None:
        """`flush` for the thread of the `ChunkWriter`: what it raises is raised by the next `emit`."""
        self._flush_scheduled = False
        try:
            self.flush()
        except RunRevoked:
            self.token_lost()
        except BaseException as error:
            self._flush_error = error

    def _raise_flush_error(self) -> None:
        error, self._flush_error = self._flush_error, None
        if error is not None:
            raise error

    def stored(self, task_id: str = "") -> StoredTask:
        """The task as the store has it now, or another one that its caller may see."""
        if self.started is None and not task_id:
            self._refuse_if_over(())
            self.begin(ready=True)
        if self._queued:
            self.emit()
        return self.reads.load(self.owner, task_id or self.request.task_id)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        self._stopping.add_callback(callback)

    def keep_state(self, body: bytes, expected: int, name: str = STATE) -> None:
        """Set a value of the context, if its version is `expected`. A run without a task gets one."""
        what, bound = ("state", "max_context_state_bytes") if name == STATE else ("memory", "max_context_memory_bytes")
        limit = getattr(self.limits, bound)
        if len(body) > limit:
            raise ValueTooLargeError(f"{what}: {len(body)} bytes are more than Limits.{bound} ({limit})")
        with self._lock:
            self._refuse_if_over(())
            token = self.begin(ready=True).token
        try:
            require(self.store.contexts, "contexts").set_state(token, body, expected=expected, name=name)
        except RunRevoked:
            self.token_lost()
            raise TaskCancelled(self.request.task_id) from None

    def lock_values(self) -> Callable[[], None]:
        """Wait until no other run of the owner in this process changes a large value; the returned function ends it."""
        return self.value_locks.acquire(self._quota_owner, _LOCK_TIMEOUT)

    # -- on the thread of the run --

    def work(self) -> None:
        """Run the agent's code to its end; called once, on the run's thread. Lets no exception out."""
        current_run.set(self)
        current_owner.set(self._quota_owner)
        request = self.request
        try:
            with (
                log_context(task_id=request.task_id, context_id=request.context_id),
                traced("A2A run", request.trace, task_id=request.task_id, context_id=request.context_id),
            ):
                self._run_code()
        except TaskCancelled as stopped:
            self._handle_stop(stopped)
        except AgentError as error:
            self._fail(error)
        except PublicError as error:
            self._fail(AgentError(str(error)))
        except BaseException:
            self._fail(incident(logger, "run failed", self._extra(), debug=self.debug))
        finally:
            self.over = True
            self._parent = None
            self._stopping.clear_callbacks()
            if self.decided is not None:
                self.decided.wake()
            self.on_over(self)

    def _run_code(self) -> None:
        self.began = self.last_event = clock.monotonic()
        if self.cancel_event.is_set():
            raise TaskCancelled(self.request.task_id)
        with self._lock:
            # The task may be being stored, as submitted.
            submitted = self.state is TaskState.SUBMITTED
        if submitted:
            self.emit(status_event(self.request, TaskState.WORKING))
            self.emitted = False
        context, on_hub = RequestContext(self), gevent_hub_caller()
        with suppress(WaitsForAnswer):
            if self.executor.native_thread():
                on_native_thread(lambda: self._call(context, on_hub))
            else:
                self._call(context, on_hub)
        self._complete()

    def _call(self, context: RequestContext, on_hub: Caller) -> None:
        """The agent's code, to its last event."""
        self.thread = threading.get_ident()
        close_database_connections()
        try:
            context.enter()
            events = self.executor.execute(context)
            if events is not None:
                with closed_after(events):
                    for event in events:
                        on_hub(partial(self._take, event))
        finally:
            close_database_connections()

    def _take(self, event: Event) -> None:
        """One event that the executor yielded. A message alone is its answer: direct, or in the final status."""
        if not isinstance(event, Message):
            self.emit(event)
        elif not self._answer(event):
            self.emit(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.COMPLETED, message=event)))

    def _answer(self, message: Message) -> bool:
        """Answer without a task, if the run is direct and has none yet."""
        with self._lock:
            if self.decided is None or not self.direct or self.started is not None or self.over:
                return False
            context_id = message.context_id or self.request.context_id
            self.answer = replace(message, role=Role.AGENT, task_id="", context_id=context_id)
            self.over = True
            self.decided.wake()
            return True

    def _complete(self) -> None:
        """The executor returned: end the run if it has not ended itself."""
        if self.over:
            return
        if self.state is not TaskState.AUTH_REQUIRED:
            self.emit(status_event(self.request, TaskState.COMPLETED))
            return
        try:
            with self._append_lock:
                self._append((), end=True)
        except RunRevoked:
            self.token_lost()

    def abort(self, error: AgentError) -> None:
        """Fail the task of a run that got no thread; `decide` raises `error` where it has no task."""
        with self._lock:
            if self.started is None:
                self.error, self.over = error, True
        self._fail(error)
        if self.decided is not None:
            self.decided.wake()

    # -- failures --

    def _handle_stop(self, stopped: TaskCancelled) -> None:
        """The agent's code raised `TaskCancelled`. Its task must end, whatever the reason: callers wait for the end."""
        if self.over:
            logger.info("run stopped: its task is over", extra=self._extra())
        elif self.cancel_event.is_set():
            logger.info("run stopped from outside", extra=self._extra())
            self._end_or_retry_later("the run was stopped")
        else:
            what = "run stopped itself, uncancelled"
            self._fail(incident(logger, what, self._extra(), error=stopped, debug=self.debug))

    def _fail(self, error: AgentError) -> None:
        with self._lock:
            if self.over:
                return
            if self.direct and self.started is None:
                self.error, self.over = error, True
                return
        try:
            self.begin(ready=True)
        except Exception as reason:
            # There is no task that could fail: `decide` raises the reason.
            self.error, self.over = reason, True
            return
        self._end_or_retry_later(error.message)

    def _end_or_retry_later(self, reason: str) -> None:
        try:
            with suppress(Exception):
                # The end is stored without the chunks, if the store refuses them.
                self.flush()
            self._end(reason)
        except Exception:
            self.unstored = reason
            # Callers must not wait for an end that may never be stored.
            error = incident(logger, "a run's end could not be stored", self._extra())
            self.hub.fail(self.request.task_id, error)

    # -- ending from outside --

    def finish(self, reason: str) -> None:
        """Fail the task, if the run has not ended yet, and stop the agent's code. Thread-safe.

        Raises:
            StoreError: the store failed; retry.
        """
        self._end(reason)
        self.stop()

    def _end(self, reason: str) -> None:
        """Fail the task with the run's own token and without its lock.

        So a task that has ended, or that has another run by now, stays as it is, and a run that hangs in its store blocks no
        other thread.
        """
        failed = status_event(self.request, TaskState.FAILED, reason)
        try:
            if self.started is not None:
                entries = self.store.append(self.started.token, [failed], end=True)
            elif self.unstored and self._is_stored():
                entries = self.store.interrupt(self.owner, self.request.task_id, [failed])
            else:
                return
        except (RunRevoked, TaskEnded, TaskNotFoundError):
            entries = ()
        self.over = True
        self._publish(entries, before=self.state, ended=True)

    def _is_stored(self) -> bool:
        """The store has the start of this run, though it raised an error."""
        held = self.store.request(self.owner, self.request.task_id)
        return held is not None and held.request.message.message_id == self.request.message.message_id

    def subscribe(self) -> None:
        """Receive what other processes store for the task, from before it is stored until `unsubscribe`."""
        if not self._subscribed:
            self._subscribed = True
            self.hub.subscribe(self.request.task_id)

    def unsubscribe(self) -> None:
        """Undo `subscribe`. Idempotent."""
        if self._subscribed:
            self._subscribed = False
            self.hub.unsubscribe(self.request.task_id)

    def stop(self) -> None:
        """Stop the agent's code, because its task was ended from outside. Waits only for its cancel callbacks."""
        self._stopping.set(self._extra())

    def hand_over(self) -> None:
        """Stop without ending the task: another worker takes it over."""
        self.over = True
        self.stop()

    def token_lost(self) -> None:
        """Stop, because the token was revoked: the task was ended elsewhere, maybe in another process."""
        self.over = True
        self._publish((), before=self.state, ended=True)
        self.stop()

    def is_nested_in(self, task_id: str) -> bool:
        """The run is one of this task, or was started by the code of such a run, which waits for it."""
        run: Run | None = self
        while run is not None and run.request.task_id != task_id:
            run = run._parent
        return run is not None

    # -- writing --

    def _refuse_if_over(self, events: Sequence[Event]) -> None:
        if self.over or self.cancel_event.is_set():
            kinds = ", ".join(type(event).__name__ for event in events)
            # A run that was stopped may have been about to emit; one that has ended by itself should not.
            level = logging.INFO if self.cancel_event.is_set() else logging.WARNING
            logger.log(level, "refused %s: the run has ended", kinds or "a read of the task", extra=self._extra())
            raise TaskCancelled(f"{self.request.task_id}: the run has ended")

    def _append(self, events: Sequence[LogEvent], *, end: bool) -> None:
        """Store and publish `events`, after the chunks that are queued. The caller holds the lock for it."""
        assert self.started is not None
        queued = self._queued[:]
        entries = self.store.append(
            self.started.token, [*queued, *events], end=end, max_task_bytes=self.quota.max_task_bytes
        )
        del self._queued[: len(queued)]
        self.last_event = clock.monotonic()
        self.over = self.over or end
        self._publish(entries, before=self.state, ended=end)

    def _publish(self, entries: Sequence[Entry], *, before: TaskState, ended: bool = False) -> None:
        self.hub.publish(self.owner, self.request.task_id, entries, before=before, ended=ended)

    def _too_large(self) -> str:
        return f"a task may hold {self.quota.max_task_bytes} bytes, and this would make it more; start another task"

    def _extra(self) -> dict[str, str]:
        return {"task_id": self.request.task_id, "context_id": self.request.context_id}


def _artifact_ids(store: TaskStore, owner: Owner, task_id: str) -> list[str]:
    """Ids of the artifacts that earlier runs of the task made."""
    return [artifact.artifact_id for artifact in store.load(owner, task_id, history=0).task.artifacts]
