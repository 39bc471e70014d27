"""Bounds on the large requests and responses that one process works on at the same time, in total and for each owner."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import patched
from a2a_sync.concurrency.quotas import DECAY, Moment, Quotas, Share, short_switch_interval
from a2a_sync.concurrency.turns import Turns
from a2a_sync.engine.hub import Signal, Steps, Wait
from a2a_sync.errors import OverloadedError
from a2a_sync.server.pending import complete
from a2a_sync.stores.base import SMALL_BYTES

#: Large requests and responses at once, working or waiting, where the number of the server's threads is not known.
_PLACES = 16
#: The bytes of the large requests that wait at most; each is in memory.
_MAX_WAITING_BYTES = 128 * 1024 * 1024
#: How long a large response waits for others, in seconds, before its request is refused.
_WAIT_SECONDS = 10.0
#: Between two large responses other requests have the processor for this share of the time of the first, at most so long.
_PAUSE_SHARE = 0.25
_MAX_PAUSE = 0.25
#: Shorter pauses are added up, because a system takes longer for a sleep than was asked for.
_MIN_PAUSE = 0.001
#: Above so many seconds of processor time, see `ProcessorTimes`, the requests of an owner may be expensive. Two in work use all of the
#: interpreter; more would delay each other, and those of other owners. Under gevent, whose greenlets share a thread, one does.
_MUCH, _MAX_EXPENSIVE, _MAX_EXPENSIVE_GREENLETS = 0.5, 2, 1
#: Above this number, three quarters of the time, they pause first, at most for so many seconds: others need the interpreter. A request
#: takes it some ten times, and would wait each time for what keeps it, such as the decoder of JSON.
_MOST, _MAX_EXPENSIVE_PAUSE = 0.75 * DECAY, 1.0
#: ``M_MMAP_THRESHOLD`` of ``mallopt``.
_MMAP_THRESHOLD = -3


class ResponseBudget:
    """Admits large requests and responses on the threads of a server. Safe from any thread.

    At most half of the threads have one at once, of which one owner has a share by `quotas`. Requests and responses share `total`
    bytes while they are read, worked on and encoded; one that is larger is admitted when there is no other one. Responses are
    read and encoded one at a time, with pauses: each keeps the interpreter for long. Owners that wait have turns. Of an owner
    whose requests have needed much processor time, two are in work at once, under gevent one, while they do not wait. A forked
    child starts with nothing reserved.
    """

    def __init__(self, total: int, threads: int | None = None, quotas: Quotas | None = None) -> None:
        self._total = total
        self.quotas: Quotas = quotas or Quotas()
        self._times = self.quotas.times
        self._max_places = _PLACES if threads is None else max(1, threads // 2)
        renew_per_process(self)

    def renew(self) -> None:
        """Drop all reservations: their threads are those of the parent."""
        self._lock = threading.Lock()
        self._taken = 0
        self._reserved: dict[int, int] = {}
        self._queue: Turns[_Claim] = Turns()
        #: The thread that reads and encodes a response, or will do so, since when, and the pause after the one before it.
        self._turn: int | _Claim | None = None
        self._turn_began = self._pause = 0.0
        self._places = self.quotas.share(self._max_places)
        #: The owner of the request or response of each thread.
        self._owners: dict[int, str] = {}
        #: Of each thread: the owner of its request, whether that is found, the time when it began, see `ProcessorTimes`, and whether
        #: it is counted below.
        self._began: dict[int, tuple[str, bool, Moment, bool]] = {}
        #: The requests in work that may be expensive.
        self._in_work = self.quotas.share(sys.maxsize, _MAX_EXPENSIVE_GREENLETS if patched() else _MAX_EXPENSIVE)

    @property
    def reserved(self) -> bool:
        """The calling thread holds bytes, or is admitted."""
        return threading.get_ident() in self._owners

    def limit_threads(self, threads: int) -> None:
        """Set the number of the server's threads; called before there are requests."""
        self._max_places = max(1, threads // 2)
        self._places.total = self._max_places

    def check(self, owner: str) -> None:
        """Let a request of `owner` continue, before its body is read. Where others have needed much processor time, it pauses.

        Raises:
            OverloadedError: they have, and too many are in work.
        """
        if (
            owner in self._times.owners
            and (owner or self.quotas.several)
            and (seconds := self._times.of(owner)) > _MUCH
        ):
            self._take(owner)
            try:
                if seconds > _MOST:
                    time.sleep(min(DECAY * math.log(seconds / _MOST), _MAX_EXPENSIVE_PAUSE))
            finally:
                # Under gevent the pause may be ended by an exception.
                self._give(owner)

    def begin(self, owner: str, *, expensive: bool, found: bool = True) -> None:
        """Count the processor time of the calling thread for `owner` until it waits, or calls `release`.

        `expensive`: the request will need much of it, as where others of `owner` have. Where the owner of the call is not `found`
        yet, `owner` is the principal, which may be many owners: no time counts until `count_for`.

        Raises:
            OverloadedError: such a request, and too many are in work.
        """
        if owner or self.quotas.several:
            if found and not expensive and owner in self._times.owners:
                expensive = self._times.of(owner) > _MUCH
            if expensive:
                self._take(owner)
            self._began[threading.get_ident()] = owner, found, self._times.now(), expensive

    def count_for(self, owner: str) -> None:
        """Count the request of the calling thread, which has begun for a principal, for the owner of its call. As `check`, it may pause.

        Raises:
            OverloadedError: as `check`, `begin` and `admit`.
        """
        thread = threading.get_ident()
        if (began := self._began.pop(thread, None)) is None:
            return
        principal, _, since, expensive = began
        if expensive:
            self._give(principal)
        if time.monotonic() - since[0] >= self._times.least:
            self._times.add(owner, since)
        with self._lock:
            if (admitted := self._owners.get(thread, owner)) != owner:
                self._places.release(admitted)
                fits = self._places.admits(owner)
                # In any case: `release` releases it.
                self._places.take(owner)
                self._owners[thread] = owner
                if not fits:
                    raise _too_many(own=True)
        self.check(owner)
        self.begin(owner, expensive=expensive)

    def count(self, owner: str) -> None:
        """Count the time for a request of `owner` that has waited."""
        if owner or self.quotas.several:
            self._began[threading.get_ident()] = owner, True, self._times.now(), False

    def end_count(self) -> None:
        """End what `begin` or `count` has begun."""
        if (began := self._began.pop(threading.get_ident(), None)) is not None:
            owner, found, since, expensive = began
            if found and time.monotonic() - since[0] >= self._times.least:
                self._times.add(owner, since)
            if expensive:
                self._give(owner)

    def _take(self, owner: str) -> None:
        """Count a request in work that may be expensive."""
        with self._lock:
            if not self._in_work.admits(owner):
                raise OverloadedError("too many expensive requests of this caller; try again later", retry_after=1.0)
            self._in_work.take(owner)
        short_switch_interval.begin()

    def _give(self, owner: str) -> None:
        short_switch_interval.end()
        with self._lock:
            self._in_work.release(owner)

    def admit(self, owner: str) -> None:
        """Admit a large request or response of `owner` on the calling thread, until it calls `release`. Does not wait.

        Raises:
            OverloadedError: there are too many, in total or of this owner.
        """
        thread = threading.get_ident()
        with self._lock:
            if thread in self._owners:
                return
            if not self._places.admits(owner):
                raise _too_many(own=self._places.taken < self._places.total)
            self._places.take(owner)
            self._owners[thread] = owner

    def reserve(self, size: int, owner: str, *, response: bool = True) -> None:
        """As `reserving`, on the calling thread, which waits."""
        complete(self.reserving(size, owner, response=response), math.inf)

    def reserving(self, size: int, owner: str, *, response: bool = True) -> Steps[None]:
        """Reserve `size` bytes for the request or `response` on the thread that goes on, until it calls `release`.

        Raises:
            OverloadedError: as `admit`; or others have held the bytes, or the turn of responses, for too long; or too many bytes
                of requests wait.
        """
        self.admit(owner)
        return_freed_memory()
        with self._lock:
            waiting = 0 if response else sum(claim.size for claim in self._queue if not claim.response)
        if waiting + size > _MAX_WAITING_BYTES and waiting:
            raise OverloadedError("too many large requests at once; try again later", retry_after=1.0)
        held = self.detach()
        claim, deadline = _Claim(held.size + size, owner, response), time.monotonic() + _WAIT_SECONDS
        with self._lock:
            # Not held while it waits for more: those before it in the queue may wait for these bytes.
            self._taken -= held.size
            self._queue.add(claim)
            self._grant()
        try:
            while not claim.granted:
                if (left := deadline - time.monotonic()) <= 0:
                    raise OverloadedError("too many large responses at once; try again later", retry_after=1.0)
                most = yield Wait(claim, deadline)
                claim.wait(min(most, left))
        finally:
            with self._lock:
                if not claim.granted:
                    self._queue.discard(claim)
                    self._grant()
                elif response:
                    self._turn, self._turn_began = threading.get_ident(), time.monotonic()
            self.attach(held._replace(size=claim.size if claim.granted else 0))
        if response:
            # Only the thread that has the turn changes the pause.
            if self._pause >= _MIN_PAUSE:
                pause, self._pause = self._pause, 0.0
                time.sleep(pause)
            self._turn_began = time.monotonic()

    def _grant(self) -> None:
        """Grant the claims for which there are bytes and, for a response, the turn; called under the lock."""
        # None overtakes the first one, which would wait for ever otherwise where it is large.
        while self._queue:
            claim = self._queue.first
            if (self._taken and self._taken + claim.size > self._total) or (claim.response and self._turn is not None):
                return
            self._queue.take()
            self._taken += claim.size
            if claim.response:
                self._turn = claim
            claim.granted = True
            claim.hint()

    def end_turn(self) -> None:
        """Let others read and encode responses: the calling thread waits before it encodes what it has read."""
        with self._lock:
            self._end_turn(threading.get_ident())

    def _end_turn(self, thread: int) -> None:
        if self._turn == thread:
            self._turn = None
            self._pause = min(self._pause + (time.monotonic() - self._turn_began) * _PAUSE_SHARE, _MAX_PAUSE)
            self._grant()

    def detach(self) -> Held:
        """Take what the calling thread has reserved from it, so that another one can `attach` it."""
        thread = threading.get_ident()
        caller = None
        if thread in self._began:
            caller = self._began[thread][:2]
            # Before the wait: others of the owner may come meanwhile.
            self.end_count()
        with self._lock:
            if self._turn == thread:  # saves a call for each request
                self._end_turn(thread)
            return Held(self._owners.pop(thread, None), self._reserved.pop(thread, 0), caller)

    def detached(self, wait: Wait) -> Steps[float]:
        """Wait without what the calling thread has reserved, and give that to the thread that goes on."""
        reserved = self.detach()
        try:
            return (yield wait)
        finally:
            self.attach(reserved)

    def attach(self, held: Held) -> None:
        """Have the calling thread hold what `detach` has returned."""
        if held.caller is not None:
            self._began[threading.get_ident()] = *held.caller, self._times.now(), False
        if held.owner is not None:
            with self._lock:
                self._owners[threading.get_ident()] = held.owner
                self._reserved[threading.get_ident()] = held.size

    def give_back(self, size: int) -> None:
        """End the turn of the calling thread, and release `size` of the bytes that it has reserved; all of it with the last ones."""
        thread = threading.get_ident()
        with self._lock:
            self._end_turn(thread)
            left = self._reserved.get(thread, 0) - size
            if left > 0:
                self._reserved[thread] = left
                self._taken -= size
                self._grant()
        if left <= 0:
            self.release()

    def release(self) -> None:
        """Release what the calling thread has reserved."""
        thread = threading.get_ident()
        if thread in self._owners:
            if (leave := self.release_bytes()) is not None:
                leave()
        elif thread in self._began:
            self.end_count()

    def release_bytes(self) -> Callable[[], None] | None:
        """Release the bytes of the calling thread; returns the function that ends what it was admitted for, if it was."""
        thread = threading.get_ident()
        if thread in self._began:
            self.end_count()
        if thread not in self._owners:
            return None
        with self._lock:
            self._taken -= self._reserved.pop(thread, 0)
            self._end_turn(thread)
            self._grant()
            return partial(self._leave, self._owners.pop(thread), self._places)

    def _leave(self, owner: str, places: Share) -> None:
        with self._lock:
            places.release(owner)


class Held(NamedTuple):
    """What one thread holds of a `ResponseBudget`.

    Attributes:
        owner: for which it was admitted; None: it was not.
        size: the bytes that it has reserved.
        caller: the owner of its request, whose processor time counts, and whether that is found; None: it does not count.
    """

    owner: str | None
    size: int
    caller: tuple[str, bool] | None


class _Claim(Signal):
    """Bytes that are granted to a request or response of `owner`, or that it waits for."""

    __slots__ = ("granted", "owner", "response", "size")

    def __init__(self, size: int, owner: str, response: bool) -> None:
        super().__init__()
        self.size = size
        self.owner = owner
        self.response = response
        self.granted = False


def _too_many(*, own: bool) -> OverloadedError:
    whose = " of this caller" if own else ""
    return OverloadedError(f"too many large requests and responses{whose} at once; try again later", retry_after=1.0)


@cache
def return_freed_memory() -> None:
    """Let the GNU C library return the memory of large requests and responses to the system as soon as it is freed.

    By default it keeps blocks of up to 32 MiB once one was freed, in up to eight arenas for each processor.
    """
    if sys.platform == "linux" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with suppress(ImportError, OSError, AttributeError):  # other C libraries have no such function
            import ctypes

            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, SMALL_BYTES)
