"""Receives the messages of calls, few at a time: gRPC itself has no bound for the bytes of messages that arrive.

It takes 64 KiB of a message that is not asked for, and the whole message once it is. So a call asks for its message when it has a
place. As in `a2a_sync.grpc.threads`, private names of grpcio are used.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Lock
from typing import Any, Final

from grpc import _server as grpcio
from grpc._cython import cygrpc

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.errors import AgentError, InvalidRequestError
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Bytes that gRPC takes of a message that is not asked for; larger messages keep their place until they are executed.
WINDOW: Final = 64 * 1024 - 1
#: Most bytes of messages for which there are places; so many calls have one anyway.
_MAX_BYTES = 256 * 1024 * 1024
_MIN_PLACES = 8
#: Seconds after which a message is late whose call has a place.
_LATE_AFTER = 0.05
#: Of so many places one is left to calls whose messages are late, while others wait.
_LATE_SHARE = 4
#: Seconds that a call waits for a place before it gets that of one that is late.
_PATIENCE = 1.0
#: Seconds between two checks, and between two while calls wait.
_CHECK_INTERVAL = 0.1
_SHORT_INTERVAL = 0.025
#: Most calls whose message has not arrived; beyond it half of them are cut.
_MAX_UNSENT = 1000
#: Names a batch without operations among the pending batches of a call.
_EMPTY_BATCH = "a2a_check"


class _Call:
    """A call without its message; `since` it waits for a place, or has one.

    `execute` is called with the message, or with the error that the call ends with, and with the function that frees its place.
    """

    __slots__ = ("execute", "peer", "rpc", "since", "state")

    def __init__(self, rpc: Any, state: Any, execute: Callable[[bytes | AgentError, Callable[[], None]], None]) -> None:
        self.rpc = rpc
        #: The name of its connection.
        self.peer: str = rpc.peer().decode(errors="replace")
        self.state = state
        self.execute = execute
        self.since = time.monotonic()


class _Turns:
    """Calls that wait for a place; the connections have one in turn. Not thread-safe."""

    def __init__(self) -> None:
        self._connections: dict[str, deque[_Call]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Call]:
        for calls in self._connections.values():
            yield from calls

    def __contains__(self, peer: str) -> bool:
        return peer in self._connections

    def add(self, call: _Call) -> None:
        self._connections.setdefault(call.peer, deque()).append(call)
        self._count += 1

    def pop(self, admits: Callable[[str], bool]) -> _Call | None:
        """Remove the next call of a connection that `admits` a call. The connection is the last one in turn then."""
        peer = next(filter(admits, self._connections), None)
        if peer is None:
            return None
        calls = self._connections.pop(peer)
        call = calls.popleft()
        if calls:
            self._connections[peer] = calls
        self._count -= 1
        return call

    def remove(self, call: _Call) -> None:
        self._connections[call.peer].remove(call)
        if not self._connections[call.peer]:
            del self._connections[call.peer]
        self._count -= 1

    def waiting_since(self, moment: float) -> list[str]:
        """The connections with a call that waits since `moment`, or for longer."""
        return [peer for peer, calls in self._connections.items() if calls[0].since <= moment]


class Arrivals:
    """Receives the messages of calls. Any thread may call the methods, which do not block.

    There are places for 256 MiB of messages of the largest size, and 8 at least. A call has one until its message has arrived,
    and that of a message beyond 64 KiB until it was executed. A connection has a fair share of the places, of which some remain for
    the next one; the other calls wait, and their connections have places in turn. A connection that receives nothing, and whose
    call has waited for a second, gets the place of a call whose message is late, by 0.05 seconds: the oldest one of the connection
    that has most of them is cut. A quarter of the places is left to calls that are late.

    Parameters:
        message_bytes: the largest message.
        message_timeout: how long a call may wait for a place, and its message may take then, in seconds.
    """

    def __init__(self, message_bytes: int, message_timeout: float) -> None:
        self._timeout = message_timeout
        quotas = Quotas()
        quotas.several = True
        self._places = quotas.share(max(_MIN_PLACES, _MAX_BYTES // message_bytes))
        self._lock = Lock()
        #: The calls that have a place and no message, the oldest first.
        self._receiving: dict[_Call, None] = {}
        self._waiting = _Turns()
        self._looking = False
        self._checks = Periodic("a2a-grpc-messages", self._check, retry=1.0)

    def receive(self, rpc: Any, state: Any, execute: Callable[[bytes | AgentError, Callable[[], None]], None]) -> None:
        """Call ``execute(message, leave)`` when the message of a call has arrived, on the thread of grpcio that accepts calls.

        It must not block. It gets an error in place of a message where there is none. ``leave`` is called once, when the call
        was executed. A call that ends before has no `execute`.
        """
        call = _Call(rpc, state, execute)
        with self._lock:
            admitted = call.peer not in self._waiting and self._places.admits(call.peer)
            if admitted:
                self._enter(call)
            else:
                self._waiting.add(call)
            many = len(self._receiving) + len(self._waiting) > _MAX_UNSENT
        if admitted:
            self._start(call)
        self._checks.start(_CHECK_INTERVAL)
        if many:
            self._cut(lambda: _surplus([*self._receiving, *self._waiting], _MAX_UNSENT // 2))

    def _enter(self, call: _Call) -> None:
        """Give a place to a call; called under the lock."""
        self._places.take(call.peer)
        call.since = time.monotonic()
        self._receiving[call] = None

    def _leave(self, call: _Call) -> None:
        """Free the place of a call, and give it to those that wait."""
        left = [call]
        while left:
            entered = []
            with self._lock:
                for one in left:
                    self._places.release(one.peer)
                    self._receiving.pop(one, None)
                while self._waiting and (following := self._waiting.pop(self._places.admits)) is not None:
                    self._enter(following)
                    entered.append(following)
            left = [one for one in entered if not self._start(one)]

    def _start(self, call: _Call) -> bool:
        """Start to receive a message, as grpcio does on the thread of a call, which waits for it then. False: the call has ended."""
        state = call.state

        def received(event: Any) -> Any:
            # On the thread of grpcio that accepts calls: the message has arrived, or there is none.
            data = event.batch_operations[0].message()
            with state.condition:
                canceled = state.client is grpcio._CANCELLED
                ended = grpcio._possibly_finish_call(state, grpcio._RECEIVE_MESSAGE_TOKEN)
            keeps = data is not None and len(data) > WINDOW and not canceled
            if keeps:
                with self._lock:
                    self._receiving.pop(call, None)
            else:
                self._leave(call)
            if not canceled:
                message = InvalidRequestError("the call has no message") if data is None else data
                call.execute(message, partial(self._leave, call) if keeps else lambda: None)
            return ended

        with state.condition:
            if not grpcio._is_rpc_state_active(state):
                return False
            call.rpc.start_server_batch((cygrpc.ReceiveMessageOperation(0),), received)
            state.due.add(grpcio._RECEIVE_MESSAGE_TOKEN)
        return True

    # -- checks --

    def _check(self) -> float | None:
        """Cut the calls whose message takes too long."""
        now = time.monotonic()
        self._cut(lambda: self._expired(now))
        self._look(now)
        if self._waiting:
            return _SHORT_INTERVAL
        return _CHECK_INTERVAL if self._receiving else None

    def _expired(self, now: float) -> list[_Call]:
        return [call for call in (*self._receiving, *self._waiting) if call.since <= now - self._timeout]

    def _late(self, now: float) -> list[_Call]:
        """The calls whose places other connections get."""
        waiting = self._waiting.waiting_since(now - _PATIENCE)
        if not waiting:
            return []
        receiving = {call.peer for call in self._receiving}
        without = sum(peer not in receiving for peer in waiting)
        late = [call for call in self._receiving if call.since <= now - _LATE_AFTER]
        return _surplus(late, max(self._places.total // _LATE_SHARE, len(late) - without))

    def _look(self, now: float) -> None:
        """Cut the calls that are late, on the thread of grpcio that accepts calls: after it has received what has arrived by now."""
        with self._lock:
            late = [] if self._looking else self._late(now)
        if not late:
            return
        state = late[0].state

        def looked(_: Any) -> Any:
            with state.condition:
                ended = grpcio._possibly_finish_call(state, _EMPTY_BATCH)
            self._looking = False
            self._cut(lambda: self._late(now))
            return ended

        with state.condition:
            if grpcio._RECEIVE_MESSAGE_TOKEN in state.due:
                self._looking = True
                late[0].rpc.start_server_batch((), looked)
                state.due.add(_EMPTY_BATCH)

    def _cut(self, choose: Callable[[], list[_Call]]) -> None:
        with self._lock:
            chosen = choose()
            for call in chosen:
                if call in self._receiving:
                    del self._receiving[call]
                else:
                    self._waiting.remove(call)
        for call in chosen:
            call.rpc.cancel()
        if chosen:
            logger.info("%d calls were cut that have sent no message", len(chosen))

    def close(self) -> None:
        """End the checks."""
        self._checks.stop()


def _surplus(calls: Iterable[_Call], keep: int) -> list[_Call]:
    """The calls beyond `keep`, the oldest first, of the connections that have most of them."""
    connections: defaultdict[str, deque[_Call]] = defaultdict(deque)
    for call in calls:
        connections[call.peer].append(call)
    surplus = max(0, sum(map(len, connections.values())) - keep)
    return [max(connections.values(), key=len).popleft() for _ in range(surplus)]
