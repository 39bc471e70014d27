"""Real threads beside greenlets: code that blocks or runs an event loop, and its way back to the library."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import gevent
import pytest
from gevent import monkey
from gevent._hub_local import get_hub_if_exists

from a2a_sync import Agent, Client, InputRequired, Message, Task, TaskCancelled, TaskState
from a2a_sync.agent.asynchronous import run_coroutine
from a2a_sync.concurrency import gevent as native
from a2a_sync.concurrency.gevent import (
    NativeThread,
    gevent_hub_caller,
    on_native_thread,
    original,
    patched,
    run_on_gevent_hub,
)
from tests.engine import TIMEOUT, Background, Served, collect, eventually, serving

native_lock = monkey.get_original("_thread", "allocate_lock")
thread_number = monkey.get_original("_thread", "get_ident")


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    yield from serving()


class Block:
    """Holds a real thread without gevent's knowledge, as a calculation or a C library would. Bounded."""

    def __init__(self) -> None:
        self._held = native_lock()
        self._held.acquire()
        self.reached = threading.Event()

    def here(self, at_home: Callable[[Callable[[], None]], None]) -> None:
        at_home(self.reached.set)
        assert self._held.acquire(timeout=TIMEOUT), "the gate stayed closed"

    def open(self) -> None:
        self._held.release()


def test_the_suite_runs_in_a_patched_process() -> None:
    assert patched()
    assert original("threading", "Thread") is not threading.Thread


# -- there --------------------------------------------------------------------------------------------------------------


def test_a_blocked_native_thread_holds_up_no_greenlet() -> None:
    block, home = Block(), gevent_hub_caller()
    work = Background(lambda: on_native_thread(lambda: block.here(home) or thread_number()))
    assert block.reached.wait(TIMEOUT)
    # This greenlet goes on, though the work blocks its thread.
    assert work.waiting
    block.open()
    assert work.result() != thread_number()


def test_exceptions_come_back_even_the_unusual() -> None:
    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("here"), TaskCancelled("t"), StopIteration(3), SystemExit(2)):
        with pytest.raises(type(error)) as caught:
            on_native_thread(lambda error=error: fail(error))
        assert caught.value is error


def test_all_calls_of_one_object_are_made_on_one_thread_and_it_is_used_again() -> None:
    numbers = []
    for _ in range(20):
        thread = NativeThread()
        first, second = thread.call(thread_number), thread.call(thread_number)
        thread.end()
        assert first == second
        numbers.append(first)
    assert len(set(numbers)) < 20


def test_many_native_threads_work_at_the_same_time() -> None:
    blocks, home = [Block() for _ in range(40)], gevent_hub_caller()
    works = [Background(lambda block=block: on_native_thread(lambda: block.here(home))) for block in blocks]
    assert all(block.reached.wait(TIMEOUT) for block in blocks)
    for block in blocks:
        block.open()
    for work in works:
        work.result()


def test_context_variables_go_there_and_what_is_set_there_stays_there() -> None:
    name = contextvars.ContextVar("name", default="no name")
    name.set("Ada")

    def work() -> str:
        before = name.get()
        name.set("Bob")
        return before

    assert (on_native_thread(work), name.get()) == ("Ada", "Ada")


# -- and back -----------------------------------------------------------------------------------------------------------


def test_the_way_home_leads_to_the_thread_it_was_made_on_from_wherever() -> None:
    home, here = gevent_hub_caller(), thread_number()
    assert home(thread_number) == here
    assert on_native_thread(lambda: home(thread_number)) == here
    # A thread that the library did not make.
    assert gevent.get_hub().threadpool.apply(lambda: home(thread_number)) == here


def test_a_function_that_belongs_home_is_called_there_with_its_arguments_and_errors() -> None:
    name = contextvars.ContextVar("name", default="no name")

    @run_on_gevent_hub
    def divide(a: int, *, by: int) -> tuple[float, int, str]:
        return a / by, thread_number(), name.get()

    def work() -> tuple[float, int, str]:
        name.set("Ada")
        return divide(1, by=2)

    assert divide(1, by=2) == (0.5, thread_number(), "no name")
    assert on_native_thread(work) == (0.5, thread_number(), "Ada")
    with pytest.raises(ZeroDivisionError):
        on_native_thread(lambda: divide(1, by=0))


def test_there_and_back_and_there_again() -> None:
    @run_on_gevent_hub
    def at_home_again() -> list[int]:
        return [thread_number(), on_native_thread(thread_number)]

    numbers = on_native_thread(lambda: [thread_number(), *at_home_again()])
    assert numbers[1] == thread_number()
    assert len(set(numbers)) == 3


# -- handlers -----------------------------------------------------------------------------------------------------------


def on_a_thread(handler: Callable[..., object]) -> Agent:
    agent = Agent("native", description="d", native_thread=True)
    agent.message(handler)
    return agent


def test_a_handler_on_a_native_thread_does_all_that_others_do(serve: Callable[..., Served]) -> None:
    threads = []

    def handler(message: Message, context: object) -> Iterator[object]:
        threads.append(thread_number())
        context.update(f"{len(context.history)} so far")
        yield "one "
        with context.artifact("notes") as notes:
            notes.write("noted")
        yield "two"
        return InputRequired("go on?")

    served = serve(on_a_thread(handler))
    task = served.send()
    assert (task.state, task.text) == (TaskState.INPUT_REQUIRED, "go on?")
    assert [artifact.text for artifact in task.artifacts] == ["one two", "noted"]
    assert threads != [thread_number()]


def test_an_executor_may_ask_for_a_native_thread_too(serve: Callable[..., Served]) -> None:
    class Executor:
        native_thread = True

        def execute(self, context: object) -> Iterator[object]:
            yield context.agent_message(str(thread_number()))

    assert serve(Executor()).send().status.message.text != str(thread_number())


def test_handlers_that_run_a_loop_of_their_own_run_side_by_side(serve: Callable[..., Served]) -> None:
    together = threading.Barrier(4)
    meet = gevent_hub_caller()

    def handler(message: Message, context: object) -> str:
        async def work() -> str:
            await asyncio.sleep(0)
            context.update("inside")
            meet(lambda: together.wait(TIMEOUT))
            return message.text

        return asyncio.run(work())

    served = serve(on_a_thread(handler))
    works = [served.in_background(text) for text in "abcd"]
    assert [work.result().text for work in works] == list("abcd")


def test_a_cancel_reaches_a_handler_that_sleeps_on_a_native_thread(serve: Callable[..., Served]) -> None:
    begun, ended = threading.Event(), []
    home = gevent_hub_caller()

    def handler(message: Message, context: object) -> None:
        home(begun.set)
        try:
            context.sleep(TIMEOUT)
        except TaskCancelled:
            ended.append(thread_number())
            raise

    served = serve(on_a_thread(handler))
    task_id = served.begin()
    assert begun.wait(TIMEOUT)
    assert served.cancel(task_id).state is TaskState.CANCELED
    served.quiet()
    assert len(ended) == 1
    assert ended != [thread_number()]


def test_a_cancel_callback_of_a_native_handler_is_called_while_it_blocks(serve: Callable[..., Served]) -> None:
    block, home = Block(), gevent_hub_caller()

    def handler(message: Message, context: object) -> None:
        context.on_cancel(block.open)
        block.here(home)

    served = serve(on_a_thread(handler))
    task_id = served.begin()
    assert block.reached.wait(TIMEOUT)
    served.cancel(task_id)
    served.quiet()


def test_requests_are_answered_while_a_native_handler_calculates(serve: Callable[..., Served]) -> None:
    begun, enough = threading.Event(), []
    home = gevent_hub_caller()

    def handler(message: Message, context: object) -> None:
        if message.text == "calculate":
            home(begun.set)
            while not enough:
                pass

    served = serve(on_a_thread(handler))
    task_id = served.begin("calculate")
    try:
        assert begun.wait(TIMEOUT)
        assert served.send("quick").state is TaskState.COMPLETED
        assert served.get(task_id).state is TaskState.WORKING
    finally:
        enough.append(True)
    served.quiet()


def async_with_threads(work: Callable[..., object]) -> Agent:
    """An agent whose handler is `async def` and calls `work` by `asyncio.to_thread`."""
    agent = Agent("threads", description="d")

    @agent.message
    async def handler(message: Message, context: object) -> object:
        return await asyncio.to_thread(work, message, context)

    return agent


@pytest.fixture
def new_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native threads that no other test has used: code of handlers may create hubs on them."""
    monkeypatch.setattr(native, "_pools", native._Pools())


@pytest.mark.usefixtures("new_threads")
@pytest.mark.parametrize("on_threads", [on_a_thread, async_with_threads])
def test_a_native_thread_that_calls_the_library_gets_no_hub(
    on_threads: Callable[..., Agent], serve: Callable[..., Served]
) -> None:
    hubs, inner = [], serve(lambda message, context: message.text)

    async def nothing() -> str:
        return "nothing"

    def work(message: Message, context: object) -> str:
        context.update("begun")
        with Client(inner.app) as client:
            assert client.send("inner").text == "inner"
        assert on_native_thread(thread_number) != thread_number()
        assert run_coroutine(nothing(), context) == "nothing"
        hubs.append(get_hub_if_exists())
        return "done"

    assert serve(on_threads(work)).send().text == "done"
    assert hubs == [None]


@pytest.mark.usefixtures("new_threads")
@pytest.mark.parametrize("on_threads", [on_a_thread, async_with_threads])
def test_a_lock_that_a_native_thread_acquires_first_wakes_the_greenlets_that_wait_for_it(
    on_threads: Callable[..., Agent], serve: Callable[..., Served]
) -> None:
    block, home, lock = Block(), gevent_hub_caller(), threading.RLock()

    def work(message: Message, context: object) -> str:
        context.update("begun")
        with lock:
            block.here(home)
        return "done"

    def wait() -> str:
        with lock:
            return "acquired"

    run = serve(on_threads(work)).in_background()
    assert block.reached.wait(TIMEOUT)
    waiting = gevent.spawn(wait)
    gevent.sleep(0)
    assert not waiting.ready()
    block.open()
    assert waiting.get(timeout=TIMEOUT) == "acquired"
    assert run.result().text == "done"


# -- async handlers -----------------------------------------------------------------------------------------------------


def test_an_async_handler_streams_and_its_events_are_stored_at_home(serve: Callable[..., Served]) -> None:
    threads = []

    async def handler(message: Message, context: object) -> object:
        threads.append(thread_number())
        context.update("begun")
        for text in "abc":
            await asyncio.sleep(0)
            yield text

    served = serve(handler)
    served.store.append, append = (
        lambda *a, **k: threads.append(thread_number()) or append(*a, **k),
        served.store.append,
    )
    events = collect(served.stream())
    assert events[-1].event.status.state is TaskState.COMPLETED
    first, *others = threads
    assert set(others) == {thread_number()} != {first}


def test_a_cancel_reaches_an_async_handler_at_its_await(serve: Callable[..., Served]) -> None:
    begun, cleaned = threading.Event(), []
    home = gevent_hub_caller()

    async def handler(message: Message, context: object) -> None:
        try:
            home(begun.set)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    served = serve(handler)
    for _ in range(5):
        begun.clear()
        task_id = served.begin()
        assert begun.wait(TIMEOUT)
        served.cancel(task_id)
        served.quiet()
    assert cleaned == [True] * 5


def as_newer_pythons_do(source: object, destination: object) -> None:
    """`asyncio` of CPython 3.13.12 and 3.14.3, whose loops do not wake up for what a greenlet of their thread has done."""
    loop = destination.get_loop()

    def done(source: object) -> None:
        if loop is asyncio._get_running_loop():
            asyncio.futures._copy_future_state(source, destination)
        else:
            loop.call_soon_threadsafe(asyncio.futures._copy_future_state, source, destination)

    source.add_done_callback(done)


@pytest.mark.parametrize("newer", [False, True])
def test_what_a_thread_of_the_loop_has_done_wakes_the_loop(
    newer: bool, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    if newer:
        monkeypatch.setattr(asyncio.futures, "_chain_future", as_newer_pythons_do)

    async def handler(message: Message, context: object) -> str:
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, lambda: gevent.sleep(0.01) or message.text)

    served = serve(handler, run_idle_timeout=TIMEOUT / 2)
    assert served.send("woken").text == "woken"


def test_blocking_calls_of_async_handlers_run_on_native_threads_and_hold_up_no_handler(
    serve: Callable[..., Served],
) -> None:
    home, blocks = gevent_hub_caller(), [Block() for _ in range(10)]

    async def handler(message: Message, context: object) -> str:
        if message.text == "quick":
            return "quick"
        await asyncio.to_thread(blocks[int(message.text)].here, home)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return message.text

    served = serve(handler)
    works = [served.in_background(str(number)) for number in range(10)]
    assert all(block.reached.wait(TIMEOUT) for block in blocks)
    assert served.send("quick").text == "quick"
    for block in blocks:
        block.open()
    assert [work.result().text for work in works] == list("0123456789")


def test_an_async_handler_calls_agents_of_its_process_and_works_meanwhile(serve: Callable[..., Served]) -> None:
    inner, seen = serve(lambda message, context: message.text.upper()), []
    other = Agent("other")

    @other.message
    async def whisper(message: Message, context: object) -> object:
        for letter in message.text:
            await asyncio.sleep(0)
            yield letter.lower()

    async def handler(message: Message, context: object) -> str:
        with Client(inner.app) as loud, Client(other) as quiet:
            task = asyncio.ensure_future(asyncio.to_thread(loud.send, message.text))
            with quiet.stream(message.text) as stream:
                seen.extend(event for event in stream if not isinstance(event, Task))
                return (await task).text + stream.text

    served = serve(handler)
    works = [served.in_background("Ada") for _ in range(5)]
    assert [work.result().text for work in works] == ["ADAada"] * 5
    assert seen
    other.close()


def test_one_client_over_http_serves_greenlets_and_native_threads_alike(serve: Callable[..., Served]) -> None:
    from gevent.pywsgi import WSGIServer

    echo = serve(lambda message, context: message.text)
    server = WSGIServer(("127.0.0.1", 0), echo.app, log=None)
    server.start()
    try:
        with Client(f"http://127.0.0.1:{server.server_port}", protocol_version="1.0") as client:

            async def handler(message: Message, context: object) -> str:
                for _ in range(3):
                    client.send("in between")
                first = await asyncio.to_thread(client.send, message.text)
                return first.text + client.send(message.text).text

            served = serve(handler)
            for _ in range(3):
                works = [served.in_background(text) for text in "abc"]
                assert client.send("here").text == "here"
                assert [work.result().text for work in works] == ["aa", "bb", "cc"]
    finally:
        server.stop(timeout=1)


def test_the_threads_of_ended_runs_are_given_back(serve: Callable[..., Served]) -> None:
    async def handler(message: Message, context: object) -> None:
        await asyncio.sleep(0)

    served = serve(handler)
    served.send()
    before = native_threads()
    for _ in range(50):
        served.send()
    eventually(lambda: native_threads() <= before + 2, "the end of the threads")


def native_threads() -> int:
    return len(sys._current_frames())
