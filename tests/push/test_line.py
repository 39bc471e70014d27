"""Whose turn it is among webhooks that are to be told something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from a2a_sync import TaskPushNotificationConfig
from a2a_sync.push.line import Line
from a2a_sync.stores.base import Scope
from a2a_sync.stores.webhooks import StoredWebhook


def webhook(number: int, host: str) -> StoredWebhook:
    config = TaskPushNotificationConfig(url=f"https://{host}/hook", id="one", task_id=f"t{number}")
    return StoredWebhook(scope=Scope(), config=config, number=1, version="1.0", revision=1, cursor=0, head=1)


def taken(line: Line) -> list[StoredWebhook]:
    return list(iter(line.next, None))


def hosts(webhooks: list[StoredWebhook]) -> list[str]:
    return [one.config.url.split("/")[2] for one in webhooks]


def test_receivers_take_turns_and_none_has_more_than_a_quarter_of_the_places() -> None:
    line = Line(16)
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
    line.end(first[0], failed=False)
    assert hosts(taken(line)) == ["many.example"]


def test_receivers_with_many_webhooks_do_not_starve_one_with_few() -> None:
    line = Line(4)
    for number in range(40):
        line.add(webhook(number, f"{number % 4}.example"))
    line.add(webhook(40, "last.example"))
    for _ in range(2):
        began = taken(line)
        for one in began:
            line.end(one, failed=False)
    assert "last.example" in hosts(began)


def test_receivers_in_trouble_have_half_of_the_places_and_one_each() -> None:
    line = Line(4)
    for number in range(3):
        line.add(webhook(number, f"{number}.example"))
    for one in taken(line):
        line.end(one, failed=True)
    for number in range(10, 16):
        line.add(webhook(number, f"{number % 3}.example"))
    tried = taken(line)
    assert len(tried) == len(set(hosts(tried))) == 2
    line.end(tried[0], failed=False)
    assert len(taken(line)) >= 1


def test_one_that_is_in_line_keeps_its_place_and_goes_where_it_leads_now() -> None:
    line = Line(16)
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

    def tell(webhooks: list[StoredWebhook]) -> None:
        line = Line(16)
        for one in webhooks:
            line.add(one)
        while going := taken(line):
            for one in going:
                line.end(one, failed=False)
        assert line.idle

    few, many = ([webhook(number, "one.example") for number in range(count)] for count in (50, 500))
    assert steps(lambda: tell(many)) < 12 * steps(lambda: tell(few))
