"""The servers of the interoperability tests: agents on other implementations, and this library's agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import free_port, gunicorn, live_server


@contextmanager
def python_agent(module: str, python: str = sys.executable) -> Iterator[str]:
    """Run an agent as ``python -m MODULE PORT``; yield its URL."""
    port = free_port()
    with live_server([python, "-m", module, str(port)], f"http://127.0.0.1:{port}", wait=40) as server:
        yield server.url


@contextmanager
def our_agent(store: str = "memory", folder: Path | None = None) -> Iterator[str]:
    """Serve `tests.peers.our_agent` under gunicorn; yield its URL. `folder` is for the file of the store ``sqlite``."""
    address = f"sqlite:///{folder / 'tasks.db'}" if store == "sqlite" and folder else "memory:"
    with gunicorn("tests.peers.our_agent:app", threads=16, environment={"PEER_STORE": address}) as server:
        yield server.url
