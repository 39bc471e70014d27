"""Where runs are executed: jobs, and the interface of the queues that carry them to other processes.

A run *begins* in the process that stores its request. Its job is executed later: by a thread of the same process
(`concurrency.pool.WorkerPool`, the default), or by another process over the same store, which gets the job's reference from a
`JobQueue` and passes it to `A2AApp.work`.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from a2a_sync.engine.run import Run

__all__ = ["FunctionQueue", "JobConsumer", "JobQueue", "JobReference"]


#: What UTF-8 or a database cannot hold.
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")


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

    def __repr__(self) -> str:
        return f"JobReference(task_id={self.task_id!r})"


class JobConsumer(Protocol):
    """What executes jobs: an `A2AApp` or an `AgentHost`."""

    def work(self, job: JobReference) -> bool:
        """See `A2AApp.work`."""

    def start(self) -> bool:
        """See `A2AApp.start`."""

    def close(self, timeout: float = 10.0) -> None:
        """See `A2AApp.close`."""


class JobQueue(Protocol):
    """Carries jobs to processes that execute them, as a message broker does. Thread-safe.

    A job may be lost or delivered more than once: the process that sent it sends it again until a process executes it, and a
    job that is delivered again is not executed again.
    """

    def connect(self, consumer: JobConsumer) -> None:
        """Called once, by the app or host that is created with this queue, in every process: jobs are for ``consumer.work``."""

    def send(self, job: JobReference) -> None:
        """Send `job` to one of the processes and return, within a limit of time where the broker does not answer.

        What it raises is logged, and the job is sent again later.
        """


class FunctionQueue:
    """A `JobQueue` over a function that sends a text to other processes, such as the ``send`` of a Dramatiq actor.

    The function that these processes call with the text passes it to `work`. See the guide on job queues.

    Parameters:
        send: called with the text of one job, on the thread of the request or of the dispatcher; must not wait for the job.
    """

    def __init__(self, send: Callable[[str], object]) -> None:
        self._send = send
        self._consumer: JobConsumer | None = None

    def connect(self, consumer: JobConsumer) -> None:
        """See `JobQueue.connect`.

        Raises:
            ValueError: another app uses this queue.
        """
        if self._consumer is not None:
            raise ValueError("a FunctionQueue serves one app or host; create another one")
        self._consumer = consumer

    def send(self, job: JobReference) -> None:
        """See `JobQueue.send`."""
        self._send(json.dumps(job))

    def work(self, text: str) -> bool:
        """Execute the job of `text` on this thread, to its end. False and errors: see `A2AApp.work`.

        Raises:
            ValueError: no app was created with this queue in this process, or the text is not of a job.
        """
        if self._consumer is None:
            raise ValueError("no app has this queue: import the module that creates A2AApp(..., job_queue=...)")
        try:
            fields = json.loads(text)
        except RecursionError:
            fields = None
        return self._consumer.work(parse_job(fields))


def parse_job(fields: object) -> JobReference:
    """The job that a broker has delivered, which may be anything.

    Raises:
        ValueError: it is none.
    """
    if isinstance(fields, (list, tuple)) and len(fields) == 4:
        job = JobReference(*fields)
        if all(isinstance(one, str) and not _UNFIT.search(one) for one in job):
            return job
    raise ValueError("the text is not of a job: pass on what `send` was called with")


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
        return JobReference(*run.owner, *run.started.token)


class Reservation(Protocol):
    """A place for one job."""

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
