"""Server-sent events over WSGI: an iterable of frames that ends when the client has disconnected or the server stops.

The body is an object with ``close``, not a generator: Python does not run the ``finally`` of a generator that was never
started, and WSGI servers call ``close`` in any case. It is iterated on the request's thread; the worker of `a2a_sync.gunicorn`
frees that thread while there is no event.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

from a2a_sync.bindings.sse import comment, frame
from a2a_sync.codec import Codec
from a2a_sync.concurrency.gevent import let_greenlets_run, patched
from a2a_sync.engine.hub import PolledStream
from a2a_sync.errors import AgentError
from a2a_sync.limits import Limits
from a2a_sync.operations import StreamItem
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.wsgi.connection import Connection
from a2a_sync.wsgi.pausing import PausableBody

logger: Final = get_logger(__name__)

#: Events that wait together are written together up to this many bytes; a larger event is a write of its own.
_MAX_WRITE_BYTES = 64 * 1024
#: A stream pauses when it has no event for so many seconds, where the server continues it; from then on it pauses at once.
_PATIENCE = 0.05
#: Seconds for which a stream writes without a pause while others wait for its thread.
_TIME_SLICE = 0.001
#: Under gevent streams that have written more take turns: a write to a client that reads quickly does not let other greenlets run.
_MAX_UNPACED_BYTES = 16 * 1024
#: Exactly this content type: proxies and clients look for it without a charset.
EVENT_STREAM = "text/event-stream"
HEADERS = [
    ("Content-Type", EVENT_STREAM),
    ("Cache-Control", "no-cache, no-transform"),
    ("X-Accel-Buffering", "no"),
]


class Envelope(Protocol):
    """What a binding puts around the events of a stream. ``error_event`` is the name of an event that holds an error."""

    @property
    def error_event(self) -> str: ...

    def wrap(self, event: bytes) -> bytes: ...

    def wrap_error(self, error: AgentError, codec: Codec) -> bytes: ...


@dataclass(eq=False, repr=False)
class EventStreamBody(PausableBody):
    """The body of one streaming response."""

    _stream: PolledStream
    _envelope: Envelope
    _codec: Codec
    _connection: Connection
    _limits: Limits
    caller: str = ""

    def __post_init__(self) -> None:
        super().__init__(self._connection, self._limits, self.caller)
        self._closed = False
        #: Bytes that are written before the greenlet takes turns with others.
        self._unpaced = _MAX_UNPACED_BYTES
        #: Whether requests or streams wait for the thread of the iteration.
        self._contended: Callable[[], bool] = bool

    def allow_pauses(self, contended: Callable[[], bool]) -> None:
        """As `PausableBody.allow_pauses`; while `contended` returns True, it also pauses between events, after a time slice."""
        super().allow_pauses(contended)
        self._contended = contended
        self._stream.notify(self._wake)

    # -- iteration --

    def __iter__(self) -> Iterator[bytes]:
        limits = self._limits
        # Jittered, so that streams opened together do not end together.
        end = time.monotonic() + limits.max_stream_age * random.uniform(0.9, 1.0)
        # Servers send the headers with the first bytes, so a stream that has no event yet begins with a comment.
        written, tick = -limits.stream_keepalive_interval, 0.0
        checked = resumed = time.monotonic()
        try:
            while (items := self._poll(tick)) is not None:
                tick = self._patience()
                if items:
                    yield from self._frames(items)
                    written = checked = time.monotonic()
                    if written < end:
                        if tick == 0.0 and written - resumed >= _TIME_SLICE:
                            # The next event may be there already, and nothing would announce it.
                            self._woken = True
                            yield b""
                            resumed = time.monotonic()
                        continue
                now = time.monotonic()
                if now >= end:
                    return
                # Not after each wake-up without an event: the check releases the interpreter lock.
                if now - checked >= limits.disconnect_check_interval:
                    checked = now
                    if self._connection.gone():
                        return
                if now - written >= limits.stream_keepalive_interval:
                    yield comment("heartbeat")
                    written = now
                elif self._pauses:
                    # A store that could not be reached is read again without an event.
                    self._due = min(end, written + limits.stream_keepalive_interval, now + limits.store_poll_interval)
                    self._checked = now
                    yield b""
                    resumed, tick = time.monotonic(), 0.0
            closing = self._stream.closing
            if closing is not None and (data := self._codec.encode_end(closing)) is not None:
                yield frame(self._envelope.wrap(data), closing.number)
        except AgentError as error:
            yield self._error(error)
        except Exception:
            yield self._error(incident(logger, "a stream failed", {}))

    def _patience(self) -> float:
        """Seconds to wait for the next event on the thread of the iteration."""
        if not self._pauses:
            return self._limits.disconnect_check_interval
        return 0.0 if self._due or self._contended() else _PATIENCE

    def _poll(self, timeout: float) -> list[StreamItem] | None:
        self._woken = False
        return self._stream.poll(timeout)

    def _frames(self, items: list[StreamItem]) -> Iterator[bytes]:
        """The frames of `items`, joined into few writes of bounded size. It empties `items`, and keeps no frame that it has yielded.

        A client that reads slowly would otherwise keep all of them in memory beside the bytes that wait for it.
        """
        wrap, encode = self._envelope.wrap, self._codec.encode_item
        frames: list[bytes] = []
        left = _MAX_WRITE_BYTES
        items.reverse()
        while items:
            item = items.pop()
            data = frame(wrap(encode(item)), item.number)
            left -= len(data)
            if left < 0 and frames:
                yield from self._paced(frames)
                left = _MAX_WRITE_BYTES - len(data)
            frames.append(data)
            del item, data
        yield from self._paced(frames)

    def _paced(self, frames: list[bytes]) -> Iterator[bytes]:
        """All `frames` in one write, after which other greenlets run if there has been much to write."""
        joined = [b"".join(frames)]
        frames.clear()
        self._unpaced -= len(joined[0])
        yield joined.pop()
        if self._unpaced < 0 and patched():
            _pass_turn()

    def _error(self, error: AgentError) -> bytes:
        return frame(self._envelope.wrap_error(error, self._codec), event=self._envelope.error_event)

    def close(self) -> None:
        """Unsubscribe. The task continues."""
        if not self._closed:
            self._closed = True
            try:
                self._connection.shutdown_read()
            finally:
                self._stream.close()
                if self._pauses:
                    # The stream would refer to this body, and both wait for a garbage collection.
                    self._stream.notify(lambda: None)


def _pass_turn() -> None:
    """Let all greenlets run that can; of the streams that call this, one at a time continues after that."""
    with _turn():
        let_greenlets_run()


@cache
def _turn() -> threading.Lock:
    # Made when gevent has patched the module, which may be after the import of this one.
    return threading.Lock()
