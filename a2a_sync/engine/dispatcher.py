"""Sends jobs through a `JobQueue` to other processes, and sends again what none of them has begun to execute.

Brokers lose messages: a restart without persistence, a flush, a worker that dies with what it has prefetched. The process that
began a run holds its token until another one executes the job, so it knows which jobs are outstanding. When it stops or dies,
the runs of its tokens are taken over like all others (`engine.membership`), and queued again.

A broker may hang, and a send with it. Some requests send at the same time, and none while sends fail or are slow: one thread sends
the other jobs, for owners in turns.
"""

from __future__ import annotations

import math
import random
import threading
import time
from dataclasses import dataclass
from typing import Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.concurrency.turns import Turns
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.jobs import Job, JobQueue, JobReference
from a2a_sync.errors import OverloadedError
from a2a_sync.stores.base import RunToken, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Seconds after which a job is sent again for the first time, and at most, also after its send has failed; the pause doubles in between.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_FAILED_PAUSE = 5.0, 300.0, 30.0
#: Requests that send at the same time.
_SENDING_REQUESTS = 8
#: A send that takes more seconds is slow.
_SLOW = 0.5


@dataclass(slots=True, eq=False)
class _Outstanding:
    """A job that has not begun, as far as this process knows.

    ``pause``: the seconds from its last send until it is sent again, 0 before the first one; ``due``: the time of that, infinite while
    it waits for its turn or is sent for the first time; ``failed``: its last send has failed.
    """

    job: JobReference
    owner: str
    pause: float = 0.0
    due: float = math.inf
    failed: bool = False


class Dispatcher:
    """The places of a `JobQueue`: `max_queued` jobs that no process has begun to execute, shared fairly between owners.

    A thread named ``a2a-dispatch`` sends what requests leave to it, and sends jobs again while some are outstanding.

    Parameters:
        jobs: carries the jobs.
        store: has workers.
        hub: knows the pub/sub that announces the beginning of runs in other processes.
        max_queued: outstanding jobs of this process.
        quotas: bounds what each owner holds of them.
    """

    def __init__(
        self, jobs: JobQueue, store: TaskStore, hub: EventHub, *, max_queued: int, quotas: Quotas | None = None
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._hub = hub
        self._max_queued = max_queued
        self._quotas = quotas or Quotas()
        self._rounds = Periodic("a2a-dispatch", self._send_next, retry=_FIRST_PAUSE)
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the outstanding jobs are the parent's."""
        self._lock = threading.Lock()
        self._places = self._quotas.share(self._max_queued, self._quotas.quota.max_queued_runs)
        self._outstanding: dict[str, _Outstanding] = {}
        #: Outstanding jobs that the thread sends, for the first time and again, and whether it sends one of the latter next.
        self._first: Turns[_Outstanding] = Turns()
        self._again: Turns[_Outstanding] = Turns()
        self._again_next = False
        self._sending = 0
        self._failing = False
        self._slow = False

    @property
    def waiting(self) -> int:
        """Jobs that no process has begun to execute, and reservations."""
        return self._places.taken

    def reserve(self, owner: str) -> _Place:
        """A place for one job of `owner`, before anything is stored.

        Raises:
            OverloadedError: there is none.
        """
        with self._lock:
            if self._places.admits(owner):
                self._places.take(owner)
                return _Place(self, owner)
            full = self._places.taken >= self._places.total
        raise OverloadedError(
            f"{'the agent' if full else 'this caller'} has reached its limit of queued tasks; retry later",
            retry_after=1.0,
        )

    def submit(self, job: Job, owner: str) -> None:
        """Send `job`, or leave it to the thread. Its place becomes free when a process begins to execute it."""
        reference = job.hand_over()
        one = _Outstanding(reference, owner)
        if (former := self._outstanding.get(reference.task_id)) is not None:
            # Its run has begun elsewhere and ended, which was not announced yet.
            self._forget(former)
        if self._hub.pubsub is not None:
            self._hub.pubsub.subscribe(reference.task_id, soon=True)
        with self._lock:
            self._outstanding[reference.task_id] = one
            left = self._failing or self._slow or self._sending >= _SENDING_REQUESTS
            if left:
                self._first.add(one)
            else:
                self._sending += 1
        if left:
            self._rounds.wake()
            return
        try:
            self._send(one)
        finally:
            with self._lock:
                self._sending -= 1
        self._rounds.start(_FIRST_PAUSE)

    def release(self, owner: str) -> None:
        """Free a place without a job."""
        with self._lock:
            self._places.release(owner)

    def check(self, task_id: str) -> None:
        """Another process has written to this task: it may have begun to execute its job.

        Raises:
            StoreError: from the store.
        """
        one = self._outstanding.get(task_id)
        if one is not None and not self._is_outstanding(one):
            self._forget(one)

    def discard(self, task_id: str) -> None:
        """The task has ended: its job is not sent again, and its place is free."""
        one = self._outstanding.get(task_id)
        if one is not None:
            self._forget(one)

    def knows(self, task_id: str) -> bool:
        """Whether this process has sent a job of the task, which has not begun as far as it knows."""
        return task_id in self._outstanding

    def close(self) -> None:
        """Send nothing again. Other processes queue the runs again of which this one holds the tokens."""
        self._rounds.stop()

    def _send(self, one: _Outstanding) -> None:
        began = time.monotonic()
        try:
            self._jobs.send(one.job)
        except Exception as error:
            with self._lock:
                # The queue may refuse this job only: a second failure of it does not show that others fail too.
                fails = not one.failed and not self._failing
                self._failing = self._failing or fails
                one.failed = True
            # A broker that is away fails each send: the stack is logged once.
            logger.error(
                "a job could not be sent to its queue; it is sent again: %s",
                error,
                exc_info=fails,
                extra={"task_id": one.job.task_id},
            )
        else:
            one.failed = self._failing = False
            self._slow = time.monotonic() - began > _SLOW
        finally:
            longest = _LONGEST_FAILED_PAUSE if one.failed else _LONGEST_PAUSE
            one.pause = min(2 * one.pause or _FIRST_PAUSE, longest)
            one.due = time.monotonic() + one.pause * random.uniform(0.8, 1.2)

    def _send_next(self) -> float | None:
        """Send the job whose turn it is; the seconds until the next one is due, None while none is outstanding."""
        one = self._take()
        if one is None:
            with self._lock:
                due = [one.due for one in self._outstanding.values()]
            return min(max(0.0, min(due) - time.monotonic()), _FIRST_PAUSE) if due else None
        if not self._is_outstanding(one):
            self._forget(one)
            return 0.0
        if one.pause and not one.failed:
            where = {"task_id": one.job.task_id}
            logger.info("a job has not begun for %.0f s; it is sent again", one.pause, extra=where)
        self._send(one)
        return 0.0

    def _take(self) -> _Outstanding | None:
        """The job whose turn it is, None while none is due. A first send waits for one repeated send at most, and the reverse."""
        now = time.monotonic()
        with self._lock:
            for one in self._outstanding.values():
                if one.due <= now:
                    one.due = math.inf
                    self._again.add(one)
            turns = self._again if self._again and (self._again_next or not self._first) else self._first
            if not turns:
                return None
            self._again_next = turns is self._first
            one = turns.take()
            # Where the store cannot be asked whether it is outstanding, its turn comes again.
            one.due = now + _FIRST_PAUSE
            return one

    def _is_outstanding(self, one: _Outstanding) -> bool:
        workers = self._store.workers
        return workers is not None and workers.holds(RunToken(one.job.task_id, one.job.token))

    def _forget(self, one: _Outstanding) -> None:
        with self._lock:
            if self._outstanding.get(one.job.task_id) is not one:
                return
            del self._outstanding[one.job.task_id]
            self._first.discard(one)
            self._again.discard(one)
            self._places.release(one.owner)
        self._hub.unsubscribe(one.job.task_id)


class _Place:
    """A place of a `Dispatcher`; see `Reservation`."""

    __slots__ = ("_dispatcher", "_owner")

    ready = False

    def __init__(self, dispatcher: Dispatcher, owner: str) -> None:
        self._dispatcher = dispatcher
        self._owner = owner

    def submit(self, job: Job) -> None:
        self._dispatcher.submit(job, self._owner)

    def release(self) -> None:
        self._dispatcher.release(self._owner)

    def abandon(self) -> bool:
        # The job is not executed here.
        return True
