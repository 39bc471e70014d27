"""Section C, fourth part: notifications, also in 0.3 and with both versions."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.client.peer import Line
from tests.conformance import v03
from tests.conformance.sending import state_of, text_of
from tests.conformance.suite import BOTH, C, G, H, Level, Way
from tests.conformance.system import Speaker, message_v03, new_name
from tests.engine import eventually
from tests.push.receiver import Receiver, hanging, receiving, refused, taken, texts

_CREATE = "CreateTaskPushNotificationConfig"
_EVENTS = {"task", "message", "statusUpdate", "artifactUpdate"}


def _task_with_webhook(at: Speaker, receiver: Receiver, text: str, **config: Any) -> dict[str, Any]:
    """Create a task with `receiver` as its webhook."""
    configuration = {"taskPushNotificationConfig": {"url": receiver.url, **config}}
    return at.on("near").task(text, configuration=configuration)


@C.line("V1-PUSHD-01", Level.MUST, "each webhook is called at least once per event")
def each_webhook_is_called(at: Speaker) -> None:
    with receiving() as first, receiving() as second:
        near = at.on("near")
        gate = new_name()
        configuration = {"taskPushNotificationConfig": {"url": first.url, "id": "a"}, "returnImmediately": True}
        id = near.task(f"hold {gate}", configuration=configuration)["id"]
        near.ask(_CREATE, {"taskId": id, "url": second.url, "id": "b"}).result  # noqa: B018
        near.release(gate)
        for receiver in (first, second):
            assert receiver.await_end()


@C.line("V1-PUSHD-02", Level.MUST, "a call has the credentials of the configuration")
def webhooks_get_their_credentials(at: Speaker) -> None:
    for scheme in ("Bearer", "Basic", "Custom"):
        with receiving() as receiver:
            _task_with_webhook(at, receiver, "echo", authentication={"scheme": scheme, "credentials": "abc.def=="})
            headers = {post.headers.get("authorization") for post in receiver.await_end()}
            assert headers == {f"{scheme} abc.def=="}


@C.line("V1-PUSHD-03", Level.MUST, "the body is an event with one member")
def bodies_are_events(at: Speaker) -> None:
    with receiving() as receiver:
        task = _task_with_webhook(at, receiver, "number 3")
        bodies = [post.body for post in receiver.await_end()]
    assert all(len(body) == 1 and set(body) <= _EVENTS for body in bodies)
    ids = {(body.get("task") or {}).get("id") or next(iter(body.values()))["taskId"] for body in bodies}
    assert ids == {task["id"]}


@C.line("V1-PUSHD-04", Level.MUST, "the media type is application/a2a+json")
def bodies_have_their_type(at: Speaker) -> None:
    with receiving() as receiver:
        _task_with_webhook(at, receiver, "echo")
        types = {post.headers["content-type"].partition(";")[0] for post in receiver.await_end()}
    assert types == {"application/a2a+json"}


@C.line("V1-PUSHD-05", Level.SHOULD, "a failed call is retried with a backoff")
def what_was_not_taken_is_sent_again(at: Speaker) -> None:
    moments: list[float] = []

    def failing(line: Line) -> None:
        # The backoff starts with this response.
        moments.append(time.monotonic())
        refused(500)(line)

    with receiving() as receiver:
        receiver.plan(failing, failing, lambda line: (moments.append(time.monotonic()), taken(line))[1])
        _task_with_webhook(at, receiver, "echo")
        first, second, third = receiver.await_count(3, tried=True)[:3]
        assert first.body == second.body == third.body
        receiver.await_end()
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(pauses) == 2
    assert min(pauses) > 0.05


@C.line("V1-PUSHD-06", Level.SHOULD, "a webhook that does not answer delays no other")
def a_hanging_webhook_delays_no_other(at: Speaker) -> None:
    with receiving() as stuck, receiving() as other:
        stuck.plan(then=hanging)
        near = at.on("near")
        gate = new_name()
        configuration = {"taskPushNotificationConfig": {"url": stuck.url, "id": "a"}, "returnImmediately": True}
        id = near.task(f"hold {gate}", configuration=configuration)["id"]
        near.ask(_CREATE, {"taskId": id, "url": other.url, "id": "b"}).result  # noqa: B018
        stuck.await_count(1, tried=True)
        near.release(gate)
        assert text_of(near.until(id, "COMPLETED")) == f"hold {gate}"
        other.await_end()


@C.line("V1-PUSHD-07", Level.MAY, "a webhook is abandoned after several failures", ways=BOTH)
def a_failing_webhook_is_abandoned(at: Speaker) -> None:
    with receiving() as receiver:
        receiver.plan(then=refused(500))
        task = _task_with_webhook(at, receiver, "echo")
        config = {"taskId": task["id"], "id": task["id"]}
        near = at.on("near")
        said = eventually(
            lambda: near.ask("GetTaskPushNotificationConfig", config).result.get("metadata"), "that it is given up"
        )
        assert "500" in str(said)
        assert len(receiver.tried) == 3


@C.line("V1-PUSHD-08", Level.CHOICE, "the token is in X-A2A-Notification-Token")
def the_token_is_in_a_header(at: Speaker) -> None:
    with receiving() as receiver:
        _task_with_webhook(at, receiver, "echo", token="a token")
        assert {post.headers.get("x-a2a-notification-token") for post in receiver.await_end()} == {"a token"}
    with receiving() as receiver:
        _task_with_webhook(at, receiver, "echo")
        assert not [post for post in receiver.await_end() if "x-a2a-notification-token" in post.headers]


@C.line(
    "V1-PUSHD-09",
    Level.MUST,
    "delivery does not depend on how the webhook was set and the task was started",
    ways=(Way.RPC,),
)
def how_it_was_set_changes_nothing(at: Speaker) -> None:
    near = at.on("near")
    notified, kinds = [], []
    for speaker in (near, near.by(Way.REST)):
        for now in (False, True):
            with receiving() as receiver:
                configuration = {"taskPushNotificationConfig": {"url": receiver.url}, "returnImmediately": now}
                speaker.task("number 3", configuration=configuration)
                posts = receiver.await_end()
                notified.append(texts(posts)[-4:])
                kinds.append([next(iter(post.body)) for post in posts][-4:])
    assert notified == [["1", "2", "3", "completed"]] * 4
    assert kinds == [[*["artifactUpdate"] * 3, "statusUpdate"]] * 4


@C.line(
    "V1-PUSHD-10",
    Level.CHOICE,
    "a failing webhook does not fail the task; redirects are not followed; events are in order",
)
def notifications_are_in_order(at: Speaker) -> None:
    with receiving() as receiver, receiving() as elsewhere:
        receiver.plan(refused(302, Location=elsewhere.url), refused(500))
        task = _task_with_webhook(at, receiver, "number 10")
        assert state_of(task) == "COMPLETED"
        notified = [text for text in texts(receiver.await_end()) if text.isdigit()]
        assert notified == [str(number + 1) for number in range(10)]
        assert elsewhere.tried == []
    with receiving() as receiver:
        receiver.plan(refused(500))
        gate = new_name()
        configuration = {"taskPushNotificationConfig": {"url": receiver.url}, "returnImmediately": True}
        id = at.on("near").task(f"hold {gate}", configuration=configuration)["id"]
        receiver.await_count(2, tried=True)
        at.on("near").release(gate)
        at.on("near").until(id, "COMPLETED")


# -- protocol 0.3 -------------------------------------------------------------------------------------------------------


def _set(at: Speaker, receiver: Receiver, **config: Any) -> str:
    """Create a finished task with protocol 0.3 and `receiver` as its webhook; return its id."""
    configuration = {"pushNotificationConfig": {"url": receiver.url, **config}, "blocking": True}
    sent = at.on("near").ask("SendMessage", message_v03("echo", configuration=configuration)).result
    id: str = sent["id"]
    return id


@G.line("V03-PUSH-07", Level.SHOULD, "the body is the task, and the token is in its header")
def the_body_is_the_task(at: Speaker) -> None:
    with receiving() as receiver:
        id = _set(at, receiver, token="a token")
        posts = receiver.await_end()
    for post in posts:
        v03.assert_is_task(post.body)
        assert post.body["id"] == id
        assert post.headers["content-type"].partition(";")[0] == "application/json"
        assert post.headers["x-a2a-notification-token"] == "a token"
    assert posts[-1].body["status"]["state"] == "completed"


@G.line("V03-PUSH-08", Level.MUST, "the sender authenticates as configured")
def the_sender_authenticates(at: Speaker) -> None:
    with receiving() as receiver:
        _set(at, receiver, authentication={"schemes": ["Bearer"], "credentials": "for-the-hook"})
        assert {post.headers.get("authorization") for post in receiver.await_end()} == {"Bearer for-the-hook"}


@H.line("DUAL-06", Level.CHOICE, "notifications have the version in which the webhook was set")
def notifications_have_the_version_of_the_configuration(at: Speaker) -> None:
    near = at.on("near")
    with receiving() as new, receiving() as old:
        gate = new_name()
        id = near.begin(f"hold {gate}")["id"]
        near.ask(_CREATE, {"taskId": id, "url": new.url}).result  # noqa: B018
        params = {"taskId": id, "pushNotificationConfig": {"url": old.url, "id": "old"}}
        near.by(Way.RPC_03).ask(_CREATE, params).result  # noqa: B018
        near.release(gate)
        assert all(set(post.body) <= _EVENTS for post in new.await_end())
        for post in old.await_end():
            v03.assert_is_task(post.body)
