"""Bounds the messages that clients do not read: gRPC itself keeps those of each call for as long as the connection is open."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final, NamedTuple, Protocol

from a2a_sync.concurrency.background import Periodic
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Most bytes of the messages that connections have not accepted.
_MAX_BYTES = 128 * 1024 * 1024
#: grpcio keeps the bytes of a message that it has copied.
_COPIES = 2
#: What gRPC keeps for a call besides its message, with metadata near the limit.
_CALL_BYTES = 32 * 1024
#: The slowest client that is waited for, in bytes a second, beyond the time-out: how much of a message it has read is not known.
_SLOWEST = 64 * 1024
#: Most seconds between two checks.
_CHECK_INTERVAL = 0.5


class SendingCall(Protocol):
    """A call that sends a message."""

    @property
    def peer(self) -> bytes:
        """Names its connection."""

    def cancel(self) -> None:
        """End it, and free its message. Does not block."""


class _Sending(NamedTuple):
    """A message that is being sent: the name of its connection, its bytes with those of the call, and when it is late."""

    peer: bytes
    size: int
    due: float


class Unread:
    """The messages that are being sent, each until its connection has accepted it. Any thread may call the methods.

    They may take 128 MiB, each twice its bytes and 32 KiB; beyond it the oldest one is cut of the connection that has most of these.

    Parameters:
        timeout: how long a message may take, in seconds, and one more for each 64 KiB.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._interval = min(_CHECK_INTERVAL, timeout / 2)
        self._lock = threading.Lock()
        #: The oldest first.
        self._sending: dict[SendingCall, _Sending] = {}
        self._connections: Counter[bytes] = Counter()
        self._bytes = 0
        self._checks = Periodic("a2a-grpc-unread", self._check, retry=1.0)

    def begin(self, call: SendingCall, size: int) -> None:
        """`call` starts to send a message of `size` bytes. It sends one at a time."""
        due = time.monotonic() + self._timeout + size / _SLOWEST
        sending = _Sending(call.peer, _COPIES * size + _CALL_BYTES, due)
        with self._lock:
            self._sending[call] = sending
            self._connections[sending.peer] += sending.size
            self._bytes += sending.size
            surplus = self._surplus()
        self._checks.start(self._interval)
        _cut(surplus)

    def end(self, call: SendingCall) -> None:
        """The message is accepted, or the call has ended. Does nothing for a call that sends none."""
        with self._lock:
            self._remove(call)

    def _remove(self, call: SendingCall) -> None:
        sending = self._sending.pop(call, None)
        if sending is not None:
            self._bytes -= sending.size
            self._connections[sending.peer] -= sending.size
            if not self._connections[sending.peer]:
                del self._connections[sending.peer]

    def _surplus(self) -> list[SendingCall]:
        """Remove the calls beyond the limit; called under the lock. A single message may be larger."""
        surplus: list[SendingCall] = []
        while len(self._sending) > 1 and self._bytes > _MAX_BYTES:
            most = max(self._connections, key=self._connections.__getitem__)
            surplus.append(next(call for call, sending in self._sending.items() if sending.peer == most))
            self._remove(surplus[-1])
        return surplus

    def _check(self) -> float | None:
        now = time.monotonic()
        with self._lock:
            late = [call for call, sending in self._sending.items() if sending.due <= now]
            for call in late:
                self._remove(call)
        _cut(late)
        return self._interval if self._sending else None

    def close(self) -> None:
        """End the checks."""
        self._checks.stop()


def _cut(calls: list[SendingCall]) -> None:
    for call in calls:
        call.cancel()
    if calls:
        logger.info("%d calls were cut whose clients do not read", len(calls))
