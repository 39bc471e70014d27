"""Threads that look after something: where the machine has none left they come later, and nobody is hurt meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from a2a_sync.client.deadlines import AlarmClock
from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.observers import Listeners
from a2a_sync.engine.pubsub import ChangePoll
from tests.engine import PATIENCE


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """In its block there is no thread for anybody."""

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
    assert (thread.name, thread.daemon, done.wait(PATIENCE)) == ("a2a-test", True, True)


def test_where_there_is_none_that_is_logged(exhausted, caplog) -> None:
    with exhausted():
        assert start_thread("a2a-test", print) is None
    assert "no thread for a2a-test" in caplog.text


def test_what_was_told_without_a_thread_is_heard_when_there_is_one(exhausted) -> None:
    heard: list[int] = []
    told = Listeners()
    told.on("a", heard.append)
    with exhausted():
        told.tell("a", 1)
    assert told.flush(PATIENCE)
    assert heard == [1]
    told.close()


def test_a_store_that_could_not_be_polled_for_want_of_a_thread_is_polled_later(exhausted) -> None:
    changed = threading.Event()
    with closing(ChangePoll(lambda: None, changed.set, lambda: True, seconds=0.005)) as poll:
        with exhausted():
            poll.watch()
        poll.watch()
        assert changed.wait(PATIENCE)


def test_a_time_limit_that_nobody_can_keep_fails_its_call_and_no_other(exhausted) -> None:
    alarms, acted = AlarmClock(), threading.Event()
    try:
        with exhausted(), pytest.raises(RuntimeError):
            alarms.set(time.monotonic(), pytest.fail)
        alarms.set(time.monotonic(), acted.set)
        assert acted.wait(PATIENCE)
    finally:
        alarms.close()
