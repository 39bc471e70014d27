"""Tasks, runs and events for tests of stores, and concurrent calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

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

#: Makes a store, with its arguments; the same data each time.
MakeStore: TypeAlias = Callable[..., Any]
MINE = Owner("acme", "ada")
FOREIGN = (Owner("acme", "bob"), Owner("other", "ada"), Owner())
NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
#: The longest wait in these tests, in seconds.
TIMEOUT = 30.0


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
    reply = message(task_id, text, context_id=context_id, role=Role.AGENT) if text else None
    return TaskStatusUpdateEvent(
        task_id=task_id,
        context_id=context_id,
        status=TaskStatus(state=state, message=reply, timestamp=at),
        metadata=metadata or {},
    )


def chunk(task_id: str, text: str, *, artifact_id: str = "a", append: bool = False) -> TaskArtifactUpdateEvent:
    artifact = Artifact(parts=(TextPart(text),), artifact_id=artifact_id)
    return TaskArtifactUpdateEvent(task_id=task_id, context_id="c", artifact=artifact, append=append)


def begin(
    store: TaskStore,
    *,
    owner: Owner = MINE,
    task_id: str = "",
    context_id: str = "c",
    at: datetime | None = NOON,
    text: str = "hello",
    quota: StoreQuota = UNBOUNDED,
) -> StartedRun:
    """Create a task and start its first run."""
    task_id = task_id or new_id()
    user_message = message(task_id, text, context_id=context_id)
    events: list[LogEvent] = [
        user_message,
        status(task_id, TaskState.SUBMITTED, context_id=context_id, at=at),
        status(task_id, TaskState.WORKING, context_id=context_id, at=at),
    ]
    return store.start_run(
        owner, RunRequest(message=user_message, tenant=owner.tenant), events, create=True, quota=quota
    )


def resume(
    store: TaskStore,
    task_id: str,
    *,
    owner: Owner = MINE,
    text: str = "again",
    after: int | None = None,
    quota: StoreQuota = UNBOUNDED,
) -> StartedRun:
    """Start the next run of a task."""
    user_message = message(task_id, text)
    events: list[LogEvent] = [user_message, status(task_id, TaskState.WORKING)]
    return store.start_run(owner, RunRequest(message=user_message), events, create=False, after=after, quota=quota)


def send(
    store: TaskStore, key: str, fingerprint: str = "print", *, owner: Owner = MINE, task_id: str = ""
) -> StartedRun:
    """Start a run with an idempotency key: of a new task, or the next one of `task_id`."""
    user_message = message(task_id or new_id())
    events: list[LogEvent] = [
        user_message,
        status(user_message.task_id, TaskState.SUBMITTED),
        status(user_message.task_id, TaskState.WORKING),
    ]
    request = RunRequest(message=user_message, tenant=owner.tenant, key=SendKey(key, fingerprint))
    return store.start_run(owner, request, events[:: 2 if task_id else 1], create=not task_id)


def done(
    store: TaskStore, *, owner: Owner = MINE, context_id: str = "c", at: datetime | None = NOON, task_id: str = ""
) -> str:
    """Create a completed task; returns its id."""
    run = begin(store, owner=owner, context_id=context_id, at=at, task_id=task_id)
    ended = status(run.head.id, TaskState.COMPLETED, context_id=context_id, at=at)
    store.append(run.token, [ended], end=True)
    return run.head.id


def ids(store: TaskStore, query: TaskQuery, owner: Owner = MINE) -> list[str]:
    return [task.id for task in store.list(owner, query).tasks]


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


def concurrently(*calls: Callable[[], Any]) -> list[Any]:
    """Make the calls concurrently, each on a thread; returns their results, with exceptions as values."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        barrier.wait(TIMEOUT)
        try:
            results[index] = call()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    return results


def next_ms() -> int:
    """The next millisecond since 1970: after all earlier writes to the store, and not after any later one."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now:
        pass
    return now + 1


def expire_all(**classes: bool) -> Expiry:
    """An `Expiry` an hour ahead, by which all tasks and logs of these classes have expired."""
    return Expiry(**{name: next_ms() + 3_600_000 for name in classes})


def waiting(store: TaskStore, *, owner: Owner = MINE, at: datetime | None = NOON) -> str:
    """Create a task that waits for its client; returns its id."""
    run = begin(store, owner=owner, at=at)
    store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED, at=at)], end=True)
    return run.head.id


def long(store: TaskStore, chunks: int = COMPACT_FROM, *, end: TaskState = TaskState.COMPLETED) -> str:
    """Create a task whose log is long enough to be compacted: a question, many chunks of two artifacts, an answer."""
    run = begin(store)
    task_id = run.head.id
    for n in range(chunks):
        store.append(run.token, [chunk(task_id, f"{n} ", artifact_id="ab"[n % 2], append=n > 1)])
    answer = message(task_id, "done", role=Role.AGENT)
    store.append(run.token, [answer, status(task_id, end, metadata={"n": chunks})], end=True)
    return task_id
