"""Calls on their way to a thread: a call takes one of them when its message has arrived, and gives it up when it waits."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from a2a_sync.concurrency.background import Periodic
from a2a_sync.errors import AgentError, InvalidRequestError, OverloadedError
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Calls whose message has not arrived; beyond it one is cut. Each may hold nearly a whole message in the memory of gRPC.
_MAX_UNSENT = 32
#: Bytes of the messages of calls that wait for a place.
_MAX_WAITING_BYTES = 64 * 1024 * 1024
#: Seconds after which a call no longer counts among the `threads`.
_WAITS_AFTER = 0.5
#: Most seconds that a call waits for a place.
_LONGEST_WAIT = 30.0

_Answer = TypeVar("_Answer")


class Arrivals:
    """Receives the messages of calls and admits `threads` of them at once, without those that wait for something.

    grpcio waits for a message without a limit, on a thread of its executor. So a call has a thread from its beginning on, and
    its place among the `threads` once its message is there. Of the calls without a message there are few: beyond that the oldest
    one is cut of the connection that has most of them.

    Parameters:
        threads: calls at once, without those that wait.
        waiting: calls that wait.
        timeout: how long a message may take, in seconds.
    """

    def __init__(self, threads: int, waiting: int, timeout: float) -> None:
        self._timeout = timeout
        self._max_waiting = waiting
        self._places = threading.Semaphore(threads)
        self._lock = threading.Lock()
        #: The calls without a message, since when, and their connection; the oldest first.
        self._unsent: dict[Any, tuple[float, str]] = {}
        #: The calls that hold a place, and since when.
        self._held: dict[object, float] = {}
        self._given_up = 0
        self._bytes = 0
        self._checks = Periodic("a2a-grpc-calls", self._check, retry=1.0)

    def receiving(self, behavior: Callable[..., _Answer]) -> Callable[..., _Answer]:
        """A behavior of grpcio for requests that are streams: ``behavior(message, rpc, …)``, which gets the first message.

        It is called with an `AgentError` in place of a call that has no message, or gets no place.
        """

        def receive(requests: Iterator[bytes], rpc: Any, *rest: Any) -> _Answer:
            error: AgentError
            try:
                data = self._message(requests, rpc)
                if data is None:
                    raise InvalidRequestError("the call has no message")
                leave = self._enter(len(data))
            except AgentError as caught:
                error = caught
            else:
                try:
                    return behavior(data, rpc, *rest)
                finally:
                    leave()
            return behavior(error, rpc, *rest)

        return receive

    def _message(self, requests: Iterator[bytes], rpc: Any) -> bytes | None:
        """The message of a call; None where it has ended without one."""
        cut = None
        with self._lock:
            self._unsent[rpc] = time.monotonic(), rpc.peer()
            if len(self._unsent) > _MAX_UNSENT:
                cut = self._surplus()
                del self._unsent[cut]
        if cut is not None:
            logger.info("a call was cut, because too many calls send no message")
            cut.cancel()
        self._checks.start(_WAITS_AFTER)
        try:
            return next(requests, None)
        finally:
            with self._lock:
                self._unsent.pop(rpc, None)

    def _surplus(self) -> Any:
        """The oldest call without a message of the connection that has most of them; called under the lock."""
        connections = Counter(connection for _, connection in self._unsent.values())
        most = connections.most_common(1)[0][0]
        return next(rpc for rpc, (_, connection) in self._unsent.items() if connection == most)

    def _enter(self, size: int) -> Callable[[], None]:
        """Take one of the `threads`, and wait for it; the returned function leaves it.

        Raises:
            OverloadedError: there is none for too long, or too many bytes wait.
        """
        holder = object()
        if not self._places.acquire(blocking=False):
            self._wait(size)
        self._held[holder] = time.monotonic()
        self._checks.start(_WAITS_AFTER)
        return partial(self._leave, holder)

    def _leave(self, holder: object) -> None:
        with self._lock:
            if self._held.pop(holder, None) is None:
                self._given_up -= 1
            else:
                self._places.release()

    def _wait(self, size: int) -> None:
        with self._lock:
            admitted = self._bytes + size <= _MAX_WAITING_BYTES
            if admitted:
                self._bytes += size
        if admitted:
            try:
                if self._places.acquire(timeout=_LONGEST_WAIT):
                    return
            finally:
                with self._lock:
                    self._bytes -= size
        raise OverloadedError("too many calls wait for a thread; try again later", retry_after=1.0)

    def _check(self) -> float | None:
        """Cut the calls whose message is late, and free the places of calls that wait."""
        now = time.monotonic()
        for rpc, (since, _) in list(self._unsent.items()):
            if since > now - self._timeout:
                break
            logger.info("a call was cut, because its message took more than %g seconds", self._timeout)
            rpc.cancel()
        for holder, since in list(self._held.items()):
            if since <= now - _WAITS_AFTER:
                self._give_up(holder)
        return _WAITS_AFTER / 2 if self._held or self._unsent else None

    def _give_up(self, holder: object) -> None:
        with self._lock:
            if self._given_up < self._max_waiting and self._held.pop(holder, None) is not None:
                self._given_up += 1
                self._places.release()

    def close(self) -> None:
        """End the thread that checks."""
        self._checks.stop()
