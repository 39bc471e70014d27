"""The leases of the processes that share a store."""

from __future__ import annotations

from typing import Any

from a2a_sync.stores.base import LostWorker
from a2a_sync.testing.storecontract.making import MakeStore, begin

#: Seconds: a lease that no test outlives, and a time at which shorter ones are over.
_LONG, _LATER = 1e9, 1e6


def _joined(make_store: MakeStore) -> tuple[Any, Any, Any, float]:
    """The parts of three stores, of which the first has a lease of a minute, and the time of the clock."""
    one, two, three = (make_store().workers for _ in range(3))
    one.beat(60)
    three.beat(_LONG)
    return one, two, three, two.beat(_LONG)


class Leases:
    """Tests of `Workers`, with several stores over the same tasks."""

    def test_a_worker_is_lost_when_its_lease_is_over_and_is_claimed_once(self, make_store: Any) -> None:
        one, two, three, now = _joined(make_store)
        assert two.claim_lost(60, now=now - 1) is None
        assert two.claim_lost(_LONG, now=now + _LATER) == LostWorker(one.id, left=False)
        assert three.claim_lost(_LONG, now=now + _LATER) is None

    def test_a_claim_ends_so_that_a_worker_is_not_lost_with_its_reaper(self, make_store: Any) -> None:
        one, two, three, now = _joined(make_store)
        for other in (two, three):
            assert other.claim_lost(60, now=now + _LATER) == LostWorker(one.id, left=False)

    def test_a_worker_that_beats_again_is_no_longer_lost(self, make_store: Any) -> None:
        one, two, three, now = _joined(make_store)
        assert two.claim_lost(_LONG, now=now + _LATER) is not None
        one.beat(60)
        two.deregister(one.id)
        assert three.claim_lost(60, now=now - 1) is None
        assert three.claim_lost(60, now=now + _LATER) == LostWorker(one.id, left=False)

    def test_a_worker_that_has_left_is_lost_at_once(self, make_store: Any) -> None:
        one, two, three, _ = _joined(make_store)
        assert two.claim_lost(_LONG, now=None) is None
        one.leave()
        assert two.claim_lost(_LONG, now=None) == LostWorker(one.id, left=True)
        assert three.claim_lost(_LONG, now=None) is None

    def test_a_lease_from_before_the_clock_was_set_back_is_over(self, make_store: Any) -> None:
        one, two, _, now = _joined(make_store)
        assert two.claim_lost(60, now=now - _LATER) == LostWorker(one.id, left=False)

    def test_a_worker_that_stores_a_run_after_it_was_removed_is_lost_again(self, make_store: Any) -> None:
        late = make_store()
        _, two, three, now = _joined(make_store)
        held = begin(late).token
        three.register_missing(60)
        assert two.claim_lost(_LONG, now=now - 1) is None
        assert {two.claim_lost(_LONG, now=now + _LATER) for _ in range(3)} > {LostWorker(late.workers.id, left=False)}
        # The claim is not changed.
        three.register_missing(60)
        assert three.claim_lost(60, now=now + _LATER) is None
        assert [run.token for run in two.runs_of(late.workers.id)] == [held]

    def test_a_lost_worker_is_listed_until_its_reaper_removes_it(self, make_store: Any) -> None:
        store = make_store()
        assert not store.workers.has_others()
        held = begin(store).token
        one, two, three, now = _joined(make_store)
        store.workers.beat(60)
        assert two.claim_lost(_LONG, now=now + _LATER) is not None
        assert two.claim_lost(_LONG, now=now + _LATER) is not None
        three.deregister(store.workers.id)
        assert [run.token for run in two.runs_of(store.workers.id)] == [held]
        for lost in (one, store.workers):
            assert lost.has_others()
            two.deregister(lost.id)
        three.deregister(two.id)
        assert three.has_others()
        assert two.claim_lost(60, now=now + _LATER) is None
