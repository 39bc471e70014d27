"""The system clock is set while the server works: timestamps may jump, but no event is lost, duplicated or cut short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import InputRequired
from a2a_sync.stores.base import Owner
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.types import TaskState
from tests.engine import TIMEOUT, Gate, Served, collect, eventually, heartbeats, serving

S = TaskState
JUMPS = [timedelta(0), timedelta(hours=-3), timedelta(days=2), timedelta(seconds=-1), timedelta(days=-400)]


class Clock:
    """The system clock, set by the test."""

    def __init__(self) -> None:
        self.ahead = self.passed = timedelta(0)

    def time_ns(self) -> int:
        return int((datetime.now(UTC) + self.passed + self.ahead).timestamp() * 1e9)

    def monotonic(self) -> float:
        return time.monotonic() + self.passed.total_seconds()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("a2a_sync.concurrency.clock.time_ns", clock.time_ns)
    monkeypatch.setattr("a2a_sync.concurrency.clock.monotonic", clock.monotonic)
    return clock


@pytest.fixture(params=["memory", "sqlite"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving(MemoryStore if request.param == "memory" else lambda: SQLiteStore(tmp_path / "tasks.db"))


def test_a_stream_is_complete_and_in_order_when_the_clock_is_set(serve: Callable[..., Served], clock: Clock) -> None:
    def handler(message: Any, context: Any) -> Any:
        for jump in JUMPS:
            clock.ahead = jump
            context.update(str(jump))
            yield f"{jump};"

    served = serve(handler)
    stream = served.stream()
    items = collect(stream)
    assert [item.number for item in items] == sorted({item.number for item in items})
    assert items[-1].event.status.state is S.COMPLETED
    task = served.get(items[0].event.id)
    assert task.artifacts[0].text == "".join(f"{jump};" for jump in JUMPS)
    assert collect(served.subscribe(task.id, items[0].number)) == items[1:]


def test_pages_list_every_task_once_in_order_of_timestamps(serve: Callable[..., Served], clock: Clock) -> None:
    served = serve(lambda message, context: InputRequired("and?") if message.text == "ask" else "done")
    for number in range(15):
        clock.ahead = JUMPS[number % len(JUMPS)]
        served.send("ask" if number % 3 else "go")
    shown, token = [], ""
    while True:
        page = served.list(page_size=4, page_token=token)
        assert page.total_size == 15
        shown += page.tasks
        token = page.next_page_token
        if not token:
            break
    assert len({task.id for task in shown}) == len(shown) == 15
    times = [task.status.timestamp for task in shown]
    assert times == sorted(times, reverse=True)


def test_time_limits_and_waits_do_not_follow_the_system_clock(serve: Callable[..., Served], clock: Clock) -> None:
    gate = Gate()

    def handler(message: Any, context: Any) -> str:
        gate.block()
        return "done"

    served = serve(handler, run_timeout=TIMEOUT, run_idle_timeout=TIMEOUT, blocking_send_timeout=TIMEOUT)
    sender = served.in_background()
    gate.wait()
    for jump in JUMPS:
        clock.ahead = jump
        # One iteration of the watchdog and of the waiting send.
        eventually(lambda: served.app._engine.runs.running == 1)
        assert sender.waiting
    gate.open.set()
    assert sender.result().state is S.COMPLETED


def test_the_task_limit_holds_when_the_clock_goes_back(clock: Clock, tmp_path: Path) -> None:
    for store in (MemoryStore(max_tasks=5), SQLiteStore(tmp_path / "bounded.db", max_tasks=5)):
        served = Served(lambda message, context: "done", store=store)
        for number in range(20):
            clock.ahead = JUMPS[number % len(JUMPS)]
            served.send()
        assert served.list().total_size == 5
        served.close()
        store.close()


def _beaten(apps: list[Served], known: dict[str, float]) -> bool:
    now = heartbeats(apps[0].store)
    return all(now[worker] > at + 0.2 for worker, at in known.items())


def test_a_clock_jump_does_not_expire_workers(clock: Clock, tmp_path: Path) -> None:
    gates = [Gate(), Gate()]

    def handler(message: Any, context: Any) -> str:
        gates[int(message.text)].block()
        return "done"

    apps = [Served(handler, store=SQLiteStore(tmp_path / "tasks.db"), worker_heartbeat_interval=0.1) for _ in gates]
    tasks = []
    for number, served in enumerate(apps):
        served.app._engine.start()
        tasks.append(served.begin(str(number)))
        gates[number].wait()
    for jump in JUMPS:
        clock.ahead = jump
        known = heartbeats(apps[0].store)
        eventually(lambda known=known: _beaten(apps, known), "the beats")
    for number, (served, task_id) in enumerate(zip(apps, tasks, strict=True)):
        gates[number].open.set()
        served.until(task_id, S.COMPLETED)
    for served in apps:
        served.close()


# -- removal by age -----------------------------------------------------------------------------------------------------

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def make_tasks(served: Served) -> list[str]:
    """Create a finished task, an interrupted one, and one whose log is long enough to be compacted."""
    return [served.send(word).id for word in ("end", "ask", "long")]


def handler_of_tasks(message: Any, context: Any) -> Any:
    if message.text == "ask":
        return InputRequired("and?")
    return (f"{number} " for number in range(100)) if message.text == "long" else "done"


def sweep(served: Served) -> None:
    while served.app._engine.sweeper.sweep():
        pass


def intact(served: Served, tasks: list[str]) -> bool:
    """Whether all tasks exist and none has been compacted."""
    logs = [served.store.log(Owner(), task_id) for task_id in tasks]
    return served.list().total_size == len(tasks) and not any(log.compacted for log in logs)


@pytest.mark.parametrize("jump", [timedelta(days=400), timedelta(days=-400)], ids=["forward", "backward"])
def test_a_temporary_clock_error_removes_nothing(serve: Callable[..., Served], clock: Clock, jump: timedelta) -> None:
    served = serve(handler_of_tasks)
    clock.passed = DAY
    sweep(served)
    tasks = make_tasks(served)
    for moment in (jump, timedelta(0), jump, timedelta(0)):
        clock.ahead = moment
        sweep(served)
        clock.passed += timedelta(seconds=4)
        sweep(served)
        assert intact(served, tasks)
    clock.passed += timedelta(minutes=9)
    sweep(served)
    assert intact(served, tasks)
    clock.passed += 8 * DAY
    sweep(served)
    # The limits apply again: one of the three tasks is interrupted.
    assert [task.id for task in served.list().tasks] == [tasks[1]]


def test_a_process_started_during_a_clock_error_removes_nothing(clock: Clock, tmp_path: Path) -> None:
    first = Served(handler_of_tasks, store=SQLiteStore(tmp_path / "tasks.db"))
    tasks = make_tasks(first)
    clock.ahead = timedelta(days=400)
    second = Served(handler_of_tasks, store=SQLiteStore(tmp_path / "tasks.db"))
    sweep(second)
    clock.passed += timedelta(minutes=9)
    sweep(second)
    assert intact(first, tasks)
    for served in (first, second):
        served.close()


def test_a_clock_step_is_accepted_after_as_long_as_its_size(serve: Callable[..., Served], clock: Clock) -> None:
    served = serve(handler_of_tasks)
    tasks = make_tasks(served)
    clock.passed = HOUR
    sweep(served)
    clock.ahead = 10 * DAY
    for _ in range(6):
        sweep(served)
        assert served.list().total_size == 3
        clock.passed += DAY
    clock.passed += DAY
    sweep(served)
    assert [task.id for task in served.list().tasks] == [tasks[1]]


def test_a_clock_step_is_logged(serve: Callable[..., Served], clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(handler_of_tasks)
    clock.passed = DAY
    sweep(served)
    assert "clock" not in caplog.text
    clock.ahead = DAY
    sweep(served)
    assert "the system clock was stepped by +86400 s" in caplog.text
    caplog.clear()
    sweep(served)
    assert "clock" not in caplog.text
