"""Sends the events of open streams on a few shared threads: a stream that waits for its next event holds none."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import AgentError, OverloadedError
from a2a_sync.limits import Limits
from a2a_sync.operations import StreamItem
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Threads that send events at once, beside those that wait for clients that do not read.
_THREADS = 8
#: Each stream waits for a thread once at most.
_MAX_QUEUED = 1_000_000
#: Most seconds between two checks of open streams, and those after which a thread that waits for a client is replaced.
_CHECK_INTERVAL = 0.5


class Sender:
    """The open streams of a server and the threads that send their events. Threads start with the first stream."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._pool = WorkerPool(
            threads=_THREADS, max_queued=_MAX_QUEUED, max_abandoned=limits.max_open_streams, name="a2a-grpc-stream"
        )
        self._open: set[OpenStream] = set()
        self._interval = min(_CHECK_INTERVAL, limits.stream_keepalive_interval / 2)
        self._checks = Periodic("a2a-grpc-streams", self._check, retry=1.0)

    def open(self, stream: OpenStream) -> None:
        """Send the events of `stream` from now on, until it ends."""
        self._open.add(stream)
        self._checks.start(self._interval)
        stream.wake()

    def submit(self, work: Callable[[], None]) -> Slot | None:
        """Run `work` on a thread; None where the system has none, and the next check tries again."""
        slot = None
        try:
            slot = self._pool.reserve()
            slot.submit(work)
        except OverloadedError:
            return None
        except RuntimeError:
            logger.exception("no thread for the events of a stream; it is retried")
            if slot is not None:
                slot.release()
            return None
        return slot

    def discard(self, stream: OpenStream) -> None:
        """`stream` has ended."""
        self._open.discard(stream)

    def end(self) -> None:
        """End the open streams. Their tasks go on, and clients resume."""
        for stream in list(self._open):
            stream.close()

    def _check(self) -> float | None:
        now = time.monotonic()
        for stream in list(self._open):
            stream.check(now)
        return self._interval if self._open else None

    def close(self) -> None:
        """End the threads."""
        self._checks.stop()
        self._pool.close()


class OpenStream:
    """The events of one call on their way to the client. Any thread may call the methods.

    Parameters:
        sender: runs it, and has the limits.
        events: the stream of the service.
        encode: makes the message of an event.
        encode_end: makes the message that repeats an event at the end of the stream; None where there is none.
        write: sends a message, and returns when the connection has accepted it: not before the client reads. None ends the call.
        cancel: cuts the call.
        heartbeats: the client expects empty messages while there are no events.
        finish: called once, with the error that ended the stream, or None; then ``write(None)`` follows.
    """

    # There are thousands.
    __slots__ = (
        *("_busy", "_cancel", "_encode", "_encode_end", "_end", "_events", "_finish", "_keepalive", "_lock"),
        *("_sender", "_slot", "_woken", "_write", "_writing", "_written"),
    )

    def __init__(
        self,
        sender: Sender,
        events: PolledStream,
        encode: Callable[[StreamItem], bytes],
        encode_end: Callable[[StreamItem], bytes | None],
        write: Callable[[bytes | None], None],
        cancel: Callable[[], None],
        *,
        heartbeats: bool,
        finish: Callable[[AgentError | None], None],
    ) -> None:
        self._sender = sender
        self._events = events
        self._encode = encode
        self._encode_end = encode_end
        self._write = write
        self._cancel = cancel
        self._finish = finish
        self._lock = threading.Lock()
        self._busy = self._woken = False
        self._slot: Slot | None = None
        #: Since when a message is being sent; None: none is.
        self._writing: float | None = None
        limits, now = sender.limits, time.monotonic()
        self._keepalive = limits.stream_keepalive_interval if heartbeats else float("inf")
        # Jittered, so that streams opened together do not end together.
        self._end = now + limits.max_stream_age * random.uniform(0.9, 1.0)
        self._written = now
        events.notify(self.wake)

    def wake(self) -> None:
        """There may be something to send. Does not block."""
        with self._lock:
            self._woken = True
            if self._busy:
                return
            self._busy = True
        slot = self._sender.submit(self._work)
        with self._lock:
            if slot is None:
                self._busy = False
            else:
                self._slot = slot

    def close(self) -> None:
        """End the stream after the events that are being sent. The task continues."""
        self._events.close()

    def check(self, now: float) -> None:
        """Called again and again: heartbeats, the longest life, and clients that do not read."""
        writing = self._writing
        if writing is not None:
            if now - writing >= self._sender.limits.write_timeout:
                logger.info("a client read nothing for %g seconds; its stream is cut", now - writing)
                self._cancel()
            elif now - writing >= _CHECK_INTERVAL and self._slot is not None:
                self._slot.abandon()
        elif self._woken or now >= self._end or now - self._written >= self._keepalive:
            self.wake()

    # -- on a thread of the sender --

    def _work(self) -> None:
        error: AgentError | None = None
        try:
            while self._send_waiting():
                if self._rest():
                    return
            closing = self._events.closing
            if closing is not None and (last := self._encode_end(closing)) is not None:
                self._send(last)
        except AgentError as caught:
            error = caught
        except Exception:
            error = incident(logger, "a stream failed", {})
        self._leave(error)

    def _send_waiting(self) -> bool:
        """Send what is there; False: the stream has ended."""
        self._woken = False
        items = self._events.poll(0)
        if items is None:
            return False
        for item in items:
            self._send(self._encode(item))
        now = time.monotonic()
        if now >= self._end:
            return False
        if now - self._written >= self._keepalive:
            self._send(b"")
        # Until there was nothing more, events may follow that no call announces.
        self._woken = self._woken or bool(items)
        return True

    def _send(self, message: bytes) -> None:
        self._writing = time.monotonic()
        self._write(message)
        self._writing = None
        self._written = time.monotonic()

    def _rest(self) -> bool:
        """Leave the thread, unless the stream was woken meanwhile."""
        with self._lock:
            self._busy = self._woken
            if not self._busy:
                self._slot = None
            return not self._busy

    def _leave(self, error: AgentError | None) -> None:
        self._sender.discard(self)
        try:
            self._finish(error)
        finally:
            self._events.close()
            self._write(None)
