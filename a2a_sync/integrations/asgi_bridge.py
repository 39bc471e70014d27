"""One request between an event loop and a thread: its body, the chunks of its response, the disconnect of its client.

A WSGI application under an ASGI server has to react to ``http.disconnect``, or the stream of a disconnected client
would occupy its thread forever. Bodies and responses of up to 1 MiB wait on the loop for a slow client, not on a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import itertools
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from a2a_sync.concurrency.closing import closed_after
from a2a_sync.limits import Limits
from a2a_sync.stores.base import SMALL_BYTES
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.wsgi.connection import unsent_responses

logger: Final = get_logger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: The most bytes of a large body that are received before its thread reads them.
_AHEAD = 256 * 1024
#: The most bytes of incomplete bodies; above it the oldest of them is given up.
_MAX_RECEIVED_BYTES = 64 * 1024 * 1024
#: Responses are sent in pieces of this many bytes: a server keeps the piece that a client does not read.
_PIECE = 64 * 1024


_LEFT = "a client disconnected before the end of its response, or did not read it"


class _ClientLeft(Exception):
    """The client has disconnected and no longer reads the response."""


class Bridge:
    """One request. Created on the loop; `listen`, `receive`, `finish` and `leave` are called there, `serve` and `run` on the thread.

    ``ended`` is set when the thread has finished; ``error`` is then the exception of the application, or None.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, scope: Scope, send: Send, limits: Limits) -> None:
        self.ended: asyncio.Event = asyncio.Event()
        self.error: BaseException | None = None
        length = _length(scope.get("headers", ()))
        self.body: Body = Body(
            loop,
            limits.body_idle_timeout,
            limits.body_timeout,
            ahead=SMALL_BYTES if length is None or length <= SMALL_BYTES else _AHEAD,
        )
        #: The whole body is large: a thread reads it, if the application admits it.
        self._large = length is not None and length > SMALL_BYTES
        self._loop = loop
        self._send = send
        self._write_deadline = limits.write_timeout
        self._gone = threading.Event()
        self._sending: asyncio.Task[Any] | None = None
        #: A complete response that the loop sends when the thread has finished.
        self._rest: list[Message] = []

    # -- on the loop --

    async def listen(self, receive: Receive) -> None:
        """Pass the body to the thread, then wait until the client disconnects."""
        try:
            while (message := await receive())["type"] != "http.disconnect":
                await self.body.feed(message.get("body", b""), last=not message.get("more_body", False))
        finally:
            self.leave()

    async def receive(self) -> bool:
        """Wait for the body, or for the beginning of a large one; False: the client has disconnected."""
        self.body.count()
        if not self._large:
            await self.body.wait()
        return not self._gone.is_set()

    async def finish(self) -> None:
        """Send what the thread has left to send."""
        if not self._rest or self._gone.is_set():
            return
        self._sending = sending = asyncio.create_task(self._send_rest())
        unsent_responses.add(self, sum(len(message.get("body", b"")) for message in self._rest))
        try:
            await asyncio.wait({sending})
        finally:
            self._sending = None
            sending.cancel()
            unsent_responses.remove(self)
        if sending.cancelled() or isinstance(sending.exception(), OSError):
            logger.info(_LEFT)
        else:
            sending.result()

    async def _send_rest(self) -> None:
        for message in self._rest:
            # TimeoutError is an OSError.
            await asyncio.wait_for(self._pass(message), self._write_deadline)
            unsent_responses.progress(self)

    def leave(self) -> None:
        """Cancel a send in progress, because the client has disconnected or the request has ended."""
        self._gone.set()
        self.body.end()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_on_loop(self, message: Message) -> None:
        if self._gone.is_set():
            raise OSError("the client has disconnected")
        self._sending = asyncio.current_task()
        try:
            await self._pass(message)
        finally:
            self._sending = None

    async def _pass(self, message: Message) -> None:
        """Pass a message to the server.

        Raises:
            OSError: the client has disconnected.
        """
        try:
            await self._send(message)
        except RuntimeError as error:
            # Of a transport of uvloop, before the server reports the disconnect.
            if not str(error).endswith("the handler is closed"):
                raise
            raise OSError("the client has disconnected") from error

    # -- on the thread --

    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._gone.is_set()

    def abort(self) -> None:
        """Stop sending: other clients need the memory. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has stopped
            self._loop.call_soon_threadsafe(self.leave)

    def serve(self, respond: Callable[[], None]) -> None:
        """Call `respond`, store its exception in ``error``, and notify the loop at the end."""
        try:
            respond()
        except _ClientLeft:
            logger.info(_LEFT)
        except Exception as error:
            self.error = error
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has stopped
                self._loop.call_soon_threadsafe(self.ended.set)

    def run(self, app: Callable[..., Any], environ: dict[str, Any]) -> None:
        """Call the WSGI application and send its response, or leave it to the loop if it is complete and not large."""
        head: list[Message] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], None]:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            head[:] = [{"type": "http.response.start", "status": int(status[:3]), "headers": encoded}]
            return _no_write

        chunks = app(environ, start_response)
        send: Callable[[Message], None] = self._send_message
        with closed_after(chunks):
            for chunk in itertools.chain(chunks, (b"",)):
                if head:
                    send = self._sender(head[0], environ["REQUEST_METHOD"])
                    send(head.pop())
                for start in range(0, len(chunk), _PIECE):
                    send({"type": "http.response.body", "body": chunk[start : start + _PIECE], "more_body": True})
            send({"type": "http.response.body", "body": b""})

    def _sender(self, head: Message, method: str) -> Callable[[Message], None]:
        length = _length(head["headers"])
        empty = method == "HEAD" or head["status"] in (204, 304)
        return self._rest.append if empty or (length is not None and length <= SMALL_BYTES) else self._send_message

    def _send_message(self, message: Message) -> None:
        """Send on the loop and wait until it is sent, so that a slow client blocks only its own thread."""
        if self._gone.is_set():
            # The loop may have stopped by now, and would never report the end of a send.
            raise _ClientLeft
        passing = self._send_on_loop(message)
        try:
            sent = asyncio.run_coroutine_threadsafe(passing, self._loop)
        except RuntimeError:
            passing.close()
            raise _ClientLeft from None
        try:
            sent.result(self._write_deadline)
        except (OSError, concurrent.futures.CancelledError) as error:
            # Includes TimeoutError; the send then continues until `leave` cancels it.
            raise _ClientLeft from error


class Client:
    """The client of a request, as the app sees it: called, it returns whether it has disconnected."""

    def __init__(self, bridge: Bridge) -> None:
        self.abort: Final = bridge.abort
        self._gone = bridge.gone

    def __call__(self) -> bool:
        return self._gone()


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The value of ``Content-Length``; None where there is none, or no number."""
    value = next((value for name, value in headers if name.lower() == b"content-length"), b"")
    return int(value) if value.isdigit() and len(value) < 20 else None


class Body(io.RawIOBase):
    """The source of ``wsgi.input``: a body that the loop receives. Of an unread body, the first `ahead` bytes are received."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_timeout: float, most: float = math.inf, *, ahead: int = _AHEAD
    ) -> None:
        self._loop = loop
        self._idle_timeout = idle_timeout
        self._until = time.monotonic() + most
        self._ahead = ahead
        #: Set when a thread should read the body: it is complete, or there will be no more of it before that.
        self._arrived = asyncio.Event()
        self._stalled = False
        self._received_at = time.monotonic()
        self._may_receive = asyncio.Event()
        self._changed = threading.Condition(threading.Lock())
        #: One buffer: by itself, a piece of two bytes would take more than fifty. Hypercorn passes each frame on by itself.
        self._unread = bytearray()
        self._ended = False

    # -- on the loop --

    async def feed(self, data: bytes, *, last: bool) -> None:
        """Append received bytes; wait while too many bytes of the body are unread."""
        self._received_at = time.monotonic()
        with self._changed:
            self._unread += data
            self._changed.notify()
        _incomplete.grow(self, len(data))
        if last:
            self.end()
        elif len(self._unread) > self._ahead:
            self._arrived.set()
            self._may_receive.clear()
            await self._may_receive.wait()

    def end(self) -> None:
        """Mark the body as ended: it is complete, or the client has disconnected."""
        _incomplete.remove(self)
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._arrived.set()

    def count(self) -> None:
        """Count its bytes among those of incomplete bodies until its `end`."""
        _incomplete.add(self, len(self._unread))

    async def wait(self) -> None:
        """Wait until a thread should read the body: it has arrived, or is as large as it may be before; or it stalls."""
        while not self._arrived.is_set():
            left = min(self._received_at + self._idle_timeout, self._until) - time.monotonic()
            if left <= 0:
                self.give_up()
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), left)

    def give_up(self) -> None:
        """Let the next read fail, as of a client that stalls."""
        with self._changed:
            self._stalled = True
            self._changed.notify()
        self._arrived.set()

    # -- on the thread --

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read what has arrived, or wait for more; 0 at the end of the body.

        Raises:
            OSError: the client has sent nothing for too long, or the body takes too long as a whole.
        """
        left = min(self._idle_timeout, self._until - time.monotonic())
        with self._changed:
            self._changed.wait_for(lambda: self._unread or self._ended or self._stalled, max(0.0, left))
            if self._stalled or not (self._unread or self._ended):
                raise OSError("the client sends no body, or too slowly")
            before, size = len(self._unread), min(len(buffer), len(self._unread))
            with memoryview(self._unread) as view, view[:size] as part:
                buffer[:size] = part
            del self._unread[:size]
        if before > self._ahead >= before - size:
            self._loop.call_soon_threadsafe(self._may_receive.set)
        return size


class _IncompleteBodies:
    """The bodies of this process that have not arrived as a whole, and their bytes. Called on the loop."""

    def __init__(self) -> None:
        self._bytes: dict[Body, int] = {}
        self._total = 0

    def add(self, body: Body, size: int) -> None:
        """Count `body`, of which `size` bytes were received."""
        self._bytes[body] = 0
        self.grow(body, size)

    def grow(self, body: Body, size: int) -> None:
        """Count `size` more bytes, and give up the oldest bodies where there are too many."""
        if body not in self._bytes:
            return
        self._bytes[body] += size
        self._total += size
        while self._total > _MAX_RECEIVED_BYTES and len(self._bytes) > 1:
            oldest = next(iter(self._bytes))
            self.remove(oldest)
            oldest.give_up()

    def remove(self, body: Body) -> None:
        """The body has arrived, or is not received any more. Idempotent."""
        self._total -= self._bytes.pop(body, 0)


_incomplete = _IncompleteBodies()


def path_below_root(scope: Scope) -> str:
    """The path without the ``root_path``. Also correct for servers and hosts whose path does not include it."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if path == root or path.startswith(root + "/") else path


def environ_of(scope: Scope, bridge: Bridge) -> dict[str, Any]:
    """The WSGI environ of an ASGI request (ASGI spec, "WSGI compatibility")."""
    host, port = scope.get("server") or ("localhost", 80)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", "").rstrip("/").encode("utf-8", "replace").decode("latin-1"),
        "PATH_INFO": path_below_root(scope).encode("utf-8", "replace").decode("latin-1"),
        # Not decoded: in a decoded path, an encoded slash of an id looks like any other slash.
        "RAW_URI": scope.get("raw_path", b"").decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 80),
        "SERVER_PROTOCOL": "HTTP/" + scope.get("http_version", "1.1"),
        "REMOTE_ADDR": _peer_address(scope),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BufferedReader(bridge.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        # ASGI has no value for the number of processes.
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "a2a_sync.gone": Client(bridge),
    }
    for name, value in scope.get("headers", ()):
        _add_header(environ, name.decode("latin-1"), value.decode("latin-1"))
    return environ


def _peer_address(scope: Scope) -> str:
    """The address of the other end of the connection: ``""`` for a Unix socket, ``unknown`` where the server lost it."""
    client, server = scope.get("client"), scope.get("server")
    if client:
        return str(client[0])
    # A client that resets its connection has no address any more, and must not pass for one of this machine.
    return "" if server and server[1] is None else "unknown"


def _add_header(environ: dict[str, Any], name: str, value: str) -> None:
    # A header with an underscore would get the key of the one with a hyphen, which a proxy may have set.
    if "_" in name:
        return
    key = name.upper().replace("-", "_")
    if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        key = "HTTP_" + key
    between = "; " if key == "HTTP_COOKIE" else ","
    environ[key] = f"{environ[key]}{between}{value}" if key in environ else value


def _no_write(data: bytes) -> None:
    raise RuntimeError("the write callable of WSGI is not used here")


class _Errors:
    """A ``wsgi.errors`` that writes to the log."""

    def write(self, text: str) -> None:
        if text.strip():
            logger.error(text.rstrip())

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: the log is not buffered."""
