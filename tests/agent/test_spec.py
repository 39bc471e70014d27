"""`AgentSpec`: what the server reads from an agent, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, TaskState
from a2a_sync.agent.executor import Event
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.errors import TaskNotCancelableError
from a2a_sync.types import Role, TextPart


class Echo:
    """An executor with none of the optional members."""

    def execute(self, context: RequestContext) -> Iterator[Event]:
        yield context.agent_message(context.message.text)


class Careful(Echo):
    """An executor with all of them."""

    direct = True
    on_worker_lost = "retry"
    native_thread = True

    def cancel(self, context: RequestContext) -> None:
        raise TaskNotCancelableError("not now")


def test_handlers_that_are_decorated_below_the_app_are_used() -> None:
    agent = Agent("late")
    app = A2AApp(agent)
    released = threading.Event()

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        context.update("waiting")
        released.wait(60)
        return "done"

    @agent.on_cancel
    def refuse(context: RequestContext) -> None:
        raise TaskNotCancelableError(f"refused {context.task_id}")

    with app, Client(app) as client:
        task = client.send("hello", return_immediately=True).task
        assert task.state in (TaskState.SUBMITTED, TaskState.WORKING)
        with pytest.raises(TaskNotCancelableError, match=f"refused {task.id}"):
            client.cancel_task(task.id)
        released.set()


def test_a_handler_that_is_replaced_below_the_app_is_the_one_that_runs() -> None:
    agent = Agent("changed")
    agent.message(lambda message, context: "first")
    with A2AApp(agent) as app, Client(app) as client:
        assert client.send("x").text == "first"
        agent.message(lambda message, context: "second")
        assert client.send("x").text == "second"


def test_a_method_of_an_executor_that_is_replaced_below_the_app_is_the_one_that_runs() -> None:
    executor = Echo()
    card = Agent("echo").describe()
    with A2AApp(executor, card=card) as app, Client(app) as client:
        assert client.send("x").text == "x"
        executor.execute = lambda context: iter((context.agent_message("replaced"),))  # type: ignore[method-assign]
        assert client.send("x").text == "replaced"


def test_the_members_of_an_executor_have_defaults() -> None:
    spec = AgentSpec.of(Echo())
    assert (spec.direct, spec.on_worker_lost(), spec.native_thread()) == (False, "fail", False)
    assert (spec.cancel_handler(), spec.describe, spec.extensions, spec.kind) == (None, None, (), "Echo")


def test_the_members_of_an_executor_are_read() -> None:
    executor = Careful()
    spec = AgentSpec.of(executor)
    assert (spec.direct, spec.on_worker_lost(), spec.native_thread()) == (True, "retry", True)
    assert spec.cancel_handler() == executor.cancel
    executor.on_worker_lost = "fail"
    assert spec.on_worker_lost() == "fail"


def test_the_cancel_of_an_agent_is_a_local_call_and_not_its_cancel_handler() -> None:
    agent = Agent("a")
    agent.message(lambda message, context: "hello")
    spec = AgentSpec.of(agent)
    assert spec.cancel_handler() is None
    agent.on_cancel(lambda context: None)
    assert spec.cancel_handler() is not None


def test_what_an_app_cannot_run_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match=r"Echo is a class: give an instance, Echo\(…\)"):
        AgentSpec.of(Echo)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a Message has no execute\(context\)"):
        AgentSpec.of(Message(role=Role.USER, parts=(TextPart("x"),)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"decorate it with @agent\.message"):
        AgentSpec.of(lambda message: message)  # type: ignore[arg-type, return-value]
