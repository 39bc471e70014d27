"""Limits, deadlines and the clock that ends waits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from a2a_sync import Client, Timeout
from a2a_sync.client import deadlines as timeouts
from a2a_sync.client.deadlines import AlarmClock, Deadline


def alarm_threads() -> int:
    return sum(thread.name == "a2a-alarms" for thread in threading.enumerate())


def test_a_number_is_the_overall_limit() -> None:
    assert Timeout.of(3) == Timeout(connect=5.0, read=75.0, total=3)
    assert Timeout.of(None) == Timeout()
    assert Timeout.of(Timeout(read=None)).read is None


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_positive(value: float) -> None:
    with pytest.raises(ValueError, match=r"Timeout.read must be positive"):
        Timeout(read=value)


@pytest.mark.parametrize("value", ["3", (1, 2), b"3"])
def test_a_limit_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match=f"timeout takes seconds, not {type(value).__name__}"):
        Client("http://agent.test", timeout=value)
    with pytest.raises(TypeError, match=f"Timeout.total takes seconds, not {type(value).__name__}"):
        Timeout(total=value)
    with pytest.raises(TypeError, match=f"timeout takes seconds, not {type(value).__name__}"):
        Client("http://agent.test").get_task("t", timeout=value)


def test_the_limit_of_a_call_is_not_negative() -> None:
    with pytest.raises(ValueError, match="timeout must be positive, not -1"):
        Client("http://agent.test").get_task("t", timeout=-1)


def test_a_deadline_counts_down() -> None:
    deadline = Deadline.after(100)

    assert deadline.left is not None
    assert 99 < deadline.left <= 100
    assert not deadline.expired
    assert Deadline.after(0).expired
    assert Deadline.after(-5).left == 0
    assert Deadline.after(None).left is None


def test_alarms_come_in_the_order_of_their_times() -> None:
    clock = AlarmClock()
    heard: list[str] = []
    done = threading.Event()
    now = time.monotonic()
    clock.set(now + 0.15, done.set)
    clock.set(now + 0.10, lambda: heard.append("second"))
    clock.set(now + 0.05, lambda: heard.append("first"))
    clock.set(now - 1.00, lambda: heard.append("past"))
    cancelled = clock.set(now + 0.07, lambda: heard.append("never"))
    clock.cancel(cancelled)

    assert done.wait(5)
    assert heard == ["past", "first", "second"]
    assert not cancelled.fired
    clock.close()


def test_an_alarm_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    clock = AlarmClock()
    done = threading.Event()
    clock.set(time.monotonic(), lambda: 1 / 0)  # type: ignore[arg-type]
    clock.set(time.monotonic() + 0.01, done.set)

    assert done.wait(5)
    assert "an alarm failed" in caplog.text
    clock.close()


def test_cancelled_alarms_do_not_pile_up() -> None:
    clock = AlarmClock()
    for _ in range(10_000):
        clock.cancel(clock.set(time.monotonic() + 1000, lambda: None))

    assert len(clock._alarms) < 200
    assert alarm_threads() >= 1
    clock.close()


def test_the_thread_ends_when_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "_IDLE_SECONDS", 0.05)
    before = set(threading.enumerate())
    clock = AlarmClock()
    fired = threading.Event()
    clock.set(time.monotonic(), fired.set)
    assert fired.wait(5)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()

    again = threading.Event()
    clock.set(time.monotonic(), again.set)
    assert again.wait(5)


def test_closing_ends_the_thread_and_forgets_alarms() -> None:
    before = set(threading.enumerate())
    clock = AlarmClock()
    clock.close()
    heard: list[int] = []
    clock.set(time.monotonic() + 0.2, lambda: heard.append(1))
    (thread,) = set(threading.enumerate()) - before
    clock.close()
    clock.close()
    thread.join(5)

    assert not thread.is_alive()
    assert heard == []
