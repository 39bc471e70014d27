"""What a test of an agent takes: five lines at most for send, stream, cancel, and resume after a cut, over every way to it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import Agent, Message, RequestContext, TaskState
from a2a_sync.testing import Cut, ScriptedAgent, outline

pytestmark = pytest.mark.parametrize("over", ["local", "wsgi", "socket"])


class Counter(Agent):
    """Counts to the number in the message, or waits."""

    name = "counter"

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        if message.text == "wait":
            context.sleep(60)
        for number in range(1, int(message.text) + 1):
            yield f"{number} "


def test_send(a2a_client: Any, over: str) -> None:
    client = a2a_client(Counter(), over)
    assert client.send("3").text == "1 2 3 "


def test_stream(a2a_client: Any, over: str) -> None:
    stream = a2a_client(Counter(), over).stream("2")
    assert outline(stream) == ["working", "1 ", "2 ", "completed"]


def test_cancel(a2a_client: Any, over: str) -> None:
    client = a2a_client(Counter(), over)
    task = client.send("wait", return_immediately=True)
    assert client.cancel_task(task.id).state is TaskState.CANCELED


def test_resume_after_a_cut(a2a_client: Any, over: str) -> None:
    stream = a2a_client(Counter(), over, cut_after=2).stream("4")
    assert outline(stream) == ["working", "1 ", "2 ", "3 ", "4 ", "completed"]


def test_resume_after_a_cut_that_the_script_makes(a2a_client: Any, over: str) -> None:
    client = a2a_client(ScriptedAgent(["one ", Cut(), "two"]), over)
    assert client.send("go").text == "one two"


def test_each_of_these_takes_five_lines_at_most(over: str) -> None:
    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and "five_lines" not in node.name]
    assert len(tests) == 5
    assert max((test.end_lineno or 0) - test.lineno + 1 for test in tests) <= 5
