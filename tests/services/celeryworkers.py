"""Celery workers as processes, for tests over a real broker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.live import ROOT

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
