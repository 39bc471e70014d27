"""What operators see of a server: tasks by state and by minute, runs, workers, streams, and the size of the store."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from a2a_sync.stores.base import Inspection, SummaryQuery, TaskStore, TaskSummary, require
from a2a_sync.types import TaskState

if TYPE_CHECKING:
    from a2a_sync.wsgi.app import A2AApp

#: Tasks of the last minutes are counted one by one, up to a number.
MINUTES, _MAX_COUNTED = 30, 5_000
#: Runs that are listed.
_MAX_RUNS = 100
_OPEN = (TaskState.SUBMITTED, TaskState.WORKING, TaskState.AUTH_REQUIRED, TaskState.INPUT_REQUIRED)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of the store: seconds since its last heartbeat (None: it is lost) and the number of its runs."""

    id: str
    age_s: float | None
    runs: int
    own: bool


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server at one moment.

    Attributes:
        counts: tasks of all agents of the store by state.
        running, lingering: runs of this process; those whose task has ended while their code has not returned.
        streams: open streams of this process, those of the console included.
        size: the bytes of the store.
        per_minute: tasks made in each of the last minutes, the oldest first.
        capped: there were more tasks than were counted.
        runs: the tasks that have a run, the newest first.
        workers: the processes of the store; empty where one process uses it.
        ready: why no work can be accepted; ``""`` when it can.
    """

    counts: dict[str, int]
    running: int
    lingering: int
    streams: int
    size: int
    per_minute: list[int]
    capped: bool
    runs: list[TaskSummary]
    workers: list[Worker]
    ready: str

    @property
    def kept(self) -> int:
        """All tasks."""
        return sum(self.counts.values())


def read_state(app: A2AApp) -> ServerState:
    """The state of the server of `app`. Raises `StoreError` where its store has no `Inspection`."""
    inspection = require(app.store.inspection, "inspection")
    engine = app.service.engine
    counts: dict[str, int] = {}
    for states in inspection.counts().values():
        for state, count in states.items():
            counts[str(state)] = counts.get(str(state), 0) + count
    per_minute, capped = _per_minute(inspection)
    return ServerState(
        counts=counts,
        running=engine.runs.running,
        lingering=engine.runs.lingering,
        streams=engine.thread_budget.streams,
        size=inspection.size(),
        per_minute=per_minute,
        capped=capped,
        runs=_runs(inspection),
        workers=_workers(inspection, app.store),
        ready=app.not_ready_reason(),
    )


def _per_minute(inspection: Inspection) -> tuple[list[int], bool]:
    now = time.time() * 1000
    query = SummaryQuery(since_ms=int(now - MINUTES * 60_000), size=500)
    counted = [0] * MINUTES
    read = 0
    while read < _MAX_COUNTED:
        page = inspection.tasks(query)
        for task in page:
            minute = MINUTES - 1 - int((now - task.created_ms) // 60_000)
            counted[min(max(minute, 0), MINUTES - 1)] += 1
        read += len(page)
        if len(page) < query.size:
            return counted, False
        query = replace(query, before=page[-1].position)
    return counted, True


def _runs(inspection: Inspection) -> list[TaskSummary]:
    found = [
        task for state in _OPEN for task in inspection.tasks(SummaryQuery(state=state, size=_MAX_RUNS)) if task.running
    ]
    return sorted(found, key=lambda task: -task.position)[:_MAX_RUNS]


def _workers(inspection: Inspection, store: TaskStore) -> list[Worker]:
    own = store.workers.id if store.workers is not None else ""
    return [Worker(one.id, None if one.left else one.age_s, one.runs, one.id == own) for one in inspection.workers()]
