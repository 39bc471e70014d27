"""Leases: the living are left alone, the runs of the dead are taken over, once."""

from __future__ import annotations

import itertools
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    Client,
    Limits,
    Message,
    RequestContext,
    Role,
    SQLiteStore,
    Task,
    TaskState,
    TextPart,
)
from a2a_sync.engine import membership
from a2a_sync.engine.membership import WorkerMembership
from a2a_sync.engine.stamp import status_event
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import HeldRun, LostWorker, Owner, RunRevoked
from a2a_sync.stores.sqlite import inspection as sqlite_inspection
from a2a_sync.stores.sqlite import workers as sqlite_workers
from a2a_sync.types import new_id
from tests.engine import eventually, heartbeats

BEAT = 0.2
SCOPE = Owner()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[[], SQLiteStore]]:
    """Stores on one file; each is a worker of its own, like a process."""
    with ExitStack() as stack:

        def another() -> SQLiteStore:
            store = SQLiteStore(tmp_path / "tasks.db")
            stack.callback(store.close)
            return store

        yield another


def running_task(store: SQLiteStore, text: str = "hi") -> HeldRun:
    """A task whose run this store's worker holds."""
    message = Message(role=Role.USER, parts=(TextPart(text),), task_id=new_id(), context_id="c")
    request = RunRequest(message=message)
    events = [message, status_event(request, TaskState.SUBMITTED), status_event(request, TaskState.WORKING)]
    return HeldRun(SCOPE, store.start_run(SCOPE, request, events, create=True).token)


def watching(store: SQLiteStore, on_lost: Callable[[HeldRun], None]) -> WorkerMembership:
    leases = WorkerMembership(store.workers, on_lost, beat=BEAT)
    leases.start()
    return leases


def test_the_runs_of_a_worker_that_stopped_beating_are_lost(stores: Callable[[], SQLiteStore]) -> None:
    dying, watcher = stores(), stores()
    dying.workers.beat(2 * BEAT)
    held = running_task(dying)
    lost: queue.Queue[HeldRun] = queue.Queue()
    leases = watching(watcher, lost.put)
    try:
        assert lost.get(timeout=60) == held
    finally:
        leases.close()
    assert dying.workers.id not in heartbeats(watcher)


def test_a_run_that_a_worker_stores_after_it_was_removed_is_lost(
    stores: Callable[[], SQLiteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_MISSING_INTERVAL", BEAT)
    late, watcher = stores(), stores()
    late.workers.beat(2 * BEAT)
    lost: queue.Queue[HeldRun] = queue.Queue()
    leases = watching(watcher, lost.put)
    try:
        eventually(lambda: late.workers.id not in heartbeats(watcher), "the removal")
        held = running_task(late)
        assert lost.get(timeout=60) == held
    finally:
        leases.close()


def test_a_worker_whose_lease_is_over_renews_it_before_a_run(
    stores: Callable[[], SQLiteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, watcher, now = stores(), stores(), time.monotonic()
    leases = WorkerMembership(store.workers, lambda run: None, beat=1_000.0)  # so long that only the test beats
    leases.join()
    watcher.workers.claim_lost(60, now=now + 1e6)
    watcher.workers.deregister(store.workers.id)
    leases.join()
    assert store.workers.id not in heartbeats(watcher)
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now + 2_100.0))
    leases.join()
    assert store.workers.id in heartbeats(watcher)
    leases.close()


def test_no_run_begins_while_a_late_heartbeat_does_not_end(
    stores: Callable[[], SQLiteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores()
    monkeypatch.setattr(membership, "_BEAT_WAIT", 0.0)
    monkeypatch.setattr(store.workers, "beat", lambda lease: None)
    leases = WorkerMembership(store.workers, lambda run: None, beat=BEAT)
    with pytest.raises(OverloadedError, match="does not answer heartbeats"):
        leases.join()
    leases.close()


def test_a_lost_run_without_a_free_thread_is_offered_again_and_is_no_error(
    stores: Callable[[], SQLiteStore], caplog: pytest.LogCaptureFixture
) -> None:
    dying, watcher = stores(), stores()
    dying.workers.beat(2 * BEAT)
    held = running_task(dying)
    offered: queue.Queue[HeldRun] = queue.Queue()

    def refuse_once(run: HeldRun) -> None:
        offered.put(run)
        if offered.qsize() == 1:
            raise OverloadedError("all threads are taken")

    leases = watching(watcher, refuse_once)
    try:
        eventually(lambda: offered.qsize() == 2, "the second offer")
    finally:
        leases.close()
    assert list(offered.queue) == [held, held]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_worker_that_beats_keeps_its_runs(stores: Callable[[], SQLiteStore]) -> None:
    alive, watcher, dead = stores(), stores(), stores()
    running_task(alive)
    lost: queue.Queue[HeldRun] = queue.Queue()
    own = WorkerMembership(alive.workers, lost.put, beat=BEAT)
    own.join()
    dead.workers.beat(2 * BEAT)
    held = running_task(dead)
    leases = watching(watcher, lost.put)
    try:
        # The dead worker's run says that enough beats have gone by. Both living workers may offer it.
        assert lost.get(timeout=60) == held
        assert all(other == held for other in list(lost.queue))
    finally:
        leases.close()
        own.close()


def test_a_lock_that_holds_up_all_workers_kills_none(stores: Callable[[], SQLiteStore], tmp_path: Path) -> None:
    alive, watcher = stores(), stores()
    held, lost = running_task(alive), []
    leases = [WorkerMembership(alive.workers, lost.append, beat=BEAT), watching(watcher, lost.append)]
    leases[0].join()
    before = heartbeats(watcher)[alive.workers.id]
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # Far longer than two beats.
        threading.Event().wait(10 * BEAT)
        other.execute("ROLLBACK")
    eventually(lambda: heartbeats(watcher)[alive.workers.id] > before + 15 * BEAT, "further beats")
    for each in leases:
        each.close()
    assert not lost
    assert alive.workers.holds(held.token)


@pytest.mark.parametrize("notices", ["watcher", "worker"])
@pytest.mark.parametrize("step", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_of_the_store_that_is_set_kills_no_worker(
    stores: Callable[[], SQLiteStore], step: float, notices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat, now, ahead = 1_000.0, [0.0], [0.0]  # so long that only the test beats
    of_store = SimpleNamespace(time_ns=time.time_ns, monotonic=lambda: now[0] + ahead[0])
    for module in (sqlite_workers, sqlite_inspection):
        monkeypatch.setattr(module, "time", of_store)
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now[0]))
    # The run stays with its worker, which would be found again.
    monkeypatch.setattr(membership, "_MISSING_INTERVAL", math.inf)
    held, lost = running_task(alive := stores()), []
    own, watcher = (WorkerMembership(store.workers, lost.append, beat=beat) for store in (alive, stores()))

    def go_on(beats: int, *beating: WorkerMembership) -> None:
        for quarter in range(4 * beats):
            now[0] += beat / 4
            # One of them beats last before the step, and last after it.
            for phase, each in enumerate(beating):
                if quarter % 4 == 3 * phase:
                    each.beat()
            watcher._check()

    with closing(own), closing(watcher):
        own.join()
        watcher.join()
        go_on(4, watcher, own)
        assert watcher._time_of_store() is not None
        ahead[0] = step
        go_on(8, *((watcher, own) if notices == "watcher" else (own, watcher)))
        assert watcher._time_of_store() is not None
        assert not lost
        assert alive.workers.holds(held.token)
        go_on(4, watcher)
        assert lost == [held]


def test_the_heart_beats_on_while_the_runs_of_others_are_taken_over(stores: Callable[[], SQLiteStore]) -> None:
    dying, watcher = stores(), stores()
    dying.workers.beat(2 * BEAT)
    running_task(dying)
    begun, enough = threading.Event(), threading.Event()

    def slowly(run: HeldRun) -> None:
        begun.set()
        enough.wait(60)

    leases = watching(watcher, slowly)
    try:
        assert begun.wait(60)
        before = heartbeats(watcher)[watcher.workers.id]
        eventually(lambda: heartbeats(watcher)[watcher.workers.id] > before + 3 * BEAT, "further beats")
    finally:
        enough.set()
        leases.close()


def test_what_a_leaving_worker_holds_is_lost_at_the_next_look(stores: Callable[[], SQLiteStore]) -> None:
    leaving, watcher = stores(), stores()
    own = WorkerMembership(leaving.workers, lambda run: None, beat=60)
    own.join()
    held = running_task(leaving)
    own.close()
    assert heartbeats(watcher) == {leaving.workers.id: float("-inf")}
    lost: queue.Queue[HeldRun] = queue.Queue()
    leases = watching(watcher, lost.put)
    try:
        assert lost.get(timeout=10) == held._replace(left=True)
    finally:
        leases.close()


def test_a_run_that_could_not_be_taken_over_is_offered_again(stores: Callable[[], SQLiteStore]) -> None:
    dying, watcher = stores(), stores()
    dying.workers.beat(2 * BEAT)
    held = running_task(dying)
    offered: queue.Queue[HeldRun] = queue.Queue()

    attempts = itertools.count()

    def busy_at_first(run: HeldRun) -> None:
        # The test takes what is offered at any time.
        busy = next(attempts) == 0
        offered.put(run)
        if busy:
            raise RuntimeError("no thread")

    leases = watching(watcher, busy_at_first)
    try:
        assert [offered.get(timeout=60), offered.get(timeout=60)] == [held, held]
    finally:
        leases.close()


def test_a_lost_run_whose_reaper_died_is_offered_to_another_worker(stores: Callable[[], SQLiteStore]) -> None:
    dying, reaper, watcher = stores(), stores(), stores()
    dying.workers.beat(2 * BEAT)
    held = running_task(dying)
    now = reaper.workers.beat(2 * BEAT)
    assert reaper.workers.claim_lost(BEAT, now=now + 3600) == LostWorker(dying.workers.id, left=False)
    lost: queue.Queue[HeldRun] = queue.Queue()
    leases = watching(watcher, lost.put)
    try:
        assert lost.get(timeout=60) == held
        eventually(lambda: list(heartbeats(watcher)) == [watcher.workers.id], "the end of both")
    finally:
        leases.close()


def test_a_run_is_adopted_once_and_its_old_token_is_void(stores: Callable[[], SQLiteStore]) -> None:
    first, second, third = stores(), stores(), stores()
    held = running_task(first)
    found = second.request(SCOPE, held.token.task_id)
    assert found is not None
    request = found.request
    events = [status_event(request, TaskState.WORKING)]
    adopted = second.workers.adopt(held, request, events)
    with pytest.raises(RunRevoked):
        third.workers.adopt(held, request, events)
    with pytest.raises(RunRevoked):
        first.append(held.token, events)
    assert not first.workers.holds(held.token)
    assert second.workers.holds(adopted.token)
    second.append(adopted.token, [status_event(request, TaskState.COMPLETED)])


class Patient(Agent):
    """Waits at the first attempt, for ever as far as its worker is concerned, and answers at the next."""

    name = "patient"
    description = "Waits"
    on_worker_lost = "retry"

    def handle_message(self, message: Message, context: RequestContext) -> str | None:
        if context.attempt == 1 or message.text == "always":
            context.update("waiting")
            context.sleep(60)
        return f"attempt {context.attempt}: {message.text}"


LIMITS = Limits(worker_heartbeat_interval=BEAT, disconnect_check_interval=0.05)


def lose(app: A2AApp) -> None:
    """What a kill does to an app, without the process: no more heartbeats, nothing stored any more."""
    membership, pubsub = app._engine.membership, app._engine.hub.pubsub
    assert membership is not None
    assert pubsub is not None
    membership._halt()
    pubsub.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Callable[[type[Agent]], A2AApp]]:
    with ExitStack() as stack:

        def make(agent: type[Agent]) -> A2AApp:
            made = A2AApp(agent(), store=f"sqlite:///{tmp_path / 'tasks.db'}", limits=LIMITS)
            stack.callback(made.close, timeout=0)
            return made

        yield make


def waiting_task(client: Client, text: str) -> Task:
    task = client.send(text, return_immediately=True)
    assert isinstance(task, Task)
    return task


def meet(app: A2AApp) -> None:
    """What a server's first request does."""
    app._engine.start()


def test_a_task_whose_worker_died_runs_again_where_the_agent_says_so(app: Callable[[type[Agent]], A2AApp]) -> None:
    first, second = app(Patient), app(Patient)
    task = waiting_task(Client(first), "hello")
    lose(first)
    meet(second)
    done = Client(second).wait(task.id, timeout=60)
    assert (done.state, done.text) == (TaskState.COMPLETED, "attempt 2: hello")
    stored = Client(second).get_task(task.id)
    assert [turn.text for turn in stored.history] == ["hello", "attempt 2: hello"]


def test_a_task_that_kills_every_worker_fails_in_the_end(app: Callable[[type[Agent]], A2AApp]) -> None:
    apps = [app(Patient) for _ in range(4)]
    task = waiting_task(Client(apps[0]), "always")
    for dying, heir in pairwise(apps):
        lose(dying)
        meet(heir)
        taken = threading.Event()
        for _ in range(400):
            if heir._engine.runs.running or Client(heir).get_task(task.id).state.terminal:
                break
            taken.wait(0.02)
    done = Client(apps[-1]).wait(task.id, timeout=60)
    assert (done.state, done.text) == (TaskState.FAILED, "worker lost")


def test_a_closing_app_hands_its_retryable_runs_to_the_next_one(app: Callable[[type[Agent]], A2AApp]) -> None:
    first, second = app(Patient), app(Patient)
    task = waiting_task(Client(first), "hello")
    first.close(timeout=0)
    meet(second)
    assert Client(second).wait(task.id, timeout=60).text == "attempt 2: hello"


def test_handing_over_is_no_death_that_counts(app: Callable[[type[Agent]], A2AApp]) -> None:
    apps = [app(Patient) for _ in range(LIMITS.max_run_attempts + 2)]
    task = waiting_task(Client(apps[0]), "always")
    for leaving, heir in pairwise(apps):
        # Another worker that is there already could take the run over instead of this one.
        eventually(lambda leaving=leaving: leaving.running, "the run")
        meet(heir)
        leaving.close(timeout=0)
    eventually(lambda: apps[-1].running, "the run")
    assert Client(apps[-1]).get_task(task.id).state is TaskState.WORKING


def test_a_worker_that_only_slept_writes_nothing_more(app: Callable[[type[Agent]], A2AApp]) -> None:
    woken = threading.Event()
    refused: queue.Queue[BaseException] = queue.Queue()

    class Sleepy(Agent):
        name = "sleepy"

        def handle_message(self, message: Message, context: RequestContext) -> str:
            woken.wait(60)
            try:
                context.update("I was only asleep")
            except BaseException as error:
                refused.put(error)
                raise
            return "done"

    first, second = app(Sleepy), app(Sleepy)
    task = waiting_task(Client(first), "hello")
    lose(first)
    meet(second)
    done = Client(second).wait(task.id, timeout=60)
    woken.set()
    assert type(refused.get(timeout=60)).__name__ == "TaskCancelled"
    assert Client(first).get_task(task.id) == done
    assert (done.state, done.text) == (TaskState.FAILED, "worker lost")
