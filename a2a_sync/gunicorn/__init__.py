"""Settings and hooks for gunicorn: ``gunicorn -c python:a2a_sync.gunicorn module:app --threads 64``.

What the command line says stands over what is set here; a configuration file of your own begins with ``from
a2a_sync.gunicorn import *``. For greenlets in place of threads there is `a2a_sync.gunicorn.gevent`.

The hooks end runs and streams when a worker is told to stop, or stops by itself after ``max_requests``: gunicorn alone
would wait for open streams until its time-out and then cut them. That holds for every app that the worker serves, also
inside another framework. They pin each worker to one core, refuse several workers whose tasks
could not be shared, and warn of workers that have different stores.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = [
    "child_exit",
    "control_socket_disable",
    "forwarder_headers",
    "graceful_timeout",
    "keepalive",
    "post_fork",
    "post_worker_init",
    "pre_fork",
    "secure_scheme_headers",
    "threads",
    "worker_class",
    "worker_connections",
    "worker_exit",
]

worker_class = "a2a_sync.gunicorn.worker.BufferedThreadWorker"
threads = 32
#: More than threads: a kept-alive connection between two requests holds none.
worker_connections = 2000
#: Longer than a proxy keeps its connections, so that it never posts into one that is just being closed.
keepalive = 75
graceful_timeout = 30
#: Two services of one user would share the socket's path. Unknown to gunicorn before 25.1, which ignores it.
control_socket_disable = True
#: Nothing is believed of headers: gunicorn would take paths from those that any process of this machine sends. How many
#: proxies there are is said to the app (``trusted_proxies=``).
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}

#: ``0`` in the environment, or in gunicorn's ``raw_env``, leaves the choice of cores to the system.
_PIN_WORKERS = "A2A_SYNC_PIN_WORKERS"

#: Seconds of ``graceful_timeout`` that are kept for ending streams after the runs have had theirs.
_FOR_STREAMS = 3.0
#: How often a worker looks whether it was told to stop, in seconds.
_LOOK = 0.25
#: For the names of agents and the paths of their stores in one worker; beyond it they are not compared.
_SHARED_BYTES = 64 * 1024


# -- one core for each worker -------------------------------------------------------------------------------------------


def pre_fork(server: Any, worker: Any) -> None:
    """Choose a core for a worker, and give it what it compares stores with. Gunicorn calls this in its own process."""
    worker.a2a_core = _free_core(server) if _may_pin(server.cfg) else None
    worker.a2a_stores = _Stores(server)


def post_fork(server: Any, worker: Any) -> None:
    """Keep a worker on its core: threads of one Python process cannot use two, and moving between them costs time.

    Gunicorn calls this first of all in each worker; threads and processes that are started later inherit it.
    """
    core = getattr(worker, "a2a_core", None)
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            worker.log.warning("worker not pinned to core %d: %s", core, error)


def _may_pin(config: Any) -> bool:
    wanted = config.env.get(_PIN_WORKERS, os.environ.get(_PIN_WORKERS, "1"))
    return hasattr(os, "sched_setaffinity") and wanted != "0"


def _free_core(server: Any) -> int | None:
    """The core that the fewest workers have; None for a single worker, or more workers than cores."""
    cores = sorted(os.sched_getaffinity(0))
    if not 2 <= server.num_workers <= len(cores):
        return None
    taken = Counter(getattr(worker, "a2a_core", None) for worker in server.WORKERS.values())
    return min(cores, key=lambda core: taken[core])


# -- the life of a worker -----------------------------------------------------------------------------------------------


def post_worker_init(worker: Any) -> None:
    """Check that the app may have several workers, tell it of its threads, let it begin, and watch for the worker's end.

    Gunicorn calls this once in each worker.
    """
    _refuse_what_cannot_be_shared(worker)
    _tell_threads(worker)
    _begin(worker)
    # Before it serves: a worker that begins after all others have begun is compared with each of them.
    worker.a2a_stores.compare(worker)
    worker.a2a_ending = _Ending(worker)
    threading.Thread(target=worker.a2a_ending.await_stop, name="a2a-worker", daemon=True).start()


def worker_exit(server: Any, worker: Any) -> None:
    """Let the ending come to its end, so that stores are left in order. Gunicorn calls this as a worker ends."""
    ending = getattr(worker, "a2a_ending", None)
    if ending is not None and worker.pid == os.getpid():
        ending.hurry()


def child_exit(server: Any, worker: Any) -> None:
    """Clear away what a dead worker has left for the others and for Prometheus. Gunicorn calls this in its own process."""
    worker.a2a_stores.clear()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        try:
            from prometheus_client import multiprocess
        except ImportError:
            return
        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def _refuse_what_cannot_be_shared(worker: Any) -> None:
    from a2a_sync.wsgi.process import ALONE, Site

    if worker.cfg.workers > 1 and isinstance(worker.wsgi, Site) and worker.wsgi.alone:
        from gunicorn.errors import AppImportError

        # Gunicorn prints it and stops as a whole. It says a lot more when others fail too while it stops.
        if worker.age % worker.cfg.workers == 1:
            raise AppImportError(ALONE)
        _await(lambda: not worker.alive, 10.0)


def _tell_threads(worker: Any) -> None:
    from gunicorn.workers.gthread import ThreadWorker

    reserve = getattr(worker.wsgi, "reserve", None)
    if isinstance(worker, ThreadWorker) and callable(reserve):
        reserve(worker.cfg.threads)


def _begin(worker: Any) -> None:
    from a2a_sync.wsgi.process import Site

    if isinstance(worker.wsgi, Site):
        worker.wsgi.begin()


class _Stores:
    """Where the agents of one worker keep their tasks, in memory that it shares with the workers forked after it.

    Made in gunicorn's own process. A temporary database that a module makes when it is loaded is another file in each
    worker, and every one of them would find half of the tasks: none can see that alone.
    """

    def __init__(self, server: Any) -> None:
        self._cfg = server.cfg
        self._shared = mmap.mmap(-1, _SHARED_BYTES)
        others = [getattr(worker, "a2a_stores", None) for worker in server.WORKERS.values()]
        # After HUP, workers of the former configuration go on for a while, and may well have had other stores.
        self._others = [other for other in others if other is not None and other._cfg is server.cfg]
        self._written: dict[str, str] = {}
        self._warned = False

    def compare(self, worker: Any) -> None:
        """Write down the stores of this worker, and warn once if one of another worker is a different one."""
        own: dict[str, str] = {}
        for app in _apps(worker):
            own.update(app.stores)
        if own != self._written:
            self._written = own
            self._write(own)
        if self._warned:
            return
        for other in self._others:
            theirs = other._read()
            for name in own.keys() & theirs.keys():
                if own[name] != theirs[name]:
                    self._warned = True
                    worker.log.warning(
                        "workers keep the tasks of agent %r in different files, %s and %s: each of them sees only its own tasks."
                        " Give all workers the path of one file, or make the store before they are forked (--preload)",
                        name,
                        theirs[name],
                        own[name],
                    )
                    return

    def clear(self) -> None:
        """The worker has ended."""
        self._shared[0] = 0

    def _write(self, stores: dict[str, str]) -> None:
        text = json.dumps(stores).encode()
        if len(text) < _SHARED_BYTES:
            self._shared[: len(text) + 1] = text + b"\0"

    def _read(self) -> dict[str, str]:
        text = self._shared[: max(0, self._shared.find(b"\0"))]
        try:
            stores: dict[str, str] = json.loads(text)
        except ValueError:
            # Empty, or just being written: it is read again.
            return {}
        return stores


class _Ending:
    """How the apps of one worker end: no new runs, time for those that go on, then an end to all that is open."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._hurried = threading.Event()
        self._done = threading.Event()
        self._begun = False

    def await_stop(self) -> None:
        """Wait until the worker stops serving, for whatever reason, then end its apps. On a thread of its own."""
        worker = self._worker
        # A signal handler could not do it: what the interrupted code holds is held while it runs.
        while worker.alive:
            time.sleep(_LOOK)
            worker.a2a_stores.compare(worker)
        until = time.monotonic() + worker.cfg.graceful_timeout - _FOR_STREAMS
        # Who is let in is served. Threaded workers tell how long they let others in, the rest take a second at most.
        _await(lambda: not getattr(worker, "_accepting", True), 1.0 + _LOOK)
        self._end(until)

    def hurry(self) -> None:
        """The worker's process is about to end: so do its apps, now."""
        self._hurried.set()
        self._end(time.monotonic())
        self._done.wait(_FOR_STREAMS)

    def _end(self, until: float) -> None:
        with self._lock:
            begun, self._begun = self._begun, True
        if begun:
            return
        try:
            self._drain(_apps(self._worker), until)
        finally:
            self._done.set()

    def _drain(self, apps: list[Any], until: float) -> None:
        # All together: the runs of one may call another one, until the last of them has ended.
        for app in apps:
            app.drain()
        _await(lambda: self._hurried.is_set() or not any(app.running for app in apps), until - time.monotonic())
        closing = [threading.Thread(target=app.close, args=(0.0,), name="a2a-close", daemon=True) for app in apps]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(_FOR_STREAMS)


def _await(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


def _apps(worker: Any) -> list[Any]:
    """What the worker serves, also inside another framework."""
    from a2a_sync.wsgi.process import Site, served

    return [site for site in {*served(), worker.wsgi} if isinstance(site, Site)]
