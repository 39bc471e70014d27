"""Where tasks live: the interface in `base`, and one module per backend.

This room only chooses; a backend is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from a2a_sync.lazymodule import LazyModule

if TYPE_CHECKING:
    from a2a_sync.stores import base
    from a2a_sync.stores.base import TaskStore as TaskStore
    from a2a_sync.stores.memory import MemoryStore as MemoryStore
    from a2a_sync.stores.sqlite import SQLiteStore as SQLiteStore
    from a2a_sync.stores.sqlite.replay import SQLiteReplayCache as SQLiteReplayCache
else:
    base = LazyModule("a2a_sync.stores.base")

_HOME = {
    "MemoryStore": "a2a_sync.stores.memory",
    "SQLiteReplayCache": "a2a_sync.stores.sqlite.replay",
    "SQLiteStore": "a2a_sync.stores.sqlite",
    "TaskStore": "a2a_sync.stores.base",
}
_ACCEPTED = "'memory:', 'sqlite:///relative.db', 'sqlite:////absolute.db', a TaskStore, or None"


def open_store(store: base.TaskStore | str | None = None) -> base.TaskStore:
    """The store that `store` names: a URL, a store as it is, or None for tasks in memory. No file is opened yet.

    Raises:
        ValueError: it is none of these; the message says what is accepted.
    """
    if store is None or store == "memory:":
        from a2a_sync.stores.memory import MemoryStore

        return MemoryStore()
    if not isinstance(store, str):
        if isinstance(store, type) or not hasattr(store, "start_run"):
            raise ValueError(f"store must be {_ACCEPTED}, not {store!r}")
        return store
    path = store.removeprefix("sqlite:///")
    if path == store or not path or path == ":memory:" or "?" in path or "#" in path:
        raise ValueError(f"store must be {_ACCEPTED}, not {store!r}")
    from a2a_sync.stores.sqlite import SQLiteStore

    return SQLiteStore(path)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
