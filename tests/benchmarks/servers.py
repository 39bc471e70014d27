"""Starts the compared servers on their core, and stops them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.benchmarks import environments
from tests.benchmarks.exchanges import card
from tests.benchmarks.load import Exchange, Sample, drive

AGENTS = Path(__file__).parent / "agents"
OURS = "ours:app"
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, GENERATOR_CORE = CORES[0], CORES[-1]


@dataclass(frozen=True)
class Setup:
    """The command of an agent: environment (a name of `environments`), command after its Python, variables, folder.

    It runs on the server's core, or with `all_cores` where its workers pin themselves.
    """

    environment: str
    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    all_cores: bool = False
    folder: Path = AGENTS


def gunicorn(app: str, *settings: str, threads: int = 16, worker: str = "gthread", **variables: str) -> Setup:
    """A WSGI agent on one gunicorn worker of this environment, with gunicorn's defaults or with `settings`."""
    command = ("-m", "gunicorn", app, *(settings or ("--worker-class", worker)), "--workers", "1", "--keep-alive", "60")
    limits = ("--worker-connections", "6000", "--timeout", "300", "--log-level", "error")
    return Setup("ours", (*command, *limits, *(("--threads", str(threads)) if worker == "gthread" else ())), variables)


def ours(app: str = OURS, *, threads: int = 16, worker: str = "gthread", **variables: str) -> Setup:
    """This library on one worker with the settings that its users get; the other options are those of `gunicorn`."""
    settings = "python:a2a_sync.gunicorn" + (".gevent" if worker == "gevent" else "")
    return gunicorn(app, "-c", settings, threads=threads, worker=worker, **variables)


def pinned(workers: int) -> Setup:
    """So many workers with the settings of this library, which pin each to a core, on one SQLite file."""
    command = ("-m", "gunicorn", "-c", "python:a2a_sync.gunicorn", OURS, "--workers", str(workers), "--threads", "40")
    # Gunicorn's hooks pin several workers. A single one that floats would be half as fast, so it gets the server's core.
    variables = {"STORE": "sqlite:///{folder}/ours.db"}
    return Setup("ours", (*command, "--log-level", "error"), variables, all_cores=workers > 1)


def uvicorn(environment: str, app: str, **variables: str) -> Setup:
    """An ASGI agent on one uvicorn process with defaults."""
    return Setup(environment, ("-m", "uvicorn", app, "--log-level", "error", "--no-access-log"), variables)


MEMORY = ours()
SQLITE = ours(STORE="sqlite:///{folder}/ours.db")
FLOOR = gunicorn("floor:app")
FLOOR_SQLITE = gunicorn("floor_sqlite:app", FILE="{folder}/floor.db")
SDK = uvicorn("sdk", "sdk:app")
SDK_SQLITE = uvicorn("sdk", "sdk:app", DATABASE="{folder}/sdk.db")
FASTA = uvicorn("fasta", "fasta:app")


class Server:
    """A running server; a context manager. It accepts requests when the ``with`` block starts."""

    def __init__(self, setup: Setup, *, timeout: float = 60.0) -> None:
        self._folder = tempfile.mkdtemp(prefix="a2a-bench-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        variables = {key: value.format(folder=self._folder) for key, value in setup.variables.items()}
        address = ("--bind", f"127.0.0.1:{self.port}") if "gunicorn" in setup.command else ("--port", str(self.port))
        self._command = setup.command
        self._log = (Path(self._folder) / "log").open("wb")
        self._process = subprocess.Popen(
            [environments.python(setup.environment), *setup.command, *address],
            cwd=setup.folder,
            env={**os.environ, **variables, "PORT": str(self.port)},
            preexec_fn=lambda: os.sched_setaffinity(0, CORES),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # Inherited by its threads and workers.
        if not setup.all_cores:
            os.sched_setaffinity(self._process.pid, {SERVER_CORE})
        try:
            self._await(timeout)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def _await(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self._try(end - time.monotonic())
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"the server did not start: {self._output()}")

    def _try(self, seconds: float) -> None:
        """Make a call, which gunicorn answers when the app is loaded; raises OSError while the server does not listen."""
        drive(self.port, card, connections=1, exchanges=1, limit=seconds)

    def _output(self) -> str:
        """The end of the server's output."""
        return (Path(self._folder) / "log").read_text(errors="replace")[-3000:]

    def memory(self) -> int:
        """The memory of the server and its children in bytes: private pages, and their share of common ones."""
        return sum(_proportional(pid) for pid in _family(self._process.pid))

    def cpu(self) -> float:
        """The processor time of the server and its children in seconds."""
        ticks = 0
        for pid in _family(self._process.pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def load(self, ask: Callable[[], Exchange], *, connections: int = 16, seconds: float = 1.0) -> Sample:
        """Send load to this server for a while."""
        before = self.cpu()
        sample = drive(self.port, ask, connections=connections, seconds=seconds)
        sample.cpu = (self.cpu() - before) / sample.answers
        return sample

    def kill(self) -> None:
        """End the server and its children without a warning."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(10)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(f"{' '.join(self._command)} wrote:\n{self._output()}", file=sys.stderr)
        self.stop()


def _family(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            pids += map(int, children.read_text().split())
    return pids


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def pin_generator() -> None:
    """Pin this process to the generator's core."""
    os.sched_setaffinity(0, {GENERATOR_CORE})
