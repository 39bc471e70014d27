"""What leaving a ``with`` block does to everything here that holds threads, connections or listeners: it is closed."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class Closes:
    """Is its own context manager, and is closed at the end of the block with the time limit that `close` has by itself."""

    __slots__ = ()

    #: Each has its own, with or without a time limit; none raises when it is called again.
    close: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
