"""Invalid input in protocol 1.0: missing members, wrong types, values out of range, and inaccessible tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from tests.hostile import ARRAYS, OBJECTS, WORDS, Case, Dialect, from_the_protocol, in_any_version
from tests.wsgi import message

V10 = Dialect("1.0")


def without(member: str) -> dict[str, Any]:
    params = message()
    del params["message"][member]
    return params


def part(**members: Any) -> dict[str, Any]:
    return message(parts=[{"text": "fine"}, members])


def configured(**members: Any) -> dict[str, Any]:
    return {**message(), "configuration": members}


def bad_sends() -> Iterator[tuple[str, dict[str, Any]]]:
    """The member in the error, and the params."""
    yield "message", {}
    yield "message", {"message": None}
    yield "message", {"Message": message()["message"]}
    for value in (*OBJECTS, ""):
        yield "message", {"message": value}
    yield "message.messageId", {"message": {}}
    yield "message.messageId", {"message": {"message_Id": "m"}}
    # Both names of one member: a proxy may read the other one.
    yield "message.taskId", message(taskId="FINISHED", task_id="other")
    yield "message.contextId", message(contextId="one", context_id="two")
    for member in ("messageId", "role", "parts"):
        yield f"message.{member}", without(member)
        yield f"message.{member}", {"message": {**message()["message"], member: None}}
    for value in ("", *WORDS):
        yield "message.messageId", message(messageId=value)
    for value in ("", "user", "ROLE_UNSPECIFIED", "ROLE_KING", 0, 3, -1, True, 1.5, [], {}):
        yield "message.role", message(role=value)
    for value in ([], *ARRAYS):
        yield "message.parts", message(parts=value)
    for value in (None, "x", 5, [], {}, {"txt": "x"}, {"text": None}, {"kind": "text"}):
        yield "message.parts[1]", message(parts=[{"text": "fine"}, value])
    contents = {"text": "a", "raw": "YQ==", "url": "https://x.example", "data": {}}
    for first, second in combinations(contents, 2):
        yield "message.parts[1]", part(**{first: contents[first], second: contents[second]})
    yield "message.parts[1]", part(**contents)
    for value in WORDS:
        yield "message.parts[1].text", part(text=value)
        yield "message.parts[1].url", part(url=value)
        yield "message.parts[1].raw", part(raw=value)
        yield "message.parts[1].filename", part(text="x", filename=value)
        yield "message.parts[1].mediaType", part(text="x", mediaType=value)
        yield "message.contextId", message(contextId=value)
        yield "message.taskId", message(taskId=value)
        yield "tenant", {**message(), "tenant": value}
    for value in ("not base64!", "a", "=", "YQ==YQ==", "Y\u00e9=="):
        yield "message.parts[1].raw", part(raw=value)
    for value in OBJECTS:
        yield "message.parts[1].metadata", part(text="x", metadata=value)
        yield "message.metadata", message(metadata=value)
        yield "metadata", {**message(), "metadata": value}
        yield "configuration", {**message(), "configuration": value}
        yield "configuration.taskPushNotificationConfig", configured(taskPushNotificationConfig=value)
    for value in ARRAYS:
        yield "message.extensions", message(extensions=value)
        yield "message.referenceTaskIds", message(referenceTaskIds=value)
        yield "configuration.acceptedOutputModes", configured(acceptedOutputModes=value)
    for value in (None, 5, {}):
        yield "message.extensions[0]", message(extensions=[value])
        yield "message.referenceTaskIds[1]", message(referenceTaskIds=["t", value])
        yield "configuration.acceptedOutputModes[0]", configured(acceptedOutputModes=[value])
    for value in (-1, 1.5, "x", "", "1.5", True, [], {}, 2**31, -(2**31) - 1, "9" * 11, 1e300):
        yield "configuration.historyLength", configured(historyLength=value)
    for value in ("true", "", 1, 0, [], {}):
        yield "configuration.returnImmediately", configured(returnImmediately=value)
    yield "configuration.taskPushNotificationConfig.url", configured(taskPushNotificationConfig={})
    yield "message.contextId", message(taskId="ASKED", contextId="another")
    yield "message.contextId", message(task_id="ASKED", context_id="another")


def bad_others() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The method, the member in the error, and the params."""
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        yield method, "id", {}
        for value in ("", None, *WORDS):
            yield method, "id", {"id": value}
    for value in (-1, 1.5, "x", "", True, [], {}, 2**31):
        yield "GetTask", "historyLength", {"id": "FINISHED", "historyLength": value}
        yield "ListTasks", "historyLength", {"historyLength": value}
    for value in OBJECTS:
        yield "CancelTask", "metadata", {"id": "ASKED", "metadata": value}
    for value in (0, 101, -1, 2**31, 1.5, "x", "", True, []):
        yield "ListTasks", "pageSize", {"pageSize": value}
    for value in ("working", "TASK_STATE_RUNNING", 9, -1, True, 1.5, []):
        yield "ListTasks", "status", {"status": value}
    for value in ("!!", "é", "a" * 5000, "e30", "W10", "WzEsMiwzXQ", "bnVsbA", 5, "Ww" * 2000, "FORGED", "OTHER"):
        yield "ListTasks", "pageToken", {"pageToken": value}
    yield "ListTasks", "pageToken", {"pageToken": "TOKEN", "contextId": "another filter"}
    for value in (
        "yesterday",
        "2025-01-01",
        "2025-13-01T00:00:00Z",
        "2025-01-01T00:00:00",
        "2025-01-01t00:00:00z",
        5,
        "",
    ):
        yield "ListTasks", "statusTimestampAfter", {"statusTimestampAfter": value}
    yield "ListTasks", "statusTimestampAfter", {"statusTimestampAfter": "0001-01-01T00:00:00+23:00"}
    for value in ("yes", 1, [], "true"):
        yield "ListTasks", "includeArtifacts", {"includeArtifacts": value}
    for value in WORDS:
        yield "ListTasks", "contextId", {"contextId": value}
        yield "ListTasks", "tenant", {"tenant": value}
    for method in ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
        yield method, "taskId", {"id": "x"}
        yield method, "id", {"taskId": "x"}
    yield "CreateTaskPushNotificationConfig", "url", {"taskId": "x"}
    yield "ListTaskPushNotificationConfigs", "taskId", {}


def bad_params() -> Iterator[Case]:
    for number, (member, params) in enumerate(bad_sends()):
        for method in ("SendMessage", "SendStreamingMessage"):
            yield V10.case(f"{method} {number} {member}", V10.rpc(method, params, "s"), -32602, f"{member}: ", "s")
    for number, (method, member, params) in enumerate(bad_others()):
        yield V10.case(f"{method} {number} {member}", V10.rpc(method, params, -1), -32602, f"{member}: ", -1)


def wrong_tasks() -> Iterator[Case]:
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        for id in ("nope", "FINISHED ", "../etc/passwd", "' OR 1=1 --", "\0", "a" * 5000, "😀"):
            yield V10.case(f"{method} of {id[:20]!r}", V10.rpc(method, {"id": id}), -32602 if "\0" in id else -32001)
        yield V10.case(f"{method} in another tenant", V10.rpc(method, {"id": "ASKED", "tenant": "other"}), -32001)
    yield V10.case("canceling a finished task", V10.rpc("CancelTask", {"id": "FINISHED"}), -32002, "completed")
    yield V10.case(
        "subscribing to a finished task", V10.rpc("SubscribeToTask", {"id": "FINISHED"}), -32004, "completed"
    )
    for method in ("SendMessage", "SendStreamingMessage"):
        yield V10.case(f"{method} to no task", V10.rpc(method, message(taskId="nope")), -32001)
        yield V10.case(f"{method} to a finished task", V10.rpc(method, message(taskId="FINISHED")), -32004, "completed")
        other = {**message(taskId="ASKED"), "tenant": "other"}
        yield V10.case(f"{method} to another tenant's task", V10.rpc(method, other), -32001)
        push = configured(taskPushNotificationConfig={"url": "https://x.example"})
        yield V10.case(f"{method} with a webhook", V10.rpc(method, push), -32003)
    busy = {**message(taskId="BUSY"), "configuration": {"returnImmediately": True}}
    yield V10.case("a message to a busy task", V10.rpc("SendMessage", busy), -32004, "busy")


def cases() -> Iterator[Case]:
    yield from in_any_version(V10)
    yield from bad_params()
    yield from wrong_tasks()
    unnamed = V10.rpc("SendMessage", message())
    yield V10.case("under no version", unnamed, -32009, "A2A-Version: 1.0", A2A_Version="")
    yield from from_the_protocol(V10, "v1-invalid-cases.json")
