"""Handlers that emit events and wait for nothing, while other greenlets have work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, TaskState

#: Events of a handler; they take some hundred milliseconds, or seconds in a file.
MOST = 3000


@pytest.mark.parametrize("kind", ["text", "status"])
@pytest.mark.parametrize("stored", ["memory", "file"])
def test_a_handler_that_emits_without_waiting_lets_others_run(stored: str, kind: str, tmp_path: Path) -> None:
    turns: list[int] = []
    agent = Agent("busy", description="emits events without waiting")

    def count_turns() -> None:
        while len(turns) < 1_000_000:
            turns.append(1)
            gevent.sleep(0)

    @agent.message
    def emit(message: Message, context: RequestContext) -> Iterator[str]:
        begun = len(turns)
        for number in range(MOST):
            if kind == "status":
                context.update(str(number))
            else:
                yield "y"
            if len(turns) > begun:
                break
        yield "done" if len(turns) > begun else "alone"

    store = f"sqlite:///{tmp_path / 'tasks.db'}" if stored == "file" else None
    with A2AApp(agent, store=store) as app, Client(app) as client:
        counting = gevent.spawn(count_turns)
        try:
            task = client.send("go").task
        finally:
            counting.kill()
    assert task.state is TaskState.COMPLETED
    assert task.text.endswith("done")
