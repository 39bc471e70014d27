"""Ctrl-C while a command waits for an agent."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds until an interrupt that had no effect is repeated.
_REPEAT_AFTER = 2.0


@contextmanager
def on_interrupt(act: Callable[..., Any] = signal.default_int_handler) -> Iterator[None]:
    """Call `act(signal, frame)` at Ctrl-C during the block, on the main thread; by default it raises `KeyboardInterrupt`.

    Python discards an exception that a handler raises inside a finalizer or a callback of the import system, and the command
    would go on. So `act` is called again every two seconds after it has raised, until the block ends.
    """

    def handle(*arguments: Any) -> None:
        try:
            act(*arguments)
        except BaseException:
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, _REPEAT_AFTER)
            raise

    alarm, before = signal.getsignal(signal.SIGALRM), signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signal.getsignal(signal.SIGALRM) is handle:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
