"""Context managers that are closed at the end of their ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class Closes:
    """A context manager that calls its `close` at the end of the block, with the default time limit of that method."""

    __slots__ = ()

    #: With or without a time limit; idempotent.
    close: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
