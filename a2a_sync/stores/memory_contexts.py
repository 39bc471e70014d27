"""The contexts of a `MemoryStore`, by owner and id. Writers hold the lock of the store."""

from __future__ import annotations

import threading
from collections.abc import Callable

from a2a_sync.stores.base import STATE, Owner, RunToken, StateConflict, StoredState
from a2a_sync.stores.records import Owned, Record

_NOTHING = StoredState()


class MemoryContexts:
    """The `Contexts` of the store that `lock` belongs to; `held` returns the record for a current token."""

    def __init__(self, lock: threading.Lock, owners: dict[Owner, Owned], held: Callable[[RunToken], Record]) -> None:
        self._lock = lock
        self._owners = owners
        self._held = held

    def state(self, owner: Owner, context_id: str, name: str = STATE) -> StoredState:
        """See `Contexts.state`."""
        owned = self._owners.get(owner)
        return _NOTHING if owned is None else owned.states.get(context_id, {}).get(name, _NOTHING)

    def set_state(self, token: RunToken, body: bytes, *, expected: int, name: str = STATE) -> None:
        """See `Contexts.set_state`."""
        with self._lock:
            record = self._held(token)
            states = record.owned.states.get(record.head.context_id, {})
            current = states.get(name, _NOTHING)
            if current.version != expected:
                raise StateConflict(current)
            # Readers hold no lock, so the mapping of a context is replaced.
            record.owned.states[record.head.context_id] = {**states, name: StoredState(body, expected + 1)}
            record.owned.account.bytes += len(body) - (len(current.body) if current is not _NOTHING else 0)
