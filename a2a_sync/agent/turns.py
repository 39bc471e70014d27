"""Turns of a conversation: for agents that work on one task of a context at a time.

The turn is the id of a task, which the store keeps for the context; it is free again as soon as that task has no run. The
module is independent of stores and runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from a2a_sync.agent.memory import Memory
from a2a_sync.errors import PublicError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2


def take_turn(
    turn: Memory, task_id: str, *, runs: Callable[[str], bool], sleep: Callable[[float], None], timeout: float
) -> None:
    """Wait until no other task of the conversation runs, and make this one the next.

    Parameters:
        turn: the stored turn.
        task_id: the task that waits.
        runs: whether the task with this id has a run now.
        sleep: sleeps for so many seconds.
        timeout: the longest wait in seconds.

    Raises:
        PublicError: another task still ran after `timeout` seconds.
    """
    mine = task_id.encode()
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        holder = turn.get()
        if holder == mine:
            return
        if holder is None or not runs(holder.decode()):

            def exchange(known: bytes | None, expected: bytes | None = holder) -> bytes | None:
                return mine if known == expected else known

            if turn.change(exchange) == mine:
                return
        elif time.monotonic() + pause > deadline:
            raise PublicError("Another task of this conversation still runs; try again when it has ended")
        else:
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
