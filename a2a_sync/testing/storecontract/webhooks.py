"""The webhooks of tasks: storage, due deliveries, claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import RunRequest, Webhook
from a2a_sync.stores.base import SNAPSHOT, Owner, TaskBusy, TooManyWebhooks
from a2a_sync.testing.storecontract.making import (
    FOREIGN,
    MINE,
    MakeStore,
    begin,
    chunk,
    concurrently,
    done,
    expire_all,
    long,
    message,
    status,
)
from a2a_sync.types import AuthenticationInfo, TaskPushNotificationConfig, TaskState


def webhook(task_id: str, webhook_id: str = "w", *, version: str = "1.0", **members: Any) -> Webhook:
    members.setdefault("url", f"https://example.com/{webhook_id}")
    return Webhook(TaskPushNotificationConfig(id=webhook_id, task_id=task_id, **members), version)


def put(store: Any, task_id: str, *webhook_ids: str, most: int = 10, **members: Any) -> None:
    for webhook_id in webhook_ids:
        store.webhooks.put(MINE, webhook(task_id, webhook_id, **members), most=most)


def ids_of(store: Any, task_id: str) -> list[str]:
    return [stored.id for stored in store.webhooks.of_task(MINE, task_id)]


def start_with(store: Any, hook: Webhook, *, create: bool = True) -> RunRequest:
    sent = message(hook.config.task_id)
    request = RunRequest(message=sent, webhook=hook)
    store.start_run(MINE, request, [sent, status(sent.task_id, TaskState.WORKING)], create=create)
    return request


def due(store: Any, now_ms: int = 0, limit: int = 100) -> list[str]:
    return [stored.id for stored in store.webhooks.due(now_ms=now_ms, limit=limit)]


def holder(store: Any) -> str:
    """The id of a deliverer of a live worker."""
    if store.workers is None:
        return "me"
    store.workers.beat(60)
    return f"{store.workers.id}.me"


def claimed(store: Any, task_id: str, webhook_id: str = "w", deliverer: str = "") -> Any:
    (stored,) = [stored for stored in store.webhooks.of_task(MINE, task_id) if stored.id == webhook_id]
    return store.webhooks.claim(stored, deliverer or holder(store))


class Webhooks:
    """Part of `StoreContract`; see the module."""

    # -- keeping --------------------------------------------------------------------------------------------------------

    def test_a_webhook_is_stored_with_its_whole_configuration(self, store: Any) -> None:
        task_id = done(store)
        hook = webhook(
            task_id,
            "w",
            version="0.3",
            tenant=MINE.tenant,
            token="a token",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret", other_schemes=("Basic",)),
        )
        store.webhooks.put(MINE, hook, most=10)
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert (stored.config, stored.version, stored.owner) == (hook.config, "0.3", MINE)
        assert (stored.cursor, stored.tries, stored.due_ms, stored.disabled) == (SNAPSHOT, 0, 0, "")
        assert (stored.task_id, stored.id) == (task_id, "w")

    def test_secrets_are_not_shown_by_repr(self, store: Any) -> None:
        task_id = done(store)
        secret = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
        put(store, task_id, "w", token="t0ken", authentication=secret)
        shown = repr(store.webhooks.of_task(MINE, task_id))
        assert "s3cret" not in shown
        assert "t0ken" not in shown

    def test_webhooks_are_listed_in_the_order_in_which_they_were_added(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "c", "a", "b", "a", "c")
        assert ids_of(store, task_id) == ["c", "a", "b"]
        numbers = [stored.number for stored in store.webhooks.of_task(MINE, task_id)]
        assert numbers == sorted(set(numbers))

    def test_a_webhook_that_is_set_again_is_replaced(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "v", "w", token="old")
        before = store.webhooks.of_task(MINE, task_id)
        put(store, task_id, "w", url="https://example.com/other", version="0.3")
        after = store.webhooks.of_task(MINE, task_id)
        assert after[0] == before[0]
        assert after[1].config == webhook(task_id, "w", url="https://example.com/other").config
        assert (after[1].version, after[1].revision) == ("0.3", before[1].revision + 1)
        assert after[1].number == before[1].number

    def test_the_last_error_of_a_webhook_is_kept_with_its_time(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "w")
        held = claimed(store, task_id)
        assert (held.error, held.error_ms) == ("", 0)
        assert store.webhooks.settle(replace(held, tries=1, error="HTTP 500", error_ms=1234))
        assert store.webhooks.settle(replace(claimed(store, task_id), cursor=1, tries=0))
        put(store, task_id, "w", token="set again")
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert (stored.tries, stored.error, stored.error_ms) == (0, "HTTP 500", 1234)

    def test_webhooks_of_two_tasks_may_have_one_id(self, store: Any) -> None:
        one, two = begin(store).head.id, begin(store).head.id
        put(store, one, "w", token="one")
        put(store, two, "w", token="two")
        store.webhooks.delete(MINE, one, "w")
        assert ids_of(store, one) == []
        assert [stored.config.token for stored in store.webhooks.of_task(MINE, two)] == ["two"]

    def test_the_number_of_webhooks_of_a_task_is_limited(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "a", "b", most=2)
        with pytest.raises(TooManyWebhooks):
            put(store, task_id, "c", most=2)
        put(store, task_id, "b", most=1, token="again")
        assert ids_of(store, task_id) == ["a", "b"]
        store.webhooks.delete(MINE, task_id, "a")
        put(store, task_id, "c", most=2)
        assert ids_of(store, task_id) == ["b", "c"]

    def test_concurrent_additions_do_not_exceed_the_limit_of_webhooks(self, store: Any) -> None:
        task_id = begin(store).head.id
        results = concurrently(*[partial(put, store, task_id, f"w{n}", most=3) for n in range(8)])
        assert [type(result) for result in results if result is not None] == [TooManyWebhooks] * 5
        assert len(ids_of(store, task_id)) == 3

    def test_deleting_a_webhook_twice_is_harmless(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "a", "b")
        for _ in range(2):
            store.webhooks.delete(MINE, task_id, "a")
        assert ids_of(store, task_id) == ["b"]

    @pytest.mark.parametrize("owner", FOREIGN)
    def test_webhooks_of_tasks_of_another_owner_are_not_found(self, store: Any, owner: Owner) -> None:
        task_id = done(store)
        put(store, task_id, "w")
        for call in (
            partial(store.webhooks.put, owner, webhook(task_id, "w", token="stolen"), most=10),
            partial(store.webhooks.of_task, owner, task_id),
            partial(store.webhooks.delete, owner, task_id, "w"),
        ):
            with pytest.raises(TaskNotFoundError):
                call()
        assert [stored.config for stored in store.webhooks.of_task(MINE, task_id)] == [webhook(task_id).config]

    def test_webhooks_of_an_unknown_task_are_not_found(self, store: Any) -> None:
        for call in (
            partial(put, store, "unknown", "w"),
            partial(ids_of, store, "unknown"),
            partial(store.webhooks.delete, MINE, "unknown", "w"),
        ):
            with pytest.raises(TaskNotFoundError):
                call()

    # -- with a run -----------------------------------------------------------------------------------------------------

    def test_a_webhook_set_with_a_new_task_starts_before_its_first_entry(self, store: Any) -> None:
        start_with(store, webhook("t"))
        (stored,) = store.webhooks.of_task(MINE, "t")
        assert (stored.config, stored.cursor) == (webhook("t").config, 0)

    def test_a_webhook_set_with_the_next_run_starts_before_that_run(self, store: Any) -> None:
        run = begin(store, task_id="t")
        store.append(run.token, [], end=True)
        start_with(store, webhook("t"), create=False)
        (stored,) = store.webhooks.of_task(MINE, "t")
        assert stored.cursor == run.head.version

    def test_a_webhook_that_is_set_again_with_a_run_keeps_its_cursor(self, store: Any) -> None:
        start_with(store, webhook("t", token="one"))
        store.interrupt(MINE, "t", [])
        start_with(store, webhook("t", token="two"), create=False)
        (stored,) = store.webhooks.of_task(MINE, "t")
        assert (stored.config.token, stored.cursor) == ("two", 0)

    def test_a_run_that_is_refused_leaves_no_webhook(self, store: Any) -> None:
        begin(store, task_id="t")
        with pytest.raises(TaskBusy):
            start_with(store, webhook("t"), create=False)
        assert ids_of(store, "t") == []

    def test_the_request_of_a_run_does_not_hold_its_webhook(self, store: Any) -> None:
        request = start_with(store, webhook("t", token="s3cret"))
        assert store.request(MINE, "t").request == replace(request, webhook=None)

    # -- the end of its task --------------------------------------------------------------------------------------------

    def test_a_webhook_outlives_the_end_of_its_task(self, store: Any) -> None:
        task_id = done(store)
        put(store, task_id, "w")
        assert ids_of(store, task_id) == ["w"]

    def test_webhooks_are_removed_with_their_task(self, store: Any) -> None:
        removals: list[Callable[[], object]] = [
            lambda: store.delete(MINE, "t"),
            lambda: store.sweep(expire_all(ended=True)),
        ]
        for remove in removals:
            done(store, task_id="t")
            put(store, "t", "a", "b")
            remove()
            with pytest.raises(TaskNotFoundError):
                ids_of(store, "t")
            done(store, task_id="t")
            assert ids_of(store, "t") == []
            store.delete(MINE, "t")

    def test_webhooks_are_removed_with_an_evicted_task(self, make_store: MakeStore) -> None:
        store = make_store(max_tasks=1)
        done(store, task_id="t")
        put(store, "t", "w")
        done(store)
        done(store, task_id="t")
        assert ids_of(store, "t") == []

    def test_webhooks_are_kept_when_a_log_is_compacted(self, store: Any) -> None:
        task_id = long(store)
        put(store, task_id, "w", token="kept")
        before = store.webhooks.of_task(MINE, task_id)
        store.sweep(expire_all(replay=True))
        assert store.webhooks.of_task(MINE, task_id) == before

    # -- delivering -----------------------------------------------------------------------------------------------------

    def test_a_webhook_is_due_until_the_last_entry_is_delivered(self, store: Any) -> None:
        run = begin(store)
        task_id = run.head.id
        put(store, task_id, "w")
        assert due(store) == ["w"]
        held = claimed(store, task_id)
        assert (held.cursor, held.head) == (SNAPSHOT, run.head.version)
        assert store.webhooks.settle(replace(held, cursor=held.head), release=True)
        assert due(store) == []
        assert claimed(store, task_id) is None
        store.append(run.token, [chunk(task_id, "x")])
        assert due(store) == ["w"]
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert (stored.cursor, stored.head) == (held.head, held.head + 1)

    def test_a_webhook_of_a_run_that_ends_in_the_step_that_starts_it_is_due(self, store: Any) -> None:
        sent = message("t")
        request = RunRequest(message=sent, webhook=webhook("t"))
        store.start_run(MINE, request, [sent, status("t", TaskState.COMPLETED)], create=True)
        assert due(store) == ["w"]
        held = claimed(store, "t")
        assert (held.cursor, held.head) == (0, 2)
        assert store.webhooks.settle(replace(held, cursor=2), release=True)
        assert due(store) == []

    def test_a_failed_delivery_is_due_at_its_next_attempt(self, store: Any) -> None:
        task_id = begin(store).head.id
        for webhook_id, moment in (("a", 300), ("b", 100), ("c", 200)):
            put(store, task_id, webhook_id)
            held = claimed(store, task_id, webhook_id)
            assert store.webhooks.settle(replace(held, tries=1, due_ms=moment), release=True)
        assert due(store, 99) == []
        assert due(store, 200) == ["b", "c"]
        assert due(store, 1000, limit=2) == ["b", "c"]
        assert [stored.tries for stored in store.webhooks.of_task(MINE, task_id)] == [1, 1, 1]

    def test_an_owner_with_many_webhooks_does_not_hide_those_of_another(self, store: Any) -> None:
        for _ in range(3):
            put(store, begin(store).head.id, "mine")
        other = begin(store, owner=FOREIGN[0]).head.id
        store.webhooks.put(FOREIGN[0], webhook(other, "theirs"), most=10)
        assert set(due(store, limit=2)) == {"mine", "theirs"}
        assert len(due(store)) == 4

    def test_a_webhook_is_claimed_by_one_deliverer_at_a_time(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "w")
        me = holder(store)
        held = claimed(store, task_id, deliverer=me)
        assert held.holder == me
        assert due(store) == []
        assert claimed(store, task_id, deliverer=me + "too") is None
        assert claimed(store, task_id, deliverer=me) == held
        assert not store.webhooks.settle(replace(held, holder=me + "too", cursor=1))
        assert store.webhooks.settle(replace(held, cursor=1), release=True)
        assert due(store) == ["w"]
        assert claimed(store, task_id, deliverer=me + "too").cursor == 1

    def test_of_concurrent_claims_of_a_webhook_one_succeeds(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "w")
        me = holder(store)
        for _ in range(10):
            results = concurrently(*[partial(claimed, store, task_id, "w", f"{me}{n}") for n in range(6)])
            (won,) = [result for result in results if result is not None]
            assert store.webhooks.settle(won, release=True)

    def test_a_webhook_that_was_set_again_or_removed_cannot_be_settled(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "w")
        held = claimed(store, task_id)
        put(store, task_id, "w", token="new")
        assert not store.webhooks.settle(replace(held, cursor=2), release=True)
        again = claimed(store, task_id)
        assert (again.config.token, again.cursor) == ("new", SNAPSHOT)
        store.webhooks.delete(MINE, task_id, "w")
        assert not store.webhooks.settle(again)
        assert store.webhooks.claim(again, again.holder) is None
        store.delete(MINE, task_id)
        assert not store.webhooks.settle(again)
        assert store.webhooks.claim(again, again.holder) is None

    def test_a_webhook_is_never_due_after_the_end_is_delivered(self, store: Any) -> None:
        task_id = done(store)
        put(store, task_id, "w")
        held = claimed(store, task_id)
        store.webhooks.settle(replace(held, cursor=held.head), release=True)
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert not stored.open
        assert due(store) == []

    def test_a_disabled_webhook_is_not_due_until_it_is_set_again(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "w")
        held = claimed(store, task_id)
        store.webhooks.settle(replace(held, cursor=1, tries=9, due_ms=5, disabled="HTTP 410"), release=True)
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert (stored.disabled, stored.open, stored.behind) == ("HTTP 410", False, False)
        assert due(store, 10) == []
        assert claimed(store, task_id) is None
        put(store, task_id, "w")
        (stored,) = store.webhooks.of_task(MINE, task_id)
        assert (stored.disabled, stored.open, stored.tries, stored.due_ms, stored.cursor) == ("", True, 0, 0, 1)
        assert due(store) == ["w"]

    def test_a_log_is_not_compacted_while_a_webhook_is_behind(self, store: Any) -> None:
        task_id = long(store)
        put(store, task_id, "w")
        assert store.sweep(expire_all(replay=True)).compacted == 0
        held = claimed(store, task_id)
        store.webhooks.settle(replace(held, cursor=held.head), release=True)
        assert store.sweep(expire_all(replay=True)).compacted == 1

    def test_a_disabled_webhook_does_not_prevent_compaction(self, store: Any) -> None:
        task_id = long(store)
        put(store, task_id, "w")
        store.webhooks.settle(replace(claimed(store, task_id), disabled="HTTP 410"), release=True)
        assert store.sweep(expire_all(replay=True)).compacted == 1

    def test_a_release_ends_the_claims_of_one_deliverer_only(self, store: Any) -> None:
        task_id = begin(store).head.id
        put(store, task_id, "a", "b")
        me = holder(store)
        mine, other = claimed(store, task_id, "a", me), claimed(store, task_id, "b", me + "too")
        store.webhooks.release(me)
        assert due(store) == ["a"]
        assert not store.webhooks.settle(replace(mine, cursor=3))
        assert store.webhooks.settle(replace(other, cursor=3))
