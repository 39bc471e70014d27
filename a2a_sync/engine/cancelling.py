"""Calls the cancel handler of an agent before its task is cancelled, for a bounded time."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from a2a_sync.agent.executor import RequestContext
from a2a_sync.agent.spec import AgentSpec, CancelHandler
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.around import database_connections
from a2a_sync.engine.run import Run
from a2a_sync.errors import AgentError, OverloadedError, TaskNotCancelableError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits
from a2a_sync.operations import Principal, RunRequest, quota_owner
from a2a_sync.stores.base import STATE, Owner, StartedRun, StoredTask, TaskStore
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Metadata, Role

logger: Final = get_logger(__name__)


class CancelHandlers:
    """Calls ``executor.cancel(context)`` where there is one, on threads of its own: those of the runs may all be held
    by the runs to cancel."""

    def __init__(self, store: TaskStore, reads: LargeReads, limits: Limits, quotas: Quotas | None = None) -> None:
        self._store = store
        self._reads = reads
        self._limits = limits
        self._pool = WorkerPool(
            threads=limits.max_concurrent_runs,
            max_queued=0,
            max_abandoned=limits.max_abandoned_threads,
            name="a2a-cancel",
            idle=5.0,
            quotas=quotas,
        )

    def call_handler(
        self,
        executor: AgentSpec | None,
        owner: Owner,
        task_id: str,
        metadata: Metadata,
        principal: Principal | None,
        run: Run | None,
    ) -> None:
        """Call the cancel handler and wait `Limits.cancel_handler_timeout` seconds for it; later it has no effect.

        Parameters:
            executor: the agent's code; None: it is no longer served, and nothing is called.
            owner, task_id: the task.
            metadata, principal: of the call that cancels it.
            run: the run of the task in this process, if it has one.

        Raises:
            TaskNotCancelableError: it refused.
            TaskNotFoundError, StoreError: from the store.
        """
        handler = executor.cancel_handler() if executor is not None else None
        if handler is None:
            return
        # The handler sees the request of the run in this process, or the newest message of an idle task.
        if run is not None:
            asked = run.request
        else:
            task = self._store.load(owner, task_id, history=self._limits.max_history_length, artifacts=False).task
            messages = [message for message in task.history if message.role is Role.USER]
            asked = RunRequest(message=messages[-1] if messages else empty_message(task_id, task.context_id))
        request = replace(asked, metadata=metadata, principal=principal, tenant=owner.tenant)
        self._call(
            handler, RequestContext(_CancelPort(self._store, self._reads, owner, request, run)), quota_owner(owner.id)
        )

    def _call(self, handler: CancelHandler, context: RequestContext, owner: str) -> None:
        extra = {"task_id": context.task_id}
        refusal: list[AgentError] = []
        done = threading.Event()

        def ask() -> None:
            try:
                with database_connections():
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
        """End the threads. Idempotent."""
        self._pool.close()


def empty_message(task_id: str, context_id: str) -> Message:
    """The message of a request that has none."""
    return Message(role=Role.USER, parts=(), task_id=task_id, context_id=context_id)


class _CancelPort:
    """What the context of a cancel handler works on: the task, the cancel request, and the run where this process has it."""

    def __init__(self, store: TaskStore, reads: LargeReads, owner: Owner, request: RunRequest, run: Run | None) -> None:
        self.request = request
        self.cancel_event = run.cancel_event if run is not None else threading.Event()
        self.store = store
        self.reads = reads
        self.owner = owner
        self.started: StartedRun | None = None
        self.emitted = False
        self._run = run

    def _run_here(self, what: str) -> Run:
        if self._run is None:
            raise AgentError(f"a cancel handler cannot {what}: the task has no run in this process")
        return self._run

    def emit(self, *events: LogEvent) -> None:
        run = self._run_here("emit events")
        run.emit(*events)
        # The task ends next, without what is only queued then.
        run.flush()

    def stored(self, task_id: str = "") -> StoredTask:
        return self.reads.load(self.owner, task_id or self.request.task_id)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        if self._run is not None:
            self._run.on_cancel(callback)

    def keep_state(self, body: bytes, expected: int, name: str = STATE) -> None:
        self._run_here("change the state of the context").keep_state(body, expected, name)

    def lock_values(self) -> Callable[[], None]:
        return self._run.lock_values() if self._run is not None else lambda: None
