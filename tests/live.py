"""Real servers of this repository's modules: `a2a_sync.testing.servers` for the library's own tests.

::

    with gunicorn("examples.greeter:app", threads=4) as server:
        requests.get(server.url + "/.well-known/agent-card.json", timeout=60)
    with live_server(["uvicorn", "--port", str(port), …], f"http://127.0.0.1:{port}") as server:
        ...

Modules are imported from the root of the repository (``tests.some_agent:app``), which is also the default working
directory.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from a2a_sync.gunicorn import worker_class
from a2a_sync.testing import servers
from a2a_sync.testing.servers import HOST, LiveServer

__all__ = ["HOST", "ROOT", "LiveServer", "free_port", "gunicorn", "gunicorn_gevent", "live_server", "uvicorn"]

ROOT = Path(__file__).resolve().parent.parent


def free_port(host: str = HOST) -> int:
    """A port without a listener, for servers that do not accept an open socket.

    It is below the ports that Linux assigns to connections and to listeners without a port, so that no other test gets
    it before the server listens. A seed of `random` does not change it: processes of a test run would draw the same port.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    raise AssertionError(f"none of 100 ports of {host} is free")


@contextmanager
def live_server(
    command: Sequence[str],
    url: str,
    *,
    environment: Mapping[str, str] | None = None,
    wait: float = 60.0,
    listener: socket.socket | None = None,
    folder: Path = ROOT,
) -> Iterator[LiveServer]:
    """`a2a_sync.testing.servers.live_server` with the repository on ``PYTHONPATH``."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, **(environment or {})}
    with servers.live_server(
        command, url, environment=variables, wait=wait, listener=listener, folder=folder
    ) as server:
        yield server


@contextmanager
def gunicorn(
    target: str,
    *options: str,
    threads: int = 8,
    workers: int = 1,
    worker: str = worker_class,
    environment: Mapping[str, str] | None = None,
    wait: float = 60.0,
) -> Iterator[LiveServer]:
    """Serve ``module:attribute`` with threaded workers on a free port. `options` are gunicorn's."""
    kind = ["--worker-class", worker, "--threads", str(threads), "--workers", str(workers)]
    with _gunicorn([target, *kind, *options], environment, wait) as server:
        yield server


@contextmanager
def gunicorn_gevent(
    target: str,
    *options: str,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
    wait: float = 60.0,
) -> Iterator[LiveServer]:
    """Like `gunicorn`, with gevent workers and their settings."""
    kind = ["-c", "python:a2a_sync.gunicorn.gevent", "--workers", str(workers)]
    with _gunicorn([target, *kind, *options], environment, wait) as server:
        yield server


@contextmanager
def _gunicorn(arguments: list[str], environment: Mapping[str, str] | None, wait: float) -> Iterator[LiveServer]:
    target, *options = arguments
    with servers.gunicorn_server(target, *options, environment=environment, wait=wait, folder=ROOT) as server:
        yield server


@contextmanager
def uvicorn(
    target: str, *options: str, environment: Mapping[str, str] | None = None, wait: float = 60.0
) -> Iterator[LiveServer]:
    """Serve ``module:attribute``, an ASGI application, with uvicorn on a free port. `options` are uvicorn's."""
    with socket.create_server((HOST, 0), backlog=256) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", target, "--fd", str(listener.fileno()), *options]
        with live_server(command, url, environment=environment, wait=wait, listener=listener) as server:
            yield server
