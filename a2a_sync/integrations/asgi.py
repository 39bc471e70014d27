"""An app under an ASGI server, alone or inside Starlette, FastAPI or Django.

Each request runs on a thread, as under a threaded WSGI server; `asgi_bridge` connects it to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from a2a_sync.concurrency.pool import Slot, WorkerPool
from a2a_sync.errors import OverloadedError
from a2a_sync.integrations.asgi_bridge import Bridge, Receive, Scope, Send, environ_of, path_below_root
from a2a_sync.integrations.mounting import check_site
from a2a_sync.jsontext import dumps
from a2a_sync.operations import Principal
from a2a_sync.wsgi.process import Site

__all__ = ["ASGIApp", "Dispatcher"]

#: An ASGI application. Frameworks disagree about the types of its scope and callables: those of Django exclude those of Starlette.
Application = Callable[[Any, Any, Any], Awaitable[None]]

#: The most requests that begin at once; each counts until it ends, for so many seconds at most. The interpreter alternates
#: between all running threads: hundreds of short requests at once would take longest for all of them.
_STARTING = 16
_STARTING_SECONDS = 0.1


class ASGIApp:
    """`app` as an ASGI application, which can be mounted in others.

    Parameters:
        app: an `A2AApp` or an `AgentHost`.
        threads: the most concurrent requests, open streams included; above it HTTP 503 with ``Retry-After``. The app
            leaves some of these threads free.
        principal: a function of the ASGI scope that returns the caller that the web framework has authenticated: an id,
            a `Principal`, or None. It is called on the request's thread, so it may block.
        grace: seconds that runs get to end when the server stops.

    Raises:
        TypeError: `app` is no `A2AApp` or `AgentHost`.
    """

    def __init__(
        self,
        app: Site,
        *,
        threads: int = 256,
        principal: Callable[[Scope], Principal | str | None] | None = None,
        grace: float = 10.0,
    ) -> None:
        check_site(app)
        app.reserve(threads)
        self._app = app
        self._grace = grace
        self._free_threads = threading.BoundedSemaphore(threads)
        # A thread counts as free slightly before it is; the queue holds requests that arrive in between.
        self._pool = WorkerPool(threads=threads, max_queued=threads, max_abandoned=0, name="a2a-asgi")
        self._principal = principal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Semaphore(_STARTING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface: ``http``; ``lifespan``, which closes the app; ``websocket``, which is refused."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await answer_lifespan(receive, send, self)
        elif scope["type"] == "websocket":
            # Closing before accepting is how a handshake is refused.
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise ValueError(f"an agent does not answer {scope['type']}")

    async def close(self) -> None:
        """Close the app without blocking the event loop, see `A2AApp.close`.

        For the lifespan of a host that this is mounted in: hosts do not pass lifespan events to mounted applications.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._app.close, self._grace)
        self._pool.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        bridge = Bridge(asyncio.get_running_loop(), scope, send, self._app.limits)
        listener = asyncio.create_task(bridge.listen(receive))
        try:
            if not await bridge.receive():
                return
            if not (self._free_threads.acquire(blocking=False) and await self._start_in_turn(bridge, scope)):
                if not bridge.gone():
                    await _refuse(send)
                return
            await bridge.ended.wait()
            if bridge.error is None:
                await bridge.finish()
        finally:
            bridge.leave()
            listener.cancel()
        if bridge.error is not None:
            raise bridge.error

    async def _start_in_turn(self, bridge: Bridge, scope: Scope) -> bool:
        """Start the request after those that arrived earlier; returns when the next one may begin. False if the system has no
        thread, or the client has left meanwhile.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._starting = loop, asyncio.Semaphore(_STARTING)
        starting = self._starting
        try:
            await starting.acquire()
        except BaseException:
            self._free_threads.release()
            raise
        try:
            if bridge.gone():
                self._free_threads.release()
                return False
            if not self._start(bridge, scope):
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STARTING_SECONDS):
                    await bridge.ended.wait()
            return True
        finally:
            starting.release()

    def _start(self, bridge: Bridge, scope: Scope) -> bool:
        """Start the request on a thread of the pool, or release what was acquired for it."""
        context = contextvars.copy_context()
        slot: Slot | None = None
        try:
            slot = self._pool.reserve()
            slot.submit(lambda: context.run(bridge.serve, lambda: self._serve(bridge, scope)))
        except (OverloadedError, RuntimeError):
            if slot is not None:
                slot.release()
            self._free_threads.release()
            return False
        return True

    def _serve(self, bridge: Bridge, scope: Scope) -> None:
        """Serve the request, on its thread."""
        try:
            environ = environ_of(scope, bridge)
            # The app answers a page that may not call, before its user is asked for.
            if self._principal is not None and not self._app.origins.refuse(environ):
                environ["a2a_sync.principal"] = self._principal(scope)
            bridge.run(self._app, environ)
        finally:
            self._free_threads.release()


class Dispatcher:
    """`host` with agents at paths of their own, for hosts that cannot mount ASGI applications, such as Django::

        application = Dispatcher(get_asgi_application(), {"/agents/echo": ASGIApp(app)})

    It answers ``lifespan`` itself and closes the apps when the server stops; `host` receives no lifespan events.
    """

    def __init__(self, host: Application, mounts: Mapping[str, ASGIApp]) -> None:
        self._host = host
        # The longest first, so that an agent may be mounted below another.
        self._mounts = sorted(((prefix.rstrip("/"), app) for prefix, app in mounts.items()), key=lambda m: -len(m[0]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send, *(app for _, app in self._mounts))
            return
        path = path_below_root(scope)
        for prefix, app in self._mounts:
            if path == prefix or path.startswith(prefix + "/"):
                await app({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)
                return
        await self._host(scope, receive, send)


async def answer_lifespan(receive: Receive, send: Send, *apps: ASGIApp) -> None:
    """Answer the ``lifespan`` of a server: at its shutdown, `apps` are closed concurrently.

    Nothing has to be started.
    """
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await asyncio.gather(*(app.close() for app in apps))
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _refuse(send: Send) -> None:
    body = dumps({"error": {"code": 503, "message": "too many open requests; retry later"}})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"1"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
