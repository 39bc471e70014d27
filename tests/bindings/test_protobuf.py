"""Messages of gRPC: the official descriptors, and what is left of objects after a conversion and back."""

from __future__ import annotations

from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from google.protobuf import any_pb2, json_format, struct_pb2  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from a2a_sync import errors  # noqa: E402
from a2a_sync import types as t  # noqa: E402
from a2a_sync.bindings import protobuf  # noqa: E402
from a2a_sync.codec import by_version  # noqa: E402
from a2a_sync.errors import AgentError, FieldViolation, InvalidParamsError, InvalidRequestError  # noqa: E402
from a2a_sync.operations import GET_EXTENDED_CARD, OPERATIONS, SEND_STREAMING_MESSAGE  # noqa: E402
from tests.grpc.descriptors import compiled  # noqa: E402
from tests.strategies import EVENTS, REQUESTS, RESULTS  # noqa: E402

V10 = by_version("1.0", "GRPC")
V03 = by_version("0.3", "GRPC")
#: Every class of an error that has a code of its own.
ERRORS = [
    found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, AgentError) and found is not AgentError
]


def test_the_descriptors_are_those_of_the_official_protos() -> None:
    assert protobuf.DESCRIPTORS.read_bytes() == compiled()


def test_every_operation_has_a_method() -> None:
    assert protobuf.methods("1.0").keys() == OPERATIONS.keys()
    assert OPERATIONS.keys() - protobuf.methods("0.3").keys() == {"ListTasks"}


def doubles(value: Any) -> Any:
    """JSON with all numbers as protobuf has those of metadata and data."""
    if isinstance(value, dict):
        return {name: doubles(member) for name, member in value.items()}
    if isinstance(value, list):
        return [doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
def test_a_request_of_1_0_is_the_same_after_the_conversion(name: str, data: st.DataObject) -> None:
    operation = OPERATIONS[name]
    request = data.draw(REQUESTS[operation.request])
    written = protobuf.encode_request(name, V10.dump_request(operation, request), "1.0")
    message = protobuf.parse(written, protobuf.methods("1.0")[name].request)
    read = V10.load_request(operation, protobuf.decode_request(name, message, "1.0"))
    assert doubles(V10.dump_request(operation, read)) == doubles(V10.dump_request(operation, request))


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not OPERATIONS[name].streaming])
@given(data=st.data())
def test_a_result_of_1_0_is_the_same_after_the_conversion(name: str, data: st.DataObject) -> None:
    operation = OPERATIONS[name]
    result = data.draw(RESULTS[name])
    written = protobuf.encode_result(name, V10.dump_result(operation, result), "1.0")
    message = protobuf.parse(written, protobuf.methods("1.0")[name].response)
    read = V10.load_result(operation, protobuf.decode_result(name, message, "1.0"))
    assert doubles(V10.dump_result(operation, read)) == doubles(V10.dump_result(operation, result))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@given(event=EVENTS, number=st.integers(0, 2**63 - 1))
def test_an_event_keeps_its_number(version: str, event: t.StreamResponse, number: int) -> None:
    name = SEND_STREAMING_MESSAGE.name
    codec = by_version(version, "GRPC")
    data = protobuf.encode_result(name, codec.dump_event(event), version)
    with_number = protobuf.with_event_number(data, number)
    plain = protobuf.parse(data, protobuf.methods(version)[name].response)
    numbered = protobuf.parse(with_number, protobuf.methods(version)[name].response)
    assert protobuf.event_number(data) is None
    assert protobuf.event_number(with_number) == number
    assert protobuf.decode_result(name, numbered, version) == protobuf.decode_result(name, plain, version)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name in protobuf.methods("0.3")])
@given(data=st.data())
def test_a_request_of_0_3_is_the_same_after_another_conversion(name: str, data: st.DataObject) -> None:
    """The first one loses what 0.3 does not have."""
    operation = OPERATIONS[name]

    def convert(request: object) -> object:
        written = protobuf.encode_request(name, V03.dump_request(operation, request), "0.3")
        message = protobuf.parse(written, protobuf.methods("0.3")[name].request)
        return V03.load_request(operation, protobuf.decode_request(name, message, "0.3"))

    once = convert(data.draw(REQUESTS[operation.request]))
    assert convert(once) == once


@pytest.mark.parametrize(
    ("name", "request_03", "ids"),
    [
        ("GetTask", {"name": "tasks/t/1"}, {"id": "t/1"}),
        ("CancelTask", {"name": "tasks/t"}, {"id": "t"}),
        ("SubscribeToTask", {"name": "tasks/t"}, {"id": "t"}),
        ("GetTaskPushNotificationConfig", {"name": "tasks/t/pushNotificationConfigs/c"}, {"task_id": "t", "id": "c"}),
        (
            "DeleteTaskPushNotificationConfig",
            {"name": "tasks/t/pushNotificationConfigs/c/1"},
            {"task_id": "t", "id": "c/1"},
        ),
        ("ListTaskPushNotificationConfigs", {"parent": "tasks/t"}, {"task_id": "t"}),
        (
            "CreateTaskPushNotificationConfig",
            {"parent": "tasks/t", "config_id": "c", "config": {"push_notification_config": {"url": "https://x.test"}}},
            {"task_id": "t", "id": "c", "url": "https://x.test"},
        ),
    ],
)
def test_names_of_resources_in_0_3_are_read_as_ids(name: str, request_03: dict[str, str], ids: dict[str, str]) -> None:
    message = json_format.ParseDict(request_03, protobuf.methods("0.3")[name].request())
    request = V03.load_request(OPERATIONS[name], protobuf.decode_request(name, message, "0.3"))
    assert {member: getattr(request, member) for member in ids} == ids


def test_the_requirements_of_a_card_of_0_3_are_read_and_written() -> None:
    value = {
        "name": "n",
        "description": "d",
        "version": "1",
        "url": "http://x.test",
        "security": [{"a": ["read"], "b": []}],
        "skills": [{"id": "s", "name": "s", "description": "d", "tags": ["t"], "security": [{"a": []}]}],
    }
    data = protobuf.encode_result(GET_EXTENDED_CARD.name, value, "0.3")
    message = protobuf.parse(data, protobuf.methods("0.3")[GET_EXTENDED_CARD.name].response)
    read = protobuf.decode_result(GET_EXTENDED_CARD.name, message, "0.3")
    assert (read["security"], read["skills"][0]["security"]) == (value["security"], [{"a": []}])


def test_whole_numbers_are_integers_again_as_far_as_they_are_exact() -> None:
    value = json_format.Parse('{"a": 3, "b": 2.5, "c": 1e300, "d": [9007199254740992]}', struct_pb2.Struct())
    read = protobuf.to_json(value)
    assert read == {"a": 3, "b": 2.5, "c": 1e300, "d": [2**53]}
    assert [type(read[name]) for name in "abc"] == [int, float, float]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_the_same_after_its_status(kind: type[AgentError]) -> None:
    error = kind("why", metadata={"taskId": "t"}, violations=[FieldViolation("a.b", "is empty")], retry_after=2.5)
    data = protobuf.encode_status(error, V10)
    status = status_pb2.Status.FromString(data)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == (kind.reason, "a2a-protocol.org", {"taskId": "t"})
    assert status.code == getattr(grpc.StatusCode, kind.grpc_status).value[0]
    read = protobuf.decode_status(kind.grpc_status, "why", data, V10)
    assert (read.reason, read.message, read.violations) == (kind.reason, "why", error.violations)
    assert read.retry_after == 2.5


def test_a_code_without_details_names_the_error() -> None:
    assert isinstance(protobuf.decode_status("NOT_FOUND", "no", None, V10), errors.TaskNotFoundError)
    assert isinstance(protobuf.decode_status("INVALID_ARGUMENT", "no", b"\xff", V10), InvalidParamsError)
    assert type(protobuf.decode_status("DATA_LOSS", "no", None, V10)) is AgentError
    corrupt = status_pb2.Status(
        details=[any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")]
    )
    assert isinstance(
        protobuf.decode_status("NOT_FOUND", "no", corrupt.SerializeToString(), V10), errors.TaskNotFoundError
    )


def test_texts_of_0_3_begin_with_the_name_of_the_error() -> None:
    error = errors.TaskNotCancelableError("too late")
    assert protobuf.error_text(error, "1.0") == "too late"
    text = protobuf.error_text(error, "0.3")
    assert text == "TaskNotCancelableError: too late"
    for status in (None, protobuf.encode_status(error, V03)):
        read = protobuf.decode_status("FAILED_PRECONDITION", text, status, V03)
        assert (type(read), read.message) == (errors.TaskNotCancelableError, "too late")
    # The JavaScript SDK of 0.3 has texts of its own.
    read = protobuf.decode_status("FAILED_PRECONDITION", "Task not cancelable: t-1", None, V03)
    assert (type(read), read.message) == (errors.TaskNotCancelableError, "Task not cancelable: t-1")


@pytest.mark.parametrize("text", ["lone surrogate \ud800", "x"])
def test_an_error_with_any_text_is_written(text: str) -> None:
    status = status_pb2.Status.FromString(protobuf.encode_status(InvalidParamsError(text), V10))
    assert status.message


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x0a\xff\xff\xff\xff\x0f",  # a length beyond the end
        b"\x0a\x02\x0a\xff",
        b"\x0b" * 200,  # groups within groups
        b"\x0a\x03\x0a\x01\xff",  # invalid UTF-8 in an id
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="not a valid SendMessageRequest"):
        protobuf.to_json(protobuf.parse(data, protobuf.methods("1.0")["SendMessage"].request))
