"""The bound on the bytes of large responses that one process reads and encodes at the same time."""

from __future__ import annotations

import threading

import pytest

from a2a_sync.errors import OverloadedError
from a2a_sync.server import responses
from a2a_sync.server.responses import ResponseBudget
from tests.engine import TIMEOUT, Background


def test_a_response_waits_until_the_bytes_of_others_are_released() -> None:
    budget, reserved, finish = ResponseBudget(100), threading.Event(), threading.Event()

    def first() -> None:
        budget.reserve(60)
        reserved.set()
        assert finish.wait(TIMEOUT)
        budget.release()

    holder = Background(first)
    assert reserved.wait(TIMEOUT)
    budget.reserve(40)
    budget.release()
    second = Background(lambda: (budget.reserve(41), budget.release()))
    with pytest.raises(AssertionError, match="did not return"):
        second.result(0.05)
    finish.set()
    holder.result(TIMEOUT)
    second.result(TIMEOUT)
    budget.reserve(100)


def test_a_response_is_refused_that_would_wait_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_WAIT_SECONDS", 0.01)
    budget = ResponseBudget(100)
    Background(lambda: budget.reserve(60)).result(TIMEOUT)
    with pytest.raises(OverloadedError, match="large responses") as caught:
        budget.reserve(41)
    assert caught.value.retry_after


def test_a_response_larger_than_the_bound_is_alone() -> None:
    budget = ResponseBudget(100)
    budget.reserve(1000)
    budget.release()
    budget.release()
    budget.reserve(100)
