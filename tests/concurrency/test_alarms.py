"""The clock that ends waits: alarms come in order, are cancelled cheaply, and leave no thread behind."""

from __future__ import annotations

import threading
import time

import pytest

from a2a_sync.concurrency import alarms
from a2a_sync.concurrency.alarms import AlarmClock


def alarm_threads() -> int:
    return sum(thread.name == "a2a-alarms" for thread in threading.enumerate())


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

    assert done.wait(60)
    assert heard == ["past", "first", "second"]
    assert not cancelled.fired
    clock.close()


def test_an_alarm_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    clock = AlarmClock()
    done = threading.Event()
    clock.set(time.monotonic(), lambda: 1 / 0)  # type: ignore[arg-type]
    clock.set(time.monotonic() + 0.01, done.set)

    assert done.wait(60)
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
    monkeypatch.setattr(alarms, "_IDLE_SECONDS", 0.05)
    before = set(threading.enumerate())
    clock = AlarmClock()
    fired = threading.Event()
    clock.set(time.monotonic(), fired.set)
    assert fired.wait(60)
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()

    again = threading.Event()
    clock.set(time.monotonic(), again.set)
    assert again.wait(60)


def test_closing_ends_the_thread_and_forgets_alarms() -> None:
    before = set(threading.enumerate())
    clock = AlarmClock()
    clock.close()
    heard: list[int] = []
    clock.set(time.monotonic() + 0.2, lambda: heard.append(1))
    (thread,) = set(threading.enumerate()) - before
    clock.close()
    clock.close()
    thread.join(60)

    assert not thread.is_alive()
    assert heard == []


def test_the_thread_ends_at_once_with_the_last_alarm_that_is_discarded() -> None:
    before = set(threading.enumerate())
    clock = AlarmClock("a2a-test")
    first, second = (clock.set(time.monotonic() + 1000, lambda: None) for _ in range(2))
    (thread,) = set(threading.enumerate()) - before
    clock.discard(first)
    assert (thread.name, thread.is_alive()) == ("a2a-test", True)
    clock.discard(second)
    thread.join(60)

    assert not thread.is_alive()
