"""The webhooks of tasks: the same in every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from a2a_sync.errors import TaskNotFoundError
from a2a_sync.operations import RunRequest, Webhook
from a2a_sync.stores.base import COMPACT_FROM, TaskBusy, TaskStore
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.stores.webhooks import SNAPSHOT, TooManyWebhooks
from a2a_sync.types import AuthenticationInfo, TaskPushNotificationConfig, TaskState
from tests.stores.contract import FOREIGN, MINE, begin, chunk, done, message, status, together
from tests.stores.test_retention import ever


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., TaskStore]]:
    with ExitStack() as stack:

        def make(**options: Any) -> TaskStore:
            store: TaskStore = (
                MemoryStore(**options) if request.param == "memory" else SQLiteStore(tmp_path / "tasks.db", **options)
            )
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture
def store(make_store: Callable[..., TaskStore]) -> TaskStore:
    return make_store()


def webhook(task_id: str, webhook_id: str = "w", *, version: str = "1.0", **members: Any) -> Webhook:
    members.setdefault("url", f"https://example.com/{webhook_id}")
    return Webhook(TaskPushNotificationConfig(id=webhook_id, task_id=task_id, **members), version)


def put(store: TaskStore, task_id: str, *webhook_ids: str, most: int = 10, **members: Any) -> None:
    for webhook_id in webhook_ids:
        store.webhooks.put(MINE, webhook(task_id, webhook_id, **members), most=most)


def ids_of(store: TaskStore, task_id: str) -> list[str]:
    return [stored.id for stored in store.webhooks.of_task(MINE, task_id)]


def start_with(store: TaskStore, hook: Webhook, *, create: bool = True) -> RunRequest:
    told = message(hook.config.task_id)
    request = RunRequest(message=told, webhook=hook)
    store.start_run(MINE, request, [told, status(told.task_id, TaskState.WORKING)], create=create)
    return request


# -- keeping ------------------------------------------------------------------------------------------------------------


def test_a_webhook_is_kept_with_everything_it_says(store):
    task_id = done(store)
    hook = webhook(
        task_id,
        "w",
        version="0.3",
        tenant=MINE.tenant,
        token="a token",
        authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
    )
    store.webhooks.put(MINE, hook, most=10)
    (stored,) = store.webhooks.of_task(MINE, task_id)
    assert (stored.config, stored.version, stored.scope) == (hook.config, "0.3", MINE)
    assert (stored.cursor, stored.tries, stored.due_ms, stored.disabled) == (SNAPSHOT, 0, 0, "")
    assert (stored.task_id, stored.id) == (task_id, "w")


def test_secrets_are_not_shown_by_repr(store):
    task_id = done(store)
    secret = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
    put(store, task_id, "w", token="t0ken", authentication=secret)
    shown = repr(store.webhooks.of_task(MINE, task_id))
    assert "s3cret" not in shown
    assert "t0ken" not in shown


def test_webhooks_stay_in_the_order_in_which_they_were_added(store):
    task_id = begin(store).head.id
    put(store, task_id, "c", "a", "b", "a", "c")
    assert ids_of(store, task_id) == ["c", "a", "b"]
    numbers = [stored.number for stored in store.webhooks.of_task(MINE, task_id)]
    assert numbers == sorted(set(numbers))


def test_a_webhook_that_is_set_again_is_replaced(store):
    task_id = begin(store).head.id
    put(store, task_id, "v", "w", token="old")
    before = store.webhooks.of_task(MINE, task_id)
    put(store, task_id, "w", url="https://example.com/other", version="0.3")
    after = store.webhooks.of_task(MINE, task_id)
    assert after[0] == before[0]
    assert after[1].config == webhook(task_id, "w", url="https://example.com/other").config
    assert (after[1].version, after[1].revision) == ("0.3", before[1].revision + 1)
    assert after[1].number == before[1].number


def test_webhooks_of_two_tasks_may_have_one_id(store):
    one, two = begin(store).head.id, begin(store).head.id
    put(store, one, "w", token="one")
    put(store, two, "w", token="two")
    store.webhooks.delete(MINE, one, "w")
    assert ids_of(store, one) == []
    assert [stored.config.token for stored in store.webhooks.of_task(MINE, two)] == ["two"]


def test_no_more_webhooks_are_kept_than_may_be(store):
    task_id = begin(store).head.id
    put(store, task_id, "a", "b", most=2)
    with pytest.raises(TooManyWebhooks):
        put(store, task_id, "c", most=2)
    put(store, task_id, "b", most=1, token="again")
    assert ids_of(store, task_id) == ["a", "b"]
    store.webhooks.delete(MINE, task_id, "a")
    put(store, task_id, "c", most=2)
    assert ids_of(store, task_id) == ["b", "c"]


def test_of_many_webhooks_that_come_at_once_as_many_are_kept_as_may_be(store):
    task_id = begin(store).head.id
    results = together(*[partial(put, store, task_id, f"w{n}", most=3) for n in range(8)])
    assert [type(result) for result in results if result is not None] == [TooManyWebhooks] * 5
    assert len(ids_of(store, task_id)) == 3


def test_deleting_a_webhook_twice_is_harmless(store):
    task_id = begin(store).head.id
    put(store, task_id, "a", "b")
    for _ in range(2):
        store.webhooks.delete(MINE, task_id, "a")
    assert ids_of(store, task_id) == ["b"]


@pytest.mark.parametrize("scope", FOREIGN)
def test_webhooks_of_tasks_of_another_scope_do_not_exist(store, scope):
    task_id = done(store)
    put(store, task_id, "w")
    for call in (
        partial(store.webhooks.put, scope, webhook(task_id, "w", token="stolen"), most=10),
        partial(store.webhooks.of_task, scope, task_id),
        partial(store.webhooks.delete, scope, task_id, "w"),
    ):
        with pytest.raises(TaskNotFoundError):
            call()
    assert [stored.config for stored in store.webhooks.of_task(MINE, task_id)] == [webhook(task_id).config]


def test_an_unknown_task_has_no_webhooks_to_ask_for(store):
    for call in (
        partial(put, store, "unknown", "w"),
        partial(ids_of, store, "unknown"),
        partial(store.webhooks.delete, MINE, "unknown", "w"),
    ):
        with pytest.raises(TaskNotFoundError):
            call()


# -- with a run ---------------------------------------------------------------------------------------------------------


def test_a_webhook_that_comes_with_a_new_task_is_told_of_everything(store):
    request = start_with(store, webhook("t"))
    (stored,) = store.webhooks.of_task(MINE, "t")
    assert (stored.config, stored.cursor) == (request.webhook.config, 0)


def test_a_webhook_that_comes_with_the_next_run_is_told_from_that_run_on(store):
    run = begin(store, task_id="t")
    store.append(run.token, [], end=True)
    start_with(store, webhook("t"), create=False)
    (stored,) = store.webhooks.of_task(MINE, "t")
    assert stored.cursor == run.head.version


def test_a_webhook_that_comes_again_goes_on_where_it_was(store):
    start_with(store, webhook("t", token="one"))
    store.interrupt(MINE, "t", [])
    start_with(store, webhook("t", token="two"), create=False)
    (stored,) = store.webhooks.of_task(MINE, "t")
    assert (stored.config.token, stored.cursor) == ("two", 0)


def test_a_run_that_is_refused_leaves_no_webhook(store):
    begin(store, task_id="t")
    with pytest.raises(TaskBusy):
        start_with(store, webhook("t"), create=False)
    assert ids_of(store, "t") == []


def test_the_request_of_a_run_does_not_hold_its_webhook(store):
    request = start_with(store, webhook("t", token="s3cret"))
    assert store.request(MINE, "t") == replace(request, webhook=None)


# -- the end of its task ------------------------------------------------------------------------------------------------


def test_a_webhook_outlives_the_end_of_its_task(store):
    task_id = done(store)
    put(store, task_id, "w")
    assert ids_of(store, task_id) == ["w"]


def test_webhooks_go_with_their_task(store):
    for remove in (
        lambda task_id: store.delete(MINE, task_id),
        lambda task_id: store.sweep(ever(ended=True)),
    ):
        done(store, task_id="t")
        put(store, "t", "a", "b")
        remove("t")
        with pytest.raises(TaskNotFoundError):
            ids_of(store, "t")
        done(store, task_id="t")
        assert ids_of(store, "t") == []
        store.delete(MINE, "t")


def test_webhooks_go_with_tasks_that_make_room(make_store):
    store = make_store(max_tasks=1)
    done(store, task_id="t")
    put(store, "t", "w")
    done(store)
    done(store, task_id="t")
    assert ids_of(store, "t") == []


def test_webhooks_stay_when_a_log_is_compacted(store):
    run = begin(store)
    for n in range(COMPACT_FROM):
        store.append(run.token, [chunk(run.head.id, "x", append=n > 0)])
    store.append(run.token, [status(run.head.id, TaskState.COMPLETED)])
    put(store, run.head.id, "w", token="kept")
    before = store.webhooks.of_task(MINE, run.head.id)
    store.sweep(ever(replay=True))
    assert store.webhooks.of_task(MINE, run.head.id) == before
