"""Locks by key, such as one for each owner, with a bounded wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

from a2a_sync.concurrency.fork import renew_per_process

#: The longest pause between two holders of a lock, in seconds.
_MAX_PAUSE = 0.5


class KeyedLocks:
    """One lock for each key that is in use. In a forked child none is held."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the locks are the parent's."""
        self._lock = threading.Lock()
        #: The lock of each key, and how many threads hold it or wait for it.
        self._locks: dict[Hashable, tuple[threading.Lock, list[None]]] = {}

    def acquire(self, key: Hashable, timeout: float) -> Callable[[], None]:
        """Wait for the lock of `key`, at most `timeout` seconds; call the returned function at the end, from any thread.

        A caller whose wait has timed out continues without the lock: it only keeps callers from disturbing each other. Where others
        wait for the same lock, the end takes as long as the lock was held: meanwhile the other keys have the disk to themselves.
        """
        return self._enter(key, timeout)[1]

    def try_acquire(self, key: Hashable, timeout: float) -> Callable[[], None] | None:
        """As `acquire`, but None where the wait has timed out."""
        taken, release = self._enter(key, timeout)
        if taken:
            return release
        release()
        return None

    def _enter(self, key: Hashable, timeout: float) -> tuple[bool, Callable[[], None]]:
        with self._lock:
            lock, users = self._locks.setdefault(key, (threading.Lock(), []))
            users.append(None)
        taken = lock.acquire(timeout=timeout)
        since = time.monotonic()

        def release() -> None:
            if taken:
                if len(users) > 1:
                    time.sleep(min(time.monotonic() - since, _MAX_PAUSE))
                lock.release()
            with self._lock:
                users.pop()
                if not users and self._locks.get(key, (None,))[0] is lock:
                    del self._locks[key]

        return taken, release
