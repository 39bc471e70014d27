"""The pool keeps count: of slots, of waiting runs, and of abandoned threads. Real threads throughout."""

from __future__ import annotations

import errno
import os
import queue
import random
import sys
import threading

import pytest

from a2a_sync.concurrency.gevent import patched
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.errors import OverloadedError
from tests.engine import TIMEOUT, Gate, eventually, in_child


def pool_of(threads=1, waiting=0, leftovers=0, **options):
    options.setdefault("name", f"pool-{random.getrandbits(40)}")
    return WorkerPool(threads=threads, max_queued=waiting, max_abandoned=leftovers, **options)


def threads_of(pool):
    return [thread for thread in threading.enumerate() if thread.name.startswith(pool.name)]


def occupy(pool):
    """Put a job on the pool that waits at a gate."""
    gate, slot = Gate(), pool.reserve()
    slot.submit(gate.block)
    gate.wait()
    return gate, slot


def run(pool):
    """Run one more job to its end."""
    done = threading.Event()
    pool.reserve().submit(done.set)
    assert done.wait(TIMEOUT)


def test_no_thread_exists_before_the_first_job():
    assert threads_of(pool_of(threads=8)) == []


def test_threads_are_daemons_and_named_after_the_pool():
    pool = pool_of()
    gate, _ = occupy(pool)
    (thread,) = threads_of(pool)
    assert thread.daemon
    assert thread.name == f"{pool.name}-1"
    gate.open.set()


def test_one_thread_serves_jobs_that_come_one_after_the_other():
    pool = pool_of(threads=4, waiting=4)
    seen = set()
    for _ in range(20):
        pool.reserve().submit(lambda: seen.add(threading.get_ident()))
        eventually(lambda: pool.running == 0 and pool._idle)
    assert len(seen) == 1


def test_a_full_pool_refuses_and_says_when_to_come_back():
    pool = pool_of(threads=2, waiting=1)
    gates = [occupy(pool)[0], occupy(pool)[0]]
    line = pool.reserve()
    assert not line.ready
    with pytest.raises(OverloadedError) as refused:
        pool.reserve()
    assert refused.value.retry_after == 1.0
    line.release()
    assert not pool.reserve().ready
    for gate in gates:
        gate.open.set()


def test_the_line_is_served_in_order_and_by_the_place_that_becomes_free():
    pool = pool_of(threads=1, waiting=5)
    gate, _ = occupy(pool)
    order, done = [], threading.Event()
    for number in range(5):
        slot = pool.reserve()
        assert not slot.ready
        slot.submit(lambda n=number: (order.append(n), done.set() if n == 4 else None))
    assert pool.waiting == 5
    gate.open.set()
    assert done.wait(TIMEOUT)
    assert order == [0, 1, 2, 3, 4]
    eventually(lambda: (pool.running, pool.waiting) == (0, 0))


def test_a_place_that_is_released_goes_to_the_next_in_line():
    pool = pool_of(threads=1, waiting=1)
    unused, done = pool.reserve(), threading.Event()
    pool.reserve().submit(done.set)
    assert not done.is_set()
    unused.release()
    assert done.wait(TIMEOUT)
    eventually(lambda: (pool.running, pool.waiting) == (0, 0))


def test_a_reservation_in_line_that_finds_a_free_place_starts_at_once():
    pool = pool_of(threads=1, waiting=1)
    gate, _ = occupy(pool)
    late, done = pool.reserve(), threading.Event()
    gate.open.set()
    eventually(lambda: pool.running == 0)
    late.submit(done.set)
    assert done.wait(TIMEOUT)
    eventually(lambda: (pool.running, pool.waiting) == (0, 0))


def test_a_nested_job_gets_a_thread_of_the_pool_else_an_extra_one_else_none():
    pool = pool_of(threads=1)
    gate, _ = occupy(pool)
    nested = Gate()
    slot = pool.reserve_nested()
    slot.submit(nested.block)
    nested.wait()
    assert (slot.extra, slot.abandon(), pool.running, pool.lingering) == (True, True, 1, 0)
    assert pool.reserve_nested() is None
    nested.open.set()
    eventually(lambda: slot.done)
    again = pool.reserve_nested()
    assert again.extra
    again.release()
    gate.open.set()
    eventually(lambda: pool.running == 0)
    free = pool.reserve_nested()
    assert not free.extra
    free.release()
    run(pool)


def test_an_exception_of_a_job_is_logged_and_costs_no_place(caplog):
    pool = pool_of()

    def job():
        raise SystemExit("from a job")

    pool.reserve().submit(job)
    eventually(lambda: pool.running == 0)
    run(pool)
    assert "let an exception out" in caplog.text


# -- abandoned jobs -----------------------------------------------------------------------------------------------------


def test_an_abandoned_job_gives_its_place_to_the_next():
    pool = pool_of(threads=1, waiting=1, leftovers=1)
    gate, hung = occupy(pool)
    done = threading.Event()
    pool.reserve().submit(done.set)
    assert hung.abandon()
    assert done.wait(TIMEOUT)
    assert pool.lingering == 1
    gate.open.set()
    eventually(lambda: (pool.running, pool.lingering) == (0, 0))
    run(pool)


def test_abandoning_is_bounded_and_counts_once():
    pool = pool_of(threads=2, leftovers=1)
    (gate, first), (other, second) = occupy(pool), occupy(pool)
    assert first.abandon()
    assert first.abandon()
    assert pool.running == 1
    assert not second.abandon()
    gate.open.set()
    eventually(lambda: pool.lingering == 0)
    assert second.abandon()
    other.open.set()
    eventually(lambda: (pool.running, pool.lingering) == (0, 0))


def test_a_job_that_has_come_back_cannot_be_freed_twice():
    pool = pool_of(threads=1, leftovers=5)
    gate, slot = occupy(pool)
    gate.open.set()
    eventually(lambda: pool.running == 0)
    assert slot.abandon()
    assert (pool.running, pool.lingering) == (0, 0)
    gate, _ = occupy(pool)
    with pytest.raises(OverloadedError):
        pool.reserve()
    gate.open.set()


def test_a_reservation_that_still_waits_cannot_be_abandoned():
    pool = pool_of(threads=1, waiting=1, leftovers=5)
    gate, _ = occupy(pool)
    line = pool.reserve()
    assert not line.abandon()
    line.release()
    gate.open.set()
    eventually(lambda: (pool.running, pool.waiting) == (0, 0))


def test_places_are_kept_count_of_when_everything_happens_at_once():
    pool = pool_of(threads=4, waiting=8, leftovers=3, idle=0.001)
    running, most, lock = [0], [0], threading.Lock()
    finished, refused = [0], [0]

    def job():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        with lock:
            running[0] -= 1
            finished[0] += 1

    def caller(seed):
        rng = random.Random(seed)
        start.wait(TIMEOUT)
        for _ in range(150):
            try:
                slot = pool.reserve()
            except OverloadedError:
                with lock:
                    refused[0] += 1
                continue
            if rng.random() < 0.2:
                slot.release()
                with lock:
                    finished[0] += 1
                continue
            slot.submit(job)
            if rng.random() < 0.3:
                slot.abandon()

    start = threading.Barrier(8)
    callers = [threading.Thread(target=caller, args=(seed,), daemon=True) for seed in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(TIMEOUT)
    eventually(lambda: finished[0] + refused[0] == 8 * 150, "every job's end")
    eventually(lambda: (pool.running, pool.waiting, pool.lingering) == (0, 0, 0), "all places free")
    assert most[0] <= 4 + 3
    assert [pool.reserve().ready for _ in range(12)] == [True] * 4 + [False] * 8


# -- threads come and go ------------------------------------------------------------------------------------------------


def policies(pool):
    """The scheduling policies of a thread of the pool and of this thread."""
    found = queue.SimpleQueue()
    pool.reserve().submit(lambda: found.put(os.sched_getscheduler(0)))
    return found.get(timeout=TIMEOUT), os.sched_getscheduler(0)


@pytest.mark.skipif(sys.platform != "linux", reason="this policy exists on Linux")
def test_only_threads_that_may_not_preempt_others_get_another_policy():
    usual = os.sched_getscheduler(0)
    expected = os.SCHED_BATCH if usual == os.SCHED_OTHER and not patched() else usual
    assert policies(pool_of(preempts=False)) == (expected, usual)
    assert policies(pool_of()) == (usual, usual)


@pytest.mark.skipif(sys.platform != "linux", reason="this policy exists on Linux")
def test_a_sandbox_that_forbids_policies_leaves_the_usual_one(monkeypatch):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    usual = os.sched_getscheduler(0)
    assert policies(pool_of(preempts=False)) == (usual, usual)


def test_idle_threads_leave_and_new_ones_come():
    pool = pool_of(threads=2, idle=0.001)
    for _ in range(3):
        run(pool)
        eventually(lambda: not threads_of(pool))
    assert pool._idle == 0


def test_a_job_handed_to_a_thread_that_is_about_to_leave_is_run():
    pool = pool_of(threads=1, waiting=1, idle=0.0005)
    for _ in range(300):
        run(pool)
    eventually(lambda: pool.running == 0)


class LateQueue(queue.SimpleQueue):
    """A wait in it runs out in the very moment in which something is put."""

    def __init__(self):
        super().__init__()
        self.put_to = threading.Event()

    def get(self, timeout=None):
        assert self.put_to.wait(TIMEOUT)
        raise queue.Empty

    def put(self, item):
        super().put(item)
        self.put_to.set()

    def get_nowait(self):
        return super().get(block=False)


def test_a_job_put_while_the_wait_for_it_runs_out_is_run():
    pool = pool_of(threads=1)
    pool._jobs = LateQueue()
    run(pool)
    eventually(lambda: pool._idle == 1)
    run(pool)


def test_after_close_idle_threads_leave_and_the_others_when_they_are_done():
    pool = pool_of(threads=2)
    gate, _ = occupy(pool)
    run(pool)
    eventually(lambda: pool._idle == 1)
    pool.close()
    pool.close()
    eventually(lambda: len(threads_of(pool)) == 1)
    gate.open.set()
    eventually(lambda: not threads_of(pool))


def test_a_system_without_threads_leaves_the_place_to_be_given_back(monkeypatch):
    pool = pool_of(threads=1, waiting=1)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        slot = pool.reserve()
        with pytest.raises(RuntimeError):
            slot.submit(print)
        slot.release()
    assert pool.running == 0
    run(pool)


def test_a_job_in_line_survives_a_moment_without_threads(monkeypatch, caplog):
    pool = pool_of(threads=2, waiting=2)
    gate, _ = occupy(pool)
    held, done = pool.reserve(), threading.Event()
    pool.reserve().submit(done.set)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        held.release()
    assert "stays first in the queue" in caplog.text
    assert not done.is_set()
    gate.open.set()
    assert done.wait(TIMEOUT)
    eventually(lambda: (pool.running, pool.waiting) == (0, 0))


# -- fork ---------------------------------------------------------------------------------------------------------------


def test_a_forked_child_starts_with_an_empty_pool():
    pool = pool_of(threads=1, waiting=1)
    gate, _ = occupy(pool)
    line = pool.reserve()
    in_child(lambda: run(pool))
    assert pool.running == 1
    line.release()
    gate.open.set()


def test_a_pool_with_idle_threads_works_in_a_child():
    pool = pool_of(threads=1)
    run(pool)
    eventually(lambda: pool._idle == 1)
    in_child(lambda: run(pool))
    run(pool)


def test_a_fork_while_the_pool_is_locked_does_not_stop_the_child():
    pool = pool_of(threads=1)
    with pool._lock:
        in_child(lambda: run(pool))
