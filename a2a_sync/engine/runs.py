"""Starts runs, keeps count of them, and ends them from outside: by cancel, by time limit, by closing.

Everything of one process: its threads, its runs, its listeners. It knows nothing of HTTP and nothing of who listens.
"""

from __future__ import annotations

import contextvars
import enum
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.cancelling import CancelHandlers, no_message
from a2a_sync.engine.deadlines import Watchdog
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.run import Run, current_run
from a2a_sync.engine.stamp import status_event
from a2a_sync.errors import OverloadedError, TaskNotCancelableError, TaskNotFoundError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import Principal, RunRequest, quota_owner
from a2a_sync.stores.base import HeldRun, Owner, RunRevoked, StartedRun, StoreQuota, TaskEnded, TaskStore
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Metadata, TaskState

logger = get_logger(__name__)

#: How long `Execution.close` waits for runs that it told to stop.
_FAREWELL_SECONDS = 0.5


class Place(enum.Enum):
    """Where a run is executed. A run's code that waits for another run must not wait for a second thread of the pool."""

    POOL = "on a thread of the pool, now or when one is free"
    NESTED = "on a thread at once: of the pool, else an extra one, else the caller's"
    HERE = "on the caller's thread"


class Execution:
    """The runs of one process over one store. A forked child starts without any.

    `executor_of` gives the executor for the tasks of a scope; None: it is not served any more. `debug`: see `Run`.
    """

    def __init__(
        self,
        executor_of: Callable[[Owner], Any | None],
        store: TaskStore,
        hub: EventHub,
        limits: Limits,
        quotas: Quotas | None = None,
        *,
        debug: bool = False,
    ) -> None:
        self.pool = WorkerPool(
            threads=limits.max_concurrent_runs,
            waiting=limits.max_queued_runs,
            leftovers=limits.max_abandoned_threads,
            quotas=quotas,
        )
        self._cancels = CancelHandlers(store, limits, quotas)
        self._watchdog = Watchdog(limits)
        self._executor_of = executor_of
        #: Executors that take no more runs.
        self._leaving: list[Any] = []
        self._store = store
        self._hub = hub
        self._limits = limits
        self._debug = debug
        bounds = quotas.quota if quotas is not None else OwnerQuota()
        self._quota = StoreQuota(
            max_task_bytes=limits.max_task_bytes, max_tasks=bounds.max_tasks, max_bytes=bounds.max_stored_bytes
        )
        self._draining = self._closed = False
        #: Called before a run asks for its token: the process must be known as a worker by then.
        self.before_run: Callable[[], None] | None = None
        #: Called when a run has begun whose task may have webhooks.
        self.on_begun: Callable[[Owner, str], None] | None = None
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all runs: those of a forked child's parent go on there."""
        self._active: dict[Run, Slot | None] = {}
        self._came_back = threading.Event()

    # -- starting --

    def start(self, scope: Owner, request: RunRequest, *, create: bool, place: Place = Place.POOL) -> StartedRun:
        """Store the request and run the executor for it, at `place`.

        Raises:
            OverloadedError: all threads are taken and the line is full, or the owner's tasks hold as many bytes as they may;
                nothing was stored.
            RequestTooLargeError: the task would hold more bytes than it may; nothing was stored.
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: as the store says; nothing was stored.
        """
        executor = self._executor_of(scope)
        slot = self._reserve(executor, scope, place)
        run = self._enter(executor, scope, request, create, slot)
        try:
            started = run.begin(ready=slot is None or slot.ready)
        except BaseException:
            self._leave(run, slot)
            raise
        if not create or request.webhook is not None:
            self._tell_begun(run)
        self._launch(run, slot)
        return started

    def start_direct(self, scope: Owner, request: RunRequest, *, place: Place = Place.POOL) -> StartedRun | Message:
        """Run the executor at once and give it `Limits.direct_reply_timeout` seconds to answer with a message and no task.

        On the caller's own thread it gets the time it takes: nobody else could see its task before.

        Raises:
            AgentError: the executor raised it (or failed) before there was a task.
            OverloadedError, StoreError: as for `start`.
        """
        executor = self._executor_of(scope)
        slot = self._reserve(executor, scope, place)
        run = self._enter(executor, scope, request, True, slot)
        run.begin_direct()
        self._launch(run, slot)
        try:
            started = run.decide(self._limits.direct_reply_timeout)
        except BaseException:
            run.stop()
            raise
        if started is not None:
            self._tell_begun(run)
            return started
        assert run.answer is not None
        return run.answer

    def _reserve(self, executor: Any, scope: Owner, place: Place) -> Slot | None:
        if self._refuses(executor):
            raise _stopping()
        if self.before_run is not None:
            self.before_run()
        if place is Place.HERE:
            return None
        if place is Place.NESTED:
            return self.pool.reserve_nested(quota_owner(scope.id))
        return self.pool.reserve(quota_owner(scope.id))

    def _enter(self, executor: Any, scope: Owner, request: RunRequest, create: bool, slot: Slot | None) -> Run:
        """A run, known before its task is: whoever ends the task from now on finds it."""
        run = Run(
            executor,
            self._store,
            self._hub,
            scope,
            request,
            create=create,
            quota=self._quota,
            on_over=self._forget,
            max_context_state_bytes=self._limits.max_context_state_bytes,
            debug=self._debug,
        )
        self._active[run] = slot
        if self._refuses(executor):
            self._leave(run, slot)
            raise _stopping()
        return run

    def _leave(self, run: Run, slot: Slot | None) -> None:
        self._forget(run)
        if slot is not None:
            slot.release()

    def _tell_begun(self, run: Run) -> None:
        if self.on_begun is not None:
            self.on_begun(run.scope, run.request.task_id)

    def _launch(self, run: Run, slot: Slot | None) -> None:
        self._watchdog.watch(run, slot)
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
        self._watchdog.came_back(run)
        if not self._came_back.is_set():
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
    def draining(self) -> bool:
        """No more runs are taken, but for what the code of runs asks for."""
        return self._draining

    def _refuses(self, executor: Any) -> bool:
        # A run that is given time to end may need other agents for it.
        leaving = self._draining or any(one is executor for one in self._leaving)
        return self._closed or executor is None or (leaving and not self.on_run_thread())

    @property
    def lingering(self) -> int:
        """Runs whose task is over and whose code has not come back: it never looks whether it was cancelled."""
        return sum(run.cancel_event.is_set() for run in list(self._active))

    @property
    def running(self) -> int:
        """Runs of this process that have not come back."""
        return len(self._active)

    # -- ending from outside --

    def cancel(self, scope: Owner, task_id: str, metadata: Metadata, principal: Principal | None = None) -> None:
        """Make the task `canceled` and tell its run, unless the agent refuses.

        Raises:
            TaskNotFoundError, StoreError: as the store says.
            TaskNotCancelableError: the task has ended, or the agent's cancel handler refused.
        """
        head = self._store.head(scope, task_id)
        if head.status.state.terminal:
            raise _not_cancelable(task_id, head.status.state)
        run = next((run for run in self._runs_of(task_id) if run.started is not None), None)
        self._cancels.ask(self._executor_of(scope), scope, task_id, metadata, principal, run)
        request = RunRequest(message=no_message(task_id, head.context_id))
        try:
            self.interrupt(scope, task_id, [status_event(request, TaskState.CANCELED)])
        except TaskEnded:
            raise _not_cancelable(task_id, self._store.head(scope, task_id).status.state) from None

    def interrupt(self, scope: Owner, task_id: str, events: Sequence[LogEvent]) -> None:
        """End a task without its run's consent: store, publish, then tell the run."""
        entries = self._store.interrupt(scope, task_id, events)
        self._hub.publish(task_id, entries, ended=True)
        for run in self._runs_of(task_id):
            run.stop()

    def _runs_of(self, task_id: str) -> list[Run]:
        return [run for run in list(self._active) if run.request.task_id == task_id]

    # -- what other processes do --

    def check(self, task_id: str) -> None:
        """Another process has written to this task: stop the runs here whose tokens it took."""
        workers = self._store.workers
        for run in self._runs_of(task_id):
            if workers is not None and run.started is not None and not workers.holds(run.started.token):
                run.lost()

    def take_over(self, lost: HeldRun) -> None:
        """A worker died or left with this run: run it again if the agent says so, else fail its task.

        Raises:
            OverloadedError: there is no thread for it now.
            StoreError: it is still lost; offer it again.
        """
        try:
            request = self._store.request(lost.scope, lost.token.task_id)
            if request is None:
                return
            executor = self._executor_of(lost.scope)
            if _may_repeat(executor) and (lost.left or request.attempt < self._limits.max_run_attempts):
                self._run_again(executor, lost, replace(request, attempt=request.attempt + 1))
            else:
                entries = self._store.append(
                    lost.token, [status_event(request, TaskState.FAILED, "worker lost")], end=True
                )
                self._hub.publish(lost.token.task_id, entries, ended=True)
        except (RunRevoked, TaskNotFoundError):
            logger.info("a lost run was ended by somebody else", extra={"task_id": lost.token.task_id})

    def _run_again(self, executor: Any, lost: HeldRun, request: RunRequest) -> None:
        workers = self._store.workers
        assert workers is not None
        slot = self._reserve(executor, lost.scope, Place.POOL)
        run = self._enter(executor, lost.scope, request, False, slot)
        try:
            run.take_over(workers.adopt(lost, request, [status_event(request, TaskState.WORKING)]))
        except BaseException:
            self._leave(run, slot)
            raise
        logger.warning(
            "running again after a lost worker, attempt %d", request.attempt, extra={"task_id": request.task_id}
        )
        self._tell_begun(run)
        self._launch(run, slot)

    # -- closing --

    def drain(self) -> None:
        """Take no more runs, and end the streams of tasks that no run of this process works on. Idempotent."""
        self._draining = True
        self._hub.stop(but={run.request.task_id for run in list(self._active)})

    def leave(self, executor: Any) -> None:
        """Take no more runs of one executor, but for what the code of runs asks of it."""
        self._leaving.append(executor)

    def end(self, executor: Any, timeout: float, reason: str) -> None:
        """`leave` one executor, give its runs `timeout` seconds, and fail what is left of them with `reason`."""
        self.leave(executor)
        self._wait_for_runs(time.monotonic() + timeout, executor)
        for run in self.runs_of(executor):
            self._watchdog.finish(run, reason)
        self._wait_for_runs(time.monotonic() + _FAREWELL_SECONDS, executor)
        self._leaving = [one for one in self._leaving if one is not executor]

    def runs_of(self, executor: Any = None) -> list[Run]:
        """The runs of one executor (None: of all) that have not come back."""
        return [run for run in list(self._active) if executor is None or run.executor is executor]

    def close(self, timeout: float) -> None:
        """Take no more runs, give the running ones `timeout` seconds, end what is left and all streams. Idempotent.

        What is left fails, unless other workers may run it again.
        """
        self.drain()
        self._wait_for_runs(time.monotonic() + timeout)
        self._closed = True
        broken, shared = False, self._store.workers is not None
        for run in list(self._active):
            handed_over = broken or (shared and _may_repeat(run.executor))
            if handed_over or not self._watchdog.finish(run, "server stopped"):
                # A broken store is not asked for each of them: the time is short, and a lost worker is found out.
                broken = broken or not handed_over
                run.hand_over()
        self._wait_for_runs(time.monotonic() + _FAREWELL_SECONDS)
        self._watchdog.close()
        self.pool.close()
        self._cancels.close()
        self._hub.close()

    def _wait_for_runs(self, deadline: float, executor: Any = None) -> None:
        """Until all runs have come back, or those of one executor, but for one that closes the app itself."""
        own = current_run.get()
        while any(run is not own for run in self.runs_of(executor)) and (left := deadline - time.monotonic()) > 0:
            self._came_back.clear()
            self._came_back.wait(min(left, 0.1))


def _may_repeat(executor: Any) -> bool:
    return getattr(executor, "on_worker_lost", "fail") == "retry"


def _stopping() -> OverloadedError:
    return OverloadedError("the server is stopping; try again", retry_after=1.0)


def _not_cancelable(task_id: str, state: TaskState) -> TaskNotCancelableError:
    return TaskNotCancelableError(f"Task cannot be canceled: it is {state}", metadata={"taskId": task_id})
