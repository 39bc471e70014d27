"""The order in which the dispatcher sends jobs. The tests call its rounds, instead of its thread, and advance the time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_sync.engine.dispatcher import _FIRST_PAUSE, _LONGEST_FAILED_PAUSE, _SLOW, Dispatcher
from a2a_sync.engine.jobs import JobReference
from a2a_sync.errors import StoreError


class Site:
    """A dispatcher, with a queue whose sends take `seconds`, raise an error for the owners in `refused`, and call `during`."""

    def __init__(self) -> None:
        self.now, self.seconds = 0.0, 0.0
        self.refused: set[str] = set()
        self.during: Callable[[], object] = lambda: None
        self.sent: list[str] = []
        self.store_works = True
        self.wakes = 0
        store: Any = SimpleNamespace(workers=self)
        hub: Any = SimpleNamespace(pubsub=None, unsubscribe=lambda task_id: None)
        self.dispatcher = Dispatcher(self, store, hub, max_queued=100)
        rounds: Any = SimpleNamespace(start=lambda after=0.0: True, wake=self._wake)
        self.dispatcher._rounds = rounds

    def _wake(self) -> bool:
        self.wakes += 1
        return True

    def holds(self, token: object) -> bool:
        if not self.store_works:
            raise StoreError("the store is away")
        return True

    def connect(self, consumer: object) -> None: ...

    def send(self, job: JobReference) -> None:
        self.sent.append(job.task_id)
        self.now += self.seconds
        self.during()
        if job.owner in self.refused:
            raise OSError("refused")

    def submit(self, *tasks: str) -> None:
        """Submit a job for each task; its owner is the part of its name before the hyphen."""
        for task in tasks:
            owner = task.split("-")[0]
            job: Any = SimpleNamespace(hand_over=lambda owner=owner, task=task: JobReference("", owner, task, "token"))
            self.dispatcher.reserve(owner).submit(job)

    def rounds(self) -> list[str]:
        """What is sent until the next pause."""
        before = len(self.sent)
        while self.dispatcher._send_next() == 0.0:
            pass
        return self.sent[before:]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    monkeypatch.setattr("a2a_sync.engine.dispatcher.time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr("a2a_sync.engine.dispatcher.random", SimpleNamespace(uniform=lambda low, high: 1.0))
    return made


def slow(site: Site) -> None:
    """Have the thread send all jobs."""
    site.seconds = 2 * _SLOW
    site.submit("a-slow")
    site.dispatcher.discard("a-slow")
    site.seconds = 0.0


def test_owners_have_turns(site: Site) -> None:
    slow(site)
    site.submit("a-1", "a-2", "a-3", "b-1")
    assert site.rounds() == ["a-1", "b-1", "a-2", "a-3"]


def test_a_job_that_comes_while_others_are_sent_again_waits_for_one_of_them(site: Site) -> None:
    site.submit("a-1", "a-2", "a-3")
    site.now += 2 * _FIRST_PAUSE
    site.dispatcher._slow = True
    site.during = lambda: site.submit("b-1") if len(site.sent) == 4 else None
    assert site.rounds() == ["a-1", "b-1", "a-2", "a-3"]


def test_new_jobs_do_not_keep_others_from_being_sent_again(site: Site) -> None:
    site.submit("a-1")
    site.now += 2 * _FIRST_PAUSE
    site.dispatcher._slow = True
    site.submit("b-1", "b-2", "b-3")
    assert site.rounds() == ["b-1", "a-1", "b-2", "b-3"]


def test_owners_have_turns_when_jobs_are_sent_again(site: Site) -> None:
    site.submit("a-1", "a-2", "a-3", "b-1")
    site.now += 2 * _FIRST_PAUSE
    assert site.rounds() == ["a-1", "b-1", "a-2", "a-3"]


def test_a_new_job_is_sent_at_once_although_the_queue_refuses_another_one(site: Site) -> None:
    site.refused = {"a"}
    site.submit("a-1", "b-1")
    assert (site.sent, site.wakes) == (["a-1"], 1), "the thread has to see whether the queue refuses all"
    assert site.rounds() == ["b-1"]
    site.now += _FIRST_PAUSE
    assert site.rounds()[0] == "a-1"
    site.submit("b-2")
    assert (site.sent[-1], site.wakes) == ("b-2", 1), "its request sends it"


def test_a_refused_job_is_sent_again_after_pauses_until_it_is_not_refused(site: Site) -> None:
    site.refused = {"a"}
    site.submit("a-1")
    times = []
    while site.now < 5 * _LONGEST_FAILED_PAUSE:
        site.now += _FIRST_PAUSE
        times += [site.now for _ in site.rounds()]
    pauses = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0, 30.0]
    site.refused = set()
    site.now += _LONGEST_FAILED_PAUSE
    assert (site.rounds(), site.dispatcher._failing) == (["a-1"], False)


def test_a_discarded_job_is_not_sent(site: Site) -> None:
    slow(site)
    site.submit("a-1", "a-2")
    site.dispatcher.discard("a-1")
    assert (site.rounds(), site.dispatcher.waiting) == (["a-2"], 1)
    site.now += _FIRST_PAUSE
    site.during = lambda: site.dispatcher.discard("a-2")
    assert (site.rounds(), site.dispatcher.waiting) == (["a-2"], 0)
    site.now += 2 * _FIRST_PAUSE
    assert (site.rounds(), len(site.dispatcher._first), len(site.dispatcher._again)) == ([], 0, 0)


def test_a_job_is_not_lost_while_the_store_is_away(site: Site) -> None:
    slow(site)
    site.submit("a-1")
    site.store_works = False
    with pytest.raises(StoreError):
        site.rounds()
    site.store_works = True
    site.now += _FIRST_PAUSE
    assert site.rounds() == ["a-1"]


def test_a_job_is_not_sent_by_the_thread_while_its_request_sends_it(site: Site) -> None:
    site.seconds = 10 * _FIRST_PAUSE
    again: list[str] = []
    site.during = lambda: again.extend(site.rounds()) if len(site.sent) == 1 else None
    site.submit("a-1")
    assert again == []
