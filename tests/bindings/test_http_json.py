import contextlib
import dataclasses
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.bindings.http_json import (
    BareEvents,
    read_answer,
    read_event,
    read_params,
    write_error,
    write_request,
    write_result,
)
from a2a_sync.bindings.routes import Paths
from a2a_sync.codec import DecodeError, by_version
from a2a_sync.codec.v03 import METHODS
from a2a_sync.errors import (
    AgentError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    OverloadedError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a_sync.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
    GET_TASK,
    LIST_TASKS,
    OPERATIONS,
    SUBSCRIBE_TO_TASK,
)
from tests import wire_examples
from tests.strategies import REQUESTS, RESULTS
from tests.v03_loss import after_v03, has_compat_wrapper

V10 = by_version("1.0")
V03 = by_version("0.3", "HTTP+JSON")
PATHS = Paths(("1.0", "0.3"))
OLD_CARD = c.AgentCard(
    name="n",
    description="d",
    version="1",
    supported_interfaces=(
        c.AgentInterface(url="https://x.test", protocol_binding="HTTP+JSON", protocol_version="0.3"),
    ),
)
CONFIGS = "/tasks/t/pushNotificationConfigs"


def params(verb, path, query="", body=None):
    """What the server reads."""
    place = PATHS.find(path)
    return read_params(place, place.operation(verb), query, body)


def request(verb, path, query="", body=None):
    return V10.load_request(PATHS.find(path).operation(verb), params(verb, path, query, body))


def written(request, operation, codec=V10):
    return write_request(operation, codec.dump_request(operation, request), codec.version)


# -- both sides ---------------------------------------------------------------------------------------------------------


def sayable(request):
    """Dots are steps in a path and no ids."""
    return not {"task_id", "id"} & {name for name in ("task_id", "id") if getattr(request, name, "") in (".", "..")}


@pytest.mark.parametrize("codec", [V10, V03], ids=lambda codec: codec.version)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_operation_s_request_and_answer_survive_build_and_parse(operation, codec):
    if codec is V03 and operation not in METHODS:
        return

    @settings(max_examples=settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
    @given(REQUESTS[operation.request].filter(sayable), RESULTS[operation.name])
    def survives(sent, answered):
        if operation is CREATE_PUSH_CONFIG and not sent.task_id:
            return
        if codec is V03:
            if has_compat_wrapper((sent, answered)):
                return
            sent, answered = after_v03(sent, proto=True), after_v03(answered, proto=True)
            if operation is CREATE_PUSH_CONFIG:
                sent = dataclasses.replace(sent, id=sent.id or sent.task_id)
            if operation is GET_EXTENDED_CARD:
                answered = OLD_CARD
        verb, path, query, body = written(sent, operation, codec)
        assert path.isascii()
        assert query.isascii()
        place = PATHS.find(path)
        assert (place.operation(verb), place.version) == (operation, codec.version)
        assert codec.load_request(operation, read_params(place, operation, query, body)) == sent

        answer = write_result(codec.dump_result(operation, answered))
        assert codec.load_result(operation, read_answer(answer, 200, codec)) == answered

    survives()


@pytest.mark.parametrize("codec", [V10, V03], ids=lambda codec: codec.version)
@given(st.sampled_from(AgentError.__subclasses__()), st.text(min_size=1))
@example(TaskNotFoundError, "\ud800")
def test_every_error_survives_build_and_parse(codec, cls, message):
    body = write_error(cls(message, metadata={"taskId": "t"}), codec)
    written = json.loads(body)
    assert (written["error"]["code"], written["error"]["status"]) == (cls.http_status, cls.grpc_status)
    if codec is V03:
        assert written["message"] == written["error"]["message"]
        assert (written["type"], written["code"]) == (cls.__name__, codec.dump_error(cls("x"))["code"])
    with pytest.raises(cls if message != "\ud800" else AgentError) as caught:
        read_answer(body, cls.http_status, codec)
    if message != "\ud800":
        assert (caught.value.message, caught.value.metadata) == (message, {"taskId": "t"})


@pytest.mark.parametrize(
    "id", ["a/b", "a b", "a?b#c", "x:cancel", "a:b:subscribe", ":", "%2F", "é", "+", "tasks", "\0"]
)
def test_an_id_of_any_letters_comes_through(id):
    for operation, cls in (
        (GET_TASK, t.GetTaskRequest),
        (CANCEL_TASK, t.CancelTaskRequest),
        (SUBSCRIBE_TO_TASK, t.SubscribeToTaskRequest),
    ):
        verb, path, _, body = written(cls(id=id, tenant="é/x"), operation)
        assert PATHS.find(path).operation(verb) is operation
        assert request(verb, path, body=body) == cls(id=id, tenant="é/x")


def test_a_tenant_that_cannot_stand_in_front_goes_elsewhere():
    got = written(t.GetTaskRequest(id="t", tenant="tasks"), GET_TASK)
    assert (got.path, got.query) == ("/tasks/t", "tenant=tasks")
    sent = written(t.CancelTaskRequest(id="t", tenant="v1"), CANCEL_TASK)
    assert (sent.path, json.loads(sent.body)) == ("/tasks/t:cancel", {"tenant": "v1"})


# -- server: queries ----------------------------------------------------------------------------------------------------


def test_a_query_says_every_filter():
    query = (
        "contextId=a%20b&status=TASK_STATE_WORKING&pageSize=7&pageToken=x%3D&historyLength=0"
        "&statusTimestampAfter=2025-11-09T10%3A30%3A00.000Z&includeArtifacts=true&tenant=acme"
    )
    got = request("GET", "/tasks", query)
    assert (got.context_id, got.status, got.page_size, got.page_token) == ("a b", t.TaskState.WORKING, 7, "x=")
    assert (got.history_length, got.include_artifacts, got.tenant) == (0, True, "acme")
    assert got.status_timestamp_after.isoformat() == "2025-11-09T10:30:00+00:00"


def test_the_proto_s_own_names_and_numbers_are_read_too():
    got = request("GET", "/tasks", "context_id=c&status=2&page_size=3&include_artifacts=false&history_length=1")
    assert (got.context_id, got.status, got.page_size) == ("c", t.TaskState.WORKING, 3)
    assert (got.include_artifacts, got.history_length) == (False, 1)


def test_what_is_empty_or_unknown_says_nothing():
    query = "contextId=&pageSize=&status=&includeArtifacts=&x=1&x=2&A2A-Version=1.0&metadata=x&"
    assert request("GET", "/tasks", query) == t.ListTasksRequest()


@pytest.mark.parametrize(
    ("query", "member"),
    [
        ("pageSize=ten", "pageSize"),
        ("page_size=1.5", "pageSize"),
        ("pageSize=99999999999", "pageSize"),
        ("historyLength=0x1", "historyLength"),
        ("includeArtifacts=yes", "includeArtifacts"),
        ("includeArtifacts=True", "includeArtifacts"),
        ("status=WORKING", "status"),
        ("status=99", "status"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
        ("pageSize=1&pageSize=2", "pageSize"),
        ("contextId=a&context_id=b", "contextId"),
        ("contextId=%ff", "query"),
    ],
)
def test_a_bad_value_names_its_parameter(query, member):
    with pytest.raises(InvalidParamsError) as caught:
        request("GET", "/tasks", query)
    assert caught.value.violations[0].field == member


# -- server: bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b" \r\n"])
@pytest.mark.parametrize("word", ["cancel", "subscribe"])
def test_a_path_can_say_it_all(word, body):
    assert params("POST", f"/tasks/t:{word}", "", body) == {"id": "t"}


def test_the_path_stands_over_the_body_and_the_body_over_the_query():
    body = b'{"taskId": "other", "task_id": "third", "tenant": "b", "url": "https://x.test"}'
    assert params("POST", CONFIGS, "tenant=q", body) == {"tenant": "b", "url": "https://x.test", "taskId": "t"}
    assert params("POST", "/a" + CONFIGS, "", body)["tenant"] == "a"
    assert params("GET", "/a/tasks/t", "id=other&tenant=q") == {"tenant": "a", "id": "t"}


def test_beside_a_body_a_query_says_the_tenant_and_nothing_else():
    assert params("POST", CONFIGS, "tenant=q&url=https%3A%2F%2Fx.test&id=7", b"{}") == {"tenant": "q", "taskId": "t"}


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[" * 9999])
def test_what_is_not_json_is_a_parse_error(body):
    with pytest.raises(JSONParseError):
        params("POST", "/message:send", "", body)


@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"true"])
def test_a_body_that_is_no_object_is_an_invalid_request(body):
    with pytest.raises(InvalidRequestError):
        params("POST", "/message:send", "", body)


@given(
    st.sampled_from(["GET", "POST", "DELETE", "HEAD"]),
    st.lists(st.sampled_from(["tasks", "t", "message:send", ":", "%", "%ff", "%zz", "x:cancel", "", "é"]), max_size=5),
    st.text("abcpageSize=&%;1+_é", max_size=20),
    st.none() | st.binary(max_size=10),
)
def test_nothing_but_an_error_of_the_protocol_comes_of_anything(verb, segments, query, body):
    written = 200
    try:
        place = PATHS.find("/" + "/".join(segments))
        if place is not None:
            operation = place.operation(verb)
            V10.load_request(operation, read_params(place, operation, query, body))
    except AgentError as error:
        written = json.loads(write_error(error, V10))["error"]["code"]
    assert written in (200, 400, 405)


def test_the_events_of_a_stream_have_no_envelope_and_its_errors_a_name():
    assert BareEvents().wrap(b'{"task":{}}') == b'{"task":{}}'
    written = BareEvents().wrap_error(InternalError(), V10).decode()
    with pytest.raises(InternalError):
        read_event(written, BareEvents.error_event, V10)


# -- client -------------------------------------------------------------------------------------------------------------


def test_queries_are_written_as_the_protocol_has_them():
    query = written(
        t.ListTasksRequest(status=t.TaskState.WORKING, include_artifacts=False, context_id="a b&c"), LIST_TASKS
    )
    assert query == ("GET", "/tasks", "contextId=a%20b%26c&status=TASK_STATE_WORKING&includeArtifacts=false", None)


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, InvalidParamsError),
        (404, TaskNotFoundError),
        (409, TaskNotCancelableError),
        (429, OverloadedError),
        (500, InternalError),
        (502, InvalidAgentResponseError),
        (418, AgentError),
    ],
)
def test_an_error_without_a_reason_is_known_by_its_status(status, cls):
    body = json.dumps({"error": {"code": status, "status": "X", "message": "no"}}).encode()
    with pytest.raises(cls, match="no"):
        read_answer(body, status, V10)


def test_the_reason_of_an_error_stands_over_its_status():
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "VERSION_NOT_SUPPORTED"}
    body = json.dumps({"error": {"code": 404, "message": "no", "details": [detail]}}).encode()
    with pytest.raises(VersionNotSupportedError):
        read_answer(body, 400, V10)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b"[]", b'{"error": "nope"}', b'{"error": {"code": 404, "message": "no page"}}']
)
def test_other_errors_are_distinguished_from_errors_of_the_protocol(body):
    with pytest.raises(DecodeError):
        read_answer(body, 404, V10)


def test_an_answer_without_a_body_is_a_result_too():
    assert read_answer(b"", 204, V10) is None
    assert read_answer(b"{}", 200, V10) == {}


# -- client: errors of servers of 0.3 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "cls"),
    [
        ({"message": "Task not found"}, 404, TaskNotFoundError),
        ({"message": "no"}, 409, TaskNotCancelableError),
        ({"message": "no"}, 415, ContentTypeNotSupportedError),
        ({"message": "no"}, 422, InvalidParamsError),
        ({"message": "unknown exception"}, 500, InternalError),
        ({"message": "no"}, 501, UnsupportedOperationError),
        ({"code": -32002, "message": "no"}, 500, TaskNotCancelableError),
        ({"code": -32003, "message": "no", "data": None}, 502, PushNotificationNotSupportedError),
        (
            {"code": -32001, "message": "m", "error": {"code": 400, "status": "X", "message": "no"}},
            400,
            TaskNotFoundError,
        ),
        ({"error": {"code": 404, "status": "NOT_FOUND", "message": "no"}}, 404, TaskNotFoundError),
    ],
)
def test_an_error_is_known_in_every_form_that_servers_of_0_3_give_it(body, status, cls):
    with pytest.raises(cls) as caught:
        read_answer(json.dumps(body).encode(), status, V03)
    assert type(caught.value) is cls
    assert caught.value.message in ("no", "Task not found", "unknown exception")
    if "error" not in body:
        with pytest.raises(DecodeError):
            read_answer(json.dumps(body).encode(), status, V10)


def test_a_reason_stands_over_a_code_and_a_code_over_a_status():
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "VERSION_NOT_SUPPORTED"}
    body = {"code": -32001, "message": "no", "error": {"code": 409, "message": "no", "details": [detail]}}
    with pytest.raises(VersionNotSupportedError):
        read_answer(json.dumps(body).encode(), 409, V03)
    detail["reason"] = "NEWS"
    with pytest.raises(TaskNotFoundError) as caught:
        read_answer(json.dumps(body).encode(), 409, V03)
    assert caught.value.reason == "NEWS"


@pytest.mark.parametrize("status", [429, 502, 503, 504, 403])
def test_a_message_alone_may_be_a_proxy_s(status):
    with pytest.raises(DecodeError):
        read_answer(b'{"message": "no Route matched with those values"}', status, V03)


# -- the protocol's examples --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", wire_examples.entries("http-error"), ids=lambda entry: entry["file"])
def test_an_example_s_error_goes_through_its_class_and_back(entry):
    value = wire_examples.content(entry)
    with pytest.raises(AgentError) as caught:
        read_answer(json.dumps(value).encode(), entry["httpStatus"], V10)
    error = caught.value
    assert type(error) is not AgentError
    assert (error.http_status, error.message) == (entry["httpStatus"], value["error"]["message"])
    written = json.loads(write_error(error, V10))["error"]
    # Not all of them have an ErrorInfo; ours do.
    assert (written["code"], written["status"]) == (value["error"]["code"], value["error"]["status"])
    assert all(detail in written["details"] for detail in value["error"].get("details", ()))


@pytest.mark.parametrize(
    ("version", "exchange"),
    [
        (version, exchange)
        for version in ("1.0", "0.3")
        for entry in wire_examples.entries("http-exchanges", version=version)
        for exchange in wire_examples.content(entry)
    ],
    ids=lambda one: one if isinstance(one, str) else one["name"],
)
def test_an_example_s_exchange_is_understood(version, exchange):
    codec = by_version(version, "HTTP+JSON")
    asked, answered = exchange["request"], exchange["response"]
    path, _, query = asked["path"].partition("?")
    place = PATHS.find(path)
    operation = place.operation(asked["method"])
    assert place.version == version
    body = asked.get("body")
    sent = None if asked["method"] != "POST" else b"" if body is None else json.dumps(body).encode()
    request = codec.load_request(operation, read_params(place, operation, query, sent))
    assert written(request, operation, codec).path == path
    for event in answered.get("sse", []):
        codec.load_event(read_event(json.dumps(event), "", codec))
    if "sse" not in answered:
        answer = json.dumps(answered["body"]).encode() if "body" in answered else b""
        refused = pytest.raises(TaskNotFoundError) if answered["status"] == 404 else contextlib.nullcontext()
        with refused:
            codec.load_result(operation, read_answer(answer, answered["status"], codec))
