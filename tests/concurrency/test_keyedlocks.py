"""Locks by key: one holder at a time, other keys at once, and no wait without an end."""

from __future__ import annotations

import pytest

from a2a_sync.concurrency import keyedlocks
from a2a_sync.concurrency.keyedlocks import KeyedLocks
from tests.engine import TIMEOUT, Background, eventually
from tests.stopwatch import set_clock


def test_one_holder_at_a_time_and_other_keys_at_once() -> None:
    locks = KeyedLocks()
    release = locks.acquire("ada", TIMEOUT)
    second = Background(lambda: locks.acquire("ada", TIMEOUT))
    eventually(lambda: len(locks._locks["ada"][1]) == 2)
    locks.acquire("bob", 0)()
    assert second.waiting
    release()
    second.result()()
    assert locks._locks == {}


def test_a_wait_in_vain_ends_and_its_caller_continues() -> None:
    locks = KeyedLocks()
    release = locks.acquire("ada", TIMEOUT)
    locks.acquire("ada", 0.01)()
    assert list(locks._locks) == ["ada"]
    release()
    assert locks._locks == {}


def test_a_wait_in_vain_may_be_distinguished_from_the_lock() -> None:
    locks = KeyedLocks()
    release = locks.try_acquire("ada", TIMEOUT)
    assert release is not None
    assert locks.try_acquire("ada", 0.01) is None
    release()
    assert locks._locks == {}


def test_a_holder_that_others_wait_for_ends_after_a_pause_as_long_as_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    set_clock(monkeypatch, keyedlocks, sleep=pauses.append)
    locks = KeyedLocks()
    locks.acquire("ada", TIMEOUT)()
    assert pauses == []
    release = locks.acquire("ada", TIMEOUT)
    second = Background(lambda: locks.acquire("ada", TIMEOUT))
    eventually(lambda: len(locks._locks["ada"][1]) == 2)
    release()
    second.result()()
    assert len(pauses) == 1
    assert 0 < pauses[0] <= 0.5


def test_a_forked_child_holds_none() -> None:
    locks = KeyedLocks()
    locks.acquire("ada", TIMEOUT)
    locks.renew()
    locks.acquire("ada", 0)()
    assert locks._locks == {}
