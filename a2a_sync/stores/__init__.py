"""Stores of tasks: each is a module that is imported on first use. `base` has the interface, for authors of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from a2a_sync.lazymodule import lazy_names
from a2a_sync.stores.base import PubSub, TaskStore

if TYPE_CHECKING:
    from a2a_sync.stores.memory import MemoryStore
    from a2a_sync.stores.postgres import PostgresStore
    from a2a_sync.stores.redispubsub import RedisPubSub
    from a2a_sync.stores.sqlite import SQLiteStore
    from a2a_sync.stores.sqlite.replay import SQLiteReplayCache

_MODULES = {
    "a2a_sync.stores.memory": ("MemoryStore",),
    "a2a_sync.stores.postgres": ("PostgresStore",),
    "a2a_sync.stores.redispubsub": ("RedisPubSub",),
    "a2a_sync.stores.sqlite": ("SQLiteStore",),
    "a2a_sync.stores.sqlite.replay": ("SQLiteReplayCache",),
}

__all__ = [
    "MemoryStore",
    "PostgresStore",
    "RedisPubSub",
    "SQLiteReplayCache",
    "SQLiteStore",
    "open_pubsub",
    "open_store",
]

_ACCEPTED = "'memory:', 'sqlite:///relative.db', 'sqlite:////absolute.db', 'postgresql://user@host/database', a TaskStore, or None"


def open_store(store: TaskStore | str | None = None) -> TaskStore:
    """Return the store for a URL, a store unchanged, or a new `MemoryStore` for None. No file is opened yet.

    Raises:
        ValueError: `store` is none of these; the message lists the accepted values.
        ModuleNotFoundError: the extra ``postgres`` is not installed.
    """
    if store is None or store == "memory:":
        from a2a_sync.stores.memory import MemoryStore

        return MemoryStore()
    if not isinstance(store, str):
        if isinstance(store, type) or not hasattr(store, "start_run"):
            raise ValueError(f"store must be {_ACCEPTED}, not {store!r}")
        return store
    if store.startswith(("postgresql:", "postgres:")):
        # Its password must not get into a message.
        from a2a_sync.stores.postgres import PostgresStore

        return PostgresStore(store)
    path = store.removeprefix("sqlite:///")
    if path == store or not path or path == ":memory:" or "?" in path or "#" in path:
        # A URL of another database may contain a password.
        scheme, separator, _ = store.partition("://")
        shown = f"{scheme}://…" if separator and scheme != "sqlite" else store
        raise ValueError(f"store must be {_ACCEPTED}, not {shown!r}")
    from a2a_sync.stores.sqlite import SQLiteStore

    return SQLiteStore(path)


def open_pubsub(pubsub: PubSub | str) -> PubSub:
    """Return the `PubSub` for a URL, or an object unchanged. Nothing is connected yet.

    ``redis://`` and ``rediss://`` are Redis. ``postgresql://`` are the notifications of a database; name the server itself where
    the store is reached through a pooler.

    Raises:
        ValueError: `pubsub` is none of these.
        ModuleNotFoundError: the extra ``redis`` or ``postgres`` is not installed.
    """
    if not isinstance(pubsub, str):
        return pubsub
    if pubsub.startswith(("redis://", "rediss://")):
        from a2a_sync.stores.redispubsub import RedisPubSub

        return RedisPubSub(pubsub)
    if pubsub.startswith(("postgresql://", "postgres://")):
        from a2a_sync.stores.postgres import PostgresStore

        return PostgresStore(pubsub).pubsub()
    # It may contain a password.
    raise ValueError("pubsub must be a PubSub, or a URL redis://…, rediss://… or postgresql://…")


__getattr__: Final = lazy_names(__name__, _MODULES)
