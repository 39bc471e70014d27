"""A clock that is set while the server works: times shown may jump, but nothing is lost, doubled, buried or cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import InputRequired
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.types import TaskState
from tests.engine import PATIENCE, Gate, Served, collect, eventually, serving

S = TaskState
JUMPS = [timedelta(0), timedelta(hours=-3), timedelta(days=2), timedelta(seconds=-1), timedelta(days=-400)]


class Clock:
    """The machine's clock, which somebody sets."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def time_ns(self) -> int:
        return int((datetime.now(UTC) + self.ahead).timestamp() * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("a2a_sync.clock.time_ns", clock.time_ns)
    return clock


@pytest.fixture(params=["memory", "sqlite"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving(MemoryStore if request.param == "memory" else lambda: SQLiteStore(tmp_path / "tasks.db"))


def test_a_stream_is_whole_and_in_order_however_the_clock_is_set(serve: Callable[..., Served], clock: Clock) -> None:
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


def test_pages_hold_every_task_once_in_the_order_of_the_times_shown(serve: Callable[..., Served], clock: Clock) -> None:
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


def test_limits_and_waits_do_not_follow_the_clock(serve: Callable[..., Served], clock: Clock) -> None:
    gate = Gate()

    def handler(message: Any, context: Any) -> str:
        gate.here()
        return "done"

    served = serve(handler, max_runtime=PATIENCE, idle_timeout=PATIENCE, blocking=PATIENCE)
    sender = served.in_background()
    gate.wait()
    for jump in JUMPS:
        clock.ahead = jump
        # A look of the watchdog and of the waiting send at each time.
        eventually(lambda: served.app._engine.execution.running == 1)
        assert sender.waiting
    gate.open.set()
    assert sender.result().state is S.COMPLETED


def test_the_bound_on_tasks_is_kept_when_the_clock_goes_back(clock: Clock, tmp_path: Path) -> None:
    for store in (MemoryStore(max_tasks=5), SQLiteStore(tmp_path / "bounded.db", max_tasks=5)):
        served = Served(lambda message, context: "done", store=store)
        for number in range(20):
            clock.ahead = JUMPS[number % len(JUMPS)]
            served.send()
        assert served.list().total_size == 5
        served.close()
        store.close()


def test_a_clock_that_jumps_buries_nobody(clock: Clock, tmp_path: Path) -> None:
    gates = [Gate(), Gate()]

    def handler(message: Any, context: Any) -> str:
        gates[int(message.text)].here()
        return "done"

    apps = [Served(handler, store=SQLiteStore(tmp_path / "tasks.db"), beat=0.1) for _ in gates]
    tasks = []
    for number, served in enumerate(apps):
        served.app._engine.neighbours.meet()
        tasks.append(served.begin(str(number)))
        gates[number].wait()
    beats = apps[0].store.workers.beats
    for jump in JUMPS:
        clock.ahead = jump
        known = beats()
        eventually(lambda known=known: all(count > known[name] + 2 for name, count in beats().items()), "the beats")
    for number, (served, task_id) in enumerate(zip(apps, tasks, strict=True)):
        gates[number].open.set()
        served.until(task_id, S.COMPLETED)
    for served in apps:
        served.close()
