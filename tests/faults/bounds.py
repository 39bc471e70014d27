"""What a process takes after many tasks of which few are kept, for tests of any size."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2a_sync import InputRequired
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from tests.engine import Background, Served


def answer(message: Any, context: Any) -> Any:
    """A stream of a few chunks, or a question."""
    return InputRequired("and?") if message.text == "ask" else (f"{number} " for number in range(5))


@dataclass
class Figures:
    """What a process takes at one moment."""

    tasks: int
    threads: int
    listeners: int
    memory: float
    file: float

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks kept, {self.threads} threads, {self.listeners} listeners, {self.memory:.0f} MB of memory,"
            f" {self.file:.1f} MB of files"
        )


def figures(served: Served, path: Path) -> Figures:
    pages = Path("/proc/self/statm")
    memory = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
    files = [Path(f"{path}{end}") for end in ("", "-wal")]
    size = sum(one.stat().st_size for one in files if one.exists())
    listeners = len(served.app._engine.hub._listeners)
    return Figures(served.list().total_size, threading.active_count(), listeners, memory / 1e6, size / 1e6)


def fill(served: Served, tasks: int) -> None:
    """Ended tasks and waiting ones, from several threads."""

    def send(count: int) -> None:
        for number in range(count):
            served.send("ask" if number % 10 == 0 else "go")

    for sender in [Background(lambda: send(tasks // 4)) for _ in range(4)]:
        sender.result(600)


def check(path: Path | None, tasks: int, limit: int) -> list[Figures]:
    """Make `tasks` of which `limit` are kept (at `path`, or in memory): the figures early and late, which may not differ."""
    store = MemoryStore(max_tasks=limit) if path is None else SQLiteStore(path, max_tasks=limit)
    served = Served(answer, store=store)
    file = path or Path("/nonexistent")
    fill(served, 3 * limit)
    served.quiet()
    early = figures(served, file)
    fill(served, tasks - 3 * limit)
    served.quiet()
    late = figures(served, file)
    assert late.tasks == limit
    assert late.threads <= early.threads + 2
    assert late.listeners == 0
    assert late.memory < early.memory + 20
    assert late.file < early.file * 1.2 + 1
    served.close()
    store.close()
    return [early, late]
