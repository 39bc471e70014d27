"""A mixed soak: ``python -m tests.soak --minutes 10``.

Four gunicorn workers over one SQLite file, or over the database that ``--store`` names. Clients send, stream, get, subscribe and cancel over random connections, and one
worker is killed at intervals. An error that a client sees ends the soak with exit code 1; at the end a table shows the
server's use of resources. ``--hostile`` runs hostile clients instead of that load; see `tests.soak.hostile`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from a2a_sync import Client
from tests.faults.crowd import Crowd
from tests.live import gunicorn
from tests.soak import hostile
from tests.soak.watch import Watch

WORKERS, THREADS = 4, 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration in minutes (default: 10)")
    parser.add_argument("--clients", type=int, default=24, help="number of concurrent clients (default: 24)")
    parser.add_argument("--kill", type=float, help="seconds between two kills of a worker (default: 60, hostile: 10)")
    parser.add_argument("--hostile", action="store_true", help="run hostile clients and an honest one")
    parser.add_argument("--gevent", action="store_true", help="run gevent workers (with --hostile)")
    parser.add_argument("--store", help="the URL of a store (default: a new SQLite file)")
    parser.add_argument("--tasks", type=int, default=2000, help="limit of stored tasks (default: 2000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.hostile:
            return hostile.soak(Path(name), options.minutes * 60, options.kill or 10.0, gevent=options.gevent)
        store = options.store or f"sqlite:///{name}/tasks.db"
        return soak(Path(name), store, options.minutes * 60, options.clients, options.tasks, options.kill or 60.0)


def soak(folder: Path, store: str, seconds: float, clients: int, tasks: int, kill: float) -> int:
    environment = {"FAULT_STORE": store, "FAULT_BEAT": "2", "FAULT_TASKS": str(tasks)}
    hooks = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn(
        "tests.faults.agent:app", *hooks, threads=THREADS, workers=WORKERS, environment=environment
    ) as server:
        crowd = Crowd(server.url, limit=seconds + 120)
        crowd.lossy = True
        watch = Watch(
            server,
            folder,
            min(30.0, seconds / 4),
            kill,
            title="actions  refused",
            progress=lambda: f"{sum(crowd.done.values()):7}  {crowd.refused:7}",
        )
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
