"""Background threads: if the machine cannot start one it is started later, and nothing fails meanwhile."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from a2a_sync import Limits, SQLiteStore
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.concurrency.background import BoundedRead, Periodic, start_thread
from a2a_sync.concurrency.observers import Listeners
from a2a_sync.engine.bridge import ProcessBridge
from a2a_sync.engine.hub import EventHub, Waiter
from a2a_sync.engine.runs import RunManager
from a2a_sync.testing.storecontract.making import done
from tests.engine import TIMEOUT, eventually, in_child


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """In its block no thread can be started."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def block() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            yield

    return block


def test_a_thread_has_its_name_and_ends_with_the_process() -> None:
    done = threading.Event()
    thread = start_thread("a2a-test", done.set)
    assert thread is not None
    assert (thread.name, thread.daemon, done.wait(TIMEOUT)) == ("a2a-test", True, True)


def test_where_there_is_none_that_is_logged(exhausted, caplog) -> None:
    with exhausted():
        assert start_thread("a2a-test", print) is None
    assert "no thread for a2a-test" in caplog.text


def test_a_periodic_job_runs_in_rounds_on_one_daemon_thread_with_its_name() -> None:
    rounds: queue.Queue[threading.Thread] = queue.Queue()

    def job() -> float:
        rounds.put(threading.current_thread())
        return 0.0

    periodic = Periodic("a2a-test", job, retry=0.0)
    assert periodic.start()
    assert periodic.start()
    threads = {rounds.get(timeout=TIMEOUT) for _ in range(3)}
    periodic.stop(TIMEOUT)
    (thread,) = threads
    assert (thread.name, thread.daemon, thread.is_alive()) == ("a2a-test", True, False)
    rounds.queue.clear()
    periodic.start()
    assert rounds.empty()


def test_a_periodic_job_that_fails_is_logged_and_called_again(caplog) -> None:
    second = threading.Event()
    calls: list[int] = []

    def job() -> float:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("disk on fire")
        second.set()
        return 60.0

    periodic = Periodic("a2a-test", job, retry=0.0)
    periodic.start()
    assert second.wait(TIMEOUT)
    periodic.stop()
    assert "a2a-test failed" in caplog.text
    assert "disk on fire" in caplog.text


def test_the_stack_of_a_periodic_job_that_fails_again_alike_is_logged_once(caplog) -> None:
    raised = iter([OSError("away"), OSError("away"), OSError("full"), None, OSError("full")])

    def job() -> float:
        if failure := next(raised):
            raise failure
        return 0.0

    periodic = Periodic("a2a-test", job, retry=0.0)
    for _ in range(5):
        periodic.round()
    logged = [(record.getMessage().rpartition(" ")[2], bool(record.exc_info)) for record in caplog.records]
    assert logged == [("away", True), ("away", False), ("full", True), ("full", True)]


def _runs(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_a_periodic_job_that_ends_starts_again_also_when_asked_while_it_ends() -> None:
    calls: list[int] = []

    def job() -> None:
        calls.append(1)
        if len(calls) == 2:
            periodic.start()

    periodic = Periodic("a2a-test", job, retry=0.0)
    periodic.start()
    eventually(lambda: not _runs("a2a-test"), "the first end")
    assert len(calls) == 1
    periodic.start()
    eventually(lambda: not _runs("a2a-test") and len(calls) == 3, "the second end")


def test_a_periodic_job_that_found_no_thread_starts_later(exhausted) -> None:
    called = threading.Event()
    periodic = Periodic("a2a-test", called.set, retry=0.0)  # type: ignore[arg-type]
    with exhausted():
        assert not periodic.start()
    assert periodic.start()
    assert called.wait(TIMEOUT)


def test_a_periodic_job_that_is_woken_does_not_wait_for_its_next_round() -> None:
    rounds: queue.Queue[int] = queue.Queue()

    def job() -> float:
        rounds.put(1)
        return 600.0

    periodic = Periodic("a2a-test", job, retry=600.0)
    for _ in range(3):
        assert periodic.wake()
        assert rounds.get(timeout=TIMEOUT)
    periodic.stop(TIMEOUT)
    assert not _runs("a2a-test")
    periodic.wake()
    assert rounds.empty()


def test_a_forked_child_starts_a_periodic_job_of_its_own() -> None:
    called = threading.Event()

    def job() -> float:
        called.set()
        return 60.0

    periodic = Periodic("a2a-test", job, retry=0.0)
    periodic.start()
    assert called.wait(TIMEOUT)

    def child() -> None:
        called.clear()
        assert not _runs("a2a-test")
        assert periodic.start()
        assert called.wait(TIMEOUT)

    in_child(child)
    periodic.stop()


def test_a_thread_keeps_no_object_of_a_periodic_job_alive() -> None:
    class Owner:
        def __init__(self) -> None:
            self.periodic = Periodic("a2a-test-owner", self.job, retry=0.0)

        def job(self) -> float:
            return 0.001

    owner = Owner()
    owner.periodic.start()
    gone = weakref.ref(owner)
    del owner

    def collected() -> bool:
        gc.collect()
        return gone() is None and all(thread.name != "a2a-test-owner" for thread in threading.enumerate())

    eventually(collected, "the end of the thread")


def test_events_without_a_thread_are_delivered_once_there_is_one(exhausted) -> None:
    heard: list[int] = []
    listeners = Listeners()
    listeners.on("a", heard.append)
    with exhausted():
        listeners.notify("a", 1)
    assert listeners.flush(TIMEOUT)
    assert heard == [1]
    listeners.close()


def test_a_store_that_could_not_be_polled_for_want_of_a_thread_is_polled_later(exhausted, tmp_path: Path) -> None:
    hub, limits = EventHub(), Limits()
    with closing(SQLiteStore(tmp_path / "tasks.db")) as store, Waiter(hub, done(store)) as waiter:
        runs = RunManager(lambda owner: None, store, hub, limits)
        with closing(ProcessBridge(None, store, hub, runs, limits)) as bridge:
            with exhausted():
                assert not bridge.start()
            assert bridge.start()
            assert waiter.wait(TIMEOUT)


def test_a_time_limit_without_a_thread_fails_its_call_and_no_other(exhausted) -> None:
    alarms, acted = AlarmClock(), threading.Event()
    try:
        with exhausted(), pytest.raises(RuntimeError):
            alarms.set(time.monotonic(), pytest.fail)
        alarms.set(time.monotonic(), acted.set)
        assert acted.wait(TIMEOUT)
    finally:
        alarms.close()


# -- reads that may hang ------------------------------------------------------------------------------------------------


def test_a_read_that_hangs_holds_one_caller_for_its_time_limit_and_no_other() -> None:
    release, reads = threading.Event(), queue.SimpleQueue[int]()

    def read() -> None:
        reads.put(1)
        assert release.wait(TIMEOUT)

    bounded = BoundedRead("a2a-test", read, interval=0.0, timeout=0.05)
    assert not bounded.refresh()
    assert bounded.refresh()
    release.set()
    eventually(lambda: bounded._due < float("inf"), "the end of the read")
    assert bounded.refresh()
    assert reads.qsize() == 2


def test_without_a_thread_a_read_is_made_by_its_caller_and_later_ones_are_made_too(
    exhausted: Callable[[], AbstractContextManager[None]],
) -> None:
    reads: list[threading.Thread] = []
    bounded = BoundedRead("a2a-test", lambda: reads.append(threading.current_thread()), interval=0.0, timeout=TIMEOUT)
    with exhausted():
        assert bounded.refresh()
        assert bounded.refresh()
    assert reads == [threading.current_thread()] * 2
    assert bounded.refresh()
    assert len(reads) == 3


def test_a_read_is_made_once_in_its_interval() -> None:
    reads: list[int] = []
    bounded = BoundedRead("a2a-test", lambda: reads.append(1), interval=3600.0, timeout=TIMEOUT)
    assert [bounded.refresh() for _ in range(3)] == [True] * 3
    assert reads == [1]
