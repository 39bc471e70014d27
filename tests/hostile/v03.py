"""Invalid input in protocol 0.3: missing members, wrong types, values out of range, and inaccessible tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.hostile import ARRAYS, OBJECTS, WORDS, Case, Dialect, from_the_protocol, in_any_version
from tests.wsgi import message_v03 as message

V03 = Dialect("0.3")
TEXT = {"kind": "text", "text": "fine"}


def without(member: str) -> dict[str, Any]:
    params = message()
    del params["message"][member]
    return params


def part(**members: Any) -> dict[str, Any]:
    return message(parts=[TEXT, members])


def file(**members: Any) -> dict[str, Any]:
    return part(kind="file", file=members)


def configured(**members: Any) -> dict[str, Any]:
    return {**message(), "configuration": members}


def bad_messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """The member in the error, and the params."""
    yield "message", {}
    yield "message", {"": "x"}
    yield "message", {"message": None}
    for value in (*OBJECTS, ""):
        yield "message", {"message": value}
    yield "message.messageId", {"message": {}}
    for member in ("messageId", "role", "parts"):
        yield f"message.{member}", without(member)
        yield f"message.{member}", message(**{member: None})
    for value in ("task", "Message", "", 5, [], {}):
        yield "message.kind", message(kind=value)
    for value in ("", *WORDS):
        yield "message.messageId", message(messageId=value)
    for value in ("", "User", "ROLE_USER", "system", 0, 1, True, 1.5, [], {}):
        yield "message.role", message(role=value)
    for value in ([], *ARRAYS):
        yield "message.parts", message(parts=value)
    for value in WORDS:
        yield "message.contextId", message(contextId=value)
        yield "message.taskId", message(taskId=value)
    for value in OBJECTS:
        yield "message.metadata", message(metadata=value)
        yield "metadata", {**message(), "metadata": value}
    for value in ARRAYS:
        yield "message.extensions", message(extensions=value)
        yield "message.referenceTaskIds", message(referenceTaskIds=value)
    for value in (None, 5, {}):
        yield "message.extensions[0]", message(extensions=[value])
        yield "message.referenceTaskIds[1]", message(referenceTaskIds=["t", value])
    yield "message.contextId", message(taskId="ASKED", contextId="another")


def bad_parts() -> Iterator[tuple[str, dict[str, Any]]]:
    for value in (None, "x", 5, [], {}, {"txt": "x"}, {"raw": "YQ=="}, {"url": "https://x.example"}):
        yield "message.parts[1]", message(parts=[TEXT, value])
    for value in ("video", "Text", "", 5, [], {}, True):
        yield "message.parts[1].kind", part(kind=value, text="x")
    yield "message.parts[1].text", part(kind="text")
    yield "message.parts[1].text", part(kind="text", text=None)
    yield "message.parts[1].text", part(kind="text", data={})
    for value in WORDS:
        yield "message.parts[1].text", part(kind="text", text=value)
        yield "message.parts[1].file.uri", file(uri=value)
        yield "message.parts[1].file.bytes", file(bytes=value)
        yield "message.parts[1].file.name", file(uri="u", name=value)
        yield "message.parts[1].file.mimeType", file(bytes="YQ==", mimeType=value)
    for value in ("not base64!", "a", "=", "YQ==YQ==", "Y\u00e9=="):
        yield "message.parts[1].file.bytes", file(bytes=value)
    yield "message.parts[1].file", part(kind="file")
    yield "message.parts[1].file", file()
    yield "message.parts[1].file", file(name="a.txt", bytes=None)
    yield "message.parts[1].file", file(bytes="YQ==", uri="https://x.example")
    for value in OBJECTS:
        yield "message.parts[1].file", part(kind="file", file=value)
        yield "message.parts[1].metadata", part(kind="text", text="x", metadata=value)
    for value in ("x", 5, True):
        yield "message.parts[1].data", part(kind="data", data=value)
    yield "message.parts[1].data", part(kind="data")
    yield "message.parts[1].data", part(kind="data", data=None)


def bad_configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    for value in OBJECTS:
        yield "configuration", {**message(), "configuration": value}
        yield "configuration.pushNotificationConfig", configured(pushNotificationConfig=value)
    for value in ARRAYS:
        yield "configuration.acceptedOutputModes", configured(acceptedOutputModes=value)
    for value in (None, 5, {}):
        yield "configuration.acceptedOutputModes[0]", configured(acceptedOutputModes=[value])
    for value in (-1, 1.5, "x", "", "1.5", True, [], {}, 2**31, -(2**31) - 1, "9" * 11, 1e300):
        yield "configuration.historyLength", configured(historyLength=value)
    for value in ("true", "", 1, 0, [], {}):
        yield "configuration.blocking", configured(blocking=value)
    hook = "configuration.pushNotificationConfig"
    yield f"{hook}.url", configured(pushNotificationConfig={})
    bad: list[tuple[str, Any]] = [
        ("authentication", 5),
        ("authentication.schemes", {"schemes": []}),
        ("authentication.schemes", {"schemes": "Bearer"}),
        ("authentication.schemes[0]", {"schemes": [5]}),
    ]
    for member, value in bad:
        yield f"{hook}.{member}", configured(pushNotificationConfig={"url": "u", "authentication": value})


def bad_others() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The operation, the member in the error, and the params."""
    for name in ("GetTask", "CancelTask", "SubscribeToTask"):
        yield name, "id", {}
        yield name, "id", {"taskId": "FINISHED"}
        for value in ("", None, *WORDS):
            yield name, "id", {"id": value}
    for value in (-1, 1.5, "x", "", True, [], {}, 2**31):
        yield "GetTask", "historyLength", {"id": "FINISHED", "historyLength": value}
    for value in OBJECTS:
        yield "CancelTask", "metadata", {"id": "ASKED", "metadata": value}
        yield (
            "CreateTaskPushNotificationConfig",
            "pushNotificationConfig",
            {"taskId": "x", "pushNotificationConfig": value},
        )
    for name in ("GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"):
        yield name, "id", {"taskId": "x"}
    yield "DeleteTaskPushNotificationConfig", "id", {"pushNotificationConfigId": "x"}
    yield "DeleteTaskPushNotificationConfig", "pushNotificationConfigId", {"id": "x"}
    yield "GetTaskPushNotificationConfig", "pushNotificationConfigId", {"id": "x", "pushNotificationConfigId": 5}
    yield "CreateTaskPushNotificationConfig", "taskId", {"pushNotificationConfig": {"url": "u"}}
    yield "CreateTaskPushNotificationConfig", "pushNotificationConfig", {"taskId": "x"}
    yield (
        "CreateTaskPushNotificationConfig",
        "pushNotificationConfig.url",
        {"taskId": "x", "pushNotificationConfig": {}},
    )


def bad_params() -> Iterator[Case]:
    sends = [*bad_messages(), *bad_parts(), *bad_configurations()]
    for number, (member, params) in enumerate(sends):
        for name in ("SendMessage", "SendStreamingMessage"):
            body = V03.rpc(name, params, "s")
            yield V03.case(f"{V03.method(name)} {number} {member}", body, -32602, f"{member}: ", "s")
    for number, (name, member, params) in enumerate(bad_others()):
        body = V03.rpc(name, params, -1)
        yield V03.case(f"{V03.method(name)} {number} {member}", body, -32602, f"{member}: ", -1)


def wrong_tasks() -> Iterator[Case]:
    for name in ("GetTask", "CancelTask", "SubscribeToTask"):
        for id in ("nope", "FINISHED ", "../etc/passwd", "' OR 1=1 --", "\0", "a" * 5000, "😀"):
            yield V03.case(
                f"{V03.method(name)} of {id[:20]!r}", V03.rpc(name, {"id": id}), -32602 if "\0" in id else -32001
            )
    finished = {"id": "FINISHED"}
    yield V03.case("canceling a finished task", V03.rpc("CancelTask", finished), -32002, "completed")
    yield V03.case("resubscribing to a finished task", V03.rpc("SubscribeToTask", finished), -32004, "completed")
    for name in ("SendMessage", "SendStreamingMessage"):
        method = V03.method(name)
        yield V03.case(f"{method} to no task", V03.rpc(name, message(taskId="nope")), -32001)
        ended = V03.rpc(name, message(taskId="FINISHED"))
        yield V03.case(f"{method} to a finished task", ended, -32004, "completed")
        push = configured(pushNotificationConfig={"url": "https://x.example"})
        yield V03.case(f"{method} with a webhook", V03.rpc(name, push), -32003)
    busy = {**message(taskId="BUSY"), "configuration": {"blocking": False}}
    yield V03.case("a message to a busy task", V03.rpc("SendMessage", busy), -32004, "busy")


def methods_of_1_0() -> Iterator[Case]:
    """Valid params with method names of the other version."""
    for name in ("ListTasks", "GetTask", "SendMessage"):
        body = Dialect("1.0").rpc(name, {"id": "FINISHED"})
        yield V03.case(f"{name} in 0.3", body, -32009, "A2A-Version: 1.0")
    for name in ("tasks/list", "task/get", "tasks/send", "message/send ", "Message/Send"):
        yield V03.case(f"method {name!r}", V03.rpc(name, {"id": "FINISHED"}), -32601)


def cases() -> Iterator[Case]:
    yield from in_any_version(V03)
    yield from bad_params()
    yield from wrong_tasks()
    yield from methods_of_1_0()
    yield from from_the_protocol(V03, "v0_3-invalid-cases.json")
