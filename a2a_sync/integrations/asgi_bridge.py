"""One request between an event loop and a thread: its body, the chunks of its response, the disconnect of its client.

A WSGI application under an ASGI server has to react to ``http.disconnect``, or the stream of a disconnected client
would occupy its thread forever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import math
import queue
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a_sync.limits import Limits
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: The most bytes of a body that are received before the thread reads them.
_AHEAD = 256 * 1024


class _ClientLeft(Exception):
    """The client has disconnected and no longer reads the response."""


class Bridge:
    """One request. Created on the loop; `listen` and `leave` are called there, `serve` and `run` on the thread.

    ``ended`` is set when the thread has finished; ``error`` is then the exception of the application, or None.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send, limits: Limits) -> None:
        self.ended = asyncio.Event()
        self.error: BaseException | None = None
        self.body = Body(loop, limits.body_idle_timeout, limits.body_timeout)
        self._loop = loop
        self._send = send
        self._write_deadline = limits.write_timeout
        self._gone = threading.Event()
        self._sending: asyncio.Task[Any] | None = None

    # -- on the loop --

    async def listen(self, receive: Receive) -> None:
        """Pass the body to the thread, then wait until the client disconnects."""
        try:
            while (message := await receive())["type"] != "http.disconnect":
                await self.body.feed(message.get("body", b""), last=not message.get("more_body", False))
        finally:
            self.leave()

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
            await self._send(message)
        finally:
            self._sending = None

    # -- on the thread --

    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._gone.is_set()

    def serve(self, respond: Callable[[], None]) -> None:
        """Call `respond`, store its exception in ``error``, and notify the loop at the end."""
        try:
            respond()
        except _ClientLeft:
            logger.info("a client disconnected before the end of its response, or did not read it")
        except Exception as error:
            self.error = error
        finally:
            try:
                self._loop.call_soon_threadsafe(self.ended.set)
            except RuntimeError:
                pass  # the loop has stopped

    def run(self, app: Callable[..., Any], environ: dict[str, Any]) -> None:
        """Call the WSGI application and send its response."""
        head: list[Message] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], None]:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            head[:] = [{"type": "http.response.start", "status": int(status[:3]), "headers": encoded}]
            return _no_write

        chunks = app(environ, start_response)
        try:
            for chunk in chunks:
                if head:
                    self._send_message(head.pop())
                if chunk:
                    self._send_message({"type": "http.response.body", "body": chunk, "more_body": True})
            if head:
                self._send_message(head.pop())
            self._send_message({"type": "http.response.body", "body": b""})
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

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


class Body(io.RawIOBase):
    """The source of ``wsgi.input``: a body that the loop receives. Of an unread body, only the beginning is received."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_timeout: float, most: float = math.inf) -> None:
        self._loop = loop
        self._idle_timeout = idle_timeout
        self._until = time.monotonic() + most
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unread = 0
        self._may_receive = asyncio.Event()
        self._left = b""
        self._ended = False

    # -- on the loop --

    async def feed(self, data: bytes, *, last: bool) -> None:
        """Append received bytes; wait while too many bytes of the body are unread."""
        if data:
            self._unread += len(data)
            self._pieces.put(data)
        if last:
            self.end()
        elif self._unread > _AHEAD:
            self._may_receive.clear()
            await self._may_receive.wait()

    def end(self) -> None:
        """Mark the body as ended: it is complete, or the client has disconnected."""
        self._pieces.put(None)

    def _was_read(self, size: int) -> None:
        self._unread -= size
        if self._unread <= _AHEAD:
            self._may_receive.set()

    # -- on the thread --

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read what has arrived, or wait for more; 0 at the end of the body.

        Raises:
            OSError: the client has sent nothing for too long, or the body takes too long as a whole.
        """
        if not self._left:
            self._more()
        data, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _more(self) -> None:
        if self._ended:
            return
        try:
            piece = self._pieces.get(timeout=max(0.0, min(self._idle_timeout, self._until - time.monotonic())))
        except queue.Empty:
            raise OSError("the client sends no body, or too slowly") from None
        self._ended = piece is None
        self._left = piece or b""
        if piece:
            self._loop.call_soon_threadsafe(self._was_read, len(piece))


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
        "REMOTE_ADDR": (scope.get("client") or ("", 0))[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BufferedReader(bridge.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        # ASGI has no value for the number of processes.
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "a2a_sync.gone": bridge.gone,
    }
    for name, value in scope.get("headers", ()):
        _add_header(environ, name.decode("latin-1"), value.decode("latin-1"))
    return environ


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
            logger.error("%s", text.rstrip())

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: the log is not buffered."""
