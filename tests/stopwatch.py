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
    out either.
    """

    def __init__(self) -> None:
        self._delays = _delays()
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    @property
    def delayed(self) -> float:
        """Seconds for which the present threads have waited for a processor since it was made, in sum."""
        return sum(delay - self._delays.get(thread, 0) for thread, delay in _delays().items()) / 1e9

    def within(self, most: float, least: float = 0.0) -> bool:
        """Whether at least `least` seconds have passed, and at most `most` without the waits for a processor."""
        elapsed = self.elapsed
        return least <= elapsed and elapsed - self.delayed < most

    def __repr__(self) -> str:
        return f"<{self.elapsed:.3f} s, {self.delayed:.3f} s of waits for a processor>"


def _delays() -> dict[str, int]:
    """The nanoseconds that each thread has waited for a processor, by its id."""
    found = {}
    for thread in _threads(os.getpid()):
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
