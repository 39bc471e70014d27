"""Runs are started, bounded, asked, timed and closed; whatever user code does, places and threads come back."""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import threading

import pytest

from a2a_sync import A2AApp, Agent, Client, InputRequired
from a2a_sync import operations as op
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.concurrency.gevent import patched
from a2a_sync.errors import OverloadedError, StoreError, TaskNotCancelableError, TaskNotFoundError
from a2a_sync.operations import Principal
from a2a_sync.stores.base import Owner
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.types import Artifact, CancelTaskRequest, Task, TaskArtifactUpdateEvent, TaskState, TextPart
from a2a_sync.types import TaskStatus as Status
from a2a_sync.types import TaskStatusUpdateEvent as StatusEvent
from tests.engine import (
    STORES,
    TIMEOUT,
    Background,
    Gate,
    Served,
    collect,
    eventually,
    in_child,
    serving,
    serving_over,
    texts,
)

S = TaskState


@pytest.fixture
def serve():
    yield from serving()


@pytest.fixture(params=STORES)
def serve_any(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


def engine_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("a2a-")}


def hold(gate):
    """A handler that waits at the gate if the message is "hold"."""

    def handler(message, context):
        if message.text == "hold":
            gate.block()
        return message.text

    return handler


# -- bounds -------------------------------------------------------------------------------------------------------------


def test_a_full_engine_refuses_and_stores_nothing(serve_any):
    gate = Gate()
    served = serve_any(hold(gate), max_concurrent_runs=1, max_queued_runs=1)
    first = served.begin("hold")
    gate.wait()
    second = served.begin("next")
    for refused in (served.send, served.stream):
        with pytest.raises(OverloadedError) as error:
            refused("one too many")
        assert error.value.retry_after == 1.0
    assert served.list().total_size == 2
    assert served.get(second).state is S.SUBMITTED
    gate.open.set()
    assert served.until(second, S.COMPLETED)
    assert served.states(first) == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    assert served.states(second) == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    served.quiet()


def test_a_refused_start_gives_its_place_back(serve):
    served = serve(hold(Gate()), max_concurrent_runs=1, max_queued_runs=0)
    for _ in range(3):
        with pytest.raises(TaskNotFoundError):
            served.send(task_id="missing")
    served.quiet()
    assert served.send("fine").state is S.COMPLETED


def test_a_system_without_threads_fails_or_refuses_the_task_and_gives_the_place_back(serve, monkeypatch, caplog):
    served = serve(hold(Gate()), max_concurrent_runs=1, max_queued_runs=0, run_timeout=None)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OverloadedError, match="no thread"):
            served.send()
        task = served.get(served.begin())
    assert (task.state, "no thread" in task.text) == (S.FAILED, True)
    assert [one.id for one in served.list().tasks] == [task.id]
    served.quiet()
    assert served.send("fine").state is S.COMPLETED


def test_each_run_has_a_copy_of_its_callers_context_variables(serve):
    tenant = contextvars.ContextVar("tenant")

    def handler(message, context):
        seen = tenant.get()
        tenant.set("changed by the run")
        return seen

    served = serve(handler)
    tenant.set("acme")
    assert served.send().text == "acme"
    assert tenant.get() == "acme"


@pytest.mark.skipif(sys.platform != "linux", reason="this policy exists on Linux")
def test_a_run_does_not_preempt_the_thread_that_writes_its_first_event(serve):
    usual = os.sched_getscheduler(0)
    policy = int(serve(lambda message, context: str(os.sched_getscheduler(0))).send().text)
    # Greenlets share one thread, and its policy is left alone, as one that the operator has chosen.
    assert policy == (os.SCHED_BATCH if usual == os.SCHED_OTHER and not patched() else usual)
    assert os.sched_getscheduler(0) == usual


# -- runs within runs ---------------------------------------------------------------------------------------------------


def nesting(served_in, depth_text):
    def handler(message, context):
        served = served_in[0]
        if message.text == "0":
            return threading.current_thread().name
        deeper = str(int(message.text) - 1)
        return depth_text(served, deeper)

    return handler


def blocking(served, text):
    return served.send(text).text


def streaming(served, text):
    items = list(served.stream(text))
    return served.get(items[0].event.id).text


@pytest.mark.parametrize("how", [blocking, streaming])
def test_a_handler_on_a_full_pool_may_call_agents_of_this_process(serve, how):
    served_in = []
    served = serve(nesting(served_in, how), max_concurrent_runs=1, max_queued_runs=0 if how is blocking else 1)
    served_in.append(served)
    assert served.in_background("5").result().text.startswith("a2a-run-")
    served.quiet()


def test_a_blocking_call_in_a_handler_runs_on_the_handlers_thread(serve):
    served_in = []
    served = serve(nesting(served_in, blocking))
    served_in.append(served)
    caller = []

    def handler(message, context):
        caller.append(threading.current_thread().name)
        return served.send("1").text

    assert serve(handler).send("go").text == caller[0]


def test_a_call_that_does_not_wait_takes_a_thread_of_its_own(serve):
    gate, started = Gate(), []

    def handler(message, context):
        if message.text == "outer":
            started.append(served.begin("hold"))
            gate.wait()
            return "outer is done"
        gate.block()
        return "inner is done"

    served = serve(handler)
    assert served.send("outer").text == "outer is done"
    gate.open.set()
    assert served.until(started[0], S.COMPLETED)


def test_an_agent_calls_another_through_the_client(serve):
    inner = Agent("inner", description="d")
    inner.message(lambda message, context: f"inner: {message.text}")

    def handler(message, context):
        return Client(inner).send(message.text).text

    served = serve(handler, max_concurrent_runs=1, max_queued_runs=0)
    assert served.send("hi").text == "inner: hi"
    inner.close()


def test_a_message_of_a_handler_to_its_own_task_is_refused_at_once(serve):
    errors = []

    def handler(message, context):
        try:
            served.send("again", task_id=context.task_id)
        except Exception as error:
            errors.append(str(error))

    served = serve(handler, busy_task_timeout=TIMEOUT * 2)
    assert served.in_background().result(TIMEOUT / 2).state is S.COMPLETED
    assert "busy" in errors[0]


# -- asked before a cancel ----------------------------------------------------------------------------------------------


class Asked(Agent):
    """Holds at its gate; ``asking`` is called before a cancel."""

    def __init__(self, asking):
        super().__init__("asked", description="d")
        self.gate, self.asking, self.contexts = Gate(), asking, []

    def handle_message(self, message, context):
        if message.text == "ask":
            return StatusEvent(status=Status(state=S.INPUT_REQUIRED, message=context.agent_message("size?")))
        self.gate.block()
        return "finished"

    def handle_cancel(self, context):
        self.contexts.append(context)
        self.asking(context)


def running(serve, asking, **limits):
    agent = Asked(asking)
    served = serve(agent, **limits)
    task_id = served.begin("work")
    agent.gate.wait()
    return agent, served, task_id


def refuse(context):
    raise TaskNotCancelableError("the oven is on")


def test_a_refusal_is_the_answer_and_the_run_goes_on(serve_any):
    agent, served, task_id = running(serve_any, refuse)
    with pytest.raises(TaskNotCancelableError, match="the oven is on"):
        served.cancel(task_id)
    assert served.get(task_id).state is S.WORKING
    agent.gate.open.set()
    assert served.until(task_id, S.COMPLETED).text == "finished"


def test_a_cancel_handler_sees_the_task_the_request_and_what_came_with_the_cancel(serve):
    seen = []

    def look(context):
        seen.append((context.task_id, context.message.text, context.metadata, context.user, context.history[0].text))
        seen.append(context.cancelled)
        seen.append(threading.current_thread().name.startswith("a2a-cancel"))

    agent, served, task_id = running(serve, look)
    served.cancel(task_id, metadata={"why": "bored"})
    assert seen == [(task_id, "work", {"why": "bored"}, None, "work"), False, True]
    agent.gate.open.set()


def test_a_cancel_handler_may_still_say_something(serve_any):
    def explain(context):
        context.emit(TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("so far"),))))

    agent, served, task_id = running(serve_any, explain)
    task = served.cancel(task_id)
    assert (task.state, task.text) == (S.CANCELED, "so far")
    agent.gate.open.set()


def test_a_cancel_that_the_agent_carries_out_itself_succeeds(serve_any):
    canceled = StatusEvent(status=Status(state=S.CANCELED))
    agent, served, task_id = running(serve_any, lambda context: context.emit(canceled))
    assert served.cancel(task_id).state is S.CANCELED
    assert served.states(task_id).count(S.CANCELED) == 1
    agent.gate.open.set()


def test_a_cancel_whose_handler_lets_the_run_complete_is_refused_with_that_state(serve_any):
    completed = StatusEvent(status=Status(state=S.COMPLETED))
    agent, served, task_id = running(serve_any, lambda context: context.emit(completed))
    with pytest.raises(TaskNotCancelableError, match="it is completed"):
        served.cancel(task_id)
    agent.gate.open.set()


def test_a_cancel_handler_of_a_task_that_waits_sees_its_newest_message(serve):
    seen = []
    agent = Asked(lambda context: seen.append((context.message.text, context.metadata, context.task.state)))
    served = serve(agent)
    task = served.send("ask")
    assert served.cancel(task.id, metadata={"k": 1}).state is S.CANCELED
    assert seen == [("ask", {"k": 1}, S.INPUT_REQUIRED)]


def test_a_cancel_handler_of_a_task_that_waits_cannot_emit(serve, caplog):
    agent = Asked(lambda context: context.update("hm"))
    served = serve(agent)
    task = served.send("ask")
    assert served.cancel(task.id).state is S.CANCELED
    assert "the task has no run in this process" in caplog.text


def test_a_cancel_handler_of_a_task_that_waits_has_no_run_though_its_code_has_not_returned(serve, caplog):
    class Tidying(Asked):
        def handle_message(self, message, context):
            try:
                yield StatusEvent(status=Status(state=S.INPUT_REQUIRED))
            finally:
                self.gate.block()

    agent = Tidying(lambda context: context.update("hm"))
    served = serve(agent)
    task_id = served.begin("ask")
    agent.gate.wait()
    assert served.cancel(task_id).state is S.CANCELED
    agent.gate.open.set()
    assert "the task has no run in this process" in caplog.text


def test_a_cancel_handler_that_hangs_is_not_waited_for(serve):
    stuck = Gate()
    agent, served, task_id = running(serve, lambda context: stuck.block(), cancel_handler_timeout=0.05)
    assert served.cancel(task_id).state is S.CANCELED
    assert stuck.reached.is_set()
    agent.gate.open.set()
    served.quiet()
    stuck.open.set()


def test_a_refusal_that_comes_too_late_changes_nothing(serve, caplog):
    stuck, late = Gate(), threading.Event()

    def refuse_late(context):
        try:
            stuck.block()
            refuse(context)
        finally:
            late.set()

    agent, served, task_id = running(serve, refuse_late, cancel_handler_timeout=0.02)
    assert served.cancel(task_id).state is S.CANCELED
    stuck.open.set()
    assert late.wait(TIMEOUT)
    assert served.get(task_id).state is S.CANCELED
    assert "did not answer in time" in caplog.text
    agent.gate.open.set()


@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(), TaskCancelled()])
def test_a_cancel_handler_that_breaks_does_not_save_the_task(serve, error, caplog):
    def broken(context):
        raise error

    agent, served, task_id = running(serve, broken)
    assert served.cancel(task_id).state is S.CANCELED
    assert "the cancel handler failed; canceling anyway" in caplog.text
    agent.gate.open.set()


def test_cancel_handlers_that_hang_are_bounded_and_then_skipped(serve, caplog):
    stuck, asked = Gate(), []

    def hang(context):
        asked.append(1)
        stuck.block()

    agent = Agent("a", description="d")
    agent.message(lambda message, context: StatusEvent(status=Status(state=S.INPUT_REQUIRED)))
    agent.on_cancel(hang)
    served = serve(agent, max_concurrent_runs=1, max_abandoned_threads=1, cancel_handler_timeout=0.01)
    for _ in range(4):
        assert served.cancel(served.send().id).state is S.CANCELED
    assert len(asked) == 2
    assert "no thread for the cancel handler" in caplog.text
    stuck.open.set()


def test_two_cancels_at_once_leave_one_end(serve_any):
    both = threading.Barrier(2)
    agent, served, task_id = running(serve_any, lambda context: both.wait(TIMEOUT))
    cancels = [Background(lambda: served.cancel(task_id)) for _ in range(2)]
    outcomes = []
    for cancel in cancels:
        try:
            outcomes.append(cancel.result().state)
        except TaskNotCancelableError:
            outcomes.append("refused")
    assert sorted(outcomes) == [S.CANCELED, "refused"]
    assert served.states(task_id).count(S.CANCELED) == 1
    agent.gate.open.set()


def test_the_handler_is_not_asked_about_a_task_that_has_ended(serve):
    agent = Asked(refuse)
    agent.gate.open.set()
    served = serve(agent)
    task = served.send("work")
    with pytest.raises(TaskNotCancelableError, match="it is completed"):
        served.cancel(task.id)
    assert agent.contexts == []


# -- time limits --------------------------------------------------------------------------------------------------------


def test_a_run_past_its_limit_fails_and_gives_its_place_back(serve_any, caplog):
    caplog.set_level(logging.INFO, "a2a_sync")
    gate = Gate()

    def handler(message, context):
        if message.text == "hang":
            gate.block()
            context.update("late")
        return "fine"

    served = serve_any(handler, max_concurrent_runs=1, max_queued_runs=1, run_timeout=0.15)
    sender = served.in_background("hang")
    gate.wait()
    (task,) = served.list().tasks
    stream = served.subscribe(task.id)
    failed = sender.result()
    assert (failed.state, failed.text) == (S.FAILED, "the run took longer than its limit of 0.15 seconds")
    assert collect(stream)[-1].event.status.state is S.FAILED
    assert served.send("next").text == "fine"
    assert served.pool.lingering == 1
    before = served.log(task.id)
    gate.open.set()
    served.quiet()
    eventually(lambda: served.pool.lingering == 0)
    assert served.log(task.id) == before
    assert "refused TaskStatusUpdateEvent" in caplog.text


def test_a_silent_run_fails_and_one_that_speaks_does_not(serve):
    gate = Gate()

    def handler(message, context):
        if message.text == "silent":
            gate.block()
            return "never"
        for number in range(8):
            context.sleep(0.04)
            context.update(str(number))
        return "spoke"

    served = serve(handler, run_idle_timeout=0.2)
    silent = served.in_background("silent")
    assert served.send("speak").text == "spoke"
    assert silent.result().text == "the run was silent for longer than its limit of 0.2 seconds"
    gate.open.set()


def test_waiting_in_line_does_not_count_as_running(serve):
    gate = Gate()
    served = serve(hold(gate), max_concurrent_runs=1, run_timeout=0.3, max_abandoned_threads=0)
    held = served.begin("hold")
    gate.wait()
    waiting = served.begin("next")
    assert served.until(held, S.FAILED)
    assert served.get(waiting).state is S.SUBMITTED
    gate.open.set()
    assert served.until(waiting, S.COMPLETED)


def test_a_cancelled_run_that_hangs_gives_its_place_back_too(serve):
    gate = Gate()
    served = serve(hold(gate), max_concurrent_runs=1, max_queued_runs=1, run_timeout=0.1)
    held = served.begin("hold")
    gate.wait()
    served.cancel(held)
    assert served.in_background("next").result().state is S.COMPLETED
    gate.open.set()


def test_a_run_that_starts_while_the_watchdog_ends_is_watched(serve, monkeypatch):
    """Between the last check and the end of the thread there is a moment in which the watchdog seems to run."""
    gate = Gate()
    served = serve(hold(gate), run_timeout=0.05)
    checks = served.app._engine.runs._watchdog._checks
    may_end, asked = checks._may_end, []

    def end_late():
        if not asked:
            asked.append(served.begin("hold"))
        return may_end()

    monkeypatch.setattr("a2a_sync.engine.deadlines._IDLE_SECONDS", 0.0)
    checks._may_end = end_late
    served.send("fine")
    eventually(lambda: asked and served.get(asked[0]).state is S.FAILED, "the time limit")
    gate.open.set()


def test_lingering_runs_are_bounded_and_the_rest_keep_their_places(serve, caplog):
    gate = Gate()

    def handler(message, context):
        if message.text == "hang":
            gate.block()
        return "fine"

    served = serve(handler, max_concurrent_runs=2, max_queued_runs=4, max_abandoned_threads=1, run_timeout=0.1)
    hung = [served.begin("hang") for _ in range(2)]
    for task_id in hung:
        served.until(task_id, S.FAILED)
    eventually(lambda: "too many runs linger" in caplog.text, "the complaint")
    assert (served.pool.running, served.pool.lingering) == (1, 1)
    assert served.send("next").text == "fine"
    looks = []
    watchdog = served.app._engine.runs._watchdog
    end_unstored = watchdog._end_unstored
    watchdog._end_unstored = lambda: looks.append(end_unstored())
    eventually(lambda: len(looks) > 2, "another look")
    assert caplog.text.count("too many runs linger") == 1
    gate.open.set()
    served.quiet()


def test_a_question_that_hangs_behind_its_end_does_not_hit_the_next_run(serve_any):
    """The first run has asked and hangs; the time limit must end it and leave the second alone."""
    gate, second = Gate(), Gate()

    def handler(message, context):
        if message.text == "ask":
            context.emit(StatusEvent(status=Status(state=S.INPUT_REQUIRED, message=context.agent_message("size?"))))
            gate.block()
        else:
            # Emits more often than the limit asks for, until the limit of the first run has passed.
            while not served.pool.lingering:
                context.sleep(0.03)
                context.update("working")
            second.block()
            return "large"
        return None

    served = serve_any(handler, max_concurrent_runs=2, max_queued_runs=0, run_idle_timeout=1.0, run_timeout=None)
    task = served.send("ask")
    gate.wait()
    sender = served.in_background("large", task_id=task.id)
    second.wait()
    second.open.set()
    assert sender.result().text == "large"
    gate.open.set()
    served.quiet()


def test_a_time_limit_that_the_store_refuses_to_note_is_tried_again(serve, caplog):
    class Stubborn(MemoryStore):
        refusals = 2

        def append(self, token, events, *, end=False, **options):
            if end and self.refusals:
                self.refusals -= 1
                raise StoreError("busy")
            return super().append(token, events, end=end, **options)

    gate = Gate()
    served = serve(hold(gate), store=Stubborn(), run_timeout=0.05)
    assert served.in_background("hold").result().state is S.FAILED
    assert caplog.text.count("a run could not be ended") == 2
    gate.open.set()


def test_the_watchdog_leaves_when_there_is_nothing_to_watch_and_comes_back(serve, monkeypatch):
    monkeypatch.setattr("a2a_sync.engine.deadlines._IDLE_SECONDS", 0.0)
    gate = Gate()
    served = serve(hold(gate), run_timeout=0.1)
    assert served.send("fine").state is S.COMPLETED
    eventually(lambda: served.app._engine.runs._watchdog._checks._thread is None, "the watchdog's leaving")
    assert served.in_background("hold").result().state is S.FAILED
    gate.open.set()


def test_without_limits_no_watchdog_is_started(serve):
    served = serve(hold(Gate()), run_timeout=None)
    served.send("fine")
    assert served.app._engine.runs._watchdog._checks._thread is None


# -- closing ------------------------------------------------------------------------------------------------------------


def test_close_gives_runs_their_time(serve_any):
    gate = Gate()
    served = serve_any(hold(gate))
    sender = served.in_background("hold")
    gate.wait()
    closing = Background(lambda: served.app.close(TIMEOUT))
    eventually(lambda: served.app._engine.runs.draining)
    with pytest.raises(OverloadedError, match="stopping"):
        served.send("late")
    gate.open.set()
    closing.result()
    assert sender.result().state is S.COMPLETED


def test_a_run_that_is_given_time_may_still_ask_other_agents_and_this_one(serve):
    gate = Gate()

    def handler(message, context):
        if message.text == "outer":
            gate.block()
            return Client(served.app).send("inner").text
        return "from inside"

    served = serve(handler)
    sender = served.in_background("outer")
    gate.wait()
    served.app.drain()
    with pytest.raises(OverloadedError, match="stopping"):
        served.send("inner")
    gate.open.set()
    assert sender.result().text == "from inside"
    eventually(lambda: not served.app.running, "the end of the run")


def test_draining_ends_the_streams_of_tasks_that_do_not_run_here(serve):
    gate = Gate()
    served = serve(lambda message, context: gate.block() if message.text == "work" else InputRequired("more?"))
    idle = served.subscribe(served.send("ask").id)
    running = served.subscribe(served.begin("work"))
    gate.wait()
    served.app.drain()
    assert [type(item.event) for item in collect(idle)] == [Task]
    gate.open.set()
    assert collect(running)[-1].event.status.state is S.COMPLETED


def test_a_blocked_send_whose_server_stops_is_answered_with_the_task_as_it_is(serve, store_url):
    gate = Gate()
    agent = Agent("patient", on_worker_lost="retry")
    agent.message(lambda message, context: gate.block())
    served = serve(agent, store=store_url)
    sender = served.in_background("work")
    gate.wait()
    served.app.close(0.0)
    assert sender.result().state is S.WORKING
    gate.open.set()


def test_a_send_that_reads_its_task_while_the_run_ends_and_the_server_stops_returns_the_end(serve, monkeypatch):
    gate, reading = Gate(), Gate()
    served = serve(hold(gate))
    head = served.store.head

    def read_slowly(*arguments):
        found = head(*arguments)
        reading.block()
        return found

    sender = served.in_background("hold")
    gate.wait()
    monkeypatch.setattr(served.store, "head", read_slowly)
    served.app._engine.hub.hint()
    reading.wait()
    gate.open.set()
    served.quiet()
    served.app._engine.hub.close()
    reading.open.set()
    assert sender.result().state is S.COMPLETED


def test_close_fails_what_is_left_and_ends_senders_and_streams(serve):
    gate = Gate()

    def handler(message, context):
        if message.text == "ask":
            return StatusEvent(status=Status(state=S.INPUT_REQUIRED))
        gate.reached.set()
        context.sleep(TIMEOUT)
        return None

    served = serve(handler, max_concurrent_runs=1, store=MemoryStore())
    idle = served.subscribe(served.send("ask").id)
    served.quiet()
    sender = served.in_background("work")
    gate.wait()
    running = next(task.id for task in served.list().tasks if task.state is S.WORKING)
    queued = served.begin("queued")
    streams = [Background(lambda s=stream: list(s)) for stream in (served.subscribe(running), served.subscribe(queued))]
    watching = Background(lambda: list(idle))
    served.app.close(0.0)
    assert (sender.result().state, sender.result().text) == (S.FAILED, "server stopped")
    for stream in streams:
        assert stream.result()[-1].event.status.message.text == "server stopped"
    assert watching.result()[0].event.state is S.INPUT_REQUIRED
    for task_id in (running, queued):
        assert served.get(task_id).text == "server stopped"
    served.quiet()


def test_close_can_be_called_again_and_by_a_handler(serve):
    def handler(message, context):
        served.app.close(TIMEOUT)
        return "closed"

    served = serve(handler)
    assert served.in_background().result(TIMEOUT / 2).state is S.FAILED
    served.app.close(TIMEOUT)
    with pytest.raises(OverloadedError, match="stopping"):
        served.send()
    served.app.close(0)


def test_after_close_no_thread_is_left(serve):
    before = engine_threads()

    def handler(message, context):
        if message.text == "sleep":
            context.sleep(TIMEOUT)
        return "fine"

    agent = Agent("a", description="d")
    agent.message(handler)
    agent.on_cancel(lambda context: None)
    served = serve(agent)
    served.send("fine")
    served.cancel(served.begin("sleep"))
    served.begin("sleep")
    assert all(thread.daemon for thread in engine_threads() - before)
    assert {thread.name.rpartition("-")[0] for thread in engine_threads() - before} >= {"a2a-run", "a2a-cancel", "a2a"}
    served.close()
    eventually(lambda: not engine_threads() - before, "the threads' end")


def test_nothing_is_started_before_the_first_message():
    before = threading.enumerate()
    app = A2AApp(Asked(refuse))
    app.endpoint()
    app.agent_card()
    assert threading.enumerate() == before
    app.close()


def test_a_run_that_begins_while_the_app_closes_is_not_lost():
    for _ in range(20):
        served = Served(lambda message, context: context.sleep(TIMEOUT), store=MemoryStore())
        start = threading.Barrier(4)

        def send(served=served, start=start):
            start.wait(TIMEOUT)
            try:
                return served.send()
            except OverloadedError:
                return None

        senders = [Background(send) for _ in range(3)]
        start.wait(TIMEOUT)
        served.app.close(0.0)
        for sender in senders:
            task = sender.result()
            assert task is None or task.state is S.FAILED
        served.quiet()
        assert all(task.state is S.FAILED for task in served.list().tasks)


def test_a_start_that_was_overtaken_by_close_leaves_no_trace(serve):
    served = serve(hold(Gate()), store=MemoryStore())
    reserve = served.pool.reserve

    def overtaken(owner):
        slot = reserve(owner)
        served.app.close(0.0)
        return slot

    served.pool.reserve = overtaken
    with pytest.raises(OverloadedError, match="stopping"):
        served.send()
    served.quiet()
    assert served.list().total_size == 0


def test_a_run_that_was_stopped_before_it_began_stores_nothing(serve, monkeypatch):
    monkeypatch.setattr("a2a_sync.engine.runs._STOP_TIMEOUT", 0.0)
    served = serve(hold(Gate()), store=MemoryStore())
    enter = served.app._engine.runs._register

    def overtaken(*args, **kwargs):
        run = enter(*args, **kwargs)
        served.app.close(0.0)
        return run

    served.app._engine.runs._register = overtaken
    with pytest.raises(OverloadedError, match="stopping"):
        served.send()
    served.quiet()
    assert served.list().total_size == 0


def test_a_run_that_was_stopped_while_it_began_still_gets_its_end(serve, monkeypatch):
    monkeypatch.setattr("a2a_sync.engine.runs._STOP_TIMEOUT", 0.0)

    class Closing(MemoryStore):
        def start_run(self, *args, **options):
            started = super().start_run(*args, **options)
            served.app.close(0.0)
            return started

    served = serve(hold(Gate()), store=Closing(), task_store_timeout=0)
    # Closing wakes all waiting calls, so the answer may be the task before its end.
    begun = served.send()
    served.quiet()
    task = served.get(begun.id)
    assert (task.state, task.text) == (S.FAILED, "the run was stopped")


# -- fork ---------------------------------------------------------------------------------------------------------------


def test_an_app_that_ran_before_a_fork_works_in_the_child_and_goes_on_in_the_parent(serve_any):
    gate = Gate()
    served = serve_any(hold(gate), max_concurrent_runs=1, max_queued_runs=1)
    held = served.begin("hold")
    gate.wait()

    def child():
        assert served.app._engine.runs.running == 0
        assert served.send("in the child").text == "in the child"
        items = collect(served.stream("streamed"))
        assert items[-1].event.status.state is S.COMPLETED
        served.app.close(1.0)

    in_child(child)
    assert served.get(held).state is S.WORKING
    gate.open.set()
    assert served.until(held, S.COMPLETED)


def test_a_child_cancels_a_run_of_its_parent_through_the_store(store_url):
    stopped, gate = threading.Event(), Gate()

    def handler(message, context):
        gate.block()
        try:
            context.update("still here")
        except TaskCancelled:
            stopped.set()
            raise

    served = Served(handler, store=store_url)
    task_id = served.begin()
    gate.wait()
    in_child(lambda: served.cancel(task_id))
    gate.open.set()
    assert stopped.wait(TIMEOUT)
    assert served.get(task_id).state is S.CANCELED
    served.quiet()
    served.close()


# -- the pieces ---------------------------------------------------------------------------------------------------------


def test_the_cancelling_caller_is_the_user_of_the_cancel_handlers_context(serve):
    seen = []
    agent = Asked(lambda context: seen.append((context.user, context.tenant)))
    served = serve(agent)
    ada = Principal(id="ada")
    task = served.call(op.SEND_MESSAGE, served.request("ask"), principal=ada)
    served.call(op.CANCEL_TASK, CancelTaskRequest(id=task.id), principal=ada)
    assert seen == [(ada, "")]


def test_the_history_of_a_cancelled_task_is_what_was_said(serve):
    agent = Asked(lambda context: None)
    served = serve(agent)
    task = served.cancel(served.send("ask").id)
    assert texts(task.history) == ["user: ask", "agent: size?"]
    assert served.store.head(Owner(), task.id).running is False
