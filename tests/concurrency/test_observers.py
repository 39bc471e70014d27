"""Listeners are called in order, on a thread of their own, and cannot hurt who tells."""

from __future__ import annotations

import threading

from a2a_sync.concurrency import observers as listeners
from a2a_sync.concurrency.observers import Listeners
from tests.engine import PATIENCE, Gate, eventually


def test_all_that_is_told_is_heard_in_order_on_a_daemon_thread():
    heard, threads, told = [], set(), Listeners()
    told.on("a", heard.append)
    told.on("b", heard.append)
    told.on("a", lambda what: threads.add(threading.current_thread()))
    for number in range(100):
        told.notify("ab"[number % 2], number)
    assert told.flush(PATIENCE)
    assert heard == list(range(100))
    (thread,) = threads
    assert (thread.name, thread.daemon) == ("a2a-listeners", True)
    told.close()


def test_what_a_listener_raises_is_logged_and_the_next_one_is_called(caplog):
    heard, told = [], Listeners()
    told.on("a", lambda what: 1 / 0)
    told.on("a", heard.append)
    told.notify("a", 1)
    told.flush(PATIENCE)
    assert heard == [1]
    assert "a listener for a failed" in caplog.text
    told.close()


def test_who_tells_does_not_wait_and_what_is_too_much_is_dropped(monkeypatch, caplog):
    monkeypatch.setattr(listeners, "_MAX_EVENTS", 2)
    gate, heard, told = Gate(), [], Listeners()
    told.on("a", lambda what: gate.block())
    told.on("b", heard.append)
    told.notify("a", 0)
    gate.wait()
    for number in range(4):
        told.notify("b", number)
    assert not told.flush(0.01)
    assert "dropped one more" in caplog.text
    gate.open.set()
    eventually(lambda: heard == [0, 1])
    told.close()


def test_nobody_is_called_who_does_not_want_it_any_more():
    heard, told = [], Listeners({"aa": "a"})
    told.on("aa", heard.append)
    assert told.has_listeners("a")
    assert told.off("a", heard.append)
    assert not told.off("a", heard.append)
    told.notify("a", 1)
    assert told.flush(PATIENCE)
    assert heard == []


def test_a_listener_that_waits_for_all_to_be_heard_does_not_wait_for_itself():
    outcome, told = [], Listeners()
    told.on("a", lambda what: outcome.append(told.flush(PATIENCE)))
    told.notify("a", 1)
    assert told.flush(PATIENCE)
    assert outcome == [False]
    told.close()


def test_an_idle_thread_ends_and_comes_back(monkeypatch):
    monkeypatch.setattr(listeners, "_IDLE_SECONDS", 0.01)
    heard, told = [], Listeners()
    told.on("a", heard.append)
    for number in range(2):
        told.notify("a", number)
        told.flush(PATIENCE)
        eventually(lambda: told._thread is None)
    assert heard == [0, 1]


def test_a_forked_child_hears_with_a_thread_of_its_own():
    heard, told = [], Listeners()
    told.on("a", heard.append)
    told.notify("a", 1)
    told.flush(PATIENCE)
    told.renew()  # what a fork does to it
    told.notify("a", 2)
    assert told.flush(PATIENCE)
    assert heard == [1, 2]
