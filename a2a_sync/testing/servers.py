"""Real servers on loopback: in this process, or gunicorn in processes of its own. All waits are bounded."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess  # nosec B404
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from wsgiref.types import WSGIApplication

HOST = "127.0.0.1"
_TIMEOUT = 20.0


@contextmanager
def socket_server(app: WSGIApplication) -> Iterator[str]:
    """Serve `app`, an object of this process, on a free port of loopback; yields the URL, without a trailing slash.

    Each request has a thread of its own. The end of the block does not wait for requests that have not ended.
    """
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            """Do nothing: tests report their own failures."""

    server = make_server(HOST, 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="a2a-testing-server", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(_TIMEOUT)
        server.server_close()


class LiveServer:
    """A server process and its URL. ``url`` has no trailing slash."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self.url = url
        self._process = process
        self._output = output

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for tests that use the socket directly."""
        parts = urlsplit(self.url)
        return parts.hostname or HOST, parts.port or 80

    @property
    def pid(self) -> int:
        """The process that was started (gunicorn's arbiter, not its workers)."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The standard output and error of the server so far."""
        number = self._output.fileno()
        # Read at an explicit offset, because the server shares the file offset and continues to write at it.
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def await_answer(self, seconds: float = _TIMEOUT) -> None:
        """Wait until the server answers HTTP, whatever the answer.

        Raises:
            AssertionError: the server ended, or did not answer within `seconds`; the text has its output.
        """
        deadline = time.monotonic() + seconds
        while not self._is_answering(max(0.1, deadline - time.monotonic())):
            # Waiting for the end of the process is the pause between two attempts.
            code = self._wait_for_exit(0.05)
            if code is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server does not answer (exit code {code}):\n{self.log}")

    def _is_answering(self, seconds: float) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        if self.url.startswith("https:"):
            # Only whether it answers is of interest here, and nothing secret is sent.
            unverified = ssl._create_unverified_context()  # nosec B323
            connection = http.client.HTTPSConnection(*self.address, timeout=seconds, context=unverified)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def _wait_for_exit(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self, seconds: float = 15.0) -> int:
        """Stop the server with SIGTERM, as a service manager does, and return its exit code. Idempotent.

        Raises:
            AssertionError: it did not stop within `seconds` and was killed; the text has its output.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self._wait_for_exit(seconds) is None:
                self.kill()
                raise AssertionError(f"the server did not stop within {seconds:g} seconds:\n{self.log}")
        return int(self._process.returncode)

    def kill(self) -> None:
        """Kill the server and its workers, which have a process group of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(5)


@contextmanager
def live_server(
    command: Sequence[str],
    url: str,
    *,
    environment: Mapping[str, str] | None = None,
    wait: float = _TIMEOUT,
    listener: socket.socket | None = None,
    folder: Path | None = None,
) -> Iterator[LiveServer]:
    """Run `command`, which serves HTTP at `url`. The server answers when the block begins, and is stopped when it ends.

    Parameters:
        command: the program and its arguments.
        url: the URL that the server answers at.
        environment: the environment of the process.
        wait: seconds to wait for the first answer.
        listener: a socket that the process inherits with its file descriptor; it is closed in this process.
        folder: the working directory of the process; by default the current one.

    Raises:
        AssertionError: the server ended or did not answer in time.
    """
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # no shell: a list, and the test's own  # nosec B603
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
            # Only the copy of the server listens from now on: connections are refused when the server has ended.
            listener.close()
        server = LiveServer(url, process, output)
        try:
            server.await_answer(wait)
            yield server
            server.terminate()
        finally:
            server.kill()


@contextmanager
def gunicorn_server(
    target: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    wait: float = _TIMEOUT,
    folder: Path | None = None,
) -> Iterator[LiveServer]:
    """Serve ``module:attribute`` with gunicorn on a free port of loopback; `options` are those of gunicorn.

    Without options it has one worker with eight threads; with ``--certfile`` the URL is https. Modules are imported from
    `folder`, the working directory of the server, and from the import path of this process::

        with gunicorn_server("greeter:app", "--threads", "32") as server:
            Client(server.url).send("Ada")
    """
    path = os.pathsep.join([str(folder or Path.cwd()), *filter(None, sys.path)])
    # The server inherits a bound socket, so that no other process can bind the port in between.
    with socket.create_server((HOST, 0), backlog=1024) as listener:
        command = [sys.executable, "-m", "gunicorn", "--bind", f"fd://{listener.fileno()}", "--no-control-socket"]
        command += ["--graceful-timeout", "5", target, *(options or ("--threads", "8"))]
        scheme = "https" if "--certfile" in options else "http"
        url = f"{scheme}://{HOST}:{listener.getsockname()[1]}"
        variables = {"PYTHONPATH": path, **(environment or {})}
        with live_server(command, url, environment=variables, wait=wait, listener=listener, folder=folder) as server:
            yield server
