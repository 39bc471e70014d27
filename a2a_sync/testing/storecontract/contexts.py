"""What the tasks of a context share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from a2a_sync.stores.base import Owner, RunRevoked, RunToken, TaskQuery, TaskStore
from a2a_sync.stores.contexts import StateConflict, StoredState
from a2a_sync.testing.storecontract.making import FOREIGN, MINE, begin, done, ever, ids, resume, status, together
from a2a_sync.types import TaskState

NOTHING = StoredState(b"{}", 0)


def keep(store: TaskStore, body: bytes = b'{"n":1}', *, scope: Owner = MINE, context_id: str = "c") -> str:
    """A completed task whose run has set the state of its context; its id."""
    run = begin(store, scope=scope, context_id=context_id)
    store.contexts.set_state(run.token, body, expected=store.contexts.state(scope, context_id).version)
    store.append(run.token, [status(run.head.id, TaskState.COMPLETED, context_id=context_id)])
    return run.head.id


def count_up(store: TaskStore, token: RunToken, times: int) -> None:
    """Add one to the state, so many times, whoever else does."""
    current = store.contexts.state(MINE, "c")
    for _ in range(times):
        while True:
            try:
                store.contexts.set_state(token, b"%d" % (int(current.body) + 1), expected=current.version)
            except StateConflict as conflict:
                current = conflict.current
            else:
                break
        current = store.contexts.state(MINE, "c")


class Contexts:
    """See the module; a part of `StoreContract`."""

    def test_a_state_that_was_never_set_is_empty(self, store: Any) -> None:
        begin(store)
        assert store.contexts.state(MINE, "c") == NOTHING
        assert store.contexts.state(MINE, "unknown") == NOTHING

    def test_a_state_is_kept_for_all_tasks_of_the_context(self, store: Any) -> None:
        keep(store, b'{"size":"large"}')
        assert store.contexts.state(MINE, "c") == StoredState(b'{"size":"large"}', 1)
        keep(store, b'{"size":"small"}')
        assert store.contexts.state(MINE, "c") == StoredState(b'{"size":"small"}', 2)

    def test_contexts_have_states_of_their_own(self, store: Any) -> None:
        keep(store, b"1", context_id="c")
        keep(store, b"2", context_id="d")
        assert store.contexts.state(MINE, "c").body == b"1"
        assert store.contexts.state(MINE, "d").body == b"2"

    @pytest.mark.parametrize("scope", FOREIGN)
    def test_the_context_of_the_same_id_in_another_scope_is_another_one(self, store: Any, scope: Owner) -> None:
        keep(store, b"mine")
        assert store.contexts.state(scope, "c") == NOTHING
        keep(store, b"theirs", scope=scope)
        assert store.contexts.state(MINE, "c") == StoredState(b"mine", 1)
        assert store.contexts.state(scope, "c") == StoredState(b"theirs", 1)

    def test_who_expects_another_version_is_told_what_the_state_is(self, store: Any) -> None:
        run = begin(store)
        keep(store, b"first")
        for wrong in (0, 2):
            with pytest.raises(StateConflict) as caught:
                store.contexts.set_state(run.token, b"second", expected=wrong)
            assert caught.value.current == StoredState(b"first", 1)
        store.contexts.set_state(run.token, b"second", expected=1)
        assert store.contexts.state(MINE, "c") == StoredState(b"second", 2)

    def test_of_many_that_set_one_version_at_once_one_does(self, store: Any) -> None:
        runs = [begin(store) for _ in range(8)]
        set_state = store.contexts.set_state
        results = together(*[partial(set_state, run.token, run.head.id.encode(), expected=0) for run in runs])
        assert [type(result) for result in results if result is not None] == [StateConflict] * 7
        winner = runs[results.index(None)]
        assert store.contexts.state(MINE, "c") == StoredState(winner.head.id.encode(), 1)

    def test_threads_that_count_in_one_state_lose_no_step(self, store: Any) -> None:
        runs = [begin(store) for _ in range(4)]
        store.contexts.set_state(runs[0].token, b"0", expected=0)
        results = together(*[partial(count_up, store, run.token, 25) for run in runs])
        assert results == [None] * 4
        assert store.contexts.state(MINE, "c") == StoredState(b"100", 101)

    def test_a_run_that_is_over_sets_nothing(self, store: Any) -> None:
        over, interrupted, deleted = begin(store), begin(store), begin(store)
        store.append(over.token, [], end=True)
        resume(store, over.head.id)
        store.interrupt(MINE, interrupted.head.id, [status(interrupted.head.id, TaskState.CANCELED)])
        store.delete(MINE, deleted.head.id)
        for run in (over, interrupted, deleted):
            with pytest.raises(RunRevoked):
                store.contexts.set_state(run.token, b"late", expected=0)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_a_state_goes_with_the_last_task_of_its_context(self, store: Any) -> None:
        first, second = keep(store, b"1"), keep(store, b"2")
        store.delete(MINE, first)
        assert store.contexts.state(MINE, "c") == StoredState(b"2", 2)
        store.delete(MINE, second)
        assert store.contexts.state(MINE, "c") == NOTHING
        done(store)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_the_tasks_of_other_scopes_and_contexts_keep_no_state_alive(self, store: Any) -> None:
        task_id = keep(store)
        done(store, context_id="d")
        done(store, scope=FOREIGN[0])
        store.delete(MINE, task_id)
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_retention_removes_a_state_with_the_last_task(self, store: Any) -> None:
        keep(store)
        waits = begin(store)
        store.append(waits.token, [status(waits.head.id, TaskState.INPUT_REQUIRED)])
        assert store.sweep(ever(ended=True)).removed == 1
        assert store.contexts.state(MINE, "c").version == 1
        assert store.sweep(ever(waiting=True)).removed == 1
        assert store.contexts.state(MINE, "c") == NOTHING

    def test_a_state_goes_when_its_task_makes_room_for_another(self, make_store: Callable[..., Any]) -> None:
        store = make_store(max_tasks=2)
        keep(store, context_id="old")
        for context_id in ("new", "newer"):
            keep(store, context_id=context_id)
        assert store.contexts.state(MINE, "old") == NOTHING
        assert store.contexts.state(MINE, "newer").version == 1

    def test_the_tasks_of_a_context_are_listed_however_many_come_and_go(self, store: Any) -> None:
        first = [done(store) for _ in range(3)]
        done(store, context_id="d")
        for task_id in first:
            assert task_id in ids(store, TaskQuery(context_id="c"))
            store.delete(MINE, task_id)
            assert task_id not in ids(store, TaskQuery(context_id="c"))
        assert ids(store, TaskQuery(context_id="c")) == []
        assert ids(store, TaskQuery(context_id="c"), FOREIGN[0]) == []
        again = done(store)
        assert ids(store, TaskQuery(context_id="c")) == [again]
