"""Objects that are closed: context managers, and iterables with a `close`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Generic, Self, TypeVar

_T = TypeVar("_T")


class Closes:
    """A context manager that calls its `close` at the end of the block, with the default time limit of that method."""

    __slots__ = ()

    #: With or without a time limit; idempotent.
    close: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def closed_after(items: object) -> AbstractContextManager[object]:
    """Closes `items` at the end of the block if they can be closed, as generators can."""
    return closing(items) if hasattr(items, "close") else nullcontext()


class ClosingIterable(Generic[_T]):
    """`items` with a `close` that also works when they were never iterated, unlike the ``finally`` of a generator."""

    def __init__(self, items: Iterable[_T], close: Callable[[], object]) -> None:
        self._items = items
        self._close = close

    def __iter__(self) -> Iterator[_T]:
        return iter(self._items)

    def close(self) -> None:
        """Close the source of the items. Any thread may call it."""
        self._close()
