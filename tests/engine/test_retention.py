"""Old tasks are deleted, and long logs are compacted; listeners are notified, and no call hangs."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, InputRequired, Limits, TaskNotFoundError
from a2a_sync.engine.retention import Sweeper
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.types import Task, TaskState
from tests.engine import TIMEOUT, Background, Served, collect, eventually, in_child, serving

S = TaskState
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    paths = iter(range(100))
    yield from serving(
        MemoryStore if request.param == "memory" else lambda: SQLiteStore(tmp_path / f"{next(paths)}.db")
    )


def counting(message: Any, context: Any) -> Any:
    """``ask``: waits for an answer. A number: so many chunks, then the end, or with ``?`` a question."""
    if message.text == "ask":
        return InputRequired("and?")
    return chunks(int(message.text.rstrip("?")), InputRequired("more?") if message.text.endswith("?") else None)


def chunks(count: int, last: Any) -> Iterator[Any]:
    for n in range(count):
        yield f"{n} "
    return last


def sweep(served: Served, later: float) -> None:
    """What the sweeper of `served` would do so many seconds from now."""
    moment, passed = time.time_ns() + int(later * 1e9), time.monotonic() + later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("a2a_sync.concurrency.clock.time_ns", lambda: moment)
        patch.setattr("a2a_sync.concurrency.clock.monotonic", lambda: passed)
        while served.app._engine.sweeper.sweep():
            pass


def test_ended_tasks_go_after_a_week_and_waiting_ones_after_a_month(serve: Callable[..., Served]) -> None:
    served = serve(counting)
    ended, asking = served.send("1"), served.send("ask")
    sweep(served, 6 * DAY)
    assert served.get(ended.id).state is S.COMPLETED
    sweep(served, 8 * DAY)
    with pytest.raises(TaskNotFoundError):
        served.get(ended.id)
    sweep(served, 29 * DAY)
    assert served.get(asking.id).state is S.INPUT_REQUIRED
    sweep(served, 31 * DAY)
    with pytest.raises(TaskNotFoundError):
        served.get(asking.id)


def test_without_limits_everything_is_kept(serve: Callable[..., Served]) -> None:
    served = serve(counting, terminal_task_ttl=None, interrupted_task_ttl=None, stream_replay_window=None)
    made = [served.send(text).id for text in ("100", "ask")]
    logs = [served.log(task_id) for task_id in made]
    sweep(served, 10_000 * DAY)
    assert [served.log(task_id) for task_id in made] == logs


def test_a_running_task_is_never_too_old(serve: Callable[..., Served]) -> None:
    served = serve(lambda message, context: context.sleep(TIMEOUT))
    task_id = served.begin()
    sweep(served, 10_000 * DAY)
    assert served.cancel(task_id).state is S.CANCELED


def test_a_stream_of_a_deleted_task_ends(serve: Callable[..., Served]) -> None:
    served = serve(counting)
    task = served.send("ask")
    stream = served.subscribe(task.id)
    follower = Background(lambda: list(stream))
    sweep(served, 31 * DAY)
    assert [item.event for item in follower.result()] == [task]
    assert not served.app._engine.hub.has_listeners


def test_a_stream_of_an_evicted_task_ends() -> None:
    served = Served(counting, store=MemoryStore(max_tasks=2))
    stream = served.subscribe(served.send("ask").id)
    follower = Background(lambda: list(stream))
    for _ in range(3):
        served.send("ask")
    assert len(follower.result()) == 1
    served.close()


def test_a_removed_task_ends_its_streams_in_the_other_process_too(tmp_path: Path) -> None:
    one, other = (Served(counting, store=SQLiteStore(tmp_path / "tasks.db")) for _ in range(2))
    for served in (one, other):
        served.app._engine.start()
    follower = collect_later(other.subscribe(one.send("ask").id))
    sweep(one, 31 * DAY)
    assert len(follower.result()) == 1
    one.close()
    other.close()


def collect_later(stream: Any) -> Background:
    return Background(lambda: list(stream))


# -- the window of replay -----------------------------------------------------------------------------------------------


def numbers(items: list[Any]) -> list[int]:
    return [item.number for item in items]


def test_a_stream_can_be_taken_up_within_the_window_and_not_after_it(serve: Callable[..., Served]) -> None:
    served = serve(counting)
    task = served.send("100")
    version = served.store.head(("", ""), task.id).version
    sweep(served, 590)
    assert len(collect(served.subscribe(task.id, 50))) > 40
    sweep(served, 610)
    assert served.get(task.id) == task
    for number in (0, 50, version - 1):
        with pytest.raises(UnsupportedOperationError):
            served.subscribe(task.id, number)
    # Nothing was missed behind the last number.
    assert collect(served.subscribe(task.id, version)) == []


def test_a_number_before_the_window_gets_a_snapshot_of_a_task_that_goes_on(serve: Callable[..., Served]) -> None:
    served = serve(counting)
    task = served.send("100?")
    sweep(served, 610)
    stream = served.subscribe(task.id, 50)
    (first,) = stream.poll(TIMEOUT)
    assert first.event == served.get(task.id)
    served.send("2", task_id=task.id)
    rest = collect(stream)
    assert rest[-1].event.status.state is S.COMPLETED
    assert numbers(rest) == sorted(numbers(rest))
    assert numbers(rest)[0] > first.number
    assert collect(served.subscribe(task.id, first.number)) == rest


def test_a_reader_that_is_slower_than_the_window_is_cut_and_sees_no_gap(serve: Callable[..., Served]) -> None:
    served = serve(counting, max_buffered_batches=1)
    stream = served.stream("100")
    shown = stream.poll(TIMEOUT)
    served.quiet()
    sweep(served, 610)
    shown += collect(stream)
    assert numbers(shown) == list(range(shown[0].number, shown[0].number + len(shown)))
    assert len(shown) < 100


def test_a_client_that_comes_back_too_late_gets_the_whole_task_once(serve: Callable[..., Served]) -> None:
    served = serve(counting)
    task = served.send("100")
    sweep(served, 610)
    client = Client(served.app)
    assert client.wait(task.id, timeout=TIMEOUT) == task


# -- the thread ---------------------------------------------------------------------------------------------------------


def sweepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "a2a-sweep"]


def test_the_sweeper_starts_with_the_first_call_and_ends_with_the_app() -> None:
    # Sweepers of earlier tests may end meanwhile.
    before = set(sweepers())
    app = A2AApp(Agent("quiet", description="d"), limits=Limits(sweep_interval=0.01))
    assert set(sweepers()) <= before
    client = Client(app)
    for _ in range(2):
        client.list_tasks()
    (own,) = set(sweepers()) - before
    assert own.daemon
    app.close(timeout=0)
    eventually(lambda: not own.is_alive(), "the sweeper's end")


def test_old_tasks_go_by_themselves() -> None:
    served = Served(counting, sweep_interval=0.01, terminal_task_ttl=0.05)
    task = served.send("1")

    def gone() -> bool:
        try:
            served.get(task.id)
        except TaskNotFoundError:
            return True
        return False

    eventually(gone, "the removal")
    served.close()


def test_a_fault_of_the_store_does_not_end_the_sweeper(caplog: pytest.LogCaptureFixture) -> None:
    looks = threading.Semaphore(0)

    class Broken(MemoryStore):
        def sweep(self, expiry: Any, *, limit: int = 100) -> Any:
            looks.release()
            raise OSError("disk on fire")

    sweeper = Sweeper(Broken(), Served(counting).app._engine.hub, Limits(sweep_interval=0.01))
    sweeper.start()
    for _ in range(3):
        assert looks.acquire(timeout=TIMEOUT)
    sweeper.close()
    assert "disk on fire" in caplog.text


def test_the_sweeper_of_an_unused_app_ends_with_it() -> None:
    before = len(sweepers())  # those of earlier tests may end meanwhile
    served = Served(counting, sweep_interval=0.01)
    served.send("1")
    served.quiet()
    gone = weakref.ref(served.app._engine.sweeper)
    del served

    def collected() -> bool:
        gc.collect()
        return gone() is None and len(sweepers()) <= before

    eventually(collected, "the end of app and sweeper")


def test_a_forked_child_sweeps_with_a_thread_of_its_own() -> None:
    served = Served(counting, sweep_interval=0.01, terminal_task_ttl=0.01)
    served.send("1")

    def child() -> None:
        assert not sweepers()
        task = served.send("1")
        assert isinstance(task, Task)
        assert len(sweepers()) == 1
        eventually(lambda: served.list().total_size == 0, "the removal")

    in_child(child)
    served.close()
