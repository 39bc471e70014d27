"""The threads of calls: a call takes one when its message has arrived.

grpcio has no public way to receive or send a message without a thread that waits, so private names of it are used, which are the
same in 1.71 to 1.85. The extra ``grpc`` has that upper bound, and a higher lower one, from which on the size of compressed
messages is bounded.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from grpc import _server as grpcio
from grpc._cython import cygrpc

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.engine.hub import Wait
from a2a_sync.errors import AgentError, InvalidRequestError, OverloadedError
from a2a_sync.grpc.unread import Unread
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Seconds after which a message is late.
_LATE_AFTER = 2.0
#: Seconds between two checks.
_CHECK_INTERVAL = 0.1
#: Most bytes of the parts of messages that have arrived of calls that are late; so many calls may wait anyway.
_MAX_UNSENT_BYTES = 160 * 1024 * 1024
_MIN_UNSENT = 8
#: Most calls whose message has not arrived, however short they have lasted; beyond it half of them are cut.
_MAX_UNSENT = 1000
#: Most bytes of messages that wait for a thread; shorter ones wait anyway.
_MAX_WAITING_BYTES = 64 * 1024 * 1024
_SHORT = 64 * 1024
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


class _Call:
    """A call that waits for its message or for a thread.

    ``run`` executes it with its message, or with the error that it ends with; it raises nothing.
    """

    __slots__ = ("began", "rpc", "run")

    def __init__(self, rpc: Any, run: Callable[[bytes | AgentError], None]) -> None:
        self.rpc = rpc
        self.run = run
        self.began = time.monotonic()


class CallThreads(Executor):
    """Executes `threads` calls at once on daemons: a call that hangs keeps no process.

    grpcio waits for a message without a limit, on the thread of the call, and counts that call among those that it executes. Here a
    call has neither thread nor place before its message is complete. Of the calls that have no message after two seconds there
    are few: beyond that the oldest one is cut of the connection that has most of them.

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
        self._timeout = message_timeout
        self._metadata_bytes = metadata_bytes
        self._max_unsent = max(_MIN_UNSENT, _MAX_UNSENT_BYTES // message_bytes)
        self._pool = WorkerPool(threads=threads, max_queued=waiting, max_abandoned=0, name="a2a-grpc")
        self._receiving: set[Any] = set()
        self._lock = Lock()
        #: The calls that wait for their message, the oldest first.
        self._unsent: dict[_Call, None] = {}
        self._waiting_bytes = 0
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
            self._start(_Call(event.call, lambda message: event.call.cancel() if message else fn(*args)), b"")
        elif _size(event.invocation_metadata) > self._metadata_bytes:
            # gRPC itself has no limit for clients that do not acknowledge its settings.
            event.call.cancel()
        else:
            run = partial(_run, fn, function, event, state, behavior, rest)
            self._receive(_Call(event.call, run), state)
        return _SUBMITTED

    # -- messages --

    def _receive(self, call: _Call, state: Any) -> None:
        """Start to receive the message, as grpcio does on the thread of a call, which waits for it then."""

        def received(event: Any) -> Any:
            # On the thread of grpcio that accepts calls: the message has arrived, or there is none.
            data = event.batch_operations[0].message()
            with state.condition:
                canceled = state.client is grpcio._CANCELLED
                ended = grpcio._possibly_finish_call(state, grpcio._RECEIVE_MESSAGE_TOKEN)
            with self._lock:
                self._unsent.pop(call, None)
            if not canceled:
                self._start(call, InvalidRequestError("the call has no message") if data is None else data)
            return ended

        with self._lock:
            self._unsent[call] = None
        with state.condition:
            call.rpc.start_server_batch((cygrpc.ReceiveMessageOperation(0),), received)
            state.due.add(grpcio._RECEIVE_MESSAGE_TOKEN)
        self._checks.start(_CHECK_INTERVAL)
        if len(self._unsent) > _MAX_UNSENT:
            self._cut(lambda: _surplus(self._unsent, _MAX_UNSENT // 2))

    def _start(self, call: _Call, message: bytes | AgentError) -> None:
        """Execute a call on a thread, or end it with an error, which does not block."""
        if isinstance(message, AgentError):
            call.run(message)
            return
        try:
            slot = self._pool.reserve()
        except OverloadedError:
            call.run(_full())
            return
        long = 0 if slot.ready or len(message) <= _SHORT else len(message)
        if self._waiting_bytes + long > _MAX_WAITING_BYTES:
            slot.release()
            call.run(_full())
            return
        latest = time.monotonic() + _LONGEST_WAIT

        def job() -> None:
            with self._lock:
                self._waiting_bytes -= long
            call.run(message if time.monotonic() <= latest else _full())

        with self._lock:
            self._waiting_bytes += long
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
        """Go on with calls, and cut those that have waited for their message for too long, or are too many."""
        now = time.monotonic()
        self._cut(lambda: self._late(now))
        for _ in range(len(self._unstarted)):
            self._start_thread(*self._unstarted.popleft())
        self._resume(now)
        return _CHECK_INTERVAL if self._unstarted or self._resumed or self._unsent else None

    def _late(self, now: float) -> list[_Call]:
        """The calls whose message takes too long, and those that are too many of the ones whose message is late."""
        late = [call for call in self._unsent if call.began <= now - min(_LATE_AFTER, self._timeout)]
        expired = [call for call in late if call.began <= now - self._timeout]
        return [*expired, *_surplus(late[len(expired) :], self._max_unsent)]

    def _cut(self, choose: Callable[[], list[_Call]]) -> None:
        with self._lock:
            chosen = choose()
            for call in chosen:
                del self._unsent[call]
        for call in chosen:
            call.rpc.cancel()
        if chosen:
            logger.info("%d calls were cut that have sent no message", len(chosen))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads: idle ones now, the others after their call."""
        self._checks.stop()
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


def _surplus(calls: Iterable[_Call], keep: int) -> list[_Call]:
    """The calls beyond `keep`, the oldest first, of the connections that have most of them."""
    connections: defaultdict[bytes, deque[_Call]] = defaultdict(deque)
    for call in calls:
        connections[call.rpc.peer()].append(call)
    surplus = max(0, sum(map(len, connections.values())) - keep)
    return [max(connections.values(), key=len).popleft() for _ in range(surplus)]
