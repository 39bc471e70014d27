"""Starts runs, keeps count of them, and ends them from outside: by cancel, by time limit, by closing.

Everything of one process: its threads, its runs, its listeners. It knows nothing of HTTP and nothing of who listens.
"""

from __future__ import annotations

import contextvars
import enum
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a_sync.errors import A2AError, OverloadedError, TaskNotCancelableError
from a2a_sync.events import EventHub
from a2a_sync.executor import RequestContext
from a2a_sync.fork import renew_in_child
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits
from a2a_sync.operations import Principal, RunRequest
from a2a_sync.pool import Slot, WorkerPool
from a2a_sync.run import Run, current_run
from a2a_sync.stamp import status_event
from a2a_sync.stores.base import Scope, StartedRun, StoredTask, TaskEnded, TaskStore
from a2a_sync.types import Message, Metadata, Role, TaskState

logger = logging.getLogger(__name__)

#: A watchdog without runs to watch leaves after so many seconds.
_IDLE_SECONDS = 30.0
#: How long `Execution.close` waits for runs that it told to stop.
_FAREWELL_SECONDS = 0.5


class Place(enum.Enum):
    """Where a run is executed. A run's code that waits for another run must not wait for a second thread of the pool."""

    POOL = "on a thread of the pool, now or when one is free"
    POOL_OR_HERE = "on a thread of the pool if one is free now, else on the caller's"
    HERE = "on the caller's thread"


@dataclass(slots=True)
class _Active:
    slot: Slot | None
    reported: bool = False


class Execution:
    """The runs of one process over one store. A forked child starts without any."""

    def __init__(self, executor: Any, store: TaskStore, hub: EventHub, limits: Limits) -> None:
        self.pool = WorkerPool(threads=limits.executions, waiting=limits.waiting, leftovers=limits.leftovers)
        # Cancel handlers have a pool of their own: the other may be full of what is to be cancelled.
        self._askers = WorkerPool(
            threads=limits.executions, waiting=0, leftovers=limits.leftovers, name="a2a-cancel", idle=5.0
        )
        self._executor = executor
        self._store = store
        self._hub = hub
        self._limits = limits
        self._closed = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all runs: those of a forked child's parent go on there."""
        self._lock = threading.Lock()
        self._active: dict[Run, _Active] = {}
        self._unstored: set[Run] = set()
        self._watchdog: threading.Thread | None = None
        self._stop_watching = threading.Event()
        self._came_back = threading.Event()

    # -- starting --

    def start(self, scope: Scope, request: RunRequest, *, create: bool, place: Place = Place.POOL) -> StartedRun:
        """Store the request and run the executor for it, at `place`.

        Raises:
            OverloadedError: all threads are taken and the line is full; nothing was stored.
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: as the store says; nothing was stored.
        """
        slot = self._reserve(place)
        run = self._enter(scope, request, create, slot)
        try:
            started = run.begin(ready=slot is None or slot.ready)
        except BaseException:
            self._leave(run, slot)
            raise
        self._launch(run, slot)
        return started

    def start_direct(self, scope: Scope, request: RunRequest, *, place: Place = Place.POOL) -> StartedRun | Message:
        """Run the executor at once and give it `Limits.direct` seconds to answer with a message and no task.

        On the caller's own thread it gets the time it takes: nobody else could see its task before.

        Raises:
            A2AError: the executor raised it (or failed) before there was a task.
            OverloadedError, StoreError: as for `start`.
        """
        slot = self._reserve(place)
        run = self._enter(scope, request, True, slot)
        run.begin_direct()
        self._launch(run, slot)
        try:
            started = run.decide(self._limits.direct)
        except BaseException:
            run.stop()
            raise
        if started is not None:
            return started
        assert run.answer is not None
        return run.answer

    def _reserve(self, place: Place) -> Slot | None:
        if self._closed:
            raise _stopping()
        if place is Place.HERE:
            return None
        slot = self.pool.reserve()
        if place is Place.POOL_OR_HERE and not slot.ready:
            slot.release()
            return None
        return slot

    def _enter(self, scope: Scope, request: RunRequest, create: bool, slot: Slot | None) -> Run:
        """A run, known before its task is: whoever ends the task from now on finds it."""
        run = Run(self._executor, self._store, self._hub, scope, request, create=create, on_over=self._forget)
        self._active[run] = _Active(slot)
        if self._closed:
            self._leave(run, slot)
            raise _stopping()
        return run

    def _leave(self, run: Run, slot: Slot | None) -> None:
        self._forget(run)
        if slot is not None:
            slot.release()

    def _launch(self, run: Run, slot: Slot | None) -> None:
        if self._limits.max_runtime or self._limits.idle_timeout:
            self._start_watchdog()
        context = contextvars.copy_context()
        if slot is None:
            context.run(run.execute)
            return
        try:
            slot.submit(lambda: context.run(run.execute))
        except RuntimeError:
            logger.exception("no thread for a run", extra={"task_id": run.request.task_id})
            run.abort(OverloadedError("the server has no thread for this task; try again later", retry_after=1.0))
            self._leave(run, slot)

    def _forget(self, run: Run) -> None:
        self._active.pop(run, None)
        if run.unstored:
            self._unstored.add(run)
            self._start_watchdog()
        self._came_back.set()

    @staticmethod
    def on_run_thread() -> bool:
        """The caller is the code of a run."""
        return current_run.get() is not None

    @staticmethod
    def waits_for_itself(task_id: str) -> bool:
        """The caller is the code of a run on this task, so that waiting for the task to be free would be in vain."""
        run = current_run.get()
        return run is not None and run.within(task_id)

    @property
    def running(self) -> int:
        """Runs of this process that have not come back."""
        return len(self._active)

    # -- ending from outside --

    def cancel(self, scope: Scope, task_id: str, metadata: Metadata, principal: Principal | None = None) -> None:
        """Make the task `canceled` and tell its run, unless the agent refuses.

        Raises:
            TaskNotFoundError, StoreError: as the store says.
            TaskNotCancelableError: the task has ended, or the agent's cancel handler refused.
        """
        head = self._store.head(scope, task_id)
        if head.status.state.terminal:
            raise _not_cancelable(task_id, head.status.state)
        handler = getattr(self._executor, "cancel", None)
        if handler is not None:
            self._ask(handler, self._cancel_context(scope, task_id, metadata, principal))
        request = RunRequest(message=_no_message(task_id, head.context_id))
        try:
            self.interrupt(scope, task_id, [status_event(request, TaskState.CANCELED)])
        except TaskEnded:
            raise _not_cancelable(task_id, self._store.head(scope, task_id).status.state) from None

    def interrupt(self, scope: Scope, task_id: str, events: Sequence[LogEvent]) -> None:
        """End a task without its run's consent: store, publish, then tell the run."""
        entries = self._store.interrupt(scope, task_id, events)
        self._hub.publish(task_id, entries, ended=True)
        for run in self._runs_of(task_id):
            run.stop()

    def _runs_of(self, task_id: str) -> list[Run]:
        return [run for run in list(self._active) if run.request.task_id == task_id]

    def _cancel_context(
        self, scope: Scope, task_id: str, metadata: Metadata, principal: Principal | None
    ) -> RequestContext:
        """What a cancel handler sees: the request of the run that is here, or the newest message of an idle task."""
        run = next((run for run in self._runs_of(task_id) if run.started is not None), None)
        if run is not None:
            asked = run.request
        else:
            task = self._store.load(scope, task_id, history=self._limits.history, artifacts=False).task
            messages = [message for message in task.history if message.role is Role.USER]
            asked = RunRequest(message=messages[-1] if messages else _no_message(task_id, task.context_id))
        request = replace(asked, metadata=metadata, principal=principal, tenant=scope.tenant)
        return RequestContext(_CancelPort(self._store, scope, request, run))

    def _ask(self, handler: Callable[[RequestContext], None], context: RequestContext) -> None:
        """Give a cancel handler its moment; what it does later than that makes no difference."""
        extra = {"task_id": context.task_id}
        refusal: list[A2AError] = []
        done = threading.Event()

        def ask() -> None:
            try:
                handler(context)
            except TaskNotCancelableError as error:
                refusal.append(error)
            except BaseException:
                logger.exception("the cancel handler failed; canceling anyway", extra=extra)
            finally:
                done.set()

        slot = self._submit_ask(ask)
        if slot is None:
            logger.error("no thread for the cancel handler; canceling without it", extra=extra)
        elif not done.wait(self._limits.cancel_grace):
            logger.warning("the cancel handler did not answer in time; canceling", extra=extra)
            slot.abandon()
        if refusal:
            raise refusal[0]

    def _submit_ask(self, ask: Callable[[], None]) -> Slot | None:
        variables = contextvars.copy_context()
        try:
            slot = self._askers.reserve()
        except OverloadedError:
            return None
        try:
            slot.submit(lambda: variables.run(ask))
        except RuntimeError:
            slot.release()
            return None
        return slot

    # -- time limits --

    def _start_watchdog(self) -> None:
        with self._lock:
            if self._watchdog is None and not self._stop_watching.is_set():
                self._watchdog = threading.Thread(target=self._watch, name="a2a-watchdog", daemon=True)
                try:
                    self._watchdog.start()
                except RuntimeError:
                    self._watchdog = None
                    logger.exception("no thread for the watchdog: time limits are not kept until the next run")

    def _watch(self) -> None:
        limits = [limit for limit in (self._limits.max_runtime, self._limits.idle_timeout) if limit]
        tick = max(0.005, min([1.0, *(limit / 4 for limit in limits)]))
        last_busy = time.monotonic()
        while not self._stop_watching.wait(tick):
            now = time.monotonic()
            if self._active or self._unstored:
                last_busy = now
                self._look_after_runs(now)
            elif now - last_busy > _IDLE_SECONDS and self._watchdog_may_leave():
                return

    def _watchdog_may_leave(self) -> bool:
        with self._lock:
            # A run is entered before it asks for a watchdog, so it is seen here or it starts the next one.
            if self._active or self._unstored:
                return False
            self._watchdog = None
            return True

    def _look_after_runs(self, now: float) -> None:
        for run, active in list(self._active.items()):
            reason = self._overdue(run, now)
            if reason and self._finish(run, reason):
                self._abandon(run, active)
        for run in list(self._unstored):
            if self._finish(run, run.unstored):
                self._unstored.discard(run)

    def _overdue(self, run: Run, now: float) -> str:
        """Why the run must end, or ``""``. Waiting for a thread does not count."""
        if run.began is None or run.last_event is None:
            return ""
        longest, silent = self._limits.max_runtime, self._limits.idle_timeout
        if longest and now - run.began > longest:
            return f"the run took longer than its limit of {longest:g} seconds"
        if silent and now - run.last_event > silent:
            return f"the run was silent for longer than its limit of {silent:g} seconds"
        return ""

    def _finish(self, run: Run, reason: str) -> bool:
        try:
            if not run.cancel_event.is_set() or run.unstored:
                run.finish(reason)
        except Exception:
            logger.exception("a run could not be ended", extra={"task_id": run.request.task_id})
            return False
        return True

    def _abandon(self, run: Run, active: _Active) -> None:
        """The thread may never come back; its place goes to the next run."""
        if active.slot is not None and not active.slot.abandon() and not active.reported:
            active.reported = True
            logger.error(
                "too many runs linger past their limit; this one keeps its place",
                extra={"task_id": run.request.task_id},
            )

    # -- closing --

    def close(self, timeout: float) -> None:
        """Take no more runs, give the running ones `timeout` seconds, fail what is left and end all streams. Idempotent."""
        self._closed = True
        self._wait_for_runs(time.monotonic() + timeout)
        for run in [*self._active, *self._unstored]:
            self._finish(run, run.unstored or "server stopped")
        self._wait_for_runs(time.monotonic() + _FAREWELL_SECONDS)
        self._stop_watching.set()
        self.pool.close()
        self._askers.close()
        self._hub.close()

    def _wait_for_runs(self, deadline: float) -> None:
        """Until all runs have come back, but for one that closes the app itself."""
        own = current_run.get()
        while any(run is not own for run in list(self._active)) and (left := deadline - time.monotonic()) > 0:
            self._came_back.clear()
            self._came_back.wait(min(left, 0.1))


def _stopping() -> OverloadedError:
    return OverloadedError("the server is stopping; try again", retry_after=1.0)


def _not_cancelable(task_id: str, state: TaskState) -> TaskNotCancelableError:
    return TaskNotCancelableError(f"Task cannot be canceled: it is {state}", metadata={"taskId": task_id})


def _no_message(task_id: str, context_id: str) -> Message:
    return Message(role=Role.USER, parts=(), task_id=task_id, context_id=context_id)


class _CancelPort:
    """The port of a cancel handler's context: the task, what came with the cancel, and its run where it is here."""

    def __init__(self, store: TaskStore, scope: Scope, request: RunRequest, run: Run | None) -> None:
        self.request = request
        self.cancel_event = run.cancel_event if run is not None else threading.Event()
        self._store = store
        self._scope = scope
        self._run = run

    def emit(self, *events: LogEvent) -> None:
        if self._run is None:
            raise A2AError("a cancel handler cannot emit events: no run is going on")
        self._run.emit(*events)

    def stored(self) -> StoredTask:
        return self._store.load(self._scope, self.request.task_id)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self._run is not None:
            self._run.on_cancel(callback)
