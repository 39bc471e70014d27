"""Celery workers as processes, for tests over a real broker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults.conftest import Place
from tests.live import ROOT, LiveServer

#: Seconds that anything may take on a machine that is loaded several times over.
LONG = 90.0


def start_worker(
    target: str, environment: Mapping[str, str], log: Path, *options: str, name: str = "w"
) -> subprocess.Popen[bytes]:
    """Start a worker of the Celery application ``module:attribute``; `options` are Celery's. Its output goes to `log`."""
    command = [sys.executable, "-m", "celery", "-A", target, "worker", "--without-mingle", "--without-gossip"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, "-n", f"{name}@localhost", *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def kill_worker(worker: subprocess.Popen[bytes]) -> None:
    """End a worker with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(LONG)


@contextlib.contextmanager
def a_worker(target: str, environment: Mapping[str, str], folder: Path, *options: str) -> Iterator[Path]:
    """A worker that ends with the block; yields the file of its output."""
    log = folder / "celery.log"
    worker = start_worker(target, environment, log, "--loglevel", "info", *options)
    try:
        yield log
    finally:
        kill_worker(worker)


class Hosts(LiveServer):
    """A web server and the Celery worker that executes its runs: they stop and are killed together."""

    def __init__(self, server: LiveServer, worker: subprocess.Popen[bytes]) -> None:
        super().__init__(server.url, server._process, server._output)
        self.worker = worker

    def terminate(self, seconds: float = LONG) -> int:
        """Stop the worker, then the server."""
        self.worker.send_signal(signal.SIGTERM)
        self.worker.wait(seconds)
        return super().terminate(seconds)

    def kill(self) -> None:
        """Kill both."""
        kill_worker(self.worker)
        super().kill()


class CeleryPlace(Place):
    """Each server has a Celery worker with six processes."""

    @contextlib.contextmanager
    def server(self, target: str, *, workers: int, environment: Mapping[str, str]) -> Iterator[LiveServer]:
        """See `Place.server`."""
        environment = {**environment, "A2A_TEST_AGENT": target, "A2A_TEST_STORE": self.store}
        with super().server("tests.services.site:app", workers=workers, environment=environment) as server:
            variables = {**environment, **self.variables}
            options = ("-P", "prefork", "-c", "6", "--loglevel", "info")
            worker = start_worker("tests.services.site:celery", variables, self.runs.with_name("celery.log"), *options)
            try:
                yield Hosts(server, worker)
            finally:
                kill_worker(worker)

    def parents(self, server: LiveServer) -> list[int]:
        """See `Place.parents`."""
        assert isinstance(server, Hosts)
        return [server.pid, server.worker.pid]
