"""Fair shares: some slots are always left for the next owner, unless fixed numbers are set; threads give the interpreter to others."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from a2a_sync.concurrency.quotas import Quotas, Share, ShortSwitchInterval
from a2a_sync.limits import OwnerQuota
from a2a_sync.operations import quota_owner


def fill(share: Share, owner: str) -> int:
    """Take all that `owner` may have; how many that were."""
    taken = 0
    while share.admits(owner):
        share.take(owner)
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("total", "taken"), [(1, [1, 0]), (2, [1, 1, 0]), (6, [3, 2, 1, 0]), (64, [32, 16, 8, 4, 2, 1, 1])]
)
def test_each_owner_may_take_half_of_what_is_left(total: int, taken: list[int]) -> None:
    share = Quotas().share(total)
    assert [fill(share, f"owner {n}") for n in range(len(taken))] == taken


def test_owners_that_take_turns_get_equal_parts_and_leave_one_part_free() -> None:
    share = Quotas().share(60)
    held = dict.fromkeys(["a", "b", "c"], 0)
    while any(share.admits(owner) for owner in held):
        for owner in held:
            if share.admits(owner):
                share.take(owner)
                held[owner] += 1
    assert held == {"a": 15, "b": 15, "c": 15}


def test_what_is_given_back_may_be_taken_again() -> None:
    share = Quotas().share(6)
    assert fill(share, "a") == 3
    share.release("a")
    assert share.taken == 2
    assert fill(share, "a") == 1
    for _ in range(3):
        share.release("a")
    assert share.taken == 0
    assert share._held == {}


def test_a_number_is_what_each_owner_may_have() -> None:
    share = Quotas().share(6, 4)
    assert [fill(share, owner) for owner in ("a", "", "b")] == [4, 2, 0]


def test_callers_without_a_principal_have_everything_unless_there_are_others() -> None:
    quotas = Quotas()
    assert fill(quotas.share(6), "") == 6
    quotas.several = True
    assert fill(quotas.share(6), "") == 3


def test_the_agents_of_a_host_count_together() -> None:
    assert quota_owner("echo\x1fada") == quota_owner("sum\x1fada") == quota_owner("ada") == "ada"
    assert quota_owner("echo\x1f") == ""


@pytest.mark.parametrize("name", ["max_concurrent_runs", "max_open_streams", "max_tasks", "max_stored_bytes"])
def test_a_quota_is_positive(name: str) -> None:
    with pytest.raises(ValueError, match=rf"OwnerQuota\.{name} must be positive, not 0"):
        OwnerQuota(**{name: 0})


@pytest.fixture
def interval() -> Iterator[ShortSwitchInterval]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield ShortSwitchInterval()
    sys.setswitchinterval(before)


def test_the_interval_is_short_while_there_are_users(interval: ShortSwitchInterval) -> None:
    interval.begin()
    interval.begin()
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_a_shorter_interval_of_the_program_is_kept(interval: ShortSwitchInterval) -> None:
    sys.setswitchinterval(0.0001)
    interval.begin()
    assert sys.getswitchinterval() == pytest.approx(0.0001)
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.0001)


def test_what_the_program_sets_meanwhile_stays(interval: ShortSwitchInterval) -> None:
    interval.begin()
    sys.setswitchinterval(0.002)
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.002)


def test_a_forked_child_has_no_users(interval: ShortSwitchInterval) -> None:
    interval.begin()
    interval.renew()
    assert sys.getswitchinterval() == pytest.approx(0.005)
    interval.begin()
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_a_child_that_is_forked_while_the_interval_is_restored_restores_it_too(
    interval: ShortSwitchInterval, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_interval = sys.setswitchinterval

    def fork(seconds: float) -> None:
        monkeypatch.setattr(sys, "setswitchinterval", set_interval)
        interval.renew()

    interval.begin()
    monkeypatch.setattr(sys, "setswitchinterval", fork)
    interval.end()
    assert sys.getswitchinterval() == pytest.approx(0.005)
