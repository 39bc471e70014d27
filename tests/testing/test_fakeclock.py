"""The fake clock: what goes by it, what does not, and that it leaves nothing behind."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_sync import A2AApp, Limits, TaskNotFoundError, TaskState
from a2a_sync.concurrency import clock
from a2a_sync.testing import FakeClock, Hold, Pause, ScriptedAgent, client_of
from tests.engine import TIMEOUT, Background, eventually

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_tasks_get_their_times_from_it() -> None:
    with FakeClock(NOON) as fake, client_of(ScriptedAgent("x")) as client:
        first = client.send("go")
        fake.advance(90)
        second = client.send("go")
    assert first.status.timestamp == NOON
    assert second.status.timestamp == NOON + timedelta(seconds=90)


def test_an_agent_sleeps_by_it(a2a_clock: FakeClock, a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent([Pause(3600), "done"]))
    task = client.send("go", return_immediately=True)
    a2a_clock.await_sleeper()
    a2a_clock.advance(3599)
    assert client.get_task(task.id).state is TaskState.WORKING
    a2a_clock.advance(1)
    assert client.wait(task.id, timeout=TIMEOUT).text == "done"


@pytest.mark.parametrize("limit", [3600.0, 0.3])
def test_a_sleep_as_long_as_the_limit_of_its_run_is_within_it(limit: float, monkeypatch: Any) -> None:
    # With this beginning (begin + limit) - begin is more than the limit, in floating point.
    begin = next(n * 0.1 for n in range(10**6) if n * 0.1 + limit - n * 0.1 > limit)
    with monkeypatch.context() as patch:
        patch.setattr("a2a_sync.testing.fakeclock.time", SimpleNamespace(monotonic=lambda: begin))
        made = FakeClock()
    with made as fake:
        began = fake.monotonic()
        fake.advance(limit)
        assert 0 < fake.monotonic() - began <= limit


def test_small_steps_add_up_to_the_whole(a2a_clock: FakeClock, a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent([Pause(1), "done"]))
    task = client.send("go", return_immediately=True)
    a2a_clock.await_sleeper()
    for _ in range(10):
        a2a_clock.advance(0.1)
    assert client.wait(task.id, timeout=TIMEOUT).text == "done"


def test_a_cancel_wakes_a_sleeper_all_the_same(a2a_clock: FakeClock, a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent([Pause(3600), "done"]))
    task = client.send("go", return_immediately=True)
    a2a_clock.await_sleeper()
    assert client.cancel_task(task.id).state is TaskState.CANCELED
    eventually(lambda: not a2a_clock._sleepers(), "the end of the sleep")


@pytest.mark.parametrize("store", ["memory:", "sqlite:///tasks.db"])
def test_old_tasks_go_by_it(store: str, a2a_clock: FakeClock, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with A2AApp(ScriptedAgent("x"), store=store) as app, client_of(app) as client:
        task = client.send("go")
        a2a_clock.advance(6 * DAY)
        assert client.get_task(task.id).text == "x"
        a2a_clock.advance(2 * DAY)
        with pytest.raises(TaskNotFoundError):
            client.get_task(task.id)


def test_no_app_is_so_new_that_it_misses_what_goes_by(a2a_clock: FakeClock, a2a_client: Any) -> None:
    for _ in range(20):
        client = a2a_client(ScriptedAgent("x"))
        task = client.send("go")
        a2a_clock.advance(8 * DAY)
        with pytest.raises(TaskNotFoundError):
            client.get_task(task.id)


def test_time_does_not_go_by_before_the_threads_of_an_app_wait_for_it(a2a_clock: FakeClock) -> None:
    ready, woken = threading.Event(), threading.Event()

    def keep() -> None:
        ready.wait(TIMEOUT)
        clock.wait(threading.Event(), 60)
        woken.set()

    threading.Thread(target=keep, name="a2a-sweep", daemon=True).start()
    before, caller = a2a_clock.now, Background(lambda: a2a_clock.advance(60))
    assert not woken.wait(0.05)
    assert (a2a_clock.now, caller.waiting) == (before, True)
    ready.set()
    caller.result()
    assert woken.wait(TIMEOUT)


@pytest.mark.parametrize("limit", ["run_timeout", "run_idle_timeout"])
def test_runs_end_by_it(limit: str, a2a_clock: FakeClock) -> None:
    hold = Hold()
    app = A2AApp(ScriptedAgent([hold]), limits=Limits(**{limit: 3600.0}))
    with app, client_of(app) as client:
        task = client.send("go", return_immediately=True)
        assert hold.reached.wait(TIMEOUT)
        a2a_clock.advance(3500)
        assert client.get_task(task.id).state is TaskState.WORKING
        a2a_clock.advance(200)
        assert client.wait(task.id, timeout=TIMEOUT).state is TaskState.FAILED
        assert "3600 seconds" in client.get_task(task.id).text


def test_setting_it_wakes_no_thread(a2a_clock: FakeClock, a2a_client: Any) -> None:
    client = a2a_client(ScriptedAgent([Pause(60), "done"], "later"))
    task = client.send("go", return_immediately=True)
    a2a_clock.await_sleeper()
    a2a_clock.now = NOON
    assert client.send("go").status.timestamp == NOON
    assert client.get_task(task.id).state is TaskState.WORKING


def test_time_limits_of_calls_do_not_go_by_it(a2a_clock: FakeClock, a2a_client: Any) -> None:
    hold = Hold()
    client = a2a_client(ScriptedAgent([hold]))
    with pytest.raises(TimeoutError):
        client.send("go", timeout=0.05)
    hold.release()


def test_there_is_one_at_a_time_and_then_the_machines_again() -> None:
    before = (clock.time_ns, clock.monotonic, clock.wait, clock.sleep)
    with FakeClock(NOON), pytest.raises(RuntimeError), FakeClock():
        pass
    assert (clock.time_ns, clock.monotonic, clock.wait, clock.sleep) == before


def test_what_is_no_time_is_refused(a2a_clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="time zone"):
        FakeClock(datetime(2026, 5, 1))
    with pytest.raises(ValueError, match="time zone"):
        a2a_clock.now = datetime(2026, 5, 1)
    with pytest.raises(ValueError, match="go back"):
        a2a_clock.advance(-1)


def test_a_sleeper_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr("a2a_sync.testing.fakeclock._TIMEOUT", 0.02)
    with FakeClock() as fake, pytest.raises(AssertionError, match="1 agents sleep"):
        fake.await_sleeper()
