"""The settings of `a2a_sync.gunicorn` for greenlets, and the worker that they select.

Start gunicorn with ``gunicorn -c python:a2a_sync.gunicorn.gevent module:app``.

Importing this module patches the standard library in the master process, before the app is loaded. Gunicorn itself
patches it in the workers only. With ``--preload`` that is too late: if the app has loaded requests or urllib3 before,
its first HTTPS request fails with `RecursionError`. For the same reason a configuration file of your own begins with
``from a2a_sync.gunicorn.gevent import *``.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

from collections import deque  # noqa: E402
from collections.abc import Iterable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

from gevent import Timeout, get_hub, sleep, spawn  # noqa: E402
from gunicorn.http.body import ChunkedReader  # noqa: E402

from a2a_sync.gunicorn import (  # noqa: E402
    child_exit,
    control_socket_disable,
    forwarder_headers,
    graceful_timeout,
    keepalive,
    post_fork,
    post_worker_init,
    pre_fork,
    secure_scheme_headers,
    worker_connections,
    worker_exit,
)
from a2a_sync.gunicorn.worker import BufferedThreadWorker, RequestThreads  # noqa: E402

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
    "worker_class",
    "worker_connections",
    "worker_exit",
]

worker_class = "a2a_sync.gunicorn.gevent.GreenletWorker"

#: After so many chunks of a request body other greenlets run.
_CHUNKS_IN_TURN = 128


class GreenletWorker(BufferedThreadWorker):
    """The worker class: as `BufferedThreadWorker`, with a new greenlet for each request in the place of a pool thread.

    The main greenlet receives requests, sends what clients do not read at once, and starts greenlets that continue responses. An open
    stream without events, a waiting send and a slow client occupy a connection, but no greenlet. As many requests are served at
    once as there are connections.
    """

    @property
    def request_threads(self) -> int:
        return self.worker_connections

    def get_thread_pool(self) -> RequestThreads:
        return _RequestGreenlets(self.request_threads, self.serve)

    def run(self) -> None:
        self.poller: Any = _Poller()
        super().run()

    def handle_request(self, req: Any, conn: Any) -> bool:
        reader = getattr(req.body, "reader", None)
        if isinstance(reader, ChunkedReader) and conn.paused is None:
            reader.parser = _in_turns(reader.parser)
        return super().handle_request(req, conn)

    def handle_quit(self, sig: int, frame: Any) -> None:
        # The signal handler runs on the greenlet of gevent's hub, which must not wait.
        spawn(super().handle_quit, sig, frame)

    def handle_usr1(self, sig: int, frame: Any) -> None:
        spawn(super().handle_usr1, sig, frame)


class _RequestGreenlets(RequestThreads):
    """The greenlets of a worker. Each ends after the request that it serves, or the response that it continues."""

    def _submit(self, conn: Any, conns: deque[Any]) -> None:
        self._busy += 1
        spawn(self._serve, conn)

    def shutdown(self, wait: bool) -> None:
        pass


class _Poller(monkey.get_original("selectors", "DefaultSelector")):  # type: ignore[misc]
    """The selector of the system. While it waits, other greenlets run.

    The selector of gevent starts and stops a watcher for each event of each connection. This one has a single watcher, of its own
    file descriptor, and sees what other greenlets register while it waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hub = get_hub()
        self._readable = self._hub.loop.io(self.fileno(), 1)

    def select(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """The events of the next `timeout` seconds, as soon as there are any. Other greenlets run first in any case."""
        with Timeout(timeout, False):
            self._hub.wait(self._readable)
        events: list[tuple[Any, int]] = super().select(0)
        return events

    def close(self) -> None:
        self._readable.close()
        super().close()


def _in_turns(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a chunked body. Parsing chunks that have arrived does not wait, so other greenlets run in between."""
    for count, data in enumerate(chunks, 1):
        if count % _CHUNKS_IN_TURN == 0:
            sleep(0)
        yield data
