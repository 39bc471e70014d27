"""Fair shares: how many of a bounded number of slots one owner may hold, so that no owner takes all of them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from a2a_sync.limits import OwnerQuota

#: The owner that the code of a run works for; set on the thread of the run.
current_owner: Final[ContextVar[str]] = ContextVar("a2a_sync_owner", default="")


class Quotas:
    """The quota of each owner in one process; `Share` does the counting.

    ``several``: the callers are known, so those without a principal are one owner among several.
    """

    def __init__(self, quota: OwnerQuota | None = None) -> None:
        self.quota: OwnerQuota = quota or OwnerQuota()
        self.several = False

    def share(self, total: int, limit: int | None = None) -> Share:
        """The shares of `total` slots: at most `limit` for each owner, or a fair share where that is None."""
        return Share(self, total, limit)


class Share:
    """Counts the slots of each owner, of `total`. Not thread-safe: the caller holds a lock."""

    __slots__ = ("_held", "_limit", "_quotas", "taken", "total")

    def __init__(self, quotas: Quotas, total: int, limit: int | None) -> None:
        self.total: int = total
        self.taken: int = 0
        self._quotas = quotas
        self._limit = limit
        self._held: dict[str, int] = {}

    def limit(self, owner: str) -> int:
        """How many slots `owner` may hold now; it may take one more while it holds fewer."""
        if self._limit is not None:
            return min(self._limit, self.total)
        # Dynamic thresholds (Choudhury and Hahne, 1998): n owners that want all end with 1/(n + 1) each.
        return self.total - self.taken if owner or self._quotas.several else self.total

    def admits(self, owner: str) -> bool:
        """There is a free slot that `owner` may take."""
        if self.taken >= self.total:
            return False
        if self._limit is None and not owner and not self._quotas.several:
            return True  # no caller is known, so there is one owner
        return self._held.get(owner, 0) < self.limit(owner)

    def held(self, owner: str) -> int:
        """How many slots `owner` holds."""
        return self._held.get(owner, 0)

    def take(self, owner: str, slots: int = 1) -> None:
        """`owner` holds one more slot, or so many."""
        self.taken += slots
        self._held[owner] = self._held.get(owner, 0) + slots

    def release(self, owner: str, slots: int = 1) -> None:
        """`owner` holds one slot less, or so many."""
        self.taken -= slots
        left = self._held[owner] - slots
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]
