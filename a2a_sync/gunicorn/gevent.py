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
from collections.abc import Iterable, Iterator  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

from gevent import getcurrent, sleep  # noqa: E402
from gevent.server import StreamServer  # noqa: E402
from gunicorn.http.body import ChunkedReader  # noqa: E402
from gunicorn.http.errors import InvalidChunkSize  # noqa: E402
from gunicorn.http.message import Request  # noqa: E402
from gunicorn.http.parser import RequestParser  # noqa: E402
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
from a2a_sync.gunicorn.buffers import CHUNK_BYTES, MAX_HEAD_BYTES, MAX_SMALL_CHUNKS, connection_limit  # noqa: E402
from a2a_sync.wsgi.connection import incoming_bodies, is_closed  # noqa: E402
from a2a_sync.wsgi.process import Site  # noqa: E402

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
    """As in `a2a_sync.gunicorn`; also track idle connections and end them when the worker stops.

    Gunicorn alone would wait for idle connections until its timeout.
    """
    _for_threads.post_worker_init(worker)
    worker.worker_connections = connection_limit(worker.worker_connections)
    if isinstance(worker.wsgi, Site):
        # Each connection has a greenlet: streams leave some to other clients.
        worker.wsgi.reserve(worker.worker_connections)
    RequestParser.mesg_class = _Request
    if worker.cfg.is_ssl:
        # The server of gevent would wait for each handshake without a limit, before `handle`.
        ggevent.StreamServer = partial(StreamServer, do_handshake_on_connect=False)
        worker.handle = _after_handshake(worker, worker.handle)
    worker.handle = _track_idle(worker, worker.handle)
    worker.handle_request = _ignore_cut_off(worker, worker.handle_request)
    threading.Thread(target=_end_idle_connections, args=(worker,), name="a2a-idle", daemon=True).start()


class _Request(Request):  # type: ignore[misc]
    """A request whose head is limited as in the threaded worker: gunicorn would hold 800 KB of each that is incomplete."""

    max_buffer_headers: int

    def parse(self, unreader: Any) -> Any:
        self.max_buffer_headers = min(self.max_buffer_headers, MAX_HEAD_BYTES)
        return super().parse(unreader)


def _track_idle(worker: Any, handle: Any) -> Any:
    """Wrap `handle`, which serves a connection on its own greenlet."""
    worker.a2a_served = 0

    def tracked(listener: Any, client: socket.socket, address: Any) -> None:
        worker.a2a_served += 1
        _evict(worker)
        _idle[getcurrent()] = client
        try:
            handle(listener, client, address)
        finally:
            worker.a2a_served -= 1
            _idle.pop(getcurrent(), None)

    return tracked


def _evict(worker: Any) -> None:
    """If the worker can accept no more connections, close those idle for longest, or else those that wait for bodies."""
    if worker.a2a_served >= worker.worker_connections:
        count = max(1, worker.a2a_served // _EVICTED_SHARE)
        idle = list(_idle.values())[:count]
        for one in idle:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if not idle:
            incoming_bodies.abort(count)


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


def _end_idle_connections(worker: Any) -> None:
    while worker.alive:
        # Those that were busy when the last connection was accepted may be idle now.
        _evict(worker)
        time.sleep(_for_threads._CHECK_INTERVAL)
    time.sleep(_KEEPALIVE_SECONDS)
    # Repeat until the process ends: a connection becomes idle when its response has been written.
    while True:
        for connection in list(_idle.values()):
            with contextlib.suppress(OSError):
                # The greenlet reads end of file and ends.
                connection.shutdown(socket.SHUT_RD)
        time.sleep(_for_threads._CHECK_INTERVAL)
