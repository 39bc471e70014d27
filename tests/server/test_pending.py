"""Sends that are deferred: no thread waits for them, and what surrounds a call lasts until its answer."""

from __future__ import annotations

import gc
import math
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import Agent, InputRequired, Limits, RateLimit
from a2a_sync.engine.hub import Signal, Steps, Wait, Waiter
from a2a_sync.errors import InternalError, OverloadedError, UnsupportedOperationError
from a2a_sync.operations import (
    CANCEL_TASK,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    AnyCall,
    Call,
    CallContext,
    Endpoint,
    Operation,
    interceptor,
)
from a2a_sync.server import pending as module
from a2a_sync.server.engine import Mount, ServerEngine
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.pending import CallerGone, PendingReply, complete
from a2a_sync.server.service import AgentService
from a2a_sync.types import CancelTaskRequest, Message, Role, SendMessageRequest, Task, TaskState, TextPart, new_id
from tests.engine import TIMEOUT, Background, eventually
from tests.stopwatch import set_clock

go = threading.Event()


@contextmanager
def made(limits: Limits | None = None, **options: Any) -> Iterator[AgentService]:
    agent = Agent("slow")
    go.clear()

    @agent.message
    def answer(message: Message, context: Any) -> Any:
        if message.text.startswith(("wait", "ask")):
            assert go.wait(TIMEOUT)
        return InputRequired("and?") if message.text == "ask" else "done"

    with AgentService(agent, Mount(ServerEngine(None, limits or Limits())), **options) as service:
        try:
            yield service
        finally:
            # Before the service waits for its runs.
            go.set()


def send(
    service: AgentService,
    text: str = "wait",
    gone: threading.Event | None = None,
    task_id: str = "",
    operation: Operation[Any, Any] = SEND_MESSAGE,
) -> Any:
    message = Message(message_id=new_id(), role=Role.USER, parts=(TextPart(text),), task_id=task_id)
    context = CallContext(gone=(gone or threading.Event()).is_set, threaded=False, deferred_after=0.25)
    return service.call(Call(operation, SendMessageRequest(message=message), context))


def pending(service: AgentService, **options: Any) -> tuple[PendingReply, threading.Event]:
    """A send that waits, and an event that is set when it has an answer."""
    reply, woken = send(service, **options), threading.Event()
    assert isinstance(reply, PendingReply)
    assert reply.poll(0) == []
    reply.notify(woken.set)
    return reply, woken


def finish(reply: PendingReply, woken: threading.Event) -> Task:
    while not (items := reply.poll(0)):
        assert woken.wait(TIMEOUT)
        woken.clear()
    assert reply.poll(0) is None
    task = items[0].event
    assert isinstance(task, Task)
    return task


def test_a_short_task_is_returned_itself() -> None:
    with made() as service:
        assert send(service, "short").text == "done"


def test_the_place_is_held_until_the_answer_and_the_task_is_that_of_a_call_that_waits() -> None:
    with made() as service:
        reply, woken = pending(service)
        assert service.engine.thread_budget.streams == 1
        go.set()
        task = finish(reply, woken)
        assert (task.id, task.state, task.text) == (reply.task_id, TaskState.COMPLETED, "done")
        assert service.engine.thread_budget.streams == 0
        assert not service.engine.hub.has_listeners


@pytest.mark.parametrize("left", [False, True])
def test_a_reply_that_has_ended_frees_its_request_without_a_garbage_collection(left: bool) -> None:
    """150 requests of a megabyte stayed in memory after their responses, until the next full collection."""

    class Gone(threading.Event):
        """Held by the context of the call."""

    class Woken(threading.Event):
        """Refers to its reply, as the response of a transport does."""

        reply: PendingReply | None = None

    with made() as service, without_collections():
        gone, woken = Gone(), Woken()
        reply = woken.reply = send(service, gone=gone)
        assert isinstance(reply, PendingReply)
        reply.notify(woken.set)
        freed = [weakref.ref(gone), weakref.ref(woken), weakref.ref(reply)]
        if left:
            reply.close()
            with suppress(CallerGone):
                reply.poll(0)
        else:
            go.set()
            finish(reply, woken)
        del gone, woken, reply
        go.set()
        eventually(lambda: not any(one() for one in freed), "the end of the call")


@contextmanager
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_task_that_is_cancelled_is_an_answer() -> None:
    with made() as service:
        reply, woken = pending(service)
        service.call(Call(CANCEL_TASK, CancelTaskRequest(id=reply.task_id), CallContext()))
        assert finish(reply, woken).state is TaskState.CANCELED


def test_a_message_for_a_busy_task_waits_without_a_thread_and_its_run_begins_when_the_task_is_free() -> None:
    with made() as service:
        first, first_woken = pending(service, text="ask")
        second, woken = pending(service, text="more", task_id=first.task_id)
        assert service.engine.thread_budget.streams == 2
        go.set()
        assert finish(first, first_woken).state is TaskState.INPUT_REQUIRED
        task = finish(second, woken)
        assert (task.id, task.state, task.text) == (first.task_id, TaskState.COMPLETED, "done")
        assert service.engine.thread_budget.streams == 0
        assert not service.engine.hub.has_listeners


def test_the_stream_of_a_message_for_a_busy_task_begins_when_the_task_is_free() -> None:
    with made(Limits(max_history_part_bytes=3)) as service:
        first, first_woken = pending(service, text="ask")
        second, woken = pending(service, text="more", task_id=first.task_id, operation=SEND_STREAMING_MESSAGE)
        assert second.waits
        go.set()
        finish(first, first_woken)
        items: list[Any] = []
        while (more := second.poll(0)) is not None:
            if not more:
                assert woken.wait(TIMEOUT)
                woken.clear()
            items += more
        snapshot, *_, last = (item.event for item in items)
        assert snapshot.history[-1].text.startswith("[left out: text")
        assert (snapshot.id, last.status.state) == (first.task_id, TaskState.COMPLETED)
        second.close()
        assert service.engine.thread_budget.streams == 0
        assert not service.engine.hub.has_listeners


@pytest.mark.parametrize("operation", [SEND_MESSAGE, SEND_STREAMING_MESSAGE])
def test_a_message_waits_for_a_busy_task_for_a_bounded_time(operation: Operation[Any, Any]) -> None:
    with made(Limits(busy_task_timeout=0.6)) as service:
        first, first_woken = pending(service, text="ask")
        second, _ = pending(service, text="more", task_id=first.task_id, operation=operation)

        def poll_when_due() -> None:
            while not second.poll(0):
                threading.Event().wait(max(0.0, second.deadline - time.monotonic()))

        with pytest.raises(UnsupportedOperationError, match="busy with an earlier message"):
            poll_when_due()
        assert second.poll(0) is None
        assert service.engine.thread_budget.streams == 1
        go.set()
        finish(first, first_woken)


@pytest.mark.parametrize("operation", [SEND_MESSAGE, SEND_STREAMING_MESSAGE])
def test_the_bytes_of_a_message_are_reserved_until_its_caller_leaves(operation: Operation[Any, Any]) -> None:
    with made() as service:
        budget = service.engine.responses
        first, first_woken = pending(service, text="ask")
        budget.reserve(100_000, "", response=False)
        second, woken = pending(service, text="more", task_id=first.task_id, operation=operation)
        # It may end on another thread.
        budget.release()
        assert (budget._taken, budget._owners) == (100_000, {})
        second.close()
        assert woken.is_set()

        def end() -> None:
            with pytest.raises(CallerGone):
                second.poll(0)
            budget.release()

        Background(end).result()
        assert (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0)
        assert service.engine.thread_budget.streams == 1
        go.set()
        finish(first, first_woken)


@pytest.mark.parametrize("how", ["gone", "closed"])
def test_a_caller_that_leaves_ends_it(how: str) -> None:
    gone = threading.Event()
    with made() as service:
        reply, woken = pending(service, gone=gone)
        if how == "gone":
            gone.set()
        else:
            reply.close()
            assert woken.is_set()
        with pytest.raises(CallerGone):
            reply.poll(0)
        assert reply.poll(0) is None
        assert service.engine.thread_budget.streams == 0
        assert not service.engine.hub.has_listeners


def test_what_is_there_for_a_caller_that_has_left_is_not_read() -> None:
    """The large task of a call that had left was read and encoded, and other calls waited for it."""
    read: list[str] = []
    there = Signal()

    def steps() -> Steps[str]:
        yield Wait(there, math.inf)
        read.append("task")
        return "task"

    reply = complete(steps(), 0)
    reply.notify(lambda: None)
    there.wake()
    reply.close()
    with pytest.raises(CallerGone):
        reply.poll(0)
    assert not read
    assert reply.poll(0) is None


def test_the_limit_of_blocking_sends_returns_the_task_as_it_is() -> None:
    with made(Limits(blocking_send_timeout=0.3)) as service:
        reply = send(service)
        assert isinstance(reply, PendingReply)
        while not (items := reply.poll(0)):
            threading.Event().wait(0.02)
        assert items[0].event.state is TaskState.WORKING


def test_large_parts_of_its_history_are_omitted() -> None:
    with made(Limits(max_history_part_bytes=10)) as service:
        reply, woken = pending(service, text="wait for a long time")
        go.set()
        message, *_ = finish(reply, woken).history
        assert message.text.startswith("[left out: text")


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_counted_when_it_ends(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    with made(metrics=metrics) as service:
        reply, woken = pending(service)
        assert 'outcome="' not in "".join(one for one in lines(metrics) if "a2a_calls_total{" in one)
        outcome = "INTERNAL_ERROR" if fails else "ok"
        if fails:
            # What the store raises on the thread that takes the answer.
            monkeypatch.setattr(Waiter, "wait", lambda *_: 1 / 0)
            with pytest.raises(InternalError, match="id "):
                reply.poll(0)
        else:
            go.set()
            finish(reply, woken)
        [line] = [one for one in lines(metrics) if "a2a_calls_total{" in one]
        assert f'"{outcome}"' in line
        assert line.endswith(" 1.0")


def lines(metrics: Metrics) -> list[str]:
    return metrics.page()[0].decode().splitlines()


def test_a_rate_limit_defers_and_counts_once() -> None:
    with made(interceptors=[RateLimit(1, key=lambda call: "all")]) as service:
        reply, woken = pending(service)
        go.set()
        finish(reply, woken)
        with pytest.raises(OverloadedError, match="too many calls"):
            send(service)


@pytest.mark.parametrize("fails", [False, True])
def test_an_interceptor_that_is_a_generator_gets_the_result_when_it_is_there(fails: bool) -> None:
    seen: list[Any] = []

    @interceptor
    def note(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        try:
            task = yield call
        except CallerGone as error:
            seen.append(error)
            raise
        seen.append(threading.current_thread())
        return replace(task, metadata={"noted": True})

    with made(interceptors=[note, RateLimit(100), note]) as service:
        assert send(service, "short").metadata == {"noted": True}
        seen.clear()
        reply, woken = pending(service)
        assert not seen
        if fails:
            reply.close()
            with pytest.raises(CallerGone) as gone:
                reply.poll(0)
            assert seen == [gone.value] * 2
        else:
            go.set()
            taking = Background(lambda: finish(reply, woken))
            assert taking.result().metadata == {"noted": True}
            assert len(set(seen)) == 1
            assert seen[0] is not threading.current_thread()


@interceptor
def raises_after(call: AnyCall) -> Generator[AnyCall, Any, Any]:
    yield call
    raise InternalError("no")


@interceptor
def returns_nothing(call: AnyCall) -> Generator[AnyCall, Any, Any]:
    yield call


@interceptor
def yields_twice(call: AnyCall) -> Generator[AnyCall, Any, Any]:
    yield call
    return (yield call)


def function_that_raises_after(endpoint: Endpoint) -> Endpoint:
    def intercepted(call: AnyCall) -> Any:
        endpoint(call)
        raise InternalError("no")

    return intercepted


@pytest.mark.parametrize("odd", [raises_after, returns_nothing, yields_twice, function_that_raises_after])
def test_a_stream_that_an_interceptor_does_not_return_is_closed(odd: Any) -> None:
    with made(interceptors=[RateLimit(100), odd]) as service:
        with suppress(InternalError):
            assert send(service, operation=SEND_STREAMING_MESSAGE) is None
        assert not service.engine.thread_budget.streams


def test_its_span_ends_with_the_answer_on_another_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    with made() as service:
        reply, _ = pending(service)
        assert "A2A SendMessage" not in [span.name for span in spans.get_finished_spans()]
        monkeypatch.setattr(Waiter, "wait", lambda *_: 1 / 0)
        taking = Background(lambda: reply.poll(0))
        with pytest.raises(InternalError):
            taking.result()
    [span] = [span for span in spans.get_finished_spans() if span.name == "A2A SendMessage"]
    assert not span.status.is_ok
    [record] = [record for record in caplog.records if record.getMessage().startswith("request failed")]
    assert record.__dict__["method"] == "SendMessage"
    # A context that was left on another thread is logged as an error.
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_call_keeps_its_thread_while_its_waits_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor is busy then, and leaving the thread would only begin another call."""
    clock, waits = [1000.0], []
    set_clock(monkeypatch, module, monotonic=lambda: clock[0])

    def steps() -> Generator[Wait, float, None]:
        wait = Wait(Signal(), math.inf)
        seconds = yield wait
        for late in (0.05, 0.05, 0.0):
            waits.append(round(seconds, 3))
            clock[0] += seconds + late
            seconds = yield wait

    assert isinstance(complete(steps(), 0.1), PendingReply)
    assert waits == [0.1, 0.02, 0.02]
