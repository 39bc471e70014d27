"""Listeners are called in order, on a thread of their own, and do not affect the notifying thread."""

from __future__ import annotations

import threading

from a2a_sync.concurrency import observers
from a2a_sync.concurrency.observers import Listeners
from tests.engine import TIMEOUT, Gate, eventually


def test_events_are_delivered_in_order_on_a_daemon_thread():
    received, threads, listeners = [], set(), Listeners()
    listeners.on("a", received.append)
    listeners.on("b", received.append)
    listeners.on("a", lambda what: threads.add(threading.current_thread()))
    for number in range(100):
        listeners.notify("ab"[number % 2], number)
    assert listeners.flush(TIMEOUT)
    assert received == list(range(100))
    (thread,) = threads
    assert (thread.name, thread.daemon) == ("a2a-listeners", True)
    listeners.close()


def test_what_a_listener_raises_is_logged_and_the_next_one_is_called(caplog):
    received, listeners = [], Listeners()
    listeners.on("a", lambda what: 1 / 0)
    listeners.on("a", received.append)
    listeners.notify("a", 1)
    listeners.flush(TIMEOUT)
    assert received == [1]
    assert "a listener for a failed" in caplog.text
    listeners.close()


def test_notifying_does_not_wait_and_excess_events_are_dropped(monkeypatch, caplog):
    monkeypatch.setattr(observers, "_MAX_EVENTS", 2)
    gate, received, listeners = Gate(), [], Listeners()
    listeners.on("a", lambda what: gate.block())
    listeners.on("b", received.append)
    listeners.notify("a", 0)
    gate.wait()
    for number in range(4):
        listeners.notify("b", number)
    assert not listeners.flush(0.01)
    assert "dropped one more" in caplog.text
    gate.open.set()
    eventually(lambda: received == [0, 1])
    listeners.close()


def test_a_removed_listener_is_not_called():
    received, listeners = [], Listeners({"aa": "a"})
    listeners.on("aa", received.append)
    assert listeners.has_listeners("a")
    assert listeners.off("a", received.append)
    assert not listeners.off("a", received.append)
    listeners.notify("a", 1)
    assert listeners.flush(TIMEOUT)
    assert received == []


def test_a_listener_that_waits_for_all_to_be_heard_does_not_wait_for_itself():
    outcome, listeners = [], Listeners()
    listeners.on("a", lambda what: outcome.append(listeners.flush(TIMEOUT)))
    listeners.notify("a", 1)
    assert listeners.flush(TIMEOUT)
    assert outcome == [False]
    listeners.close()


def test_an_idle_thread_ends_and_comes_back(monkeypatch):
    monkeypatch.setattr(observers, "_IDLE_SECONDS", 0.01)
    received, listeners = [], Listeners()
    listeners.on("a", received.append)
    for number in range(2):
        listeners.notify("a", number)
        listeners.flush(TIMEOUT)
        eventually(lambda: listeners._thread is None)
    assert received == [0, 1]


def test_a_forked_child_hears_with_a_thread_of_its_own():
    received, listeners = [], Listeners()
    listeners.on("a", received.append)
    listeners.notify("a", 1)
    listeners.flush(TIMEOUT)
    listeners.renew()  # what a fork does to it
    listeners.notify("a", 2)
    assert listeners.flush(TIMEOUT)
    assert received == [1, 2]
