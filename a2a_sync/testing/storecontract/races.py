"""Concurrent writes and reads."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from a2a_sync.stores.base import RunRevoked, StartedRun, TaskBusy, TaskEnded
from a2a_sync.testing.storecontract.making import MINE, begin, chunk, concurrently, message, resume, status
from a2a_sync.types import Role, TaskState


class Races:
    """Part of `StoreContract`; see the module."""

    def test_of_concurrent_starts_of_a_run_one_succeeds(self, store: Any) -> None:
        task_id = begin(store).head.id
        store.interrupt(MINE, task_id, [])
        for _ in range(20):
            version = store.head(MINE, task_id).version
            results = concurrently(*[lambda: resume(store, task_id)] * 4)
            won = [result for result in results if isinstance(result, StartedRun)]
            assert len(won) == 1, results
            assert [type(result) for result in results if result is not won[0]] == [TaskBusy] * 3
            assert store.head(MINE, task_id).version == version + 2
            store.append(won[0].token, [], end=True)

    def test_a_concurrent_append_and_interrupt_never_mix(self, store: Any) -> None:
        for _ in range(30):
            run = begin(store)
            task_id = run.head.id
            completed = [chunk(task_id, "x"), status(task_id, TaskState.COMPLETED)]
            canceled = [status(task_id, TaskState.CANCELED)]
            appended, interrupted = concurrently(
                partial(store.append, run.token, completed), partial(store.interrupt, MINE, task_id, canceled)
            )
            head, page = store.head(MINE, task_id), store.log(MINE, task_id)
            if isinstance(appended, RunRevoked):
                assert (head.status.state, head.version) == (TaskState.CANCELED, 4)
                assert isinstance(interrupted, tuple)
            else:
                assert (head.status.state, head.version) == (TaskState.COMPLETED, 5)
                assert isinstance(interrupted, TaskEnded)
            assert [entry.number for entry in page.entries] == list(range(1, head.version + 1))
            assert not head.running

    def test_concurrent_writes_to_different_tasks_lose_nothing(self, store: Any) -> None:
        def write() -> str:
            run = begin(store)
            for n in range(200):
                (entry,) = store.append(run.token, [chunk(run.head.id, str(n), append=n > 0)])
                assert entry.number == 4 + n
            return run.head.id

        for task_id in concurrently(*[write] * 8):
            entries = store.log(MINE, task_id).entries
            assert [entry.number for entry in entries] == list(range(1, 204))
            assert [entry.event.artifact.text for entry in entries[3:]] == [str(n) for n in range(200)]

    def test_readers_see_whole_batches_only(self, store: Any) -> None:
        run = begin(store)
        task_id = run.head.id
        over = threading.Event()

        def write() -> None:
            for n in range(150):
                store.append(run.token, [chunk(task_id, "x", append=n > 0), message(task_id, str(n), role=Role.AGENT)])
            over.set()

        def read() -> int:
            reads = 0
            while not over.wait(0.0001) or not reads:
                stored = store.load(MINE, task_id)
                chunks = sum(len(artifact.parts) for artifact in stored.task.artifacts)
                assert stored.version == 3 + 2 * chunks == 2 + chunks + len(stored.task.history)
                page = store.log(MINE, task_id, limit=10_000)
                assert len(page.entries) == page.version
                reads += 1
            return reads

        results = concurrently(write, read, read)
        assert all(isinstance(result, int) and result > 0 for result in results[1:]), results
