"""Tasks, runs and events for tests of stores, and threads that call at the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import RunRequest, SendKey
from a2a_sync.stores.base import COMPACT_FROM, UNBOUNDED, Expiry, Owner, StartedRun, StoreQuota, TaskQuery, TaskStore
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    new_id,
)

MINE = Owner("acme", "ada")
FOREIGN = (Owner("acme", "bob"), Owner("other", "ada"), Owner())
NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
#: No wait in these tests is longer, in seconds.
PATIENCE = 30.0


def message(task_id: str, text: str = "hello", *, context_id: str = "c", role: Role = Role.USER) -> Message:
    return Message(role=role, parts=(TextPart(text),), task_id=task_id, context_id=context_id)


def status(
    task_id: str,
    state: TaskState,
    *,
    context_id: str = "c",
    at: datetime | None = NOON,
    metadata: dict[str, Any] | None = None,
    text: str = "",
) -> TaskStatusUpdateEvent:
    told = message(task_id, text, context_id=context_id, role=Role.AGENT) if text else None
    return TaskStatusUpdateEvent(
        task_id=task_id,
        context_id=context_id,
        status=TaskStatus(state=state, message=told, timestamp=at),
        metadata=metadata or {},
    )


def chunk(task_id: str, text: str, *, artifact_id: str = "a", append: bool = False) -> TaskArtifactUpdateEvent:
    artifact = Artifact(parts=(TextPart(text),), artifact_id=artifact_id)
    return TaskArtifactUpdateEvent(task_id=task_id, context_id="c", artifact=artifact, append=append)


def begin(
    store: TaskStore,
    *,
    scope: Owner = MINE,
    task_id: str = "",
    context_id: str = "c",
    at: datetime | None = NOON,
    text: str = "hello",
    quota: StoreQuota = UNBOUNDED,
) -> StartedRun:
    """A new task with its first run."""
    task_id = task_id or new_id()
    told = message(task_id, text, context_id=context_id)
    events: list[LogEvent] = [
        told,
        status(task_id, TaskState.SUBMITTED, context_id=context_id, at=at),
        status(task_id, TaskState.WORKING, context_id=context_id, at=at),
    ]
    return store.start_run(scope, RunRequest(message=told, tenant=scope.tenant), events, create=True, quota=quota)


def resume(
    store: TaskStore, task_id: str, *, scope: Owner = MINE, text: str = "again", quota: StoreQuota = UNBOUNDED
) -> StartedRun:
    """The next run of a task."""
    told = message(task_id, text)
    events: list[LogEvent] = [told, status(task_id, TaskState.WORKING)]
    return store.start_run(scope, RunRequest(message=told), events, create=False, quota=quota)


def send(
    store: TaskStore, key: str, fingerprint: str = "print", *, scope: Owner = MINE, task_id: str = ""
) -> StartedRun:
    """A run that came with a key: of a new task, or the next one of `task_id`."""
    told = message(task_id or new_id())
    events: list[LogEvent] = [told, status(told.task_id, TaskState.SUBMITTED), status(told.task_id, TaskState.WORKING)]
    request = RunRequest(message=told, tenant=scope.tenant, key=SendKey(key, fingerprint))
    return store.start_run(scope, request, events[:: 2 if task_id else 1], create=not task_id)


def done(
    store: TaskStore, *, scope: Owner = MINE, context_id: str = "c", at: datetime | None = NOON, task_id: str = ""
) -> str:
    """A completed task; its id."""
    run = begin(store, scope=scope, context_id=context_id, at=at, task_id=task_id)
    ended = status(run.head.id, TaskState.COMPLETED, context_id=context_id, at=at)
    store.append(run.token, [ended], end=True)
    return run.head.id


def ids(store: TaskStore, query: TaskQuery, scope: Owner = MINE) -> list[str]:
    return [task.id for task in store.list(scope, query).tasks]


def pages(store: TaskStore, size: int, **filters: Any) -> list[list[str]]:
    found, after = [], None
    while True:
        page = store.list(MINE, TaskQuery(size=size, after=after, **filters))
        found.append([task.id for task in page.tasks])
        if page.next is None:
            return found
        after = page.next


def flat(found: list[list[str]]) -> list[str]:
    return [task_id for page in found for task_id in page]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return or raise when threads make them at the same moment."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        barrier.wait(PATIENCE)
        try:
            results[index] = call()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return results


def soon() -> int:
    """A moment, in milliseconds, that is later than all that was stored so far and not later than what follows."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now:
        pass
    return now + 1


def ever(**classes: bool) -> Expiry:
    """All of these classes has expired, however new it is."""
    return Expiry(**{name: soon() + 3_600_000 for name in classes})


def waiting(store: TaskStore) -> str:
    """A task that waits for its client."""
    run = begin(store)
    store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])
    return run.head.id


def long(store: TaskStore, chunks: int = COMPACT_FROM, *, end: TaskState = TaskState.COMPLETED) -> str:
    """A task whose log is worth compacting: a question, many chunks of two artifacts, an answer."""
    run = begin(store)
    task_id = run.head.id
    for n in range(chunks):
        store.append(run.token, [chunk(task_id, f"{n} ", artifact_id="ab"[n % 2], append=n > 1)])
    answer = message(task_id, "done", role=Role.AGENT)
    store.append(run.token, [answer, status(task_id, end, metadata={"n": chunks})], end=True)
    return task_id
