"""Real servers on loopback: started, waited for, stopped by their pid, their output kept; every wait is bounded.

::

    with gunicorn("examples.greeter:app", threads=4) as server:
        requests.get(server.url + "/.well-known/agent-card.json", timeout=5)
    with live_server(["uvicorn", "--port", str(port), …], f"http://127.0.0.1:{port}") as server:
        ...

Modules are found from the root of the repository (``tests.some_agent:app``), which is also the working directory unless
another one is named.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"


class LiveServer:
    """A server process and where it listens. ``url`` has no slash at its end."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self.url = url
        self._process = process
        self._output = output

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for tests that speak to the socket themselves."""
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    @property
    def pid(self) -> int:
        """The process that was started (gunicorn's arbiter, not its workers)."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All that the server has written to its standard output and error so far."""
        number = self._output.fileno()
        # Read at a place of our own: the server writes on at the one it shares with us.
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def await_answer(self, seconds: float = 20.0) -> None:
        """Wait until the server answers HTTP, whatever the answer.

        Raises:
            AssertionError: it ended, or did not answer in time; with its output.
        """
        deadline = time.monotonic() + seconds
        while not self._answers(max(0.1, deadline - time.monotonic())):
            # Waiting for its end is the pause between two attempts.
            code = self._ended(0.05)
            if code is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server does not answer (exit code {code}):\n{self.log}")

    def _answers(self, seconds: float) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def _ended(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self, seconds: float = 15.0) -> int:
        """Ask the server to stop, as a service manager does, and give its exit code. Idempotent.

        Raises:
            AssertionError: it did not stop in time and was killed; with its output.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self._ended(seconds) is None:
                self.kill()
                raise AssertionError(f"the server did not stop within {seconds:g} seconds:\n{self.log}")
        return self._process.returncode

    def kill(self) -> None:
        """End the server and its workers at once; they are alone in a process group of their own."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(5)


def free_port() -> int:
    """A port that nobody listens on now, for servers that cannot be handed a socket."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def live_server(
    command: Sequence[str],
    url: str,
    *,
    environment: Mapping[str, str] | None = None,
    wait: float = 20.0,
    listener: socket.socket | None = None,
    folder: Path = ROOT,
) -> Iterator[LiveServer]:
    """Run `command`, which serves HTTP at `url`; it answers when the block begins and is gone when the block ends.

    `folder` is where it runs. `listener` is a socket that the command inherits under its own number; it is closed here.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(environment or {})}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[] if listener is None else [listener.fileno()],
            start_new_session=True,
        )
        if listener is not None:
            # From here on only the server's own copy listens: when it is gone, connections are refused.
            listener.close()
        server = LiveServer(url, process, output)
        try:
            server.await_answer(wait)
            yield server
            server.terminate()
        finally:
            server.kill()


@contextmanager
def gunicorn(
    target: str,
    *options: str,
    threads: int = 8,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
    wait: float = 20.0,
) -> Iterator[LiveServer]:
    """Serve ``module:attribute`` with gunicorn's threaded workers on a free port; `options` are gunicorn's own."""
    kind = ["--worker-class", "gthread", "--threads", str(threads), "--workers", str(workers)]
    with _gunicorn([target, *kind, *options], environment, wait) as server:
        yield server


@contextmanager
def gunicorn_gevent(
    target: str,
    *options: str,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
    wait: float = 20.0,
) -> Iterator[LiveServer]:
    """The same with gevent's workers and the settings for them."""
    kind = ["-c", "python:a2a_sync.gunicorn.gevent", "--workers", str(workers)]
    with _gunicorn([target, *kind, *options], environment, wait) as server:
        yield server


@contextmanager
def _gunicorn(arguments: list[str], environment: Mapping[str, str] | None, wait: float) -> Iterator[LiveServer]:
    # The socket is made here and handed over, so no other process can take the port in between.
    with socket.create_server((HOST, 0), backlog=1024) as listener:
        command = [sys.executable, "-m", "gunicorn", "--bind", f"fd://{listener.fileno()}", "--no-control-socket"]
        command += ["--graceful-timeout", "5", *arguments]
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        with live_server(command, url, environment=environment, wait=wait, listener=listener) as server:
            yield server


@contextmanager
def uvicorn(
    target: str, *options: str, environment: Mapping[str, str] | None = None, wait: float = 20.0
) -> Iterator[LiveServer]:
    """Serve ``module:attribute``, an ASGI application, with uvicorn on a free port; `options` are uvicorn's own."""
    with socket.create_server((HOST, 0), backlog=256) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", target, "--fd", str(listener.fileno()), *options]
        with live_server(command, url, environment=environment, wait=wait, listener=listener) as server:
            yield server
