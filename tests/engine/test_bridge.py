"""The poll of a store that other processes write to."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Limits, SQLiteStore, Task, TaskState
from a2a_sync.engine.bridge import ProcessBridge
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.runs import RunManager
from a2a_sync.errors import StoreError, UnsupportedOperationError
from a2a_sync.stores.base import Owner, TaskBatch, TaskVersion
from a2a_sync.stores.inprocess import InProcessPubSub
from a2a_sync.testing.storecontract.making import begin, chunk, done
from tests.engine import TIMEOUT


class Hints:
    """A listener that puts the id of its task into a queue at each hint."""

    def __init__(self, hub: EventHub, task_id: str, found: queue.Queue[str]) -> None:
        self._task_id = task_id
        self._found = found
        hub.add(task_id, self)

    def hint(self) -> None:
        self._found.put(self._task_id)

    def offer(self, batch: object) -> None: ...

    def fail(self, error: object) -> None: ...

    def stop(self) -> None: ...


class BrokenOnce(SQLiteStore):
    """Refuses the first read of versions."""

    broken = True

    def versions(self, task_ids: Any) -> dict[str, TaskVersion]:
        if self.broken:
            self.broken = False
            raise StoreError("broken")
        return super().versions(task_ids)


class Counting(SQLiteStore):
    """Counts the reads of versions."""

    reads = 0

    def versions(self, task_ids: Any) -> dict[str, TaskVersion]:
        self.reads += 1
        return super().versions(task_ids)


class Disorderly:
    """Another `PubSub` that loses a third of its messages, receives a third twice, and a third after the next one."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self._random = random.Random(7)
        self._held: list[tuple[str, TaskBatch | None]] = []
        #: How many messages had each fate.
        self.fates = [0, 0, 0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pubsub, name)

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        def receive(task_id: str, batch: TaskBatch | None) -> None:
            fate = self._random.randrange(3)
            self.fates[fate] += 1
            if fate == 1:
                on_message(task_id, batch)
                on_message(task_id, batch)
            elif fate == 2:
                self._held.append((task_id, batch))
                return
            while self._held:
                on_message(*self._held.pop())

        self._pubsub.start(receive, on_gap)


def bridge_of(store: SQLiteStore, hub: EventHub) -> ProcessBridge:
    limits = Limits()
    return ProcessBridge(None, store, hub, RunManager(lambda owner: None, store, hub, limits), limits)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def test_only_tasks_that_have_changed_are_hinted(path: Path) -> None:
    found: queue.Queue[str] = queue.Queue()
    hub = EventHub()
    with closing(SQLiteStore(path)) as store, closing(SQLiteStore(path)) as elsewhere:
        run, other = begin(store), done(store)
        for task_id in (run.head.id, other):
            Hints(hub, task_id, found)
        with closing(bridge_of(store, hub)) as bridge:
            bridge.start()
            assert {found.get(timeout=TIMEOUT) for _ in range(2)} == {run.head.id, other}
            for text in "abc":
                elsewhere.append(run.token, [chunk(run.head.id, text)])
                assert found.get(timeout=TIMEOUT) == run.head.id
            elsewhere.append(run.token, [], end=True)
            assert found.get(timeout=TIMEOUT) == run.head.id


@pytest.fixture
def make_shared(path: Path) -> Callable[[], tuple[Any, Any]]:
    """Makes a store and a `PubSub` of each of several processes, which share them; `tests.services` has others."""
    return lambda: (SQLiteStore(path), InProcessPubSub("counting"))


def test_streams_are_exact_while_messages_are_lost_doubled_and_reordered(
    make_shared: Callable[[], tuple[Any, Any]],
) -> None:
    pubsubs = []

    def make() -> A2AApp:
        agent = Agent("counting")
        agent.message(lambda message, context: (f"{number} " for number in range(200)))
        store, pubsub = make_shared()
        pubsubs.append(Disorderly(pubsub))
        limits = Limits(store_poll_interval=0.1, disconnect_check_interval=0.05)
        return A2AApp(agent, store=store, pubsub=pubsubs[-1], limits=limits)

    with make() as runs, make() as follows, Client(runs) as sender, Client(follows) as follower:
        for _ in range(10):
            task = sender.send("go", return_immediately=True)
            assert isinstance(task, Task)
            with suppress(UnsupportedOperationError), follower.subscribe(task.id) as stream:
                numbers = [int(stream.last_event_id or 0) for _ in stream]
                log = runs.store.log(Owner(), task.id, limit=1000).entries
                assert numbers[1:] == [entry.number for entry in log if entry.streamed and entry.number > numbers[0]]
                assert stream.task is not None
                assert stream.task.state is TaskState.COMPLETED
            assert sender.wait(task.id).text == "".join(f"{number} " for number in range(200))
        assert all(pubsubs[1].fates)


def test_a_task_that_was_removed_is_hinted(path: Path) -> None:
    found: queue.Queue[str] = queue.Queue()
    hub = EventHub()
    with closing(SQLiteStore(path)) as store:
        Hints(hub, "gone", found)
        done(store)
        with closing(bridge_of(store, hub)) as bridge:
            bridge.start()
            assert found.get(timeout=TIMEOUT) == "gone"


def test_a_store_without_marks_is_polled_less_and_less_often_until_something_changes(path: Path) -> None:
    hub = EventHub()
    with closing(SQLiteStore(path)) as store:
        run = begin(store)
        Hints(hub, run.head.id, queue.Queue())
        store.workers.mark = lambda: None
        bridge = bridge_of(store, hub)
        assert [bridge._poll() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
        store.append(run.token, [chunk(run.head.id, "a")])
        assert bridge._poll() == 0.25
        bridge.close()


def test_versions_are_read_after_a_change_and_only_while_a_task_is_followed(path: Path) -> None:
    hub = EventHub()
    with closing(Counting(path)) as store:
        task_id = done(store)
        marks = ["before"]
        store.workers.mark = lambda: marks[-1]
        with closing(bridge_of(store, hub)) as bridge:
            bridge._poll()
            assert store.reads == 0
            follower = Hints(hub, task_id, queue.Queue())
            for mark, reads in (("before", 1), ("before", 1), ("after", 2), ("after", 2)):
                marks.append(mark)
                bridge._poll()
                assert store.reads == reads
            hub.remove(task_id, follower)
            bridge._poll()
            Hints(hub, task_id, queue.Queue())
            bridge._poll()
            assert store.reads == 3


def test_lost_messages_lead_to_one_read_of_versions_and_no_log_of_an_unchanged_task(path: Path) -> None:
    found: queue.Queue[str] = queue.Queue()
    hub = EventHub()
    with closing(SQLiteStore(path)) as store, closing(SQLiteStore(path)) as elsewhere:
        run, other = begin(store), done(store)
        for task_id in (run.head.id, other):
            Hints(hub, task_id, found)
        with closing(bridge_of(store, hub)) as bridge:
            bridge._catch_up()
            assert {found.get(timeout=TIMEOUT) for _ in range(2)} == {run.head.id, other}
            elsewhere.append(run.token, [chunk(run.head.id, "a")])
            bridge._catch_up()
            assert found.get(timeout=TIMEOUT) == run.head.id
            assert found.empty()


def test_where_versions_cannot_be_read_all_tasks_are_hinted(path: Path) -> None:
    found: queue.Queue[str] = queue.Queue()
    hub = EventHub()
    with closing(BrokenOnce(path)) as store:
        task_ids = {done(store), done(store)}
        for task_id in task_ids:
            Hints(hub, task_id, found)
        with closing(bridge_of(store, hub)) as bridge:
            bridge.start()
            assert {found.get(timeout=TIMEOUT) for _ in range(2)} == task_ids
            assert not store.broken
