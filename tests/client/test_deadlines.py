"""Limits and deadlines of a client."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import Client, Timeout
from a2a_sync.client.deadlines import Deadline


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
