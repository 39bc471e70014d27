"""An app under an ASGI server: Starlette, FastAPI, Django on ASGI, or alone.

A bridge of our own, because it must notice a client that leaves: each request runs on a thread of its own, as under a
threaded WSGI server, and learns of ``http.disconnect``, so that its stream is closed and its thread comes back.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a_sync.app import A2AApp

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: How long the client's side may keep a thread waiting, for a piece of the body or for reading what was sent.
_PATIENCE = 60.0


class ASGIApp:
    """`app` as an ASGI application; mount it like any other.

    `threads` bounds the requests at once (each open stream is one); beyond it 503 with ``Retry-After``. `principal`
    takes the ASGI scope and says who is calling, for logins that the host has checked.
    """

    def __init__(self, app: A2AApp, *, threads: int = 256, principal: Callable[[Scope], Any] | None = None) -> None:
        self._app = app
        self._places = threading.BoundedSemaphore(threads)
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface: ``http``, and ``lifespan`` (which closes the app) where the bridge is not mounted."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise ValueError(f"an agent does not answer {scope['type']}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                await asyncio.get_running_loop().run_in_executor(None, self._app.close, 5.0)
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._places.acquire(blocking=False):
            headers = [(b"retry-after", b"1"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        exchange = _Exchange(asyncio.get_running_loop(), send)
        environ = _environ(scope, exchange)
        if self._principal is not None:
            environ["a2a_sync.principal"] = self._principal(scope)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def serve() -> None:
            try:
                exchange.serve(self._app, environ)
            finally:
                self._places.release()
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=serve, name="a2a-asgi", daemon=True).start()
        listener = asyncio.create_task(_listen(receive, exchange))
        try:
            await ended.wait()
        finally:
            exchange.leave()
            listener.cancel()


async def _listen(receive: Receive, exchange: _Exchange) -> None:
    """Hand the body over, then wait for the client to leave."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            exchange.leave()
            return
        if message["type"] == "http.request":
            exchange.body.feed(message.get("body", b""), last=not message.get("more_body", False))


class _Exchange:
    """One request between the event loop and its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._loop = loop
        self._send = send
        self._gone = threading.Event()
        self.body = _Body()

    def leave(self) -> None:
        """The client has left, or the request is over."""
        self._gone.set()
        self.body.feed(b"", last=True)

    def gone(self) -> bool:
        return self._gone.is_set()

    def serve(self, app: A2AApp, environ: dict[str, Any]) -> None:
        """Run the WSGI application; on the request's thread."""
        begun: list[dict[str, Any]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            begun[:] = [{"type": "http.response.start", "status": int(status[:3]), "headers": encoded}]

        chunks = app(environ, start_response)
        try:
            for chunk in chunks:
                if begun:
                    self._emit(begun.pop())
                if self._gone.is_set():
                    return
                self._emit({"type": "http.response.body", "body": chunk, "more_body": True})
            if begun:
                self._emit(begun.pop())
            self._emit({"type": "http.response.body", "body": b""})
        except (OSError, TimeoutError, RuntimeError) as error:
            logger.info("a client stopped reading: %r", error)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    def _emit(self, message: dict[str, Any]) -> None:
        """Send on the loop and wait until it is sent, so that a slow reader slows its own thread only."""
        if not self._gone.is_set():
            asyncio.run_coroutine_threadsafe(self._pass_on(message), self._loop).result(_PATIENCE)

    async def _pass_on(self, message: dict[str, Any]) -> None:
        await self._send(message)


class _Body:
    """``wsgi.input`` over what the loop receives."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._left = b""
        self._ended = False

    def feed(self, data: bytes, *, last: bool) -> None:
        if data:
            self._pieces.put(data)
        if last:
            self._pieces.put(None)

    def read(self, size: int | None = -1) -> bytes:
        """`size` bytes, fewer at the end only."""
        parts: list[bytes] = []
        missing = -1 if size is None else size
        while missing:
            if not self._left and not self._more():
                break
            data = self._left if missing < 0 else self._left[:missing]
            self._left = self._left[len(data) :]
            parts.append(data)
            missing -= len(data) if missing > 0 else 0
        return b"".join(parts)

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            piece = self._pieces.get(timeout=_PATIENCE)
        except queue.Empty:
            raise OSError("the client sends no body") from None
        self._ended = piece is None
        self._left = piece or b""
        return not self._ended

    def readline(self, size: int = -1) -> bytes:
        """Lines mean nothing in a JSON body; WSGI wants the method."""
        return self.read(size)

    def readlines(self, hint: int = -1) -> list[bytes]:
        return [self.read(hint)]

    def __iter__(self) -> Any:
        return iter(self.readlines())


def _environ(scope: Scope, exchange: _Exchange) -> dict[str, Any]:
    """The WSGI environ of an ASGI request (ASGI spec, "WSGI compatibility")."""
    root = scope.get("root_path", "")
    path = scope["path"]
    path = path.removeprefix(root) if root and path.startswith(root) else path
    host, port = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": root.encode().decode("latin-1"),
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 80),
        "SERVER_PROTOCOL": "HTTP/" + scope.get("http_version", "1.1"),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": exchange.body,
        "wsgi.input_terminated": True,
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "a2a_sync.gone": exchange.gone,
    }
    for name, value in scope.get("headers", ()):
        key = name.decode("latin-1").upper().replace("-", "_")
        key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ


class _Errors:
    """``wsgi.errors`` that goes to the log."""

    def write(self, text: str) -> None:
        if text.strip():
            logger.error("%s", text.rstrip())

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Nothing is kept back."""
