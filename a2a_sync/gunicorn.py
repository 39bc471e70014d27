"""Settings and hooks for gunicorn: ``gunicorn -c python:a2a_sync.gunicorn module:app --threads 64``.

What the command line says stands over what is set here. The hooks end an app's streams and runs when its worker is told
to stop: gunicorn alone would wait for open streams until its time-out and then cut them. An app mounted inside another
framework is not seen by them; close that one where the framework says that it stops.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

worker_class = "gthread"
threads = 32
#: More than threads: a kept-alive connection between two requests holds none.
worker_connections = 2000
#: Longer than a proxy keeps its connections, so that it never posts into one that is just being closed.
keepalive = 75
graceful_timeout = 30
#: Two services of one user would share the socket's path. Unknown to gunicorn before 25.1, which ignores it.
control_socket_disable = True

#: Seconds of ``graceful_timeout`` that are kept for ending streams after the runs have had theirs.
_FOR_STREAMS = 3.0


_closing: list[threading.Thread] = []


def post_worker_init(worker: Any) -> None:
    """Close the app when its worker is told to stop, and tell it of the threads. Gunicorn calls this once in each worker."""
    _tell_threads(worker)
    patience = max(0.0, worker.cfg.graceful_timeout - _FOR_STREAMS)
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGINT, 0.0), (signal.SIGQUIT, 0.0)):
        _close_on(number, worker, seconds)


def worker_exit(server: Any, worker: Any) -> None:
    """Let the closing come to its end, so that stores are left in order. Gunicorn calls this as a worker ends."""
    if worker.pid != os.getpid():
        return
    if not _closing:
        _start_closing(worker, 0.0)
    for thread in _closing:
        thread.join(_FOR_STREAMS)


def _tell_threads(worker: Any) -> None:
    from gunicorn.workers.gthread import ThreadWorker

    reserve = getattr(worker.wsgi, "reserve", None)
    if isinstance(worker, ThreadWorker) and callable(reserve):
        reserve(worker.cfg.threads)


def _close_on(number: signal.Signals, worker: Any, seconds: float) -> None:
    before = signal.getsignal(number)

    def stop(signum: int, frame: FrameType | None) -> None:
        _start_closing(worker, seconds)
        if callable(before):
            before(signum, frame)

    signal.signal(number, stop)


def _start_closing(worker: Any, seconds: float) -> None:
    close = getattr(worker.wsgi, "close", None)
    if callable(close):
        # On a thread: the worker's main thread goes on to serve the requests that are still open.
        thread = threading.Thread(target=close, args=(seconds,), name="a2a-close", daemon=True)
        _closing.append(thread)
        thread.start()
