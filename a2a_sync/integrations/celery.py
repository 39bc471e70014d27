"""Celery as the job queue: runs begin in the web processes and are executed by Celery workers.

``A2AApp(agent, store="sqlite:////srv/tasks.db", job_queue=CeleryQueue(celery))`` in a module that both import: gunicorn serves the
app, ``celery -A module:celery worker`` executes its runs. Only ids travel through the broker. Needs ``a2a-sync[celery]``.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from a2a_sync.concurrency.background import start_thread
from a2a_sync.engine.jobs import JobConsumer, JobReference, parse_job
from a2a_sync.errors import OverloadedError
from a2a_sync.telemetry.logs import get_logger

try:
    from celery import Celery, signals
except ImportError as _error:
    raise ImportError("CeleryQueue needs Celery: pip install 'a2a-sync[celery]'") from _error

__all__ = ["CeleryQueue"]

logger: Final = get_logger(__name__)


class CeleryQueue:
    """A `JobQueue` of one app or host over a Celery application.

    A Celery worker that shuts down gives the runs that it executes `drain_timeout` seconds; what has not ended then is resumed by
    another worker, or fails, as `Agent.on_worker_lost` says. The prefork, threads and solo pools are supported.

    Parameters:
        celery: the Celery application; its broker is used, its result backend is not.
        queue: the Celery queue (``celery worker -Q``); None: the default one of the application.
        task_name: names the Celery task. Apps that share a Celery application need different names.
        drain_timeout: seconds.
    """

    def __init__(
        self,
        celery: Celery,
        *,
        queue: str | None = None,
        task_name: str = "a2a.run",
        drain_timeout: float = 30.0,
    ) -> None:
        self._celery = celery
        self._queue = queue
        self._task_name = task_name
        self._drain_timeout = drain_timeout
        self._consumer: JobConsumer | None = None
        #: Both ends of a pipe that the main process of prefork workers closes when it shuts down.
        self._pipe: tuple[int, int] | None = None

    def connect(self, consumer: JobConsumer) -> None:
        """See `JobQueue.connect`.

        Raises:
            ValueError: another app uses this queue, or its task name in the same Celery application.
        """
        if self._consumer is not None or self._task_name in self._celery.tasks:
            raise ValueError(
                f"the Celery task {self._task_name!r} serves another app: pass CeleryQueue(celery, task_name=...) with another name"
            )
        self._consumer = consumer
        self._celery.task(self._work, name=self._task_name, ignore_result=True, shared=False)
        for signal, receiver in (
            (signals.worker_init, self._open_pipe),
            (signals.worker_process_init, self._start_in_child),
            (signals.worker_ready, self._start),
            (signals.worker_shutting_down, self._drain),
            (signals.worker_process_shutdown, self._close),
            (signals.worker_shutdown, self._close),
        ):
            signal.connect(receiver, weak=False)

    def send(self, job: JobReference) -> None:
        """See `JobQueue.send`."""
        # The arguments hold the token of the run: events and logs of Celery show ``argsrepr`` instead.
        self._celery.send_task(
            self._task_name,
            args=tuple(job),
            argsrepr=repr((job.task_id,)),
            queue=self._queue,
            ignore_result=True,
            retry=False,
        )

    def _work(self, *fields: object) -> None:
        assert self._consumer is not None
        try:
            job = parse_job(fields)
        except ValueError:
            logger.warning("the broker delivered a message to %s that is not a job", self._task_name)
            return
        try:
            self._consumer.work(job)
        except OverloadedError as error:
            logger.info("a job is left to other workers: %s", error, extra={"task_id": job.task_id})

    # -- the life of a Celery worker: `Any` receives what Celery sends --

    def _open_pipe(self, **_: Any) -> None:
        self._pipe = os.pipe()

    def _start_in_child(self, **_: Any) -> None:
        if self._pipe is not None:
            os.close(self._pipe[1])
            start_thread("a2a-celery-drain", self._await_shutdown, self._pipe[0])
        self._start_consumer()

    def _await_shutdown(self, pipe: int) -> None:
        os.read(pipe, 1)
        self._close_consumer(self._drain_timeout)

    def _start(self, sender: Any, **_: Any) -> None:
        # The children of the prefork pool execute the jobs: the process that forks them runs nothing.
        if "prefork" not in type(sender.pool).__module__:
            self._start_consumer()

    def _start_consumer(self) -> None:
        assert self._consumer is not None
        try:
            self._consumer.start()
        except Exception:
            logger.exception("the runs of dead processes cannot be watched yet; the first job tries again")

    def _drain(self, **_: Any) -> None:
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None
        # This is a signal handler: the worker must go on meanwhile.
        threading.Thread(
            target=self._close_consumer, args=(self._drain_timeout,), name="a2a-celery-drain", daemon=True
        ).start()

    def _close(self, **_: Any) -> None:
        self._close_consumer(0.0)

    def _close_consumer(self, timeout: float) -> None:
        assert self._consumer is not None
        self._consumer.close(timeout)
