"""Fair shares, so that no owner takes all: of a bounded number of slots, of the processor's time, and of the interpreter."""

from __future__ import annotations

import math
import sys
import threading
import time
from contextvars import ContextVar
from typing import Final

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import patched
from a2a_sync.limits import OwnerQuota

#: Work that needs so many seconds of processor time is expensive. The seconds of an owner decrease by the factor e in each `DECAY`
#: seconds.
EXPENSIVE, DECAY = 0.01, 2.0
#: Owners whose processor time is kept: those of the newest expensive work.
_MAX_OWNERS = 1000
#: The processor time of a thread is read again after so many seconds.
_MAX_READING_AGE = 0.002

#: In seconds; the interpreter's own is 5 milliseconds. A short request needs the interpreter some ten times, and large ones a hundred
#: times while their bodies arrive. Used all the time, it would cost servers of small requests a tenth of their throughput.
_SHORT_INTERVAL = 0.0005

#: A time of the monotonic clock, and the processor time of a thread at it, in seconds.
Moment = tuple[float, float]

#: The owner that the code of a run works for; set on the thread of the run.
current_owner: Final[ContextVar[str]] = ContextVar("a2a_sync_owner", default="")


class Quotas:
    """The quota of each owner in one process; `Share` does the counting.

    ``several``: the callers are known, so those without a principal are one owner among several.
    """

    def __init__(self, quota: OwnerQuota | None = None) -> None:
        self.quota: OwnerQuota = quota or OwnerQuota()
        self.several = False
        self.times: ProcessorTimes = ProcessorTimes()

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


class ProcessorTimes:
    """The processor time that expensive work for each owner has needed of late. Safe from any thread.

    What needs little time does not count, however often it comes: a server may have one client only.
    """

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """Forget all: the times are those of the parent."""
        self._lock = threading.Lock()
        #: The seconds of each owner, as they were at a time of the monotonic clock; see `of`.
        self.owners: dict[str, tuple[float, float]] = {}
        #: Under gevent all work has one thread: what was counted for others while some work waits is not its own.
        self._counted = 0.0
        self._greenlets = patched()
        self._reading = _Reading()
        #: Work that has lasted for less, in seconds, need not be given to `add`.
        self.least: float = 0.0 if self._greenlets else EXPENSIVE

    def now(self) -> Moment:
        """The present, on the calling thread: `add` gets it when the work that begins now has ended, if that has lasted for `least`."""
        now = time.monotonic()
        if self._greenlets:
            return now, time.thread_time() - self._counted
        reading = self._reading
        if now - reading.at > _MAX_READING_AGE:
            reading.at, reading.seconds = now, time.thread_time()
        return now, reading.seconds

    def add(self, owner: str, began: Moment) -> None:
        """Count the processor time of the calling thread since `began`."""
        spent = time.thread_time() - self._counted - began[1]
        if self._greenlets:
            self._counted += spent
        if spent >= EXPENSIVE:
            now = time.monotonic()
            with self._lock:
                known = self._known(owner, now)
                # The newest are last.
                self.owners.pop(owner, None)
                self.owners[owner] = known + spent, now
                if len(self.owners) > _MAX_OWNERS:
                    del self.owners[next(iter(self.owners))]

    def of(self, owner: str) -> float:
        """The seconds of `owner`."""
        return self._known(owner, time.monotonic()) if owner in self.owners else 0.0

    def _known(self, owner: str, now: float) -> float:
        seconds, at = self.owners.get(owner, (0.0, now))
        return seconds * math.exp((at - now) / DECAY)


class _Reading(threading.local):
    """The processor time of a thread in seconds, and when it was read. Reading it is a system call, which small work would notice."""

    at = seconds = -math.inf


class ShortSwitchInterval:
    """Sets the switch interval of the interpreter to half a millisecond while its users are more than zero. Safe from any thread.

    What the program sets meanwhile stays.
    """

    def __init__(self) -> None:
        self._before: float | None = None
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the users are threads of the parent."""
        self._lock = threading.Lock()
        self._users = 0
        self._restore()

    def begin(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1
            if self._before is None and sys.getswitchinterval() > _SHORT_INTERVAL:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(_SHORT_INTERVAL)

    def end(self) -> None:
        """Count one user less."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._restore()

    def _restore(self) -> None:
        # The interpreter keeps microseconds.
        if self._before is not None and round(sys.getswitchinterval(), 6) == _SHORT_INTERVAL:
            sys.setswitchinterval(self._before)
        # Not before: a fork between the two lines renews the child.
        self._before = None


#: That of this process.
short_switch_interval: Final = ShortSwitchInterval()
