"""Tasks of one conversation that run one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, AgentCard, Client, Message, RequestContext, TaskState
from tests.engine import STORES, Background, Gate, Served, eventually, serving_over


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving_over(request.param, tmp_path)


def test_the_next_task_of_a_conversation_waits_for_the_end_of_the_one_before(serve: Any) -> None:
    gate, order = Gate(), []

    def handler(message: Message, context: Any) -> str:
        context.wait_for_turn()
        order.append(f"begins {message.text}")
        if message.text == "a":
            gate.block()
        order.append(f"ends {message.text}")
        return message.text

    served = serve(handler)
    first = Background(lambda: served.send("a", context_id="c"))
    gate.wait()
    second = Background(lambda: served.send("b", context_id="c"))
    assert served.send("x", context_id="d").text == "x"
    assert order == ["begins a", "begins x", "ends x"]
    gate.open.set()
    assert [first.result().text, second.result().text] == ["a", "b"]
    assert order[3:] == ["ends a", "begins b", "ends b"]


def test_a_task_that_waits_too_long_fails_with_the_reason(serve: Any) -> None:
    gate = Gate()

    def handler(message: Message, context: Any) -> str:
        context.wait_for_turn(timeout=0.0)
        gate.block()
        return "done"

    served = serve(handler)
    first = Background(lambda: served.send("a", context_id="c"))
    gate.wait()
    late = served.send("b", context_id="c")
    assert (late.state, late.text) == (
        TaskState.FAILED,
        "Another task of this conversation still runs; try again when it has ended",
    )
    gate.open.set()
    assert first.result().text == "done"
    assert served.send("c", context_id="c").text == "done"


def test_a_canceled_task_gives_the_turn_back(serve: Any) -> None:
    started = threading.Event()

    def handler(message: Message, context: Any) -> str:
        context.wait_for_turn()
        if message.text == "sleep":
            started.set()
            context.sleep(60)
        return "done"

    served = serve(handler)
    asleep = Background(lambda: served.send("sleep", context_id="c"))
    assert started.wait(60)
    (task,) = served.list(context_id="c").tasks
    served.cancel(task.id)
    asleep.result()
    assert served.send("next", context_id="c").text == "done"


class Counter:
    """Its runs overlap unless they are exclusive."""

    exclusive = True

    def __init__(self) -> None:
        self.running, self.most = 0, 0

    def execute(self, context: RequestContext) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        context.sleep(0.02)
        self.running -= 1


def test_an_executor_may_be_exclusive() -> None:
    counter = Counter()
    card = AgentCard(name="counter", description="d", version="1")
    with A2AApp(counter, card=card) as app, Client(app) as client:
        tasks = [client.send("x", context_id="c", return_immediately=True).task for _ in range(4)]
        for task in tasks:
            eventually(lambda task=task: client.get_task(task.id).state is TaskState.COMPLETED)
    assert counter.most == 1
