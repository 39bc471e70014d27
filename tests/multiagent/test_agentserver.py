"""An `AgentServer` beside what its parity tests show: ids, logs, executors of other kinds, its end."""

from __future__ import annotations

import asyncio

import pytest

from a2a_sync import Agent, Client, Limits, Message, Role, SQLiteStore, TaskState, TextPart
from a2a_sync.auth import BearerAuth
from a2a_sync.card import create_agent_card
from a2a_sync.errors import InvalidParamsError, TransportTimeoutError, UnsupportedOperationError
from a2a_sync.multiagent import AgentServer, AgentTask
from a2a_sync.multiagent.agentserver import status_history
from a2a_sync.testing import wsgi_session
from a2a_sync.types import Task, TaskArtifactUpdateEvent, TaskStatus
from tests.engine import Background, Gate

S = TaskState
CARD = create_agent_card("tested", "d", skills={"x": "X"})


def echo(task):
    return task.with_artifact(f"echo: {task.message.text}")


@pytest.fixture
def server():
    made, stores = [], []

    def make(executor, **options):
        stores.extend(filter(None, [options.get("store")]))
        made.append(AgentServer(CARD, executor, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one.close()
    for store in stores:
        store.close()


def test_an_id_is_found_again_after_a_restart_and_events_go_on_under_it(server, tmp_path):
    store = SQLiteStore(tmp_path / "tasks.db")

    def asks(task):
        return task.with_status("input-required") if len(task.messages) == 1 else echo(task)

    server(asks, store=store).submit_task("hi", id="t1")
    again, completed = server(asks, store=store), []
    again.on("task:completed", lambda event: completed.append(event.task_id))
    assert again.send_message("t1", "go").id == "t1"
    assert completed == ["t1"]
    assert again._submitted_ids == {}


def test_ids_of_tasks_that_have_ended_are_not_remembered(server):
    made = server(echo)
    made.submit_task("hi", id="t1")
    assert made.get_task("t1").id == "t1"
    assert not made.cancel_task("t1")
    with pytest.raises(UnsupportedOperationError):
        made.send_message("t1", "more")
    assert made._submitted_ids == {}


def test_the_tasks_own_id_is_as_good_as_the_given_one(server):
    one, ids = server(echo), []
    one.on("task:submitted", lambda event: ids.append(event.task_id))
    task = one.submit_task("hi")
    assert [task.id] == ids
    assert one.get_task(task.id) == task


@pytest.mark.parametrize("id", ["", "é", "x" * 256])
def test_an_id_that_no_key_can_be_is_refused(server, id):
    with pytest.raises((ValueError, InvalidParamsError)):
        server(echo).submit_task("hi", id=id)


def test_a_message_keeps_what_is_in_it_and_the_executor_sees_the_given_id(server):
    seen = []
    message = Message(role=Role.USER, parts=(TextPart("hi"),), metadata={"k": 1}, context_id="c")
    task = server(lambda task: seen.append((task.id, task.session_id)) or task).submit_task(message, id="t1")
    assert (seen, task.message.metadata["k"]) == ([("t1", "c")], 1)


def test_an_agent_and_an_executor_are_taken_too(server):
    agent = Agent("x")
    agent.message(lambda message, context: "from an agent")
    one = server(agent)
    assert one.submit_task("hi").text == "from an agent"
    agent.direct = True
    with pytest.raises(TypeError, match="direct"):
        server(agent)
    with pytest.raises(TypeError, match="function of a task"):
        server("no function")


def test_an_executor_may_be_asynchronous(server):
    async def executor(task):
        await asyncio.sleep(0)
        if task.message.text == "fail":
            raise ValueError("no")
        return task.with_artifact(task.message.text.upper())

    asynchronous = server(executor)
    assert asynchronous.submit_task("hi").text == "HI"
    failed = asynchronous.submit_task("fail")
    assert (failed.state, failed.status.message.text) == (TaskState.FAILED, "no")


def test_a_call_that_is_given_up_leaves_its_task_running(server):
    gate = Gate()
    one = server(lambda task: gate.block() or echo(task))
    with pytest.raises(TransportTimeoutError):
        one.submit_task("hi", id="t", timeout=0.05)
    repeated = Background(lambda: one.submit_task("hi", id="t"))
    gate.open.set()
    assert repeated.result().text == "echo: hi"


def test_artifacts_of_earlier_turns_are_not_sent_again(server):
    def executor(task):
        if len(task.messages) == 1:
            return task.with_artifact("a").with_artifact("b").with_status("input-required")
        return task.with_artifact("c")

    one = server(executor)
    waiting = one.submit_task("hi").id
    with Client(one) as client, client.stream("go", task_id=waiting) as stream:
        sent = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert sent == ["c"]
    assert [artifact.text for artifact in one.get_task(waiting).artifacts] == ["a", "b", "c"]


def test_a_task_that_works_takes_no_message(server):
    gate = Gate()
    one = server(lambda task: gate.block() or echo(task))
    running = Background(lambda: one.submit_task("hi", id="t"))
    gate.wait()
    with pytest.raises(UnsupportedOperationError, match="does not wait"):
        one.send_message("t", "more")
    gate.open.set()
    assert running.result().state is S.COMPLETED


def test_a_plain_task_may_be_returned(server):
    done = TaskStatus(state=S.REJECTED, message=Message(role=Role.AGENT, parts=(TextPart("not today"),)))
    task = server(lambda task: Task(id=task.id, status=done)).submit_task("hi")
    assert (task.state, task.text) == (S.REJECTED, "not today")


def test_the_statuses_of_a_long_log_are_read_page_by_page(server):
    def executor(task):
        for n in range(1500):
            task = task.with_artifact(f"{n}")
        return task

    task = server(executor).submit_task("hi")
    assert [status.state for status in task.status_history] == [S.SUBMITTED, S.WORKING, S.COMPLETED]


def test_where_the_log_is_gone_the_present_status_is_left(server):
    class Forgetful:
        def log(self, scope, task_id, *, after=0, max_bytes=None):
            from a2a_sync.stores.base import LogPage

            return LogPage(entries=(), version=9, state=S.COMPLETED, running=False, compacted=9)

        def head(self, scope, task_id):
            return type("Head", (), {"status": TaskStatus(state=S.COMPLETED)})

    assert [status.state for status in status_history(Forgetful(), "t")] == [S.COMPLETED]


def test_a_task_made_elsewhere_has_no_log():
    task = AgentTask(id="t", status=TaskStatus(state=S.COMPLETED))
    assert (task.status_history, task.cancelled) == ((), False)


def test_options_go_to_the_app(server):
    assert server(echo, limits=Limits(max_concurrent_runs=1)).app.limits.max_concurrent_runs == 1


def test_an_id_that_a_caller_claims_is_not_believed(server):
    ids, completed = [], []
    one = server(lambda task: ids.append(task.id) or echo(task))
    one.on("task:completed", lambda event: completed.append(event.task_id))
    claimed = Message(role=Role.USER, parts=(TextPart("hi"),), metadata={"a2a_sync.submitted_as": "t1"})
    with Client(one) as client:
        task = client.send(claimed)
    assert one.submit_task("mine", id="t1").text == "echo: mine"
    assert ids == completed == [task.id, "t1"]


@pytest.mark.parametrize("options", [{}, {"owner": lambda call: "team" if call.context.principal else None}])
def test_an_executor_sees_the_statuses_of_tasks_of_others(server, options):
    seen = []
    one = server(
        lambda task: seen.append([s.state for s in task.status_history]) or task,
        auth=BearerAuth({"t": "ada"}),
        **options,
    )
    card = one.app.agent_card("http://agent.test/")
    with Client(card, session=wsgi_session(one.app), auth="t") as client:
        task = client.send("hi")
    assert seen == [[S.SUBMITTED, S.WORKING]]
    assert one.get_task(task.id) is None  # it is not the server's own
