"""Streams and waiting calls leave threads free; quick calls in any number are not refused for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from a2a_sync.errors import OverloadedError
from a2a_sync.operations import CANCEL_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE, Call, CallContext, Operation
from a2a_sync.server import places as module
from a2a_sync.server.places import Places
from a2a_sync.types import CancelTaskRequest, Message, Role, SendMessageConfiguration, SendMessageRequest, TextPart
from tests.engine import PATIENCE, Background, eventually, in_child


def send(*, at_once: bool = False, local: bool = False) -> Call:
    message = Message(role=Role.USER, parts=(TextPart("hi"),))
    request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=at_once))
    return Call(SEND_MESSAGE, request, CallContext(gone=None if local else lambda: False))


def old(places: Places) -> None:
    """All that is held has been held for long."""
    for ticket in places._held:
        ticket.since -= 60


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 1), (3, 1), (8, 6), (16, 14), (32, 28), (64, 56)])
def test_an_eighth_of_the_threads_stays_free_and_at_least_two(threads: int, most: int) -> None:
    places = Places(1000, threads)
    for _ in range(most):
        places.take_stream()
    old(places)
    with pytest.raises(OverloadedError):
        places.take_stream()


def test_without_threads_only_streams_are_bounded() -> None:
    places = Places(3)
    leave = [places.take_stream() for _ in range(3)]
    with pytest.raises(OverloadedError, match="streams"):
        places.take_stream()
    assert places.streams == 3
    leave[0]()
    places.take_stream()
    guarded = places.guard(lambda call: "done")
    assert [guarded(send()) for _ in range(5)] == ["done"] * 5


def test_a_refused_stream_takes_no_place_of_another_kind() -> None:
    places = Places(2, 8)
    for _ in range(2):
        places.take_stream()
    for _ in range(10):
        with pytest.raises(OverloadedError):
            places.take_stream()
    assert len(places._held) == 2
    full = Places(100, 2)
    full.take_stream()
    old(full)
    for _ in range(5):
        with pytest.raises(OverloadedError):
            full.take_stream()
    assert full.streams == 1


class Blocking:
    """An endpoint that holds its callers."""

    def __init__(self, places: Places) -> None:
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)
        self.guarded = places.guard(self)

    def __call__(self, call: Call) -> str:
        self.inside.release()
        assert self.open.wait(PATIENCE)
        return "done"

    def call(self) -> Background:
        return Background(lambda: self.guarded(send()))


def test_streams_and_blocked_sends_share_the_threads() -> None:
    places = Places(100, 8)
    endpoint = Blocking(places)
    callers = [endpoint.call() for _ in range(3)]
    for _ in callers:
        assert endpoint.inside.acquire(timeout=PATIENCE)
    streams = [places.take_stream() for _ in range(3)]
    old(places)
    with pytest.raises(OverloadedError) as refused:
        endpoint.guarded(send())
    assert refused.value.retry_after
    streams[0]()
    callers.append(endpoint.call())
    assert endpoint.inside.acquire(timeout=PATIENCE)
    endpoint.open.set()
    assert [caller.result() for caller in callers] == ["done"] * 4
    assert len(places._held) == 2


def test_what_holds_no_thread_needs_no_place() -> None:
    places = Places(100, 2)
    places.take_stream()
    old(places)
    guarded = places.guard(lambda call: "done")
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


def test_a_failed_call_gives_its_place_back() -> None:
    places = Places(100, 2)

    def broken(call: Call) -> None:
        raise ValueError("broken")

    for _ in range(3):
        with pytest.raises(ValueError):
            places.guard(broken)(send())
    assert not places._held


def test_quick_calls_wait_for_each_other_and_none_is_refused() -> None:
    places = Places(100, 4)
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

    guarded = places.guard(quick)

    def many() -> list[str]:
        return [guarded(send()) for _ in range(20)]

    # As many callers as the server has threads: more cannot come at once.
    assert [caller.result() for caller in [Background(many) for _ in range(4)]] == [["done"] * 20] * 4
    assert most[0] == 2


def test_who_waits_is_refused_when_those_before_turn_out_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT", 0.1)
    places = Places(100, 2)
    endpoint = Blocking(places)
    first = endpoint.call()
    assert endpoint.inside.acquire(timeout=PATIENCE)
    began = time.monotonic()
    with pytest.raises(OverloadedError):
        endpoint.guarded(send())
    assert 0.05 < time.monotonic() - began < PATIENCE
    # By now the first one is known to be slow: nobody waits for it.
    began = time.monotonic()
    with pytest.raises(OverloadedError):
        endpoint.guarded(send())
    assert time.monotonic() - began < 0.05
    endpoint.open.set()
    assert first.result() == "done"
    assert not places._held
    assert not places._line


def test_no_more_wait_than_there_are_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT", PATIENCE)
    places = Places(100, 3)
    leave: list[Callable[[], None]] = [places.take_stream()]
    waiter = Background(places.take_stream)
    eventually(lambda: len(places._line) == 1, "the waiter")
    with pytest.raises(OverloadedError):
        places.take_stream()
    leave[0]()
    waiter.result()()
    assert places.streams == 0


def test_the_threads_can_be_told_later() -> None:
    places = Places(100)
    leave = [places.take_stream() for _ in range(5)]
    places.reserve(4)
    old(places)
    with pytest.raises(OverloadedError):
        places.take_stream()
    for one in leave[1:]:
        one()
    places.take_stream()


def test_a_forked_child_holds_nothing() -> None:
    places = Places(1, 2)
    places.take_stream()
    places._lock.acquire()

    def child() -> None:
        assert places.streams == 0
        places.take_stream()

    try:
        in_child(child)
    finally:
        places._lock.release()
    assert places.streams == 1
