"""A bound on the bytes of large responses that one process reads and encodes at the same time."""

from __future__ import annotations

import threading
from collections import deque

from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import OverloadedError

#: Responses up to this size, as stored, are not counted.
SMALL_RESPONSE_BYTES = 1024 * 1024
#: How long a large response waits for others, in seconds, before its request is refused.
_WAIT_SECONDS = 10.0


class ResponseBudget:
    """Reserves bytes for the responses in work on the threads of a server. Safe from any thread.

    A response larger than `total` is admitted when no other one is in work. A forked child starts with nothing reserved.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Drop all reservations: their threads are those of the parent."""
        self._changed = threading.Condition()
        self._taken = 0
        self._reserved: dict[int, int] = {}
        self._queue: deque[int] = deque()

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes for the calling thread, until it calls `release`.

        Raises:
            OverloadedError: other responses have held the bytes for too long.
        """
        thread = threading.get_ident()
        with self._changed:
            own = self._reserved.get(thread, 0)
            self._queue.append(thread)
            try:
                # In the order in which they came: a thread that returns at once does not overtake.
                if not self._changed.wait_for(
                    lambda: self._queue[0] == thread and (self._taken == own or self._taken + size <= self._total),
                    _WAIT_SECONDS,
                ):
                    raise OverloadedError("too many large responses at once; try again later", retry_after=1.0)
                self._taken += size
                self._reserved[thread] = own + size
            finally:
                self._queue.remove(thread)
                self._changed.notify_all()

    def release(self) -> None:
        """Release what the calling thread has reserved."""
        if self._reserved and (thread := threading.get_ident()) in self._reserved:
            with self._changed:
                self._taken -= self._reserved.pop(thread)
                self._changed.notify_all()
