"""Where runs are executed: jobs, and the interface of the queues that carry them.

A run *begins* in the process that stores its request. Its job is executed later: by a thread of the same process
(`concurrency.pool.WorkerPool`, the default queue), or by another process over the same store, which gets the job's reference
from a queue and passes it to `A2AApp.work`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import NamedTuple, Protocol

from a2a_sync.engine.run import Run

__all__ = ["Job", "JobQueue", "JobReference", "Reservation"]


class JobReference(NamedTuple):
    """A run that has begun, by text only, so that it can be sent to another process: ``JobReference(*json.loads(text))``.

    Parameters:
        tenant, owner: the owner of the task.
        task_id: the task.
        token: the right to execute the run, which is used up by the first process that does. It must not reach callers.
    """

    tenant: str
    owner: str
    task_id: str
    token: str


class Job:
    """A run to be executed once: here, by a call of this object on any thread, or in another process by its reference."""

    __slots__ = ("_context", "_forget", "_run")

    def __init__(self, run: Run, forget: Callable[[Run], None]) -> None:
        self._run = run
        self._forget = forget
        # The run continues the trace and has the log context of the call that asked for it.
        self._context = contextvars.copy_context()

    def __call__(self) -> None:
        """Execute the run, to its end."""
        self._context.run(self._run.work)

    def hand_over(self) -> JobReference:
        """The reference for another process. Called before it is sent: this process leaves the run alone from then on."""
        run = self._run
        assert run.started is not None
        self._forget(run)
        return JobReference(*run.scope, *run.started.token)


class Reservation(Protocol):
    """A place for one job in a queue."""

    @property
    def ready(self) -> bool:
        """The job will be executed at once, so its task may be shown as working."""

    def submit(self, job: Job) -> None:
        """Have `job` executed, now or later, and return at once; called once, when the task is stored.

        Whatever it raises is logged, and the task fails.
        """

    def release(self) -> None:
        """Cancel the reservation: there is no job."""

    def abandon(self) -> bool:
        """Free the place of a job that hangs in this process for the next one; False where it keeps it."""


class JobQueue(Protocol):
    """Carries jobs to the threads or processes that execute them. Thread-safe.

    A queue to other processes delivers each job at least once: one that is delivered again is not executed again. A job that is
    lost is only noticed when the process that began its run stops or dies.
    """

    def reserve(self, owner: str) -> Reservation:
        """Reserve a place for a job of `owner`, before anything is stored.

        Raises:
            OverloadedError: there is none.
        """
