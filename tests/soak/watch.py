"""Prints the resources that a server under load uses (memory, threads, files, storage), and kills workers at intervals."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from a2a_sync import Client, TransportError
from tests.live import LiveServer


def children(pid: int) -> list[int]:
    """The children of all threads of a process, such as gunicorn's workers."""
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


class Watch:
    """Prints the server's resources every `pause` seconds and kills a worker every `kill` seconds.

    `title` and `progress` are columns that the caller adds.
    """

    def __init__(
        self,
        server: LiveServer,
        folder: Path,
        pause: float,
        kill: float,
        *,
        title: str,
        progress: Callable[[], str],
        auth: str | None = None,
    ) -> None:
        self._server, self._folder, self._auth = server, folder, auth
        self._title, self._progress = title, progress
        self._pause, self._kill = pause, kill
        self._over = threading.Event()
        self._began = time.monotonic()
        self.killed = 0

    def run(self) -> None:
        next_note, next_kill = self._pause, self._kill
        print(f"minute  {self._title}  workers' MB  threads  files open  store MB  tasks", flush=True)
        while not self._over.wait(max(0.0, min(next_note, next_kill) - self._elapsed())):
            if self._elapsed() >= next_note:
                next_note += self._pause
                self._note()
            if self._elapsed() >= next_kill:
                next_kill += self._kill
                self._kill_one()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _kill_one(self) -> None:
        try:
            os.kill(random.choice(children(self._server.pid)), signal.SIGKILL)
            self.killed += 1
        except (IndexError, ProcessLookupError):
            pass  # no worker at this moment

    def end(self) -> None:
        self._over.set()

    def _note(self) -> None:
        memory = threads = files = 0
        for pid in children(self._server.pid):
            try:
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                memory += int(status["VmRSS"].split()[0])
                threads += int(status["Threads"])
                files += len(os.listdir(f"/proc/{pid}/fd"))
            except (OSError, KeyError):
                continue  # it has been killed
        size = sum(one.stat().st_size for one in self._folder.iterdir() if one.is_file())
        try:
            with Client(self._server.url, auth=self._auth, timeout=30) as client:
                tasks = str(client.list_tasks(page_size=1).total_size)
        except TransportError:
            tasks = "-"  # the worker that served the request has been killed
        print(
            f"{self._elapsed() / 60:6.1f}  {self._progress()}  {memory / 1000:11.0f}  {threads:7}  {files:10}"
            f"  {size / 1e6:8.1f}  {tasks:>5}",
            flush=True,
        )
