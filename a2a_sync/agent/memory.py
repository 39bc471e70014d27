"""`Memory`: bytes that the store keeps between runs, for a whole context or for one task until it ends.

The module is independent of stores and runs; a `Memory` receives functions for reading, writing and locking.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from a2a_sync.errors import StoreError
from a2a_sync.stores.base import StateConflict, StoredState

_T = TypeVar("_T")

#: Waits until no other run of the owner changes a large value; the returned function ends it.
Lock: TypeAlias = Callable[[], Callable[[], None]]

#: Attempts to write a change while other runs change the value.
_TRIES = 1000
#: Larger values are changed by one run of an owner at a time: each attempt reads and writes all of it.
_SMALL_BYTES = 16 * 1024


class ValueTooLargeError(ValueError):
    """A value of a context has more bytes than its limit."""


class StoredValue:
    """A value of a context in the store, which `read` and `write` reach."""

    def __init__(
        self, read: Callable[[], StoredState], write: Callable[[bytes, int], None], lock: Lock = lambda: lambda: None
    ) -> None:
        self._read = read
        self._write = write
        self._lock = lock

    def _apply(self, attempt: Callable[[StoredState], _T]) -> _T:
        """Call `attempt` with the stored value until it meets no change of another run, and return its result.

        The lock keeps the runs of one owner from repeating the attempts with large values for each other.

        Raises:
            StoreError: each attempt met one.
        """
        current, release = self._read(), None
        try:
            for _ in range(_TRIES):
                if release is None and len(current.body) > _SMALL_BYTES:
                    release = self._lock()
                    current = self._read()
                try:
                    return attempt(current)
                except StateConflict as conflict:
                    current = conflict.current
            raise StoreError("the value of the context was changed by other runs at each attempt to write it")
        finally:
            if release is not None:
                release()


class Memory(StoredValue):
    """One value of bytes, or None: `RequestContext.memory` and `RequestContext.pending`.

    Each read returns what the store has now. Changes are stored immediately. They raise:

    - `TaskCancelled`: the run may not write any more.
    - `ValueError`: the value has more than `Limits.max_context_memory_bytes`.
    - `StoreError`: the store failed.
    """

    def get(self) -> bytes | None:
        """The stored bytes; None where nothing, or the empty value, was stored."""
        return _bytes_of(self._read())

    def set(self, value: bytes | None) -> None:
        """Store `value` in place of whatever is stored; None and empty bytes remove it."""
        self.change(lambda old: value)

    def change(self, function: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Call `function` with the stored bytes, store its result atomically, and return it.

        The function is called again if another run has changed the value meanwhile, so it must have no side effects.
        """
        return self._apply(partial(self._attempt, function))

    def _attempt(self, function: Callable[[bytes | None], bytes | None], current: StoredState) -> bytes | None:
        old = _bytes_of(current)
        new = function(old) or None
        if new != old:
            self._write(new or b"", current.version)
        return new


def _bytes_of(stored: StoredState) -> bytes | None:
    return stored.body or None if stored.version else None
