"""One caller takes all it can get, and another one notices nothing of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from a2a_sync import A2AApp, Client, Limits, Retry, TaskState
from a2a_sync.errors import OverloadedError
from a2a_sync.limits import OwnerQuota
from a2a_sync.testing import wsgi_session
from tests.agents.shared import agent, caller
from tests.engine import Background, eventually
from tests.live import LiveServer, gunicorn

#: An honest call may take this long, in seconds, while another caller takes all it can get.
SOON = 2.0


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with gunicorn("tests.agents.shared:app", "-c", "python:a2a_sync.gunicorn", threads=8) as server:
        yield server


def named(url: str, name: str, **options: object) -> Client:
    return Client(url, headers={"X-Caller": name}, retry=Retry.off, **options)  # type: ignore[arg-type]


def check_served(honest: Client) -> None:
    """Every kind of call of the honest caller is answered soon."""
    for _ in range(3):
        began = time.monotonic()
        assert honest.send("hello").text == "hello"
        with honest.stream("hello") as events:
            list(events)
            assert events.text == "hello"
        asked = honest.send("ask")
        assert asked.state is TaskState.INPUT_REQUIRED
        assert honest.send("hello", task_id=asked.id).state is TaskState.COMPLETED
        assert time.monotonic() - began < SOON


@pytest.mark.live
@pytest.mark.timeout(60)
def test_streams_of_one_caller_leave_threads_to_another(server: LiveServer) -> None:
    with ExitStack() as stack:
        greedy = stack.enter_context(named(server.url, "greedy"))
        honest = stack.enter_context(named(server.url, "honest"))
        tasks = [greedy.send("wait", return_immediately=True).id for _ in range(8)]
        held, refused = [], []
        for task_id in tasks:
            try:
                stream = stack.enter_context(greedy.subscribe(task_id, timeout=30))
                next(iter(stream))
                held.append(task_id)
            except OverloadedError:
                refused.append(task_id)
        assert held
        assert refused
        check_served(honest)
        for task_id in tasks:
            greedy.cancel_task(task_id)


@pytest.mark.live
@pytest.mark.timeout(60)
def test_blocked_sends_of_one_caller_leave_threads_to_another(server: LiveServer) -> None:
    clients = [named(server.url, "greedy") for _ in range(8)]
    sends = [Background(lambda client=client: client.send("wait", timeout=30)) for client in clients]
    with named(server.url, "greedy") as greedy, named(server.url, "honest") as honest:
        eventually(lambda: sum(send.waiting for send in sends) <= 3, "the refusals")
        assert any(send.waiting for send in sends)
        check_served(honest)
        for task in greedy.list_tasks().tasks:
            if not task.state.terminal:
                greedy.cancel_task(task.id)
    for client in clients:
        client.close()


@pytest.mark.parametrize("quota", [None, OwnerQuota(max_concurrent_runs=6, max_queued_runs=6)], ids=["fair", "numbers"])
def test_runs_of_one_caller_leave_threads_to_another(quota: OwnerQuota | None) -> None:
    with A2AApp(agent, auth=caller, limits=Limits(executions=8, waiting=8), owner_quota=quota) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        # As many as there are for one: half of the threads and of the places in line, or what the quota says.
        begun = [greedy.send("wait", return_immediately=True).id for _ in range(8 if quota is None else 12)]
        with pytest.raises(OverloadedError, match="this caller"):
            greedy.send("wait", return_immediately=True)
        check_served(honest)
        for task_id in begun:
            greedy.cancel_task(task_id)
        assert greedy.send("hello").text == "hello"


def test_runs_that_wait_for_a_thread_do_not_stand_before_those_of_another_caller() -> None:
    with A2AApp(agent, auth=caller, limits=Limits(executions=2, waiting=20)) as app:
        session = wsgi_session(app)
        names = ("greedy", "second", "honest")
        greedy, second, honest = (named("http://agent.test", name, session=session) for name in names)
        first = [greedy.send("wait", return_immediately=True).id for _ in range(8)]
        other = second.send("wait", return_immediately=True).id
        # Both threads are taken, and seven runs wait that came first.
        answer = Background(lambda: honest.send("hello", timeout=30).text)
        eventually(lambda: app._engine.execution.pool.waiting == 8, "the honest run in line")
        second.cancel_task(other)
        assert answer.result() == "hello"
        for task_id in first:
            greedy.cancel_task(task_id)


def test_a_caller_alone_on_an_app_without_authentication_may_take_everything() -> None:
    with A2AApp(agent, limits=Limits(executions=8, waiting=8)) as app:
        session = wsgi_session(app)
        client = named("http://agent.test", "anonymous", session=session)
        begun = [client.send("wait", return_immediately=True).id for _ in range(16)]
        with pytest.raises(OverloadedError, match="the agent"):
            client.send("wait", return_immediately=True)
        for task_id in begun:
            client.cancel_task(task_id)
