"""Section F, fourth part: receivers of webhooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from a2a_sync import Task, TaskStatusUpdateEvent
from a2a_sync.types import AuthenticationInfo
from tests.conformance.stage import old_task, status
from tests.conformance.suite import F, Level
from tests.conformance.system import Lab
from tests.wsgi import Answer, Peer

_TOKEN = {"X-A2A-Notification-Token": "the-token"}
_DONE = status("COMPLETED")


def _post(receiver: Any, body: Any, headers: Mapping[str, str] = _TOKEN, **named: str) -> Answer:
    said = {name.replace("_", "-"): value for name, value in named.items()}
    sent = {"Content-Type": "application/a2a+json", "A2A-Version": "1.0", **headers, **said}
    return Peer(receiver).request("POST", "/hook", json.dumps(body).encode(), sent)


@F.line("V1-HOOK-01", Level.MUST, "a receiver answers with a 2xx")
def receivers_say_that_they_took_it(lab: Lab) -> None:
    receiver = lab.receiver(token="the-token")
    assert 200 <= _post(receiver, _DONE).status < 300
    (taken,) = receiver.notifications(timeout=0.1)
    assert taken.task_id == "t-1"


@F.line("V1-HOOK-02", Level.MUST, "a receiver verifies credentials and token")
def receivers_authenticate_the_sender(lab: Lab) -> None:
    asked = AuthenticationInfo(scheme="Bearer", credentials="abc.def")
    receiver = lab.receiver(token="the-token", authentication=asked)
    right = {**_TOKEN, "Authorization": "Bearer abc.def"}
    for headers in (
        {},
        _TOKEN,
        {"Authorization": "Bearer abc.def"},
        {**right, "X-A2A-Notification-Token": "another"},
        {**right, "Authorization": "Bearer another"},
        {**right, "Authorization": "Basic abc.def"},
    ):
        assert _post(receiver, _DONE, headers).status in (401, 403)
    assert list(receiver.notifications(timeout=0.01)) == []
    assert 200 <= _post(receiver, _DONE, right).status < 300


@F.line("V1-HOOK-03", Level.MUST, "a receiver accepts only expected tasks")
def receivers_take_what_they_expect(lab: Lab) -> None:
    receiver = lab.receiver(token={"t-1": "the-token"}.get)
    strange = {"statusUpdate": {**_DONE["statusUpdate"], "taskId": "t-2"}}
    assert 400 <= _post(receiver, strange).status < 500
    assert 200 <= _post(receiver, _DONE).status < 300
    assert [taken.task_id for taken in receiver.notifications(timeout=0.1)] == ["t-1"]


@F.line("V1-HOOK-04", Level.SHOULD, "a repeated notification has one effect")
def receivers_know_what_came(lab: Lab) -> None:
    receiver = lab.receiver(token="the-token")
    for id in ("t-1/1", "t-1/1", "t-1/2"):
        assert 200 <= _post(receiver, _DONE, X_A2A_Notification_Id=id).status < 300
    assert len(list(receiver.notifications(timeout=0.1))) == 2


@F.line("V1-HOOK-05", Level.CHOICE, "a receiver accepts events of 1.0 and tasks of 0.3")
def receivers_understand_both(lab: Lab) -> None:
    receiver = lab.receiver(token="the-token")
    for body, version in ((_DONE, "1.0"), (old_task("completed"), "0.3")):
        assert 200 <= _post(receiver, body, A2A_Version=version).status < 300
    new, old = (taken.event for taken in receiver.notifications(timeout=0.1))
    assert isinstance(new, TaskStatusUpdateEvent)
    assert isinstance(old, Task)
    assert (new.status.state, old.status.state) == ("completed", "completed")
    for nonsense in ({}, {"kind": "nothing"}, [], "text"):
        assert _post(receiver, nonsense).status == 400


@F.line(
    "V1-HOOK-06",
    Level.SHOULD,
    "a receiver limits the rate of calls, and uses HTTPS",
    differs="size and what waits are bounded (413, 503 with `Retry-After`); rates and HTTPS are the business of the server in front",
)
def receivers_are_bounded(lab: Lab) -> None:
    receiver = lab.receiver(token="the-token", max_body_bytes=1000, replay_cache_size=2)
    large = {"statusUpdate": {**_DONE["statusUpdate"], "metadata": {"much": "x" * 1000}}}
    assert _post(receiver, large).status == 413
    answers = [_post(receiver, _DONE, X_A2A_Notification_Id=f"t-1/{number}") for number in range(4)]
    assert [answer.status // 100 for answer in answers] == [2, 2, 5, 5]
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers[2:])
