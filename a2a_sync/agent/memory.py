"""`Memory`: bytes that the store keeps between runs, for a whole context or for one task until it ends.

The module is independent of stores and runs; a `Memory` receives two functions for reading and writing.
"""

from __future__ import annotations

from collections.abc import Callable

from a2a_sync.errors import StoreError
from a2a_sync.stores.base import StateConflict, StoredState

#: Attempts to write a change while other runs change the value.
_TRIES = 1000


class Memory:
    """One value of bytes, or None: `RequestContext.memory` and `RequestContext.pending`.

    Each read returns what the store has now. Changes are stored immediately. They raise:

    - `TaskCancelled`: the run may not write any more.
    - `ValueError`: the value has more than `Limits.max_context_memory_bytes`.
    - `StoreError`: the store failed.
    """

    def __init__(self, read: Callable[[], StoredState], write: Callable[[bytes, int], None]) -> None:
        self._read = read
        self._write = write

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
        current = self._read()
        for _ in range(_TRIES):
            old = _bytes_of(current)
            new = function(old) or None
            if new == old:
                return new
            try:
                self._write(new or b"", current.version)
            except StateConflict as conflict:
                current = conflict.current
            else:
                return new
        raise StoreError("the memory of the context was changed by other runs at each attempt to write it")


def _bytes_of(stored: StoredState) -> bytes | None:
    return stored.body or None if stored.version else None
