"""The bodies of notifications with whole tasks: how often, and in which turns, the tasks are read for them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_sync import InputRequired
from a2a_sync.codec import by_version
from a2a_sync.errors import TaskNotFoundError
from a2a_sync.push import notification
from a2a_sync.push.notification import Notifications
from a2a_sync.stores.base import Owner, StoredWebhook
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.types import TaskPushNotificationConfig, TaskStatusUpdateEvent
from tests.engine import Served, serving

pytestmark = pytest.mark.timeout(60)

LARGE = "x" * 100_000
SELF = Owner("", "")


class Counted(LargeReads):
    """Counts the turns, and the loads of `store` within them."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(store)
        self.turns, self.loads, self._inside = 0, 0, False
        self._load = store.load
        monkeypatch.setattr(store, "load", self._counted)

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.loads += self._inside
        return self._load(*args, **kwargs)

    @contextmanager
    def turn(self, owner: Owner) -> Iterator[None]:
        self.turns += 1
        with super().turn(owner):
            self._inside = True
            yield
            self._inside = False


@pytest.fixture(params=["memory", "sqlite"])
def served(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Served]:
    factory = None if request.param == "memory" else lambda: f"sqlite:///{tmp_path}/tasks.db"
    made = serving(factory)
    yield next(made)(lambda message, context: InputRequired("which?"))
    next(made, None)


def making(served: Served, monkeypatch: pytest.MonkeyPatch) -> tuple[Notifications, Counted]:
    reads = Counted(served.store, monkeypatch)
    return Notifications(served.store, reads, max_bytes=4_000_000, history=100), reads


def webhooks(task_id: str, *, version: str = "0.3", owner: Owner | None = None) -> list[StoredWebhook]:
    """Three of a task."""
    configs = [TaskPushNotificationConfig(id=f"{n}", task_id=task_id, url="https://a.example/") for n in range(3)]
    return [
        StoredWebhook(owner=owner or SELF, config=config, number=number, version=version, revision=1, cursor=-1, head=3)
        for number, config in enumerate(configs)
    ]


def version_of(served: Served, task_id: str) -> int:
    return int(served.log(task_id)[-1].number)


def test_a_large_task_is_read_once_for_its_webhooks_of_one_version(served, monkeypatch):
    task = served.send(LARGE)
    make, reads = making(served, monkeypatch)
    for version in ("1.0", "0.3"):
        bodies = {make.of_task(webhook, 3).body for webhook in webhooks(task.id, version=version)}
        assert len(bodies) == 1
    assert (reads.turns, reads.loads) == (2, 2)


def test_a_large_task_is_read_once_for_each_status_that_its_webhooks_of_03_get(served, monkeypatch):
    task = served.send(LARGE)
    make, reads = making(served, monkeypatch)
    statuses = [entry for entry in served.log(task.id) if issubclass(entry.kind, TaskStatusUpdateEvent)]
    assert len(statuses) > 1
    for webhook in webhooks(task.id):
        for entry in statuses:
            number, body = make.of_entry(webhook, entry)
            assert number == entry.number
            assert json.loads(body)["status"] == json.loads(by_version("0.3").encode_item(entry))["status"]
    assert reads.loads == len(statuses)


def test_a_task_that_has_changed_is_read_again(served, monkeypatch):
    task = served.send(LARGE)
    make, _ = making(served, monkeypatch)
    webhook = webhooks(task.id)[0]
    assert b"again" not in make.of_task(webhook, version_of(served, task.id)).body
    served.send("again", task_id=task.id)
    version = version_of(served, task.id)
    made = make.of_task(webhook, version)
    assert made.number == version
    assert b"again" in made.body


def test_a_shared_notification_reaches_no_webhook_of_another_owner(served, monkeypatch):
    task = served.send(LARGE)
    make, _ = making(served, monkeypatch)
    assert make.of_task(webhooks(task.id)[0], 3).body
    for owner in (Owner("", "eve"), Owner("another", "")):
        with pytest.raises(TaskNotFoundError):
            make.of_task(webhooks(task.id, owner=owner)[0], 3)


def test_a_thread_that_has_read_a_large_task_pauses_after_its_turn(served, monkeypatch):
    task = served.send(LARGE)
    make, reads = making(served, monkeypatch)
    pauses: list[tuple[float, bool]] = []
    clock = SimpleNamespace(
        monotonic=itertools.count(0, 0.2).__next__, sleep=lambda seconds: pauses.append((seconds, reads._inside))
    )
    monkeypatch.setattr(notification, "time", clock)
    for webhook in webhooks(task.id):
        assert make.of_task(webhook, 3).body
    assert pauses == [(0.2, False)]


def test_small_tasks_are_read_without_a_turn_and_not_kept(served, monkeypatch):
    task = served.send("x" * 30_000)
    make, reads = making(served, monkeypatch)
    for webhook in webhooks(task.id):
        assert make.of_task(webhook, 3).body
    assert reads.turns == 0
    assert make._shared._made == {}


def test_the_bodies_that_are_kept_have_a_bounded_number_of_bytes(served, monkeypatch):
    monkeypatch.setattr(notification, "_SHARED_BYTES", 250_000)
    make, reads = making(served, monkeypatch)
    for text in (LARGE, LARGE, LARGE, LARGE * 3):
        task = served.send(text)
        assert len(make.of_task(webhooks(task.id)[0], 3).body) > len(text)
        assert sum(len(made.body) for made in make._shared._made.values()) <= make._shared._bytes <= 250_000
    assert len(make._shared._made) == 2
    assert reads.loads == 4


def test_shortened_notifications_that_are_kept_have_a_bounded_number(served, monkeypatch):
    monkeypatch.setattr(notification, "_SHARED_BYTES", 10_000)
    make = Notifications(served.store, Counted(served.store, monkeypatch), max_bytes=80_000, history=100)
    task = served.send(LARGE)
    for number in range(20):
        assert len(make.of_task(webhooks(task.id)[0], number).body) < 500
    assert 0 < len(make._shared._made) < 10
