"""The event loop of all runs, and how it divides its time between owners."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from a2a_sync.concurrency import eventloop
from a2a_sync.concurrency.eventloop import EventLoop, _Turns
from a2a_sync.concurrency.quotas import current_owner

TIMEOUT = 60.0


def as_owner(owner: str) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(current_owner.set, owner)
    return context


class Rounds:
    """Runs the callbacks of a `_Turns` as asyncio does, by a clock that each of them moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(eventloop, "time", self)
        self.turns = _Turns()
        self.loop = asyncio.new_event_loop()
        self.called: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def add(self, name: str, seconds: float, *, then: Callable[[], None] = lambda: None) -> None:
        """A callback of the owner `name`, without the digits, that takes `seconds`."""

        def call() -> None:
            self.called.append(name)
            self.now += seconds
            then()

        self.turns.append(asyncio.Handle(call, (), self.loop, as_owner(name.rstrip("0123456789"))))

    def round(self) -> int:
        """One round; how many callbacks it has called."""
        assert bool(self.turns)
        before = len(self.called)
        for _ in range(len(self.turns)):
            handle = self.turns.popleft()
            if not handle.cancelled():
                handle._run()
        return len(self.called) - before

    def all(self) -> list[str]:
        while self.turns:
            self.round()
        return self.called


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rounds]:
    made = Rounds(monkeypatch)
    yield made
    made.loop.close()


def test_the_callbacks_of_one_owner_are_called_in_their_order(rounds: Rounds) -> None:
    for number in range(10):
        rounds.add(f"ada{number}", 0.001)
    assert rounds.all() == [f"ada{number}" for number in range(10)]


def test_an_owner_with_short_callbacks_waits_for_one_long_callback_of_another(rounds: Rounds) -> None:
    for number in range(20):
        rounds.add(f"mal{number}", 0.5)
    rounds.round()
    rounds.add("ada1", 0.001, then=lambda: rounds.add("ada2", 0.001, then=lambda: rounds.add("ada3", 0.001)))
    assert rounds.all()[:5] == ["mal0", "ada1", "ada2", "ada3", "mal1"]
    assert len(rounds.called) == 23


def test_owners_with_equal_callbacks_take_turns(rounds: Rounds) -> None:
    for number in range(10):
        rounds.add(f"mal{number}", 0.5)
    for number in range(3):
        rounds.add(f"ada{number}", 0.5)
    assert "".join(name[0] for name in rounds.all()[:6]) in ("mamama", "amamam")


def test_an_owner_that_had_no_callbacks_for_long_gets_no_more_time_for_that(rounds: Rounds) -> None:
    for number in range(100):
        rounds.add(f"mal{number}", 0.5)
    for _ in range(50):
        rounds.round()
    for number in range(10):
        rounds.add(f"ada{number}", 0.5)
    assert sum(name.startswith("ada") for name in rounds.all()[50:60]) in (4, 5, 6)


def test_a_round_of_long_callbacks_ends_early_and_one_of_short_callbacks_calls_all(rounds: Rounds) -> None:
    for number in range(3):
        rounds.add(f"mal{number}", 0.5)
    assert [rounds.round() for _ in range(3)] == [1, 1, 1]
    for number in range(30):
        rounds.add(f"mal{number}", 0.0)
    assert rounds.round() == 30


def test_no_more_than_so_many_owners_are_remembered(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventloop, "_MAX_OWNERS", 10)
    for number in range(100):
        rounds.add(f"owner-{number}-", 0.001)
        if number % 7 == 0:
            rounds.round()
    assert len(rounds.all()) == 100
    for number in range(20):
        rounds.add(f"later-{number}-", 0.001)
        rounds.round()
    assert len(rounds.turns._spent) <= 11


def test_a_loop_divides_its_time_between_owners() -> None:
    event_loop = EventLoop("a2a-test")
    loop = event_loop.loop
    order: list[str] = []
    ended = Future[None]()

    async def many(number: int) -> None:
        sum(range(300_000))
        order.append("many")

    async def few() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        order.append("few")
        ended.set_result(None)

    def begin() -> None:
        tasks: list[Any] = [loop.create_task(many(number), context=as_owner("mal")) for number in range(100)]
        tasks.append(loop.create_task(few(), context=as_owner("ada")))
        order.append(f"begun {len(tasks)}")

    loop.call_soon_threadsafe(begin)
    ended.result(TIMEOUT)
    assert order.index("few") < 20
    event_loop.stop()
