"""Open streams and blocking sends leave threads free, and quick calls are not refused for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import SingleItemStream
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import (
    CANCEL_TASK,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    Call,
    CallContext,
    Operation,
    StreamItem,
)
from a2a_sync.server import threadbudget as module
from a2a_sync.server.pending import CallerGone
from a2a_sync.server.threadbudget import ThreadBudget
from a2a_sync.types import CancelTaskRequest, Message, Role, SendMessageConfiguration, SendMessageRequest, TextPart
from tests.engine import TIMEOUT, Background, eventually, in_child
from tests.stopwatch import Stopwatch


def send(*, at_once: bool = False, local: bool = False) -> Call:
    message = Message(role=Role.USER, parts=(TextPart("hi"),))
    request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=at_once))
    return Call(SEND_MESSAGE, request, CallContext(gone=None if local else lambda: False))


def old(budget: ThreadBudget) -> None:
    """Make every held thread one that has been held for long."""
    for ticket in budget._held:
        ticket.since -= 60


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 1), (3, 1), (8, 6), (16, 14), (32, 28), (64, 56)])
def test_an_eighth_of_the_threads_stays_free_and_at_least_two(threads: int, most: int) -> None:
    budget = ThreadBudget(1000, threads)
    for _ in range(most):
        budget.take_stream()
    old(budget)
    with pytest.raises(OverloadedError):
        budget.take_stream()


@pytest.mark.parametrize(("connections", "most"), [(1, 1), (8, 6), (300, 263), (2000, 1000)])
def test_an_eighth_of_the_connections_stays_free_of_streams(connections: int, most: int) -> None:
    budget = ThreadBudget(1000)
    budget.limit_connections(connections)
    for _ in range(most):
        budget.take_stream()
    with pytest.raises(OverloadedError, match="streams"):
        budget.take_stream()


def test_without_threads_only_streams_are_bounded() -> None:
    budget = ThreadBudget(3)
    leave = [budget.take_stream() for _ in range(3)]
    with pytest.raises(OverloadedError, match="streams"):
        budget.take_stream()
    assert budget.streams == 3
    leave[0]()
    budget.take_stream()
    guarded = budget.guard(lambda call: "done")
    assert [guarded(send()) for _ in range(5)] == ["done"] * 5


def test_a_refused_stream_takes_no_thread() -> None:
    budget = ThreadBudget(2, 8)
    for _ in range(2):
        budget.take_stream()
    for _ in range(10):
        with pytest.raises(OverloadedError):
            budget.take_stream()
    assert len(budget._held) == 2
    full = ThreadBudget(100, 2)
    full.take_stream()
    old(full)
    for _ in range(5):
        with pytest.raises(OverloadedError):
            full.take_stream()
    assert full.streams == 1


class Blocking:
    """An endpoint that blocks until it is opened."""

    def __init__(self, budget: ThreadBudget) -> None:
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)
        self.guarded = budget.guard(self)

    def __call__(self, call: Call) -> str:
        self.inside.release()
        assert self.open.wait(TIMEOUT)
        return "done"

    def call(self) -> Background:
        return Background(lambda: self.guarded(send()))


def test_streams_and_blocked_sends_share_the_threads() -> None:
    budget = ThreadBudget(100, 8)
    endpoint = Blocking(budget)
    callers = [endpoint.call() for _ in range(3)]
    for _ in callers:
        assert endpoint.inside.acquire(timeout=TIMEOUT)
    streams = [budget.take_stream() for _ in range(3)]
    old(budget)
    with pytest.raises(OverloadedError) as refused:
        endpoint.guarded(send())
    assert refused.value.retry_after
    streams[0]()
    callers.append(endpoint.call())
    assert endpoint.inside.acquire(timeout=TIMEOUT)
    endpoint.open.set()
    assert [caller.result() for caller in callers] == ["done"] * 4
    assert len(budget._held) == 2


def test_calls_that_hold_no_thread_are_not_counted() -> None:
    budget = ThreadBudget(100, 2)
    budget.take_stream()
    old(budget)
    guarded = budget.guard(lambda call: "done")
    context = CallContext(gone=lambda: False)
    for call in (
        send(at_once=True),
        send(local=True),
        Call(CANCEL_TASK, CancelTaskRequest(id="t"), context),
        streaming(SEND_STREAMING_MESSAGE, local=True),
    ):
        assert guarded(call) == "done"


def streaming(operation: Operation, *, local: bool = False) -> Call:
    """A call whose answer is a stream."""
    call = send(local=local)
    return Call(operation, call.request, call.context)


def test_a_failed_call_releases_its_thread() -> None:
    budget = ThreadBudget(100, 2)

    def broken(call: Call) -> None:
        raise ValueError("broken")

    for _ in range(3):
        with pytest.raises(ValueError):
            budget.guard(broken)(send())
    assert not budget._held


def test_quick_calls_wait_for_each_other_and_none_is_refused() -> None:
    budget = ThreadBudget(100, 4)
    inside, most = [0], [0]
    lock = threading.Lock()

    def quick(call: Call) -> str:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.001)
        with lock:
            inside[0] -= 1
        return "done"

    guarded = budget.guard(quick)

    def many() -> list[str]:
        return [guarded(send()) for _ in range(20)]

    # As many callers as the server has threads: more cannot come at once.
    assert [caller.result() for caller in [Background(many) for _ in range(4)]] == [["done"] * 20] * 4
    assert most[0] == 2


def test_a_waiting_call_is_refused_when_the_calls_before_it_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAIT", 0.1)
    budget = ThreadBudget(100, 2)
    endpoint = Blocking(budget)
    first = endpoint.call()
    assert endpoint.inside.acquire(timeout=TIMEOUT)
    watch = Stopwatch()
    with pytest.raises(OverloadedError):
        endpoint.guarded(send())
    assert watch.within(TIMEOUT, least=0.05)
    # The first call has been slow by now, so no other waits for it.
    watch = Stopwatch()
    with pytest.raises(OverloadedError):
        endpoint.guarded(send())
    assert watch.within(0.05)
    endpoint.open.set()
    assert first.result() == "done"
    assert not budget._held
    assert not budget._queue


def test_a_caller_beyond_its_share_holds_no_threads_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that arrive while the first one of their owner has waited for a moment are refused at once."""
    monkeypatch.setattr(module, "_MAX_WAIT", TIMEOUT)
    quotas = Quotas()
    quotas.several = True
    budget = ThreadBudget(100, 16, quotas)
    held = [budget.take_stream("greedy") for _ in range(7)]
    waiting = [Background(lambda: budget.take_stream("greedy")) for _ in range(2)]
    eventually(lambda: len(budget._queue) == 2, "the calls that wait")
    for ticket in budget._queue:
        ticket.since -= 1
    watch = Stopwatch()
    for _ in range(20):
        with pytest.raises(OverloadedError):
            budget.take_stream("greedy")
    budget.take_stream("honest")()
    assert watch.within(TIMEOUT / 2)
    for leave in held:
        leave()
    for one in waiting:
        one.result()()
    assert budget.streams == 0
    assert not budget._queue


def test_a_call_whose_caller_has_left_waits_for_no_thread() -> None:
    budget = ThreadBudget(100, 8)
    held = [budget.take_stream() for _ in range(6)]
    guarded = budget.guard(lambda call: "done")
    left = CallContext(gone=lambda: True)
    request = send().request
    for call in (
        Call(SEND_MESSAGE, request, left),
        Call(SEND_MESSAGE, request, replace(left, deferred_after=0.1)),
        Call(SEND_STREAMING_MESSAGE, request, left),
    ):
        with pytest.raises(CallerGone):
            guarded(call)
    assert budget.streams == len(held)
    for leave in held:
        leave()
    assert not budget._held


def test_no_more_calls_wait_than_hold_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAIT", TIMEOUT)
    budget = ThreadBudget(100, 3)
    leave: list[Callable[[], None]] = [budget.take_stream()]
    waiter = Background(budget.take_stream)
    eventually(lambda: len(budget._queue) == 1, "the waiter")
    with pytest.raises(OverloadedError):
        budget.take_stream()
    leave[0]()
    waiter.result()()
    assert budget.streams == 0


def test_a_stream_whose_reader_is_notified_of_events_holds_no_thread() -> None:
    budget = ThreadBudget(3, 4)
    guarded = budget.guard(lambda call: SingleItemStream(StreamItem("event")))
    streams = [guarded(streaming(SEND_STREAMING_MESSAGE)) for _ in range(2)]
    old(budget)
    with pytest.raises(OverloadedError, match="threads"):
        guarded(streaming(SEND_STREAMING_MESSAGE))

    streams[0].notify(lambda: None)

    streams.append(guarded(streaming(SEND_STREAMING_MESSAGE)))
    assert budget.streams == 3
    for stream in streams:
        stream.close()
        stream.close()
    assert (budget.streams, len(budget._held)) == (0, 0)


def test_the_number_of_threads_can_be_set_later() -> None:
    budget = ThreadBudget(100)
    leave = [budget.take_stream() for _ in range(5)]
    budget.reserve(4)
    old(budget)
    with pytest.raises(OverloadedError):
        budget.take_stream()
    for one in leave[1:]:
        one()
    budget.take_stream()


def test_a_forked_child_holds_nothing() -> None:
    budget = ThreadBudget(1, 2)
    budget.take_stream()
    budget._lock.acquire()

    def child() -> None:
        assert budget.streams == 0
        budget.take_stream()

    try:
        in_child(child)
    finally:
        budget._lock.release()
    assert budget.streams == 1
