"""Both stores against one plain model: after any sequence of calls, all three give the same answers."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.lifecycle import Fold, LogEvent, ends_run
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import (
    COMPACT_FROM,
    Expiry,
    Owner,
    RunRevoked,
    RunToken,
    StartedRun,
    TaskBusy,
    TaskEnded,
    TaskExists,
    TaskQuery,
    time_ms,
)
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_REFUSALS = (RunRevoked, TaskBusy, TaskEnded, TaskExists, TaskNotFoundError)

owners = st.sampled_from([Owner(), Owner("", "a"), Owner("a", ""), Owner("a", "b")])
task_ids = st.sampled_from(["t1", "t2", "t3", "t4"])
context_ids = st.sampled_from(["c1", "c2"])
times = st.none() | st.integers(0, 4).map(lambda n: _EPOCH + timedelta(milliseconds=n))
texts = st.text(max_size=5)
metadata = st.dictionaries(st.sampled_from("ab"), st.none() | st.integers() | texts, max_size=2)
messages = st.builds(
    Message,
    role=st.sampled_from([Role.USER, Role.AGENT]),
    parts=st.tuples(st.builds(TextPart, texts)),
    message_id=texts,
)


def statuses_in(states):
    return st.builds(
        TaskStatusUpdateEvent,
        status=st.builds(TaskStatus, state=st.sampled_from(states), message=st.none() | messages, timestamp=times),
        metadata=metadata,
    )


known_states = [state for state in TaskState if state is not TaskState.UNSPECIFIED]
statuses = statuses_in(known_states)
#: Made without a filter: one that refuses half of the states fails at every eighth draw, and ends the whole sequence.
open_statuses = statuses_in([state for state in known_states if not state.terminal])
chunks = st.builds(
    TaskArtifactUpdateEvent,
    artifact=st.builds(
        Artifact,
        parts=st.lists(st.builds(TextPart, texts), min_size=1, max_size=2).map(tuple),
        artifact_id=st.sampled_from(["x", "y"]),
        name=texts,
        metadata=metadata,
    ),
    append=st.booleans(),
    last_chunk=st.booleans(),
)
batches = st.lists(messages | open_statuses | chunks | chunks, max_size=4)
#: A terminal status, when there is one, comes last: execution stores nothing after it.
endings = st.builds(lambda events, last: [*events, *last], batches, st.lists(statuses, max_size=1))


@dataclass
class ModelTask:
    owner: Owner
    context_id: str
    events: list[LogEvent] = field(default_factory=list)
    run: int | None = None
    compacted: int = 0

    def log(self, after: int, limit: int) -> list[tuple[int, LogEvent]]:
        left = [
            (number, event)
            for number, event in enumerate(self.events, 1)
            if number > self.compacted or isinstance(event, Message)
        ]
        return [item for item in left if item[0] > after][:limit]

    def task(self, task_id: str) -> Task:
        fold = Fold(Task(id=task_id, context_id=self.context_id, status=TaskStatus(state=TaskState.UNSPECIFIED)))
        for event in self.events:
            fold.apply(event)
        task = fold.task()
        assert task is not None
        return task


class Model:
    """The rules of `TaskStore`, in the fewest words."""

    def __init__(self) -> None:
        self.tasks: dict[str, ModelTask] = {}
        self.runs = 0

    def find(self, owner: Owner, task_id: str) -> ModelTask:
        task = self.tasks.get(task_id)
        if task is None or task.owner != owner:
            raise TaskNotFoundError
        return task

    def start(self, owner: Owner, task_id: str, context_id: str, events: list[LogEvent], create: bool) -> int:
        if create:
            if task_id in self.tasks:
                raise TaskExists
            self.tasks[task_id] = ModelTask(owner, context_id)
        task = self.find(owner, task_id)
        self.refuse_ended(task, task_id)
        if task.run is not None:
            raise TaskBusy
        self.runs += 1
        task.run = self.runs
        self.write(task, events, False)
        return self.runs

    def append(self, task_id: str, run: int, events: list[LogEvent], end: bool) -> None:
        task = self.tasks.get(task_id)
        if task is None or task.run != run:
            raise RunRevoked
        self.write(task, events, end)

    def interrupt(self, owner: Owner, task_id: str, events: list[LogEvent]) -> None:
        task = self.find(owner, task_id)
        self.refuse_ended(task, task_id)
        self.write(task, events, True)

    def sweep(self, ended: bool, waiting: bool, replay: bool) -> tuple[int, int]:
        resting = [(task_id, task) for task_id, task in self.tasks.items() if task.run is None]
        old = [name for name, task in resting if (ended if task.task(name).state.terminal else waiting)]
        long = [task for name, task in resting if name not in old and len(task.events) - task.compacted >= COMPACT_FROM]
        for task_id in old:
            del self.tasks[task_id]
        for task in long if replay else ():
            task.compacted = len(task.events)
        return len(old), len(long) if replay else 0

    def write(self, task: ModelTask, events: list[LogEvent], end: bool) -> None:
        task.events += events
        if end or any(ends_run(event) for event in events):
            task.run = None

    def refuse_ended(self, task: ModelTask, task_id: str) -> None:
        if task.task(task_id).state.terminal:
            raise TaskEnded


def outcome(call: Any) -> Any:
    """What a call returns, or the class of its refusal."""
    try:
        return call()
    except _REFUSALS as refusal:
        return type(refusal)


class StoresAndModel(RuleBasedStateMachine):
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [MemoryStore(), SQLiteStore(Path(self.folder.name) / "tasks.db")]
        self.model = Model()

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    @rule(target=runs, owner=owners, task_id=task_ids, context_id=context_ids, events=endings, create=st.booleans())
    def start(self, owner, task_id, context_id, events, create):
        return multiple(*self._start(owner, task_id, context_id, events, create))

    def _start(self, owner, task_id, context_id, events, create):
        if not create and task_id in self.model.tasks:
            # The server refuses a message with the context of another task, and stores may leave out the task's own.
            context_id = self.model.tasks[task_id].context_id
        sent = Message(role=Role.USER, parts=(TextPart("hi"),), message_id="m", task_id=task_id, context_id=context_id)
        events = [sent, *events]
        expected = outcome(lambda: self.model.start(owner, task_id, context_id, events, create))
        tokens = []
        for store in self.stores:
            result = outcome(lambda: store.start_run(owner, RunRequest(message=sent), events, create=create))  # noqa: B023
            if isinstance(result, StartedRun):
                assert isinstance(expected, int)
                assert [entry.event for entry in result.entries] == events
                assert result.head == store.head(owner, task_id)
                tokens.append(result.token)
            else:
                assert result is expected
        return [(task_id, expected, tokens)] if tokens else []

    @rule(run=runs, events=endings, end=st.booleans())
    def append(self, run, events, end):
        task_id, number, tokens = run
        expected = outcome(lambda: self.model.append(task_id, number, events, end))
        for store, token in zip(self.stores, tokens, strict=True):
            result = outcome(lambda: store.append(token, events, end=end))  # noqa: B023
            assert ([entry.event for entry in result] == events) if expected is None else result is expected

    @rule(run=runs, event=chunks, end=st.booleans())
    def append_many(self, run, event, end):
        self.append(run, [event, *[replace(event, append=True)] * COMPACT_FROM], end)

    @rule(owner=owners, task_id=task_ids, event=chunks, last=statuses)
    def long_run(self, owner, task_id, event, last):
        for run in self._start(owner, task_id, "c1", [event], task_id not in self.model.tasks):
            self.append(run, [*[replace(event, append=True)] * COMPACT_FROM, last], True)

    @precondition(lambda self: self.model.tasks)
    @rule(ended=st.booleans(), waiting=st.booleans(), replay=st.booleans())
    def sweep(self, ended, waiting, replay):
        expected = self.model.sweep(ended, waiting, replay)
        never, late = None, 1 << 50
        expiry = Expiry(
            ended=late if ended else never, waiting=late if waiting else never, replay=late if replay else never
        )
        for store in self.stores:
            swept = store.sweep(expiry)
            assert (swept.removed, swept.compacted) == expected
            for task_id, known in self.model.tasks.items():
                if known.compacted:
                    assert store.load(known.owner, task_id).task == known.task(task_id)

    @rule(run=consumes(runs), events=batches)
    def append_with_a_token_of_another_task(self, run, events):
        task_id, _, tokens = run
        for store, token in zip(self.stores, tokens, strict=True):
            assert outcome(lambda: store.append(RunToken(f"{task_id}0", token.value), events)) is RunRevoked  # noqa: B023

    @rule(owner=owners, task_id=task_ids, events=endings)
    def interrupt(self, owner, task_id, events):
        expected = outcome(lambda: self.model.interrupt(owner, task_id, events))
        for store in self.stores:
            result = outcome(lambda: store.interrupt(owner, task_id, events))  # noqa: B023
            assert ([entry.event for entry in result] == events) if expected is None else result is expected

    @rule(owner=owners, task_id=task_ids)
    def delete(self, owner, task_id):
        expected = outcome(lambda: self.model.find(owner, task_id) and self.model.tasks.pop(task_id))
        for store in self.stores:
            result = outcome(lambda: store.delete(owner, task_id))  # noqa: B023
            assert result is (expected if isinstance(expected, type) else None)

    @rule(
        owner=owners,
        task_id=task_ids,
        history=st.none() | st.integers(0, 5),
        artifacts=st.booleans(),
        after=st.integers(0, 12),
        limit=st.integers(1, 5),
    )
    def read(self, owner, task_id, history, artifacts, after, limit):
        known = outcome(lambda: self.model.find(owner, task_id))
        for store in self.stores:
            stored = outcome(lambda: store.load(owner, task_id, history=history, artifacts=artifacts))  # noqa: B023
            page = outcome(lambda: store.log(owner, task_id, after=after, limit=limit))  # noqa: B023
            if isinstance(known, type):
                assert stored is page is known
                continue
            task = _cut(known.task(task_id), history, artifacts)
            standing = (len(known.events), known.run is not None)
            assert stored.task == task
            assert (stored.version, stored.running) == standing
            assert (page.version, page.running, page.state) == (*standing, task.state)
            assert [(entry.number, entry.event) for entry in page.entries] == known.log(after, limit)
            assert page.compacted == known.compacted

    @rule(
        owner=owners,
        context_id=st.just("") | context_ids,
        state=st.none() | st.sampled_from(list(TaskState)),
        since=times,
        size=st.integers(1, 3),
        history=st.none() | st.integers(0, 2),
        artifacts=st.booleans(),
    )
    def list(self, owner, context_id, state, since, size, history, artifacts):
        expected = sorted(
            (
                _cut(known.task(task_id), history, artifacts)
                for task_id, known in self.model.tasks.items()
                if known.owner == owner and context_id in ("", known.context_id)
            ),
            key=lambda task: (time_ms(task.status.timestamp), task.id),
            reverse=True,
        )
        since_ms = None if since is None else time_ms(since)
        expected = [task for task in expected if state in (None, task.state)]
        expected = [task for task in expected if since_ms is None or time_ms(task.status.timestamp) >= since_ms]
        for store in self.stores:
            found, after = [], None
            for _ in range(len(expected) // size + 1):
                query = TaskQuery(
                    context_id=context_id,
                    state=state,
                    since_ms=since_ms,
                    after=after,
                    size=size,
                    history=history,
                    artifacts=artifacts,
                )
                page = store.list(owner, query)
                assert page.total == len(expected)
                found += page.tasks
                after = page.next
                if after is None:
                    break
            assert after is None
            assert found == expected

    @invariant()
    def heads_agree(self):
        for task_id, known in self.model.tasks.items():
            memory, sqlite = (store.head(known.owner, task_id) for store in self.stores)
            assert memory == sqlite
            assert memory.version == len(known.events)
            assert memory.running == (known.run is not None)


def _cut(task: Task, history: int | None, artifacts: bool) -> Task:
    kept = task.history if history is None else task.history[len(task.history) - min(history, len(task.history)) :]
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=task.status,
        history=kept,
        artifacts=task.artifacts if artifacts else (),
        metadata=task.metadata,
    )


TestStoresAndModel = StoresAndModel.TestCase
TestStoresAndModel.settings = settings(
    max_examples=settings.default.max_examples,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
