"""Settings and hooks for gunicorn: ``gunicorn -c python:a2a_sync.gunicorn module:app --threads 64``.

The command line overrides these settings. A configuration file of your own begins with
``from a2a_sync.gunicorn import *``. `a2a_sync.gunicorn.gevent` has the settings for greenlets instead of threads.

The hooks shut down every app of a worker, also inside another framework, when the worker is stopped or reaches
``max_requests``: current runs get time to end, then open streams are closed. Gunicorn alone would wait for open streams
until its timeout and then cut them. The hooks also pin each worker to one core, refuse to start several workers that
cannot share tasks, log a warning if workers use different stores, and exempt what is loaded at the start of a worker from garbage
collections.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import queue
import signal
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
#: More than `threads`, because a kept-alive connection occupies no thread between two requests.
worker_connections = 2000
#: Seconds; longer than proxies keep idle connections, so that a proxy never sends a request while the worker closes
#: one.
keepalive = 75
graceful_timeout = 30
#: Disabled because two services of one user would share the path of the socket. Gunicorn before 25.1 ignores this
#: setting.
control_socket_disable = True
#: No forwarded header is trusted: gunicorn would accept paths in headers from any process of this machine. The number
#: of trusted proxies is an option of the app (``HTTPOptions(trusted_proxies=…)``).
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}

#: The variable, in the environment or in gunicorn's ``raw_env``, that disables pinning to cores with the value ``0``.
_PIN_WORKERS = "A2A_SYNC_PIN_WORKERS"

#: Seconds of ``graceful_timeout`` that are reserved for closing streams after the runs have ended.
_STREAM_CLOSE_SECONDS = 3.0
#: Interval in seconds at which a worker checks whether it was stopped.
_CHECK_INTERVAL = 0.25
#: Workers whose connections are counted; of more than these, some share a count.
_MAX_COUNTED = 64
#: Bytes of shared memory for the agent names and store paths of one worker; longer lists are not compared.
_SHARED_BYTES = 64 * 1024


# -- one core for each worker -------------------------------------------------------------------------------------------


def pre_fork(server: Any, worker: Any) -> None:
    """Choose a core for a worker, and create what it shares with others. Called by gunicorn in the master process."""
    worker.a2a_core = _free_core(server) if _may_pin(server.cfg) else None
    worker.a2a_stores = _StoreRecord(server)
    if not hasattr(server, "a2a_connections"):
        server.a2a_connections = ConnectionCounts()
    worker.a2a_connections = server.a2a_connections


def post_fork(server: Any, worker: Any) -> None:
    """Let a worker stop while it starts, and pin it to its core. Called by gunicorn first in each worker.

    Threads of one Python process cannot use two cores at once, and migration costs time. Threads and processes that are
    started later inherit the core.
    """
    _stop_at_early_signals(server, worker)
    core = getattr(worker, "a2a_core", None)
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            worker.log.warning("worker not pinned to core %d: %s", core, error)


def _stop_at_early_signals(server: Any, worker: Any) -> None:
    """Stop the worker at a signal that arrives before gunicorn has installed the worker's handlers.

    Until then the handler inherited from the master puts signals into a queue that the worker never reads. The master
    would wait for the worker until ``graceful_timeout``.
    """

    def stop(number: int, frame: Any) -> None:
        worker.alive = False

    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
    for number in numbers:
        signal.signal(number, stop)
    # The signals between the fork and the new handlers.
    with contextlib.suppress(queue.Empty):
        while True:
            if server.SIG_QUEUE.get_nowait() in numbers:
                worker.alive = False


def _may_pin(config: Any) -> bool:
    wanted = config.env.get(_PIN_WORKERS, os.environ.get(_PIN_WORKERS, "1"))
    return hasattr(os, "sched_setaffinity") and wanted != "0"


def _free_core(server: Any) -> int | None:
    """The core with the fewest pinned workers; None for a single worker, or for more workers than cores."""
    cores = sorted(os.sched_getaffinity(0))
    if not 2 <= server.num_workers <= len(cores):
        return None
    pinned = Counter(getattr(worker, "a2a_core", None) for worker in server.WORKERS.values())
    return min(cores, key=lambda core: pinned[core])


# -- the life of a worker -----------------------------------------------------------------------------------------------


def post_worker_init(worker: Any) -> None:
    """Check that the workers can share tasks, reserve threads, and start the app and the thread that shuts it down.

    What is loaded then is exempt from garbage collections (`gc.freeze`).

    Called by gunicorn once in each worker.

    Raises:
        AppImportError: there are several workers, and the store of the app cannot be shared. Gunicorn stops.
    """
    _refuse_unshared_tasks(worker)
    _reserve_threads(worker)
    _start_app(worker)
    # A full collection stops every request. What the app has loaded stays until the worker ends, so it is not traversed again.
    gc.collect()
    gc.freeze()
    # Before the worker serves requests: the last one to start is compared with all others.
    worker.a2a_stores.compare(worker)
    worker.a2a_shutdown = _Shutdown(worker)
    threading.Thread(target=worker.a2a_shutdown.await_stop, name="a2a-worker", daemon=True).start()


def worker_exit(server: Any, worker: Any) -> None:
    """Finish the shutdown, so that stores are closed properly. Called by gunicorn when a worker ends."""
    shutdown = getattr(worker, "a2a_shutdown", None)
    if shutdown is not None and worker.pid == os.getpid():
        shutdown.finish_now()


def child_exit(server: Any, worker: Any) -> None:
    """Remove the record of stores and the live Prometheus gauges of a dead worker.

    Called by gunicorn in the master process.
    """
    worker.a2a_stores.clear()
    worker.a2a_connections.set(worker, None)
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        try:
            from prometheus_client import multiprocess
        except ImportError:
            return
        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def _refuse_unshared_tasks(worker: Any) -> None:
    from a2a_sync.wsgi.process import SINGLE_PROCESS, Site

    if worker.cfg.workers > 1 and isinstance(worker.wsgi, Site) and worker.wsgi.single_process:
        from gunicorn.errors import AppImportError

        # Only one worker raises it: gunicorn stops, and failures of further workers would hide the message in their
        # output.
        if worker.age % worker.cfg.workers == 1:
            raise AppImportError(SINGLE_PROCESS)
        _wait_until(lambda: not worker.alive, 10.0)


def _reserve_threads(worker: Any) -> None:
    from gunicorn.workers.gthread import ThreadWorker

    from a2a_sync.wsgi.process import Site, set_capacity

    if isinstance(worker, ThreadWorker):
        capacity = (getattr(worker, "request_threads", worker.cfg.threads), worker.worker_connections)
        # For apps inside another framework.
        set_capacity(*capacity)
        if isinstance(worker.wsgi, Site):
            worker.wsgi.reserve(*capacity)


def _start_app(worker: Any) -> None:
    from a2a_sync.wsgi.process import Site

    if isinstance(worker.wsgi, Site):
        worker.wsgi.start()


class ConnectionCounts:
    """The number of connections of each worker, in memory that all of them share: the kernel gives most to the first that wakes up."""

    def __init__(self) -> None:
        #: One more than the number of connections; 0 where there is no worker that accepts some.
        self._counts = memoryview(mmap.mmap(-1, 4 * _MAX_COUNTED)).cast("I")

    def set(self, worker: Any, connections: int | None) -> None:
        """Set the number of connections of a worker; None if it accepts no more."""
        self._counts[worker.age % _MAX_COUNTED] = 0 if connections is None else connections + 1

    def least(self) -> int:
        """The smallest number of a worker."""
        return min(filter(None, self._counts), default=1) - 1


class _StoreRecord:
    """The stores of the agents of one worker, recorded in memory that is shared with the workers forked after it.

    Created in the master process. A temporary database that a module creates at import is a different file in each
    worker, so that each worker finds only a part of the tasks. A single worker cannot detect that.
    """

    def __init__(self, server: Any) -> None:
        self._cfg = server.cfg
        self._shared = mmap.mmap(-1, _SHARED_BYTES)
        others = [getattr(worker, "a2a_stores", None) for worker in server.WORKERS.values()]
        # After HUP, workers with the previous configuration continue for a while and may use other stores.
        self._others = [other for other in others if other is not None and other._cfg is server.cfg]
        self._written: dict[str, str] = {}
        self._warned = False

    def compare(self, worker: Any) -> None:
        """Record the stores of this worker, and log a warning, once, if another worker has different ones."""
        own: dict[str, str] = {}
        for app in _apps(worker):
            own.update(app.stores)
        if own != self._written:
            self._written = own
            self._write(own)
        if not self._warned and (difference := self._difference(own)) is not None:
            self._warned = True
            worker.log.warning(
                "workers keep the tasks of agent %r in different files, %s and %s: each of them sees only its own tasks."
                " Give all workers the path of one file, or make the store before they are forked (--preload)",
                *difference,
            )

    def _difference(self, own: dict[str, str]) -> tuple[str, str, str] | None:
        """The name of an agent, and the different stores of it in another worker and in this one; None if there is none."""
        for other in self._others:
            theirs = other._read()
            for name in own.keys() & theirs.keys():
                if own[name] != theirs[name]:
                    return name, theirs[name], own[name]
        return None

    def clear(self) -> None:
        """Empty the record, because the worker has ended."""
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
            # Empty or being written; the next comparison reads it again.
            return {}
        return stores


class _Shutdown:
    """The shutdown of the apps of one worker: no new runs, time for current runs, then everything open is closed."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._immediate = threading.Event()
        self._done = threading.Event()
        self._started = False

    def await_stop(self) -> None:
        """Wait until the worker stops serving, then shut down its apps. Runs on a thread of its own."""
        worker = self._worker
        # Not in a signal handler: locks of the interrupted code stay held while it runs.
        while worker.alive:
            time.sleep(_CHECK_INTERVAL)
            worker.a2a_stores.compare(worker)
        deadline = time.monotonic() + worker.cfg.graceful_timeout - _STREAM_CLOSE_SECONDS
        # Accepted requests are served. Threaded workers report in `_accepting` that they accept no more; others need at
        # most 1 s.
        _wait_until(lambda: not getattr(worker, "_accepting", True), 1.0 + _CHECK_INTERVAL)
        self._shut_down(deadline)

    def finish_now(self) -> None:
        """Close the apps without waiting for runs, because the process of the worker is about to end."""
        self._immediate.set()
        self._shut_down(time.monotonic())
        self._done.wait(_STREAM_CLOSE_SECONDS)

    def _shut_down(self, deadline: float) -> None:
        with self._lock:
            started, self._started = self._started, True
        if started:
            return
        try:
            self._drain(_apps(self._worker), deadline)
        finally:
            self._done.set()

    def _drain(self, apps: list[Any], deadline: float) -> None:
        # No app is closed before all have drained: a run of one app may call another app.
        for app in apps:
            app.drain()
        _wait_until(
            lambda: self._immediate.is_set() or not any(app.running for app in apps), deadline - time.monotonic()
        )
        closing = [threading.Thread(target=app.close, args=(0.0,), name="a2a-close", daemon=True) for app in apps]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(_STREAM_CLOSE_SECONDS)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _apps(worker: Any) -> list[Any]:
    """The apps that the worker serves, also inside another framework."""
    from a2a_sync.wsgi.process import Site, served

    return [site for site in {*served(), worker.wsgi} if isinstance(site, Site)]
