"""What every store promises. A store's own test module makes a subclass and gives it a ``make_store`` fixture."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import Principal, RunRequest, SendKey
from a2a_sync.stores.base import (
    AlreadySent,
    RunRevoked,
    RunToken,
    Scope,
    SentRun,
    StartedRun,
    TaskBusy,
    TaskEnded,
    TaskExists,
    TaskQuery,
    TaskStore,
    time_ms,
)
from a2a_sync.types import (
    Artifact,
    DataPart,
    FilePart,
    Message,
    Role,
    SendMessageConfiguration,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    new_id,
)

MINE = Scope("acme", "ada")
FOREIGN = (Scope("acme", "bob"), Scope("other", "ada"), Scope())
NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
#: No wait in these tests is longer, in seconds.
PATIENCE = 30.0


# -- making things ------------------------------------------------------------------------------------------------------


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
    scope: Scope = MINE,
    task_id: str = "",
    context_id: str = "c",
    at: datetime | None = NOON,
    text: str = "hello",
) -> StartedRun:
    """A new task with its first run."""
    task_id = task_id or new_id()
    told = message(task_id, text, context_id=context_id)
    events = [
        told,
        status(task_id, TaskState.SUBMITTED, context_id=context_id, at=at),
        status(task_id, TaskState.WORKING, context_id=context_id, at=at),
    ]
    return store.start_run(scope, RunRequest(message=told, tenant=scope.tenant), events, create=True)


def resume(store: TaskStore, task_id: str, *, scope: Scope = MINE, text: str = "again") -> StartedRun:
    """The next run of a task."""
    told = message(task_id, text)
    events = [told, status(task_id, TaskState.WORKING)]
    return store.start_run(scope, RunRequest(message=told), events, create=False)


def send(
    store: TaskStore, key: str, fingerprint: str = "print", *, scope: Scope = MINE, task_id: str = ""
) -> StartedRun:
    """A run that came with a key: of a new task, or the next one of `task_id`."""
    told = message(task_id or new_id())
    events = [told, status(told.task_id, TaskState.SUBMITTED), status(told.task_id, TaskState.WORKING)]
    request = RunRequest(message=told, tenant=scope.tenant, key=SendKey(key, fingerprint))
    return store.start_run(scope, request, events[:: 2 if task_id else 1], create=not task_id)


def done(
    store: TaskStore, *, scope: Scope = MINE, context_id: str = "c", at: datetime | None = NOON, task_id: str = ""
) -> str:
    """A completed task; its id."""
    run = begin(store, scope=scope, context_id=context_id, at=at, task_id=task_id)
    ended = status(run.head.id, TaskState.COMPLETED, context_id=context_id, at=at)
    store.append(run.token, [ended], end=True)
    return run.head.id


def ids(store: TaskStore, query: TaskQuery, scope: Scope = MINE) -> list[str]:
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


class StoreContract:
    @pytest.fixture
    def make_store(self) -> Callable[..., TaskStore]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: Callable[..., TaskStore]) -> TaskStore:
        return make_store()

    # -- runs ---------------------------------------------------------------------------------------------------------

    def test_a_started_run_tells_the_task_and_the_entries_it_stored(self, store):
        run = begin(store, task_id="t", text="hi")
        assert run.token.task_id == run.head.id == "t"
        assert run.head == store.head(MINE, "t")
        assert (run.head.context_id, run.head.version, run.head.running) == ("c", 3, True)
        assert run.head.status == TaskStatus(state=TaskState.WORKING, timestamp=NOON)
        assert run.entries == store.log(MINE, "t").entries
        assert [entry.streamed for entry in run.entries] == [False, True, True]

    def test_a_task_is_created_once(self, store):
        begin(store, task_id="t")
        for scope in (MINE, FOREIGN[0]):
            with pytest.raises(TaskExists):
                begin(store, task_id="t", scope=scope)
        assert store.head(MINE, "t").version == 3
        assert store.list(FOREIGN[0], TaskQuery()).total == 0

    def test_a_second_run_is_refused_while_the_first_goes_on(self, store):
        run = begin(store)
        with pytest.raises(TaskBusy):
            resume(store, run.head.id)
        assert store.head(MINE, run.head.id) == run.head

    def test_ending_a_run_frees_its_task_for_the_next(self, store):
        run = begin(store)
        store.append(run.token, [], end=True)
        assert not store.head(MINE, run.head.id).running
        again = resume(store, run.head.id)
        assert again.head.running
        assert again.token != run.token
        assert [entry.number for entry in again.entries] == [4, 5]

    def test_a_token_is_void_once_its_run_has_ended(self, store):
        run = begin(store)
        store.append(run.token, [], end=True)
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "late")])
        resume(store, run.head.id)
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "later")])
        assert store.head(MINE, run.head.id).version == 5

    def test_a_token_nobody_gave_is_refused(self, store):
        run = begin(store)
        for token in (RunToken(run.head.id, "made up"), RunToken(run.head.id, ""), RunToken("unknown", "x")):
            with pytest.raises(RunRevoked):
                store.append(token, [chunk(token.task_id, "x")])
        assert store.head(MINE, run.head.id).version == 3

    @pytest.mark.parametrize(
        "state", [state for state in TaskState if state.terminal or state is TaskState.INPUT_REQUIRED]
    )
    def test_an_event_that_ends_its_run_frees_the_token_by_itself(self, store, state):
        run = begin(store)
        store.append(run.token, [status(run.head.id, state)])
        assert not store.head(MINE, run.head.id).running
        with pytest.raises(RunRevoked):
            store.append(run.token, [])

    def test_an_emitted_question_for_credentials_lets_the_run_go_on(self, store):
        run = begin(store)
        store.append(run.token, [status(run.head.id, TaskState.AUTH_REQUIRED)])
        assert store.head(MINE, run.head.id).running
        store.append(run.token, [status(run.head.id, TaskState.WORKING)])

    @pytest.mark.parametrize("state", [state for state in TaskState if state.terminal])
    def test_nothing_follows_a_terminal_state(self, store, state):
        run = begin(store)
        store.append(run.token, [status(run.head.id, state)], end=True)
        with pytest.raises(TaskEnded):
            resume(store, run.head.id)
        with pytest.raises(TaskEnded):
            store.interrupt(MINE, run.head.id, [status(run.head.id, TaskState.CANCELED)])
        assert store.head(MINE, run.head.id).version == 4

    def test_interrupting_voids_the_token(self, store):
        run = begin(store)
        entries = store.interrupt(MINE, run.head.id, [status(run.head.id, TaskState.CANCELED)])
        assert [entry.number for entry in entries] == [4]
        assert store.head(MINE, run.head.id).status.state is TaskState.CANCELED
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk(run.head.id, "late")], end=True)
        assert store.head(MINE, run.head.id).version == 4

    def test_a_task_interrupted_without_being_ended_can_run_again(self, store):
        run = begin(store)
        store.interrupt(MINE, run.head.id, [])
        again = resume(store, run.head.id)
        with pytest.raises(RunRevoked):
            store.append(run.token, [])
        store.append(again.token, [chunk(run.head.id, "x")])

    def test_an_idle_task_can_be_interrupted(self, store):
        run = begin(store)
        store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)], end=True)
        store.interrupt(MINE, run.head.id, [status(run.head.id, TaskState.CANCELED)])
        assert store.head(MINE, run.head.id).status.state is TaskState.CANCELED

    def test_the_request_of_a_run_can_be_read_while_it_goes_on(self, store):
        told = message("t", "hi")
        request = RunRequest(
            message=told,
            configuration=SendMessageConfiguration(accepted_output_modes=("text/plain",), history_length=3),
            metadata={"a": [1, None]},
            principal=Principal(id="ada", scopes=("read", "write"), claims={"sub": "ada", "n": 1}),
            tenant="acme",
            extensions={"https://example.com/x": {"a": [1, None]}},
            trace={"traceparent": "00-1-2-01"},
            headers={"accept-language": "de"},
        )
        first = store.start_run(MINE, request, [told, status("t", TaskState.SUBMITTED)], create=True)
        assert store.request(MINE, "t") == request
        store.append(first.token, [], end=True)
        assert store.request(MINE, "t") is None
        again = resume(store, "t", text="second")
        assert store.request(MINE, "t").message == again.entries[0].event

    def test_a_request_whose_message_is_not_among_the_events_is_kept_whole(self, store):
        request = RunRequest(message=message("t", "not logged"))
        store.start_run(MINE, request, [status("t", TaskState.WORKING)], create=True)
        assert store.request(MINE, "t") == request
        assert store.load(MINE, "t").task.history == ()

    def test_a_task_without_a_status_is_unspecified(self, store):
        told = message("t")
        run = store.start_run(MINE, RunRequest(message=told), [told], create=True)
        assert run.head.status == TaskStatus(state=TaskState.UNSPECIFIED)
        assert store.load(MINE, "t").task.history == (told,)

    # -- scope --------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("scope", FOREIGN)
    def test_a_foreign_task_is_an_unknown_one_in_every_operation(self, store, scope):
        foreign = begin(store, task_id="foreign").head.id
        calls: Sequence[Callable[[str], object]] = (
            lambda task_id: resume(store, task_id, scope=scope),
            lambda task_id: store.interrupt(scope, task_id, [status(task_id, TaskState.CANCELED)]),
            lambda task_id: store.head(scope, task_id),
            lambda task_id: store.request(scope, task_id),
            lambda task_id: store.load(scope, task_id),
            lambda task_id: store.log(scope, task_id),
            lambda task_id: store.delete(scope, task_id),
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
        assert store.list(scope, TaskQuery()).tasks == ()
        assert store.list(scope, TaskQuery(context_id="c")).total == 0
        assert store.head(MINE, foreign).version == 3

    # -- sends with a key ---------------------------------------------------------------------------------------------

    def test_a_send_is_known_again_by_its_key(self, store):
        run = send(store, "k", "print")
        assert store.sent(MINE, "k") == SentRun(run.head.id, run.head.version, "print")
        assert store.sent(MINE, "other") is None
        for print_ in ("print", "another"):
            with pytest.raises(AlreadySent) as caught:
                send(store, "k", print_)
            # Whether the content is the same is for the caller to judge.
            assert caught.value.run == SentRun(run.head.id, 3, "print")
        assert store.list(MINE, TaskQuery()).total == 1

    def test_its_run_may_have_gone_on_and_ended(self, store):
        run = send(store, "k")
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, "x"), status(task_id, TaskState.COMPLETED)])
        assert store.sent(MINE, "k").number == 3
        # Known sends are judged before the state of the task.
        with pytest.raises(AlreadySent):
            send(store, "k", task_id=task_id)
        with pytest.raises(TaskEnded):
            send(store, "new", task_id=task_id)
        assert store.sent(MINE, "new") is None

    def test_each_run_of_a_task_may_have_its_own(self, store):
        first = send(store, "one")
        task_id = first.head.id
        with pytest.raises(TaskBusy):
            send(store, "two", task_id=task_id)
        store.append(first.token, [status(task_id, TaskState.INPUT_REQUIRED)])
        second = send(store, "two", task_id=task_id)
        assert (second.head.version, second.token == first.token) == (6, False)
        assert [store.sent(MINE, key).number for key in ("one", "two")] == [3, 6]
        assert {store.sent(MINE, key).task_id for key in ("one", "two")} == {task_id}

    @pytest.mark.parametrize("scope", FOREIGN)
    def test_a_key_means_nothing_to_others(self, store, scope):
        send(store, "k")
        assert store.sent(scope, "k") is None
        send(store, "k", scope=scope)
        assert store.sent(scope, "k") != store.sent(MINE, "k")

    def test_a_key_is_not_part_of_the_request_that_is_kept(self, store):
        run = send(store, "k")
        assert store.request(MINE, run.head.id).key is None

    def test_a_key_goes_with_its_task(self, make_store):
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

    def test_of_sends_with_one_key_at_once_one_begins_a_run(self, store):
        for n in range(20):
            results = together(*[partial(send, store, f"k{n}") for _ in range(4)])
            started = [result for result in results if isinstance(result, StartedRun)]
            assert len(started) == 1, results
            refused = [result for result in results if isinstance(result, AlreadySent)]
            assert [result.run.task_id for result in refused] == [started[0].head.id] * 3

    # -- the log ------------------------------------------------------------------------------------------------------

    def test_numbers_ascend_by_one_and_are_never_used_again(self, store):
        run = begin(store)
        task_id, numbers = run.head.id, [entry.number for entry in run.entries]
        numbers += [entry.number for entry in store.append(run.token, [chunk(task_id, "1"), chunk(task_id, "2")])]
        with pytest.raises(TaskBusy):
            resume(store, task_id)
        numbers += [entry.number for entry in store.append(run.token, [message(task_id, role=Role.AGENT)], end=True)]
        numbers += [entry.number for entry in resume(store, task_id).entries]
        numbers += [entry.number for entry in store.interrupt(MINE, task_id, [status(task_id, TaskState.FAILED)])]
        assert numbers == list(range(1, 10))
        assert store.head(MINE, task_id).version == 9
        assert [entry.number for entry in store.log(MINE, task_id).entries] == numbers

    def test_the_log_is_read_in_pages_after_a_cursor(self, store):
        run = begin(store)
        store.append(run.token, [chunk(run.head.id, str(n), append=n > 0) for n in range(20)])
        whole = store.log(MINE, run.head.id)
        assert (whole.version, whole.state, whole.running) == (23, TaskState.WORKING, True)
        read, after = [], 0
        while after < whole.version:
            page = store.log(MINE, run.head.id, after=after, limit=7)
            assert 1 <= len(page.entries) <= 7
            read += page.entries
            after = read[-1].number
        assert tuple(read) == whole.entries
        assert [entry.event.artifact.text for entry in read[3:]] == [str(n) for n in range(20)]

    def test_nothing_follows_the_last_entry_or_a_cursor_beyond_it(self, store):
        task_id = done(store)
        done(store)
        for after in (4, 5, 10**6):
            page = store.log(MINE, task_id, after=after)
            assert (page.entries, page.version, page.state, page.running) == ((), 4, TaskState.COMPLETED, False)
        assert store.log(MINE, task_id, after=-1) == store.log(MINE, task_id)

    def test_every_kind_of_content_comes_back_as_it_went_in(self, store):
        parts = (
            TextPart(
                "a\u0000b \U0001f40d", metadata={"k": {"deep": [1, 2.5, None, True]}}, filename="f", media_type="t/x"
            ),
            FilePart(raw=bytes(range(256)), filename="b.bin", media_type="application/octet-stream"),
            FilePart(url="https://example.com/x?y=%20"),
            DataPart({"n": 10**15, "list": [], "none": None}),
            DataPart(None),
        )
        told = Message(
            role=Role.USER,
            parts=parts,
            message_id="m",
            task_id="t",
            context_id="c",
            metadata={"m": 1},
            extensions=("https://example.com/e",),
            reference_task_ids=("r1", "r2"),
        )
        made = TaskArtifactUpdateEvent(
            task_id="t",
            context_id="c",
            artifact=Artifact(
                parts=parts, artifact_id="a", name="n", description="d", metadata={"x": "y"}, extensions=("e",)
            ),
            last_chunk=True,
            metadata={"z": 0},
        )
        asked = status("t", TaskState.INPUT_REQUIRED, text="Which size?", metadata={"asked": True})
        events: list[LogEvent] = [told, status("t", TaskState.WORKING, at=None), made, asked]
        run = store.start_run(MINE, RunRequest(message=told), events[:2], create=True)
        store.append(run.token, events[2:])
        assert [entry.event for entry in store.log(MINE, "t").entries] == events
        task = store.load(MINE, "t").task
        assert task.history == (told,)
        assert task.artifacts == (made.artifact,)
        assert task.status == store.head(MINE, "t").status == asked.status
        assert store.list(MINE, TaskQuery(artifacts=True)).tasks == (task,)

    # -- the folded task ----------------------------------------------------------------------------------------------

    def test_the_newest_messages_are_the_history_that_is_asked_for(self, store):
        run = begin(store, text="0")
        for n in range(1, 6):
            store.append(run.token, [chunk(run.head.id, "x"), message(run.head.id, str(n), role=Role.AGENT)])

        def texts(history: int | None) -> list[str]:
            return [told.text for told in store.load(MINE, run.head.id, history=history).task.history]

        assert texts(None) == texts(6) == texts(100) == ["0", "1", "2", "3", "4", "5"]
        assert texts(2) == ["4", "5"]
        assert texts(1) == ["5"]
        assert texts(0) == []

    def test_artifacts_are_folded_in_the_order_of_their_first_chunk(self, store):
        run = begin(store)
        task_id = run.head.id
        store.append(run.token, [chunk(task_id, "b1", artifact_id="b"), chunk(task_id, "a1")])
        store.append(run.token, [chunk(task_id, "b2", artifact_id="b", append=True), chunk(task_id, "new")])
        stored = store.load(MINE, task_id, history=0)
        assert [(a.artifact_id, [part.text for part in a.parts]) for a in stored.task.artifacts] == [
            ("b", ["b1", "b2"]),
            ("a", ["new"]),
        ]
        assert (stored.version, stored.running) == (7, True)
        assert store.load(MINE, task_id, artifacts=False).task.artifacts == ()

    def test_many_chunks_fold_the_same_however_often_and_whenever_they_are_read(self, store):
        run = begin(store)
        task_id, written = run.head.id, 0
        for size in (10, 90, 1, 200, 1, 64):
            store.append(run.token, [chunk(task_id, f"{n} ", append=n > 0) for n in range(written, written + size)])
            written += size
            for _ in range(2):
                task = store.load(MINE, task_id).task
                assert task.artifacts[0].text == "".join(f"{n} " for n in range(written))
                assert len(task.artifacts[0].parts) == written
        store.append(run.token, [chunk(task_id, "replaced"), chunk(task_id, "other", artifact_id="b")], end=True)
        assert [artifact.text for artifact in store.load(MINE, task_id).task.artifacts] == ["replaced", "other"]

    def test_metadata_of_status_events_adds_up_to_the_tasks(self, store):
        run = begin(store)
        task_id = run.head.id
        store.append(run.token, [status(task_id, TaskState.WORKING, metadata={"a": 1, "b": {"x": 1}})])
        store.append(
            run.token,
            [
                status(task_id, TaskState.WORKING, metadata={"b": [2]}),
                status(task_id, TaskState.WORKING, metadata={"c": None}),
            ],
        )
        store.append(run.token, [chunk(task_id, "x")], end=True)
        expected = {"a": 1, "b": [2], "c": None}
        assert store.head(MINE, task_id).metadata == expected
        assert store.load(MINE, task_id).task.metadata == expected
        assert store.list(MINE, TaskQuery()).tasks[0].metadata == expected
        assert resume(store, task_id).head.metadata == expected

    def test_what_a_caller_was_given_does_not_change_later(self, store):
        run = begin(store)
        before, head = store.load(MINE, run.head.id), store.head(MINE, run.head.id)
        store.append(
            run.token, [chunk(run.head.id, "x"), status(run.head.id, TaskState.COMPLETED, metadata={"a": 1})], end=True
        )
        assert before.task.state is head.status.state is TaskState.WORKING
        assert before.task.artifacts == ()
        assert before.task.metadata == head.metadata == {}

    # -- listing ------------------------------------------------------------------------------------------------------

    def test_tasks_are_listed_by_status_time_then_id_newest_first(self, store):
        for name, second in (("a", 3), ("b", 1), ("d", 2), ("c", 2)):
            done(store, task_id=name, at=NOON + timedelta(seconds=second))
        begin(store, task_id="e", at=None)
        page = store.list(MINE, TaskQuery())
        assert [task.id for task in page.tasks] == ["a", "d", "c", "b", "e"]
        assert (page.total, page.next) == (5, None)

    def test_a_new_status_moves_a_task_to_the_front(self, store):
        run = begin(store, task_id="old", at=NOON)
        done(store, task_id="new", at=NOON + timedelta(seconds=1))
        assert ids(store, TaskQuery()) == ["new", "old"]
        store.append(run.token, [chunk("old", "x")])
        assert ids(store, TaskQuery()) == ["new", "old"]
        store.append(run.token, [status("old", TaskState.WORKING, at=NOON + timedelta(seconds=2))])
        assert ids(store, TaskQuery()) == ["old", "new"]

    def test_pages_hold_every_task_once_and_end(self, store):
        made = [done(store, at=NOON + timedelta(milliseconds=n // 3)) for n in range(20)]
        found = pages(store, 7)
        assert [len(page) for page in found] == [7, 7, 6]
        whole = flat(found)
        assert sorted(whole) == sorted(made)
        assert pages(store, 10) == [whole[:10], whole[10:]]
        assert store.list(MINE, TaskQuery(size=7)).total == 20

    def test_a_cursor_stays_where_it_was_while_tasks_come_and_go(self, store):
        for n in range(6):
            done(store, task_id=str(n), at=NOON + timedelta(seconds=n))
        first = store.list(MINE, TaskQuery(size=3))
        assert [task.id for task in first.tasks] == ["5", "4", "3"]
        done(store, task_id="newer", at=NOON + timedelta(seconds=9))
        store.delete(MINE, "3")
        second = store.list(MINE, TaskQuery(size=3, after=first.next))
        assert [task.id for task in second.tasks] == ["2", "1", "0"]
        assert (second.total, second.next) == (6, None)

    def test_filters_narrow_the_page_and_the_total(self, store):
        late = NOON + timedelta(milliseconds=1)
        done(store, task_id="a", context_id="x")
        done(store, task_id="b", context_id="x", at=late)
        done(store, task_id="c", context_id="y", at=late)
        begin(store, task_id="d", context_id="x", at=late)
        done(store, task_id="e", context_id="x", scope=FOREIGN[0])
        for expected, filters in (
            (["d", "c", "b", "a"], {}),
            (["d", "b", "a"], {"context_id": "x"}),
            (["c", "b", "a"], {"state": TaskState.COMPLETED}),
            (["d"], {"state": TaskState.WORKING}),
            ([], {"state": TaskState.FAILED}),
            (["d", "c", "b"], {"since_ms": time_ms(late)}),
            ([], {"since_ms": time_ms(late) + 1}),
            (["d", "c", "b", "a"], {"since_ms": time_ms(NOON)}),
            (["b", "a"], {"context_id": "x", "state": TaskState.COMPLETED}),
            (["b"], {"context_id": "x", "state": TaskState.COMPLETED, "since_ms": time_ms(late)}),
            ([], {"context_id": "unknown"}),
        ):
            page = store.list(MINE, TaskQuery(**filters))
            assert [task.id for task in page.tasks] == expected, filters
            assert page.total == len(expected), filters
            assert flat(pages(store, 1, **filters)) == expected, filters

    def test_listed_tasks_hold_what_was_asked_for(self, store):
        run = begin(store, text="hi")
        store.append(run.token, [chunk(run.head.id, "x"), message(run.head.id, "hey", role=Role.AGENT)], end=True)
        (plain,) = store.list(MINE, TaskQuery(history=0)).tasks
        assert (plain.history, plain.artifacts, plain.context_id) == ((), (), "c")
        (newest,) = store.list(MINE, TaskQuery(history=1)).tasks
        assert [told.text for told in newest.history] == ["hey"]
        (whole,) = store.list(MINE, TaskQuery(artifacts=True)).tasks
        assert whole == store.load(MINE, run.head.id).task

    def test_totals_follow_every_change(self, store):
        def totals() -> tuple[int, ...]:
            states = (None, TaskState.WORKING, TaskState.COMPLETED, TaskState.CANCELED)
            return tuple(store.list(MINE, TaskQuery(state=state)).total for state in states)

        runs = [begin(store) for _ in range(4)]
        assert totals() == (4, 4, 0, 0)
        store.append(runs[0].token, [status(runs[0].head.id, TaskState.COMPLETED)])
        store.interrupt(MINE, runs[1].head.id, [status(runs[1].head.id, TaskState.CANCELED)])
        assert totals() == (4, 2, 1, 1)
        for run in runs[1:3]:
            store.delete(MINE, run.head.id)
        assert totals() == (2, 1, 1, 0)
        store.delete(MINE, runs[3].head.id)
        store.delete(MINE, runs[0].head.id)
        assert totals() == (0, 0, 0, 0)

    # -- deleting and the bound ---------------------------------------------------------------------------------------

    def test_a_deleted_task_is_gone_for_good(self, store):
        run = begin(store, task_id="t")
        kept = begin(store)
        store.append(run.token, [chunk("t", str(n), append=n > 0) for n in range(200)])
        store.load(MINE, "t")
        store.delete(MINE, "t")
        for call in (store.head, store.load, store.log, store.delete, store.request):
            with pytest.raises(TaskNotFoundError):
                call(MINE, "t")
        with pytest.raises(RunRevoked):
            store.append(run.token, [chunk("t", "late")])
        assert ids(store, TaskQuery()) == [kept.head.id]
        assert begin(store, task_id="t").head.version == 3
        assert store.load(MINE, "t").task.artifacts == ()
        assert len(store.log(MINE, "t").entries) == 3

    def test_a_task_made_after_another_was_deleted_holds_nothing_of_it(self, store):
        for text in ("old", "new"):
            run = begin(store)
            task_id = run.head.id
            store.append(run.token, [chunk(task_id, text, append=n > 0) for n in range(200 if text == "old" else 100)])
            for _ in range(2):
                (artifact,) = store.load(MINE, task_id).task.artifacts
                assert {part.text for part in artifact.parts} == {text}
            store.delete(MINE, task_id)

    def test_beyond_the_bound_the_tasks_that_ended_first_go_first(self, make_store):
        store = make_store(max_tasks=5)
        open_ = begin(store, at=NOON)
        waiting = begin(store, at=NOON)
        store.append(waiting.token, [status(waiting.head.id, TaskState.INPUT_REQUIRED)], end=True)
        ended = [done(store, at=NOON + timedelta(seconds=n)) for n in range(8)]
        page = store.list(MINE, TaskQuery())
        assert page.total == 5
        assert {task.id for task in page.tasks} == {open_.head.id, waiting.head.id, *ended[-3:]}
        with pytest.raises(TaskNotFoundError):
            store.log(MINE, ended[0])

    def test_where_no_task_has_ended_the_longest_waiting_go(self, make_store):
        store = make_store(max_tasks=3)
        waiting = []
        for n in range(6):
            run = begin(store)
            asked = status(run.head.id, TaskState.INPUT_REQUIRED, at=NOON + timedelta(seconds=n))
            store.append(run.token, [asked], end=True)
            waiting.append(run.head.id)
        assert ids(store, TaskQuery()) == waiting[:2:-1]

    def test_a_task_with_a_run_is_never_forgotten(self, make_store):
        store = make_store(max_tasks=2)
        runs = [begin(store) for _ in range(6)]
        for run in runs:
            store.append(run.token, [chunk(run.head.id, "still here")])
        for n, run in enumerate(runs):
            store.append(
                run.token, [status(run.head.id, TaskState.COMPLETED, at=NOON + timedelta(seconds=n))], end=True
            )
        for _ in range(4):
            done(store, at=NOON + timedelta(minutes=1))
        assert store.list(MINE, TaskQuery()).total == 2

    def test_the_bound_counts_the_tasks_of_all_scopes(self, make_store):
        store = make_store(max_tasks=4)
        scopes = [Scope("", str(n)) for n in range(10)]
        for n, scope in enumerate(scopes):
            done(store, scope=scope, at=NOON + timedelta(seconds=n))
        assert [store.list(scope, TaskQuery()).total for scope in scopes] == [0] * 6 + [1] * 4

    def test_a_closed_store_opens_again_when_it_is_used(self, store):
        task_id = done(store)
        for _ in range(2):
            store.close()
        assert store.head(MINE, task_id).version == 4
        done(store)

    # -- threads ------------------------------------------------------------------------------------------------------

    def test_of_two_runs_that_start_at_once_one_wins(self, store):
        task_id = begin(store).head.id
        store.interrupt(MINE, task_id, [])
        for _ in range(20):
            version = store.head(MINE, task_id).version
            results = together(*[lambda: resume(store, task_id)] * 4)
            won = [result for result in results if isinstance(result, StartedRun)]
            assert len(won) == 1, results
            assert [type(result) for result in results if result is not won[0]] == [TaskBusy] * 3
            assert store.head(MINE, task_id).version == version + 2
            store.append(won[0].token, [], end=True)

    def test_an_append_and_an_interrupt_at_once_never_mix(self, store):
        for _ in range(30):
            run = begin(store)
            task_id = run.head.id
            completed = [chunk(task_id, "x"), status(task_id, TaskState.COMPLETED)]
            canceled = [status(task_id, TaskState.CANCELED)]
            appended, interrupted = together(
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

    def test_many_threads_write_to_their_own_tasks_and_nothing_is_lost(self, store):
        def write() -> str:
            run = begin(store)
            for n in range(200):
                (entry,) = store.append(run.token, [chunk(run.head.id, str(n), append=n > 0)])
                assert entry.number == 4 + n
            return run.head.id

        for task_id in together(*[write] * 8):
            entries = store.log(MINE, task_id).entries
            assert [entry.number for entry in entries] == list(range(1, 204))
            assert [entry.event.artifact.text for entry in entries[3:]] == [str(n) for n in range(200)]

    def test_readers_see_whole_batches_only(self, store):
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

        results = together(write, read, read)
        assert all(isinstance(result, int) and result > 0 for result in results[1:]), results
