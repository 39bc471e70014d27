"""The numbers that bound a server are refused where they make no sense, by name."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from a2a_sync.limits import Limits

NAMES = [item.name for item in fields(Limits)]
MAY_BE_NONE = {
    "history_part",
    "max_runtime",
    "idle_timeout",
    "blocking",
    "keep_ended",
    "keep_waiting",
    "replay",
    "max_response_bytes",
    "max_task_bytes",
    "threads",
}
MAY_BE_ZERO = {"waiting", "leftovers", "busy_wait", "history", "direct", "cancel_grace"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("-inf")])
def test_a_negative_limit_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"Limits\.{name} must be positive"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_zero_is_taken_only_where_it_means_something(name):
    if name in MAY_BE_ZERO:
        assert getattr(Limits(**{name: 0}), name) == 0
    else:
        with pytest.raises(ValueError, match=name):
            Limits(**{name: 0})


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_is_taken_only_where_it_can_be_kept(name):
    if name in MAY_BE_NONE:
        assert getattr(Limits(**{name: None}), name) is None
    else:
        with pytest.raises(ValueError, match=rf"Limits\.{name} must be a number"):
            Limits(**{name: None})


def test_the_defaults_are_those_of_the_design():
    limits = Limits()
    assert (limits.busy_wait, limits.direct, limits.cancel_grace, limits.heartbeat) == (20.0, 0.03, 0.5, 15.0)
    assert limits.blocking is None


def test_every_limit_is_described():
    described = inspect.cleandoc(Limits.__doc__ or "")
    assert all(re.search(rf"^ +{name}: ", described, re.MULTILINE) for name in NAMES)
