"""Asks an agent's cancel handler before its task is cancelled: what it sees, and how long it may take."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync.agent.executor import RequestContext
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.run import Run
from a2a_sync.errors import AgentError, OverloadedError, TaskNotCancelableError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits
from a2a_sync.operations import Principal, RunRequest, quota_owner
from a2a_sync.stores.base import Owner, StartedRun, StoredTask, TaskStore
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Metadata, Role

logger = get_logger(__name__)


class CancelHandlers:
    """Calls ``executor.cancel(context)`` where there is one, on threads of its own: those of the runs may all be taken
    by what is to be cancelled."""

    def __init__(self, store: TaskStore, limits: Limits, quotas: Quotas | None = None) -> None:
        self._store = store
        self._limits = limits
        self._pool = WorkerPool(
            threads=limits.max_concurrent_runs,
            waiting=0,
            leftovers=limits.max_abandoned_threads,
            name="a2a-cancel",
            idle=5.0,
            quotas=quotas,
        )

    def ask(
        self,
        executor: Any,
        scope: Owner,
        task_id: str,
        metadata: Metadata,
        principal: Principal | None,
        run: Run | None,
    ) -> None:
        """Give the handler of `executor` its moment; what it does later than that makes no difference. `run` is the task's, if it is here.

        Raises:
            TaskNotCancelableError: it refused.
            TaskNotFoundError, StoreError: as the store says.
        """
        handler = getattr(executor, "cancel", None)
        if handler is not None:
            self._call(handler, self._context(scope, task_id, metadata, principal, run), quota_owner(scope.id))

    def _context(
        self, scope: Owner, task_id: str, metadata: Metadata, principal: Principal | None, run: Run | None
    ) -> RequestContext:
        """What a cancel handler sees: the request of the run that is here, or the newest message of an idle task."""
        if run is not None:
            asked = run.request
        else:
            task = self._store.load(scope, task_id, history=self._limits.max_history_length, artifacts=False).task
            messages = [message for message in task.history if message.role is Role.USER]
            asked = RunRequest(message=messages[-1] if messages else no_message(task_id, task.context_id))
        request = replace(asked, metadata=metadata, principal=principal, tenant=scope.tenant)
        return RequestContext(_CancelPort(self._store, scope, request, run))

    def _call(self, handler: Callable[[RequestContext], None], context: RequestContext, owner: str) -> None:
        extra = {"task_id": context.task_id}
        refusal: list[AgentError] = []
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

        slot = self._submit(ask, owner)
        if slot is None:
            logger.error("no thread for the cancel handler; canceling without it", extra=extra)
        elif not done.wait(self._limits.cancel_handler_timeout):
            logger.warning("the cancel handler did not answer in time; canceling", extra=extra)
            slot.abandon()
        if refusal:
            raise refusal[0]

    def _submit(self, ask: Callable[[], None], owner: str) -> Slot | None:
        variables = contextvars.copy_context()
        try:
            slot = self._pool.reserve(owner)
        except OverloadedError:
            return None
        try:
            slot.submit(lambda: variables.run(ask))
        except RuntimeError:
            slot.release()
            return None
        return slot

    def close(self) -> None:
        """Let the threads go. Idempotent."""
        self._pool.close()


def no_message(task_id: str, context_id: str) -> Message:
    """Stands for the message of a task that nobody wrote to."""
    return Message(role=Role.USER, parts=(), task_id=task_id, context_id=context_id)


class _CancelPort:
    """The port of a cancel handler's context: the task, what came with the cancel, and its run where it is here."""

    def __init__(self, store: TaskStore, scope: Owner, request: RunRequest, run: Run | None) -> None:
        self.request = request
        self.cancel_event = run.cancel_event if run is not None else threading.Event()
        self.store = store
        self.scope = scope
        self.started: StartedRun | None = None
        self.emitted = False
        self._run = run

    def emit(self, *events: LogEvent) -> None:
        if self._run is None:
            raise AgentError("a cancel handler cannot emit events: no run is going on")
        self._run.emit(*events)

    def stored(self, task_id: str = "") -> StoredTask:
        return self.store.load(self.scope, task_id or self.request.task_id)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self._run is not None:
            self._run.on_cancel(callback)

    def keep_state(self, body: bytes, expected: int) -> None:
        if self._run is None:
            raise AgentError("a cancel handler cannot change the state of the context: no run is going on")
        self._run.keep_state(body, expected)
