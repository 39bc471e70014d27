"""The operations: what is checked first, what is waited for, and what comes back."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from a2a_sync import AuthRequired, InputRequired
from a2a_sync import operations as op
from a2a_sync.agent.mediatypes import InputMediaTypes
from a2a_sync.card import AgentCapabilities
from a2a_sync.errors import (
    AgentError,
    InvalidParamsError,
    MethodNotFoundError,
    OverloadedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.lifecycle import Fold
from a2a_sync.operations import Principal
from a2a_sync.server.handler import RequestHandler
from a2a_sync.stores import rows
from a2a_sync.stores.base import SMALL_BYTES
from a2a_sync.stores.memory import MemoryStore, records
from a2a_sync.types import (
    Artifact,
    CancelTaskRequest,
    DataPart,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from tests.engine import STORES, TIMEOUT, Background, Gate, Served, collect, eventually, serving, serving_over, texts

S = TaskState


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


@pytest.fixture
def quick():
    """Where the store makes no difference."""
    yield from serving()


def echo(message, context):
    return InputRequired("and then?") if message.text == "ask" else message.text


class Turns:
    """A handler with a gate for each text that begins with "hold"; other texts ask for more."""

    def __init__(self):
        self.gates = {}

    def gate(self, text):
        return self.gates.setdefault(text, Gate())

    def __call__(self, message, context):
        if message.text.startswith("hold"):
            self.gate(message.text).block()
        return message.text if message.text.endswith("end") else InputRequired(f"after {message.text}?")


def numbers(items):
    return [item.number for item in items]


# -- what is checked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE], ids=lambda o: o.name)
def test_a_send_that_says_nothing_is_refused_by_member(quick, operation):
    served = quick(echo)
    request = served.request("hi")
    for message, member in (
        (replace(request.message, parts=()), "message.parts"),
        (replace(request.message, message_id=""), "message.messageId"),
    ):
        with pytest.raises(InvalidParamsError) as refused:
            served.call(operation, replace(request, message=message))
        assert [violation.field for violation in refused.value.violations] == [member]
    assert served.list().total_size == 0


def test_a_negative_history_length_is_refused_by_member(quick):
    served = quick(echo)
    task = served.send("hi")
    for call, member in (
        (lambda: served.send("hi", history_length=-1), "configuration.historyLength"),
        (lambda: served.stream("hi", history_length=-1), "configuration.historyLength"),
        (lambda: served.get(task.id, -1), "historyLength"),
        (lambda: served.list(history_length=-1), "historyLength"),
    ):
        with pytest.raises(InvalidParamsError) as refused:
            call()
        assert refused.value.violations[0].field == member


def test_there_is_no_extended_card(quick):
    with pytest.raises(UnsupportedOperationError, match="no extended card"):
        quick(echo).call(op.GET_EXTENDED_CARD, GetExtendedAgentCardRequest())


def test_an_unknown_operation_is_no_method(quick):
    with pytest.raises(MethodNotFoundError):
        quick(echo).call(op.Operation("Dance", GetTaskRequest, None), GetTaskRequest(id="x"))


def test_every_operation_has_a_method(quick):
    served = quick(echo)
    app = served.app
    modes, can = InputMediaTypes(app.agent_card()), AgentCapabilities()
    handler = RequestHandler(app._engine, can, modes)
    assert set(handler._methods) == set(op.OPERATIONS.values())


def test_an_agent_that_does_not_stream_says_so(quick):
    served = quick(echo)
    app = served.app
    modes = InputMediaTypes(app.agent_card())
    mute = AgentCapabilities(streaming=False)
    handler = RequestHandler(app._engine, mute, modes)
    for call in (
        op.Call(op.SEND_STREAMING_MESSAGE, served.request("hi")),
        op.Call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="x")),
    ):
        with pytest.raises(UnsupportedOperationError, match="does not stream"):
            handler(call)


@pytest.mark.parametrize("name", ["send", "stream", "get", "cancel", "subscribe"])
def test_an_unknown_task_is_not_found(serve, name):
    served = serve(echo)
    calls = {
        "send": lambda: served.send(task_id="nope"),
        "stream": lambda: served.stream(task_id="nope"),
        "get": lambda: served.get("nope"),
        "cancel": lambda: served.cancel("nope"),
        "subscribe": lambda: served.subscribe("nope"),
    }
    with pytest.raises(TaskNotFoundError):
        calls[name]()
    assert served.app._engine.hub._listeners == {}


def test_a_foreign_task_answers_exactly_like_an_unknown_one(serve):
    served = serve(echo)
    ada, eve = Principal(id="ada"), Principal(id="eve")
    task = served.call(op.SEND_MESSAGE, served.request("ask"), principal=ada)

    def calls(task_id, **context):
        message = served.request("hi", task_id=task_id)
        yield lambda: served.call(op.GET_TASK, GetTaskRequest(id=task_id), **context)
        yield lambda: served.call(op.CANCEL_TASK, CancelTaskRequest(id=task_id), **context)
        yield lambda: served.call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), **context)
        yield lambda: served.call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), last_event_id=1, **context)
        yield lambda: served.call(op.SEND_MESSAGE, message, **context)
        yield lambda: served.call(op.SEND_STREAMING_MESSAGE, message, **context)

    def answers(task_id, **context):
        for call in calls(task_id, **context):
            with pytest.raises(AgentError) as refused:
                call()
            yield type(refused.value), refused.value.message.replace(task_id, "ID"), refused.value.metadata

    foreign = list(answers(task.id, principal=eve))
    assert foreign == list(answers("no-such-task", principal=eve))
    assert {kind for kind, _, _ in foreign} == {TaskNotFoundError}
    assert list(answers(task.id)) == foreign
    assert served.call(op.LIST_TASKS, ListTasksRequest(), principal=eve).total_size == 0
    assert served.call(op.LIST_TASKS, ListTasksRequest(tenant="acme"), principal=ada).total_size == 0
    assert served.call(op.LIST_TASKS, ListTasksRequest(), principal=ada).total_size == 1


# -- contexts -----------------------------------------------------------------------------------------------------------


def test_a_clients_own_context_is_taken_and_one_is_made_where_it_has_none(serve):
    served = serve(echo)
    assert served.send("hi", context_id="mine").context_id == "mine"
    made = served.send("hi")
    assert made.context_id
    assert made.history[0].context_id == made.context_id


def test_a_message_to_a_task_has_its_context_and_may_name_no_other(serve):
    served = serve(echo)
    task = served.send("ask", context_id="c1")
    before = served.log(task.id)
    with pytest.raises(InvalidParamsError) as refused:
        served.send("hi", task_id=task.id, context_id="c2")
    assert refused.value.violations[0].field == "message.contextId"
    assert served.log(task.id) == before
    continued = served.send("hi", task_id=task.id)
    assert continued.context_id == "c1"
    assert {message.context_id for message in continued.history} == {"c1"}


# -- waiting ------------------------------------------------------------------------------------------------------------


def test_a_blocking_send_returns_the_ended_task(serve):
    task = serve(echo).send("hi")
    assert (task.state, task.text, texts(task.history)) == (S.COMPLETED, "hi", ["user: hi", "agent: hi"])


def test_return_immediately_returns_a_task_that_is_still_running(serve):
    turns = Turns()
    served = serve(turns)
    task = served.send("hold end", return_immediately=True)
    assert (task.state, texts(task.history)) == (S.WORKING, ["user: hold end"])
    turns.gate("hold end").open.set()
    assert served.until(task.id, S.COMPLETED)


def test_a_blocking_send_can_be_bounded(serve):
    turns = Turns()
    served = serve(turns, blocking_send_timeout=0.05)
    task = served.send("hold end")
    assert task.state is S.WORKING
    turns.gate("hold end").open.set()
    assert served.until(task.id, S.COMPLETED)


def test_a_waiting_send_does_not_read_its_task_before_it_may_have_paused(serve, monkeypatch):
    turns, reads, checked = Turns(), [], threading.Event()
    served = serve(turns)
    load, head = served.store.load, served.store.head
    monkeypatch.setattr(served.store, "load", lambda *a, **k: reads.append("load") or checked.set() or load(*a, **k))
    monkeypatch.setattr(served.store, "head", lambda *a: reads.append("head") or checked.set() or head(*a))
    sender = served.in_background("hold end")
    turns.gate("hold end").wait()
    (task_id,) = eventually(lambda: served.app._engine.hub.followed, "the waiting send")
    # As a poll of the store does.
    served.app._engine.hub.hint(task_id)
    assert checked.wait(TIMEOUT)
    assert reads == ["head"]
    turns.gate("hold end").open.set()
    assert sender.result().state is S.COMPLETED


def test_a_caller_that_leaves_is_not_waited_for_and_the_task_goes_on(serve):
    turns, gone = Turns(), threading.Event()
    served = serve(turns)
    sender = Background(lambda: served.call(op.SEND_MESSAGE, served.request("hold end"), gone=gone.is_set))
    turns.gate("hold end").wait()
    gone.set()
    with pytest.raises(OverloadedError, match="closed while the task went on"):
        sender.result(TIMEOUT / 2)
    turns.gate("hold end").open.set()
    (task,) = served.list().tasks
    assert served.until(task.id, S.COMPLETED)
    assert served.app._engine.hub._listeners == {}


def test_many_senders_at_once_each_get_their_own_task(serve):
    served = serve(echo, max_concurrent_runs=4)
    senders = [served.in_background(f"n{number}") for number in range(24)]
    assert [sender.result().text for sender in senders] == [f"n{number}" for number in range(24)]
    served.quiet()


# -- busy tasks ---------------------------------------------------------------------------------------------------------


def busy(served, turns, text="hold"):
    task_id = served.begin(text)
    turns.gate(text).wait()
    return task_id


def test_a_message_to_a_busy_task_waits_and_then_runs(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns)
    before = served.log(task_id)
    second = served.in_background("the end", task_id=task_id)
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) >= 1)
    assert served.log(task_id) == before
    turns.gate("hold").open.set()
    assert second.result().text == "the end"
    assert texts(served.get(task_id).history) == [
        "user: hold",
        "agent: after hold?",
        "user: the end",
        "agent: the end",
    ]


def paying(gate, paid):
    def pay(message, context):
        if context.confirm("Pay 10?"):
            paid.append(10)
        gate.block()
        if context.confirm("Pay 1000?"):
            paid.append(1000)
        return "done"

    return pay


def test_a_message_that_waited_does_not_answer_a_question_asked_since(serve):
    gate, paid = Gate(), []
    served = serve(paying(gate, paid))
    task_id = served.send("go").id
    first = served.in_background("yes", task_id=task_id)
    gate.wait()
    # The run has begun: the first call ends its wait for a free task, and then waits for the answer only.
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) == 1)
    second = served.in_background("yes", task_id=task_id)
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) >= 2)
    gate.open.set()
    assert first.result().status.message.text.startswith("Pay 1000?")
    with pytest.raises(UnsupportedOperationError, match="asked a question since"):
        second.result()
    assert paid == [10]
    served.send("yes", task_id=task_id)
    assert paid == [10, 10, 1000]


def test_a_message_that_is_sent_again_does_not_answer_the_question_it_has_led_to(serve):
    gate, paid = Gate(), []
    gate.open.set()
    served = serve(paying(gate, paid))
    task_id = served.send("go").id
    request = served.request("yes", task_id=task_id)
    served.call(op.SEND_MESSAGE, request)
    with pytest.raises(UnsupportedOperationError, match="has received this message"):
        served.call(op.SEND_MESSAGE, request)
    with pytest.raises(UnsupportedOperationError, match="has received this message"):
        served.call(op.SEND_STREAMING_MESSAGE, request)
    assert paid == [10]
    other = replace(request, message=replace(request.message, parts=(TextPart("no"),)))
    assert served.call(op.SEND_MESSAGE, other).state is TaskState.COMPLETED


@pytest.mark.parametrize("operation", [op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE], ids=["send", "stream"])
def test_large_messages_are_read_for_a_small_one_within_the_budget_of_responses(serve, monkeypatch, operation):
    gate, paid = Gate(), []
    gate.open.set()
    served = serve(paying(gate, paid))
    task_id = served.send("go" + "x" * SMALL_BYTES).id
    request = served.request("yes", task_id=task_id, history_length=0)
    budget, load, reserved = served.app._engine.responses, served.store.load, []

    def recorded(*args, **kwargs):
        stored = load(*args, **kwargs)
        if kwargs.get("artifacts") is False:
            reserved.append(budget._taken)
        return stored

    monkeypatch.setattr(served.store, "load", recorded)
    result = served.call(operation, request, gone=lambda: False)
    if operation is op.SEND_STREAMING_MESSAGE:
        collect(result)
    budget.release()
    assert paid == [10]
    assert [size > SMALL_BYTES for size in reserved] == [True]
    assert (budget._taken, budget._owners, budget._turn) == (0, {}, None)
    with pytest.raises(UnsupportedOperationError, match="has received this message"):
        served.call(operation, request, gone=lambda: False)


@pytest.mark.parametrize("operation", [op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE], ids=["send", "stream"])
def test_a_message_does_not_answer_a_question_asked_between_its_check_and_its_start(serve, monkeypatch, operation):
    """A second worker checks the repeated "yes" while the first one executes it: both have read the first question."""
    gate, paid = Gate(), []
    gate.open.set()
    served = serve(paying(gate, paid))
    task_id = served.send("go").id
    request = served.request("yes", task_id=task_id)
    start_run, first = served.app._engine.runs.start_run, []

    def overtaken(*args, **kwargs):
        if not first:
            first.append(True)
            first.append(served.send("yes", task_id=task_id))
        return start_run(*args, **kwargs)

    monkeypatch.setattr(served.app._engine.runs, "start_run", overtaken)
    with pytest.raises(UnsupportedOperationError, match="asked a question since"):
        served.call(operation, request)
    assert first[1].status.message.text.startswith("Pay 1000?")
    assert paid == [10]


def test_many_messages_to_a_busy_task_do_not_all_try_at_each_end_of_a_run(serve, monkeypatch):
    """Hundreds of them occupied the store with attempts that fail."""
    turns, count, reads, tries = Turns(), 30, [], []
    served = serve(turns)
    task_id = served.send("first").id
    first = served.in_background("hold", task_id=task_id)
    turns.gate("hold").wait()
    head, check = served.app.store.head, RequestHandler._check_still_answers
    monkeypatch.setattr(served.app.store, "head", lambda *args: reads.append(args) or head(*args))
    monkeypatch.setattr(
        RequestHandler, "_check_still_answers", lambda *args, **options: tries.append(args) or check(*args, **options)
    )
    sends = [served.in_background(f"message {number}", task_id=task_id) for number in range(count)]
    eventually(lambda: len(reads) > count, "the messages that wait")
    turns.gate("hold").open.set()
    assert first.result().state is TaskState.INPUT_REQUIRED
    for send in sends:
        assert send.result().state is TaskState.INPUT_REQUIRED
    # Each tries once or twice, when it is its turn; nothing public counts that apart from reads of calls that wait.
    assert 0 < len(tries) < 3 * count
    assert len(served.get(task_id).history) >= 2 * (count + 2) - 1


def test_it_gets_the_answer_to_its_own_message_not_to_the_one_before(serve):
    """The end of the run before wakes all waiting calls; that must not be taken for the answer."""
    for _ in range(5):
        turns = Turns()
        served = serve(turns)
        task_id = busy(served, turns)
        second = served.in_background("hold 2", task_id=task_id)
        eventually(lambda t=task_id, s=served: len(s.app._engine.hub._listeners.get(t, ())) >= 2)
        turns.gate("hold").open.set()
        turns.gate("hold 2").wait()
        assert second.waiting
        turns.gate("hold 2").open.set()
        assert second.result().text == "after hold 2?"


def test_a_streamed_message_to_a_busy_task_shows_its_own_run_only(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns)
    opening = Background(lambda: served.stream("the end", task_id=task_id))
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) >= 1)
    turns.gate("hold").open.set()
    first, *rest = collect(opening.result())
    assert texts(first.event.history) == ["user: hold", "agent: after hold?", "user: the end"]
    assert first.event.state is S.WORKING
    assert numbers(rest) == sorted(numbers(rest))
    assert numbers(rest)[0] > first.number
    assert rest[-1].event.status.state is S.COMPLETED
    assert [item.event.artifact.text for item in rest[:-1]] == ["the end"]


def test_a_task_stays_busy_for_so_long_only(serve):
    turns = Turns()
    served = serve(turns, busy_task_timeout=0.05)
    task_id = busy(served, turns)
    before = served.log(task_id)
    for call in (served.send, served.stream):
        with pytest.raises(UnsupportedOperationError, match="busy") as refused:
            call("more", task_id=task_id)
        assert refused.value.metadata == {"taskId": task_id}
    assert served.log(task_id) == before
    turns.gate("hold").open.set()
    served.quiet()


def test_a_send_that_returns_immediately_does_not_wait_for_a_busy_task(serve):
    turns = Turns()
    served = serve(turns, busy_task_timeout=TIMEOUT * 2)
    task_id = busy(served, turns)
    sending = Background(lambda: served.send("more", task_id=task_id, return_immediately=True))
    with pytest.raises(UnsupportedOperationError, match="busy"):
        sending.result(TIMEOUT / 2)
    turns.gate("hold").open.set()


def test_a_task_that_ends_meanwhile_takes_no_further_message(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns, "hold end")
    before = len(served.log(task_id))
    second = served.in_background("more", task_id=task_id)
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) >= 1)
    turns.gate("hold end").open.set()
    with pytest.raises(UnsupportedOperationError, match="completed"):
        second.result()
    assert "more" not in [entry.event.text for entry in served.log(task_id)[before:] if type(entry.event) is Message]


def test_of_several_that_wait_each_gets_its_turn(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns)
    waiting = [served.in_background(f"turn {number}", task_id=task_id) for number in range(4)]
    eventually(lambda: len(served.app._engine.hub._listeners.get(task_id, ())) >= 4)
    turns.gate("hold").open.set()
    states = {sender.result().state for sender in waiting}
    assert states == {S.INPUT_REQUIRED}
    said = [message.text for message in served.get(task_id).history]
    assert sorted(said[2::2]) == [f"turn {number}" for number in range(4)]
    assert said[3::2] == [f"after {text}?" for text in said[2::2]]


def test_a_waiting_caller_that_disconnects_ends_its_wait(serve):
    turns, gone = Turns(), threading.Event()
    served = serve(turns)
    task_id = busy(served, turns)
    request = served.request("more", task_id=task_id)
    sender = Background(lambda: served.call(op.SEND_MESSAGE, request, gone=gone.is_set))
    gone.set()
    with pytest.raises(OverloadedError):
        sender.result(TIMEOUT / 2)
    turns.gate("hold").open.set()


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED])
def test_a_task_that_has_ended_takes_neither_message_nor_subscriber(serve, state):
    served = serve(lambda message, context: TaskStatusUpdateEvent(status=TaskStatus(state=state)))
    task = served.send()
    for call in (
        lambda: served.send(task_id=task.id),
        lambda: served.stream(task_id=task.id),
        lambda: served.subscribe(task.id),
    ):
        with pytest.raises(UnsupportedOperationError, match=state):
            call()
    assert served.app._engine.hub._listeners == {}


# -- history ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (None, ["user: ask", "agent: and then?", "user: x", "agent: x"]),
        (0, []),
        (1, ["agent: x"]),
        (3, ["agent: and then?", "user: x", "agent: x"]),
        (99, ["user: ask", "agent: and then?", "user: x", "agent: x"]),
    ],
)
def test_history_length_gives_the_newest_messages(serve, length, said):
    served = serve(echo)
    task = served.send("ask")
    task = served.send("x", task_id=task.id, history_length=length)
    assert texts(task.history) == said
    assert texts(served.get(task.id, length).history) == said
    assert texts(served.list(history_length=length).tasks[0].history) == said
    assert len(served.get(task.id).history) == 4


@pytest.mark.parametrize(("length", "said"), [(None, 3), (0, 0), (1, 1), (2, 2)])
def test_it_holds_for_the_task_that_a_stream_begins_with(serve, length, said):
    served = serve(echo)
    fresh = collect(served.stream("x", history_length=length))[0].event
    assert len(fresh.history) == min(said, 1)
    task = served.send("ask")
    continued = collect(served.stream("x", task_id=task.id, history_length=length))[0].event
    assert len(continued.history) == said


def test_the_servers_own_bound_holds_whatever_is_asked(serve):
    served = serve(echo, max_history_length=2)
    task = served.send("ask")
    task = served.send("x", task_id=task.id, history_length=50)
    assert texts(task.history) == ["user: x", "agent: x"]
    assert len(served.get(task.id).history) == 2


# -- subscribing --------------------------------------------------------------------------------------------------------


def test_a_subscriber_gets_the_task_as_it_is_and_then_what_follows(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns, "hold end")
    stream = served.subscribe(task_id)
    turns.gate("hold end").open.set()
    first, *rest = collect(stream)
    assert (first.event, first.number) == (replace(served.get(task_id), **_as_begun(served, task_id)), 3)
    assert numbers(rest) == [4, 6]
    assert rest[-1].event.status.state is S.COMPLETED


def _as_begun(served, task_id):
    working = served.log(task_id)[2].event.status
    return {"status": working, "artifacts": (), "history": served.get(task_id).history[:1]}


def test_a_snapshot_and_what_follows_add_up_to_the_task(serve):
    start = Gate()

    def handler(message, context):
        start.block()
        with context.artifact("a") as writer:
            for number in range(40):
                writer.write(f"{number} ")

    served = serve(handler, max_buffered_batches=2)
    task_id = served.begin()
    start.wait()
    streams = [served.subscribe(task_id)]
    start.open.set()
    with contextlib.suppress(UnsupportedOperationError):  # when the task has ended
        streams.extend(served.subscribe(task_id) for _ in range(20))
    for stream in streams:
        items = collect(stream)
        fold = Fold()
        for item in items:
            fold.apply(item.event)
        assert fold.task().text == "".join(f"{number} " for number in range(40))


def test_the_subscriber_of_a_waiting_task_sees_the_next_run(serve):
    served = serve(echo)
    task = served.send("ask")
    stream = served.subscribe(task.id)
    assert [item.event.state for item in stream.poll(0)] == [S.INPUT_REQUIRED]
    assert stream.poll(0) == []
    served.send("x", task_id=task.id)
    states = [item.event.status.state for item in collect(stream) if isinstance(item.event, TaskStatusUpdateEvent)]
    assert states == [S.WORKING, S.COMPLETED]


def test_a_resumed_stream_is_the_rest_of_the_one_that_was_cut(serve):
    served = serve(lambda message, context: iter_chunks(context))
    whole = collect(served.stream())
    task_id = whole[0].event.id
    for cut in range(len(whole) - 1):
        last = whole[cut].number
        rest = collect(served.subscribe(task_id, after=last))
        assert [(item.number, item.event) for item in rest] == [(item.number, item.event) for item in whole[cut + 1 :]]
        assert not any(isinstance(item.event, Task) for item in rest)


def iter_chunks(context):
    with context.artifact("a") as writer:
        for number in range(5):
            writer.write(f"{number} ")
    return context.agent_message("done")


def test_a_resumed_stream_ends_with_its_run_though_the_next_goes_on(serve):
    turns = Turns()
    served = serve(turns)
    task = served.send("ask")
    asked = served.log(task.id)[-1].number
    served.begin("hold", task_id=task.id)
    turns.gate("hold").wait()
    assert numbers(collect(served.subscribe(task.id, after=1)))[-1] == asked
    following = served.subscribe(task.id, after=asked)
    turns.gate("hold").open.set()
    items = collect(following)
    assert items[-1].event.status.state is S.INPUT_REQUIRED
    assert numbers(items)[0] > asked


def test_a_resumed_stream_of_a_run_that_goes_on_follows_it(serve):
    turns = Turns()
    served = serve(turns)
    task_id = busy(served, turns, "hold end")
    stream = served.subscribe(task_id, after=2)
    assert numbers(stream.poll(0)) == [3]
    turns.gate("hold end").open.set()
    assert numbers(collect(stream)) == [4, 6]


def test_nothing_follows_the_last_entry_of_a_task_that_ended(serve):
    served = serve(echo)
    task = served.send("x")
    last = served.log(task.id)[-1].number
    assert collect(served.subscribe(task.id, after=last)) == []
    assert numbers(collect(served.subscribe(task.id, after=0)))[-1] == last


def test_a_resumed_stream_decodes_no_messages(serve, monkeypatch):
    """Eight messages of 9.4 MB and ten such calls a second delayed another caller by 23 seconds."""
    served, decoded = serve(lambda message, context: AuthRequired("sign in")), []
    task = served.send("first")
    served.send("second", task_id=task.id)
    for module, read in ((rows, "event"), (records, "unpack")):
        original = getattr(module, read)
        monkeypatch.setattr(module, read, lambda *row, original=original: decoded.append(original(*row)) or decoded[-1])
    entries = served.log(task.id)
    said = [entry.number for entry in entries if not entry.streamed]
    assert said[2:]
    for after in (0, *said):
        rest = numbers(collect(served.subscribe(task.id, after=after)))
        assert rest[0] == min(entry.number for entry in entries if entry.streamed and entry.number > after)
    assert not [event for event in decoded if isinstance(event, Message)]
    assert isinstance(entries[0].event, Message)
    assert decoded[-1] is entries[0].event


@pytest.mark.parametrize("ended", [True, False])
def test_where_a_resumed_stream_would_repeat_large_events_it_begins_with_the_task(serve, ended):
    large = DataPart({"key": "x" * (SMALL_BYTES + 1000)})

    def handler(message, context):
        context.artifact("a").write(large)
        context.artifact("b").write("b")
        return None if ended else InputRequired("which?")

    served = serve(handler)
    task = served.send("go")
    entries = served.log(task.id)
    (first,) = (item for item in collect(served.subscribe(task.id, after=1)))
    assert (first.event, first.number) == (served.get(task.id), entries[-1].number)
    after = next(entry.number for entry in entries if "'a'" in repr(entry.event) and entry.streamed)
    rest = collect(served.subscribe(task.id, after=after))
    assert numbers(rest) == [entry.number for entry in entries if entry.streamed and entry.number > after]


@pytest.mark.parametrize("number", [-1, 99, 10**15])
def test_a_number_that_means_nothing_counts_as_none(serve, number):
    served = serve(echo)
    task = served.send("ask")
    stream = served.subscribe(task.id, after=number)
    assert [item.event.state for item in stream.poll(0)] == [S.INPUT_REQUIRED]
    stream.close()
    ended = served.send("x")
    with pytest.raises(UnsupportedOperationError):
        served.subscribe(ended.id, after=number)
    assert served.app._engine.hub._listeners == {}


def test_a_stream_that_is_closed_leaves_task_and_others_alone(serve):
    turns = Turns()
    served = serve(turns)
    first = served.stream("hold end")
    task_id = first.poll(0)[0].event.id
    second = served.subscribe(task_id)
    first.close()
    turns.gate("hold end").open.set()
    assert collect(second)[-1].event.status.state is S.COMPLETED
    assert served.app._engine.hub._listeners == {}


# -- listing ------------------------------------------------------------------------------------------------------------


def pages(served, **members):
    """All pages as lists of texts, and what each said of the whole."""
    found, token = [], ""
    for _ in range(50):
        page = served.list(page_token=token, **members)
        found.append([task.history[0].text for task in page.tasks])
        token = page.next_page_token
        if not token:
            return found, page
    raise AssertionError("the pages do not end")


def test_tasks_are_listed_newest_first_and_each_once(serve):
    served = serve(echo)
    names = [f"t{number}" for number in range(7)]
    for name in names:
        served.send(name)
    found, last = pages(served, page_size=3)
    assert [len(page) for page in found] == [3, 3, 1]
    assert sorted(itertools.chain(*found)) == names
    assert (last.total_size, last.page_size, last.next_page_token) == (7, 3, "")
    times = [task.status.timestamp for task in served.list().tasks]
    assert times == sorted(times, reverse=True)


def test_lists_can_be_filtered(serve):
    served = serve(echo)
    served.send("ask", context_id="c1")
    served.send("b", context_id="c1")
    served.send("c", context_id="c2")
    assert [task.history[0].text for task in served.list(context_id="c2").tasks] == ["c"]
    assert served.list(context_id="c1", status=S.INPUT_REQUIRED).total_size == 1
    assert served.list(context_id="missing").tasks == ()
    now = datetime.now(UTC)
    assert served.list(status_timestamp_after=now - timedelta(minutes=1)).total_size == 3
    assert served.list(status_timestamp_after=now + timedelta(minutes=1)).total_size == 0


def test_the_filter_by_time_takes_the_moment_itself_and_nothing_before(serve):
    served = serve(echo)
    moment = served.send("x").status.timestamp
    assert served.list(status_timestamp_after=moment).total_size == 1
    assert served.list(status_timestamp_after=moment + timedelta(microseconds=1)).total_size == 0


def test_artifacts_are_listed_only_when_they_are_asked_for(serve):
    served = serve(echo)
    served.send("x")
    assert served.list().tasks[0].artifacts == ()
    assert served.list(include_artifacts=True).tasks[0].artifacts[0].text == "x"


@pytest.mark.parametrize("size", [0, -1, 101, 10**9])
def test_a_page_size_out_of_range_is_refused(quick, size):
    with pytest.raises(InvalidParamsError, match="pageSize: must be between 1 and 100"):
        quick(echo).list(page_size=size)


def test_a_server_may_return_fewer_than_were_asked_for(quick):
    served = quick(echo, max_page_size=2)
    for text in "abc":
        served.send(text)
    for size in (None, 2, 100):
        page = served.list(page_size=size)
        assert (len(page.tasks), page.page_size, page.total_size) == (2, 2, 3)


def test_a_token_belongs_to_its_filter(serve):
    served = serve(echo)
    for text in "abc":
        served.send(text, context_id="c1")
    token = served.list(page_size=1, context_id="c1").next_page_token
    assert served.list(page_size=2, context_id="c1", page_token=token).tasks
    for other in (
        {},
        {"context_id": "c2"},
        {"context_id": "c1", "status": S.COMPLETED},
        {"context_id": "c1", "status_timestamp_after": datetime(2020, 1, 1, tzinfo=UTC)},
        {"context_id": "c1", "tenant": "acme"},
    ):
        with pytest.raises(InvalidParamsError, match="pageToken: belongs to another filter"):
            served.list(page_token=token, **other)


def forged(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def mark(served):
    for text in "ab":
        served.send(text)
    token = served.list(page_size=1).next_page_token
    return json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))[2]


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "====",
        "AAAA",
        "é",
        "�",
        "0" * 5000,
        forged(5),
        forged([1, 2]),
        forged({"a": 1, "b": 2, "c": 3}),
        forged(["1", "id", "m"]),
        forged([True, "id", "m"]),
        forged([2**62, "id", "m"]),
        forged([1.5, "id", "m"]),
    ],
)
def test_junk_is_no_page_token(quick, token):
    with pytest.raises(InvalidParamsError) as refused:
        quick(echo).list(page_token=token)
    assert refused.value.violations[0].field == "pageToken"


def test_a_token_that_was_forged_with_the_right_mark_still_does_no_harm(serve):
    served = serve(echo)
    known = mark(served)
    assert served.list(page_token=forged([2**61, "m", known])).total_size == 2
    assert served.list(page_token=forged([-(2**61), "", known])).tasks == ()
    for name in ("\ud800", "\x00"):
        with pytest.raises(InvalidParamsError):
            served.list(page_token=forged([1, name, known]))


# -- answers ------------------------------------------------------------------------------------------------------------


def test_a_cancelled_task_is_returned_as_it_is_then(serve):
    served = serve(echo)
    task = served.cancel(served.send("ask").id)
    assert (task.state, texts(task.history)) == (S.CANCELED, ["user: ask", "agent: and then?"])
    assert served.get(task.id) == task


def test_a_cancelled_task_that_a_concurrent_send_evicts_is_returned_without_what_was_said(monkeypatch):
    served = Served(echo, store=MemoryStore(max_tasks=1))
    task = served.send("ask")
    interrupt = served.store.interrupt

    def evicted(*arguments):
        entries = interrupt(*arguments)
        served.send("another")
        return entries

    monkeypatch.setattr(served.store, "interrupt", evicted)
    canceled = served.cancel(task.id)
    assert (canceled.id, canceled.context_id, canceled.state) == (task.id, task.context_id, S.CANCELED)
    assert canceled.history == ()
    with pytest.raises(TaskNotFoundError):
        served.get(task.id)
    served.close()


def test_what_a_blocking_send_returns_is_what_the_store_has(serve):
    def handler(message, context):
        context.update("working on it", metadata={"percent": 1})
        yield "a"
        yield Artifact(name="b", parts=(TextPart("b"),))
        return InputRequired("more?") if message.text == "ask" else None

    served = serve(handler)
    task = served.send("ask")
    assert task == served.get(task.id)
    task = served.send("x", task_id=task.id)
    assert task == served.get(task.id)


def test_a_stream_adds_up_to_what_the_store_has(serve):
    def handler(message, context):
        context.update("working on it", metadata={"percent": 1})
        yield "a"
        yield "b"

    served = serve(handler)
    fold = Fold()
    for item in collect(served.stream("x")):
        fold.apply(item.event)
    task, stored = fold.task(), served.get(fold.task().id)
    assert (task.status, task.artifacts, task.metadata) == (stored.status, stored.artifacts, stored.metadata)


def test_a_request_without_configuration_is_a_blocking_one(quick):
    served = quick(echo)
    assert served.call(op.SEND_MESSAGE, SendMessageRequest(message=served.request("x").message)).text == "x"
