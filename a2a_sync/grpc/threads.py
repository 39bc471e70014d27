"""The threads of calls: a call takes one from its beginning on, and gives its place to the next call when it waits."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.errors import AgentError, InvalidRequestError, OverloadedError
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Seconds after which a call without a message, and any other call, gives its place to another one.
_SILENT_AFTER = 0.1
_WAITS_AFTER = 0.5
#: Most bytes of the parts of messages that have arrived of calls that have lasted for `_WAITS_AFTER`; so many calls may wait anyway.
_MAX_UNSENT_BYTES = 160 * 1024 * 1024
_MIN_UNSENT = 8
#: Most seconds that a call waits for a thread.
_LONGEST_WAIT = 30.0

_Answer = TypeVar("_Answer")


class _RunningCall:
    """A call on its way to a thread, or on one."""

    __slots__ = ("began", "connection", "job", "rpc", "slot", "submitted")

    def __init__(self, slot: Slot, job: Callable[[], None]) -> None:
        self.slot = slot
        self.job = job
        self.submitted = self.began = time.monotonic()
        #: Since it waits for its message.
        self.rpc: Any = None
        self.connection = ""


class CallThreads(Executor):
    """Executes `threads` calls at once, without those that wait for something, on daemons: a call that hangs keeps no process.

    grpcio waits for a message without a limit, on the thread of the call. So a call gives its place to the next one when it has no
    message after a tenth of a second, or has lasted half a second. Of the calls that have no message by then there are few: beyond
    that the oldest one is cut of the connection that has most of them. The message of a call without a thread is not read.

    Parameters:
        threads: calls at once, without those that wait.
        calls: all calls; the caller does not submit more.
        message_bytes: the largest message.
        message_timeout: how long a message may take, in seconds.
    """

    def __init__(self, threads: int, calls: int, *, message_bytes: int, message_timeout: float) -> None:
        self._timeout = message_timeout
        self._max_unsent = max(_MIN_UNSENT, _MAX_UNSENT_BYTES // message_bytes)
        # A call has ended for gRPC before its thread is free: as many more may wait for that moment.
        self._pool = WorkerPool(threads=threads, max_queued=2 * calls, max_abandoned=2 * calls, name="a2a-grpc")
        self._own = threading.local()
        self._lock = threading.Lock()
        #: The calls that hold a place, and those that wait for their message; the oldest first.
        self._held: dict[_RunningCall, None] = {}
        self._unsent: dict[_RunningCall, None] = {}
        self._unstarted: deque[_RunningCall] = deque()
        self._checks = Periodic("a2a-grpc-calls", self._check, retry=1.0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Execute a call. It raises nothing, which would end the thread of grpcio that accepts calls."""
        future: Future[Any] = Future()

        def job() -> None:
            self._begin(call)
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._end(call)

        call = _RunningCall(self._pool.reserve(), job)
        self._start(call)
        self._checks.start(_SILENT_AFTER)
        if not call.slot.ready:
            self._free_places(call.submitted)
        return future

    def _start(self, call: _RunningCall) -> None:
        try:
            call.slot.submit(call.job)
        except RuntimeError:
            logger.exception("no thread for a call; it is retried")
            self._unstarted.append(call)

    def _begin(self, call: _RunningCall) -> None:
        self._own.call = call
        call.began = time.monotonic()
        with self._lock:
            self._held[call] = None

    def _end(self, call: _RunningCall) -> None:
        self._own.call = None
        with self._lock:
            self._held.pop(call, None)

    # -- messages --

    def receiving(self, behavior: Callable[..., _Answer]) -> Callable[..., _Answer]:
        """A behavior of grpcio for requests that are streams: ``behavior(message, rpc, …)``, which gets the first message.

        It is called with an `AgentError` in place of a call that has no message, or has waited for a thread for too long.
        """

        def receive(requests: Iterator[bytes], rpc: Any, *rest: Any) -> _Answer:
            data: bytes | AgentError
            try:
                data = self._message(requests, rpc)
            except AgentError as error:
                data = error
            return behavior(data, rpc, *rest)

        return receive

    def _message(self, requests: Iterator[bytes], rpc: Any) -> bytes:
        call: _RunningCall = self._own.call
        if call.began - call.submitted > _LONGEST_WAIT:
            raise OverloadedError("too many calls wait for a thread; try again later", retry_after=1.0)
        call.rpc, call.connection = rpc, rpc.peer()
        with self._lock:
            self._unsent[call] = None
        try:
            data = next(requests, None)
        finally:
            with self._lock:
                self._unsent.pop(call, None)
        if data is None:
            raise InvalidRequestError("the call has no message")
        return data

    # -- checks --

    def _check(self) -> float | None:
        """Free the places of calls that wait, and cut calls whose message is late, or that are too many without one."""
        now = time.monotonic()
        self._free_places(now)
        with self._lock:
            unsent = sorted(
                (call for call in self._unsent if call.began <= now - _WAITS_AFTER), key=lambda call: call.began
            )
        for call in self._surplus(unsent, now):
            logger.info("a call was cut that has sent no message in %.3g seconds", now - call.began)
            call.rpc.cancel()
        for _ in range(len(self._unstarted)):
            self._start(self._unstarted.popleft())
        return _SILENT_AFTER if self._pool.running or self._unsent else None

    def _free_places(self, now: float) -> None:
        with self._lock:
            for call in list(self._held):
                if call.began <= now - (_SILENT_AFTER if call in self._unsent else _WAITS_AFTER):
                    del self._held[call]
                    call.slot.abandon()

    def _surplus(self, unsent: list[_RunningCall], now: float) -> list[_RunningCall]:
        """Those of `unsent`, the oldest first, that are cut: late ones, and the oldest of the connections that have most."""
        late = [call for call in unsent if call.began <= now - self._timeout]
        connections: defaultdict[str, deque[_RunningCall]] = defaultdict(deque)
        for call in unsent[len(late) :]:
            connections[call.connection].append(call)
        surplus = max(0, len(unsent) - len(late) - self._max_unsent)
        return [*late, *(max(connections.values(), key=len).popleft() for _ in range(surplus))]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads: idle ones now, the others after their call."""
        self._checks.stop()
        self._pool.close()
