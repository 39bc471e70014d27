"""Resources of a process after many tasks with a small task limit, for tests of any size."""

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
    """The resources of a process at one moment."""

    tasks: int
    threads: int
    listeners: int
    memory: float
    file: float

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks stored, {self.threads} threads, {self.listeners} listeners, {self.memory:.0f} MB of memory,"
            f" {self.file:.1f} MB of files"
        )


def figures(served: Served, path: Path) -> Figures:
    pages = Path("/proc/self/statm")
    memory = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
    files = [Path(f"{path}{end}") for end in ("", "-wal")]
    size = sum(one.stat().st_size for one in files if one.exists())
    listeners = len(served.app._engine.hub._listeners)
    return Figures(served.list().total_size, threading.active_count(), listeners, memory / 1e6, size / 1e6)


def fill(served: Served, tasks: int, *, senders: int = 4) -> None:
    """Create finished and interrupted tasks from several threads."""

    def send(count: int) -> None:
        for number in range(count):
            served.send("ask" if number % 10 == 0 else "go")

    for sender in [Background(lambda: send(tasks // senders)) for _ in range(senders)]:
        sender.result(600)


def check(path: Path | None, tasks: int, limit: int, store: Any = None) -> list[Figures]:
    """Create `tasks` tasks with a limit of `limit` stored ones, at `path`, in memory, or in `store`, which has this limit.

    Returns:
        The figures early and at the end, which must not differ.
    """
    store = store or (MemoryStore(max_tasks=limit) if path is None else SQLiteStore(path, max_tasks=limit))
    served = Served(answer, store=store)
    file = path or Path("/nonexistent")
    # With more senders than later, so that the pool of threads has its size.
    fill(served, 3 * limit, senders=12)
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
