"""Reads of large tasks that are no responses, for runs and webhooks: one at a time in a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from a2a_sync.concurrency.keyedlocks import KeyedLocks
from a2a_sync.operations import quota_owner
from a2a_sync.stores.base import SMALL_BYTES, LargeResult, Owner, StoredTask, TaskPage, TaskQuery, TaskStore

#: The key of the lock for the turn of the whole process.
_PROCESS = None
#: Seconds after which a read no longer waits for its turn.
_MAX_WAIT = 120.0


class LargeReads:
    """Has large tasks of `store` read in turns. Thread-safe.

    Tasks become Python objects with up to twenty times as many bytes, and each read keeps the interpreter for long. Those of
    one owner wait for each other first, so that every other owner waits for one of them at most.
    """

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._locks = KeyedLocks()

    @contextmanager
    def turn(self, owner: Owner) -> Iterator[None]:
        """Wait for the turn to read a large task of `owner`, each of two locks for 120 seconds at most. Not on a thread of the server."""
        end = self._locks.acquire(quota_owner(owner.id), _MAX_WAIT)
        try:
            end_in_process = self._locks.acquire(_PROCESS, _MAX_WAIT)
            try:
                yield
            finally:
                end_in_process()
        finally:
            end()

    def load(self, owner: Owner, task_id: str, *, history: int | None = None) -> StoredTask:
        """As `TaskStore.load`, in a turn where the task is large."""
        try:
            return self._store.load(owner, task_id, history=history, refuse_above=SMALL_BYTES)
        except LargeResult:
            with self.turn(owner):
                return self._store.load(owner, task_id, history=history)

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        """As `TaskStore.list`, in a turn where the page is large."""
        try:
            return self._store.list(owner, replace(query, refuse_above=SMALL_BYTES))
        except LargeResult:
            with self.turn(owner):
                return self._store.list(owner, query)
