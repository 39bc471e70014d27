"""Clients of an app or agent in the same process: the same calls, limits and errors without a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Limits, Message, Task, TaskNotFoundError, TaskState, TransportTimeoutError
from a2a_sync.agent.executor import RequestContext
from tests.client.peer import TIMEOUT
from tests.engine import Background


class Slow(Agent):
    """Works until it is released."""

    name = "slow"
    description = "Takes its time"

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.release = threading.Event()

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        self.begun.set()
        yield "begun"
        assert self.release.wait(TIMEOUT)
        yield " and done"


@pytest.fixture
def slow() -> Iterator[Slow]:
    agent = Slow()
    yield agent
    agent.release.set()


def test_an_agent_and_its_app_are_called_without_a_network(slow: Slow) -> None:
    slow.release.set()
    with A2AApp(slow) as app:
        for target in (slow, app):
            with Client(target) as client:
                answer = client.send("go")
                assert isinstance(answer, Task)
                assert (answer.state, answer.text) == (TaskState.COMPLETED, "begun and done")
                assert client.get_task(answer.id).text == answer.text
                assert client.card().name == "slow"
                with pytest.raises(TaskNotFoundError):
                    client.get_task("unknown")


def test_events_come_while_the_agent_works(slow: Slow) -> None:
    with Client(slow) as client, client.stream("go") as stream:
        while stream.text != "begun":
            next(stream)
        slow.release.set()
        rest = list(stream)

    assert rest
    assert stream.text == "begun and done"


def test_the_overall_limit_holds_for_sends_and_the_task_goes_on(slow: Slow) -> None:
    with Client(slow) as client:
        with pytest.raises(TransportTimeoutError):
            client.send("go", timeout=0.2)
        slow.release.set()
        (task,) = client.list_tasks().tasks
        assert client.wait(task.id, timeout=TIMEOUT).state is TaskState.COMPLETED


def test_the_overall_limit_holds_for_streams(slow: Slow) -> None:
    with Client(slow) as client:
        with pytest.raises(TransportTimeoutError) as caught:
            list(client.stream("go", timeout=0.2))
        assert caught.value.phase == "stream"
        # The handler fails where it is not released in time, so the limit ended the stream before that.
        assert slow.begun.wait(TIMEOUT)
        slow.release.set()
        (task,) = client.list_tasks().tasks
        assert client.wait(task.id, timeout=TIMEOUT).state is TaskState.COMPLETED


def test_closing_from_another_thread_ends_a_blocked_iteration(slow: Slow) -> None:
    reading = threading.Event()
    with Client(slow) as client:
        stream = client.stream("go")

        def read() -> None:
            for _ in stream:
                reading.set()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert reading.wait(TIMEOUT)
        stream.close()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_closing_the_client_ends_a_blocked_send(slow: Slow) -> None:
    client = Client(slow)
    errors: list[Exception] = []

    def send() -> None:
        try:
            client.send("go")
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert slow.begun.wait(TIMEOUT)
    client.close()
    thread.join(TIMEOUT)

    assert not thread.is_alive()
    assert len(errors) == 1


def test_an_agent_can_call_another_from_its_own_run() -> None:
    inner = Agent("inner", description="x")
    inner.message(lambda message, context: message.text.upper())
    outer = Agent("outer", description="x")

    @outer.message
    def ask(message: Message, context: RequestContext) -> str:
        with Client(inner) as client:
            return client.send(message.text).text + "!"

    with Client(outer) as client:
        assert client.send("hi").text == "HI!"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Client needs to know what to call: a URL, an AgentCard, an A2AApp or an Agent"),
        ((Slow,), r"Slow is a class: give an instance, Slow\("),
        ((A2AApp,), r"A2AApp is a class: give an instance, A2AApp\("),
        (({},), "not dict"),
    ],
)
def test_a_target_that_cannot_be_called_is_refused_when_the_client_is_built(
    arguments: tuple[object, ...], problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        Client(*arguments)


@pytest.mark.parametrize("how", ["call", "send", "stream", "nested", "nested in a full pool"])
def test_a_time_limit_in_this_process_is_kept_to_the_moment(how: str) -> None:
    begun, end = threading.Event(), threading.Event()
    slow, calls = Agent("slow"), Agent("calls")

    @slow.message
    def wait(message: Any, context: Any) -> str:
        begun.set()
        end.wait()
        return "too late"

    @calls.message
    def nested(message: Any, context: Any) -> str:
        return str(took(lambda: slow.call("go", timeout=0.1)))

    def took(call: Callable[[], Any]) -> float:
        began = time.monotonic()
        with pytest.raises(TransportTimeoutError):
            call()
        return time.monotonic() - began

    # Calls that wait look up once in ten minutes, so one that ends here has ended by its own limit.
    limits = Limits(disconnect_check_interval=600, max_concurrent_runs=1 if "full" in how else 8)
    try:
        with slow.start(limits=limits), Client(slow) as client, Client(calls) as caller:
            if "full" in how:
                client.send("go", return_immediately=True)
                assert begun.wait(TIMEOUT)
            call = {
                "call": lambda: took(lambda: slow.call("go", timeout=0.1)),
                "send": lambda: took(lambda: client.send("go", timeout=0.1)),
                "stream": lambda: took(lambda: list(client.stream("go", timeout=0.1))),
            }.get(how, lambda: float(caller.send("go").text))
            waiting = Background(call)
            try:
                assert waiting.result() >= 0.1
            finally:
                end.set()
    finally:
        end.set()
        calls.close()


def test_credentials_for_an_agent_of_this_process_are_refused() -> None:
    agent = Agent("quiet", description="d")
    with pytest.raises(ValueError, match=r"auth= has no effect on an agent of this process"):
        Client(agent, auth="secret")
    with A2AApp(agent) as app, pytest.raises(ValueError, match="auth= has no effect"):
        Client(app, auth="secret")


def test_retry_is_no_number() -> None:
    count: Any = 3
    with pytest.raises(TypeError, match=r"retry takes a Retry, .*; not int"):
        Client("http://agent.test", retry=count)
