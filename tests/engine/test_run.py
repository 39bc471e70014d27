"""One run writes with its token until it or its task ends; later events of it are not stored."""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from a2a_sync import InputRequired
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.errors import AgentError, InternalError, StoreError, TaskNotCancelableError, UnsupportedOperationError
from a2a_sync.stores.base import Owner, TaskQuery
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.types import (
    Artifact,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from tests.engine import STORES, TIMEOUT, Background, Gate, Served, collect, eventually, serving_over, texts

S = TaskState


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


def status(state):
    return TaskStatusUpdateEvent(status=TaskStatus(state=state))


def piece(text="x", artifact_id="a", **members):
    return TaskArtifactUpdateEvent(artifact=Artifact(artifact_id=artifact_id, parts=(TextPart(text),)), **members)


def terminal(states):
    return [state for state in states if state.terminal]


# -- what is written ----------------------------------------------------------------------------------------------------


def test_the_log_of_a_plain_run_holds_what_the_design_says(serve):
    served = serve(lambda message, context: "done")
    task = served.send("go")
    kinds = [type(entry.event).__name__ for entry in served.log(task.id)]
    assert kinds == [
        "Message",
        "TaskStatusUpdateEvent",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "Message",
        "TaskStatusUpdateEvent",
    ]
    assert served.states(task.id) == [S.SUBMITTED, S.WORKING, S.COMPLETED]


def test_everything_that_is_stored_names_its_task_and_context(serve):
    def handler(message, context):
        wrong = {"task_id": "other", "context_id": "other"}
        context.emit(TaskStatusUpdateEvent(status=TaskStatus(state=S.WORKING), **wrong))
        context.emit(replace(piece(), **wrong))
        context.emit(replace(context.agent_message("hi"), **wrong))
        context.emit(TaskStatusUpdateEvent(status=TaskStatus(state=S.WORKING), task_id=context.task_id))
        timed = TaskStatus(state=S.WORKING, timestamp=datetime.now(UTC))
        context.emit(TaskStatusUpdateEvent(status=timed, task_id=context.task_id, context_id="other"))

    served = serve(handler)
    task = served.send("go", context_id="c1")
    for entry in served.log(task.id):
        assert (entry.event.task_id, entry.event.context_id) == (task.id, "c1")


def test_every_status_has_its_time_in_utc_milliseconds(serve):
    served = serve(lambda message, context: context.update("hi"))
    for entry in served.log(served.send().id):
        if isinstance(entry.event, TaskStatusUpdateEvent):
            moment = entry.event.status.timestamp
            assert moment.utcoffset().total_seconds() == 0
            assert moment.microsecond % 1000 == 0


def test_appending_to_an_unknown_artifact_makes_it(serve):
    def handler(message, context):
        context.emit(piece("a", append=True), piece("b", append=True))
        context.emit(piece("c", "other", append=True))

    served = serve(handler)
    task = served.send()
    events = [e.event for e in served.log(task.id) if isinstance(e.event, TaskArtifactUpdateEvent)]
    assert [(event.artifact.artifact_id, event.append) for event in events] == [
        ("a", False),
        ("a", True),
        ("other", False),
    ]
    assert [artifact.text for artifact in task.artifacts] == ["ab", "c"]


def test_appending_to_an_artifact_of_an_earlier_run_extends_it(serve):
    def handler(message, context):
        context.emit(piece(message.text, append=True))
        return status(S.INPUT_REQUIRED)

    served = serve(handler)
    task = served.send("one ")
    task = served.send("two", task_id=task.id)
    assert [artifact.text for artifact in task.artifacts] == ["one two"]


def test_an_artifact_that_was_refused_is_still_unknown(serve):
    def handler(message, context):
        with pytest.raises(ValueError, match="cannot go"):
            context.emit(piece("lost"), status(S.SUBMITTED))
        context.emit(piece("kept", append=True))

    served = serve(handler)
    task = served.send()
    event = next(e.event for e in served.log(task.id) if isinstance(e.event, TaskArtifactUpdateEvent))
    assert (event.append, task.text) == (False, "kept")


def test_a_step_that_could_not_be_stored_can_be_tried_again():
    class Hiccup(MemoryStore):
        failures = 1

        def append(self, token, events, *, end=False, **options):
            if self.failures and end:
                self.failures -= 1
                raise StoreError("busy")
            return super().append(token, events, end=end, **options)

    def handler(message, context):
        question = context.agent_message("size?")
        step = (
            piece("a", append=True),
            TaskStatusUpdateEvent(status=TaskStatus(state=S.INPUT_REQUIRED, message=question)),
        )
        with pytest.raises(StoreError):
            context.emit(*step)
        context.emit(*step)

    served = Served(handler, store=Hiccup())
    task = served.send("go")
    assert (task.state, task.artifacts[0].text) == (S.INPUT_REQUIRED, "a")
    assert texts(task.history) == ["user: go", "agent: size?"]
    event = next(e.event for e in served.log(task.id) if isinstance(e.event, TaskArtifactUpdateEvent))
    assert event.append is False
    served.close()


def test_nothing_can_follow_a_question_in_one_step(serve):
    def handler(message, context):
        with pytest.raises(ValueError, match="nothing can follow"):
            context.emit(status(S.INPUT_REQUIRED), piece())
        return "fine"

    assert serve(handler).send().text == "fine"


def test_an_event_that_is_none_is_refused_by_its_type(serve, caplog):
    class Wrong:
        def execute(self, context):
            yield "text"

    served = serve(Wrong())
    assert served.send().state is S.FAILED
    assert "an executor yields events, not str" in caplog.text


@pytest.mark.parametrize("result", ["text", 5])
def test_an_executor_that_returns_no_events_fails_its_task(serve, result):
    class Wrong:
        def execute(self, context):
            return result

    assert serve(Wrong()).send().state is S.FAILED


def test_threads_of_a_handler_emit_side_by_side_without_gaps_or_losses(serve):
    def handler(message, context):
        start = threading.Barrier(5)

        def work(number):
            start.wait(TIMEOUT)
            for step in range(20):
                context.emit(piece(f"{step} ", f"artifact {number}", append=step > 0))
                context.update(f"{number}/{step}")

        workers = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(TIMEOUT)

    served = serve(handler)
    items = collect(served.stream())
    task = served.get(items[0].event.id)
    assert [artifact.text for artifact in task.artifacts] == ["".join(f"{step} " for step in range(20))] * 5
    assert [item.number for item in items] == list(range(3, 3 + 202))


# -- ended from outside -------------------------------------------------------------------------------------------------


def test_a_generator_that_yields_on_after_a_cancel_logs_no_warning(serve, caplog):
    gate = Gate()

    def handler(message, context):
        yield "first"
        gate.block()
        yield "late"

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_late_output_is_refused_logged_and_stored_nowhere(serve, caplog):
    gate, outcomes = Gate(), []

    def handler(message, context):
        gate.block()
        for late in (lambda: context.update("late"), lambda: context.emit(piece()), lambda: context.emit(piece())):
            try:
                late()
            except TaskCancelled:
                outcomes.append("refused")
        assert context.cancelled
        return "late result"

    caplog.set_level(logging.INFO, "a2a_sync")
    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    canceled = served.cancel(task_id)
    before = served.log(task_id)
    gate.open.set()
    served.quiet()
    assert outcomes == ["refused"] * 3
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert served.log(task_id) == before
    assert served.get(task_id) == canceled
    assert "refused TaskStatusUpdateEvent: the run has ended" in caplog.text
    assert "refused TaskArtifactUpdateEvent: the run has ended" in caplog.text


def test_a_handler_that_swallows_everything_cannot_write(serve):
    gate, rounds = Gate(), []

    def handler(message, context):
        gate.block()
        while len(rounds) < 5:
            try:
                context.update("still here")
            except BaseException as error:
                rounds.append(type(error))
        return "done"

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert rounds == [TaskCancelled] * 5
    assert terminal(served.states(task_id)) == [S.CANCELED]


def test_a_generator_that_yields_in_its_finally_is_ended_all_the_same(serve, caplog):
    gate = Gate()

    def handler(message, context):
        try:
            while True:
                yield "x"
                gate.block()
        finally:
            yield "last words"

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert terminal(served.states(task_id)) == [S.CANCELED]
    assert "generator ignored GeneratorExit" in caplog.text


def test_an_exception_after_a_cancel_changes_nothing_and_is_logged(serve, caplog):
    gate = Gate()

    def handler(message, context):
        gate.block()
        raise ValueError("on the way out")

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert served.states(task_id)[-1] is S.CANCELED
    assert "on the way out" in caplog.text


def test_the_end_that_came_from_another_process_stops_the_run(serve):
    """Another process knows the store only: no hub rings here."""
    gate, cancelled = Gate(), threading.Event()

    def handler(message, context):
        context.on_cancel(cancelled.set)
        gate.block()
        context.update("still here")

    served = serve(handler)
    sender = served.in_background()
    gate.wait()
    (task,) = served.list().tasks
    served.store.interrupt(Owner(), task.id, [status(S.CANCELED)])
    gate.open.set()
    assert sender.result().state is S.CANCELED
    assert cancelled.wait(TIMEOUT)
    served.quiet()


def test_a_task_that_is_deleted_under_its_run_stops_the_run(serve):
    gate, stopped = Gate(), threading.Event()

    def handler(message, context):
        gate.block()
        try:
            context.update("still here")
        except TaskCancelled:
            stopped.set()
            raise

    served = serve(handler)
    stream = served.stream()
    task_id = stream.poll(0)[0].event.id
    gate.wait()
    served.store.delete(Owner(), task_id)
    gate.open.set()
    assert stopped.wait(TIMEOUT)
    assert collect(stream) == []
    served.quiet()


def cancel_in_line(served, gate):
    """The run has not begun: another one holds the only thread."""
    blocker = served.begin("hold")
    gate.wait()
    return served.begin("work"), lambda: (gate.open.set(), served.until(blocker, S.COMPLETED))


def cancel_while_working(served, gate):
    task_id = served.begin("hold")
    gate.wait()
    return task_id, gate.open.set


def cancel_between_chunks(served, gate):
    task_id = served.begin("chunks")
    gate.wait()
    return task_id, gate.open.set


@pytest.mark.parametrize("point", [cancel_in_line, cancel_while_working, cancel_between_chunks])
def test_a_cancel_is_the_one_terminal_entry_wherever_the_run_is(serve, point, caplog):
    gate, executed = Gate(), []
    caplog.set_level(logging.INFO, "a2a_sync")

    def handler(message, context):
        executed.append(message.text)
        if message.text == "chunks":
            yield "a"
        if message.text != "work":
            gate.block()
        yield "b"

    served = serve(handler, max_concurrent_runs=1)
    task_id, release = point(served, gate)
    stream = served.subscribe(task_id)
    sender = served.in_background(task_id=task_id)
    assert served.cancel(task_id).state is S.CANCELED
    with pytest.raises(TaskNotCancelableError, match="canceled"):
        served.cancel(task_id)
    assert collect(stream)[-1].event.status.state is S.CANCELED
    with pytest.raises(UnsupportedOperationError, match="canceled"):
        sender.result()
    release()
    served.quiet()
    assert terminal(served.states(task_id)) == [S.CANCELED]
    assert served.states(task_id)[-1] is S.CANCELED
    assert "work" not in executed
    assert ("the run has ended" in caplog.text) is (point is not cancel_in_line)


def test_a_cancel_inside_a_step_waits_for_it_and_then_ends_the_task():
    """The run is in the middle of storing something: the cancel comes before or after it, never between."""
    gate = Gate()

    class Slow(MemoryStore):
        def append(self, token, events, *, end=False, **options):
            if any(isinstance(event, TaskArtifactUpdateEvent) for event in events):
                gate.block()
            return super().append(token, events, end=end, **options)

    served = Served(lambda message, context: "done", store=Slow(), task_store_timeout=0)
    sender = served.in_background()
    gate.wait()
    (task,) = served.list().tasks
    assert served.cancel(task.id).state is S.CANCELED
    assert sender.result().state is S.CANCELED
    gate.open.set()
    served.quiet()
    assert terminal(served.states(task.id)) == [S.CANCELED]
    served.close()


def test_a_cancel_after_the_end_is_refused_and_changes_nothing(serve):
    served = serve(lambda message, context: "done")
    task = served.send()
    with pytest.raises(TaskNotCancelableError, match="completed"):
        served.cancel(task.id)
    assert served.get(task.id) == task


def test_a_cancel_beside_the_completion_leaves_exactly_one_end(serve):
    for _ in range(15):
        gate = Gate()

        def handler(message, context, gate=gate):
            gate.block()
            yield "a"

        served = serve(handler)
        sender = served.in_background()
        gate.wait()
        (task,) = served.list().tasks
        stream = served.subscribe(task.id)
        cancels = [Background(lambda t=task, s=served: s.cancel(t.id)) for _ in range(2)]
        gate.open.set()
        outcomes = [_outcome(cancel) for cancel in cancels]
        ended = sender.result()
        items = collect(stream)
        served.quiet()
        (end,) = terminal(served.states(task.id))
        assert ended.state is end is items[-1].event.status.state
        assert outcomes.count(S.CANCELED) == (1 if end is S.CANCELED else 0)


def _outcome(cancel):
    try:
        return cancel.result().state
    except TaskNotCancelableError:
        return None


def test_a_waiting_task_can_be_cancelled_though_nothing_runs(serve):
    served = serve(lambda message, context: status(S.INPUT_REQUIRED))
    task = served.send()
    stream = served.subscribe(task.id)
    assert served.cancel(task.id).state is S.CANCELED
    assert collect(stream)[-1].event.status.state is S.CANCELED


# -- the store fails ----------------------------------------------------------------------------------------------------


class Faulty(MemoryStore):
    """Fails the nth write or read from when it is armed, before or after doing the work."""

    def __init__(self):
        super().__init__()
        self.fail = frozenset()
        self.after = False
        self.calls = itertools.count()
        self.armed = False


def _faulty(name):
    def method(self, *args, **options):
        if not self.armed:
            return getattr(MemoryStore, name)(self, *args, **options)
        number = next(self.calls)
        result = None
        if self.after or number not in self.fail:
            result = getattr(MemoryStore, name)(self, *args, **options)
        if number in self.fail:
            raise StoreError("disk on fire")
        return result

    return method


for _name in ("start_run", "append", "interrupt", "head", "load", "log", "request", "list"):
    setattr(Faulty, _name, _faulty(_name))


def two_turns(message, context):
    if len(context.history) == 1:
        context.update("working on it")
        with context.artifact("notes") as notes:
            notes.write("a")
        return status(S.INPUT_REQUIRED)
    return "xy"


def conversation(served):
    """Every kind of call once; what came of each, errors included."""
    first = _attempt(lambda: served.send("one"))
    task_id = getattr(first, "id", None) or served.store.list(Owner(), TaskQuery()).tasks[0].id
    calls = [
        lambda: served.subscribe(task_id),
        lambda: collect(served.stream("two", task_id=task_id)),
        lambda: served.get(task_id),
        lambda: served.list(),
        lambda: served.cancel(task_id),
    ]
    return [first, *(_attempt(call) for call in calls)]


def _attempt(call):
    try:
        return Background(call).result(TIMEOUT / 2)
    except AgentError as error:
        return error


@pytest.mark.parametrize(
    ("number", "after"),
    # A task whose creation was stored though the store said otherwise is left out: its id is unknown to clients.
    [*((number, False) for number in range(16)), *((number, True) for number in range(1, 16))],
)
def test_one_fault_of_the_store_is_an_error_with_an_id_and_nothing_hangs(number, after, caplog):
    store = Faulty()
    served = Served(two_turns, store=store, busy_task_timeout=0.1)
    served.send("zero")
    store.fail, store.after, store.armed = {number}, after, True
    outcomes = conversation(served)
    for outcome in outcomes:
        assert "disk on fire" not in repr(outcome)
        if isinstance(outcome, InternalError):
            incident = outcome.message.removeprefix("internal error (id ").rstrip(")")
            assert f"(id {incident})" in caplog.text
    assert next(store.calls) > number, "the fault was never met: take fewer"
    # The fault is over: every run ends, every place is free, and every task can be ended.
    served.quiet()
    for task in served.list().tasks:
        eventually(lambda task=task: not served.store.head(Owner(), task.id).running, "the run's end in the store")
        assert len(terminal(served.states(task.id))) <= 1
    assert served.send("after").state is S.INPUT_REQUIRED
    served.close()


def test_a_store_that_stays_broken_leaves_no_caller_waiting(caplog):
    store, gate = Faulty(), Gate()

    def handler(message, context):
        gate.block()
        yield "a"

    served = Served(handler, store=store)
    sender, stream = served.in_background("go"), served.stream("go")
    assert stream.poll(0)
    gate.wait()
    store.fail, store.armed = range(1_000_000), True
    gate.open.set()
    for waiting in (sender.result, lambda: collect(stream)):
        with pytest.raises(InternalError, match=r"internal error \(id \w+\)"):
            waiting()
    served.quiet()
    assert "a run's end could not be stored" in caplog.text
    # The watchdog goes on trying: once the store is back, the tasks end.
    store.armed = False
    for task in served.list().tasks:
        assert served.until(task.id, S.FAILED).status.message.text.startswith("internal error (id ")
    served.close()


def test_an_end_that_was_stored_though_the_store_said_otherwise_stands():
    store = Faulty()
    served = Served(lambda message, context: "done", store=store)
    append, calls = store.append, itertools.count()

    def lie(token, events, *, end=False, **options):
        entries = append(token, events, end=end, **options)
        if next(calls) == 0:
            raise StoreError("the connection broke behind the commit")
        return entries

    store.append = lie
    assert served.send().state is S.COMPLETED
    served.quiet()
    (task,) = served.list().tasks
    assert terminal(served.states(task.id)) == [S.COMPLETED]
    served.close()


# -- history ------------------------------------------------------------------------------------------------------------


def test_the_history_has_the_users_words_the_results_and_the_questions_and_no_progress(serve):
    def handler(message, context):
        context.update("working on it")
        if message.text == "start":
            return InputRequired("really?")
        return "result"

    served = serve(handler)
    task = served.send("start")
    task = served.send("yes", task_id=task.id)
    assert texts(task.history) == ["user: start", "agent: really?", "user: yes", "agent: result"]
