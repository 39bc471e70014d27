"""Reads of large tasks for runs and webhooks: in turns."""

from __future__ import annotations

import threading

import pytest

from a2a_sync import InputRequired, MemoryStore
from a2a_sync.stores.base import Owner
from a2a_sync.stores.largereads import LargeReads
from tests.engine import Background, Gate, eventually, serving

pytestmark = pytest.mark.timeout(60)


def test_one_owner_waits_for_one_read_of_another_at_most():
    reads, gate, order = LargeReads(MemoryStore()), Gate(), []

    def read(owner: str) -> None:
        with reads.turn(Owner("", owner)):
            order.append(owner)
            gate.block()

    greedy = [Background(lambda: read("greedy")) for _ in range(4)]
    gate.wait()
    eventually(lambda: len(reads._locks._locks["greedy"][1]) == 4)
    other = Background(lambda: read("other"))
    eventually(lambda: len(reads._locks._locks[None][1]) == 2)
    gate.open.set()
    for call in [*greedy, other]:
        call.result()
    assert order.index("other") <= 1


@pytest.mark.parametrize("what", ["history", "conversation"])
def test_runs_read_large_tasks_one_at_a_time(monkeypatch, what):
    reading, overlap = threading.Lock(), threading.Event()

    def handler(message, context):
        if message.text == "again":
            return str(len(context.history if what == "history" else context.conversation()))
        return InputRequired("which?")

    made = serving(None)
    served = next(made)(handler)
    tasks = [served.send("x" * 1_100_000, context_id="c").id for _ in range(3)]
    for name in ("load", "list"):
        original = getattr(served.store, name)

        def recorded(*args, original=original, **kwargs):
            found = original(*args, **kwargs)
            if hasattr(found, "task") and not found.task.history:
                return found  # for a response without history
            if not reading.acquire(blocking=False):
                overlap.set()
                return found
            # Time for another read, which must not come.
            overlap.wait(0.05)
            reading.release()
            return found

        monkeypatch.setattr(served.store, name, recorded)
    calls = [served.in_background("again", task_id=task_id, history_length=0) for task_id in tasks]
    for call in calls:
        call.result()
    next(made, None)
    assert not overlap.is_set()
