"""What type checkers see: programs that must pass `mypy --strict` and pyright, and lines in them that must not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import a2a_sync
from tests.live import ROOT
from tests.typing import MYPY

REPLIES = """
from typing import assert_never

from a2a_sync import Client, Message, Task, TaskState
from a2a_sync.types import Reply

client = Client("http://agent.test")
text: str = client.send("x").text
state: TaskState = client.send("x").task.state


def shown(reply: Reply) -> str:
    return f"{reply.text} {reply.task.id}"


def answered(reply: Task | Message) -> str:
    match reply:
        case Task():
            return reply.id + shown(reply)
        case Message():
            return reply.message_id + shown(reply)
        case _:
            assert_never(reply)


def ended(reply: Task | Message) -> bool:
    if isinstance(reply, Message):
        return True
    return reply.state.terminal


wrong: str = client.send("x").state  # error
wrong_too: int = client.send("x").task.state  # error
"""
OPERATIONS = """
from a2a_sync import A2AApp, Agent, Client, Task
from a2a_sync.operations import (
    CANCEL_TASK,
    GET_TASK,
    SUBSCRIBE_TO_TASK,
    AnyCall,
    Call,
    CallContext,
    Endpoint,
    EventStream,
    RequestT,
    ResultT,
)
from a2a_sync.types import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest


def logged(endpoint: Endpoint) -> Endpoint:
    def call_endpoint(call: Call[RequestT, ResultT]) -> ResultT:
        print(call.operation.name, call.task_id)
        return endpoint(call)

    return call_endpoint


def owner(call: AnyCall) -> str:
    return call.context.headers.get("x-owner", "")


agent = Agent("a")
app = A2AApp(agent, interceptors=[logged], owner=owner)
client = Client(app, interceptors=[logged])
endpoint = app.endpoint()
task: Task = endpoint(Call(GET_TASK, GetTaskRequest(id="t"), CallContext()))
stream: EventStream = endpoint(Call(SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="t")))
wrong: str = endpoint(Call(GET_TASK, GetTaskRequest(id="t")))  # error
wrong_too: Call[CancelTaskRequest, Task] = Call(CANCEL_TASK, GetTaskRequest(id="t"))  # error


def missing(endpoint: Endpoint) -> Endpoint:
    def returns_nothing(call: Call[RequestT, ResultT]) -> None:
        endpoint(call)

    return returns_nothing  # error
"""
STAR = f"""
from a2a_sync import *

used = ({", ".join(a2a_sync.__all__)})
client: Client = Client("http://agent.test")
text: str = client.card().name
wrong: int = client  # error
missing = NoSuchName  # error
"""
PROGRAMS = {"replies": REPLIES, "operations": OPERATIONS, "star": STAR}


def check(checker: str, source: Path, folder: Path) -> str:
    """What mypy or pyright prints about `source`, which imports this checkout."""
    pytest.importorskip(checker, reason=f"{checker} is not installed (the extra dev)")
    command = [sys.executable, "-m", checker]
    if checker == "mypy":
        command += MYPY
    else:
        command += ["--pythonpath", sys.executable]
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(source)], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_type_checker_finds_the_marked_lines_and_no_others(program: str, checker: str, tmp_path: Path) -> None:
    source = tmp_path / f"{program}.py"
    source.write_text(PROGRAMS[program])
    output = check(checker, source, tmp_path)
    found = {int(line) for line in re.findall(rf"{program}\.py:(\d+):.*error", output)}
    marked = {number for number, line in enumerate(source.read_text().splitlines(), 1) if line.endswith("# error")}
    assert found == marked, output
