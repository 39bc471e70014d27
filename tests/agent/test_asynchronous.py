"""Coroutines and asynchronous generators of runs: one task each on one event loop, whatever blocks or ends them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from a2a_sync import Agent, Client
from a2a_sync.agent import asynchronous
from a2a_sync.agent.asynchronous import batches, iterate, run_coroutine
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.concurrency.gevent import gevent_hub_caller
from a2a_sync.types import TaskState
from tests.engine import TIMEOUT, Background, Gate, eventually, in_child, serving


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
        gate.block()
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
    assert names == ["a2a-loop-private"]


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


def test_a_generator_runs_ahead_of_the_thread_but_not_too_far(serve):
    made = []

    async def items():
        for n in range(6):
            made.append(n)
            yield n

    def handler(message, context):
        lists = batches(items(), context, ahead=2)
        # The loop works on while the thread does something else.
        found = [next(lists)]
        eventually(lambda: len(made) >= 3)
        found += lists
        assert [item for one in found for item in one] == list(range(6))
        assert max(map(len, found)) <= 3
        return "read"

    assert serve(handler).send().text == "read"


def test_items_within_the_interval_come_together_and_the_last_do_not_wait_for_it(serve):
    async def items():
        for n in range(100):
            yield n
            await asyncio.sleep(0)

    def handler(message, context):
        found = list(batches(items(), context, interval=TIMEOUT * 9))
        assert [item for one in found for item in one] == list(range(100))
        assert len(found) <= 2
        return "read"

    assert serve(handler).send().text == "read"


def test_a_generator_that_ran_ahead_and_is_left_early_is_closed(serve):
    closed = []

    async def items():
        try:
            yield 1
            await asyncio.sleep(TIMEOUT * 9)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    def handler(message, context):
        lists = batches(items(), context)
        assert next(lists) == [1]
        lists.close()
        assert closed == [True]
        return "left"

    assert serve(handler).send().text == "left"


def test_the_cleanup_of_a_cancelled_generator_is_not_interrupted_when_its_run_ends(serve, monkeypatch):
    storing, cleaning, outcomes = Gate(), threading.Event(), []
    released, end = asyncio.Event(), asynchronous._AsyncTask._end

    def end_and_release(work, wake):
        end(work, wake)
        released.set()

    async def handler(message, context):
        try:
            yield "stored when the task is canceled already"
        finally:
            cleaning.set()
            await released.wait()
            await asyncio.sleep(0)
            outcomes.append("cleaned up")

    monkeypatch.setattr(asynchronous._AsyncTask, "_end", end_and_release)
    served = serve(handler)
    append = served.store.append
    served.store.append = lambda *arguments, **options: storing.block() or append(*arguments, **options)
    task_id = served.begin()
    storing.wait()
    served.cancel(task_id)
    assert cleaning.wait(TIMEOUT)
    # The run's thread leaves its task now, which is its second reason to end it.
    storing.open.set()
    served.quiet()
    assert outcomes == ["cleaned up"]


def test_a_task_that_a_handler_leaves_behind_goes_on(serve):
    goes_on, ended = threading.Event(), threading.Event()
    loops, left = [], []

    async def never_awaited():
        await go_on.wait()
        ended.set()

    async def handler(message, context):
        nonlocal go_on
        go_on = asyncio.Event()
        left.append(asyncio.ensure_future(never_awaited()))
        loops.append(asyncio.get_running_loop())
        goes_on.set()
        return "left"

    go_on = None
    assert serve(handler).send().text == "left"
    assert not ended.is_set()
    loops[0].call_soon_threadsafe(go_on.set)
    assert ended.wait(TIMEOUT)


# -- one task and one loop ----------------------------------------------------------------------------------------------


def test_all_steps_of_a_generator_run_in_one_task_and_all_runs_on_one_loop(serve):
    tasks, loops = [], set()

    async def handler(message, context):
        try:
            for letter in "abc":
                tasks.append(asyncio.current_task())
                loops.add(asyncio.get_running_loop())
                yield letter
        finally:
            tasks.append(asyncio.current_task())

    served = serve(handler)
    assert [served.send().text for _ in range(20)] == ["abc"] * 20
    assert [len(set(tasks[n : n + 4])) for n in range(0, 80, 4)] == [1] * 20
    assert len(set(tasks)) == 20
    assert len(loops) == 1


def test_a_timeout_around_a_yield_fires_in_the_steps_behind_it(serve):
    async def handler(message, context):
        try:
            async with asyncio.timeout(0.05):
                yield "first "
                await asyncio.Event().wait()
        except TimeoutError:
            yield "timed out"

    task = serve(handler).send()
    assert (task.state, task.text) == (TaskState.COMPLETED, "first timed out")


def test_a_timeout_around_a_yield_fires_while_its_item_is_being_stored(serve):
    fired = threading.Event()

    async def items():
        try:
            async with asyncio.timeout(0.05):
                yield "first "
        except TimeoutError:
            fired.set()
            yield "timed out"

    def handler(message, context):
        for item in iterate(items(), context):
            yield item
            assert fired.wait(TIMEOUT)

    task = serve(handler).send()
    assert (task.state, task.text) == (TaskState.COMPLETED, "first timed out")


@pytest.mark.parametrize("leave", ["end", "break", "cancel"])
def test_a_cancel_scope_of_anyio_may_enclose_a_yield(serve, leave):
    anyio = pytest.importorskip("anyio")
    closed, begun = threading.Event(), threading.Event()

    async def items():
        try:
            with anyio.fail_after(TIMEOUT):
                yield "one "
                async with anyio.create_task_group() as group:
                    group.start_soon(anyio.sleep_forever)
                    await anyio.sleep(0)
                    group.cancel_scope.cancel()
                yield "two"
                begun.set()
                if leave == "cancel":
                    await anyio.sleep_forever()
        finally:
            closed.set()

    def handler(message, context):
        for item in iterate(items(), context):
            yield item
            if leave == "break":
                break

    served = serve(handler)
    if leave == "cancel":
        task_id = served.begin()
        assert begun.wait(TIMEOUT)
        assert served.cancel(task_id).state is TaskState.CANCELED
    else:
        task = served.send()
        assert (task.state, task.text) == (TaskState.COMPLETED, "one " if leave == "break" else "one two")
    assert closed.wait(TIMEOUT)
    served.quiet()


def test_what_belongs_to_a_loop_is_shared_by_runs(serve):
    connections = []

    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def handler(message, context):
        if not connections:
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            connections.append(await asyncio.open_connection(*server.sockets[0].getsockname()))
        reader, writer = connections[0]
        writer.write(message.text.encode() + b"\n")
        return (await reader.readline()).decode().strip()

    served = serve(handler)
    assert [served.send(text).text for text in ("one", "two", "three")] == ["ONE", "TWO", "THREE"]


def test_a_handler_with_many_blocking_calls_on_threads_does_not_hold_up_the_others(serve):
    together, home = threading.Barrier(24), gevent_hub_caller()

    async def handler(message, context):
        await asyncio.to_thread(home, lambda: together.wait(TIMEOUT))
        return message.text

    served = serve(handler)
    works = [served.in_background(str(number)) for number in range(24)]
    assert [work.result().text for work in works] == [str(number) for number in range(24)]


def test_context_variables_of_the_run_hold_over_all_steps(serve):
    import contextvars

    name = contextvars.ContextVar("name", default="none")

    async def items():
        name.set(name.get() + "!")
        yield name.get()
        yield name.get()

    def handler(message, context):
        name.set(message.text)
        return " ".join(iterate(items(), context))

    assert serve(handler).send("Ada").text == "Ada! Ada!"


# -- what blocks or ends it ---------------------------------------------------------------------------------------------


def test_a_handler_that_blocks_the_loop_holds_up_no_other_run(serve, caplog):
    gate = Gate()

    async def blocks(message, context):
        gate.block()

    async def quick(message, context):
        for letter in "abc":
            yield letter

    blocked = serve(blocks).in_background()
    gate.wait()
    assert serve(quick).send().text == "abc"
    gate.open.set()
    assert blocked.result().state is TaskState.COMPLETED
    assert "the event loop of async handlers is blocked" in caplog.text
    assert "gate.block()" in caplog.text


def test_an_async_handler_that_waits_for_async_agents_of_its_process_gets_their_answers(serve):
    inner = Agent("inner")

    @inner.message
    async def whisper(message, context):
        for letter in message.text:
            await asyncio.sleep(0)
            yield letter.lower()

    async def outer(message, context):
        with Client(inner) as client:
            with client.stream(message.text) as stream:
                for _ in stream:
                    pass
                streamed = stream.text
            return streamed + client.send(message.text).text

    served = serve(outer)
    works = [served.in_background("ADA") for _ in range(3)]
    assert [work.result().text for work in works] == ["adaada"] * 3
    inner.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_task_that_tries_to_end_the_process_does_not_end_the_loop(serve, error):
    async def ends():
        raise error

    async def handler(message, context):
        if message.text == "own":
            raise error
        task = asyncio.ensure_future(ends())
        await asyncio.wait([task])
        # An exception that is not retrieved is logged in the middle of a later test.
        assert type(task.exception()) is error
        return "still here"

    served = serve(handler)
    assert served.send("own").state is TaskState.FAILED
    assert served.send("other").text == "still here"
    assert served.send("again").text == "still here"


def test_a_forked_child_has_a_loop_of_its_own(serve):
    async def handler(message, context):
        for letter in "abc":
            await asyncio.sleep(0)
            yield letter

    served = serve(handler)
    assert served.send().text == "abc"

    def child():
        assert Background(served.send).result().text == "abc"

    in_child(child)
    assert served.send().text == "abc"


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

app = A2AApp(agent, limits=Limits(disconnect_check_interval=0.05), store=STORE)
client = Client(app)
jobs = [gevent.spawn(lambda t=text: client.send(t).text) for text in "abcd"]
gevent.joinall(jobs, timeout=20, raise_error=True)
assert [job.value for job in jobs] == ["aaa", "bbb", "ccc", "ddd"], [job.value for job in jobs]
task = client.send("forever", return_immediately=True)
assert together.wait(60)
assert client.cancel_task(task.id).state == "canceled"
for _ in range(1000):
    if not app._engine.runs.running:
        break
    gevent.sleep(0.005)
assert not app._engine.runs.running
app.close()
print("fine")
"""


@pytest.mark.parametrize("store", ["None", "'sqlite:///{path}/tasks.db'"])
def test_async_handlers_run_side_by_side_under_gevent(store, tmp_path):
    pytest.importorskip("gevent")
    program = GEVENT.replace("STORE", store.format(path=tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
