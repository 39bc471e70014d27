"""Runs: which token may write, start, end and interruption, and sends with idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import Principal, RunRequest
from a2a_sync.stores.base import (
    AlreadySent,
    Owner,
    RunRevoked,
    RunToken,
    SentRun,
    StartedRun,
    TaskBusy,
    TaskEnded,
    TaskExists,
    TaskQuery,
)
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    NOON,
    MakeStore,
    begin,
    chunk,
    concurrently,
    done,
    message,
    resume,
    send,
    status,
    waiting,
)
from a2a_sync.types import Role, SendMessageConfiguration, TaskState, TaskStatus

#: A request with all members.
REQUEST = RunRequest(
    message=message("t", "hi"),
    configuration=SendMessageConfiguration(accepted_output_modes=("text/plain",), history_length=3),
    metadata={"a": [1, None]},
    principal=Principal(id="ada", scopes=("read", "write"), claims={"sub": "ada", "n": 1}),
    tenant="acme",
    extensions={"https://example.com/x": {"a": [1, None]}},
    trace={"traceparent": "00-1-2-01"},
    headers={"accept-language": "de"},
)


class Runs:
    """Part of `StoreContract`; see the module."""

    # -- runs -----------------------------------------------------------------------------------------------------------

    def test_a_started_run_has_its_head_and_the_entries_it_stored(self, store: Any) -> None:
        run = begin(store, task_id="t", text="hi")
        assert run.token.task_id == run.head.id == "t"
        assert run.head == store.head(MINE, "t")
        assert (run.head.context_id, run.head.version, run.head.running) == ("c", 3, True)
        assert run.head.status == TaskStatus(state=TaskState.WORKING, timestamp=NOON)
        assert run.entries == store.log(MINE, "t").entries
        assert run.before is TaskState.UNSPECIFIED
        assert [entry.streamed for entry in run.entries] == [False, True, True]

    def test_a_run_may_end_in_the_step_that_starts_it(self, store: Any) -> None:
        sent = message("t")
        states = [status("t", state) for state in (TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED)]
        events = [sent, *states[:2], chunk("t", "x"), message("t", "x", role=Role.AGENT), states[2]]
        run = store.start_run(MINE, replace(REQUEST, message=sent), events, create=True)
        assert run.head == store.head(MINE, "t")
        assert (run.head.status.state, run.head.version, run.head.running) == (TaskState.COMPLETED, 6, False)
        assert run.entries == store.log(MINE, "t").entries
        assert store.request(MINE, "t") is None
        assert store.load(MINE, "t").task.artifacts == (chunk("t", "x").artifact,)
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk("t", "y")])
        with pytest.raises(TaskEnded):
            resume(store, "t")

    def test_a_run_that_asks_in_the_step_that_starts_it_is_continued(self, store: Any) -> None:
        sent = message("t")
        events = [sent, status("t", TaskState.WORKING), status("t", TaskState.INPUT_REQUIRED)]
        store.start_run(MINE, replace(REQUEST, message=sent), events, create=True)
        assert resume(store, "t", after=3).before is TaskState.INPUT_REQUIRED
        assert store.request(MINE, "t").request.message.text == "again"

    def test_a_task_is_created_once(self, store: Any) -> None:
        begin(store, task_id="t")
        for owner in (MINE, FOREIGN[0]):
            with pytest.raises(TaskExists):
                begin(store, task_id="t", owner=owner)
        assert store.head(MINE, "t").version == 3
        assert store.list(FOREIGN[0], TaskQuery()).total == 0

    def test_a_second_run_is_refused_during_the_first(self, store: Any) -> None:
        run = begin(store)
        with pytest.raises(TaskBusy):
            resume(store, run.head.id)
        assert store.head(MINE, run.head.id) == run.head

    def test_a_run_is_refused_that_does_not_continue_the_newest_entry(self, store: Any) -> None:
        run = begin(store)
        read = store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])[-1].number
        second = resume(store, run.head.id, after=read)
        store.append(second.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])
        before = store.head(MINE, run.head.id)
        with pytest.raises(TaskBusy):
            resume(store, run.head.id, after=read)
        assert store.head(MINE, run.head.id) == before
        assert resume(store, run.head.id, after=before.version).head.running

    def test_ending_a_run_frees_its_task_for_the_next(self, store: Any) -> None:
        run = begin(store)
        store.append(run.token, [], end=True)
        assert not store.head(MINE, run.head.id).running
        again = resume(store, run.head.id)
        assert again.head.running
        assert again.before is run.head.status.state
        assert again.token != run.token
        assert [entry.number for entry in again.entries] == [4, 5]

    def test_a_token_is_revoked_once_its_run_has_ended(self, store: Any) -> None:
        run = begin(store)
        store.append(run.token, [], end=True)
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "late")])
        resume(store, run.head.id)
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "later")])
        assert store.head(MINE, run.head.id).version == 5

    def test_an_unknown_token_is_refused(self, store: Any) -> None:
        run = begin(store)
        for token in (RunToken(run.head.id, "made up"), RunToken(run.head.id, ""), RunToken("unknown", "x")):
            with pytest.raises(RunRevoked):
                store.append(token, [chunk(token.task_id, "x")])
        assert store.head(MINE, run.head.id).version == 3

    @pytest.mark.parametrize(
        "state", [state for state in TaskState if state.terminal or state is TaskState.INPUT_REQUIRED]
    )
    def test_an_event_that_ends_its_run_frees_the_token_by_itself(self, store: Any, state: TaskState) -> None:
        run = begin(store)
        store.append(run.token, [status(run.head.id, state)])
        assert not store.head(MINE, run.head.id).running
        with pytest.raises(RunRevoked):
            store.append(run.token, [])

    def test_an_emitted_auth_required_status_does_not_end_the_run(self, store: Any) -> None:
        run = begin(store)
        store.append(run.token, [status(run.head.id, TaskState.AUTH_REQUIRED)])
        assert store.head(MINE, run.head.id).running
        store.append(run.token, [status(run.head.id, TaskState.WORKING)])

    @pytest.mark.parametrize("state", [state for state in TaskState if state.terminal])
    def test_nothing_follows_a_terminal_state(self, store: Any, state: TaskState) -> None:
        run = begin(store)
        store.append(run.token, [status(run.head.id, state)], end=True)
        with pytest.raises(TaskEnded):
            resume(store, run.head.id)
        with pytest.raises(TaskEnded):
            store.interrupt(MINE, run.head.id, [status(run.head.id, TaskState.CANCELED)])
        assert store.head(MINE, run.head.id).version == 4

    def test_an_interrupt_revokes_the_token(self, store: Any) -> None:
        run = begin(store)
        entries = store.interrupt(MINE, run.head.id, [status(run.head.id, TaskState.CANCELED)])
        assert [entry.number for entry in entries] == [4]
        assert store.head(MINE, run.head.id).status.state is TaskState.CANCELED
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "late")], end=True)
        assert store.head(MINE, run.head.id).version == 4

    def test_a_task_interrupted_without_being_ended_can_run_again(self, store: Any) -> None:
        run = begin(store)
        store.interrupt(MINE, run.head.id, [])
        again = resume(store, run.head.id)
        with pytest.raises(RunRevoked):
            store.append(run.token, [])
        store.append(again.token, [chunk(run.head.id, "x")])

    def test_an_idle_task_can_be_interrupted(self, store: Any) -> None:
        task_id = waiting(store)
        store.interrupt(MINE, task_id, [status(task_id, TaskState.CANCELED)])
        assert store.head(MINE, task_id).status.state is TaskState.CANCELED

    def test_the_request_of_a_run_can_be_read_during_the_run(self, store: Any) -> None:
        events = [REQUEST.message, status("t", TaskState.SUBMITTED)]
        first = store.start_run(MINE, REQUEST, events, create=True)
        assert store.request(MINE, "t") == (REQUEST, TaskState.SUBMITTED)
        store.append(first.token, [], end=True)
        assert store.request(MINE, "t") is None
        again = resume(store, "t", text="second")
        assert store.request(MINE, "t").request.message == again.entries[0].event

    def test_a_request_whose_message_is_not_logged_is_stored_with_its_message(self, store: Any) -> None:
        request = RunRequest(message=message("t", "not logged"))
        store.start_run(MINE, request, [status("t", TaskState.WORKING)], create=True)
        assert store.request(MINE, "t") == (request, TaskState.WORKING)
        assert store.load(MINE, "t").task.history == ()

    def test_a_task_without_a_status_is_unspecified(self, store: Any) -> None:
        sent = message("t")
        run = store.start_run(MINE, RunRequest(message=sent), [sent], create=True)
        assert run.head.status == TaskStatus(state=TaskState.UNSPECIFIED)
        assert store.load(MINE, "t").task.history == (sent,)

    # -- owner ----------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("owner", FOREIGN)
    def test_a_task_of_another_owner_is_not_found_by_any_operation(self, store: Any, owner: Owner) -> None:
        foreign = begin(store, task_id="foreign").head.id
        calls: Sequence[Callable[[str], object]] = (
            lambda task_id: resume(store, task_id, owner=owner),
            lambda task_id: store.interrupt(owner, task_id, [status(task_id, TaskState.CANCELED)]),
            lambda task_id: store.head(owner, task_id),
            lambda task_id: store.request(owner, task_id),
            lambda task_id: store.load(owner, task_id),
            lambda task_id: store.log(owner, task_id),
            lambda task_id: store.delete(owner, task_id),
        )
        for call in calls:
            answers = []
            for task_id in (foreign, "unknown"):
                with pytest.raises(TaskNotFoundError) as caught:
                    call(task_id)
                answers.append(
                    (str(caught.value).replace(task_id, "ID"), caught.value.metadata, caught.value.violations)
                )
            assert answers[0] == answers[1]
        assert store.list(owner, TaskQuery()).tasks == ()
        assert store.list(owner, TaskQuery(context_id="c")).total == 0
        assert store.head(MINE, foreign).version == 3

    # -- sends with a key -----------------------------------------------------------------------------------------------

    def test_a_send_with_a_known_key_is_refused_with_its_outcome(self, store: Any) -> None:
        run = send(store, "k", "print")
        assert store.sent(MINE, "k") == SentRun(run.head.id, run.head.version, "print")
        assert store.sent(MINE, "other") is None
        for print_ in ("print", "another"):
            with pytest.raises(AlreadySent) as caught:
                send(store, "k", print_)
            # The caller compares the fingerprints.
            assert caught.value.run == SentRun(run.head.id, 3, "print")
        assert store.list(MINE, TaskQuery()).total == 1

    def test_a_known_key_is_refused_after_the_run_has_ended(self, store: Any) -> None:
        run = send(store, "k")
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, "x"), status(task_id, TaskState.COMPLETED)])
        assert store.sent(MINE, "k").number == 3
        # The key is checked before the state of the task.
        with pytest.raises(AlreadySent):
            send(store, "k", task_id=task_id)
        with pytest.raises(TaskEnded):
            send(store, "new", task_id=task_id)
        assert store.sent(MINE, "new") is None

    def test_each_run_of_a_task_may_have_a_key(self, store: Any) -> None:
        first = send(store, "one")
        task_id = first.head.id
        with pytest.raises(TaskBusy):
            send(store, "two", task_id=task_id)
        store.append(first.token, [status(task_id, TaskState.INPUT_REQUIRED)])
        second = send(store, "two", task_id=task_id)
        assert (second.head.version, second.token == first.token) == (6, False)
        assert [store.sent(MINE, key).number for key in ("one", "two")] == [3, 6]
        assert {store.sent(MINE, key).task_id for key in ("one", "two")} == {task_id}

    @pytest.mark.parametrize("owner", FOREIGN)
    def test_keys_are_separate_for_each_owner(self, store: Any, owner: Owner) -> None:
        send(store, "k")
        assert store.sent(owner, "k") is None
        send(store, "k", owner=owner)
        assert store.sent(owner, "k") != store.sent(MINE, "k")

    def test_a_key_is_not_part_of_the_stored_request(self, store: Any) -> None:
        run = send(store, "k")
        assert store.request(MINE, run.head.id).request.key is None

    def test_a_key_is_removed_with_its_task(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=2)
        run = send(store, "k")
        store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])
        again = send(store, "l", task_id=run.head.id)
        store.delete(MINE, run.head.id)
        assert [store.sent(MINE, key) for key in ("k", "l")] == [None, None]
        run = send(store, "k")
        assert run.head.id != again.head.id
        store.append(run.token, [status(run.head.id, TaskState.COMPLETED)])
        for _ in range(3):
            done(store, at=NOON + timedelta(seconds=9))
        assert store.sent(MINE, "k") is None

    def test_of_concurrent_sends_with_one_key_one_starts_a_run(self, store: Any) -> None:
        for n in range(20):
            results = concurrently(*[partial(send, store, f"k{n}") for _ in range(4)])
            started = [result for result in results if isinstance(result, StartedRun)]
            assert len(started) == 1, results
            refused = [result for result in results if isinstance(result, AlreadySent)]
            assert [result.run.task_id for result in refused] == [started[0].head.id] * 3
