"""The threads of calls: a call takes one when its message has arrived.

grpcio has no public way to receive or send a message without a thread that waits, so private names of it are used, which are the
same in 1.71 to 1.85. The extra ``grpc`` has that upper bound, and a higher lower one, from which on the size of compressed
messages is bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final, TypeVar

from grpc import _server as grpcio
from grpc._cython import cygrpc

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.engine.hub import Wait
from a2a_sync.errors import AgentError, OverloadedError
from a2a_sync.grpc.arrivals import Arrivals
from a2a_sync.grpc.unread import Unread
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Seconds between two checks.
_CHECK_INTERVAL = 0.1
#: Most seconds that a call waits for a thread.
_LONGEST_WAIT = 30.0

#: The private names that are used here.
_NAMES = (
    *("_CANCELLED", "_RECEIVE_MESSAGE_TOKEN", "_SEND_MESSAGE_TOKEN", "_get_initial_metadata_operation"),
    *("_is_rpc_state_active", "_possibly_finish_call", "_status"),
)
_missing: Final[list[str]] = [name for name in _NAMES if not hasattr(grpcio, name)]
if _missing:
    raise ImportError(
        f"this grpcio lacks {', '.join(_missing)}; install a version that the extra a2a-sync[grpc] allows"
    )

_BehaviorT = TypeVar("_BehaviorT", bound=Callable[..., Any])


class CallThreads(Executor):
    """Executes `threads` calls at once on daemons: a call that hangs keeps no process.

    grpcio waits for a message without a limit, on the thread of the call, and counts that call among those that it executes. Here a
    call has neither before its message is complete (`Arrivals`).

    Parameters:
        threads: calls at once.
        waiting: most calls with a message that wait for a thread; others are refused.
        message_bytes: the largest message.
        message_timeout: how long a message may take, in seconds.
        metadata_bytes: the largest metadata, with 32 bytes for each of its entries.
    """

    def __init__(
        self,
        threads: int,
        *,
        waiting: int,
        message_bytes: int,
        message_timeout: float,
        metadata_bytes: int,
    ) -> None:
        self._metadata_bytes = metadata_bytes
        self._arrivals = Arrivals(message_bytes, message_timeout)
        self._pool = WorkerPool(threads=threads, max_queued=waiting, max_abandoned=0, name="a2a-grpc")
        self._receiving: set[Any] = set()
        self._unstarted: deque[tuple[Slot, Callable[[], None]]] = deque()
        #: The calls that have left their thread, each with what it waits for.
        self._resumed: deque[tuple[Wait, Callable[[], None]]] = deque()
        self._checks = Periodic("a2a-grpc-calls", self._check, retry=1.0)

    def receiving(self, behavior: _BehaviorT) -> _BehaviorT:
        """Mark a behavior of grpcio for one request: it is called when the request has arrived.

        It is called with an `AgentError` in place of the request of a call that has none, or for which there is no thread.
        """
        self._receiving.add(behavior)
        return behavior

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Execute a call, when its message has arrived. It raises nothing, which would end the thread of grpcio that accepts calls.

        The future has a result already: grpcio only counts calls by it.
        """
        function, event, state, behavior, _, *rest = args
        if behavior not in self._receiving:
            # It reads its requests itself, and so holds a thread meanwhile.
            self._start(lambda message: event.call.cancel() if message else fn(*args), b"", lambda: None)
        elif _size(event.invocation_metadata) > self._metadata_bytes:
            # gRPC itself has no limit for clients that do not acknowledge its settings.
            event.call.cancel()
        else:
            run = partial(_run, fn, function, event, state, behavior, rest)
            self._arrivals.receive(event.call, state, partial(self._start, run))
        return _SUBMITTED

    def _start(
        self, run: Callable[[bytes | AgentError], None], message: bytes | AgentError, leave: Callable[[], None]
    ) -> None:
        """Execute a call on a thread, or end it with an error, which does not block; then call `leave`.

        `run` raises nothing.
        """
        if isinstance(message, AgentError):
            run(message)
            leave()
            return
        try:
            slot = self._pool.reserve()
        except OverloadedError:
            run(_full())
            leave()
            return
        latest = time.monotonic() + _LONGEST_WAIT

        def job() -> None:
            run(message if time.monotonic() <= latest else _full())
            leave()

        self._start_thread(slot, job)

    def _start_thread(self, slot: Slot, job: Callable[[], None]) -> None:
        try:
            slot.submit(job)
        except RuntimeError:
            logger.exception("no thread for a call; it is retried")
            self._unstarted.append((slot, job))
            self._checks.start(_CHECK_INTERVAL)

    def resume(self, wait: Wait, job: Callable[[], None]) -> None:
        """Go on with a call on a thread when its wait is over, at the next check."""
        self._resumed.append((wait, job))
        self._checks.start(_CHECK_INTERVAL)

    def _resume(self, now: float) -> None:
        for _ in range(len(self._resumed)):
            wait, job = self._resumed.popleft()
            if wait.waiter.wait(0) or now >= wait.until:
                try:
                    self._start_thread(self._pool.reserve(), job)
                    continue
                except OverloadedError:
                    wait = Wait(wait.waiter, now)
            self._resumed.append((wait, job))

    # -- checks --

    def _check(self) -> float | None:
        """Go on with calls."""
        for _ in range(len(self._unstarted)):
            self._start_thread(*self._unstarted.popleft())
        self._resume(time.monotonic())
        return _CHECK_INTERVAL if self._unstarted or self._resumed else None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads: idle ones now, the others after their call."""
        self._checks.stop()
        self._arrivals.close()
        self._pool.close()


class StreamedCall:
    """Sends the messages of a call without a thread that waits: grpcio's own way blocks until the client reads.

    `unread` bounds those that the client does not read.
    """

    __slots__ = ("_call", "_context", "_rpc", "_state", "_unread", "peer")

    def __init__(self, context: Any, unread: Unread) -> None:
        self._context = context
        self._rpc = context._rpc_event
        self._call = self._rpc.call
        self._state = context._state
        self._unread = unread
        self.peer: bytes = self._call.peer()

    def send(self, message: bytes, sent: Callable[[], None]) -> bool:
        """Start to send a message, one at a time. False: the call has ended.

        ``sent`` is called when the connection has accepted it, or the call has ended, on the thread of grpcio that accepts calls: it
        must not block.
        """
        state = self._state

        def accepted(_: Any) -> Any:
            self._unread.end(self)
            with state.condition:
                ended = grpcio._possibly_finish_call(state, grpcio._SEND_MESSAGE_TOKEN)
            try:
                sent()
            except Exception:
                # It would end the thread.
                logger.exception("a stream failed")
                self.cancel()
            return ended

        self._unread.begin(self, len(message))
        with state.condition:
            if not grpcio._is_rpc_state_active(state):
                self._unread.end(self)
                return False
            operations: tuple[Any, ...] = (cygrpc.SendMessageOperation(message, 0),)
            if state.initial_metadata_allowed:
                operations = (grpcio._get_initial_metadata_operation(state, None), *operations)
                state.initial_metadata_allowed = False
            self._call.start_server_batch(operations, accepted)
            state.due.add(grpcio._SEND_MESSAGE_TOKEN)
        return True

    def end(self, message: bytes | None) -> None:
        """End the call with its status, after a last message if there is one. Does not block."""
        self._unread.begin(self, len(message or b""))
        # gRPC announces the end of the call, and not that it has sent the message.
        if not self._context.add_callback(self._accepted):
            self._accepted()
        grpcio._status(self._rpc, self._state, message)

    def _accepted(self) -> None:
        self._unread.end(self)

    def cancel(self) -> None:
        """Cut the call."""
        self._call.cancel()


_SUBMITTED: Final[Future[None]] = Future()
_SUBMITTED.set_result(None)


def _run(
    fn: Callable[..., Any], function: Any, event: Any, state: Any, behavior: Any, rest: list[Any], message: Any
) -> None:
    """Execute a call of grpcio with its message."""
    fn(function, event, state, behavior, lambda: message, *rest)


def _full() -> OverloadedError:
    return OverloadedError("too many calls wait for a thread; try again later", retry_after=1.0)


def _size(metadata: Any) -> int:
    """The size of metadata as HTTP/2 counts it."""
    return 32 * len(metadata) + sum(len(name) + len(value) for name, value in metadata)
