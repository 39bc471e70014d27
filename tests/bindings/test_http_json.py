import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from a2a_sync import types as t
from a2a_sync.bindings.http_json import (
    ROUTES,
    BareEvents,
    WrongVerbError,
    find,
    read_answer,
    read_event,
    write_error,
    write_request,
    write_result,
)
from a2a_sync.codec import InvalidAnswer, by_version
from a2a_sync.errors import (
    A2AError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    OverloadedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    VersionNotSupportedError,
)
from a2a_sync.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
    GET_PUSH_CONFIG,
    GET_TASK,
    LIST_PUSH_CONFIGS,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
)
from tests.strategies import REQUESTS, RESULTS

V10 = by_version("1.0")
CONFIGS = "/tasks/t/pushNotificationConfigs"


def params(verb, path, query="", body=None):
    """What the server reads."""
    place = find(path)
    return place.params(place.operation(verb), query, body)


def request(verb, path, query="", body=None):
    return V10.load_request(find(path).operation(verb), params(verb, path, query, body))


def written(request, operation):
    return write_request(operation, V10.dump_request(operation, request))


# -- both sides ---------------------------------------------------------------------------------------------------------


def test_every_operation_has_one_row():
    assert sorted(route.operation.name for route in ROUTES) == sorted(OPERATIONS)


def sayable(request):
    """Dots are steps in a path and no ids."""
    return not {"task_id", "id"} & {name for name in ("task_id", "id") if getattr(request, name, "") in (".", "..")}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_operation_s_request_and_answer_survive_build_and_parse(operation):
    @settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
    @given(REQUESTS[operation.request].filter(sayable), RESULTS[operation.name])
    def survives(sent, answered):
        if operation is CREATE_PUSH_CONFIG and not sent.task_id:
            return
        verb, path, query, body = written(sent, operation)
        assert path.isascii()
        assert query.isascii()
        place = find(path)
        assert place.operation(verb) is operation
        assert V10.load_request(operation, place.params(operation, query, body)) == sent

        answer = write_result(V10.dump_result(operation, answered))
        assert V10.load_result(operation, read_answer(answer, 200, V10)) == answered

    survives()


@given(st.sampled_from(A2AError.__subclasses__()), st.text(min_size=1))
@example(TaskNotFoundError, "\ud800")
def test_every_error_survives_build_and_parse(cls, message):
    body = write_error(cls(message, metadata={"taskId": "t"}), V10)
    told = json.loads(body)["error"]
    assert (told["code"], told["status"]) == (cls.http_status, cls.status)
    with pytest.raises(cls) as caught:
        read_answer(body, cls.http_status, V10)
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
        assert find(path).operation(verb) is operation
        assert request(verb, path, body=body) == cls(id=id, tenant="é/x")


@pytest.mark.parametrize("tenant", ["tasks", ".", ".."])
def test_a_tenant_that_cannot_stand_in_front_goes_elsewhere(tenant):
    got = written(t.GetTaskRequest(id="t", tenant=tenant), GET_TASK)
    assert (got.path, got.query) == ("/tasks/t", f"tenant={tenant}")
    sent = written(t.CancelTaskRequest(id="t", tenant=tenant), CANCEL_TASK)
    assert (sent.path, json.loads(sent.body)) == ("/tasks/t:cancel", {"tenant": tenant})


# -- server: paths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "path", "operation", "members"),
    [
        ("POST", "/message:send", SEND_MESSAGE, {}),
        ("POST", "/message:stream", SEND_STREAMING_MESSAGE, {}),
        ("GET", "/tasks", LIST_TASKS, {}),
        ("GET", "/tasks/t", GET_TASK, {"id": "t"}),
        ("HEAD", "/tasks/t", GET_TASK, {"id": "t"}),
        ("GET", "/tasks/a:b", GET_TASK, {"id": "a:b"}),
        ("GET", "/tasks/a:cancelled", GET_TASK, {"id": "a:cancelled"}),
        ("GET", "/tasks/:cancel", GET_TASK, {"id": ":cancel"}),
        ("GET", "/tasks/a%3Acancel", GET_TASK, {"id": "a:cancel"}),
        ("GET", "/tasks/a%2Fb", GET_TASK, {"id": "a/b"}),
        ("POST", "/tasks/t:cancel", CANCEL_TASK, {"id": "t"}),
        ("POST", "/tasks/a:b:cancel", CANCEL_TASK, {"id": "a:b"}),
        ("POST", "/tasks/a:cancel:cancel", CANCEL_TASK, {"id": "a:cancel"}),
        ("POST", "/tasks/t:subscribe", SUBSCRIBE_TO_TASK, {"id": "t"}),
        ("GET", "/tasks/t:subscribe", SUBSCRIBE_TO_TASK, {"id": "t"}),
        ("POST", CONFIGS, CREATE_PUSH_CONFIG, {"taskId": "t"}),
        ("GET", CONFIGS, LIST_PUSH_CONFIGS, {"taskId": "t"}),
        ("GET", CONFIGS + "/c", GET_PUSH_CONFIG, {"taskId": "t", "id": "c"}),
        ("DELETE", CONFIGS + "/c", DELETE_PUSH_CONFIG, {"taskId": "t", "id": "c"}),
        ("GET", "/extendedAgentCard", GET_EXTENDED_CARD, {}),
    ],
)
def test_a_path_names_its_operation_with_and_without_a_tenant(verb, path, operation, members):
    for prefix, tenant in (("", {}), ("/acme%20x", {"tenant": "acme x"})):
        place = find(prefix + path)
        assert place.operation(verb) is operation
        assert place.members == {**tenant, **members}


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "//",
        "/tasks/",
        "/tasks//pushNotificationConfigs",
        "//tasks",
        "/message",
        "/message:",
        "/message:sent",
        "/Message:send",
        "/message:send/",
        "/tasks/t/history",
        CONFIGS + "/",
        CONFIGS + "/c/d",
        "/a/b/tasks",
        "/acme/message%2Fsend",
        "tasks",
    ],
)
def test_other_paths_are_none_of_the_protocol(path):
    assert find(path) is None


@pytest.mark.parametrize(
    ("path", "verb", "allowed"),
    [
        ("/message:send", "GET", "POST, OPTIONS"),
        ("/tasks", "POST", "GET, HEAD, OPTIONS"),
        ("/tasks/t", "DELETE", "GET, HEAD, OPTIONS"),
        ("/tasks/t:cancel", "GET", "POST, OPTIONS"),
        ("/tasks/t:subscribe", "HEAD", "POST, GET, OPTIONS"),
        (CONFIGS, "PUT", "POST, GET, HEAD, OPTIONS"),
        (CONFIGS + "/c", "POST", "GET, DELETE, HEAD, OPTIONS"),
    ],
)
def test_another_verb_is_told_which_there_are(path, verb, allowed):
    with pytest.raises(WrongVerbError) as caught:
        find(path).operation(verb)
    assert (caught.value.http_status, caught.value.allowed) == (405, allowed)


def test_a_path_that_is_not_utf_8_names_its_member():
    with pytest.raises(InvalidParamsError) as caught:
        find("/tasks/%ff")
    assert caught.value.violations[0].field == "id"


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
    told = 200
    try:
        place = find("/" + "/".join(segments))
        if place is not None:
            operation = place.operation(verb)
            V10.load_request(operation, place.params(operation, query, body))
    except A2AError as error:
        told = json.loads(write_error(error, V10))["error"]["code"]
    assert told in (200, 400, 405)


def test_the_events_of_a_stream_have_no_envelope_and_its_errors_a_name():
    assert BareEvents().wrap(b'{"task":{}}') == b'{"task":{}}'
    told = BareEvents().wrap_error(InternalError(), V10).decode()
    with pytest.raises(InternalError):
        read_event(told, BareEvents.error_event, V10)


# -- client -------------------------------------------------------------------------------------------------------------


def test_queries_are_written_as_the_protocol_has_them():
    query = written(
        t.ListTasksRequest(status=t.TaskState.WORKING, include_artifacts=False, context_id="a b&c"), LIST_TASKS
    )
    assert query == ("GET", "/tasks", "contextId=a%20b%26c&status=TASK_STATE_WORKING&includeArtifacts=false", None)


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_that_no_path_can_hold_is_refused_before_it_is_sent(id):
    with pytest.raises(InvalidParamsError):
        written(t.GetTaskRequest(id=id), GET_TASK)


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, InvalidParamsError),
        (404, TaskNotFoundError),
        (409, TaskNotCancelableError),
        (429, OverloadedError),
        (500, InternalError),
        (502, InvalidAgentResponseError),
        (418, A2AError),
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
def test_what_is_no_error_of_the_protocol_is_told_from_one(body):
    with pytest.raises(InvalidAnswer):
        read_answer(body, 404, V10)


def test_an_answer_without_a_body_is_a_result_too():
    assert read_answer(b"", 204, V10) is None
    assert read_answer(b"{}", 200, V10) == {}
