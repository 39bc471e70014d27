"""A blocking send begins a run whose new task is stored with its first events, or after `Limits.task_store_timeout`."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import Agent
from a2a_sync import operations as op
from a2a_sync.errors import InternalError, OverloadedError, RequestTooLargeError, StoreError, TaskNotFoundError
from a2a_sync.operations import SendKey
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.push.options import PushOptions
from a2a_sync.stores.base import Owner, OwnerFull, TaskQuery
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.types import TaskPushNotificationConfig, TaskState
from tests.engine import STORES, TIMEOUT, Gate, Served, eventually, serving_over

S = TaskState


def no_such_name(*_: Any) -> Any:
    raise socket.gaierror


UNREACHABLE = PushOptions(url_guard=URLGuard(resolve=no_such_name))


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


class Counting(MemoryStore):
    """Records its writes by name; `failures` are raised instead, one each."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.failures: list[Exception] = []

    def start_run(self, *args: Any, **options: Any) -> Any:
        self.writes.append("start_run")
        if self.failures:
            raise self.failures.pop(0)
        return super().start_run(*args, **options)

    def append(self, *args: Any, **options: Any) -> Any:
        self.writes.append("append")
        return super().append(*args, **options)


def stored(served: Served) -> list[Any]:
    """The tasks in the store, as another process sees them."""
    return list(served.store.list(Owner(), TaskQuery()).tasks)


def waiting(gate: Gate, text: str = "done") -> Any:
    def handler(message: Any, context: Any) -> str:
        gate.block()
        return text

    return handler


# -- one write ----------------------------------------------------------------------------------------------------------


def test_a_short_run_of_a_blocking_send_is_one_write():
    served = Served(lambda message, context: "done", store=Counting(), task_store_timeout=TIMEOUT)
    task = served.send()
    assert (task.state, task.text) == (S.COMPLETED, "done")
    assert served.store.writes == ["start_run"]
    served.close()


def test_the_log_is_the_same_whenever_the_task_is_stored(serve):
    logs = []
    for timeout in (0, TIMEOUT):
        served = serve(lambda message, context: "done", task_store_timeout=timeout)
        entries = served.log(served.send().id)
        logs.append([(entry.number, type(entry.event), getattr(entry.event, "status", None)) for entry in entries])
        logs[-1] = [(number, kind, status and status.state) for number, kind, status in logs[-1]]
    assert logs[0] == logs[1]
    assert [number for number, _, _ in logs[0]] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_asks_is_one_write_and_goes_on_with_the_answer():
    served = Served(
        lambda message, context: context.ask("Which size?").upper(), store=Counting(), task_store_timeout=TIMEOUT
    )
    asked = served.send("pizza")
    assert (asked.state, served.store.writes) == (S.INPUT_REQUIRED, ["start_run"])
    assert served.send("large", task_id=asked.id).text == "LARGE"
    served.close()


def test_the_first_piece_of_a_run_is_stored_with_its_task():
    def handler(message, context):
        yield "a"
        yield "b"

    served = Served(handler, store=Counting(), task_store_timeout=TIMEOUT)
    task = served.send()
    assert (task.state, task.artifacts[0].text) == (S.COMPLETED, "ab")
    # The second piece, and the end.
    assert served.store.writes == ["start_run", "append", "append"]
    served.close()


def test_a_run_that_fails_leaves_a_failed_task(serve):
    def handler(message, context):
        raise ValueError("private")

    served = serve(handler, task_store_timeout=TIMEOUT)
    task = served.send()
    assert (task.state, "private" in task.text) == (S.FAILED, False)
    assert [one.id for one in stored(served)] == [task.id]


def test_a_large_message_is_stored_on_the_thread_of_its_request():
    threads = []

    class Watched(Counting):
        def start_run(self, *args: Any, **options: Any) -> Any:
            threads.append(threading.get_ident())
            return super().start_run(*args, **options)

    served = Served(lambda message, context: "done", store=Watched(), task_store_timeout=TIMEOUT)
    served.send("x" * 100_000)
    assert threads == [threading.get_ident()]
    served.close()


# -- when it is stored --------------------------------------------------------------------------------------------------


def test_the_task_of_a_longer_run_is_stored_while_it_runs(serve):
    gate = Gate()
    served = serve(waiting(gate), task_store_timeout=0.01)
    sender = served.in_background()
    gate.wait()
    (task,) = eventually(lambda: stored(served), "the task")
    assert task.state is S.WORKING
    gate.open.set()
    assert sender.result().state is S.COMPLETED


def test_calls_of_its_owner_find_the_task_before(serve):
    for read in (
        lambda served, task_id: served.get(task_id),
        lambda served, task_id: served.cancel(task_id),
        lambda served, task_id: next(iter(served.subscribe(task_id))).event,
        lambda served, task_id: served.list().tasks[0],
    ):
        gate, ids = Gate(), []

        def handler(message, context, gate=gate, ids=ids):
            ids.append(context.task_id)
            gate.block()

        served = serve(handler, task_store_timeout=TIMEOUT)
        sender = served.in_background()
        gate.wait()
        assert stored(served) == []
        found = read(served, ids[0])
        assert (found.id, found.state) in [(ids[0], S.WORKING), (ids[0], S.CANCELED)]
        gate.open.set()
        assert sender.result().id == ids[0]


def test_calls_of_other_owners_do_not_store_it(serve):
    gate = Gate()
    served = serve(waiting(gate), task_store_timeout=TIMEOUT)
    sender = served.in_background()
    gate.wait()
    with pytest.raises(TaskNotFoundError):
        served.call(op.GET_TASK, op.GET_TASK.request(id="unknown", tenant="other"))
    assert stored(served) == []
    gate.open.set()
    assert sender.result().state is S.COMPLETED


def test_a_message_that_a_handler_sends_finds_the_task_that_it_refers_to_and_that_of_its_context(serve):
    def handler(message, context):
        if message.text != "go":
            return f"{len(context.referenced_tasks)} {len(context.conversation())}"
        referring = served.request("count")
        message = replace(referring.message, reference_task_ids=(context.task_id,))
        referred = served.call(op.SEND_MESSAGE, replace(referring, message=message)).text
        return f"{referred}, {served.send('count', context_id=context.context_id).text}"

    served = serve(handler, task_store_timeout=TIMEOUT)
    assert served.send().text == "1 1, 0 2"


def test_a_message_to_a_context_finds_the_task_of_an_earlier_one(serve):
    gate = Gate()

    def handler(message, context):
        if message.text == "first":
            gate.block()
        return str(len(context.conversation()))

    served = serve(handler, task_store_timeout=TIMEOUT)
    first, other = (served.in_background("first", context_id=one) for one in ("mine", "other"))
    gate.wait()
    eventually(lambda: served.app._engine.runs.running == 2, "both runs")
    assert served.send("second", context_id="mine").text == "2"
    assert {task.context_id for task in stored(served)} == {"mine"}
    gate.open.set()
    assert {first.result().state, other.result().state} == {S.COMPLETED}


def test_what_the_handler_reads_and_keeps_is_stored_first(serve):
    def handler(message, context):
        context.state["n"] = 1
        return f"{context.task.state} {len(context.history)}"

    assert serve(handler, task_store_timeout=TIMEOUT).send().text == "working 1"


@pytest.mark.parametrize("how", ["key", "return immediately", "stream", "retried", "no time", "webhook"])
def test_tasks_that_must_survive_are_stored_before_the_code_is_called(tmp_path, how):
    agent, seen = Agent("careful", description="d"), []
    if how == "retried":
        agent.on_worker_lost = "retry"

    @agent.message
    def look(message, context):
        seen.append([task.id for task in served.store.list(Owner(), TaskQuery()).tasks])

    timeout = 0 if how == "no time" else TIMEOUT
    store = f"sqlite:///{tmp_path}/tasks.db"
    served = Served(agent, store=store, push=UNREACHABLE, task_store_timeout=timeout)
    if how == "key":
        served.call(op.SEND_MESSAGE, served.request("go"), key=SendKey("k", "f"))
    elif how == "stream":
        list(served.stream())
    elif how == "webhook":
        served.send(task_push_notification_config=TaskPushNotificationConfig(url="http://nowhere.test/hook"))
    else:
        served.send(return_immediately=how == "return immediately")
    served.quiet()
    assert len(seen[0]) == 1
    served.close()


# -- what prevents it ---------------------------------------------------------------------------------------------------


def test_a_store_that_fails_is_an_error_of_the_send_and_leaves_no_task():
    served = Served(lambda message, context: "done", store=Counting(), task_store_timeout=TIMEOUT)
    served.store.failures.append(StoreError("the disk is full"))
    with pytest.raises(InternalError):
        served.send()
    served.quiet()
    assert stored(served) == []
    assert served.send().state is S.COMPLETED
    served.close()


def test_a_run_that_hangs_without_a_task_leaves_its_thread_to_others():
    gate = Gate()

    def handler(message, context):
        if message.text == "hang":
            gate.block()
        return "done"

    served = Served(handler, store=Counting(), max_concurrent_runs=1, run_timeout=0.05, task_store_timeout=0.01)
    served.store.failures.append(StoreError("the disk is full"))
    with pytest.raises(InternalError):
        served.send("hang")
    assert served.send("next").state is S.COMPLETED
    assert served.pool.lingering == 1, "the hanging run has returned"
    gate.open.set()
    served.close()


def test_an_owner_without_space_is_refused():
    served = Served(lambda message, context: "done", store=Counting(), task_store_timeout=TIMEOUT)
    served.store.failures += [OwnerFull("full")] * 3
    with pytest.raises(OverloadedError, match="limit of bytes"):
        served.send()
    served.quiet()
    assert stored(served) == []
    served.close()


def test_a_result_that_is_too_large_fails_the_task(serve):
    served = serve(
        lambda message, context: "x" * 30_000, max_task_bytes=20_000, max_body_bytes=10_000, task_store_timeout=TIMEOUT
    )
    task = served.send()
    assert (task.state, "may hold 20000 bytes" in task.text) == (S.FAILED, True)


def test_a_message_that_is_too_large_for_a_task_is_refused(serve):
    served = serve(lambda message, context: "x", max_task_bytes=2_000, max_body_bytes=2_000, task_store_timeout=TIMEOUT)
    with pytest.raises(RequestTooLargeError):
        served.send("x" * 1_999)
    assert stored(served) == []


def test_a_closing_server_stores_the_tasks_of_its_runs_and_fails_them(serve):
    gate = Gate()
    served = serve(waiting(gate), task_store_timeout=TIMEOUT)
    sender = served.in_background()
    gate.wait()
    served.app.close(0.0)
    gate.open.set()
    assert sender.result().state is S.FAILED
    (task,) = stored(served)
    assert task.status.message.text == "server stopped"


def test_a_run_that_gets_no_thread_in_time_is_stored_as_submitted(serve):
    gate = Gate()
    served = serve(waiting(gate), max_concurrent_runs=1, task_store_timeout=0.01)
    first = served.in_background()
    gate.wait()
    second = served.in_background()
    eventually(lambda: sorted(task.state for task in stored(served)) == [S.SUBMITTED, S.WORKING], "both tasks")
    gate.open.set()
    assert {first.result().state, second.result().state} == {S.COMPLETED}


def test_a_run_that_gets_a_thread_while_it_is_stored_as_submitted_is_working_then():
    gate = Gate()

    class Slow(MemoryStore):
        """The second run gets the thread of the first one while its task is being stored."""

        def start_run(self, owner: Any, request: Any, *args: Any, **options: Any) -> Any:
            if request.message.parts[0].text == "second":
                gate.open.set()
                eventually(lambda: has_begun(request.task_id), "the second run")
            return super().start_run(owner, request, *args, **options)

    def has_begun(task_id: str) -> bool:
        return any(run.task_id == task_id and run.running_s is not None for run in served.app._engine.runs.active())

    served = Served(waiting(gate), store=Slow(), max_concurrent_runs=1, task_store_timeout=0.01)
    first = served.in_background("first")
    gate.wait()
    second = served.send("second")
    assert first.result().state is S.COMPLETED
    assert served.states(second.id) == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    served.close()
