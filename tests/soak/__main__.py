"""A mixed soak: ``python -m tests.soak --minutes 10``.

Four gunicorn workers over one SQLite file; clients send, stream, get, subscribe and cancel over random connections; now and then
one worker is killed. What a client sees wrong ends the soak with exit code 1; at its end stands a table of what the
server took.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from a2a_sync import Client
from tests.faults.crowd import Crowd
from tests.live import LiveServer, gunicorn

WORKERS, THREADS = 4, 8


def children(pid: int) -> list[int]:
    """The workers of an arbiter."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Watch:
    """Notes every `pause` seconds what the server takes, and kills a worker every `kill` seconds."""

    def __init__(self, server: LiveServer, folder: Path, crowd: Crowd, pause: float, kill: float) -> None:
        self._server, self._folder, self._crowd = server, folder, crowd
        self._pause, self._kill = pause, kill
        self._over = threading.Event()
        self._began = time.monotonic()
        self.killed = 0

    def run(self) -> None:
        next_kill = self._kill
        print("minute  actions  refused  workers' MB  threads  files open  store MB  tasks", flush=True)
        while not self._over.wait(self._pause):
            self._note()
            if time.monotonic() - self._began > next_kill:
                next_kill += self._kill
                os.kill(random.choice(children(self._server.pid)), signal.SIGKILL)
                self.killed += 1

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
                continue  # it was killed a moment ago
        size = sum(one.stat().st_size for one in self._folder.iterdir() if one.is_file())
        with Client(self._server.url, timeout=30) as client:
            tasks = client.list_tasks(page_size=1).total_size
        minute = (time.monotonic() - self._began) / 60
        done = sum(self._crowd.done.values())
        print(
            f"{minute:6.1f}  {done:7}  {self._crowd.refused:7}  {memory / 1000:11.0f}  {threads:7}  {files:10}"
            f"  {size / 1e6:8.1f}  {tasks:5}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--clients", type=int, default=24, help="how many at once (default: 24)")
    parser.add_argument("--kill", type=float, default=60.0, help="seconds between two killed workers (default: 60)")
    parser.add_argument("--tasks", type=int, default=2000, help="how many the store keeps (default: 2000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return soak(Path(name), options.minutes * 60, options.clients, options.tasks, options.kill)


def soak(folder: Path, seconds: float, clients: int, tasks: int, kill: float) -> int:
    environment = {"FAULT_STORE": f"sqlite:///{folder / 'tasks.db'}", "FAULT_BEAT": "2", "FAULT_TASKS": str(tasks)}
    hooks = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn(
        "tests.faults.agent:app", *hooks, threads=THREADS, workers=WORKERS, environment=environment
    ) as server:
        crowd = Crowd(server.url, limit=seconds + 120)
        crowd.lossy = True
        watch = Watch(server, folder, crowd, min(30.0, seconds / 4, kill), kill)
        watcher = threading.Thread(target=watch.run, name="watch", daemon=True)
        watcher.start()
        until = time.monotonic() + seconds
        crowd.run(clients, lambda made: time.monotonic() > until)
        watch.end()
        watcher.join(60)
        with Client(server.url, timeout=30) as client:
            working = client.list_tasks(status="working").total_size
        print(f"{dict(crowd.done)}, {crowd.refused} refused, {watch.killed} workers killed, {working} left working")
        for failure in crowd.failures:
            traceback.print_exception(failure, file=sys.stdout)
        bad = bool(crowd.failures) or working > 0 or "Traceback" in server.log
        if "Traceback" in server.log:
            print(server.log[-5000:])
        return int(bad)


if __name__ == "__main__":
    sys.exit(main())
