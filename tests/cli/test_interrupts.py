"""Ctrl-C while a command waits."""

from __future__ import annotations

import subprocess
import sys

LOST_IN_A_FINALIZER = """
import signal, threading
from a2a_sync.cli.interrupts import on_interrupt

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
with on_interrupt():
    try:
        Finalized()
        print("lost")
        threading.Event().wait(60)
    except KeyboardInterrupt:
        print("interrupted")
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
"""


def test_an_interrupt_that_a_finalizer_loses_is_repeated() -> None:
    done = subprocess.run([sys.executable, "-c", LOST_IN_A_FINALIZER], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["lost", "interrupted"], done.stderr
