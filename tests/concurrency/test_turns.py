"""Owners have turns."""

from __future__ import annotations

from dataclasses import dataclass

from a2a_sync.concurrency.turns import Turns


@dataclass(eq=False)
class Item:
    owner: str


def waiting(owners: str) -> tuple[Turns[Item], list[Item]]:
    """An item of each owner, in this order."""
    turns: Turns[Item] = Turns()
    items = [Item(owner) for owner in owners]
    for item in items:
        turns.add(item)
    return turns, items


def test_owners_alternate_and_items_of_one_owner_keep_their_order() -> None:
    turns, (first, second, third, other) = waiting("aaab")
    assert [turns.take() for _ in range(4)] == [first, other, second, third]
    assert len(turns) == 0


def test_an_owner_that_adds_one_item_after_another_waits_for_the_others() -> None:
    turns, (first, other, *_) = waiting("ab")
    assert turns.take() is first
    turns.add(Item("a"))
    assert turns.take() is other


def test_a_discarded_item_is_not_taken_and_may_be_discarded_again() -> None:
    turns, (first, second) = waiting("aa")
    turns.discard(first)
    turns.discard(first)
    assert (turns.take(), list(turns)) == (second, [])
    turns.discard(second)
