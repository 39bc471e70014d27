"""Interceptors of generator functions, around endpoints that return or raise at once; tests/server/test_pending.py has the others."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext
from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import GET_TASK, AnyCall, Call, Endpoint, interceptor
from a2a_sync.types import GetTaskRequest, Task, TaskState, TaskStatus

Steps = Generator[AnyCall, Any, Any]
FOUND = Task(id="found", context_id="c", status=TaskStatus(state=TaskState.COMPLETED))
CALL = Call(GET_TASK, GetTaskRequest(id="asked"))


def find(call: Any) -> Any:
    if call.request.id == "missing":
        raise TaskNotFoundError()
    return replace(FOUND, id=call.request.id)


def test_it_changes_the_call_and_the_result() -> None:
    @interceptor
    def change(call: AnyCall) -> Steps:
        task = yield replace(call, request=GetTaskRequest(id="other"))
        return replace(task, context_id="changed")

    assert change(find)(CALL) == replace(FOUND, id="other", context_id="changed")


def test_the_first_one_is_the_outermost() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        @interceptor
        def note(call: AnyCall) -> Steps:
            seen.append(f"before {name}")
            result = yield call
            seen.append(f"after {name}")
            return result

        return note

    agent = Agent("echo")

    @agent.message
    def echo(message: Message, context: RequestContext) -> str:
        return message.text

    with (
        A2AApp(agent, interceptors=[named("one"), named("two")]) as app,
        Client(app, interceptors=[named("client")]) as client,
    ):
        assert client.send("hi", stream=False).text == "hi"
    assert seen == [*(f"before {one}" for one in ("client", "one", "two")), "after two", "after one", "after client"]


def test_an_exception_is_raised_where_it_waits() -> None:
    @interceptor
    def default(call: AnyCall) -> Steps:
        try:
            return (yield call)
        except TaskNotFoundError:
            return FOUND

    @interceptor
    def clean(call: AnyCall) -> Steps:
        try:
            return (yield call)
        finally:
            cleaned.append(call)

    cleaned: list[AnyCall] = []
    missing = Call(GET_TASK, GetTaskRequest(id="missing"))
    assert default(find)(missing) is FOUND
    with pytest.raises(TaskNotFoundError):
        clean(find)(missing)
    assert cleaned == [missing]


def test_one_that_yields_nothing_answers_itself() -> None:
    @interceptor
    def known(call: AnyCall) -> Steps:
        if call.task_id == "asked":
            return FOUND
        return (yield call)

    def never(call: Any) -> Any:
        raise AssertionError

    assert known(never)(CALL) is FOUND


def test_one_that_yields_twice_is_an_error_and_ends() -> None:
    ended: list[bool] = []

    @interceptor
    def twice(call: AnyCall) -> Steps:
        try:
            yield call
            yield call
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="yields one call, and this one has yielded another"):
        twice(find)(CALL)
    assert ended


def test_a_function_that_is_no_generator_is_refused() -> None:
    def plain(endpoint: Endpoint) -> Endpoint:
        return endpoint

    with pytest.raises(TypeError, match="takes a generator function"):
        interceptor(plain)  # type: ignore[arg-type]
