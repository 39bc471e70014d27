"""The settings and hooks of `a2a_sync.gunicorn` for greenlets.

Start gunicorn with ``gunicorn -c python:a2a_sync.gunicorn.gevent module:app``.

Importing this module patches the standard library in the master process, before the app is loaded. Gunicorn itself
patches it in the workers only. With ``--preload`` that is too late: if the app has loaded requests or urllib3 before,
its first HTTPS request fails with `RecursionError`. For the same reason a configuration file of your own begins with
``from a2a_sync.gunicorn.gevent import *``.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import contextlib  # noqa: E402
import errno  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import weakref  # noqa: E402
from collections.abc import Generator, Iterable, Iterator  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

from gevent import Greenlet, GreenletExit, get_hub, getcurrent, sleep  # noqa: E402
from gevent.pool import Pool, PoolFull  # noqa: E402
from gevent.server import StreamServer  # noqa: E402
from gunicorn.http import wsgi  # noqa: E402
from gunicorn.http.body import ChunkedReader  # noqa: E402
from gunicorn.http.errors import InvalidChunkSize  # noqa: E402
from gunicorn.workers import ggevent  # noqa: E402

import a2a_sync.gunicorn as _for_threads  # noqa: E402
from a2a_sync.gunicorn import (  # noqa: E402
    child_exit,
    control_socket_disable,
    forwarder_headers,
    graceful_timeout,
    keepalive,
    post_fork,
    pre_fork,
    secure_scheme_headers,
    worker_connections,
    worker_exit,
)
from a2a_sync.gunicorn.buffers import CHUNK_BYTES, MAX_SMALL_CHUNKS  # noqa: E402
from a2a_sync.gunicorn.requests import Response, respond  # noqa: E402
from a2a_sync.wsgi.connection import is_closed  # noqa: E402
from a2a_sync.wsgi.streaming import EventStreamBody  # noqa: E402

__all__ = [
    "child_exit",
    "control_socket_disable",
    "forwarder_headers",
    "graceful_timeout",
    "keepalive",
    "post_fork",
    "post_request",
    "post_worker_init",
    "pre_fork",
    "pre_request",
    "secure_scheme_headers",
    "worker_class",
    "worker_connections",
    "worker_exit",
]

worker_class = "gevent"

#: Seconds that a stopping worker waits for requests on kept-alive connections, as threaded workers do.
_KEEPALIVE_SECONDS = 2.0
#: A worker that can accept no more connections closes one in so many of them, at least one.
_EVICTED_SHARE = 32
#: Connections of this worker that wait for their first or next request, by the greenlet that serves them; oldest first.
_idle: weakref.WeakKeyDictionary[Any, socket.socket] = weakref.WeakKeyDictionary()


def post_worker_init(worker: Any) -> None:
    """As in `a2a_sync.gunicorn`; also track the connections, and end idle ones when the worker stops.

    Gunicorn alone would wait for idle connections until its timeout.
    """
    _for_threads.post_worker_init(worker)
    connections = _Connections(worker)
    ggevent.StreamServer = connections.listen
    worker.handle = connections.accept
    worker.handle_request = _ignore_cut_off(worker, connections.handle_request)
    threading.Thread(target=connections.sweep, name="a2a-idle", daemon=True).start()


class _Listener:
    """The address and the greenlets of a listener, also after the listener was closed."""

    def __init__(self, listener: Any, pool: Pool) -> None:
        self._address = listener.getsockname()
        self.pool = pool

    def getsockname(self) -> Any:
        return self._address


class _Connection:
    """A connection, which is served by one greenlet after another, and by none while the stream of its response pauses."""

    __slots__ = ("_connections", "address", "client", "exchange", "file", "listener", "next", "stream")

    def __init__(self, connections: _Connections, listener: _Listener, client: Any, address: Any) -> None:
        self._connections = connections
        self.listener = listener
        self.client = client
        self.address = address
        #: The response that has begun.
        self.exchange: Generator[EventStreamBody, None, bool] | None = None
        #: The stream of a paused response; the greenlet that continues it, not started yet; and what keeps the socket open, which
        #: gunicorn closes when its greenlet ends.
        self.stream: EventStreamBody | None = None
        self.next: Greenlet | None = None
        self.file: Any = None

    def create(self, request: Any) -> tuple[Response, dict[str, Any]]:
        server, cfg = self.listener.getsockname(), self._connections.worker.cfg
        created: tuple[Response, dict[str, Any]] = wsgi.create(
            request, self.client, self.address, server, cfg, response_class=Response
        )
        return created

    def must_close(self) -> bool:
        return False

    def may_pause(self, request: Any) -> bool:
        """Prepare the next greenlet.

        False when the worker stops, if there is no place for the greenlet, or if the next request is in a buffer already.
        """
        if not self._connections.worker.alive:
            return False
        if data := request.unreader.take_buffered():
            request.unreader.unread(data)
            return False
        # Also in the pool while it is not started: gunicorn limits the connections by it, and waits for them before it stops.
        following = Greenlet(self._connections.serve, self)
        try:
            self.listener.pool.add(following, blocking=False)
        except PoolFull:
            return False
        self.next = following
        if self.file is None:
            self.file = self.client.makefile("rb", buffering=0)
        return True


class _Connections:
    """The connections of one worker. At its limit the longest idle ones are evicted."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self._handle = _after_handshake(worker, worker.handle) if worker.cfg.is_ssl else worker.handle
        self._listeners: dict[Any, _Listener] = {}
        self._count = 0
        self._current: weakref.WeakKeyDictionary[Any, _Connection] = weakref.WeakKeyDictionary()
        self._paused: dict[_Connection, EventStreamBody] = {}

    def listen(self, listener: Any, handle: Any, spawn: Pool, **options: Any) -> StreamServer:
        """The server of a listener, as gunicorn creates it."""
        self._listeners[listener] = _Listener(listener, spawn)
        if self.worker.cfg.is_ssl:
            # It would wait for each handshake without a limit, before `handle`.
            options["do_handshake_on_connect"] = False
        return StreamServer(listener, handle=handle, spawn=spawn, **options)

    def accept(self, listener: Any, client: socket.socket, address: Any) -> None:
        """Serve a new connection, on a greenlet of its own."""
        self._count += 1
        if self._count >= self.worker.worker_connections:
            for one in list(_idle.values())[: max(1, self._count // _EVICTED_SHARE)]:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self.serve(_Connection(self, self._listeners[listener], client, address))

    def serve(self, connection: _Connection) -> None:
        """Serve a connection until it ends or the stream of a response pauses."""
        greenlet = getcurrent()
        self._current[greenlet] = connection
        try:
            if connection.exchange is None or self._proceed(connection):
                _idle[greenlet] = connection.client
                self._handle(connection.listener, connection.client, connection.address)
        except OSError as error:
            self.worker.log.debug("a connection was closed before its client had read the response: %s", error)
        finally:
            _idle.pop(greenlet, None)
            if connection.stream is not None:
                self._paused[connection] = connection.stream
                connection.stream.resume_at_event(
                    partial(get_hub().loop.run_callback_threadsafe, self._resume, connection)
                )
            else:
                self._count -= 1
                if connection.file is not None:
                    connection.client.close()
                    connection.file.close()

    def handle_request(self, listener_name: Any, req: Any, client: Any, address: Any) -> bool:
        """As in gunicorn; the stream of the response may pause, and another greenlet continues it."""
        connection = self._current[getcurrent()]
        connection.exchange = respond(self.worker, req, connection)
        if not self._proceed(connection):
            # Gunicorn leaves the connection then.
            raise StopIteration
        return True

    def _proceed(self, connection: _Connection) -> bool:
        """Continue the response of a connection; whether it has ended and another request may follow."""
        assert connection.exchange is not None
        connection.stream = None
        try:
            connection.stream = next(connection.exchange)
            return False
        except StopIteration as end:
            connection.exchange = None
            return bool(end.value)
        except (GreenletExit, SystemExit):
            return False

    def _resume(self, connection: _Connection) -> None:
        if self._paused.pop(connection, None) is not None and connection.next is not None:
            connection.next.start()

    def sweep(self) -> None:
        """Continue paused streams that are due, and end idle connections when the worker stops. Runs on a thread of its own."""
        ending: float | None = None
        # Repeated until the process ends: a connection becomes idle when its response has been written.
        while True:
            time.sleep(_for_threads._CHECK_INTERVAL)
            now = time.monotonic()
            for connection, stream in list(self._paused.items()):
                if not self.worker.alive or stream.is_due(now):
                    self._resume(connection)
            if self.worker.alive:
                continue
            ending = ending or now + _KEEPALIVE_SECONDS
            if now >= ending:
                for idle in list(_idle.values()):
                    with contextlib.suppress(OSError):
                        # The greenlet reads end of file and ends.
                        idle.shutdown(socket.SHUT_RD)


def _after_handshake(worker: Any, handle: Any) -> Any:
    """Wrap `handle`: the handshake of TLS comes first, with the time limit of a head."""

    def handle_tls(listener: Any, client: Any, address: Any) -> None:
        admitted = False
        try:
            with worker.timeout_ctx():
                client.do_handshake()
                admitted = True
        except OSError as error:
            worker.log.debug("no TLS connection: %s", error)
        if admitted:
            handle(listener, client, address)

    return handle_tls


def _ignore_cut_off(worker: Any, handle_request: Any) -> Any:
    """Wrap `handle_request`: gunicorn would log a traceback for each connection that ends because its client does not read."""

    def handle(listener: Any, req: Any, client: Any, address: Any) -> Any:
        try:
            return handle_request(listener, req, client, address)
        except OSError as error:
            # Another greenlet has ended the connection, or `LimitedBody` when its time was over.
            if not (error.errno == errno.EBADF or isinstance(error, TimeoutError)) or not is_closed(client):
                raise
            worker.log.debug("a connection was closed before its client had read the response: %s", error)
            raise StopIteration from None

    return handle


def pre_request(worker: Any, req: Any) -> None:
    """Mark a connection as busy, and limit the chunks of a body.

    Called by gunicorn before each request, on the greenlet of the connection.
    """
    _idle.pop(getcurrent(), None)
    reader = getattr(req.body, "reader", None)
    if isinstance(reader, ChunkedReader):
        reader.parser = _limited(reader.parser)


def _limited(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a chunked body, as `IncomingRequest` limits it for threads."""
    size = 0
    for count, data in enumerate(chunks):
        size += len(data)
        if count > MAX_SMALL_CHUNKS + size // CHUNK_BYTES:
            raise InvalidChunkSize(b"too many small chunks")
        if count % 128 == 127:
            # Parsing chunks that have arrived does not wait: let other greenlets run.
            sleep(0)
        yield data


def post_request(worker: Any, req: Any, environ: Any, resp: Any) -> None:
    """Mark a connection as idle. Called by gunicorn after each request, on the greenlet of the connection."""
    # Also if the worker is stopping: gunicorn decided to keep the connection before it called the app.
    if "gunicorn.socket" in environ:
        _idle[getcurrent()] = environ["gunicorn.socket"]
    # Yield: otherwise thousands of pipelined requests would be answered before any other connection gets a turn.
    sleep(0)
