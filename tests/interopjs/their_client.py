"""What the JavaScript SDKs' clients say to our agent: one class of tests, which a module takes over for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.interopjs.node import JsClient, JsError, js_client
from tests.interopjs.shapes import Shape
from tests.peers.record import CARD, ERRORS, PUSH, STREAM, Way, covers


class TheirClient:
    """The client of the package against our server. A module's own class gives the `url` and says what the package is."""

    package: ClassVar[str]
    shape: ClassVar[Shape] = Shape()

    @pytest.fixture
    def client(self, way: Way, url: str) -> Iterator[JsClient]:
        with js_client(self.package, url, way) as client:
            yield client

    def sent(self, client: JsClient, text: str, **options: Any) -> Any:
        return client.call("sendMessage", self.shape.message(text, **options))

    @covers(CARD)
    def test_our_card_is_read_and_the_binding_chosen(self, client: JsClient, way: Way) -> None:
        assert client.call("transport") == [way.binding, way.version]

    @covers("SendMessage", "GetTask")
    def test_a_send_is_answered_with_the_finished_task(self, client: JsClient) -> None:
        task = self.sent(client, "echo Ada")
        assert self.shape.state(task) == "completed"
        assert self.shape.text(task["artifacts"][0]) == "echo: Ada"
        assert client.call("getTask", {"id": task["id"]}) == task

    @covers("SendMessage")
    def test_an_answer_may_be_a_message(self, client: JsClient) -> None:
        answer = self.sent(client, "message")
        assert "status" not in answer
        assert self.shape.text(answer) == "no task was needed"

    @covers("SendMessage", "CancelTask")
    def test_a_send_that_does_not_wait_returns_the_task_as_it_is(self, client: JsClient) -> None:
        task = self.sent(client, "wait", wait=False)
        assert self.shape.state(task) in ("submitted", "working")
        assert self.shape.state(client.call("cancelTask", {"id": task["id"]})) == "canceled"

    @covers("SendMessage")
    def test_a_question_is_answered_in_the_same_task(self, client: JsClient) -> None:
        asked = self.sent(client, "ask")
        assert self.shape.state(asked) == "input-required"
        assert self.shape.text(asked["status"]["message"]) == "Which size?"
        done = self.sent(client, "large", taskId=asked["id"], contextId=asked["contextId"])
        assert (done["id"], self.shape.state(done)) == (asked["id"], "completed")

    @covers("SendMessage")
    def test_a_failed_task_is_returned(self, client: JsClient) -> None:
        task = self.sent(client, "publicfail")
        assert self.shape.state(task) == "failed"
        assert self.shape.text(task["status"]["message"]) == "quota used up"

    @covers("GetTask")
    def test_the_history_is_as_long_as_was_asked_for(self, client: JsClient, way: Way) -> None:
        task = self.sent(client, "echo Ada")
        assert len(task["history"]) == 2
        (last,) = client.call("getTask", {"id": task["id"], "historyLength": 1})["history"]
        assert last == task["history"][-1]
        # In 0.3 nothing and no limit are the same.
        all_or_none = client.call("getTask", {"id": task["id"], "historyLength": 0})
        assert len(all_or_none.get("history", [])) == (0 if way.version == "1.0" else 2)

    @covers(STREAM)
    def test_a_stream_is_the_task_its_updates_and_its_end(self, client: JsClient) -> None:
        events = list(client.stream("sendMessageStream", self.shape.message("count 5")))
        kinds = [self.shape.kind(event) for event in events]
        assert kinds == ["task", "status-update", *["artifact-update"] * 6, "status-update"]
        *pieces, whole = (self.shape.body(event) for event in events[2:8])
        assert "".join(self.shape.text(piece["artifact"]) for piece in pieces) == "1 2 3 4 5 "
        assert (whole.get("append", False), whole["lastChunk"]) == (False, True)
        assert self.shape.text(whole["artifact"]) == "1 2 3 4 5 "
        assert self.shape.state(self.shape.body(events[-1])) == "completed"

    @covers("ListTasks")
    def test_tasks_are_listed_page_by_page(self, client: JsClient, way: Way) -> None:
        if way.version == "0.3":
            with pytest.raises(JsError):
                client.call("listTasks", {})
            return
        context = self.sent(client, "echo 1")["contextId"]
        for number in (2, 3):
            self.sent(client, f"echo {number}", contextId=context)
        page = client.call("listTasks", {"contextId": context, "pageSize": 2})
        assert (len(page["tasks"]), page["totalSize"]) == (2, 3)
        rest = client.call("listTasks", {"contextId": context, "pageSize": 2, "pageToken": page["nextPageToken"]})
        assert len({task["id"] for task in [*page["tasks"], *rest["tasks"]]}) == 3
        assert not rest.get("nextPageToken")

    @covers("SubscribeToTask", "CancelTask", STREAM)
    def test_a_running_task_is_followed_and_cancelled(self, client: JsClient) -> None:
        stream = client.stream("sendMessageStream", self.shape.message("wait"))
        task = self.shape.body(next(stream))
        followed = client.stream("resubscribeTask", {"id": task["id"]})
        assert self.shape.kind(next(followed)) == "task"
        assert self.shape.state(client.call("cancelTask", {"id": task["id"]})) == "canceled"
        for events in (stream, followed):
            *_, last = events
            assert self.shape.state(self.shape.body(last)) == "canceled"

    @covers("SubscribeToTask")
    def test_a_client_that_leaves_a_stream_leaves_the_task_as_it_is(self, client: JsClient) -> None:
        (event,) = client.stream("sendMessageStream", self.shape.message("wait"), stop=1)
        task_id = self.shape.body(event)["id"]
        assert self.shape.state(client.call("getTask", {"id": task_id})) in ("submitted", "working")
        assert self.shape.state(client.call("cancelTask", {"id": task_id})) == "canceled"

    @covers(*PUSH)
    def test_webhooks_are_set_read_listed_and_deleted(self, client: JsClient) -> None:
        task_id = self.sent(client, "ask")["id"]
        made = client.call(self.shape.create_push, self.shape.push(task_id, "a", "https://hooks.test/a"))
        assert self.shape.pushed(made) == ("a", "https://hooks.test/a")
        client.call(self.shape.create_push, self.shape.push(task_id, "b", "https://hooks.test/b"))
        read = client.call("getTaskPushNotificationConfig", self.shape.config(task_id, "a"))
        assert self.shape.pushed(read) == ("a", "https://hooks.test/a")
        assert self.webhooks(client, task_id) == {"a", "b"}
        client.call("deleteTaskPushNotificationConfig", self.shape.config(task_id, "a"))
        assert self.webhooks(client, task_id) == {"b"}

    def webhooks(self, client: JsClient, task_id: str) -> set[str]:
        listed = self.shape.listed(client.call("listTaskPushNotificationConfig", self.shape.configs(task_id)))
        return {self.shape.pushed(one)[0] for one in listed}

    @covers("GetExtendedAgentCard")
    def test_our_extended_card_is_read(self, client: JsClient) -> None:
        assert client.call("getAgentCard")["description"] == "For callers that are known"

    @covers(ERRORS)
    @pytest.mark.parametrize(
        ("call", "kind"),
        [
            ("getTask", "TaskNotFoundError"),
            ("cancelTask", "TaskNotFoundError"),
            ("sendMessage", "TaskNotFoundError"),
        ],
    )
    def test_an_unknown_task_is_the_sdks_own_error(self, call: str, kind: str, client: JsClient) -> None:
        unknown = self.shape.message("hi", taskId="no-such-task") if call == "sendMessage" else {"id": "no-such-task"}
        with pytest.raises(JsError) as caught:
            client.call(call, unknown)
        assert caught.value.kind == kind

    @covers(ERRORS)
    def test_a_finished_task_cannot_be_cancelled_or_continued(self, client: JsClient) -> None:
        task = self.sent(client, "echo Ada")
        with pytest.raises(JsError) as cancelled:
            client.call("cancelTask", {"id": task["id"]})
        with pytest.raises(JsError) as continued:
            self.sent(client, "more", taskId=task["id"])
        assert (cancelled.value.kind, continued.value.kind) == ("TaskNotCancelableError", "UnsupportedOperationError")

    @covers(ERRORS, STREAM, "SubscribeToTask")
    @pytest.mark.parametrize("call", ["sendMessageStream", "resubscribeTask"])
    def test_the_error_of_a_stream_is_told(self, call: str, client: JsClient) -> None:
        unknown = (
            self.shape.message("hi", taskId="no-such-task") if call == "sendMessageStream" else {"id": "no-such-task"}
        )
        with pytest.raises(JsError, match="no-such-task"):
            list(client.stream(call, unknown))
