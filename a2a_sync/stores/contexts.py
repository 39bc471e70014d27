"""What every store offers for contexts: a small state each, which the runs of all tasks of the context share.

A context belongs to one scope; the same id in another scope is another context. Its state goes with its last task. What is in
a state, and how runs that change it at once get along, is decided in `contextstate`. Methods may be called from any thread.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from a2a_sync.stores.base import Owner, RunToken, StoreConflict


class StoredState(NamedTuple):
    """A state as JSON text, and its version: how often it was set."""

    body: bytes = b"{}"
    version: int = 0


class StateConflict(StoreConflict):
    """The state is not the one that was expected; ``current`` is what it is."""

    def __init__(self, current: StoredState) -> None:
        super().__init__(f"the state of the context has version {current.version}")
        self.current = current


class Contexts(Protocol):
    """The states of a store's contexts."""

    def state(self, scope: Owner, context_id: str) -> StoredState:
        """The state of a context; empty where it was never set, and where there is no such context."""

    def set_state(self, token: RunToken, body: bytes, *, expected: int) -> None:
        """Replace the state of the context of the token's task, if its version is `expected`; it has the next one then.

        Raises:
            StateConflict: another run was faster.
            RunRevoked: the token is not current, or the task is gone.
        """
