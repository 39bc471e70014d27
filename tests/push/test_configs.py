"""Push configurations as callers set, read and delete them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, InputRequired, PushOptions, URLGuard
from a2a_sync import operations as op
from a2a_sync.errors import InvalidParamsError, PushNotificationNotSupportedError, TaskNotFoundError
from a2a_sync.operations import Principal
from a2a_sync.stores.base import Owner
from a2a_sync.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)
from tests.engine import STORES, Gate, Served, eventually, serving_over, texts

#: A URL without a listener.
URL = "http://127.0.0.1:9/hook"
LOOPBACK = PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]))


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


@pytest.fixture
def served(serve):
    return serve(ask, push=replace(LOOPBACK, max_configs=3))


def ask(message, context):
    return InputRequired("and then?") if message.text == "ask" else message.text


def create(served: Served, task_id: str, webhook_id: str = "", *, url: str = URL, **options: Any) -> Any:
    members = {name: options.pop(name) for name in ("token", "authentication", "tenant") if name in options}
    config = TaskPushNotificationConfig(url=url, task_id=task_id, id=webhook_id, **members)
    return served.call(op.CREATE_PUSH_CONFIG, config, **options)


def get(served: Served, task_id: str, webhook_id: str = "", **context: Any) -> Any:
    return served.call(
        op.GET_PUSH_CONFIG, GetTaskPushNotificationConfigRequest(task_id=task_id, id=webhook_id), **context
    )


def listed(served: Served, task_id: str, *, size: int = 0, token: str = "", tenant: str = "", **context: Any) -> Any:
    request = ListTaskPushNotificationConfigsRequest(task_id=task_id, page_size=size, page_token=token, tenant=tenant)
    return served.call(op.LIST_PUSH_CONFIGS, request, **context)


def delete(served: Served, task_id: str, webhook_id: str, **context: Any) -> None:
    served.call(
        op.DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=webhook_id), **context
    )


def ids(served: Served, task_id: str) -> list[str]:
    return [config.id for config in listed(served, task_id).configs]


# -- an agent without push notifications --------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [create, get, listed, lambda served, task_id: delete(served, task_id, "x")])
def test_without_push_notifications_every_operation_is_refused_before_anything_is_looked_up(serve, call):
    with pytest.raises(PushNotificationNotSupportedError):
        call(serve(ask), "unknown")


def test_without_push_notifications_a_send_with_a_webhook_is_refused_and_leaves_nothing(serve):
    served = serve(ask)
    with pytest.raises(PushNotificationNotSupportedError):
        served.send("hi", task_push_notification_config=TaskPushNotificationConfig(url=URL))
    assert served.list().total_size == 0


@pytest.mark.parametrize("push", [False, True])
def test_the_card_says_whether_there_are_push_notifications(serve, push):
    assert serve(ask, push=push).app.agent_card().capabilities.push_notifications is push


# -- the four operations ------------------------------------------------------------------------------------------------


def test_a_configuration_is_read_back_as_it_was_made(served):
    task_id = served.send("ask").id
    secret = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
    made = create(served, task_id, "mine", token="t0ken", authentication=secret)
    assert made == TaskPushNotificationConfig(url=URL, id="mine", task_id=task_id, token="t0ken", authentication=secret)
    assert get(served, task_id, "mine") == made
    assert listed(served, task_id).configs == (made,)


def test_configurations_without_an_id_get_one_each(served):
    task_id = served.send("ask").id
    made = [create(served, task_id) for _ in range(2)]
    assert len({config.id for config in made} - {""}) == 2
    assert ids(served, task_id) == [config.id for config in made]


def test_setting_an_id_again_replaces_it(served):
    task_id = served.send("ask").id
    create(served, task_id, "a", token="old")
    create(served, task_id, "b")
    create(served, task_id, "a")
    assert [(config.id, config.token) for config in listed(served, task_id).configs] == [("a", ""), ("b", "")]


def test_a_task_that_has_ended_takes_configurations_too(served):
    task_id = served.send("hi").id
    create(served, task_id, "a")
    assert get(served, task_id, "a").url == URL


def test_without_an_id_the_first_configuration_is_read(served):
    task_id = served.send("ask").id
    create(served, task_id, "b")
    create(served, task_id, "a")
    assert get(served, task_id).id == "b"


def test_a_configuration_that_is_not_there_is_not_found(served):
    task_id = served.send("ask").id
    for webhook_id in ("", "unknown"):
        with pytest.raises(TaskNotFoundError):
            get(served, task_id, webhook_id)


def test_a_deleted_configuration_is_gone_and_deleting_it_again_succeeds(served):
    task_id = served.send("ask").id
    create(served, task_id, "a")
    create(served, task_id, "b")
    for _ in range(2):
        delete(served, task_id, "a")
    assert ids(served, task_id) == ["b"]
    with pytest.raises(TaskNotFoundError):
        get(served, task_id, "a")


def test_there_are_no_more_configurations_than_the_limit_says(served):
    task_id = served.send("ask").id
    for webhook_id in "abc":
        create(served, task_id, webhook_id)
    with pytest.raises(InvalidParamsError, match="at most 3"):
        create(served, task_id, "d")
    create(served, task_id, "c", token="again")
    with pytest.raises(InvalidParamsError, match="at most 3"):
        served.send("hi", task_id=task_id, task_push_notification_config=TaskPushNotificationConfig(url=URL))
    assert ids(served, task_id) == ["a", "b", "c"]
    assert served.get(task_id).state == "input-required"


def test_messages_that_wait_for_a_busy_task_do_not_set_more_configurations_than_the_limit_says(serve, monkeypatch):
    """Each of them was checked while none of the others had set its own."""
    gate, checked = Gate(), []

    def hold(message, context):
        if message.text == "hold":
            gate.block()
        return InputRequired("and then?")

    served = serve(hold, push=replace(LOOPBACK, max_configs=3))
    task_id = served.begin("hold")
    gate.wait()
    of_task = served.app.store.webhooks.of_task

    def counted(*args):
        found = of_task(*args)
        checked.append(found)
        return found

    monkeypatch.setattr(served.app.store.webhooks, "of_task", counted)
    hooks = [TaskPushNotificationConfig(url=URL, id=f"hook {number}") for number in range(6)]
    sends = [served.in_background("x", task_id=task_id, task_push_notification_config=hook) for hook in hooks]
    eventually(lambda: len(checked) == len(hooks), "the messages that wait")
    gate.open.set()
    refused = []
    for send in sends:
        try:
            send.result()
        except InvalidParamsError as error:
            refused.append(error.message)
    assert len(refused) == 3
    assert all("at most 3" in message for message in refused)
    assert len(ids(served, task_id)) == 3
    assert texts(served.get(task_id).history).count("user: x") == 3


def test_pages_follow_each_other_to_the_last_configuration(served):
    task_id = served.send("ask").id
    for webhook_id in "abc":
        create(served, task_id, webhook_id)
    found, token = [], ""
    while True:
        page = listed(served, task_id, size=2, token=token)
        found.append([config.id for config in page.configs])
        token = page.next_page_token
        if not token:
            break
    assert found == [["a", "b"], ["c"]]
    assert listed(served, task_id, size=3).next_page_token == ""


@pytest.mark.parametrize(
    ("page", "member"), [({"size": -1}, "pageSize"), ({"token": "x"}, "pageToken"), ({"token": "-1"}, "pageToken")]
)
def test_a_page_that_cannot_be_is_refused_by_member(served, page, member):
    task_id = served.send("ask").id
    with pytest.raises(InvalidParamsError) as refused:
        listed(served, task_id, **page)
    assert [violation.field for violation in refused.value.violations] == [member]


# -- whose task it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda served, task_id, **caller: create(served, task_id, "a", token="stolen", **caller),
        lambda served, task_id, **caller: get(served, task_id, "a", **caller),
        lambda served, task_id, **caller: listed(served, task_id, **caller),
        lambda served, task_id, **caller: delete(served, task_id, "a", **caller),
    ],
)
def test_the_configurations_of_others_answer_like_unknown_ones(served, call):
    task_id = served.call(op.SEND_MESSAGE, served.request("ask"), principal=Principal(id="ada")).id
    create(served, task_id, "a", token="t0ken", principal=Principal(id="ada"))
    refused = []
    for asked in (task_id, "unknown"):
        with pytest.raises(TaskNotFoundError) as caught:
            call(served, asked, principal=Principal(id="bob"))
        refused.append(caught.value.message.replace(asked, "…"))
    assert refused[0] == refused[1]
    assert get(served, task_id, "a", principal=Principal(id="ada")).token == "t0ken"


def test_tenants_do_not_see_each_others_configurations(served):
    task_id = served.send("ask").id
    with pytest.raises(TaskNotFoundError):
        create(served, task_id, "a", tenant="acme")
    with pytest.raises(TaskNotFoundError):
        listed(served, task_id, tenant="acme")


# -- with a send --------------------------------------------------------------------------------------------------------


def test_a_webhook_that_comes_with_a_send_is_kept_under_the_task_and_its_id(served):
    task = served.send("ask", task_push_notification_config=TaskPushNotificationConfig(url=URL, token="t0ken"))
    assert listed(served, task.id).configs == (
        TaskPushNotificationConfig(url=URL, id=task.id, task_id=task.id, token="t0ken"),
    )


def test_a_webhook_that_comes_with_each_message_is_kept_once(served):
    task = served.send("ask", task_push_notification_config=TaskPushNotificationConfig(url=URL, token="one"))
    served.send("hi", task_id=task.id, task_push_notification_config=TaskPushNotificationConfig(url=URL, token="two"))
    assert [config.token for config in listed(served, task.id).configs] == ["two"]


def test_a_webhook_that_comes_with_a_stream_is_kept_before_its_first_event(served):
    stream = served.stream("ask", task_push_notification_config=TaskPushNotificationConfig(url=URL, id="mine"))
    first = next(iter(stream)).event
    assert ids(served, first.id) == ["mine"]
    stream.close()


def test_the_request_of_a_run_does_not_hold_the_credentials_of_its_webhook(serve):
    seen: list[Any] = []

    def look(message, context):
        seen.append(served.store.request(Owner(), context.task_id))
        return "ok"

    served = serve(look, push=LOOPBACK)
    served.send("hi", task_push_notification_config=TaskPushNotificationConfig(url=URL, token="t0ken"))
    assert seen[0].request.message.text == "hi"
    assert "127.0.0.1" not in repr(seen)


# -- what is refused ----------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": "https://127.0.0.2/"}, "url"),
    ({"url": "ftp://example.com/"}, "url"),
    ({"url": "https://user:s3cret@example.com/"}, "url"),
    ({"url": "http://169.254.169.254/latest/meta-data"}, "url"),
    ({"id": "x" * 256}, "id"),
    ({"id": "a\nb"}, "id"),
    ({"token": "a\r\nX-Injected: 1"}, "token"),
    ({"token": " a"}, "token"),
    ({"token": "ä"}, "token"),
    ({"authentication": AuthenticationInfo(scheme="Bearer x")}, "authentication.scheme"),
    ({"authentication": AuthenticationInfo(scheme="")}, "authentication.scheme"),
    ({"authentication": AuthenticationInfo(scheme="Bearer", credentials="a\nb")}, "authentication.credentials"),
]


@pytest.mark.parametrize(("members", "member"), BAD)
def test_what_no_webhook_can_have_is_refused_by_member_and_not_repeated(served, members, member):
    config = TaskPushNotificationConfig(**{"url": URL, **members})
    task_id = served.send("ask").id
    for call, at in (
        (lambda: served.send("hi", task_push_notification_config=config), "configuration.taskPushNotificationConfig."),
        (
            lambda: served.stream("hi", task_push_notification_config=config),
            "configuration.taskPushNotificationConfig.",
        ),
        (lambda: served.call(op.CREATE_PUSH_CONFIG, _of(task_id, config)), ""),
    ):
        with pytest.raises(InvalidParamsError) as refused:
            call()
        assert [violation.field for violation in refused.value.violations] == [at + member]
        assert "s3cret" not in str(refused.value)
    assert served.list().total_size == 1
    assert ids(served, task_id) == []


def test_a_configuration_without_a_task_is_refused(served):
    with pytest.raises(InvalidParamsError, match="taskId"):
        create(served, "")


def _of(task_id: str, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(
        url=config.url,
        id=config.id,
        task_id=task_id,
        token=config.token,
        authentication=config.authentication,
    )


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("http://127.0.0.1/x?secret", "(URLGuard(allow=['the host']) permits it)"),
        ("http://hooks.internal/secret", "(URLGuard(allow=['the host']) permits it)"),
        ("ftp://hooks.example.com/secret", ""),
    ],
)
def test_the_log_of_a_refused_url_says_what_permits_it_and_the_caller_does_not_see_it(url, hint, caplog):
    agent = Agent("hooked")
    agent.message(lambda message, context: "done")
    with A2AApp(agent, push=True) as app, Client(app) as client:
        task = client.send("go")
        with pytest.raises(InvalidParamsError) as refused:
            client.create_push_config(task.id, url)
    assert "URLGuard" not in str(refused.value)
    (record,) = [record for record in caplog.records if "refused a webhook" in record.getMessage()]
    assert record.getMessage().endswith(hint or str(refused.value).partition(": ")[2])
    assert "secret" not in caplog.text


@pytest.mark.parametrize("name", ["max_configs", "max_payload_bytes", "timeout", "max_attempts", "initial_backoff"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), None])
def test_a_number_that_bounds_nothing_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"PushOptions\.{name} must be"):
        PushOptions(**{name: value})
