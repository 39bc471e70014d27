"""The bounds on large requests and responses that one process works on at the same time."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_sync.concurrency import quotas
from a2a_sync.concurrency.gevent import patched
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import Steps
from a2a_sync.errors import OverloadedError
from a2a_sync.server import responses
from a2a_sync.server.responses import ResponseBudget
from a2a_sync.wsgi import connection
from tests.engine import TIMEOUT, Background, eventually
from tests.live import ROOT
from tests.stopwatch import set_clock


def test_a_large_request_waits_until_the_bytes_of_others_are_released() -> None:
    budget, reserved, finish = ResponseBudget(100), threading.Event(), threading.Event()

    def first() -> None:
        budget.reserve(60, "", response=False)
        reserved.set()
        assert finish.wait(TIMEOUT)
        budget.release()

    holder = Background(first)
    assert reserved.wait(TIMEOUT)
    budget.reserve(40, "", response=False)
    budget.release()
    second = Background(lambda: (budget.reserve(41, "", response=False), budget.release()))
    with pytest.raises(AssertionError, match="did not return"):
        second.result(0.05)
    finish.set()
    holder.result(TIMEOUT)
    second.result(TIMEOUT)
    budget.reserve(100, "")


def test_two_that_need_more_do_not_wait_for_each_other() -> None:
    """A large request reserves bytes for its body, and then for its response."""
    budget, both = ResponseBudget(100), threading.Barrier(2)

    def request() -> None:
        budget.reserve(50, "", response=False)
        both.wait(TIMEOUT)
        budget.reserve(50, "")
        budget.release()

    running = [Background(request) for _ in range(2)]
    for one in running:
        # Within half of the time after which a response is refused.
        one.result(responses._WAIT_SECONDS / 2)
    assert (budget._taken, budget._reserved) == (0, {})


def test_responses_are_read_and_encoded_one_at_a_time_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = [1000.0]
    set_clock(monkeypatch, responses, monotonic=lambda: clock[0], sleep=pauses.append)
    budget = ResponseBudget(100)
    budget.reserve(10, "")
    second = Background(lambda: (budget.reserve(10, ""), budget.release()))
    request = Background(lambda: (budget.reserve(10, "", response=False), budget.release()))
    with pytest.raises(AssertionError, match="did not return"):
        second.result(0.05)
    clock[0] += 0.4
    budget.end_turn()
    second.result(TIMEOUT)
    request.result(TIMEOUT)
    assert budget._taken == 10
    # The first waited for none.
    assert pauses == [pytest.approx(0.1)]


def test_pauses_too_short_for_a_sleep_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = [1000.0]
    set_clock(monkeypatch, responses, monotonic=lambda: clock[0], sleep=pauses.append)
    budget = ResponseBudget(100)
    for _ in range(8):
        budget.reserve(10, "")
        clock[0] += 0.0011
        budget.release()
    assert pauses == [pytest.approx(0.0011)]


def test_a_response_is_refused_that_would_wait_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_WAIT_SECONDS", 0.01)
    budget = ResponseBudget(100)
    Background(lambda: budget.reserve(60, "")).result(TIMEOUT)
    with pytest.raises(OverloadedError, match="large responses") as caught:
        budget.reserve(41, "")
    assert caught.value.retry_after


def test_requests_that_wait_hold_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_MAX_WAITING_BYTES", 100)
    budget = ResponseBudget(100)
    budget.reserve(60, "", response=False)
    second = Background(lambda: (budget.reserve(80, "", response=False), budget.release()))
    eventually(lambda: len(budget._queue) == 1, "the second")
    with pytest.raises(OverloadedError, match="large requests"):
        Background(lambda: budget.reserve(21, "", response=False)).result(TIMEOUT)
    third = Background(lambda: (budget.reserve(21, ""), budget.release()))
    budget.release()
    second.result(TIMEOUT)
    third.result(TIMEOUT)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_waits_without_a_thread_gets_its_bytes_in_its_turn_or_leaves(leaves: bool) -> None:
    budget, woken = ResponseBudget(100), threading.Event()
    budget.reserve(60, "", response=False)
    steps = budget.reserving(50, "")
    waits = Background(lambda: next(steps)).result(TIMEOUT)
    waits.waiter.on_wake = woken.set
    # What is smaller does not overtake it.
    third = Background(lambda: (budget.reserve(10, ""), budget.release()))
    eventually(lambda: len(budget._queue) == 2, "the third")
    if leaves:
        Background(lambda: (steps.close(), budget.release())).result(TIMEOUT)
    else:
        budget.release()
        assert woken.wait(TIMEOUT)

        def go_on() -> None:
            with pytest.raises(StopIteration):
                steps.send(0.0)
            assert budget._reserved == {threading.get_ident(): 50}
            budget.release()

        Background(go_on).result(TIMEOUT)
    third.result(TIMEOUT)
    budget.release()
    assert (budget._taken, budget._turn, budget._owners, budget._places.taken) == (0, None, {}, 0)


def test_a_response_larger_than_the_bound_is_alone() -> None:
    budget = ResponseBudget(100)
    budget.reserve(1000, "")
    budget.release()
    budget.release()
    budget.reserve(100, "")


def test_one_owner_has_a_share_of_the_large_requests_and_responses() -> None:
    quotas = Quotas()
    quotas.several = True
    budget = ResponseBudget(100, threads=16, quotas=quotas)
    refused: list[OverloadedError] = []
    tried, finish = threading.Barrier(9), threading.Event()

    def greedy() -> None:
        try:
            budget.admit("greedy")
        except OverloadedError as error:
            refused.append(error)
        tried.wait(TIMEOUT)
        assert finish.wait(TIMEOUT)
        budget.release()

    attackers = [Background(greedy) for _ in range(8)]
    tried.wait(TIMEOUT)
    assert len(refused) == 4
    assert "of this caller" in str(refused[0])
    budget.admit("honest")
    budget.reserve(100, "honest")
    finish.set()
    for attacker in attackers:
        attacker.result(TIMEOUT)


def spend(budget: ResponseBudget, clock: SimpleNamespace, owner: str, seconds: float) -> None:
    budget.begin(owner, expensive=False)
    clock.used += seconds
    budget.release()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The processor time of all threads, in ``used``, and the time without; both stand still. ``pauses`` are those of threads."""
    clock = SimpleNamespace(used=5.0, now=100.0, pauses=[])
    set_clock(monkeypatch, quotas, thread_time=lambda: clock.used, monotonic=lambda: clock.now + clock.used)
    set_clock(monkeypatch, responses, sleep=clock.pauses.append, monotonic=lambda: clock.now + clock.used)
    return clock


@pytest.fixture
def budget(clock: SimpleNamespace) -> ResponseBudget:
    return several(8)


def several(threads: int) -> ResponseBudget:
    known = Quotas()
    known.several = True
    return ResponseBudget(100, threads=threads, quotas=known)


def elsewhere(budget: ResponseBudget, owner: str, *, expensive: bool = False) -> None:
    """Begin a request on another thread, which does not end it."""
    Background(lambda: budget.begin(owner, expensive=expensive)).result(TIMEOUT)


REFUSED = "too many expensive requests of this caller"


#: Under gevent all requests share a thread.
IN_WORK = 1 if patched() else 2


def test_few_expensive_requests_of_an_owner_are_in_work(budget: ResponseBudget) -> None:
    for _ in range(IN_WORK - 1):
        elsewhere(budget, "greedy", expensive=True)
    budget.begin("greedy", expensive=True)
    with pytest.raises(OverloadedError, match=REFUSED):
        elsewhere(budget, "greedy", expensive=True)
    elsewhere(budget, "greedy")
    elsewhere(budget, "honest", expensive=True)
    budget.release()
    elsewhere(budget, "greedy", expensive=True)


def test_threads_switch_more_often_while_an_expensive_request_is_in_work(budget: ResponseBudget) -> None:
    before = sys.getswitchinterval()
    budget.begin("greedy", expensive=True)
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    budget.release()
    assert sys.getswitchinterval() == before


def test_small_requests_of_an_owner_are_expensive_where_others_were(
    budget: ResponseBudget, clock: SimpleNamespace
) -> None:
    spend(budget, clock, "greedy", 0.5)
    for _ in range(3):
        elsewhere(budget, "greedy")
    spend(budget, clock, "greedy", 0.1)
    for _ in range(IN_WORK):
        elsewhere(budget, "greedy")
    for refused in (budget.check, partial(budget.begin, expensive=False)):
        with pytest.raises(OverloadedError, match=REFUSED):
            refused("greedy")
    budget.check("honest")
    # It decreases by the factor e.
    clock.now += 2.0
    budget.check("greedy")
    elsewhere(budget, "greedy")


def test_the_time_before_the_owner_is_found_counts_for_the_owner_only(
    budget: ResponseBudget, clock: SimpleNamespace
) -> None:
    budget.begin("gateway", expensive=False, found=False)
    clock.used += 0.4
    # It reserves bytes, which may take a wait.
    budget.attach(budget.detach())
    clock.used += 0.6
    budget.count_for("greedy")
    clock.used += 0.1
    budget.release()
    assert list(budget.quotas.times.owners) == ["greedy"]
    assert budget.quotas.times.of("greedy") == pytest.approx(0.6 * math.exp(-0.05) + 0.1)


def test_a_request_whose_owner_is_never_found_counts_for_none(budget: ResponseBudget, clock: SimpleNamespace) -> None:
    budget.begin("gateway", expensive=False, found=False)
    clock.used += 0.6
    budget.release()
    assert budget.quotas.times.owners == {}


def test_an_expensive_request_counts_for_its_owner_once_that_is_found(
    budget: ResponseBudget, clock: SimpleNamespace
) -> None:
    def found(owner: str) -> None:
        budget.begin("gateway", expensive=True, found=False)
        try:
            budget.count_for(owner)
        except OverloadedError:
            budget.release()
            raise

    for _ in range(IN_WORK):
        Background(lambda: found("greedy")).result(TIMEOUT)
    with pytest.raises(OverloadedError, match=REFUSED):
        Background(lambda: found("greedy")).result(TIMEOUT)
    Background(lambda: found("honest")).result(TIMEOUT)
    assert budget._in_work.taken == IN_WORK + 1


def test_a_request_that_waits_is_not_in_work(budget: ResponseBudget, clock: SimpleNamespace) -> None:
    for _ in range(3):
        budget.begin("greedy", expensive=True)
        held = budget.detach()
    budget.attach(held)
    clock.used += 0.6
    budget.release()
    assert budget.quotas.times.of("greedy") == pytest.approx(0.6)
    assert budget._in_work.taken == 0


def test_many_cheap_requests_are_not_expensive(budget: ResponseBudget, clock: SimpleNamespace) -> None:
    for _ in range(1000):
        spend(budget, clock, "busy", 0.009)
    for _ in range(3):
        elsewhere(budget, "busy")


def test_the_time_before_a_request_does_not_count_for_it(budget: ResponseBudget, clock: SimpleNamespace) -> None:
    spend(budget, clock, "busy", 0.001)
    clock.used += 1.0
    spend(budget, clock, "busy", 0.011)
    assert budget.quotas.times.of("busy") == pytest.approx(0.011)


def test_the_time_in_which_a_request_waits_does_not_count(budget: ResponseBudget, clock: SimpleNamespace) -> None:
    budget.begin("slow", expensive=False)
    clock.now += 10.0
    budget.release()
    assert budget.quotas.times.of("slow") == 0.0


def test_the_processor_time_is_not_read_for_each_small_request(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "patched", lambda: False)
    budget = several(8)
    reads: list[float] = []

    def read() -> float:
        reads.append(clock.used)
        return clock.used

    set_clock(monkeypatch, quotas, thread_time=read, monotonic=lambda: clock.now + clock.used)
    for _ in range(100):
        spend(budget, clock, "busy", 0.0002)
    assert len(reads) <= 11


def test_without_known_callers_no_processor_time_counts(clock: SimpleNamespace) -> None:
    budget = ResponseBudget(100, threads=4)
    for _ in range(10):
        spend(budget, clock, "", 1.0)
    for _ in range(3):
        elsewhere(budget, "", expensive=True)


@pytest.mark.parametrize("seconds", [0.005, 1.2])
def test_under_gevent_the_processor_time_of_others_does_not_count(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(quotas, "patched", lambda: True)
    budget = several(4)
    budget.begin("honest", expensive=False)
    for _ in range(500):
        Background(lambda: spend(budget, clock, "greedy", seconds)).result(TIMEOUT)
    budget.release()
    assert budget.quotas.times.of("honest") == 0.0


def test_expensive_requests_pause_above_three_quarters_of_the_processor_time(
    budget: ResponseBudget, clock: SimpleNamespace
) -> None:
    spend(budget, clock, "greedy", 1.5)
    budget.check("greedy")
    assert clock.pauses == []
    spend(budget, clock, "greedy", 0.3)
    budget.check("greedy")
    seconds = 1.5 * math.exp(-0.3 / 2) + 0.3
    assert clock.pauses == [pytest.approx(2 * math.log(seconds / 1.5))]
    spend(budget, clock, "greedy", 10.0)
    budget.check("greedy")
    budget.check("honest")
    assert clock.pauses[1:] == [1.0]
    assert budget._in_work.taken == 0


def test_a_pause_that_an_exception_ends_leaves_no_request_in_work(
    budget: ResponseBudget, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(seconds: float) -> None:
        raise TimeoutError

    spend(budget, clock, "greedy", 2.0)
    set_clock(monkeypatch, responses, sleep=ended)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            budget.check("greedy")


def test_the_processor_time_of_a_bounded_number_of_owners_is_kept(
    budget: ResponseBudget, clock: SimpleNamespace
) -> None:
    for number in range(quotas._MAX_OWNERS + 5):
        spend(budget, clock, f"owner {number}", 1.0)
    assert len(budget.quotas.times.owners) == quotas._MAX_OWNERS
    assert budget.quotas.times.of("owner 0") == 0.0


def waiting(budget: ResponseBudget, owner: str, size: int, *, response: bool) -> tuple[Steps[None], Any]:
    """The steps of a claim that waits, and the claim."""
    steps = budget.reserving(size, owner, response=response)
    return steps, next(steps).waiter


def finish(budget: ResponseBudget, steps: Steps[None]) -> None:
    """Go on with a claim that was granted, and release what it reserved."""
    with pytest.raises(StopIteration):
        steps.send(0.0)
    budget.release()


def of_several(holder: str) -> tuple[ResponseBudget, Callable[[], None]]:
    """A budget of 100 bytes of known callers, all of which one has, and what releases them."""
    quotas = Quotas()
    quotas.several = True
    budget = ResponseBudget(100, threads=128, quotas=quotas)
    budget.reserve(100, holder, response=False)
    held = budget.detach()

    def release() -> None:
        budget.attach(held)
        budget.release()

    return budget, release


@pytest.mark.parametrize("response", [False, True])
def test_owners_that_wait_have_turns(response: bool) -> None:
    """With two GetTask a second of one caller, another one waited for all of them, and for those that came meanwhile."""
    budget, release = of_several("greedy")
    claims = [
        (owner, *waiting(budget, owner, 60, response=response)) for owner in ["greedy"] * 4 + ["honest"] * 2 + ["last"]
    ]
    release()
    order: list[str] = []
    while claims:
        [granted] = [one for one in claims if one[2].granted]
        claims.remove(granted)
        order.append(granted[0])
        if len(order) == 2:
            # One that comes meanwhile is the last one of its owner.
            claims.append(("greedy", *waiting(budget, "greedy", 60, response=response)))
        finish(budget, granted[1])
    assert order == ["honest", "greedy", "last", "honest", *["greedy"] * 4]
    assert (budget._taken, len(budget._queue), budget._owners, budget._places.taken) == (0, 0, {}, 0)


def test_an_owner_that_comes_alone_waits_for_one_of_another_owner_and_not_for_the_next() -> None:
    budget, release = of_several("greedy")
    more = [waiting(budget, "greedy", 60, response=True) for _ in range(3)]
    first = waiting(budget, "honest", 60, response=True)
    release()
    assert [one[1].granted for one in (*more, first)] == [False, False, False, True]
    finish(budget, first[0])
    second = waiting(budget, "honest", 60, response=True)
    assert [one[1].granted for one in (*more, second)] == [True, False, False, False]
    finish(budget, more[0][0])
    assert [one[1].granted for one in (*more[1:], second)] == [False, False, True]
    finish(budget, second[0])
    for steps, _ in more[1:]:
        finish(budget, steps)


def test_requests_and_responses_of_an_owner_share_its_turns() -> None:
    budget, release = of_several("holder")
    first, second = (waiting(budget, "greedy", 60, response=response) for response in (False, True))
    other = waiting(budget, "honest", 60, response=True)
    release()
    assert [one[1].granted for one in (first, second, other)] == [True, False, False]
    finish(budget, first[0])
    assert (second[1].granted, other[1].granted) == (False, True)
    finish(budget, other[0])
    finish(budget, second[0])


def test_one_that_is_larger_than_the_bound_is_alone_and_not_overtaken() -> None:
    budget, release = of_several("small")
    large = waiting(budget, "large", 1000, response=True)
    small = [waiting(budget, "small", 10, response=False) for _ in range(3)]
    release()
    assert large[1].granted
    assert not any(claim.granted for _, claim in small)
    again = waiting(budget, "large", 1000, response=True)
    finish(budget, large[0])
    # One of the other owner, and not all of them.
    assert [claim.granted for _, claim in small] == [True, False, False]
    finish(budget, small[0][0])
    assert again[1].granted
    finish(budget, again[0])
    for steps, _ in small[1:]:
        finish(budget, steps)


def test_a_claim_that_is_given_up_takes_no_turn_of_its_owner() -> None:
    budget, release = of_several("holder")
    first, second = (waiting(budget, "leaves", 60, response=True) for _ in "12")
    other = waiting(budget, "other", 60, response=True)
    first[0].close()
    budget.release()
    release()
    assert (second[1].granted, other[1].granted) == (True, False)
    finish(budget, second[0])
    other[0].close()
    budget.release()
    assert (budget._taken, len(budget._queue), budget._places.taken, budget._turn) == (0, 0, 0, None)


def test_bytes_are_released_before_the_response_is_written() -> None:
    budget = ResponseBudget(100, threads=2)
    budget.reserve(100, "")
    leave = budget.release_bytes()
    assert leave is not None
    assert budget.release_bytes() is None
    with pytest.raises(OverloadedError, match="at once"):
        budget.admit("")
    leave()
    budget.reserve(100, "")


def test_responses_that_are_not_read_have_a_bound_together() -> None:
    unsent, aborted = connection.HeldBytes(1_000_000), []

    class Stalled:
        def abort(self) -> None:
            aborted.append(self)

    first, second, third = Stalled(), Stalled(), Stalled()
    unsent.add(first, 400_000)  # type: ignore[arg-type]
    unsent.add(second, 400_000)  # type: ignore[arg-type]
    unsent.progress(first)  # type: ignore[arg-type]
    unsent.add(third, 400_000)  # type: ignore[arg-type]
    assert aborted == [second]
    unsent.remove(first)  # type: ignore[arg-type]
    unsent.remove(second)  # type: ignore[arg-type]
    unsent.add(second, 600_000)  # type: ignore[arg-type]
    assert aborted == [second]


_PROGRAM = """
import os
from a2a_sync.server.responses import ResponseBudget

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

size = 8 * 1024 * 1024
first = bytearray(3 * size)
del first
ResponseBudget(size).reserve(size, "")
# The last block is not freed, so that the others are not at the end of the heap.
blocks = [bytearray(size) for _ in range(6)]
before = resident()
del blocks[:-1]
print((before - resident()) // size)
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="a setting of the GNU C library")
def test_the_memory_of_large_responses_is_returned_to_the_system() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) >= 4


def test_bytes_that_are_given_back_end_a_turn_and_leave_what_was_reserved_before():
    budget = ResponseBudget(100)
    budget.reserve(30, "", response=False)
    budget.reserve(50, "")
    budget.give_back(50)
    assert (budget._taken, budget._turn, list(budget._owners.values())) == (30, None, [""])
    budget.give_back(30)
    assert (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0)
