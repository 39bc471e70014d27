"""Deliveries to webhooks: their form and order, and failures of receivers."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from a2a_sync import InputRequired, PushOptions, SQLiteStore, URLGuard
from a2a_sync import operations as op
from a2a_sync.codec import by_version
from a2a_sync.push import PushRefusedError, PushRequest, delivery
from a2a_sync.push.delivery import public_error
from a2a_sync.push.notification import SHORTENED
from a2a_sync.stores.base import COMPACT_FROM, Owner
from a2a_sync.testing.storecontract.making import expire_all
from a2a_sync.types import (
    WEBHOOK_DISABLED,
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    TaskPushNotificationConfig,
)
from tests.engine import TIMEOUT, Background, Gate, Served, eventually, serving
from tests.live import free_port
from tests.push.receiver import LOOPBACK, Receiver, hanging, receiving, refused, state, taken, texts

pytestmark = pytest.mark.timeout(60)

#: Retries follow at once, but for the jitter.
SWIFT = replace(LOOPBACK, initial_backoff=0.01, max_backoff=0.05, timeout=5.0)
#: Nothing is found by polling.
UNPOLLED = {"store_poll_interval": 60.0}


@pytest.fixture(params=["memory", "sqlite"])
def serve(request, tmp_path):
    numbers = itertools.count()
    factory = None if request.param == "memory" else lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
    made = serving(factory)
    make = next(made)
    yield lambda handler, **options: make(handler, **{"push": SWIFT, **UNPOLLED, **options})
    next(made, None)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def two(receiver) -> Iterator[tuple[Receiver, Receiver]]:
    with receiving() as other:
        yield receiver, other


def count(message: Any, context: Any) -> Any:
    """As many pieces as the message says, or a question."""
    if message.text == "ask":
        return InputRequired("and then?")
    return (f"{number} " for number in range(1, int(message.text) + 1))


def webhook(served: Served, task_id: str) -> Any:
    (stored,) = served.store.webhooks.of_task(Owner(), task_id)
    return stored


def create(served: Served, receiver: Receiver, task_id: str, *, version: str = "1.0", **members: Any) -> Any:
    return served.call(op.CREATE_PUSH_CONFIG, receiver.config(task_id=task_id, **members), version=version)


# -- content and order -------------------------------------------------------------------------------------------------------


def test_a_webhook_that_comes_with_a_send_gets_every_event_in_order(serve, receiver):
    served = serve(count)
    task = served.send("3", task_push_notification_config=receiver.config())
    posts = receiver.await_end()
    events = [entry for entry in served.log(task.id) if entry.streamed]
    assert [post.body for post in posts] == [json.loads(by_version("1.0").encode_item(entry)) for entry in events]
    assert texts(posts) == ["submitted", "working", "1 ", "2 ", "3 ", "completed"]
    assert all(len(post.body) == 1 for post in posts)
    updates = [post.body["artifactUpdate"] for post in posts if "artifactUpdate" in post.body]
    assert [(one.get("append", False), one.get("lastChunk", False)) for one in updates] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
    ]
    assert updates[-1]["artifact"]["parts"] == [{"text": "1 2 3 "}]


def test_the_headers_say_what_it_is_and_carry_the_secrets(serve, receiver):
    served = serve(count)
    secret = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
    task = served.send("1", task_push_notification_config=receiver.config(token="t0ken", authentication=secret))
    posts = receiver.await_end()
    for post in posts:
        assert post.path == "/hooks/s3cret-path"
        assert post.headers["content-type"] == "application/a2a+json"
        assert post.headers["a2a-version"] == "1.0"
        assert post.headers["x-a2a-notification-token"] == "t0ken"
        assert post.headers["authorization"] == "Bearer s3cret"
    numbers = [entry.number for entry in served.log(task.id) if entry.streamed]
    assert [post.headers["x-a2a-notification-id"] for post in posts] == [f"{task.id}/{number}" for number in numbers]


def test_what_was_not_given_is_not_sent(serve, receiver):
    served = serve(count)
    scheme = AuthenticationInfo(scheme="Bearer")
    served.send("1", task_push_notification_config=receiver.config(authentication=scheme))
    for post in receiver.await_end():
        assert not {"authorization", "x-a2a-notification-token", "traceparent"} & set(post.headers)


def test_a_webhook_of_0_3_gets_the_whole_task_at_each_new_status(serve, receiver):
    served = serve(count)
    request = served.request("2", task_push_notification_config=receiver.config(token="t0ken"))
    task = served.call(op.SEND_MESSAGE, request, version="0.3")
    posts = receiver.await_end()
    assert [state(post.body) for post in posts] == ["submitted", "working", "completed"]
    for post in posts:
        assert (post.body["kind"], post.body["id"]) == ("task", task.id)
        assert post.headers["content-type"] == "application/json"
        assert post.headers["a2a-version"] == "0.3"
        assert post.headers["x-a2a-notification-token"] == "t0ken"
    last = by_version("0.3").load(type(task), posts[-1].body, strict=False)
    assert (last.text, last.state) == (task.text, task.state)


def test_a_webhook_that_is_set_later_gets_the_task_as_it_is_then_what_follows(serve, receiver):
    served = serve(count)
    task_id = served.send("ask").id
    create(served, receiver, task_id)
    receiver.await_count(1)
    served.send("2", task_id=task_id)
    posts = receiver.await_end()
    assert posts[0].body["task"]["id"] == task_id
    assert texts(posts) == ["input-required", "working", "1 ", "2 ", "completed"]


def test_a_webhook_of_a_task_that_has_ended_gets_the_task(serve, receiver):
    served = serve(count)
    task = served.send("2")
    for version in ("1.0", "0.3"):
        create(served, receiver, task.id, version=version)
    posts = receiver.await_count(2)
    assert [state(post.body) for post in posts] == ["completed", "completed"]
    assert sorted("task" in post.body for post in posts) == [False, True]


def test_later_turns_of_a_task_are_delivered_too(serve, receiver):
    served = serve(count)
    task = served.send("ask", task_push_notification_config=receiver.config())
    receiver.await_count(3)
    served.send("ask", task_id=task.id)
    served.send("1", task_id=task.id)
    delivered = ["submitted", "working", "input-required", "working", "input-required", "working", "1 ", "completed"]
    assert texts(receiver.await_end()) == delivered


def test_a_cancel_is_delivered(serve, receiver):
    gate = Gate()

    def hold(message, context):
        gate.block()

    served = serve(hold)
    task_id = served.begin(task_push_notification_config=receiver.config())
    gate.wait()
    served.cancel(task_id)
    assert texts(receiver.await_end())[-1] == "canceled"
    gate.open.set()


def test_all_webhooks_of_a_task_get_notifications(serve, two):
    served = serve(count)
    task = served.send("ask", task_push_notification_config=two[0].config(id="a"))
    create(served, two[1], task.id, id="b")
    two[1].await_count(1)
    served.send("1", task_id=task.id)
    assert texts(two[0].await_end())[-2:] == texts(two[1].await_end())[-2:] == ["1 ", "completed"]


def test_a_deleted_webhook_gets_nothing_more(serve, receiver):
    served = serve(count)
    task = served.send("ask", task_push_notification_config=receiver.config(id="mine"))
    receiver.await_count(3)
    served.call(op.DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine"))
    with receiving() as other:
        create(served, other, task.id)
        served.send("1", task_id=task.id)
        other.await_end()
    assert len(receiver.tried) == 3


def test_the_trace_of_the_request_goes_on_to_the_receiver(serve, receiver):
    served = serve(count)
    trace = {"traceparent": f"00-{'a1' * 16}-{'b2' * 8}-01"}
    request = served.request("1", task_push_notification_config=receiver.config())
    served.call(op.SEND_MESSAGE, request, headers=trace)
    assert receiver.await_end()[-1].headers["traceparent"].startswith(f"00-{'a1' * 16}-")


# -- what is too large --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_task_without_what_makes_it_large_stands_for_what_is_too_large(serve, receiver, version):
    served = serve(lambda message, context: "x" * 5000, push=replace(SWIFT, max_payload_bytes=4000))
    request = served.request("go", task_push_notification_config=receiver.config())
    task = served.call(op.SEND_MESSAGE, request, version=version)
    posts = receiver.await_end()
    assert all(len(json.dumps(post.body)) < 4000 for post in posts)
    shortened = [post.body.get("task", post.body) for post in posts if SHORTENED in json.dumps(post.body)]
    assert shortened
    for bare in shortened:
        assert bare["id"] == task.id
        assert bare["metadata"][SHORTENED] > 5000
        assert not bare.get("artifacts")
    assert state(posts[-1].body) == "completed"


def test_a_status_message_that_is_too_large_is_left_out(serve, receiver):
    served = serve(lambda message, context: InputRequired("x" * 5000), push=replace(SWIFT, max_payload_bytes=2000))
    served.send("go", task_push_notification_config=receiver.config())
    last = receiver.await_posts(lambda posts: texts(posts)[-1:] == ["input-required"])[-1]
    assert "message" not in last.body["task"]["status"]


class Loads:
    """Records what loads of a store have read: the number of messages, and whether two were at work at once."""

    def __init__(self, store: Any, monkeypatch: Any) -> None:
        self.messages: list[int] = []
        self.overlap = threading.Event()
        self._load, self._reading = store.load, threading.Lock()
        monkeypatch.setattr(store, "load", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stored = self._load(*args, **kwargs)
        if stored.task.history:
            self.messages.append(len(stored.task.history))
            if not self._reading.acquire(blocking=False):
                self.overlap.set()
                return stored
            # Time for another load, which must not come.
            self.overlap.wait(0.05)
            self._reading.release()
        return stored


def test_a_task_that_is_certainly_too_large_is_not_read_for_its_notification(serve, receiver, monkeypatch):
    served = serve(lambda message, context: InputRequired("x" * 1_500_000), push=replace(SWIFT, max_payload_bytes=1000))
    task = served.send("go")
    loads = Loads(served.store, monkeypatch)
    create(served, receiver, task.id, version="0.3")
    (post,) = receiver.await_count(1)
    assert post.body["metadata"][SHORTENED] > 1_500_000
    assert post.body["id"] == task.id
    assert not loads.messages


@pytest.mark.parametrize("size", [600_000, 40_000])
def test_large_tasks_are_read_one_at_a_time_and_once_for_all_their_webhooks(serve, two, monkeypatch, size):
    served = serve(lambda message, context: InputRequired("x" * size))
    tasks = [served.send("y" * size) for _ in range(4)]
    loads = Loads(served.store, monkeypatch)
    for number, task in enumerate(tasks):
        for receiver in two:
            for webhook in range(2):
                create(served, receiver, task.id, id=f"{number}-{webhook}-{urlsplit(receiver.url).port}")
    for receiver in two:
        assert all(len(post.body["task"]["history"]) >= 1 for post in receiver.await_count(8))
    assert len(loads.messages) == 4
    assert not loads.overlap.is_set()


def test_the_log_before_a_new_webhook_is_not_read(serve, receiver, monkeypatch):
    served = serve(lambda message, context: InputRequired("and then?"))
    task = served.send("go")
    log, numbers = served.store.log, []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        page = log(*args, **kwargs)
        numbers.extend(entry.number for entry in page.entries)
        return page

    monkeypatch.setattr(served.store, "log", recorded)
    create(served, receiver, task.id)
    receiver.await_count(1)
    assert not numbers


# -- what is not taken --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [refused(500), refused(503), refused(404), refused(302, Location="/elsewhere")])
def test_what_was_not_taken_comes_again_before_anything_else(serve, receiver, answer):
    receiver.plan(answer, answer, answer)
    served = serve(count)
    served.send("2", task_push_notification_config=receiver.config())
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "2 ", "completed"]
    assert texts(receiver.tried)[:4] == ["submitted"] * 4
    assert len({post.headers["x-a2a-notification-id"] for post in receiver.tried[:4]}) == 1


def test_each_notification_has_all_its_tries(serve, receiver):
    receiver.plan(*[refused(), refused(), taken] * 3)
    served = serve(count, push=replace(SWIFT, max_attempts=3))
    served.send("1", task_push_notification_config=receiver.config())
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "completed"]


def test_a_webhook_that_is_set_again_while_its_receiver_hangs_gets_notifications_at_its_new_address_at_once(serve, two):
    stuck, quick = two
    stuck.plan(then=hanging)
    served = serve(count, push=replace(SWIFT, timeout=0.5, initial_backoff=60.0, max_backoff=60.0))
    task = served.send("1", task_push_notification_config=stuck.config(id="mine"))
    stuck.await_count(1, tried=True)
    create(served, quick, task.id, id="mine")
    assert texts(quick.await_end()) == ["submitted", "working", "1 ", "completed"]


def test_a_receiver_that_says_nothing_in_time_is_tried_again(serve, receiver):
    receiver.plan(hanging)
    served = serve(count, push=replace(SWIFT, timeout=0.3))
    served.send("1", task_push_notification_config=receiver.config())
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "completed"]


def test_a_receiver_that_is_not_there_is_tried_until_it_is(serve):
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        url = receiver.url
        stack.pop_all().close()
    served = serve(count, push=replace(SWIFT, max_attempts=100))
    config = receiver.config()
    task = served.send("1", task_push_notification_config=config)
    eventually(lambda: webhook(served, task.id).tries >= 2, "a second try")
    assert url == config.url
    assert "could not connect" not in webhook(served, task.id).disabled


def test_the_wait_grows_and_is_as_long_as_the_receiver_wants(serve, receiver):
    receiver.plan(then=refused(503, Retry_After="40"))
    served = serve(count, push=replace(SWIFT, initial_backoff=1.0, max_backoff=1000.0))
    task = served.send("1", task_push_notification_config=receiver.config())
    receiver.await_count(1, tried=True)
    eventually(lambda: webhook(served, task.id).tries == 1)
    wait = webhook(served, task.id).due_ms / 1000 - time.time()
    assert 30 < wait <= 40


def test_no_receiver_is_waited_for_longer_than_the_limit(serve, receiver):
    receiver.plan(refused(503, Retry_After="3600"))
    served = serve(count)
    served.send("1", task_push_notification_config=receiver.config())
    assert texts(receiver.await_end())[-1] == "completed"


DAY = 86_400


def test_a_clock_that_goes_back_puts_off_no_notification(serve, receiver, monkeypatch):
    receiver.plan(refused())
    served = serve(count)
    monkeypatch.setattr(
        delivery, "time", SimpleNamespace(monotonic=time.monotonic, time_ns=lambda: time.time_ns() + DAY * 10**9)
    )
    served.send("1", task_push_notification_config=receiver.config())
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "completed"]


def errors(caplog):
    return [record for record in caplog.records if record.levelno == logging.ERROR]


def test_a_webhook_that_takes_nothing_is_disabled_and_says_so(serve, receiver, caplog):
    receiver.plan(then=refused(503))
    served = serve(count, push=replace(SWIFT, max_attempts=3))
    secret = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
    config = receiver.config(id="mine", token="t0ken", authentication=secret)
    with caplog.at_level(logging.DEBUG, "a2a_sync"):
        task = served.send("ask", task_push_notification_config=config)
        # The record is the last thing that happens.
        (delivered,) = eventually(lambda: errors(caplog), "disabling")
    assert len(receiver.tried) == 3
    shown = served.call(op.GET_PUSH_CONFIG, GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine"))
    assert shown.metadata == {WEBHOOK_DISABLED: "HTTP 503 (3 tries)"}
    assert shown.disabled == "HTTP 503 (3 tries)"
    assert (delivered.task_id, "mine" in delivered.getMessage()) == (task.id, True)
    assert not [
        record for record in caplog.records if "s3cret" in record.getMessage() or "t0ken" in record.getMessage()
    ]


def test_the_last_error_and_its_time_are_stored_before_the_webhook_is_disabled(serve, receiver):
    receiver.plan(refused(500))
    served = serve(count)
    task = served.send("1", task_push_notification_config=receiver.config())
    receiver.await_end()

    def stored():
        (hook,) = served.app.store.webhooks.of_task(Owner(), task.id)
        return hook if hook.cursor == hook.head else None

    hook = eventually(stored, "the end of the deliveries")
    assert (hook.disabled, hook.tries, hook.error) == ("", 0, "HTTP 500")
    assert abs(time.time() * 1000 - hook.error_ms) < 600_000


def find_no_host(*_: Any) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{free}/hook", "could not connect: Connection refused"),
        ("http://nowhere.example.com/hook", "could not connect: Name or service not known"),
        ("https://127.0.0.1:{port}/hook", "no TLS connection: the certificate or the TLS version is not accepted"),
        ("http://127.0.0.1:{port}/hook", "no response arrived in time"),
    ],
)
def test_operators_see_why_a_receiver_cannot_be_reached_and_callers_do_not(serve, receiver, url, reason):
    receiver.plan(then=hanging)
    guard = URLGuard(allow=["127.0.0.1"], resolve=find_no_host if "nowhere" in url else None)
    served = serve(count, push=replace(SWIFT, url_guard=guard, timeout=0.3, max_attempts=2))
    config = TaskPushNotificationConfig(url=url.format(port=urlsplit(receiver.url).port, free=free_port()), id="mine")
    task = served.send("1", task_push_notification_config=config)
    stored = eventually(lambda: (one := webhook(served, task.id)).disabled and one, "disabling")
    assert stored.error == f"no answer: {reason}"
    assert public_error(stored.error) == "no answer"
    # What the protocol shows, in each version.
    for version in ("1.0", "0.3"):
        request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        shown = served.call(op.GET_PUSH_CONFIG, request, version=version)
        assert shown.metadata == {WEBHOOK_DISABLED: "no answer (2 tries)"}
        assert reason not in json.dumps(by_version(version).dump(shown))


def test_a_disabled_webhook_gets_nothing_until_it_is_set_again_and_then_what_it_missed(serve, receiver):
    receiver.plan(then=refused(410))
    served = serve(count)
    task = served.send("ask", task_push_notification_config=receiver.config(id="mine"))
    eventually(lambda: webhook(served, task.id).disabled == "HTTP 410", "disabling")
    assert len(receiver.tried) == 1
    receiver.plan()
    served.send("ask", task_id=task.id)
    assert create(served, receiver, task.id, id="mine").disabled == ""
    delivered = texts(receiver.await_posts(lambda posts: len(posts) >= 5))
    assert delivered == ["submitted", "working", "input-required", "working", "input-required"]


def test_a_failing_webhook_never_fails_its_task(serve, receiver):
    receiver.plan(then=refused(500))
    served = serve(count, push=replace(SWIFT, max_attempts=1))
    assert served.send("2", task_push_notification_config=receiver.config()).state == "completed"


def test_an_address_that_became_forbidden_is_not_called(serve, receiver, caplog):
    served = serve(count, push=replace(SWIFT, max_attempts=2))
    task = served.send("ask")
    # As if the guard had been changed after the webhook was set.
    allowed = LOOPBACK.url_guard._allowed
    create(served, receiver, task.id)
    receiver.await_count(1)
    LOOPBACK.url_guard._allowed = type(allowed)([])
    try:
        served.send("1", task_id=task.id)
        eventually(lambda: webhook(served, task.id).disabled, "disabling")
    finally:
        LOOPBACK.url_guard._allowed = allowed
    # No more than for a receiver that cannot be reached: else webhooks would map the server's network.
    assert webhook(served, task.id).disabled == "no answer (2 tries)"
    assert "leads to an address that is private" in webhook(served, task.id).error
    assert "URLGuard(allow=['the host']) permits it" in caplog.text
    assert len(receiver.tried) == 1


# -- independence of deliveries -------------------------------------------------------------------------------------------------


def test_a_receiver_that_hangs_holds_up_neither_the_run_nor_other_receivers(serve, two):
    stuck, quick = two
    stuck.plan(then=hanging)
    served = serve(count, push=replace(SWIFT, max_concurrent_deliveries=4, timeout=60.0))
    for _ in range(6):
        task = served.send("2", task_push_notification_config=stuck.config())
        assert task.state == "completed"
    served.send("2", task_push_notification_config=quick.config())
    assert texts(quick.await_end()) == ["submitted", "working", "1 ", "2 ", "completed"]
    assert not stuck.posts


def test_webhooks_that_wait_for_their_turn_get_it_at_once(serve, receiver):
    served = serve(count, push=replace(SWIFT, max_concurrent_deliveries=1))
    for _ in range(20):
        served.send("1", task_push_notification_config=receiver.config())
    receiver.await_posts(lambda posts: texts(posts).count("completed") == 20)


def test_many_events_come_in_order(serve, receiver):
    served = serve(count)
    served.send("250", task_push_notification_config=receiver.config())
    delivered = texts(receiver.await_end())
    assert delivered == ["submitted", "working", *[f"{n} " for n in range(1, 251)], "completed"]


def test_what_is_posted_is_counted(serve, receiver, tmp_path):
    pytest.importorskip("prometheus_client")
    from a2a_sync import A2AApp, Agent, Limits
    from a2a_sync.server.metrics import Metrics

    metrics = Metrics()
    agent = Agent("counted")
    agent.message(count)
    receiver.plan(refused(503), refused(503), refused(410))
    with A2AApp(agent, push=SWIFT, metrics=metrics, limits=Limits(**UNPOLLED)) as app:
        call = app.endpoint()
        request = Served.request(None, "1", task_push_notification_config=receiver.config())  # type: ignore[arg-type]
        task = call(op.Call(op.SEND_MESSAGE, request))
        # The store and the log have it before it is counted.
        disabled = 'a2a_notifications_total{outcome="disabled"} 1.0'
        page = eventually(lambda: disabled in (page := metrics.page()[0].decode()) and page, "disabling")
        assert app.store.webhooks.of_task(Owner(), task.id)[0].disabled
    assert 'a2a_notifications_total{outcome="failed"} 2.0' in page


# -- what is over -------------------------------------------------------------------------------------------------------


def test_no_listener_remains_once_the_end_of_a_task_was_delivered(serve, receiver):
    served = serve(count)
    served.send("1", task_push_notification_config=receiver.config())
    receiver.await_end()
    eventually(lambda: not served.app._engine.hub.has_listeners, "the end of listening")


def test_a_webhook_whose_events_are_not_kept_any_more_gets_the_task(serve, receiver):
    receiver.plan(then=refused(410))
    served = serve(count)
    task = served.send(str(COMPACT_FROM), task_push_notification_config=receiver.config(id="mine"))
    eventually(lambda: webhook(served, task.id).disabled, "disabling")
    assert served.store.sweep(expire_all(replay=True)).compacted == 1
    receiver.plan()
    create(served, receiver, task.id, id="mine")
    (post,) = receiver.await_count(1)
    assert (post.body["task"]["id"], state(post.body)) == (task.id, "completed")


def test_closing_delivers_what_can_be_delivered_at_once(serve, receiver):
    gate = Gate()

    def hold(message, context):
        gate.block()

    served = serve(hold)
    served.begin(task_push_notification_config=receiver.config())
    gate.wait()
    receiver.await_count(2)
    served.app.close(0.0)
    gate.open.set()
    assert texts(receiver.posts)[-1] == "failed"


def test_closing_waits_for_posts_that_go_on(serve, receiver, monkeypatch):
    gate = Gate()

    def slowly(line):
        gate.block()
        taken(line)

    receiver.plan(taken, slowly)
    served = serve(count)
    served.send("1", task_push_notification_config=receiver.config())
    gate.wait()
    monkeypatch.setattr("a2a_sync.push.outbox._CLOSE_TIMEOUT", TIMEOUT)
    closing = Background(served.close)
    assert closing.waiting
    gate.open.set()
    closing.result()
    # The slow one was taken too, but not counted so.
    assert texts(receiver.tried) == ["submitted", "working", "1 ", "completed"]


def test_what_is_still_posted_when_an_app_closes_is_delivered_by_another_one_at_once(tmp_path, two):
    stuck, _ = two
    made = serving()
    make: Callable[..., Served] = next(made)
    store = SQLiteStore(tmp_path / "tasks.db")
    stuck.plan(hanging)
    first = make(count, store=store, push=replace(SWIFT, timeout=60.0), **UNPOLLED)
    first.send("1", task_push_notification_config=stuck.config())
    stuck.await_count(1, tried=True)
    # The heartbeats of the other one mark the process as alive.
    second = make(count, store=store, push=SWIFT, store_poll_interval=0.2)
    second.app.start()
    first.close()
    assert texts(stuck.await_end()) == ["submitted", "working", "1 ", "completed"]
    next(made, None)
    store.close()


def test_pending_notifications_are_delivered_after_a_restart_without_any_request(store_url, receiver):
    made = serving()
    make: Callable[..., Served] = next(made)
    first, task_id = _refused_once(make, store_url, receiver)
    first.close()
    receiver.plan()
    # It was to be tried much later; the next server's limits say otherwise.
    second = make(count, store=store_url, push=SWIFT, **UNPOLLED)
    stored = webhook(second, task_id)
    held = second.store.webhooks.claim(stored, _alive(second))
    second.store.webhooks.settle(_due_now(held), release=True)
    second.app.start()
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "2 ", "completed"]
    next(made, None)


def test_what_was_put_off_before_the_clock_went_back_is_delivered_by_the_next_server(store_url, receiver):
    made = serving()
    make: Callable[..., Served] = next(made)
    first, task_id = _refused_once(make, store_url, receiver)
    held = first.store.webhooks.claim(webhook(first, task_id), _alive(first))
    first.store.webhooks.settle(replace(held, due_ms=held.due_ms + DAY * 1000), release=True)
    first.close()
    receiver.plan()
    second = make(count, store=store_url, push=SWIFT, **UNPOLLED)
    second.app.start()
    assert texts(receiver.await_end()) == ["submitted", "working", "1 ", "2 ", "completed"]
    next(made, None)


def _refused_once(make: Callable[..., Served], store_url: str, receiver: Any) -> tuple[Served, str]:
    """A server, and a task of it whose notification was refused; the next attempt is 30 s away."""
    receiver.plan(then=refused(503))
    first = make(count, store=store_url, push=replace(SWIFT, initial_backoff=30.0, max_backoff=60.0), **UNPOLLED)
    task = first.send("2", task_push_notification_config=receiver.config())
    eventually(lambda: webhook(first, task.id).tries == 1)
    return first, task.id


def _alive(served: Served) -> str:
    served.store.workers.beat(60)
    return f"{served.store.workers.id}.test"


def _due_now(stored: Any) -> Any:
    return replace(stored, due_ms=0)


# -- a sender of the application ----------------------------------------------------------------------------------------


HOOK = TaskPushNotificationConfig(url="https://hooks.test/s3cret-path")


class Sender:
    """Keeps each request in ``asked``. The first ones raise `failures`, the others count as delivered."""

    def __init__(self, *failures: Exception) -> None:
        self.asked: list[PushRequest] = []
        self.ended = threading.Event()
        self._failures = list(failures)

    def __call__(self, request: PushRequest) -> None:
        self.asked.append(request)
        if self._failures:
            raise self._failures.pop(0)
        if state(json.loads(request.body)) == "completed":
            self.ended.set()


def sent_by(sender: Any, **numbers: Any) -> PushOptions:
    return replace(SWIFT, url_guard=URLGuard(allow=["hooks.test"]), sender=sender, **numbers)


@pytest.mark.parametrize(
    "failure", [PushRefusedError("busy"), OSError("/s3cret-path"), ValueError("https://hooks.test/s3cret-path")]
)
def test_a_failed_delivery_of_a_sender_is_repeated_before_anything_else_and_logged_without_secrets(
    serve, failure, caplog
):
    sender = Sender(failure)
    served = serve(count, push=sent_by(sender))
    served.send("2", task_push_notification_config=HOOK)
    assert sender.ended.wait(TIMEOUT)
    ids = [request.headers["X-A2A-Notification-Id"] for request in sender.asked]
    assert ids[0] == ids[1]
    assert len(set(ids)) == len(ids) - 1
    assert "did not accept a notification" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_refusal_of_a_sender_puts_off_the_next_delivery(serve):
    sender = Sender(PushRefusedError("busy", retry_after=3600.0))
    served = serve(count, push=sent_by(sender, max_backoff=7200.0))
    task = served.send("1", task_push_notification_config=HOOK)
    stored = eventually(lambda: (one := webhook(served, task.id)).tries and one, "a failed delivery")
    assert stored.due_ms - time.time() * 1000 > 3_000_000
    assert len(sender.asked) == 1


@pytest.mark.parametrize(
    ("failure", "shown", "attempts"),
    [
        (PushRefusedError("no such queue", permanent=True), "no such queue", 1),
        (PushRefusedError("busy"), "busy (2 tries)", 2),
        (ValueError("of the network"), "no answer (2 tries)", 2),
    ],
)
def test_a_webhook_that_a_sender_cannot_deliver_to_is_disabled_and_shows_the_reason(serve, failure, shown, attempts):
    sender = Sender(failure, failure)
    served = serve(count, push=sent_by(sender, max_attempts=2))
    task = served.send("1", task_push_notification_config=HOOK)
    eventually(lambda: webhook(served, task.id).disabled, "disabling")
    assert webhook(served, task.id).disabled == shown
    assert len(sender.asked) == attempts


class Asynchronous:
    async def __call__(self, request: PushRequest) -> None: ...


@pytest.mark.parametrize("sender", ["send", Sender, Asynchronous(), Asynchronous().__call__])
def test_what_cannot_send_is_refused_when_the_options_are_made(sender):
    with pytest.raises(TypeError, match="sender takes a function of a PushRequest that is not async def"):
        PushOptions(sender=sender)
