import contextlib
import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.bindings.jsonrpc import read_response, write_result
from a2a_sync.codec import DecodeError, by_method, by_version
from a2a_sync.codec.base import has_long_texts
from a2a_sync.codec.v10 import KINDS
from a2a_sync.errors import (
    AgentError,
    FieldViolation,
    InvalidParamsError,
    MethodNotFoundError,
    OverloadedError,
    TaskNotFoundError,
    VersionNotSupportedError,
)
from a2a_sync.jsontext import LONG_TEXT, dumps, loads
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import (
    DELETE_PUSH_CONFIG,
    GET_TASK,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    StreamItem,
)
from tests import wire_examples
from tests.strategies import EVENTS, EVERY_TYPE, REQUESTS, RESULTS

V10 = by_version("1.0")
TOLERATED = {"v1-jsonrpc-send-message-request-snake-case.json", "v1-jsonrpc-send-message-request-lenient.json"}
EXACT = [example for example in wire_examples.payloads() if example.name not in TOLERATED]
HELLO = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}


def said(cls, obj):
    """The JSON of `obj` where `cls` is asked for: the two oneofs around plain objects have no object of their own."""
    if cls in (t.StreamResponse, t.SendMessageResponse):
        return V10.dump_event(obj)
    return V10.dump(obj)


def refused(cls, value):
    with pytest.raises(InvalidParamsError) as caught:
        V10.load(cls, value)
    assert len(caught.value.violations) == 1
    field, description = caught.value.violations[0]
    assert caught.value.message == f"{field}: {description}"
    return caught.value.message


# -- the specification's examples ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXACT, ids=lambda example: example.name)
def test_an_example_goes_through_the_dataclasses_and_back(example):
    cls = wire_examples.type_named(example.type)
    obj = V10.load(cls, example.value)
    assert wire_examples.canonical(said(cls, obj)) == wire_examples.canonical(example.value)
    assert V10.load(cls, said(cls, obj)) == obj


def test_all_the_examples_are_there():
    assert len(EXACT) == 112
    assert {example.type for example in EXACT} >= {"Task", "AgentCard", "StreamResponse", "SecurityScheme"}


def test_the_proto_s_own_names_are_read():
    value = wire_examples.content({"file": "v1-jsonrpc-send-message-request-snake-case.json"})["params"]
    request = V10.load_request(SEND_MESSAGE, value)
    assert request.message.message_id == "m-9"
    assert request.message.context_id == "c0a8012e-1111-4c5d-8e9f-7a6b5c4d3e2f"
    assert request.message.parts == (t.TextPart("hi", media_type="text/plain"),)
    assert request.configuration == t.SendMessageConfiguration(return_immediately=True, history_length=0)


def test_nulls_numeric_enums_and_numbers_in_strings_are_read():
    value = wire_examples.content({"file": "v1-jsonrpc-send-message-request-lenient.json"})["params"]
    request = V10.load_request(SEND_MESSAGE, value)
    assert request.message == t.Message(role=t.Role.USER, parts=(t.TextPart("hi"),), message_id="m-10")
    assert request.configuration.history_length == 3


@pytest.mark.parametrize("entry", wire_examples.entries("card-canonicalization"), ids=lambda entry: entry["file"])
def test_a_card_is_written_with_exactly_the_members_that_a_signature_covers(entry):
    document = wire_examples.content(entry)
    written = V10.dump(V10.load(c.AgentCard, document["card"], strict=False))
    assert json.dumps(written, sort_keys=True, separators=(",", ":")) == document["canonicalPerSpec"]


# -- the whole model ----------------------------------------------------------------------------------------------------


def name_of(cls):
    return getattr(cls, "__name__", str(cls))


@pytest.mark.parametrize("cls", EVERY_TYPE, ids=name_of)
def test_every_object_survives_the_wire(cls):
    @settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
    @given(EVERY_TYPE[cls])
    def survives(obj):
        text = dumps(V10.dump(obj))
        assert V10.load(cls, loads(text)) == obj
        assert V10.load(type(obj), loads(text), strict=False) == obj

    survives()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS)
def test_every_event_survives_the_wire(sent):
    item = StreamItem(sent, 1)
    assert V10.load_event(loads(V10.encode_item(item))) == sent
    assert V10.load_event(V10.dump_event(sent)) == sent


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_operation_s_request_and_result_survive(operation):
    @settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
    @given(REQUESTS[operation.request], RESULTS[operation.name])
    def survives(request, result):
        assert V10.load_request(operation, loads(dumps(V10.dump_request(operation, request)))) == request
        assert V10.load_result(operation, loads(dumps(V10.dump_result(operation, result)))) == result
        assert V10.operations[V10.method(operation)] is operation

    survives()


def test_every_dataclass_of_the_model_can_be_said():
    known = {cls for cls in KINDS if isinstance(cls, type)}
    for module in (t, c):
        public = [cls for name, cls in vars(module).items() if not name.startswith("_")]
        model = {cls for cls in public if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__}
        assert not model - known


#: Members for what only protocol 0.3 has.
OF_0_3 = {
    t.AuthenticationInfo: {"other_schemes"},
    t.TaskStatusUpdateEvent: {"final"},
    c.AgentCapabilities: {"state_transition_history"},
}


def test_every_member_of_every_dataclass_is_written_and_read():
    for cls, kind in KINDS.items():
        if isinstance(cls, type) and getattr(kind, "cls", None) is cls:
            described = {member.attribute for member in kind.members}
            assert described == {field.name for field in dataclasses.fields(cls)} - OF_0_3.get(cls, set()), cls


# -- what is written (spec 5.5, 5.6) ------------------------------------------------------------------------------------


def test_unset_members_are_left_out_and_explicit_ones_kept():
    assert V10.dump(t.GetTaskRequest(id="t")) == {"id": "t"}
    assert V10.dump(t.GetTaskRequest(id="t", history_length=0)) == {"id": "t", "historyLength": 0}
    assert V10.dump(t.ListTasksRequest()) == {}
    assert V10.dump(t.ListTasksRequest(include_artifacts=False)) == {"includeArtifacts": False}
    assert V10.dump(c.AgentCapabilities(streaming=False)) == {"streaming": False}
    assert V10.dump(t.SendMessageConfiguration(return_immediately=False)) == {}


def test_a_page_of_tasks_always_has_all_four_members():
    assert V10.dump_result(LIST_TASKS, t.ListTasksResponse()) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 0,
        "totalSize": 0,
    }


def test_a_task_without_artifacts_has_no_artifacts_key():
    task = V10.dump(t.Task(id="t", status=t.TaskStatus(state=t.TaskState.WORKING)))
    assert task == {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}


def test_an_unspecified_state_or_role_is_never_written():
    assert V10.dump(t.TaskStatus(state=t.TaskState.UNSPECIFIED)) == {}
    assert V10.dump(t.ListTasksRequest(status=t.TaskState.UNSPECIFIED)) == {}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (t.TextPart(""), {"text": ""}),
        (t.DataPart(None), {"data": None}),
        (t.DataPart(0), {"data": 0}),
        (t.DataPart({}), {"data": {}}),
        (t.FilePart(raw=b""), {"raw": ""}),
        (t.FilePart(raw=b"\xfb\xff\xbf"), {"raw": "+/+/"}),
        (t.FilePart(raw=b"a", media_type="text/plain"), {"raw": "YQ==", "mediaType": "text/plain"}),
        (t.FilePart(url="https://x.example/a", filename="a"), {"url": "https://x.example/a", "filename": "a"}),
    ],
)
def test_a_part_s_content_is_written_however_empty_it_is(part, value):
    assert V10.dump(part) == value
    assert V10.load(t.Part, value) == part


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2025, 11, 9, 10, 30, tzinfo=UTC), "2025-11-09T10:30:00.000Z"),
        (datetime(2025, 11, 9, 10, 30, 0, 7000, tzinfo=UTC), "2025-11-09T10:30:00.007Z"),
        (datetime(2025, 11, 9, 10, 30, 0, 7001, tzinfo=UTC), "2025-11-09T10:30:00.007001Z"),
        (datetime(2025, 11, 9, 10, 30, tzinfo=timezone(timedelta(hours=2))), "2025-11-09T08:30:00.000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_moments_are_written_in_utc_with_milliseconds(moment, text):
    assert V10.dump(t.TaskStatus(state=t.TaskState.WORKING, timestamp=moment))["timestamp"] == text


def test_a_moment_without_a_time_zone_is_not_written():
    with pytest.raises(ValueError, match="time zone"):
        V10.dump(t.TaskStatus(state=t.TaskState.WORKING, timestamp=datetime(2025, 1, 1)))


def test_every_state_and_role_has_the_proto_s_name_and_number():
    in_order = (
        "SUBMITTED",
        "WORKING",
        "COMPLETED",
        "FAILED",
        "CANCELED",
        "INPUT_REQUIRED",
        "REJECTED",
        "AUTH_REQUIRED",
    )
    for number, name in enumerate(("UNSPECIFIED", *in_order)):
        assert V10.load(t.ListTasksRequest, {"status": f"TASK_STATE_{name}"}).status is t.TaskState[name]
        assert V10.load(t.ListTasksRequest, {"status": number}).status is t.TaskState[name]
    for number, role in [(1, t.Role.USER), (2, t.Role.AGENT)]:
        assert V10.load(t.Message, {**HELLO, "role": number}).role is role
        assert V10.dump(t.Message(role=role, parts=()))["role"] == f"ROLE_{role.name}"


def test_an_event_is_encoded_once_per_version():
    entry = Entry(
        3, t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=t.TaskStatus(state=t.TaskState.WORKING))
    )
    first = V10.encode_item(entry)
    assert loads(first) == {
        "statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    }
    assert V10.encode_item(entry) is first
    assert V10.encode_item(StreamItem(entry.event, 3, entry.encoded)) is first


def test_whatever_an_event_can_hold_fits_into_every_answer():
    data = []
    for _ in range(107):
        data = [data]
    message = t.Message(role=t.Role.AGENT, parts=(t.DataPart(data),))
    assert V10.encode_item(StreamItem(message))
    status = t.TaskStatus(state=t.TaskState.FAILED, message=message)
    page = t.ListTasksResponse(tasks=(t.Task(id="t", status=status, history=(message,)),))
    answer = write_result(1, V10.dump_result(LIST_TASKS, page))
    assert V10.load_result(LIST_TASKS, read_response(answer, V10)) == page
    with pytest.raises(ValueError, match="deeper than 112"):
        V10.encode_item(StreamItem(dataclasses.replace(message, parts=(t.DataPart([data]),))))


def test_security_schemes_are_written_under_the_key_of_their_kind():
    assert V10.dump(c.MutualTlsSecurityScheme()) == {"mtlsSecurityScheme": {}}
    assert V10.dump(c.SecurityRequirement(schemes={"a": ("x",), "b": ()})) == {
        "schemes": {"a": {"list": ["x"]}, "b": {}}
    }


# -- what is read (spec 5.7) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-09T10:30:00Z", datetime(2025, 11, 9, 10, 30, tzinfo=UTC)),
        ("2025-11-09T10:30:00.5Z", datetime(2025, 11, 9, 10, 30, 0, 500000, tzinfo=UTC)),
        ("2025-11-09T10:30:00.123456789Z", datetime(2025, 11, 9, 10, 30, 0, 123456, tzinfo=UTC)),
        ("2025-11-09T10:30:00+02:00", datetime(2025, 11, 9, 8, 30, tzinfo=UTC)),
        ("2025-11-09T10:30:00.250-05:30", datetime(2025, 11, 9, 16, 0, 0, 250000, tzinfo=UTC)),
    ],
)
def test_a_moment_of_any_offset_and_precision_is_read_as_utc(text, moment):
    loaded = V10.load(t.ListTasksRequest, {"statusTimestampAfter": text}).status_timestamp_after
    assert loaded == moment
    assert loaded.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-09",
        "2025-11-09T10:30:00",
        "2025-11-09t10:30:00Z",
        "2025-11-09T10:30:00z",
        "2025-11-09 10:30:00Z",
        "2025-11-09T10:30Z",
        "2025-11-09T10:30:00.1234567891Z",
        "2025-11-09T10:30:00.Z",
        "2025-11-09T24:00:00Z",
        "2025-11-09T10:30:60Z",
        "2025-02-30T10:30:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "2025-11-09T10:30:00Z\n",
        "\uff12\uff10\uff12\uff15-11-09T10:30:00Z",
        1762684200,
        True,
        {},
    ],
)
def test_what_is_no_moment_is_refused(text):
    assert refused(t.ListTasksRequest, {"statusTimestampAfter": text}).startswith("statusTimestampAfter: ")


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), ("5", 5), (5.0, 5), (1e2, 100), ("-3", -3), (-(2**31), -(2**31))]
)
def test_the_forms_of_an_integer_are_read(value, number):
    assert V10.load(t.GetTaskRequest, {"id": "t", "historyLength": value}).history_length == number


@pytest.mark.parametrize(
    "value", [5.5, True, False, "", "5.0", " 5", "five", "\u0665", 2**31, "99999999999", 1e300, [], {}]
)
def test_what_is_no_32_bit_integer_is_refused(value):
    assert refused(t.GetTaskRequest, {"id": "t", "historyLength": value}).startswith("historyLength: ")


@pytest.mark.parametrize(
    ("text", "raw"),
    [("YQ==", b"a"), ("YQ", b"a"), ("YQ=", b"a"), ("-_-_", b"\xfb\xff\xbf"), ("+/+/", b"\xfb\xff\xbf"), ("", b"")],
)
def test_base64_of_both_alphabets_with_or_without_padding_is_read(text, raw):
    assert V10.load(t.Part, {"raw": text}) == t.FilePart(raw=raw)


@pytest.mark.parametrize("text", ["a", "YQ==x", "Y Q=", "Y\nQ=", "====", "é===", "YQ===="])
def test_what_is_not_base64_is_refused(text):
    assert refused(t.Part, {"raw": text}) == "raw: is not base64"


def test_null_is_not_set_but_for_data():
    assert (
        V10.load(t.ListTasksRequest, dict.fromkeys(("contextId", "status", "pageSize", "tenant")))
        == t.ListTasksRequest()
    )
    assert V10.load(t.Part, {"data": None}) == t.DataPart(None)
    assert V10.load(t.Part, {"data": None, "text": "x"}) == t.TextPart("x")
    assert V10.load(t.Part, {"data": None, "text": None, "metadata": None}) == t.DataPart(None)
    assert V10.load(t.Message, {**HELLO, "metadata": {"k": None}}).metadata == {"k": None}


def test_unknown_members_are_passed_over():
    assert V10.load(t.GetTaskRequest, {"id": "t", "newMember": {"a": 1}}) == t.GetTaskRequest(id="t")
    assert V10.load(t.Part, {"text": "x", "kind": "text"}) == t.TextPart("x")


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (t.SendMessageRequest, {}, "message: is required"),
        (t.SendMessageRequest, {"message": None}, "message: is required"),
        (t.SendMessageRequest, {"message": []}, "message: expected an object, got an array"),
        (t.SendMessageRequest, {"message": {**HELLO, "messageId": ""}}, "message.messageId: is required"),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "message_id": 5}},
            "message.messageId: expected a string, got a number",
        ),
        (t.SendMessageRequest, {"message": {**HELLO, "role": 0}}, "message.role: is required"),
        (t.SendMessageRequest, {"message": {**HELLO, "parts": []}}, "message.parts: at least one is required"),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [None]}},
            "message.parts[0]: expected an object, got null",
        ),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [{"text": "a"}, {"text": 5}]}},
            "message.parts[1].text: expected a string, got a number",
        ),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [{"text": "a", "url": "b"}]}},
            "message.parts[0]: has both text and url; a part has one content",
        ),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [{"filename": "a"}]}},
            "message.parts[0]: needs one of text, raw, url, data",
        ),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [{"text": "a", "metadata": 1}]}},
            "message.parts[0].metadata: expected an object, got a number",
        ),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "extensions": ["a", None]}},
            "message.extensions[1]: expected a string, got null",
        ),
        (
            t.SendMessageRequest,
            {"message": HELLO, "configuration": {"returnImmediately": "true"}},
            "configuration.returnImmediately: expected a boolean, got a string",
        ),
        (
            t.SendMessageRequest,
            {"message": HELLO, "configuration": {"taskPushNotificationConfig": {"authentication": {}}}},
            "configuration.taskPushNotificationConfig.authentication.scheme: is required",
        ),
        (t.GetTaskRequest, {"id": {"nested": True}}, "id: expected a string, got an object"),
        (t.GetTaskRequest, [], "GetTaskRequest: expected an object, got an array"),
        (t.ListTasksRequest, {"status": True}, "status: expected a name, got a boolean"),
        (t.ListTasksRequest, {"includeArtifacts": 1}, "includeArtifacts: expected a boolean, got a number"),
        (c.SecurityScheme, {}, "SecurityScheme: needs one of apiKeySecurityScheme, "),
        (
            c.SecurityScheme,
            {"mtlsSecurityScheme": {}, "httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "SecurityScheme: has both mtlsSecurityScheme and httpAuthSecurityScheme",
        ),
        (
            c.SecurityScheme,
            {"oauth2_security_scheme": {"flows": {"clientCredentials": {}}}},
            "oauth2SecurityScheme.flows.clientCredentials.tokenUrl: is required",
        ),
        (
            c.SecurityRequirement,
            {"schemes": {"key": {"list": [1]}}},
            "schemes.key.list[0]: expected a string, got a number",
        ),
        (
            c.SecurityRequirement,
            {"schemes": {"k" * 10_000: {"list": [1]}}},
            f"schemes.{'k' * 60}….list[0]: expected a string, got a number",
        ),
    ],
)
def test_a_refusal_names_the_member_by_its_wire_name(cls, value, message):
    assert refused(cls, value).startswith(message)


@pytest.mark.parametrize("value", ["working", "TASK_STATE_DREAMING", "", 9, -1, 1.5, 10**30])
def test_an_unknown_state_is_refused_in_requests_and_unspecified_in_answers(value):
    assert refused(t.ListTasksRequest, {"status": value}).startswith("status: ")
    if value != 1.5:
        assert V10.load(t.TaskStatus, {"state": value}, strict=False).state is t.TaskState.UNSPECIFIED


def test_no_value_of_a_wrong_type_gets_into_a_member_and_breaks_what_is_written():
    junk = [5, 1.5, True, "x", [], [1], {}, {"a": 1}]
    for cls in EVERY_TYPE:
        for member in getattr(KINDS[cls], "members", ()):
            for value in junk:
                with contextlib.suppress(DecodeError):
                    loaded = V10.load(cls, {member.name: value}, strict=False)
                    loads(dumps(V10.dump(loaded)))


KEYS = sorted({name for kind in KINDS.values() for member in getattr(kind, "members", ()) for name in member.names})
PARAMS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "ROLE_USER", "TASK_STATE_WORKING", "2025-11-09T10:30:00Z", "YQ==", "5"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*KEYS, "text", "raw", "url", "data", "x"]), inner, max_size=5)
        | st.fixed_dictionaries({"message": st.just(HELLO)}, optional={"configuration": inner, "metadata": inner})
        | st.fixed_dictionaries({"id": st.just("t")}, optional={"historyLength": inner, "tenant": inner})
    ),
    max_leaves=15,
)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from(list(OPERATIONS.values())), PARAMS)
def test_no_params_cause_anything_but_invalid_params(operation, params):
    try:
        request = V10.load_request(operation, params)
    except InvalidParamsError as refused:
        event(f"refused: {refused.message.split(':')[0][:20]}")
        return
    event("accepted")
    assert V10.load_request(operation, loads(dumps(V10.dump_request(operation, request)))) == request


# -- answers, leniently -------------------------------------------------------------------------------------------------


def test_a_careless_peer_s_answers_are_read_with_defaults():
    assert V10.load_result(GET_TASK, {}) == t.Task(id="", status=t.TaskStatus(state=t.TaskState.UNSPECIFIED))
    assert V10.load_event({"message": {"parts": [{}]}}) == t.Message(
        role=t.Role.UNSPECIFIED, parts=(t.TextPart(""),), message_id=""
    )
    assert V10.load_event({"artifactUpdate": {"taskId": "t"}}) == t.TaskArtifactUpdateEvent(
        task_id="t", context_id="", artifact=t.Artifact(artifact_id="", parts=())
    )
    assert V10.load_result(LIST_TASKS, {}) == t.ListTasksResponse()
    card = V10.load(c.AgentCard, {}, strict=False)
    assert card == c.AgentCard(name="", description="", version="", default_input_modes=(), default_output_modes=())


@pytest.mark.parametrize("text", ["2025-11-09T10:30:00", "yesterday", 5])
def test_an_answer_is_not_worth_less_for_an_invalid_time(text):
    task = V10.load_result(GET_TASK, {"id": "t", "status": {"state": "TASK_STATE_WORKING", "timestamp": text}})
    assert (task.state, task.status.timestamp) == (t.TaskState.WORKING, None)


def test_what_a_newer_peer_says_beyond_us_is_left_out():
    card = V10.load(
        c.AgentCard,
        {
            "securitySchemes": {
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "k"}},
                "new": {"quantumSecurityScheme": {}},
                "flow": {"oauth2SecurityScheme": {"flows": {"telepathy": {}}}},
            }
        },
        strict=False,
    )
    assert set(card.security_schemes) == {"key"}


@pytest.mark.parametrize("value", [None, [], "x", {}, {"newEvent": {}}, {"task": []}, {"task": {}, "message": {}}])
def test_an_event_that_cannot_be_read_is_an_invalid_answer(value):
    with pytest.raises(DecodeError):
        V10.load_event(value)


def test_an_invalid_answer_is_not_mistaken_for_an_error_of_the_agent():
    with pytest.raises(ValueError, match=r"^status\.state: expected a name, got an array$") as caught:
        V10.load_result(GET_TASK, {"status": {"state": []}})
    assert not isinstance(caught.value, AgentError)


@pytest.mark.parametrize("value", [None, {}, "anything"])
def test_an_empty_result_is_whatever_the_peer_makes_of_it(value):
    assert V10.load_result(DELETE_PUSH_CONFIG, value) is None


# -- methods and versions -----------------------------------------------------------------------------------------------


def test_methods_have_the_names_of_their_operations():
    assert V10.method(SEND_STREAMING_MESSAGE) == "SendStreamingMessage"
    assert V10.version == "1.0"


@pytest.mark.parametrize("name", ["message/send", "sendMessage", "", "DoMagic"])
def test_an_unknown_method_is_not_found(name):
    assert name not in V10.operations
    if name != "message/send":
        with pytest.raises(MethodNotFoundError, match="There is no method"):
            by_method(name)


def test_an_unknown_version_says_which_are_there():
    with pytest.raises(VersionNotSupportedError, match=r"'9\.9'.*A2A-Version: 1\.0"):
        by_version("9.9")


# -- errors (spec 9.5) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", wire_examples.entries("jsonrpc-error"), ids=lambda entry: entry["file"])
def test_an_example_s_error_is_read_and_written_alike(entry):
    value = wire_examples.content(entry)["error"]
    error = V10.load_error(value)
    assert error.jsonrpc_code == value["code"]
    assert error.message == value["message"]
    assert type(error) is not AgentError or error.jsonrpc_code == -32603
    written = V10.dump_error(error)
    assert (written["code"], written["message"]) == (value["code"], value["message"])
    for detail in value.get("data", []):
        assert detail in written["data"]


def test_details_begin_with_an_error_info_and_each_has_a_type():
    error = InvalidParamsError.at("message.parts", "at least one is required")
    assert V10.dump_error(error) == {
        "code": -32602,
        "message": "message.parts: at least one is required",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "INVALID_PARAMS",
                "domain": "a2a-protocol.org",
            },
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "message.parts", "description": "at least one is required"}],
            },
        ],
    }


@given(st.sampled_from(AgentError.__subclasses__()), st.text())
def test_every_error_survives_the_wire(cls, message):
    error = cls(message, metadata={"taskId": "t"}, violations=[FieldViolation("a", "b")], retry_after=1.5)
    loaded = V10.load_error(loads(dumps(V10.dump_error(error))))
    assert type(loaded) is cls
    assert (loaded.message, loaded.metadata, loaded.violations) == (error.message, error.metadata, error.violations)
    assert loaded.retry_after == 1.5


def test_the_reason_outranks_the_code():
    data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND"}]
    assert type(V10.load_error({"code": -32603, "message": "x", "data": data})) is TaskNotFoundError
    assert type(V10.load_error({"code": -32001})) is TaskNotFoundError
    assert V10.load_error({"code": -32050, "message": "x"}).jsonrpc_code == -32050


def test_waiting_time_is_said_in_seconds():
    written = V10.dump_error(OverloadedError(retry_after=2))
    assert written["data"][1] == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}


@pytest.mark.parametrize(
    ("said", "seconds"), [("1.5s", 1.5), ("3s", 3), ("-1s", None), ("nan", None), ("1e99s", None), (5, None)]
)
def test_a_waiting_time_that_is_none_is_passed_over(said, seconds):
    data = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": said}]
    assert V10.load_error({"code": -32000, "message": "x", "data": data}).retry_after == seconds


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("code", "message", "data", "@type", "reason", "metadata", "fieldViolations", "retryDelay")
            ),
            inner | st.sampled_from([f"google.rpc.{kind}" for kind in ("ErrorInfo", "BadRequest", "RetryInfo")]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_an_error_that_is_only_a_text_is_limited_too():
    assert len(V10.load_error("x" * 1_500_000).message) < 1_000_200


@given(JUNK)
def test_no_junk_in_an_error_keeps_it_from_being_read(value):
    error = V10.load_error(value)
    assert isinstance(error, AgentError)
    assert all(isinstance(key, str) and isinstance(item, str) for key, item in error.metadata.items())
    dumps(V10.dump_error(error))


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_result_with_a_long_text_is_written_and_found(version, binding):
    codec = by_version(version, binding)
    long = t.TextPart("x" * LONG_TEXT)
    for text in (long, t.TextPart("short")):
        artifact = t.Artifact(artifact_id="a", parts=(t.DataPart({"text": 1}), text))
        task = t.Task(id="t", context_id="c", status=t.TaskStatus(state=t.TaskState.COMPLETED), artifacts=(artifact,))
        for operation in (GET_TASK, SEND_MESSAGE):
            result = codec.dump_result(operation, task)
            assert has_long_texts(result) is (text is long) or (version, binding) == ("0.3", "HTTP+JSON")
            assert write_result(1, result) == dumps({"jsonrpc": "2.0", "id": 1, "result": result})
    assert not has_long_texts(None)
