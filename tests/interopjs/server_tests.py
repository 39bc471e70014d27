"""Tests of `A2AApp` with the JavaScript SDKs' clients: one class, which a module subclasses for each SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.interopjs.formats import Format
from tests.interopjs.node import JsClient, JsError, js_client
from tests.peers.record import CARD, ERRORS, PUSH, STREAM, Transport, covers


class ServerTests:
    """The client of `package` against this library's server. A subclass defines `package` and `format`, its module the `url`."""

    package: ClassVar[str]
    format: ClassVar[Format] = Format()

    @pytest.fixture
    def client(self, transport: Transport, url: str) -> Iterator[JsClient]:
        with js_client(self.package, url, transport) as client:
            yield client

    def send_task(self, client: JsClient, text: str, **options: Any) -> Any:
        return client.call("sendMessage", self.format.message(text, **options))

    @covers(CARD)
    def test_the_binding_of_the_card_is_selected(self, client: JsClient, transport: Transport) -> None:
        assert client.call("transport") == [transport.binding, transport.version]

    @covers("SendMessage", "GetTask")
    def test_a_send_is_answered_with_the_finished_task(self, client: JsClient) -> None:
        task = self.send_task(client, "echo Ada")
        assert self.format.state(task) == "completed"
        assert self.format.text(task["artifacts"][0]) == "echo: Ada"
        assert client.call("getTask", {"id": task["id"]}) == task

    @covers("SendMessage")
    def test_an_answer_may_be_a_message(self, client: JsClient) -> None:
        answer = self.send_task(client, "message")
        assert "status" not in answer
        assert self.format.text(answer) == "no task was needed"

    @covers("SendMessage", "CancelTask")
    def test_a_non_blocking_send_returns_the_current_task(self, client: JsClient) -> None:
        task = self.send_task(client, "wait", wait=False)
        assert self.format.state(task) in ("submitted", "working")
        assert self.format.state(client.call("cancelTask", {"id": task["id"]})) == "canceled"

    @covers("SendMessage")
    def test_a_question_is_answered_in_the_same_task(self, client: JsClient) -> None:
        asked = self.send_task(client, "ask")
        assert self.format.state(asked) == "input-required"
        assert self.format.text(asked["status"]["message"]) == "Which size?"
        done = self.send_task(client, "large", taskId=asked["id"], contextId=asked["contextId"])
        assert (done["id"], self.format.state(done)) == (asked["id"], "completed")

    @covers("SendMessage")
    def test_a_failed_task_is_returned(self, client: JsClient) -> None:
        task = self.send_task(client, "publicfail")
        assert self.format.state(task) == "failed"
        assert self.format.text(task["status"]["message"]) == "quota used up"

    @covers("GetTask")
    def test_history_length_limits_the_history(self, client: JsClient, transport: Transport) -> None:
        task = self.send_task(client, "echo Ada")
        assert len(task["history"]) == 2
        (last,) = client.call("getTask", {"id": task["id"], "historyLength": 1})["history"]
        assert last == task["history"][-1]
        # 0.3 does not distinguish zero from no limit.
        all_or_none = client.call("getTask", {"id": task["id"], "historyLength": 0})
        assert len(all_or_none.get("history", [])) == (0 if transport.version == "1.0" else 2)

    @covers(STREAM)
    def test_a_stream_consists_of_task_updates_and_end(self, client: JsClient) -> None:
        events = list(client.stream("sendMessageStream", self.format.message("count 5")))
        kinds = [self.format.kind(event) for event in events]
        assert kinds == ["task", "status-update", *["artifact-update"] * 6, "status-update"]
        *pieces, whole = (self.format.body(event) for event in events[2:8])
        assert "".join(self.format.text(piece["artifact"]) for piece in pieces) == "1 2 3 4 5 "
        assert (whole.get("append", False), whole["lastChunk"]) == (False, True)
        assert self.format.text(whole["artifact"]) == "1 2 3 4 5 "
        assert self.format.state(self.format.body(events[-1])) == "completed"

    @covers("ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: JsClient, transport: Transport) -> None:
        if transport.version == "0.3":
            with pytest.raises(JsError):
                client.call("listTasks", {})
            return
        context = self.send_task(client, "echo 1")["contextId"]
        for number in (2, 3):
            self.send_task(client, f"echo {number}", contextId=context)
        page = client.call("listTasks", {"contextId": context, "pageSize": 2})
        assert (len(page["tasks"]), page["totalSize"]) == (2, 3)
        rest = client.call("listTasks", {"contextId": context, "pageSize": 2, "pageToken": page["nextPageToken"]})
        assert len({task["id"] for task in [*page["tasks"], *rest["tasks"]]}) == 3
        assert not rest.get("nextPageToken")

    @covers("SubscribeToTask", "CancelTask", STREAM)
    def test_a_running_task_is_subscribed_to_and_cancelled(self, client: JsClient) -> None:
        stream = client.stream("sendMessageStream", self.format.message("wait"))
        task = self.format.body(next(stream))
        followed = client.stream("resubscribeTask", {"id": task["id"]})
        assert self.format.kind(next(followed)) == "task"
        assert self.format.state(client.call("cancelTask", {"id": task["id"]})) == "canceled"
        for events in (stream, followed):
            *_, last = events
            assert self.format.state(self.format.body(last)) == "canceled"

    @covers("SubscribeToTask")
    def test_closing_a_stream_does_not_change_the_task(self, client: JsClient) -> None:
        (event,) = client.stream("sendMessageStream", self.format.message("wait"), stop=1)
        task_id = self.format.body(event)["id"]
        assert self.format.state(client.call("getTask", {"id": task_id})) in ("submitted", "working")
        assert self.format.state(client.call("cancelTask", {"id": task_id})) == "canceled"

    @covers(*PUSH)
    def test_webhooks_are_created_read_listed_and_deleted(self, client: JsClient) -> None:
        task_id = self.send_task(client, "ask")["id"]
        made = client.call(self.format.create_push, self.format.push(task_id, "a", "https://hooks.test/a"))
        assert self.format.pushed(made) == ("a", "https://hooks.test/a")
        client.call(self.format.create_push, self.format.push(task_id, "b", "https://hooks.test/b"))
        read = client.call("getTaskPushNotificationConfig", self.format.config(task_id, "a"))
        assert self.format.pushed(read) == ("a", "https://hooks.test/a")
        assert self.webhooks(client, task_id) == {"a", "b"}
        client.call("deleteTaskPushNotificationConfig", self.format.config(task_id, "a"))
        assert self.webhooks(client, task_id) == {"b"}

    def webhooks(self, client: JsClient, task_id: str) -> set[str]:
        listed = self.format.listed(client.call("listTaskPushNotificationConfig", self.format.configs(task_id)))
        return {self.format.pushed(one)[0] for one in listed}

    @covers("GetExtendedAgentCard")
    def test_the_extended_card_is_read(self, client: JsClient) -> None:
        assert client.call("getAgentCard")["description"] == "For authenticated callers"

    @covers(ERRORS)
    @pytest.mark.parametrize(
        ("call", "kind"),
        [
            ("getTask", "TaskNotFoundError"),
            ("cancelTask", "TaskNotFoundError"),
            ("sendMessage", "TaskNotFoundError"),
        ],
    )
    def test_an_unknown_task_raises_the_error_of_the_sdk(self, call: str, kind: str, client: JsClient) -> None:
        unknown = self.format.message("hi", taskId="no-such-task") if call == "sendMessage" else {"id": "no-such-task"}
        with pytest.raises(JsError) as caught:
            client.call(call, unknown)
        assert caught.value.kind == kind

    @covers(ERRORS)
    def test_a_finished_task_cannot_be_cancelled_or_continued(self, client: JsClient) -> None:
        task = self.send_task(client, "echo Ada")
        with pytest.raises(JsError) as cancelled:
            client.call("cancelTask", {"id": task["id"]})
        with pytest.raises(JsError) as continued:
            self.send_task(client, "more", taskId=task["id"])
        assert (cancelled.value.kind, continued.value.kind) == ("TaskNotCancelableError", "UnsupportedOperationError")

    @covers(ERRORS, STREAM, "SubscribeToTask")
    @pytest.mark.parametrize("call", ["sendMessageStream", "resubscribeTask"])
    def test_a_stream_reports_its_error(self, call: str, client: JsClient) -> None:
        unknown = (
            self.format.message("hi", taskId="no-such-task") if call == "sendMessageStream" else {"id": "no-such-task"}
        )
        with pytest.raises(JsError, match="no-such-task"):
            list(client.stream(call, unknown))
