"""Section G, fourth part: HTTP+JSON of 0.3, in the dialect that its official clients write."""

from __future__ import annotations

from typing import Any

from tests.conformance.encoding import members
from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import G, H, Level, Way
from tests.conformance.system import Speaker, new_name
from tests.conformance.wire import REFUSALS

_REST = (Way.REST_03,)
_STATUSES = {refusal.code: refusal.http for refusal in REFUSALS.values()}


def said(text: str, *content: Any, **around: Any) -> dict[str, Any]:
    """The body of a send; `around` are members beside the message."""
    message = {"messageId": new_name(), "role": "ROLE_USER", "content": [{"text": text}, *content]}
    return {"message": message, **around}


def _send(at: Speaker, text: str, *content: Any, **around: Any) -> dict[str, Any]:
    result: dict[str, Any] = at.ask("SendMessage", said(text, *content, **around)).result["task"]
    return result


def _begin(at: Speaker, text: str) -> str:
    id: str = _send(at, text, configuration={"blocking": False})["id"]
    return id


def _content(task: dict[str, Any]) -> list[Any]:
    return [part for artifact in task["artifacts"] for part in artifact["parts"]]


@G.line("V03-REST-01", Level.MUST, "verbs and paths are as specified, under /v1", ways=_REST)
def paths_are_under_v1(at: Speaker) -> None:
    task = _send(at, "echo")
    assert at.ask("GetTask", {"id": task["id"]}).result["id"] == task["id"]
    assert at.open("SendStreamingMessage", said("echo")).all()
    gate = new_name()
    held = _begin(at, f"hold {gate}")
    with at.open("SubscribeToTask", {"id": held}) as stream:
        assert next(stream.results())["task"]["id"] == held
    assert at.ask("CancelTask", {"id": held}).result["id"] == held
    assert at.ask("CancelTask", {"id": UNKNOWN}).status == 404
    assert at.ask("GetTask", {"id": UNKNOWN}).status == 404
    push = at.on("push")
    id = _send(push, "echo")["id"]
    config = {"pushNotificationConfig": {"url": "https://hooks.example.com/", "id": "c"}}
    hook = {"parent": f"tasks/{id}", "configId": "c", "config": config}
    made = push.ask("CreateTaskPushNotificationConfig", {"taskId": id, **hook}).result
    assert made["name"] == f"tasks/{id}/pushNotificationConfigs/c"
    assert push.ask("GetTaskPushNotificationConfig", {"taskId": id, "id": "c"}).result == made
    assert push.ask("ListTaskPushNotificationConfigs", {"taskId": id}).result["configs"] == [made]
    assert push.ask("DeleteTaskPushNotificationConfig", {"taskId": id, "id": "c"}).status in (200, 204)
    assert at.on("secured").as_user("ada").ask("GetExtendedAgentCard").result["skills"]


@G.line("V03-REST-02", Level.SDK, "bodies are in the proto's JSON", ways=_REST)
def bodies_are_proto_json(at: Speaker) -> None:
    content = [
        {"file": {"fileWithUri": "https://example.com/a", "mimeType": "image/png"}},
        {"file": {"fileWithBytes": "+/8=", "mimeType": "image/png"}},
        {"data": {"data": {"a": 1}}},
        {"text": "x"},
    ]
    task = _send(at, "echo", *content)
    assert _content(task) == content
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    first = task["history"][0]
    assert (first["role"], first["content"][0]) == ("ROLE_USER", {"text": "echo"})
    assert at.ask("CancelTask", {"id": _begin(at, f"hold {new_name()}")}).result["status"]["state"] == (
        "TASK_STATE_CANCELLED"
    )
    events = at.open("SendStreamingMessage", said("count 2")).all()
    assert "task" in events[0]
    assert events[-1]["statusUpdate"]["final"] is True
    assert not [name for name, _ in members([task, *events]) if name == "kind"]


@G.line("V03-REST-03", Level.SDK, "snake_case names, and both verbs for a subscription, are accepted", ways=_REST)
def underscores_and_both_verbs(at: Speaker) -> None:
    body = {
        "message": {"message_id": new_name(), "context_id": "c", "role": "ROLE_USER", "content": [{"text": "echo"}]},
        "configuration": {"accepted_output_modes": ["text/plain"], "blocking": True},
    }
    assert at.ask("SendMessage", body).result["task"]["contextId"] == "c"
    gate = new_name()
    asked = at.request("SubscribeToTask", {"id": _begin(at, f"hold {gate}")})
    for verb in ("POST", "GET"):
        with at.opened(verb, asked.path, b"", asked.headers) as stream:
            assert next(stream.results())["task"]
    _send(at, f"release {gate}")


@G.line("V03-REST-04", Level.MUST, "the media type is application/json", ways=_REST)
def the_media_type_is_json(at: Speaker) -> None:
    replies = at.ask("SendMessage", said("echo")), at.ask("GetTask", {"id": UNKNOWN}), at.ask("SendMessage", {})
    assert [reply.status for reply in replies] == [200, 404, 400]
    assert {reply.media_type for reply in replies} == {"application/json"}


@G.line("V03-REST-05", Level.MUST, "results are those of JSON-RPC", ways=_REST)
def it_does_what_json_rpc_does(at: Speaker) -> None:
    rpc = at.by(Way.RPC_03)
    there = _send(at, "count 3")
    here = rpc.ask("GetTask", {"id": there["id"]}).result
    assert (here["id"], here["contextId"]) == (there["id"], there["contextId"])
    assert [part["text"] for part in _content(here)] == [part["text"] for part in _content(there)]
    assert (here["status"]["state"], there["status"]["state"]) == ("completed", "TASK_STATE_COMPLETED")
    ended = there["id"]
    for operation, params in (
        ("GetTask", {"id": UNKNOWN}),
        ("CancelTask", {"id": ended}),
        ("SubscribeToTask", {"id": ended}),
        ("SendMessage", {}),
    ):
        wanted = rpc.ask(operation, params).error["code"]
        assert at.ask(operation, params).status == _STATUSES[wanted], operation


@H.line("DUAL-10", Level.CHOICE, "v1 is not a tenant of 1.0, because it is the path of 0.3", ways=(Way.REST,))
def no_tenant_is_called_v1(at: Speaker) -> None:
    asked = at.request("SendMessage", {"message": None})
    reply = at.exchange("POST", "/v1" + asked.path, asked.body, asked.headers)
    reply.refuses("VersionNotSupported")
