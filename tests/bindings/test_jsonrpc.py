import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2a_sync.bindings.jsonrpc import (
    EventEnvelope,
    RpcError,
    RpcRequest,
    read_request,
    read_response,
    write_error,
    write_request,
    write_result,
)
from a2a_sync.codec import DecodeError, by_method, by_version
from a2a_sync.errors import (
    AgentError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    TaskNotFoundError,
)
from a2a_sync.operations import GET_TASK, OPERATIONS
from tests import wire_examples
from tests.strategies import REQUESTS, RESULTS

V10 = by_version("1.0")
IDS = st.none() | st.integers() | st.text(max_size=10)


def refusal(body):
    with pytest.raises(RpcError) as caught:
        read_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value


def request(**members):
    return {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}, **members}


# -- both sides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_operation_s_request_and_answer_survive_build_and_parse(operation):
    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
    @given(IDS, REQUESTS[operation.request], RESULTS[operation.name])
    def survives(id, sent, answered):
        body = write_request(id, V10.method(operation), V10.dump_request(operation, sent))
        got = read_request(body)
        assert (got.id, V10.operations[got.method]) == (id, operation)
        assert V10.load_request(operation, got.params) == sent

        answer = write_result(got.id, V10.dump_result(operation, answered))
        assert json.loads(answer)["id"] == id
        assert V10.load_result(operation, read_response(answer, V10)) == answered

    survives()


@given(IDS, st.sampled_from(AgentError.__subclasses__()), st.text(min_size=1))
def test_every_error_survives_build_and_parse(id, cls, message):
    answer = write_error(id, cls(message, metadata={"taskId": "t"}), V10)
    assert json.loads(answer)["id"] == id
    with pytest.raises(cls) as caught:
        read_response(answer, V10)
    assert caught.value.message == message
    assert caught.value.metadata == {"taskId": "t"}


# -- server -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", wire_examples.entries("jsonrpc-request"), ids=lambda entry: entry["file"])
def test_an_example_s_request_is_read(entry):
    value = wire_examples.content(entry)
    got = read_request(json.dumps(value).encode())
    assert got == RpcRequest(value["id"], value["method"], value.get("params") or {})
    V10.load_request(V10.operations[got.method], got.params)


#: What only a server can refuse: it depends on its tasks, or on ranges that the handler checks.
LATER = {
    "task-unknown",
    "send-to-unknown-task",
    "cancel-unknown-task",
    "subscribe-unknown-task",
    "page-size-zero",
    "page-size-too-big",
    "history-length-negative",
}
CASES = [case for entry in wire_examples.entries("invalid-cases") for case in wire_examples.content(entry)]


@pytest.mark.parametrize("case", [case for case in CASES if case["name"] not in LATER], ids=lambda case: case["name"])
def test_an_invalid_case_is_refused_with_its_code_under_its_id(case):
    body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
    try:
        got = read_request(body.encode())
        operation = by_method(got.method).operations[got.method]
        V10.load_request(operation, got.params)
    except RpcError as error:
        refused, id = error.error, error.id
    except AgentError as error:
        refused, id = error, got.id
    else:
        pytest.fail("it was accepted")
    assert (refused.jsonrpc_code, id) == (case["expectCode"], case["expectId"])


@pytest.mark.parametrize("case", [case for case in CASES if case["name"] in LATER], ids=lambda case: case["name"])
def test_a_case_that_only_a_server_can_judge_gets_that_far(case):
    got = read_request(json.dumps(case["body"]).encode())
    V10.load_request(V10.operations[got.method], got.params)


@pytest.mark.parametrize("id", ["s-1", "", "7", 0, -5, 10**20, None])
def test_an_id_is_kept_as_it_came(id):
    assert read_request(json.dumps(request(id=id)).encode()).id == id


def test_a_request_without_an_id_is_answered_under_null():
    value = request()
    del value["id"]
    assert read_request(json.dumps(value).encode()).id is None


@pytest.mark.parametrize("id", [1.5, 1.0, True, False, {}, [], [1]])
def test_an_id_of_another_type_is_refused_under_null(id):
    refused = refusal(request(id=id))
    assert isinstance(refused.error, InvalidRequestError)
    assert refused.id is None


def test_batches_are_refused_in_a_clear_sentence():
    refused = refusal([request(), request(id=2)])
    assert isinstance(refused.error, InvalidRequestError)
    assert refused.error.message == "Batches are not supported; send one request object"
    assert refused.id is None


@pytest.mark.parametrize("body", [b"5", b'"x"', b"null", b"true"])
def test_a_body_that_is_no_object_is_an_invalid_request(body):
    assert isinstance(refusal(body).error, InvalidRequestError)


@pytest.mark.parametrize("version", ["1.0", "2", 2.0, 2, None, ["2.0"]])
def test_another_jsonrpc_version_is_refused_under_the_request_s_id(version):
    refused = refusal(request(jsonrpc=version))
    assert (refused.error.jsonrpc_code, refused.error.message, refused.id) == (-32600, 'jsonrpc must be "2.0"', 1)


@pytest.mark.parametrize("method", ["", None, 5, ["GetTask"], {}])
def test_a_method_that_is_no_name_is_refused(method):
    refused = refusal(request(method=method))
    assert (refused.error.jsonrpc_code, refused.id) == (-32600, 1)


@pytest.mark.parametrize("params", ["abc", [], [1], 5, True, False, ""])
def test_params_that_are_no_object_are_invalid_params(params):
    refused = refusal(request(params=params))
    assert isinstance(refused.error, InvalidParamsError)
    assert (refused.error.violations[0].field, refused.id) == ("params", 1)


def test_null_params_are_no_params():
    assert read_request(json.dumps(request(params=None)).encode()).params == {}


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1,"a":2}', b"\xff", b"[" * 10_000, b'{"id": NaN}'])
def test_what_is_not_json_is_a_parse_error_under_null(body):
    refused = refusal(body)
    assert isinstance(refused.error, JSONParseError)
    assert refused.id is None


@given(
    st.binary(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params"]), inner | st.just("2.0"))
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_nothing_but_an_rpc_error_comes_of_any_body(body):
    try:
        outcome = write_result(read_request(body).id, {})
    except RpcError as refused:
        outcome = write_error(refused.id, refused.error, V10)
    assert json.loads(outcome)["jsonrpc"] == "2.0"


def test_a_stream_s_envelope_repeats_the_id():
    envelope = EventEnvelope("s-1")
    assert envelope.wrap(b'{"task":{}}') == b'{"jsonrpc":"2.0","id":"s-1","result":{"task":{}}}'
    assert EventEnvelope(None).wrap(b"null") == b'{"jsonrpc":"2.0","id":null,"result":null}'
    assert EventEnvelope('"é').wrap(b"1") == '{"jsonrpc":"2.0","id":"\\"é","result":1}'.encode()


def test_an_error_carries_its_details_as_an_array():
    error = json.loads(write_error(7, TaskNotFoundError(metadata={"taskId": "t9"}), V10))["error"]
    assert error == {
        "code": -32001,
        "message": "Task not found",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": {"taskId": "t9"},
            }
        ],
    }


def test_an_error_whose_text_cannot_be_said_still_arrives_with_its_code():
    answer = json.loads(write_error(1, TaskNotFoundError("\ud800"), V10))
    assert answer == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "Task not found"}}


# -- client -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", wire_examples.entries("jsonrpc-response"), ids=lambda entry: entry["file"])
def test_an_example_s_answer_gives_its_result(entry):
    value = wire_examples.content(entry)
    assert read_response(json.dumps(value).encode(), V10) == value["result"]


@pytest.mark.parametrize("entry", wire_examples.entries("jsonrpc-error"), ids=lambda entry: entry["file"])
def test_an_example_s_error_is_raised(entry):
    value = wire_examples.content(entry)
    with pytest.raises(AgentError) as caught:
        read_response(json.dumps(value).encode(), V10)
    assert caught.value.jsonrpc_code == value["error"]["code"]


def test_an_error_in_the_middle_of_a_stream_is_raised():
    (entry,) = wire_examples.entries("jsonrpc-mixed-list")
    first, second = (json.dumps(frame) for frame in wire_examples.content(entry))
    assert V10.load_event(read_response(first, V10)).id == "8f14e45f-0001-4a7e-9d1b-3c2f6f0a1b01"
    with pytest.raises(InternalError):
        read_response(second, V10)


@pytest.mark.parametrize("rest", ["", ',"result":null', ',"error":null', ',"result":null,"error":null'])
def test_a_result_that_is_nothing_may_be_left_out(rest):
    assert read_response(f'{{"jsonrpc":"2.0","id":1{rest}}}'.encode(), V10) is None


def test_an_error_that_is_nothing_is_none():
    assert read_response(b'{"jsonrpc":"2.0","id":1,"result":{"id":"t"},"error":null}', V10) == {"id": "t"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"null",
        b"[]",
        b"{}",
        b'{"id":"t","status":{}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":NaN}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_answer_is_distinguished_from_an_error_of_the_agent(body):
    with pytest.raises(DecodeError) as caught:
        read_response(body, V10)
    assert not isinstance(caught.value, AgentError)


@pytest.mark.parametrize("error", ["went wrong", 5, [], {}, {"code": "x", "message": 5, "data": "junk"}, {"code": -1}])
def test_an_error_of_any_shape_is_an_error(error):
    with pytest.raises(AgentError):
        read_response(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}), V10)


def test_an_answer_may_be_nested_deeper_than_the_request_it_wraps():
    data = "[" * 94 + "]" * 94
    body = '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":1,"parts":[{"data":%s}]}}}'
    message = V10.load_request(V10.operations["SendMessage"], read_request((body % data).encode()).params).message
    task = {"id": "t", "status": {"state": 3}, "history": [V10.dump(message)]}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tasks": [task]}}).encode()
    loaded = V10.load_result(GET_TASK, read_response(answer, V10)["tasks"][0])
    assert loaded.history == (message,)


def test_params_that_json_cannot_say_are_not_sent():
    with pytest.raises(ValueError, match="not JSON"):
        write_request(1, "SendMessage", {"metadata": {"a": object()}})
