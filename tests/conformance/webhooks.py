"""Section C, second part: push configurations."""

from __future__ import annotations

from typing import Any

from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import BOTH, B, C, D, Level, Way
from tests.conformance.system import Speaker, new_name
from tests.conformance.wire import Reply

HOOK = "https://hooks.example.com/a2a"
_CREATE, _GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
_LIST, _DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"


def _task(at: Speaker) -> str:
    id: str = at.task("echo")["id"]
    return id


def _create(at: Speaker, task_id: str, **members: Any) -> dict[str, Any]:
    config: dict[str, Any] = at.ask(_CREATE, {"taskId": task_id, "url": HOOK, **members}).result
    return config


def _get(at: Speaker, id: str, config: str) -> Reply:
    return at.ask(_GET, {"taskId": id, "id": config})


def _configs(at: Speaker, id: str) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = at.ask(_LIST, {"taskId": id}).result.get("configs", [])
    return configs


@B.line("V1-SEND-10", Level.SDK, "a send may include a webhook")
def a_send_may_bring_a_webhook(at: Speaker) -> None:
    push = at.on("push")
    task = push.task("echo", configuration={"taskPushNotificationConfig": {"url": HOOK, "token": "t"}})
    (config,) = _configs(push, task["id"])
    assert config["id"]
    assert (config["taskId"], config["url"], config["token"]) == (task["id"], HOOK, "t")


@C.line("V1-PUSHC-01", Level.MUST, "a configuration is stored and returned with an id")
def a_configuration_is_stored(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    config = _create(push, id)
    assert config["id"]
    assert (config["taskId"], config["url"]) == (id, HOOK)
    assert _create(push, id, id="mine")["id"] == "mine"


@C.line("V1-PUSHC-02", Level.MUST, "a configuration remains, also for a terminal task")
def a_configuration_stays(at: Speaker) -> None:
    push = at.on("push")
    gate = new_name()
    id = push.begin(f"hold {gate}")["id"]
    config = _create(push, id)
    push.release(gate)
    push.until(id, "COMPLETED")
    assert _get(push, id, config["id"]).result == config


@C.line("V1-PUSHC-03", Level.MUST, "an unknown task is not found")
def an_unknown_task_has_none(at: Speaker) -> None:
    push = at.on("push")
    push.ask(_CREATE, {"taskId": UNKNOWN, "url": HOOK}).refuses("TaskNotFound")
    push.ask(_LIST, {"taskId": UNKNOWN}).refuses("TaskNotFound")
    for operation in (_GET, _DELETE):
        push.ask(operation, {"taskId": UNKNOWN, "id": "x"}).refuses("TaskNotFound")


@C.line("V1-PUSHC-04", Level.MUST, "a configuration is returned as it was stored")
def a_configuration_is_read(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    authentication = {"scheme": "Bearer", "credentials": "for-the-hook"}
    config = _create(push, id, token="a token", authentication=authentication)
    read = _get(push, id, config["id"]).result
    assert read == config
    assert (read["token"], read["authentication"]) == ("a token", authentication)


@C.line("V1-PUSHC-05", Level.MUST, "an unknown configuration is not found")
def an_unknown_configuration_is_not_found(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    _get(push, id, "no-such-config").refuses("TaskNotFound")
    _create(push, id, id="another")
    _get(push, id, "no-such-config").refuses("TaskNotFound")


@C.line("V1-PUSHC-06", Level.MUST, "all configurations of a task are listed")
def all_are_listed(at: Speaker) -> None:
    push = at.on("push")
    id, other = _task(push), _task(push)
    made = [_create(push, id), _create(push, id, url=HOOK + "/2")]
    _create(push, other)
    assert len({one["id"] for one in made}) == 2
    assert sorted(_configs(push, id), key=str) == sorted(made, key=str)
    assert _configs(push, _task(push)) == []


@C.line("V1-PUSHC-07", Level.MUST, "a deleted configuration is not found")
def the_deleted_is_gone(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    config, other = _create(push, id, id="a"), _create(push, id, id="b")
    push.ask(_DELETE, {"taskId": id, "id": config["id"]}).result  # noqa: B018
    _get(push, id, config["id"]).refuses("TaskNotFound")
    assert _configs(push, id) == [other]


@C.line("V1-PUSHC-08", Level.MUST, "a delete may be repeated")
def it_may_be_deleted_twice(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    config = _create(push, id)
    for _ in range(2):
        assert not push.ask(_DELETE, {"taskId": id, "id": config["id"]}).result


@C.line("V1-PUSHC-09", Level.MUST, "without the capability all four operations are refused", ways=BOTH)
def without_the_capability(at: Speaker) -> None:
    id = _task(at)
    for operation in (_CREATE, _GET, _LIST, _DELETE):
        params = {"taskId": id, "id": "x", "url": HOOK} if operation != _LIST else {"taskId": id}
        at.ask(operation, params).refuses("PushNotificationNotSupported")


@C.line("V1-PUSHC-10", Level.MUST, "a webhook needs a URL")
def a_webhook_needs_a_url(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    for params in ({"taskId": id}, {"taskId": id, "url": ""}, {"taskId": id, "url": None}):
        push.ask(_CREATE, params).refuses("InvalidParams")


@C.line("V1-PUSHC-11", Level.SHOULD, "a webhook in a private network is refused")
def private_webhooks_are_refused(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    for host in ("127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "0x7f000001", "[::ffff:10.0.0.1]"):
        push.ask(_CREATE, {"taskId": id, "url": f"http://{host}/"}).refuses("InvalidParams")
    assert _configs(push, id) == []


@C.line("V1-PUSHC-12", Level.MAY, "lists are paged")
def lists_have_pages(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    made = [_create(push, id)["id"] for _ in range(3)]
    found, token = [], ""
    for _ in range(3):
        page = push.ask(_LIST, {"taskId": id, "pageSize": 1, "pageToken": token}).result
        found += [one["id"] for one in page["configs"]]
        token = page.get("nextPageToken", "")
        assert bool(token) == (len(found) < 3)
    assert found == made


@D.line("V1-RPC-16", Level.SDK, "the result of a delete is null", ways=(Way.RPC,))
def the_result_of_a_delete(at: Speaker) -> None:
    push = at.on("push")
    id = _task(push)
    reply = push.ask(_DELETE, {"taskId": id, "id": _create(push, id)["id"]})
    assert reply.json["result"] is None
    assert "error" not in reply.json


@D.line("V1-REST-13", Level.CHOICE, "the path takes precedence over the body", ways=(Way.REST,))
def the_path_stands_over_the_body(at: Speaker) -> None:
    push = at.on("push")
    id, other = _task(push), _task(push)
    asked = push.request(_CREATE, {"taskId": id, "url": HOOK})
    body = asked.body.replace(b"{", b'{"taskId": "%s", ' % other.encode(), 1)
    assert push.exchange("POST", asked.path, body, asked.headers).result["taskId"] == id
    assert (len(_configs(push, id)), _configs(push, other)) == (1, [])


@C.line("V1-PUSHD-11", Level.SHOULD, "other callers cannot read the secrets of a configuration")
def secrets_are_their_owner_s(at: Speaker) -> None:
    ada, bob = (at.on("secured").as_user(user) for user in ("ada", "bob"))
    id = _task(ada)
    config = _create(ada, id, token="secret")
    assert _get(ada, id, config["id"]).result["token"] == "secret"
    _get(bob, id, config["id"]).refuses("TaskNotFound")
    bob.ask(_LIST, {"taskId": id}).refuses("TaskNotFound")
