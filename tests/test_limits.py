"""The numbers that bound a server are refused where they make no sense, by name."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.push import PushOptions

NAMES = [item.name for item in fields(Limits)]
MAY_BE_NONE = {
    "max_history_part_bytes",
    "run_timeout",
    "run_idle_timeout",
    "blocking_send_timeout",
    "terminal_task_ttl",
    "interrupted_task_ttl",
    "stream_replay_window",
    "max_response_bytes",
    "max_task_bytes",
    "server_threads",
}
MAY_BE_ZERO = {
    "max_queued_runs",
    "max_abandoned_threads",
    "busy_task_timeout",
    "max_history_length",
    "direct_reply_timeout",
    "task_store_timeout",
    "cancel_handler_timeout",
}


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
    assert (
        limits.busy_task_timeout,
        limits.direct_reply_timeout,
        limits.cancel_handler_timeout,
        limits.stream_keepalive_interval,
    ) == (20.0, 0.03, 0.5, 15.0)
    assert limits.blocking_send_timeout is None


def test_every_limit_is_described():
    described = inspect.cleandoc(Limits.__doc__ or "")
    assert all(re.search(rf"^ +{name}: ", described, re.MULTILINE) for name in NAMES)


#: Endings of names of fields that are seconds, without a unit.
SECONDS = r"(timeout|\w+_(timeout|interval|ttl|window|age|backoff))"
#: Bytes, and counts in the plural; two counts are named after what A2A bounds by a size and a length.
COUNTS = r"(max_\w+s|max_page_size|max_history_length|server_threads)"


@pytest.mark.parametrize("options", [Limits, OwnerQuota, PushOptions])
def test_the_name_of_a_number_describes_its_unit(options):
    for item in fields(options):
        if str(item.type).startswith("float"):
            assert re.fullmatch(SECONDS, item.name), item.name
        elif str(item.type).startswith("int"):
            assert re.fullmatch(COUNTS, item.name), item.name
            assert not re.fullmatch(SECONDS, item.name), item.name
            assert ("bytes" in item.name) == item.name.endswith("_bytes"), item.name
