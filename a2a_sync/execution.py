"""Starts runs, keeps count of them, and ends them from outside: by cancel, by time limit, by closing.

Everything of one process: its threads, its runs, its listeners. It knows nothing of HTTP and nothing of who listens.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from a2a_sync.errors import A2AError, OverloadedError, TaskNotCancelableError, TaskNotFoundError
from a2a_sync.events import EventHub, Waiter
from a2a_sync.executor import RequestContext
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits
from a2a_sync.operations import RunRequest
from a2a_sync.pool import Slot, WorkerPool
from a2a_sync.run import Run, current_run, status_event
from a2a_sync.stores.base import Scope, StartedRun, StoredTask, TaskEnded, TaskStore
from a2a_sync.types import Message, Metadata, Role, TaskState

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Active:
    run: Run
    slot: Slot | None


class Execution:
    """The runs of one process over one store."""

    def __init__(self, executor: Any, store: TaskStore, hub: EventHub, limits: Limits) -> None:
        self.pool = WorkerPool(threads=limits.executions, waiting=limits.waiting, leftovers=limits.leftovers)
        self._executor = executor
        self._store = store
        self._hub = hub
        self._limits = limits
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._active: dict[str, _Active] = {}
        self._watchdog: threading.Thread | None = None
        self._watch = threading.Event()

    # -- starting --

    def start(self, scope: Scope, request: RunRequest, *, create: bool, inline: bool = False) -> StartedRun:
        """Store the request and run the executor for it: on a thread of the pool, or `inline` on this one.

        Inline is for a blocking call made on a run's own thread, which must not wait for a second thread of the pool.

        Raises:
            OverloadedError: all threads are taken and the line is full; nothing was stored.
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: as the store says; nothing was stored.
        """
        slot = None if inline else self._reserve()
        run = self._run(scope, request, create)
        try:
            started = run.begin(ready=slot is None or slot.ready)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        self._launch(run, slot)
        return started

    def start_direct(self, scope: Scope, request: RunRequest) -> StartedRun | Message:
        """Run the executor at once and give it `Limits.direct` seconds to answer with a message and no task.

        Raises:
            A2AError: the executor raised it (or failed) before there was a task.
            OverloadedError, StoreError: as for `start`.
        """
        slot = self._reserve()
        run = self._run(scope, request, True)
        run.begin_direct()
        self._launch(run, slot)
        started = run.decide(self._limits.direct)
        if started is not None:
            return started
        assert run.answer is not None
        return run.answer

    def _reserve(self) -> Slot:
        if self._pid != os.getpid():
            self._reset()
        if self._closed:
            raise OverloadedError("the server is stopping; try again", retry_after=1.0)
        return self.pool.reserve()

    def _run(self, scope: Scope, request: RunRequest, create: bool) -> Run:
        return Run(self._executor, self._store, self._hub, scope, request, create=create, on_over=self._forget)

    def _launch(self, run: Run, slot: Slot | None) -> None:
        self._active[run.request.task_id] = _Active(run, slot)
        if self._watchdog is None and (self._limits.max_runtime or self._limits.idle_timeout):
            self._start_watchdog()
        context = contextvars.copy_context()
        if slot is None:
            context.run(run.execute)
        else:
            slot.submit(lambda: context.run(run.execute))

    def _forget(self, run: Run) -> None:
        active = self._active.get(run.request.task_id)
        if active is not None and active.run is run:
            self._active.pop(run.request.task_id, None)

    @staticmethod
    def on_run_thread() -> bool:
        """The caller is the code of a run."""
        return current_run.get() is not None

    @property
    def running(self) -> int:
        """Runs of this process that have not come back."""
        return len(self._active)

    # -- ending from outside --

    def cancel(self, scope: Scope, task_id: str, metadata: Metadata) -> None:
        """Make the task `canceled` and tell its run, unless the agent refuses.

        Raises:
            TaskNotFoundError, StoreError: as the store says.
            TaskNotCancelableError: the task has ended, or the agent's cancel handler refused.
        """
        head = self._store.head(scope, task_id)
        if head.status.state.terminal:
            raise _not_cancelable(task_id, head.status.state)
        refuse = getattr(self._executor, "cancel", None)
        if refuse is not None:
            self._ask(refuse, self._context(scope, task_id, metadata))
        canceled = status_event(_request(task_id, head.context_id), TaskState.CANCELED)
        try:
            self.interrupt(scope, task_id, [canceled])
        except TaskEnded:
            raise _not_cancelable(task_id, self._store.head(scope, task_id).status.state) from None

    def interrupt(self, scope: Scope, task_id: str, events: Sequence[LogEvent]) -> None:
        """End a task without its run's consent: store, publish, then tell the run."""
        entries = self._store.interrupt(scope, task_id, events)
        self._hub.publish(task_id, entries, ended=True)
        active = self._active.get(task_id)
        if active is not None:
            active.run.stop()

    def _context(self, scope: Scope, task_id: str, metadata: Metadata) -> RequestContext:
        """What a cancel handler sees: the run's own context, or one over the stored task when no run is here."""
        active = self._active.get(task_id)
        if active is not None:
            return RequestContext(active.run)
        return RequestContext(_IdleTask(self._store, scope, task_id, metadata))

    def _ask(self, handler: Callable[[RequestContext], None], context: RequestContext) -> None:
        """Give a cancel handler its moment, on a thread of its own: the pool may be full of what is to be cancelled."""
        refusal: list[A2AError] = []
        done = threading.Event()

        def ask() -> None:
            try:
                handler(context)
            except TaskNotCancelableError as error:
                refusal.append(error)
            except Exception:
                logger.exception("the cancel handler failed; canceling anyway", extra={"task_id": context.task_id})
            finally:
                done.set()

        variables = contextvars.copy_context()
        threading.Thread(target=variables.run, args=(ask,), name="a2a-cancel", daemon=True).start()
        if not done.wait(self._limits.cancel_grace):
            logger.warning("the cancel handler did not answer in time; canceling", extra={"task_id": context.task_id})
        if refusal:
            raise refusal[0]

    # -- time limits --

    def _start_watchdog(self) -> None:
        with self._lock:
            if self._watchdog is None:
                self._watchdog = threading.Thread(target=self._watch_runs, name="a2a-watchdog", daemon=True)
                self._watchdog.start()

    def _watch_runs(self) -> None:
        limits = [limit for limit in (self._limits.max_runtime, self._limits.idle_timeout) if limit]
        tick = min(1.0, min(limits) / 4)
        while not self._watch.wait(tick):
            now = time.monotonic()
            for active in list(self._active.values()):
                reason = self._overdue(active.run, now)
                if reason:
                    self._time_out(active, reason)

    def _overdue(self, run: Run, now: float) -> str:
        if run.cancel_event.is_set() or run.started is None:
            return ""
        longest, silent = self._limits.max_runtime, self._limits.idle_timeout
        if longest and now - run.began > longest:
            return f"the run took longer than its limit of {longest:g} seconds"
        if silent and now - run.last_event > silent:
            return f"the run was silent for longer than its limit of {silent:g} seconds"
        return ""

    def _time_out(self, active: _Active, reason: str) -> None:
        run = active.run
        try:
            self.interrupt(run.scope, run.request.task_id, [status_event(run.request, TaskState.FAILED, reason)])
        except (TaskEnded, TaskNotFoundError):
            run.stop()
        except Exception:
            logger.exception("a run past its limit could not be ended", extra={"task_id": run.request.task_id})
            return
        # The thread may never come back; its place goes to the next run.
        if active.slot is not None and not active.slot.abandon():
            logger.error("too many runs linger past their limit; this one keeps its slot")

    # -- closing --

    def close(self, timeout: float) -> None:
        """Take no more runs, give the running ones `timeout` seconds, then fail what is left and tell it to stop."""
        self._closed = True
        if self._pid != os.getpid():
            return
        deadline = time.monotonic() + timeout
        for active in list(self._active.values()):
            self._await(active.run, deadline)
        for active in list(self._active.values()):
            run = active.run
            try:
                self.interrupt(
                    run.scope, run.request.task_id, [status_event(run.request, TaskState.FAILED, "server stopped")]
                )
            except (TaskEnded, TaskNotFoundError):
                run.stop()
            except Exception:
                logger.exception("a run could not be ended", extra={"task_id": run.request.task_id})
        self._watch.set()
        self.pool.close()

    def _await(self, run: Run, deadline: float) -> None:
        with Waiter(self._hub, run.request.task_id, ended=True) as waiter:
            while run.request.task_id in self._active and (left := deadline - time.monotonic()) > 0:
                if waiter.wait(min(left, 0.1)):
                    return


def _not_cancelable(task_id: str, state: TaskState) -> TaskNotCancelableError:
    return TaskNotCancelableError(f"Task cannot be canceled: it is {state}", metadata={"taskId": task_id})


def _request(task_id: str, context_id: str, metadata: Metadata | None = None) -> RunRequest:
    message = Message(role=Role.USER, parts=(), task_id=task_id, context_id=context_id)
    return RunRequest(message=message, metadata=metadata or {})


class _IdleTask:
    """The port of a context over a task that has no run here."""

    def __init__(self, store: TaskStore, scope: Scope, task_id: str, metadata: Metadata) -> None:
        self._store = store
        self._scope = scope
        self.cancel_event = threading.Event()
        stored = store.load(scope, task_id, history=1, artifacts=False)
        asked = [message for message in stored.task.history if message.role is Role.USER]
        empty = _request(task_id, stored.task.context_id, metadata)
        self.request = RunRequest(message=asked[-1], metadata=metadata) if asked else empty

    def emit(self, *events: LogEvent) -> None:
        raise A2AError("a cancel handler cannot emit events: no run is going on")

    def stored(self) -> StoredTask:
        return self._store.load(self._scope, self.request.task_id)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """There is no run to cancel."""
