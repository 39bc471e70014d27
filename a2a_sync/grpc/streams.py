"""Sends the events of open streams on a few shared threads: a stream that waits for its next event holds none."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any, Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import AgentError, OverloadedError
from a2a_sync.grpc.threads import StreamedCall
from a2a_sync.grpc.unread import Unread
from a2a_sync.limits import Limits
from a2a_sync.operations import StreamItem
from a2a_sync.server.pending import PendingReply
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Threads that take events at once; none waits for a client.
_THREADS = 8
#: Each stream waits for a thread once at most.
_MAX_QUEUED = 1_000_000
#: Most seconds between two checks of open streams.
_CHECK_INTERVAL = 0.5
#: A stream takes no more events when these bytes of them wait to be sent.
_MAX_TAKEN_BYTES = 64 * 1024


class Sender:
    """The open streams of a server and the threads that send their events. Threads start with the first stream."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unread: Unread = Unread(limits.write_timeout)
        # Those of sends may wait for the bytes of a large answer, and must not delay the events of streams meanwhile.
        self._pool, self._sends = (
            WorkerPool(threads=_THREADS, max_queued=_MAX_QUEUED, max_abandoned=0, name=name)
            for name in ("a2a-grpc-stream", "a2a-grpc-send")
        )
        self._open: set[OpenStream] = set()
        self._interval = min(_CHECK_INTERVAL, limits.stream_keepalive_interval / 2)
        self._checks = Periodic("a2a-grpc-streams", self._check, retry=1.0)

    def open(self, stream: OpenStream) -> None:
        """Send the events of `stream` from now on, until it ends."""
        self._open.add(stream)
        self._checks.start(self._interval)
        stream.work()

    def submit(self, work: Callable[[], None], *, waits: bool) -> bool:
        """Run `work`, which may wait, on a thread; False where the system has none, and the next check tries again."""
        slot = None
        try:
            slot = (self._sends if waits else self._pool).reserve()
            slot.submit(work)
        except OverloadedError:
            return False
        except RuntimeError:
            logger.exception("no thread for the events of a stream; it is retried")
            if slot is not None:
                slot.release()
            return False
        return True

    def discard(self, stream: OpenStream) -> None:
        """`stream` has ended."""
        self._open.discard(stream)

    def end(self) -> None:
        """End the open streams, but not sends. Their tasks go on, and clients resume."""
        for stream in list(self._open):
            if stream.ages:
                stream.close()

    def _check(self) -> float | None:
        now = time.monotonic()
        for stream in list(self._open):
            stream.check(now)
        return self._interval if self._open else None

    def close(self) -> None:
        """End the threads."""
        self._checks.stop()
        self.unread.close()
        self._pool.close()
        self._sends.close()


@dataclass(eq=False, repr=False)
class OpenStream:
    """The events of one call on their way to the client. Any thread may call the methods.

    Parameters:
        sender: runs it, and has the limits.
        events: the stream of the service.
        encode: makes the message of an event.
        encode_end: makes the message that repeats an event at the end of the stream; None where there is none.
        call: sends the messages.
        heartbeats: the client expects empty messages while there are no events.
        ages: it has the longest life of a stream; a send has none.
        pending: `events`, where it is a send that waits.
        first: messages to send before the events.
        finish: called once, with the error that ended the stream, or None, before the last message is sent.
    """

    # There are thousands.
    __slots__ = (
        *("_busy", "_end", "_ended", "_error", "_keepalive", "_lock", "_unsent", "_woken", "_writing", "_written"),
        *("ages", "call", "encode", "encode_end", "events", "finish", "pending", "sender"),
    )

    sender: Sender
    events: PolledStream
    encode: Callable[[StreamItem], bytes]
    encode_end: Callable[[StreamItem], bytes | None]
    call: StreamedCall
    _: KW_ONLY
    heartbeats: InitVar[bool]
    ages: bool
    pending: PendingReply | None
    first: InitVar[Iterable[bytes]]
    finish: Callable[[AgentError | None], None]

    def __post_init__(self, heartbeats: bool, first: Iterable[bytes]) -> None:
        self._lock = threading.Lock()
        #: Held by the thread that takes events, and then by the messages that are being sent.
        self._busy = True
        self._woken = self._ended = False
        self._error: AgentError | None = None
        self._unsent: deque[bytes] = deque(first)
        #: A message is being sent.
        self._writing = False
        limits, now = self.sender.limits, time.monotonic()
        self._keepalive = limits.stream_keepalive_interval if heartbeats else float("inf")
        # Jittered, so that streams opened together do not end together.
        self._end = now + limits.max_stream_age * random.uniform(0.9, 1.0) if self.ages else float("inf")
        self._written = now
        self.events.notify(self.wake)

    def open(self, context: Any) -> None:
        """Send the events from now on, until the stream or the call ends, whose context of grpcio is `context`."""
        self.sender.open(self)
        if not context.add_callback(self.gone):
            self.gone()  # the client has left

    def wake(self) -> None:
        """There may be something to send. Does not block."""
        with self._lock:
            self._woken = True
            if self._busy:
                return
            self._busy = True
        self._submit()

    def _submit(self) -> None:
        if not self.sender.submit(self.work, waits=self.pending is not None and self.pending.waits):
            with self._lock:
                self._busy = False

    def close(self) -> None:
        """End the stream after the events that are being sent. The task continues."""
        self.events.close()

    def gone(self) -> None:
        """The call has ended."""
        self.sender.discard(self)
        self.events.close()

    def check(self, now: float) -> None:
        """Called again and again: heartbeats, and the longest life."""
        if self._writing:
            return
        due = self._end if self.pending is None else min(self._end, self.pending.deadline)
        if self._woken or now >= due or now - self._written >= self._keepalive:
            self.wake()

    def work(self) -> None:
        """Send what is there. Called once at first, and then by the sender."""
        try:
            self._take_waiting()
        except AgentError as caught:
            self._error, self._ended = caught, True
        except Exception:
            self._error, self._ended = incident(logger, "a stream failed", {}), True
        if self._ended:
            self.events.close()
        self._go_on()

    def _take_waiting(self) -> None:
        self._woken = False
        size, now = 0, time.monotonic()
        # Until there is nothing more, events may follow that no call announces.
        while items := self.events.poll(0):
            for item in items:
                self._unsent.append(self.encode(item))
                size += len(self._unsent[-1])
            if size > _MAX_TAKEN_BYTES:
                self._woken = True
                break
        if items is None:
            self._ended = True
            closing = self.events.closing
            if closing is not None and (last := self.encode_end(closing)) is not None:
                self._unsent.append(last)
        elif now >= self._end:
            self._ended = True
        elif not self._unsent and now - self._written >= self._keepalive:
            self._unsent.append(b"")

    def _go_on(self) -> None:
        """Send the next message, end the call, or wait for events. Does not block."""
        if len(self._unsent) > self._ended:
            self._writing = True
            if self.call.send(self._unsent.popleft(), self._accepted):
                return
            self._ended = True
        if self._ended:
            self._writing = True
            self._leave()
            return
        with self._lock:
            self._busy = self._woken
        if self._busy:
            self._submit()

    def _accepted(self) -> None:
        """The connection has accepted a message, or the call has ended; on the thread of grpcio."""
        self._writing, self._written = False, time.monotonic()
        self._go_on()

    def _leave(self) -> None:
        """End the call, with the last message in the same write."""
        try:
            self.finish(self._error)
        finally:
            self.call.end(self._unsent.popleft() if self._unsent else None)
