"""Which webhook is posted to next: fair between owners, then between receivers, with few places for those that may hang."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from a2a_sync import TaskPushNotificationConfig
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.limits import OwnerQuota
from a2a_sync.operations import OWNER_MARK
from a2a_sync.push.fairqueue import FairQueue
from a2a_sync.stores.base import Owner, StoredWebhook


def webhook(number: int, host: str, owner: str = "", tenant: str = "") -> StoredWebhook:
    config = TaskPushNotificationConfig(url=f"https://{host}/hook", id="one", task_id=f"t{number}")
    scope = Owner(tenant, owner)
    return StoredWebhook(owner=scope, config=config, number=1, version="1.0", revision=1, cursor=0, head=1)


def line_of(places: int, *, several: bool = False, **quota: int) -> FairQueue:
    quotas = Quotas(OwnerQuota(**quota))
    quotas.several = several
    return FairQueue(places, quotas)


def taken(line: FairQueue) -> list[StoredWebhook]:
    return list(iter(line.next, None))


def hosts(webhooks: list[StoredWebhook]) -> list[str]:
    return [one.config.url.split("/")[2] for one in webhooks]


def owners(webhooks: list[StoredWebhook]) -> Counter[str]:
    return Counter(one.owner.id for one in webhooks)


def prove(line: FairQueue, *receivers: str, owner: str = "", accepted: bool = True) -> None:
    """One delivery to each receiver, which it takes or not."""
    for number, host in enumerate(receivers):
        one = webhook(-number - 1, host, owner)
        line.add(one)
        assert line.next() == one
        line.end(one, accepted=accepted)


def test_receivers_take_turns_and_none_has_more_than_a_quarter_of_the_places() -> None:
    line = line_of(16)
    prove(line, "many.example", "few.example")
    for number in range(20):
        line.add(webhook(number, "many.example"))
    line.add(webhook(20, "few.example"))
    line.add(webhook(21, "few.example"))
    first = taken(line)
    assert hosts(first) == [
        "many.example",
        "few.example",
        "many.example",
        "few.example",
        "many.example",
        "many.example",
    ]
    line.end(first[0], accepted=True)
    assert hosts(taken(line)) == ["many.example"]


def test_receivers_with_many_webhooks_do_not_starve_one_with_few() -> None:
    line = line_of(4)
    for number in range(40):
        line.add(webhook(number, f"{number % 4}.example"))
    line.add(webhook(40, "last.example"))
    for _ in range(4):
        began = taken(line)
        for one in began:
            line.end(one, accepted=True)
        if "last.example" in hosts(began):
            return
    raise AssertionError("the receiver with one webhook has no turn")


@pytest.mark.parametrize("took", [False, None], ids=["failed", "never asked"])
def test_receivers_that_may_hang_have_half_of_the_places_and_one_each(took: bool | None) -> None:
    line = line_of(4)
    if took is not None:
        prove(line, *(f"{number}.example" for number in range(3)), accepted=took)
    for number in range(10, 16):
        line.add(webhook(number, f"{number % 3}.example"))
    tried = taken(line)
    assert len(tried) == len(set(hosts(tried))) == 2
    line.end(tried[0], accepted=True)
    assert len(taken(line)) >= 1


def test_hosts_that_never_took_a_notification_have_few_places_of_an_owner() -> None:
    line = line_of(16, several=True)
    for number in range(100):
        line.add(webhook(number, f"{number}.wild.example", "mallory"))
    assert len(taken(line)) == 2
    numbers = itertools.count(1000)
    for owner in ("ada", "bob", "cleo"):
        for number in range(5):
            line.add(webhook(next(numbers), f"{owner}-{number}.example", owner))
    began = taken(line)
    # A quarter of all places is for receivers that are new.
    assert owners(began) == {"ada": 1, "bob": 1}
    # Those that once took one are not among them.
    line.end(began[0], accepted=True)
    line.end(began[1], accepted=False)
    assert owners(taken(line))["cleo"] >= 1


def test_what_was_not_posted_proves_nothing() -> None:
    line = line_of(16, several=True)
    one = webhook(1, "new.example", "ada")
    line.add(one)
    line.end(line.next() or one, accepted=None)
    for number in range(2, 9):
        line.add(webhook(number, "new.example", "ada"))
    assert len(taken(line)) == 1


def test_owners_take_turns_whatever_they_have_waiting_in_however_many_tenants() -> None:
    line = line_of(16, several=True)
    for owner in ("mallory", "ada"):
        prove(line, *(f"{number}.{owner}.example" for number in range(20)), owner=owner)
    for number in range(1000):
        line.add(webhook(number, f"{number % 20}.mallory.example", "mallory", f"tenant {number}"))
    first = taken(line)
    assert owners(first) == {"mallory": 8}
    for number in range(1000, 1010):
        line.add(webhook(number, f"{number % 20}.ada.example", "ada"))
    assert owners(taken(line)) == {"ada": 4}
    line.end(first[0], accepted=True)
    assert owners(taken(line)) == {"ada": 1}


def test_the_agents_of_one_host_count_as_one_for_an_owner() -> None:
    line = line_of(16, several=True)
    for number in range(40):
        line.add(webhook(number, f"{number}.example", f"agent-{number}{OWNER_MARK}mallory"))
    assert len(taken(line)) == 2


def test_a_quota_caps_the_deliveries_of_an_owner() -> None:
    line = line_of(16, several=True, max_concurrent_deliveries=3)
    prove(line, *(f"{number}.example" for number in range(10)), owner="ada")
    for number in range(10):
        line.add(webhook(number, f"{number}.example", "ada"))
    assert len(taken(line)) == 3


def test_an_owner_with_many_hosts_forgets_none_of_another_owner() -> None:
    line = line_of(16, several=True)
    prove(line, "good.example", owner="ada")
    prove(line, *(f"{number}.wild.example" for number in range(2000)), owner="mallory")
    for number in range(10):
        line.add(webhook(number, "good.example", "ada"))
    assert len(taken(line)) == 4


def test_one_that_is_in_line_keeps_its_place_and_goes_where_it_leads_now() -> None:
    line = line_of(16)
    prove(line, "old.example", "new.example")
    first = webhook(1, "old.example")
    line.add(first)
    line.add(webhook(2, "old.example"))
    line.add(replace(first, head=9))
    assert [one.head for one in taken(line)] == [9, 1]
    moved = webhook(3, "old.example")
    line.add(moved)
    line.add(replace(moved, config=replace(moved.config, url="https://new.example/hook")))
    assert hosts(taken(line)) == ["new.example"]
    assert line.active(moved)
    assert not line.idle


def steps(work: Callable[[], None]) -> int:
    """How many lines of Python `work` takes: the same on a busy machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_long_line_costs_no_more_than_a_short_one() -> None:
    """Ten times as many webhooks of one receiver take ten times as many steps, not a hundred times."""

    def report(webhooks: list[StoredWebhook]) -> None:
        line = line_of(16)
        for one in webhooks:
            line.add(one)
        while going := taken(line):
            for one in going:
                line.end(one, accepted=True)
        assert line.idle

    few, many = ([webhook(number, "one.example") for number in range(count)] for count in (50, 500))
    assert steps(lambda: report(many)) < 12 * steps(lambda: report(few))


def test_few_webhooks_of_an_owner_wait_in_memory_and_more_are_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("a2a_sync.push.fairqueue._MAX_WAITING", 10)
    line = line_of(16, several=True)
    hooks = [webhook(number, f"host-{number}.example", "greedy") for number in range(30)]

    def deliver(webhooks: list[StoredWebhook]) -> list[int]:
        """The positions of those that are delivered, of all that are added."""
        for one in webhooks:
            line.add(one)
        delivered = []
        while not line.idle:
            for one in taken(line):
                delivered.append(one.head)
                line.end(one, accepted=True)
        return delivered

    # One that waits is updated all the same, and the webhooks of another owner are added.
    updated = [*hooks, replace(hooks[0], head=2), webhook(99, "other.example", "other")]
    assert sorted(deliver(updated)) == [1] * 10 + [2]
    assert line.wants_more()
    assert not line.wants_more()
    assert deliver(hooks[10:15]) == [1] * 5
    assert not line.wants_more()
