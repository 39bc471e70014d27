"""Starts the runs of one process, counts them, and ends them from outside: by cancel, by time limit, by closing."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from a2a_sync.agent.spec import AgentSpec
from a2a_sync.concurrency import clock
from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import let_greenlets_run
from a2a_sync.concurrency.keyedlocks import KeyedLocks
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.cancelling import CancelHandlers, empty_message
from a2a_sync.engine.chunks import ChunkWriter
from a2a_sync.engine.components import Component
from a2a_sync.engine.deadlines import Watchdog
from a2a_sync.engine.dispatcher import Dispatcher
from a2a_sync.engine.hub import EventHub, Signal
from a2a_sync.engine.jobs import Job, JobQueue, JobReference, Reservation
from a2a_sync.engine.run import Run, current_run
from a2a_sync.engine.stamp import status_event
from a2a_sync.errors import AgentError, OverloadedError, TaskNotCancelableError, TaskNotFoundError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.limits import Limits
from a2a_sync.operations import Principal, RunRequest, quota_owner
from a2a_sync.sizes import memory_size
from a2a_sync.stores.base import (
    HeldRun,
    Owner,
    RunRevoked,
    RunToken,
    StartedRun,
    StoreConflict,
    StoreQuota,
    TaskEnded,
    TaskHead,
    TaskStore,
)
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Metadata, Task, TaskState

logger: Final = get_logger(__name__)

#: How long `RunManager.close` waits for runs that it has stopped, in seconds.
_STOP_TIMEOUT = 0.5
#: Seconds between two searches for strays, and of how many tasks, the newest, they are searched for.
_SEARCH_INTERVAL = 30.0
_MAX_UNCERTAIN = 10_000
#: The bytes of memory of the messages of all runs of a process, and of sends that wait for a busy task. Those up to the second number do not count.
_MAX_MESSAGE_BYTES, _SMALL_MESSAGE = 512 * 1024 * 1024, 64 * 1024


class RunOn(enum.Enum):
    """The thread of a run. A run's code that waits for another run must not wait for a second thread of the pool."""

    POOL = "a thread of the pool, now or when one is free"
    POOL_OR_CALLER = "a thread at once: of the pool, else an extra one, else the caller's"
    CALLER = "the caller's thread"


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of this process at one moment.

    Attributes:
        running_s: the seconds since the agent's code was called; None: the run waits for a thread.
        silent_s: the seconds since its last event; None likewise.
        abandoned: its task has ended, and its code has not returned.
        thread: the id of the thread that executes its code.
    """

    owner: Owner
    task_id: str
    running_s: float | None
    silent_s: float | None
    abandoned: bool
    thread: int | None


class RunManager(Component):
    """The runs of one process over one store. A forked child starts without any.

    Parameters:
        executor_of: returns the executor for the tasks of an owner; None: it is no longer served.
        store, hub: the tasks, and their listeners in this process.
        limits: of the app.
        quotas: the shares of its owners; None: no share is limited.
        job_queue: carries runs to other processes; by default, and for the runs that running code asks for, they are executed
            by the pool of this process.
        debug: see `Run`.
    """

    def __init__(
        self,
        executor_of: Callable[[Owner], AgentSpec | None],
        store: TaskStore,
        hub: EventHub,
        limits: Limits,
        quotas: Quotas | None = None,
        *,
        job_queue: JobQueue | None = None,
        debug: bool = False,
    ) -> None:
        self.pool: WorkerPool = WorkerPool(
            threads=limits.max_concurrent_runs,
            max_queued=limits.max_queued_runs,
            max_abandoned=limits.max_abandoned_threads,
            quotas=quotas,
            # A thread that is about to write a response releases the interpreter lock first: a run that gets both the lock and the
            # core then delays the first event of its own stream until it ends.
            preempts=False,
        )
        self._dispatcher = None
        if job_queue is not None:
            self._dispatcher = Dispatcher(job_queue, store, hub, max_queued=limits.max_queued_runs, quotas=quotas)
        #: Runs are executed by other processes.
        self.remote: bool = job_queue is not None
        #: For what runs, cancel handlers and webhooks read of tasks.
        self.reads: LargeReads = LargeReads(store)
        self._cancels = CancelHandlers(store, self.reads, limits, quotas)
        self._search = Periodic("a2a-strays", self._end_strays, retry=_SEARCH_INTERVAL)
        self._watchdog = Watchdog(limits)
        self._chunk_writer = ChunkWriter()
        self._value_locks = KeyedLocks()
        self._executor_of = executor_of
        #: Agents that accept no more runs.
        self._draining_agents: list[AgentSpec] = []
        self._store = store
        self._hub = hub
        self._limits = limits
        self._debug = debug
        self._quotas = quotas or Quotas()
        bounds = self._quotas.quota
        self._quota = StoreQuota(
            max_task_bytes=limits.max_task_bytes, max_tasks=bounds.max_tasks, max_bytes=bounds.max_stored_bytes
        )
        self._draining = self._closed = False
        #: Called before a run asks for its token: the process must be known as a worker by then.
        self.before_run: Callable[[], None] | None = None
        #: Called when a run has begun whose task may have webhooks.
        self.on_begun: Callable[[Owner, str], None] | None = None
        #: Called with a run that holds its token, when another process has written to its task or asks about it.
        self.on_asked: Callable[[Run], None] | None = None
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the runs are the parent's."""
        self._active: dict[Run, Reservation | None] = {}
        self._messages_lock = threading.Lock()
        self._message_bytes = self._quotas.share(_MAX_MESSAGE_BYTES)
        #: For each run with a large message: frees its memory.
        self._large: dict[Run, Callable[[], None]] = {}
        #: Runs whose task will be stored, and may not be yet.
        self._unstored: set[Run] = set()
        #: Tasks whose start or takeover failed, though the store may have it, also later; and their runs of the last search.
        self._uncertain: deque[str] = deque(maxlen=_MAX_UNCERTAIN)
        self._strays: set[RunToken] = set()
        self._run_returned = threading.Event()

    # -- starting --

    def start_run(
        self, owner: Owner, request: RunRequest, *, after: int | None, run_on: RunOn = RunOn.POOL
    ) -> StartedRun:
        """`begin` a run and `dispatch` it; see these, also for what is raised."""
        run, started = self.begin(owner, request, after=after, run_on=run_on)
        self.dispatch(run)
        return started

    def begin(
        self, owner: Owner, request: RunRequest, *, after: int | None, run_on: RunOn = RunOn.POOL
    ) -> tuple[Run, StartedRun]:
        """Reserve a thread and store the request: from then on the task exists, and this process holds its token.

        The run is executed by `dispatch`. The job queue is between the two. `after` is the number of the newest entry
        that the request continues; None: it creates its task.

        Raises:
            OverloadedError: all threads and places in the queue are taken, or the owner's tasks hold as many bytes as they may,
                or the messages of runs as much memory; nothing was stored.
            RequestTooLargeError: the task would hold more bytes than it may; nothing was stored.
            TaskBusy, TaskEnded, TaskNotFoundError, StoreError: from the store; nothing was stored.
        """
        spec, slot = self._reserve(self._executor_of(owner), owner, run_on)
        run = self._register(spec, owner, request, slot, after=after)
        started = self._begin(run, slot)
        if after is not None or request.webhook is not None:
            self._notify_begun(run)
        return run, started

    def start_unstored(
        self, owner: Owner, request: RunRequest, decided: Signal, *, direct: bool, run_on: RunOn = RunOn.POOL
    ) -> Run:
        """Execute a run whose task is stored with its first events, or by `decide`.

        It is stored first if another process executes the run, or would run it again. On the caller's own thread the run gets
        the time that it takes: nothing else could see its task before.

        Parameters:
            owner, request: see `begin`.
            decided: wakes when the task is stored, or the run has answered or ended.
            direct: it may answer with a message and no task.
            run_on: its thread.

        Raises:
            OverloadedError, RequestTooLargeError, StoreError: as for `begin`.
        """
        spec, slot = self._reserve(self._executor_of(owner), owner, run_on)
        run = self._register(spec, owner, request, slot, after=None)
        run.begin_unstored(decided, direct=direct)
        if not direct:
            # A large message is stored by the request, which is one of few of its caller that are expensive: threads of runs are many.
            if self.remote or _is_retryable(spec) or run in self._large:
                self._begin(run, slot)
            else:
                self._unstored.add(run)
        self.dispatch(run)
        return run

    def _begin(self, run: Run, slot: Reservation | None) -> StartedRun:
        try:
            return run.begin(ready=slot is None or slot.ready)
        except BaseException:
            self._cancel_reservation(run, slot)
            raise

    def store_tasks(self, owner: Owner | None = None, context_id: str = "") -> None:
        """Store the tasks of the owner (None: of all) and context (``""``: of all) whose runs go on here and that are not stored yet.

        To be called before they are read.
        """
        for run in self._unstored.copy():
            if (owner is not None and run.owner != owner) or (context_id and run.request.context_id != context_id):
                continue
            # What prevents it is raised by `decide`.
            with suppress(Exception):
                run.begin(ready=False)

    def decide(self, run: Run) -> StartedRun | Message:
        """The task of a run of `start_unstored`, which is stored if it was not yet, or the message of a direct run.

        Raises:
            AgentError: a direct run raised it (or failed) before there was a task.
            OverloadedError, RequestTooLargeError, StoreError: as for `begin`.
        """
        try:
            started = run.decide()
        except BaseException:
            run.stop()
            raise
        finally:
            self._unstored.discard(run)
        if started is not None:
            if run.request.webhook is not None:
                self._notify_begun(run)
            return started
        assert run.answer is not None
        return run.answer

    def dispatch(self, run: Run) -> None:
        """Have a run of `begin` executed where it has a reservation, in the caller's context; without a thread it fails."""
        slot = self._active[run]
        self._watchdog.watch(run, slot)
        job = Job(run, self._deregister)
        if slot is None:
            job()
            return
        try:
            slot.submit(job)
        except Exception:
            logger.exception("a run could not be queued", extra={"task_id": run.request.task_id})
            run.abort(OverloadedError("the server has no thread for this task; try again later", retry_after=1.0))
            self._cancel_reservation(run, slot)

    def work(self, job: JobReference) -> bool:
        """Execute a run that another process has begun, on this thread, to its end.

        False: it was not executed, because another process executes it or its task has ended.

        Raises:
            OverloadedError, StoreError: this process is stopping, or the store failed; the job must be delivered again.
        """
        held = HeldRun(Owner(job.tenant, job.owner), RunToken(job.task_id, job.token))
        try:
            found = self._store.request(held.owner, job.task_id)
            if found is None:
                return False
            spec, slot = self._reserve(self._executor_of(held.owner), held.owner, RunOn.CALLER)
            # A task that goes on is shown as working since its message was stored.
            run = self._adopt(spec, held, found.request, slot, begins=found.state is not TaskState.WORKING)
        except (RunRevoked, TaskNotFoundError):
            return False
        self.dispatch(run)
        return True

    def _reserve(self, executor: AgentSpec | None, owner: Owner, run_on: RunOn) -> tuple[AgentSpec, Reservation | None]:
        if executor is None or self._refuses(executor):
            raise _stopping()
        if self.before_run is not None:
            self.before_run()
        if run_on is RunOn.CALLER:
            return executor, None
        if run_on is RunOn.POOL_OR_CALLER:
            return executor, self.pool.reserve_nested(quota_owner(owner.id))
        return executor, (self._dispatcher or self.pool).reserve(quota_owner(owner.id))

    def _register(
        self, executor: AgentSpec, owner: Owner, request: RunRequest, slot: Reservation | None, *, after: int | None
    ) -> Run:
        """A run that is known before its task is stored: what ends the task from then on finds it."""
        size = memory_size(request.message, request.metadata)
        run = Run(
            executor,
            self._store,
            self._hub,
            owner,
            request,
            after=after,
            quota=self._quota,
            on_over=self._deregister,
            chunk_writer=self._chunk_writer,
            value_locks=self._value_locks,
            reads=self.reads,
            times=self._quotas.times if size > _SMALL_MESSAGE else None,
            limits=self._limits,
            debug=self._debug,
        )
        self._active[run] = slot
        if self._refuses(executor):
            self._cancel_reservation(run, slot)
            raise _stopping()
        if size > _SMALL_MESSAGE:
            try:
                self._large[run] = self._take_memory(owner, size)
            except OverloadedError:
                self._cancel_reservation(run, slot)
                raise
            # It has been decoded, and will be encoded: each takes long.
            let_greenlets_run()
        return run

    def hold_memory(self, owner: Owner, request: RunRequest) -> Callable[[], None]:
        """Count the memory of a request that waits until the returned function is called.

        Raises:
            OverloadedError: the messages of this owner, or of all, have too much already.
        """
        size = memory_size(request.message, request.metadata)
        return self._take_memory(owner, size) if size > _SMALL_MESSAGE else _do_nothing

    def _take_memory(self, owner: Owner, size: int) -> Callable[[], None]:
        name = quota_owner(owner.id)
        with self._messages_lock:
            if not self._message_bytes.admits(name):
                raise OverloadedError(
                    "too many large messages in tasks that run or wait; try again later", retry_after=1.0
                )
            self._message_bytes.take(name, size)
        return partial(self._free_message, name, size)

    def _free_message(self, owner: str, size: int) -> None:
        with self._messages_lock:
            self._message_bytes.release(owner, size)

    def _cancel_reservation(self, run: Run, slot: Reservation | None) -> None:
        self._deregister(run)
        if slot is not None:
            slot.release()

    def _notify_begun(self, run: Run) -> None:
        if self.on_begun is not None:
            self.on_begun(run.owner, run.request.task_id)

    def _deregister(self, run: Run) -> None:
        if run.unstored and run.started is None:
            self._search_stray(run)
        self._active.pop(run, None)
        if run in self._large:
            self._large.pop(run, _do_nothing)()
        run.unsubscribe()
        self._watchdog.run_returned(run)
        if not self._run_returned.is_set():
            self._run_returned.set()

    @staticmethod
    def on_run_thread() -> bool:
        """The caller is the code of a run."""
        return current_run.get() is not None

    @staticmethod
    def waits_for_itself(task_id: str) -> bool:
        """The caller is the code of a run on this task, so the task cannot become free while it waits."""
        run = current_run.get()
        return run is not None and run.is_nested_in(task_id)

    @property
    def draining(self) -> bool:
        return self._draining

    def _refuses(self, executor: AgentSpec) -> bool:
        leaving = self._draining
        for one in self._draining_agents:
            leaving = leaving or one is executor
        # A run that is given time to end may need other agents.
        return self._closed or (leaving and not self.on_run_thread())

    @property
    def lingering(self) -> int:
        """Runs whose task has ended and whose code has not returned, because it does not check for cancellation."""
        return sum(run.cancel_event.is_set() for run in list(self._active))

    @property
    def running(self) -> int:
        return len(self._active)

    def active(self) -> list[ActiveRun]:
        """The runs of this process, the oldest first."""
        now = clock.monotonic()
        return [
            ActiveRun(
                run.owner,
                run.request.task_id,
                None if run.began is None else now - run.began,
                None if run.last_event is None else now - run.last_event,
                run.cancel_event.is_set(),
                run.thread,
            )
            for run in list(self._active)
        ]

    @property
    def queued(self) -> int:
        """Runs that have begun here and wait: for a thread, or for a process that executes their job."""
        return self.pool.waiting if self._dispatcher is None else self._dispatcher.waiting

    # -- ending from outside --

    def cancel(self, owner: Owner, task_id: str, metadata: Metadata, principal: Principal | None = None) -> Task:
        """Make the task `canceled` and stop its run, unless the agent refuses. Returns the task without its messages and artifacts.

        Raises:
            TaskNotFoundError, StoreError: from the store.
            TaskNotCancelableError: the task has ended, or the agent's cancel handler refused.
        """
        head = self._store.head(owner, task_id)
        if head.status.state.terminal:
            raise _not_cancelable(task_id, head.status.state)
        # The code of a run whose task waits or has ended may still be about to return.
        run = next((run for run in self._runs_of(task_id) if run.started is not None and not run.over), None)
        self._cancels.call_handler(self._executor_of(owner), owner, task_id, metadata, principal, run)
        event = status_event(RunRequest(message=empty_message(task_id, head.context_id)), TaskState.CANCELED)
        try:
            self._interrupt(owner, head, [event])
        except TaskEnded:
            # Or the agent has cancelled it itself, because its cancel handler was called.
            if run is None or run.state is not TaskState.CANCELED:
                raise _not_cancelable(task_id, self._store.head(owner, task_id).status.state) from None
        return Task(id=task_id, context_id=head.context_id, status=event.status, metadata=head.metadata)

    def _interrupt(self, owner: Owner, head: TaskHead, events: Sequence[LogEvent]) -> None:
        """End a task from outside: store, publish, then stop its run."""
        entries = self._store.interrupt(owner, head.id, events)
        self._hub.publish(owner, head.id, entries, before=head.status.state, ended=True)
        if self._dispatcher is not None:
            self._dispatcher.discard(head.id)
        for run in self._runs_of(head.id):
            run.stop()

    def _runs_of(self, task_id: str) -> list[Run]:
        return [run for run in list(self._active) if run.request.task_id == task_id]

    # -- other processes --

    def check_tokens(self, task_id: str) -> None:
        """Another process has written to this task or asks about it: stop its runs whose tokens are revoked."""
        workers = self._store.workers
        if self._dispatcher is not None:
            self._dispatcher.check(task_id)
        for run in self._runs_of(task_id):
            if workers is None or run.started is None:
                continue
            if not workers.holds(run.started.token):
                run.token_lost()
            elif self.on_asked is not None:
                self.on_asked(run)

    def take_over(self, lost: HeldRun) -> None:
        """Run the run of a dead or leaving worker again, if the agent allows it; else fail its task.

        Raises:
            OverloadedError, StoreError: no thread is free, or the store failed; the run is still lost and must be offered again.
        """
        try:
            found = self._store.request(lost.owner, lost.token.task_id)
            if found is None:
                return
            request, before = found
            executor = self._executor_of(lost.owner)
            # A run that was queued when its process stopped: the agent's code was never called.
            queued = self.remote and before is TaskState.SUBMITTED
            again = lost.left or request.attempt < self._limits.max_run_attempts
            if executor is not None and queued:
                self._run_again(executor, lost, request)
            elif executor is not None and again and _is_retryable(executor):
                self._run_again(executor, lost, replace(request, attempt=request.attempt + 1))
            else:
                entries = self._store.append(
                    lost.token, [status_event(request, TaskState.FAILED, "worker lost")], end=True
                )
                self._hub.publish(lost.owner, lost.token.task_id, entries, before=before, ended=True)
        except (RunRevoked, TaskNotFoundError):
            logger.info("a lost run was ended or taken over by another worker", extra={"task_id": lost.token.task_id})

    def _run_again(self, executor: AgentSpec, lost: HeldRun, request: RunRequest) -> None:
        spec, slot = self._reserve(executor, lost.owner, RunOn.POOL)
        # A run that waits in a queue for another process is not working yet.
        run = self._adopt(spec, lost, request, slot, begins=not self.remote)
        logger.warning(
            "running again after a lost worker, attempt %d", request.attempt, extra={"task_id": request.task_id}
        )
        self.dispatch(run)

    def _adopt(
        self, spec: AgentSpec, held: HeldRun, request: RunRequest, slot: Reservation | None, *, begins: bool
    ) -> Run:
        """Take over a run that another process holds, with a token of this one; `begins`: its task is working from now on.

        Raises:
            RunRevoked: it was ended or adopted by another process.
        """
        workers = self._store.workers
        assert workers is not None
        run = self._register(spec, held.owner, request, slot, after=0)
        run.subscribe()
        try:
            events = [status_event(request, TaskState.WORKING)] if begins else []
            run.take_over(workers.adopt(held, request, events))
        except BaseException as error:
            if not isinstance(error, (AgentError, StoreConflict)):
                self._search_stray(run)
            self._cancel_reservation(run, slot)
            raise
        self._notify_begun(run)
        return run

    def _search_stray(self, run: Run) -> None:
        """Search from now on for a run that was not begun for this process: a lock may let the database store it hours later."""
        if self._store.workers is not None:
            self._uncertain.append(run.request.task_id)
            self._search.start(_SEARCH_INTERVAL)

    def _end_strays(self) -> float:
        """Take over the runs that this process holds and does not know, as if it had died: nothing else would end them."""
        workers = self._store.workers
        assert workers is not None
        uncertain = set(self._uncertain.copy())
        found = [run for run in workers.runs_of(workers.id) if run.token.task_id in uncertain]
        strays = {run.token: run for run in found if not self._knows(run.token.task_id)}
        # A job that is being sent is not known for a moment: each run is found twice.
        before, self._strays = self._strays, set(strays)
        for token in before & self._strays:
            self.take_over(strays[token])
        return _SEARCH_INTERVAL

    def _knows(self, task_id: str) -> bool:
        remote = self._dispatcher is not None and self._dispatcher.knows(task_id)
        return remote or bool(self._runs_of(task_id)) or self._watchdog.knows(task_id)

    # -- closing --

    def drain(self) -> None:
        """Accept no more runs, and end the streams of tasks without a run in this process."""
        self._draining = True
        self.store_tasks()
        self._hub.stop(but={run.request.task_id for run in list(self._active)})

    def drain_agent(self, executor: AgentSpec) -> None:
        """Accept no more runs of one agent, except those that running code asks for."""
        if not any(one is executor for one in self._draining_agents):
            self._draining_agents.append(executor)

    def end_agent(self, executor: AgentSpec, timeout: float, reason: str) -> None:
        """`drain_agent`, give its runs `timeout` seconds, and fail the rest with `reason`."""
        self.drain_agent(executor)
        self._wait_for_runs(time.monotonic() + timeout, executor)
        for run in self.runs_of(executor):
            self._watchdog.finish(run, reason)
        self._wait_for_runs(time.monotonic() + _STOP_TIMEOUT, executor)
        self._draining_agents = [one for one in self._draining_agents if one is not executor]

    def runs_of(self, executor: AgentSpec | None = None) -> list[Run]:
        """The runs of one agent (None: of all) whose code has not returned."""
        return [run for run in list(self._active) if executor is None or run.executor is executor]

    def close(self, timeout: float = 10.0) -> None:
        """Accept no more runs, give the running ones `timeout` seconds, end the rest and all streams.

        The rest fails, unless other workers may run it again.
        """
        self.drain()
        self._wait_for_runs(time.monotonic() + timeout)
        self._closed = True
        broken, shared = False, self._store.workers is not None
        for run in list(self._active):
            handed_over = broken or (shared and _is_retryable(run.executor))
            if handed_over or not self._watchdog.finish(run, "server stopped"):
                # A broken store is not called for each of them: time is short, and other workers detect the loss.
                broken = broken or not handed_over
                run.hand_over()
        self._wait_for_runs(time.monotonic() + _STOP_TIMEOUT)
        if self._dispatcher is not None:
            self._dispatcher.close()
        self._search.stop()
        self._watchdog.close()
        self._chunk_writer.close()
        self.pool.close()
        self._cancels.close()
        self._hub.close()

    def _wait_for_runs(self, deadline: float, executor: AgentSpec | None = None) -> None:
        """Wait until all runs have returned, or those of one agent, except one whose code closes the app itself."""
        own = current_run.get()
        while any(run is not own for run in self.runs_of(executor)) and (left := deadline - time.monotonic()) > 0:
            self._run_returned.clear()
            self._run_returned.wait(min(left, 0.1))


def _is_retryable(executor: AgentSpec) -> bool:
    return executor.on_worker_lost() == "retry"


def _stopping() -> OverloadedError:
    return OverloadedError("the server is stopping; try again", retry_after=1.0)


def _not_cancelable(task_id: str, state: TaskState) -> TaskNotCancelableError:
    return TaskNotCancelableError(f"Task cannot be canceled: it is {state}", metadata={"taskId": task_id})


def _do_nothing() -> None:
    pass
