"""Private event loops: where they run, and that a cancel always reaches them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from a2a_sync.asynchronous import iterate, run_coroutine
from a2a_sync.executor import TaskCancelled
from a2a_sync.types import TaskState
from tests.engine import Gate, serving


@pytest.fixture
def serve():
    yield from serving()


def test_a_cancel_that_came_before_the_loop_is_not_lost(serve):
    gate, outcomes = Gate(), []

    async def work():
        outcomes.append("worked")

    async def items():
        outcomes.append("worked")
        yield 1

    def handler(message, context):
        gate.here()
        for attempt in (lambda: run_coroutine(work(), context), lambda: list(iterate(items(), context))):
            with pytest.raises(TaskCancelled):
                attempt()
            outcomes.append("cancelled")

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert outcomes == ["cancelled", "cancelled"]


def test_a_loop_inside_a_loop_gets_a_thread_of_its_own(serve):
    names = []

    async def inner():
        await asyncio.sleep(0)
        names.append(threading.current_thread().name)
        return "inner"

    async def handler(message, context):
        return run_coroutine(inner(), context)

    assert serve(handler).send().text == "inner"
    assert names == ["a2a-loop"]


def test_an_exception_comes_back_from_the_other_thread(serve, caplog):
    async def inner():
        raise ValueError("secret")

    async def handler(message, context):
        return run_coroutine(inner(), context)

    assert serve(handler).send().state is TaskState.FAILED
    assert "ValueError: secret" in caplog.text


def test_a_generator_that_is_left_early_is_closed(serve):
    closed = []

    async def items():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    def handler(message, context):
        plain = iterate(items(), context)
        assert next(plain) == 1
        plain.close()
        assert closed == [True]
        return "left"

    assert serve(handler).send().text == "left"


def test_tasks_that_a_handler_leaves_behind_end_with_its_loop(serve):
    ended = []

    async def forgotten():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def handler(message, context):
        task = asyncio.ensure_future(forgotten())
        await asyncio.sleep(0)
        return str(task.done())

    assert serve(handler).send().text == "False"
    assert ended == [True]


GEVENT = """
from gevent import monkey; monkey.patch_all()
import asyncio, threading, gevent
from a2a_sync import A2AApp, Agent, Client, InputRequired, Limits

agent = Agent("a", description="d")
inside, together = [], threading.Event()

@agent.message
async def handler(message, context):
    inside.append(message.text)
    context.update("working on " + message.text)
    if message.text == "forever":
        together.set()
        await asyncio.Event().wait()
    for _ in range(3):
        await asyncio.sleep(0.01)
        yield await asyncio.to_thread(lambda: message.text)

app = A2AApp(agent, limits=Limits(tick=0.05), store=STORE)
client = Client(app)
jobs = [gevent.spawn(lambda t=text: client.send(t).text) for text in "abcd"]
gevent.joinall(jobs, timeout=20, raise_error=True)
assert [job.value for job in jobs] == ["aaa", "bbb", "ccc", "ddd"], [job.value for job in jobs]
task = client.send("forever", return_immediately=True)
assert together.wait(20)
assert client.cancel_task(task.id).state == "canceled"
for _ in range(1000):
    if not app._engine.execution.running:
        break
    gevent.sleep(0.005)
assert not app._engine.execution.running
app.close()
print("fine")
"""


@pytest.mark.parametrize("store", ["None", "'sqlite:///{path}/tasks.db'"])
def test_async_handlers_run_side_by_side_under_gevent(store, tmp_path):
    pytest.importorskip("gevent")
    program = GEVENT.replace("STORE", store.format(path=tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
