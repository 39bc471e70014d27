"""The settings and hooks of `a2a_sync.gunicorn` for greenlets: ``gunicorn -c python:a2a_sync.gunicorn.gevent module:app``.

Loading this patches the standard library, in gunicorn's own process and before the app is loaded. Gunicorn itself would
do it in the workers only: with ``--preload`` that is too late, and the first HTTPS request of an app that had loaded
requests or urllib3 by then would fail with `RecursionError`. For the same reason a configuration file of your own begins
with ``from a2a_sync.gunicorn.gevent import *``.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import contextlib  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import weakref  # noqa: E402
from typing import Any  # noqa: E402

from gevent import getcurrent, sleep  # noqa: E402

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

#: How long a stopping worker waits for requests on connections that it keeps alive, as threaded workers do. In seconds.
_LINGER = 2.0
#: The share of its connections that a worker closes, at least one, when it can accept no more.
_EVICTED_SHARE = 32
#: The connections of this worker before their first request and between two, by the greenlets that serve them, oldest first.
_idle: weakref.WeakKeyDictionary[Any, socket.socket] = weakref.WeakKeyDictionary()


def post_worker_init(worker: Any) -> None:
    """As for threads; and end idle connections when the worker stops, for which gunicorn would wait until its time-out."""
    _for_threads.post_worker_init(worker)
    worker.handle = _tracking(worker, worker.handle)
    threading.Thread(target=_end_idle_connections, args=(worker,), name="a2a-idle", daemon=True).start()


def _tracking(worker: Any, handle: Any) -> Any:
    """`handle`, which serves a connection on a greenlet of its own; the last one that fits evicts those idle for longest."""
    served = 0

    def tracked(listener: Any, client: socket.socket, address: Any) -> None:
        nonlocal served
        served += 1
        _idle[getcurrent()] = client
        try:
            if served >= worker.worker_connections:
                # Never this one: it has just come.
                for one in list(_idle.values())[:-1][: max(1, served // _EVICTED_SHARE)]:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
            handle(listener, client, address)
        finally:
            served -= 1
            _idle.pop(getcurrent(), None)

    return tracked


def pre_request(worker: Any, req: Any) -> None:
    """A connection is idle no longer. Gunicorn calls this before each request, on its greenlet."""
    _idle.pop(getcurrent(), None)


def post_request(worker: Any, req: Any, environ: Any, resp: Any) -> None:
    """A connection waits for its next request. Gunicorn calls this after each request, on its greenlet."""
    # Also where the worker stops meanwhile: gunicorn decided to keep the connection before it called the app.
    if "gunicorn.socket" in environ:
        _idle[getcurrent()] = environ["gunicorn.socket"]
    # Thousands of requests that came in one piece would be answered without a turn for any other connection.
    sleep(0)


def _end_idle_connections(worker: Any) -> None:
    while worker.alive:
        time.sleep(_for_threads._LOOK)
    time.sleep(_LINGER)
    # Until the process ends: whoever is still being answered is idle later.
    while True:
        for connection in list(_idle.values()):
            with contextlib.suppress(OSError):
                # The greenlet reads the end of the requests, and ends.
                connection.shutdown(socket.SHUT_RD)
        time.sleep(_for_threads._LOOK)
