"""What waits for its turn: owners have turns, so that what one of them adds does not delay the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar


class _Owned(Protocol):
    """Belongs to an owner, and is equal to itself only."""

    @property
    def owner(self) -> str: ...


_OwnedT = TypeVar("_OwnedT", bound=_Owned)


class Turns(Generic[_OwnedT]):
    """Items that wait. Owners have turns; those of one owner are in the order in which they came. Not thread-safe."""

    def __init__(self) -> None:
        #: The owner whose turn is next comes first.
        self._waiting: dict[str, deque[_OwnedT]] = {}
        #: The owner of the item that was taken last.
        self._last: str | None = None

    def __iter__(self) -> Iterator[_OwnedT]:
        return chain.from_iterable(self._waiting.values())

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def first(self) -> _OwnedT:
        """The item whose turn it is."""
        owner = next(iter(self._waiting))
        if owner == self._last:
            # Not when its item was taken: others that have come since are before it too.
            self._waiting[owner] = self._waiting.pop(owner)
        return next(iter(self))

    def add(self, item: _OwnedT) -> None:
        """Add the last item of its owner."""
        self._waiting.setdefault(item.owner, deque()).append(item)

    def take(self) -> _OwnedT:
        """Remove the first item, and return it."""
        item = self.first
        self.discard(item)
        self._last = item.owner
        return item

    def discard(self, item: _OwnedT) -> None:
        """Remove any item, if it waits."""
        items = self._waiting.get(item.owner)
        if items and item in items:
            items.remove(item)
            if not items:
                del self._waiting[item.owner]
