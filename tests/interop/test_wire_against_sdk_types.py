"""The official types parse the codec's output strictly, and the codec parses theirs."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from a2a_sync import types as t
from a2a_sync.codec import by_version
from a2a_sync.codec.v10 import KINDS
from a2a_sync.jsontext import dumps
from a2a_sync.operations import OPERATIONS, StreamItem
from tests.strategies import EVENTS, EVERY_TYPE, REQUESTS, RESULTS

pb = pytest.importorskip("a2a.types.a2a_pb2", reason="a2a-sdk is not installed")
json_format = pytest.importorskip("google.protobuf.json_format")
validate = pytest.importorskip("a2a.utils.proto_utils").validate_proto_required_fields

V10 = by_version("1.0")
UNIONS = {"SecurityScheme": pb.SecurityScheme, "OAuthFlow": pb.OAuthFlows, "Part": pb.Part}
QUICK = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


def official(cls):
    if isinstance(cls, type):
        return getattr(pb, cls.__name__)
    (name,) = (name for name in UNIONS if name in str(cls))
    return UNIONS[name]


def doubles(value):
    """Convert numbers to floats, as Struct stores them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(max(min(value, 10**300), -(10**300)))
    if isinstance(value, dict):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [doubles(item) for item in value]
    return value


def through_the_official_type(value, message):
    """Parse `value` strictly and print it again, once with JSON names and once with the proto's field names."""
    json_format.Parse(json.dumps(doubles(value)), message, ignore_unknown_fields=False)
    return [json_format.MessageToDict(message, preserving_proto_field_name=own_names) for own_names in (False, True)]


@pytest.mark.parametrize("cls", EVERY_TYPE, ids=lambda cls: getattr(cls, "__name__", str(cls)))
def test_every_type_round_trips_through_the_official_type(cls):
    @QUICK
    @given(EVERY_TYPE[cls])
    def round_trips(obj):
        written = V10.dump(obj)
        for printed in through_the_official_type(written, official(cls)()):
            again = V10.load(cls, printed, strict=False)
            assert doubles(V10.dump(again)) == doubles(written)

    round_trips()


@QUICK
@given(EVENTS)
def test_every_event_round_trips_through_the_official_stream_response(event):
    written = json.loads(V10.encode_item(StreamItem(event, 1)))
    message = pb.StreamResponse()
    for printed in through_the_official_type(written, message):
        assert doubles(V10.dump_event(V10.load_event(printed))) == doubles(written)
    validate(message)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_the_official_validator_accepts_every_request(operation):
    @QUICK
    @given(REQUESTS[operation.request])
    def is_complete(request):
        written = V10.dump_request(operation, request)
        message = official(operation.request)()
        through_the_official_type(written, message)
        validate(message)

    is_complete()


@pytest.mark.parametrize("name", ["SendMessage", "GetTask", "ListTasks"])
def test_results_round_trip_through_the_official_types(name):
    operation = OPERATIONS[name]
    message_type = (
        pb.SendMessageResponse if operation.response == t.SendMessageResponse else official(operation.response)
    )

    @QUICK
    @given(RESULTS[name])
    def is_taken(result):
        written = json.loads(dumps(V10.dump_result(operation, result)))
        for printed in through_the_official_type(written, message_type()):
            assert doubles(V10.dump_result(operation, V10.load_result(operation, printed))) == doubles(written)

    is_taken()


#: Members that only this library has: error details, which other implementations ignore (spec 5.7).
EXTRA_MEMBERS = {t.TaskPushNotificationConfig: {"metadata"}}


def test_members_have_the_official_names():
    for cls in EVERY_TYPE:
        if isinstance(cls, type):
            ours = {member.name for member in KINDS[cls].members} - EXTRA_MEMBERS.get(cls, set())
            assert ours == {field.json_name for field in official(cls).DESCRIPTOR.fields}, cls


def test_required_members_are_the_official_ones():
    behavior = pytest.importorskip("google.api.field_behavior_pb2")
    for cls in EVERY_TYPE:
        if isinstance(cls, type):
            theirs = {
                field.json_name
                for field in official(cls).DESCRIPTOR.fields
                if behavior.REQUIRED in field.GetOptions().Extensions[behavior.field_behavior]
            }
            ours = {member.name for member in KINDS[cls].members if member.required or member.always}
            assert ours - {"uri"} == theirs, cls
