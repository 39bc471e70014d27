"""Components are started in order, drained and closed in reverse order, within one time limit."""

from __future__ import annotations

import time

import pytest

from a2a_sync.engine.components import Component, Components
from tests.engine import in_child


class Part(Component):
    def __init__(self, name: str, calls: list[str], *, starts: bool = True) -> None:
        self.name = name
        self.calls = calls
        self.starts = starts
        self.timeouts: list[float] = []

    @property
    def running(self) -> int:
        return 2

    def start(self) -> bool:
        self.calls.append(f"start {self.name}")
        return self.starts

    def drain(self) -> None:
        self.calls.append(f"drain {self.name}")

    def close(self, timeout: float = 10.0) -> None:
        self.calls.append(f"close {self.name}")
        self.timeouts.append(timeout)


def test_parts_start_in_order_and_are_closed_in_reverse_order_after_all_were_drained():
    calls: list[str] = []
    runs = Part("runs", calls)
    with Components(Part("store", calls), runs) as whole:
        whole.register(Part("outbox", calls), before=runs)
        whole.start()
        assert whole.running == 6
    starts = ["start store", "start outbox", "start runs"]
    drains = ["drain runs", "drain outbox", "drain store"]
    assert calls == [*starts, *drains, "close runs", "close outbox", "close store"]


def test_all_parts_share_the_time_limit():
    class Slow(Part):
        def close(self, timeout: float = 10.0) -> None:
            deadline = time.monotonic() + 0.01
            while time.monotonic() < deadline:
                pass

    early = Part("early", [])
    whole = Components(early, Slow("slow", []))
    whole.close(5.0)
    whole.close(0.001)
    assert 0 < early.timeouts[0] <= 4.99
    assert early.timeouts[1] == 0.0


def test_every_part_is_closed_after_errors_of_others_and_the_last_error_is_raised():
    class Failing(Part):
        def drain(self) -> None:
            super().drain()
            raise RuntimeError("drain")

        def close(self, timeout: float = 10.0) -> None:
            super().close(timeout)
            raise OSError(self.name)

    calls: list[str] = []
    parts = Part("first", calls), Failing("second", calls), Part("third", calls), Failing("fourth", calls)
    with pytest.raises(OSError, match="second"):
        Components(*parts).close()
    names = ["fourth", "third", "second", "first"]
    assert calls == [*(f"drain {name}" for name in names), *(f"close {name}" for name in names)]


def test_parts_are_started_once_in_each_process_and_again_where_one_could_not():
    calls: list[str] = []
    failing = Part("failing", calls, starts=False)
    whole = Components(Part("first", calls), failing)
    assert not whole.start()
    failing.starts = True
    assert whole.start()
    assert whole.start()
    assert calls == ["start first", "start failing"] * 2

    def child() -> None:
        assert whole.start()
        assert calls[4:] == ["start first", "start failing"]

    in_child(child)


def test_a_part_that_is_registered_later_is_started_and_one_that_left_is_not():
    calls: list[str] = []
    whole = Components(Part("first", calls))
    whole.start()
    late = Part("late", calls)
    whole.register(late)
    whole.start()
    assert calls == ["start first", "start first", "start late"]
    whole.deregister(late)
    whole.close()
    assert calls[3:] == ["drain first", "close first"]
