"""A card that has become too old is asked for again, and the old one is used where that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import Client
from a2a_sync.client import cards
from a2a_sync.client.cards import CacheEntry
from tests.client.peer import Asked, Line, Script, peer, results, steps, task
from tests.client.test_cards import NEW, answers, card
from tests.stopwatch import set_clock


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for no time at all is asked for again at the next call."""
    monkeypatch.setattr("a2a_sync.client.cards.MIN_CARD_AGE", 0.0)


def aged(value: Any = None, code: int = 200, **headers: str) -> Script:
    """A card that is too old as soon as it has come."""
    return answers(
        card() if value is None else value, code, **{"Cache_Control": "max-age=0", "ETag": '"one"', **headers}
    )


def same(asked: Asked, line: Line) -> None:
    assert asked.headers["if-none-match"] == '"one"'
    line.answer(b"", 304, Cache_Control="max-age=300")


def fresh(**members: Any) -> Script:
    return answers(card(**members), Cache_Control="max-age=300")


def cards_read(operations: list[str]) -> int:
    return sum("/.well-known/" in operation for operation in operations)


def test_a_card_that_holds_is_read_once() -> None:
    table = {NEW: fresh(), "GetTask": results(task())}
    with peer(table) as agent, Client(agent.url) as client:
        client.get_task("t-1")
        client.get_task("t-1")
        assert agent.operations == [NEW, "GetTask", "GetTask"]


def test_a_card_without_a_date_is_read_once() -> None:
    table = {NEW: answers(card(), ETag='"one"'), "GetTask": results(task())}
    with peer(table) as agent, Client(agent.url) as client:
        client.get_task("t-1")
        client.get_task("t-1")
        assert cards_read(agent.operations) == 1


def test_a_card_that_is_too_old_is_asked_for_by_its_validator() -> None:
    with peer({NEW: steps(aged(), same), "GetTask": results(task())}) as agent, Client(agent.url) as client:
        first = client.card()
        assert agent.operations == [NEW]
        for _ in range(3):
            client.get_task("t-1")
        assert agent.operations == [NEW, NEW, "GetTask", "GetTask", "GetTask"]
        assert client.card() == first


def test_a_card_that_has_changed_is_used_from_there_on() -> None:
    moved = [{"url": "/elsewhere", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    script = steps(aged(), fresh(description="moved", supportedInterfaces=moved))
    with peer({NEW: script, "GetTask": results(task())}) as agent, Client(agent.url) as client:
        client.card()
        client.get_task("t-1")
        assert agent.asked[-1].path == "/elsewhere"
        assert client.card().description == "moved"


@pytest.mark.parametrize(
    "failure",
    [
        answers(b"gone", 503),
        answers(b"no card", 200),
        lambda asked, line: line.hang_up(),
        fresh(supportedInterfaces=[{"url": "/", "protocolBinding": "PIGEON", "protocolVersion": "1.0"}]),
    ],
    ids=["status", "nonsense", "cut", "unusable"],
)
def test_the_old_card_is_used_where_there_is_no_new_one(failure: Script) -> None:
    with peer({NEW: steps(aged(), failure), "GetTask": results(task())}) as agent, Client(agent.url) as client:
        first = client.card()
        client.get_task("t-1")
        client.get_task("t-1")
        # Not with every call.
        assert cards_read(agent.operations) == 2
        assert client.card() == first


def test_a_server_that_hangs_holds_up_one_call_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.client.cards.REFRESH_TIMEOUT", 0.1)
    script = steps(aged(), lambda asked, line: line.await_close())
    with peer({NEW: script, "GetTask": results(task())}) as agent, Client(agent.url) as client:
        client.card()
        assert client.get_task("t-1").id == "t-1"


def test_an_extended_card_is_not_replaced_by_age() -> None:
    capable = card(capabilities={"extendedAgentCard": True})
    table = {NEW: aged(capable), "GetExtendedAgentCard": results(card(description="more")), "GetTask": results(task())}
    with peer(table) as agent, Client(agent.url) as client:
        client.extended_card()
        before = cards_read(agent.operations)
        client.get_task("t-1")
        assert cards_read(agent.operations) == before
        assert client.card().description == "more"


@pytest.mark.parametrize(
    ("control", "age", "seconds"),
    [
        ("public, max-age=300", "", 300),
        ('Max-Age="60"', "20", 40),
        ("max-age=60", "100", 0),
        ("no-cache", "", 0),
        ("no-store, max-age=60", "", 0),
        ("public", "", None),
        ("max-age=soon", "", None),
        ("", "", None),
    ],
)
def test_how_long_a_card_holds(control: str, age: str, seconds: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, cards, monotonic=1000.0)
    kept = CacheEntry.from_headers("http://a.test", {"Cache-Control": control, "Age": age})
    assert kept.expires_at == (float("inf") if seconds is None else 1000.0 + seconds)
