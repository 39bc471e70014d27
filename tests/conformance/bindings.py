"""Section D: JSON-RPC, HTTP+JSON, and their common behaviour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.sending import UNKNOWN, parts_of, state_of
from tests.conformance.suite import D, Level, Way
from tests.conformance.system import Speaker, message, new_name
from tests.conformance.wire import NAMES, Reply

_RPC, _REST = (Way.RPC,), (Way.REST,)
_INVALID = Path(__file__).parent.parent / "spec" / "v1-invalid-cases.json"
DOMAIN = "a2a-protocol.org"


def _rpc(method: str, params: Any = None, **members: Any) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **members}
    return json.dumps({name: value for name, value in call.items() if value is not None}).encode()


def _code(reply: Reply) -> int:
    code: int = reply.error["code"]
    return code


# -- JSON-RPC -----------------------------------------------------------------------------------------------------------


@D.line("V1-RPC-01", Level.MUST, "the envelope is JSON-RPC 2.0, and ids are returned unchanged", ways=_RPC)
def ids_come_back(at: Speaker) -> None:
    for id in ("a", "", "7", 7, 0, -1, 2**60):
        for params in ({"id": UNKNOWN}, {}):
            answer = at.ask("GetTask", params, id).json
            assert answer["jsonrpc"] == "2.0"
            assert answer["id"] == id
            assert type(answer["id"]) is type(id)
    assert set(at.send("echo").json) == {"jsonrpc", "id", "result"}


@D.line("V1-RPC-02", Level.MUST, "responses are application/json", ways=_RPC)
def answers_are_json(at: Speaker) -> None:
    replies = at.send("echo"), at.ask("GetTask", {"id": UNKNOWN}), at.post(b"{"), at.ask("SubscribeToTask", {})
    assert [set(reply.json) - {"jsonrpc", "id"} for reply in replies] == [{"result"}, *[{"error"}] * 3]
    assert {reply.media_type for reply in replies} == {"application/json"}


@D.line("V1-RPC-03", Level.MUST, "every method is implemented", ways=_RPC)
def every_method_is_known(at: Speaker) -> None:
    assert len(NAMES) == 11
    for name in NAMES:
        answer = at.ask(name.method, {}).json
        # No error, or one about the params or an unsupported operation.
        assert "result" in answer or answer["error"]["code"] in (-32602, -32003, -32004), name


@D.line("V1-RPC-04", Level.MUST, "a response has either a result or an error", ways=_RPC)
def an_answer_is_one_of_two(at: Speaker) -> None:
    replies = at.send("echo"), at.ask("GetTask", {"id": UNKNOWN}), at.post(b"{"), at.post(b"[]")
    assert [{"result", "error"} & reply.json.keys() for reply in replies] == [{"result"}, *[{"error"}] * 3]


@D.line("V1-RPC-05", Level.MUST, "a body that is not JSON is a parse error without an id", ways=_RPC)
def what_is_not_json(at: Speaker) -> None:
    for body in (b"{", b"", b"hello", b'{"jsonrpc": "2.0", "id": 1,', b"\xff\xfe"):
        reply = at.post(body)
        assert (_code(reply), reply.json["id"]) == (-32700, None)


def _cases(*codes: int) -> list[dict[str, Any]]:
    cases = json.loads(_INVALID.read_text())
    found = [case for case in cases if case["expectCode"] in codes]
    assert found
    return found


def _try(at: Speaker, case: dict[str, Any]) -> None:
    body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
    reply = at.post(body.encode())
    assert (_code(reply), reply.json["id"]) == (case["expectCode"], case["expectId"]), case["name"]


@D.line("V1-RPC-06", Level.MUST, "JSON that is not a request is an invalid request", ways=_RPC)
def what_is_no_request(at: Speaker) -> None:
    for case in _cases(-32600):
        _try(at, case)


@D.line("V1-RPC-07", Level.MUST, "an unknown method is not found", ways=_RPC)
def an_unknown_method_is_not_found(at: Speaker) -> None:
    for method in ("DoMagic", "sendMessage", "SendMessage ", "a2a.SendMessage"):
        assert _code(at.post(_rpc(method, {}))) == -32601


@D.line("V1-RPC-08", Level.MUST, "params of the wrong form are invalid", ways=_RPC)
def params_that_do_not_fit(at: Speaker) -> None:
    for case in _cases(-32602):
        _try(at, case)
    for params in ([], "abc", 5, True):
        assert _code(at.post(_rpc("GetTask", params))) == -32602


def a2a_errors(at: Speaker) -> dict[str, Reply]:
    """A response for each error of the protocol that a client can cause."""
    ended, asked = at.task("echo")["id"], at.request("GetTask", {"id": UNKNOWN})
    return {
        "TaskNotFound": at.ask("GetTask", {"id": UNKNOWN}),
        "TaskNotCancelable": at.ask("CancelTask", {"id": ended}),
        "UnsupportedOperation": at.send("echo", taskId=ended),
        "ContentTypeNotSupported": at.send("echo", {"raw": "+/8=", "mediaType": "audio/x"}),
        "VersionNotSupported": at.exchange(
            asked.verb, asked.path, asked.body, {**asked.headers, "A2A-Version": "99.0"}
        ),
        "InvalidParams": at.ask("ListTasks", {"pageSize": 0}),
    }


@D.line("V1-RPC-09", Level.MUST, "errors of the protocol have its codes", ways=_RPC)
def errors_have_their_codes(at: Speaker) -> None:
    for name, reply in a2a_errors(at).items():
        reply.refuses(name)


@D.line("V1-RPC-10", Level.SHOULD, "errors have a reason and a domain", ways=_RPC)
def errors_have_reasons(at: Speaker) -> None:
    for reply in a2a_errors(at).values():
        assert isinstance(reply.error["data"], list)
        assert reply.info["reason"].isupper()
        assert reply.info["domain"] == DOMAIN


@D.line("V1-RPC-11", Level.MUST, "every detail of an error has a type", ways=_RPC)
def details_have_types(at: Speaker) -> None:
    for reply in a2a_errors(at).values():
        assert all(detail["@type"].startswith("type.googleapis.com/") for detail in reply.details)


@D.line("V1-RPC-12", Level.MUST, "events of a stream are complete responses with the id of the request", ways=_RPC)
def events_are_answers(at: Speaker) -> None:
    for id in ("s-1", 7):
        with at.open("SendStreamingMessage", message("count 2"), id) as stream:
            answers = [frame.json for frame in stream.frames()]
        assert len(answers) > 2
        assert all(set(answer) == {"jsonrpc", "id", "result"} for answer in answers)
        assert all((answer["jsonrpc"], answer["id"]) == ("2.0", id) for answer in answers)


@D.line("V1-RPC-13", Level.SDK, "params may be absent if none are required", ways=_RPC)
def params_may_be_absent(at: Speaker) -> None:
    assert "tasks" in at.ask("ListTasks").result
    assert _code(at.ask("GetExtendedAgentCard")) == -32004


@D.line("V1-RPC-14", Level.CHOICE, "the trailing slash of the URL is optional", ways=_RPC)
def a_slash_changes_nothing(at: Speaker) -> None:
    asked = at.request("GetTask", {"id": UNKNOWN})
    for path in ("", "/"):
        at.exchange("POST", path, asked.body, asked.headers).refuses("TaskNotFound")


@D.line("V1-RPC-15", Level.CHOICE, "a refusal of another verb names the allowed ones", ways=_RPC)
def other_verbs_are_refused(at: Speaker) -> None:
    for verb in ("GET", "PUT", "DELETE"):
        reply = at.exchange(verb, "/")
        assert reply.status == 405
        assert "POST" in reply.headers["Allow"]


@D.line("V1-RPC-17", Level.CHOICE, "batches are refused", ways=_RPC)
def batches_are_refused(at: Speaker) -> None:
    for body in (b"[]", b"[" + _rpc("ListTasks", {}) + b"]"):
        reply = at.post(body)
        assert (_code(reply), reply.json["id"]) == (-32600, None)


@D.line("V1-RPC-18", Level.SDK, "errors have HTTP status 200", ways=_RPC)
def errors_come_with_200(at: Speaker) -> None:
    replies = [*a2a_errors(at).values(), at.post(b"{"), at.post(b"[]"), at.post(_rpc("DoMagic"))]
    assert {reply.status for reply in replies} == {200}


# -- HTTP+JSON ----------------------------------------------------------------------------------------------------------

_TYPES = ("application/a2a+json", "application/json")


@D.line("V1-REST-01", Level.MUST, "verbs and paths are as in the specification's table", ways=_REST)
def paths_are_those_of_the_table(at: Speaker) -> None:
    assert state_of(at.task("echo")) == "COMPLETED"
    assert at.stream("echo").all()
    gate = new_name()
    id = at.begin(f"hold {gate}")["id"]
    with at.open("SubscribeToTask", {"id": id}) as stream:
        assert next(stream.results())["task"]["id"] == id
    assert at.get(id)["id"] == id
    assert at.ask("CancelTask", {"id": id}).result["id"] == id
    assert at.listed()
    for name in NAMES:
        members = {"id": UNKNOWN, "taskId": UNKNOWN, "url": "https://example.com/", "message": None}
        params = {key: value for key, value in members.items() if f"{{{key}}}" in name.path or name.verb == "POST"}
        reply = at.ask(name.method, params)
        assert reply.status not in (405, 501), name
        # Unsupported operations have their own error, so a 404 for the path is a failure.
        assert reply.status < 300 or reply.info["reason"] != "METHOD_NOT_FOUND", name


@D.line("V1-REST-02", Level.SHOULD, "the media type is application/a2a+json", ways=_REST)
def the_media_type_is_its_own(at: Speaker) -> None:
    assert at.ask("ListTasks").media_type == _TYPES[0]
    assert at.ask("GetTask", {"id": UNKNOWN}).media_type == _TYPES[0]
    assert at.ask("SendMessage", message("echo"), Content_Type=_TYPES[0]).media_type == _TYPES[0]
    assert at.ask("GetTask", {"id": UNKNOWN}, Accept="*/*").media_type == _TYPES[0]


@D.line(
    "V1-REST-03", Level.CHOICE, "application/json is accepted, and returned if it was sent or requested", ways=_REST
)
def plain_json_is_mirrored(at: Speaker) -> None:
    sent, listed = at.ask("SendMessage", message("echo"), Content_Type=_TYPES[1]), at.ask("ListTasks", Accept=_TYPES[1])
    refused = at.ask("SendMessage", {}, Content_Type=_TYPES[1])
    assert sent.result["task"]
    assert listed.result["tasks"]
    refused.refuses("InvalidParams")
    assert {reply.media_type for reply in (sent, listed, refused)} == {_TYPES[1]}


@D.line("V1-REST-04", Level.MUST, "objects are bare, except in the response to a send", ways=_REST)
def objects_are_bare(at: Speaker) -> None:
    sent = at.send("echo").json
    assert set(sent) == {"task"}
    id = sent["task"]["id"]
    assert at.ask("GetTask", {"id": id}).json["id"] == id
    assert "tasks" in at.ask("ListTasks").json
    assert at.ask("CancelTask", {"id": at.begin(f"hold {new_name()}")["id"]}).json["status"]


@D.line("V1-REST-05", Level.MUST, "an error has code, status and message; the code is the HTTP status", ways=_REST)
def errors_are_objects(at: Speaker) -> None:
    for reply in a2a_errors(at).values():
        assert set(reply.json) == {"error"}
        assert reply.error["code"] == reply.status
        assert reply.error["status"].isupper()
        assert reply.error["message"]
        assert isinstance(reply.error["details"], list)


@D.line("V1-REST-06", Level.MUST, "the details have reason and domain", ways=_REST)
def details_name_the_reason(at: Speaker) -> None:
    for reply in a2a_errors(at).values():
        assert reply.info["reason"].isupper()
        assert reply.info["domain"] == DOMAIN


@D.line("V1-REST-07", Level.MUST, "errors of the protocol have its statuses", ways=_REST)
def errors_have_their_statuses(at: Speaker) -> None:
    for name, reply in a2a_errors(at).items():
        reply.refuses(name)


@D.line("V1-REST-08", Level.MUST, "events of a stream have no envelope", ways=_REST)
def events_are_bare(at: Speaker) -> None:
    with at.stream("count 2") as stream:
        events = [frame.json for frame in stream.frames()]
    assert len(events) > 2
    assert all(len(event) == 1 and "jsonrpc" not in event for event in events)


@D.line("V1-REST-09", Level.MUST, "a tenant may precede each path", ways=_REST)
def a_tenant_stands_before_the_path(at: Speaker) -> None:
    tenant = f"acme {new_name()}"
    asked = at.request("SendMessage", message("report"))
    prefix = "/" + tenant.replace(" ", "%20")
    task = at.exchange("POST", prefix + asked.path, asked.body, asked.headers).result["task"]
    assert parts_of(task)[0]["data"]["tenant"] == tenant
    got = at.request("GetTask", {"id": task["id"]})
    assert at.exchange("GET", prefix + got.path, b"", got.headers).result["id"] == task["id"]


@D.line("V1-REST-10", Level.CHOICE, "a cancel or subscription may have no body", ways=_REST)
def bodies_may_be_absent(at: Speaker) -> None:
    for body in (b"", b"{}", b"null"):
        gate = new_name()
        id = at.begin(f"hold {gate}")["id"]
        subscribed = at.request("SubscribeToTask", {"id": id})
        with at.opened(subscribed.verb, subscribed.path, body, subscribed.headers) as stream:
            assert next(stream.results())["task"]["id"] == id
        asked = at.request("CancelTask", {"id": id})
        assert state_of(at.exchange("POST", asked.path, body, asked.headers).result) == "CANCELED"


@D.line("V1-REST-11", Level.CHOICE, "unknown paths and wrong verbs are answered with the error format", ways=_REST)
def paths_and_verbs_are_refused(at: Speaker) -> None:
    headers = {"A2A-Version": "1.0"}
    unknown = at.exchange("GET", "/no/such/path/here", b"", headers)
    assert (unknown.status, unknown.error["code"], unknown.error["status"]) == (404, 404, "NOT_FOUND")
    wrong = at.exchange("DELETE", "/tasks", b"", headers)
    assert (wrong.status, wrong.error["code"]) == (405, 405)
    assert "GET" in wrong.headers["Allow"]


@D.line("V1-REST-12", Level.MUST, "a body that is not JSON is an invalid argument", ways=_REST)
def a_body_is_json(at: Speaker) -> None:
    for body in (b"{", b"hello", b"\xff", b'{"message": }'):
        reply = at.exchange("POST", "/message:send", body, at.request("SendMessage").headers)
        assert (reply.status, reply.error["status"]) == (400, "INVALID_ARGUMENT")


# -- queries ------------------------------------------------------------------------------------------------------------


def _query(at: Speaker, query: str) -> Reply:
    return at.exchange("GET", f"/tasks?{query}", b"", {"A2A-Version": "1.0"})


@D.line("V1-QRY-01", Level.MUST, "query names are camelCase", ways=_REST)
def names_in_queries(at: Speaker) -> None:
    context = new_name()
    for _ in range(2):
        at.task("echo", contextId=context)
    page = _query(at, f"contextId={context}&pageSize=1").result
    assert (len(page["tasks"]), page["totalSize"]) == (1, 2)


@D.line("V1-QRY-02", Level.MUST, "flags, enums, numbers, timestamps and encoded text are accepted", ways=_REST)
def values_in_queries(at: Speaker) -> None:
    context = f"a/b c&d=\u00e9+{new_name()}"
    task = at.task("echo", contextId=context)
    encoded = context.encode()
    named = "contextId=" + "".join(f"%{byte:02X}" for byte in encoded)
    moment = task["status"]["timestamp"].replace(":", "%3A")
    for query, number in (
        ("includeArtifacts=true", 1),
        ("includeArtifacts=false", 1),
        ("status=TASK_STATE_COMPLETED", 1),
        ("status=TASK_STATE_WORKING", 0),
        ("historyLength=1&pageSize=100", 1),
        (f"statusTimestampAfter={moment}", 1),
        ("statusTimestampAfter=2040-01-01T00%3A00%3A00%2B02%3A00", 0),
    ):
        tasks = _query(at, f"{named}&{query}").result["tasks"]
        assert len(tasks) == number, query
        assert all(("artifacts" in one) == (query == "includeArtifacts=true") for one in tasks)


@D.line("V1-QRY-03", Level.SDK, "an invalid value is refused", ways=_REST)
def bad_values_in_queries(at: Speaker) -> None:
    for query in ("pageSize=abc", "pageSize=1.5", "status=working", "includeArtifacts=yes", "statusTimestampAfter=now"):
        _query(at, query).refuses("InvalidParams")


@D.line("V1-QRY-04", Level.SDK, "unknown names are ignored", ways=_REST)
def unknown_names_in_queries(at: Speaker) -> None:
    assert "tasks" in _query(at, "foo=1&x-new=&pageSize=1").result
