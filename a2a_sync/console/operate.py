"""What operators see of a server: tasks by state and by minute, runs, workers, deliveries, streams, and the size of the store."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from a2a_sync.engine.runs import ActiveRun
from a2a_sync.stores.base import (
    STACK,
    Inspection,
    Owner,
    RunRevoked,
    StateConflict,
    StoredWebhook,
    SummaryQuery,
    TaskBatch,
    TaskStore,
    TaskSummary,
    WebhookCounts,
    require,
)
from a2a_sync.types import Task, TaskState

if TYPE_CHECKING:
    from a2a_sync.console.record import Record
    from a2a_sync.engine.engine import Engine
    from a2a_sync.engine.run import Run
    from a2a_sync.wsgi.app import A2AApp

#: Tasks of the last minutes are counted one by one, up to a number.
MINUTES, _MAX_COUNTED = 30, 5_000
#: Runs and webhooks that are listed.
_MAX_RUNS, _MAX_HOOKS = 100, 50
_OPEN = (TaskState.SUBMITTED, TaskState.WORKING, TaskState.AUTH_REQUIRED, TaskState.INPUT_REQUIRED)
_FAILED = (TaskState.FAILED, TaskState.REJECTED)
#: A run that is silent for so many seconds is explained; and the frames of its stack that are shown.
_SILENT, _MAX_FRAMES = 2.0, 20
#: Characters of a line of it that are shown.
_MAX_LINE = 500
#: How long a page waits for the answer of another process, and how often it looks for it, in seconds.
_ANSWER_TIMEOUT, _ANSWER_INTERVAL = 1.0, 0.05
#: The answers that a context keeps, and how often a process tries to add one.
_MAX_ANSWERS = 8
#: Code that is not of the agent: this library, that of Python, and installed packages.
_FOREIGN = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of the store.

    Attributes:
        runs: the number of its runs.
        left: it has stopped or is lost, and its runs are taken over.
        age: the seconds since its last heartbeat; None where the store does not know.
        lease: the seconds after which its runs are taken over unless it beats again; None likewise.
    """

    id: str
    name: str
    runs: int
    own: bool
    left: bool
    age: float | None
    lease: float | None

    @property
    def state(self) -> str:
        """Whether it is alive, and whether it works."""
        if self.left or (self.lease is not None and self.lease <= 0):
            return "lost"
        return "busy" if self.runs else "idle"


@dataclass(frozen=True, slots=True)
class Plot:
    """One value for each of the last minutes, the oldest first; None where there is none. `unit` is empty for counts."""

    title: str
    unit: str
    values: Sequence[float | None]

    @property
    def highest(self) -> float | None:
        """The highest value."""
        return max((value for value in self.values if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server at one moment.

    Attributes:
        counts: tasks of all agents of the store by state.
        running, queued: runs of this process; those of them that wait for a thread.
        abandoned: runs of this process whose task has ended while their code has not returned.
        streams: open streams of this process, those of the console included.
        size: the bytes of the store.
        plots: rates of the last minutes.
        made: tasks that were made in these minutes.
        capped: there were more tasks than were counted.
        runs: the tasks that have a run, the newest first.
        here: the runs of this process by the id of their task.
        workers: the processes of the store; empty where one process uses it.
        deliveries: how many webhooks are behind, entries they have still to receive, and how many have stopped.
        stopped, behind: webhooks that have stopped, and those that are behind; the newest error first.
        ready: why no work can be accepted; ``""`` when it can.
    """

    counts: dict[str, int]
    running: int
    queued: int
    abandoned: list[ActiveRun]
    streams: int
    size: int
    plots: list[Plot]
    made: int
    capped: bool
    runs: list[TaskSummary]
    here: dict[str, ActiveRun]
    workers: list[Worker]
    deliveries: WebhookCounts
    stopped: tuple[StoredWebhook, ...]
    behind: tuple[StoredWebhook, ...]
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
    tasks, capped = _last_minutes(inspection)
    active = engine.runs.active()
    return ServerState(
        counts=counts,
        running=len(active),
        queued=engine.runs.queued,
        abandoned=[run for run in active if run.abandoned],
        streams=engine.thread_budget.streams,
        size=inspection.size(),
        plots=_plots(tasks),
        made=len(tasks),
        capped=capped,
        runs=_runs(inspection),
        here={run.task_id: run for run in active},
        workers=read_workers(engine),
        deliveries=inspection.webhook_counts(),
        stopped=inspection.webhooks(stopped=True, size=_MAX_HOOKS),
        behind=inspection.webhooks(stopped=False, size=_MAX_HOOKS),
        ready=app.not_ready_reason(),
    )


def _last_minutes(inspection: Inspection) -> tuple[list[TaskSummary], bool]:
    query = SummaryQuery(since_ms=int(time.time() * 1000 - MINUTES * 60_000), size=500)
    found: list[TaskSummary] = []
    while len(found) < _MAX_COUNTED:
        page = inspection.tasks(query)
        found += page
        if len(page) < query.size:
            return found, False
        query = replace(query, before=page[-1].position)
    return found, True


def _plots(tasks: Sequence[TaskSummary]) -> list[Plot]:
    now = time.time() * 1000
    minutes: list[list[TaskSummary]] = [[] for _ in range(MINUTES)]
    for task in tasks:
        minute = MINUTES - 1 - int((now - task.created_ms) // 60_000)
        minutes[min(max(minute, 0), MINUTES - 1)].append(task)
    ended = [[(one.status_ms - one.created_ms) / 1000 for one in each if one.state.terminal] for each in minutes]
    return [
        Plot("Tasks a minute", "", [len(each) for each in minutes]),
        Plot("Failed", "", [sum(one.state in _FAILED for one in each) for each in minutes]),
        Plot("Median time to the end", "s", [round(median(each), 3) if each else None for each in ended]),
    ]


def _runs(inspection: Inspection) -> list[TaskSummary]:
    found = [
        task for state in _OPEN for task in inspection.tasks(SummaryQuery(state=state, size=_MAX_RUNS)) if task.running
    ]
    return sorted(found, key=lambda task: -task.position)[:_MAX_RUNS]


def read_workers(engine: Engine) -> list[Worker]:
    """The processes that share the store of `engine`; none where one process uses it."""
    membership, workers = engine.membership, engine.store.workers
    if membership is None or workers is None:
        return []
    found = []
    for one in require(engine.store.inspection, "inspection").workers():
        lease = None if one.age_s is None or one.left else membership.lease - one.age_s
        found.append(Worker(one.id, one.name, one.runs, one.id == workers.id, one.left, one.age_s, lease))
    return sorted(found, key=lambda worker: worker.id)


# -- one task -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why nothing happens in a task, the line of the agent at which it waits, and its stack, the innermost line last."""

    text: str
    line: str = ""
    stack: list[str] = field(default_factory=list)


def explain(app: A2AApp, owner: Owner, record: Record) -> Explanation | None:
    """Why nothing happens in a task of `owner`; None where something does, or where it waits for its client or has ended."""
    engine, task = app.service.engine, record.task
    run = next((one for one in engine.runs.active() if (one.owner, one.task_id) == (owner, task.id)), None)
    if run is not None:
        return _explain_local(engine, run)
    if not record.running:
        lost = "No process holds a run of this task: it was lost, and is taken over or failed soon."
        return None if task.state.paused else Explanation(lost)
    for worker in read_workers(engine):
        held = require(engine.store.workers, "workers").runs_of(worker.id)
        if any(one.owner == owner and one.token.task_id == task.id for one in held):
            app.service.start_work()
            return _explain_remote(engine, owner, task, worker, _silence(app.store, owner, record))
    return None


def _silence(store: TaskStore, owner: Owner, record: Record) -> float:
    """The seconds since the last entry of a task."""
    page = store.log(owner, record.task.id, after=record.version - 1, limit=1)
    return time.time() - page.entries[-1].at_ms / 1000 if page.entries else 0.0


def _explain_remote(engine: Engine, owner: Owner, task: Task, worker: Worker, silence: float) -> Explanation | None:
    if silence < _SILENT and worker.state == "busy":
        return None
    name = worker.name or worker.id
    found = None if worker.state == "lost" else _ask(engine, owner, task)
    if found is not None:
        return replace(found, text=f"In process {name}: {found.text}")
    beat = "" if worker.age is None else f" Its last heartbeat was {worker.age:.1f} s ago."
    return Explanation(
        f"The code runs in process {name} ({worker.state}) and has sent nothing for {silence:.0f} s.{beat}"
        " The process has not answered where the code stands."
    )


def _ask(engine: Engine, owner: Owner, task: Task) -> Explanation | None:
    """What the process that runs a task knows of it, by `answer`; None where it does not answer in time."""
    contexts, pubsub = engine.store.contexts, engine.hub.pubsub
    if contexts is None or pubsub is None:
        return None
    known = contexts.state(owner, task.context_id, STACK).version
    pubsub.publish(TaskBatch(owner, task.id))
    until = time.monotonic() + _ANSWER_TIMEOUT
    while time.monotonic() < until:
        time.sleep(_ANSWER_INTERVAL)
        values = json.loads(contexts.state(owner, task.context_id, STACK).body).get(task.id)
        if values is not None and values["version"] > known:
            return Explanation(values["text"], values["line"], values["stack"])
    return None


def answer(engine: Engine, run: Run) -> None:
    """Store why nothing happens in a run of this process, for an operator whose page another process makes.

    The tasks of a context share the value: it has the newest answers of several, each with the version with which it came.
    """
    contexts, task_id = engine.store.contexts, run.request.task_id
    active = next((one for one in engine.runs.active() if (one.owner, one.task_id) == (run.owner, task_id)), None)
    why = None if active is None else _explain_local(engine, active)
    if why is None or contexts is None or run.started is None:
        return
    for _ in range(_MAX_ANSWERS):
        known = contexts.state(run.owner, run.request.context_id, STACK)
        others = {name: values for name, values in json.loads(known.body).items() if name != task_id}
        newest = dict(list(others.items())[1 - _MAX_ANSWERS :])
        body = json.dumps({**newest, task_id: {"version": known.version + 1, **asdict(why)}}).encode()
        try:
            contexts.set_state(run.started.token, body, expected=known.version, name=STACK)
        except StateConflict:
            # Another task of the context has been asked about at the same time.
            continue
        except RunRevoked:
            # The task has ended.
            pass
        return


def _explain_local(engine: Engine, run: ActiveRun) -> Explanation | None:
    if run.running_s is None or run.silent_s is None:
        runs = engine.runs
        return Explanation(
            f"The run waits for a thread: {runs.running - runs.queued} runs are executed here, {runs.queued} wait."
        )
    if run.abandoned:
        text = f"The task has ended, and its code has not returned; it has run for {run.running_s:.0f} s."
    elif run.silent_s < _SILENT:
        return None
    else:
        text = f"The code has run for {run.running_s:.0f} s and has sent nothing for {run.silent_s:.0f} s."
    stack = stack_of(run.thread)
    own = [one for one in stack if not one.filename.startswith(_FOREIGN)]
    return Explanation(text, _line(own[-1]) if own else "", list(map(_line, stack)))


def _line(frame: traceback.FrameSummary) -> str:
    # As it is imported: below a folder of the path.
    roots = [root for root in sys.path if root and frame.filename.startswith(f"{root}{os.sep}")]
    name = frame.filename[len(max(roots, key=len)) + 1 :] if roots else frame.filename
    return f"{name}:{frame.lineno} in {frame.name}: {frame.line}"[:_MAX_LINE]


def stack_of(thread: int | None) -> list[traceback.FrameSummary]:
    """Where the code of a thread stands, the innermost frame last, without those of this library that called it.

    Empty where that is unknown, as under gevent: a handler is no thread there.
    """
    frame = sys._current_frames().get(thread or 0)
    frames = [] if frame is None else list(reversed(list(traceback.walk_stack(frame))))
    begin = next((n for n, (one, _) in enumerate(frames) if not one.f_code.co_filename.startswith(_FOREIGN)), 0)
    return list(traceback.StackSummary.extract(iter(frames[begin:][-_MAX_FRAMES:])))
