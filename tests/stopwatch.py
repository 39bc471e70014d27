"""Checks of time limits that hold on a loaded machine, and clocks that a test sets for one module."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

__all__ = ["Stopwatch", "set_clock"]

_PROCESSES = Path("/proc")


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **clocks: float | Callable[..., object]) -> None:
    """Replace functions of `time` for `module` alone, by constants or by other functions.

    Never replace them in `time` itself: all threads of the process would see it, also those of other tests.
    """
    functions = {name: clock if callable(clock) else lambda clock=clock: clock for name, clock in clocks.items()}
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))


class Stopwatch:
    """The time since it was made. Upper bounds leave out the waits of threads for a processor, also of child processes.

    On an idle machine nothing is left out. Where the kernel does not count such waits (outside Linux), nothing is left
    out either. `process`: the id of the process whose threads are meant; by default this one.
    """

    def __init__(self, process: int | None = None) -> None:
        self._process = process or os.getpid()
        self._delays = _delays(self._process)
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    @property
    def delayed(self) -> float:
        """Seconds for which the present threads have waited for a processor since it was made, in sum."""
        return sum(self._since())

    @property
    def longest_delay(self) -> float:
        """Seconds for which one of these threads has waited at most."""
        return max(self._since(), default=0.0)

    def _since(self) -> list[float]:
        now = _delays(self._process)
        return [(delay - self._delays.get(thread, 0)) / 1e9 for thread, delay in now.items()]

    def within(self, most: float, least: float = 0.0) -> bool:
        """Whether at least `least` seconds have passed, and at most `most` without the waits for a processor."""
        elapsed = self.elapsed
        return least <= elapsed and elapsed - self.delayed < most

    def __repr__(self) -> str:
        return f"<{self.elapsed:.3f} s, {self.delayed:.3f} s of waits for a processor>"


def _delays(process: int) -> dict[str, int]:
    """The nanoseconds that each thread has waited for a processor, by its id."""
    found = {}
    for thread in _threads(process):
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended, or the kernel does not count
    return found


def _threads(process: int | str) -> Iterator[Path]:
    """The folders of the threads of a process and of its children."""
    try:
        threads = list((_PROCESSES / str(process) / "task").iterdir())
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return  # it has ended, or this is not Linux
    yield from threads
    for child in children:
        yield from _threads(child)
