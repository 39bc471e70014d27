"""The HTTP+JSON codec of 0.3 writes and reads the JSON of the official proto."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from a2a.grpc import a2a_pb2 as official
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import HealthCheck, given, settings

from a2a_sync import types as t
from a2a_sync.codec import by_version
from a2a_sync.jsontext import dumps
from a2a_sync.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    Operation,
)
from tests import strategies

PROTO = by_version("0.3", "HTTP+JSON")
QUICK = settings(max_examples=80, suppress_health_check=list(HealthCheck), deadline=None)
#: Integers that a Struct, whose numbers are doubles, cannot represent.
_LARGE = re.compile(r"\d{16}")


def small(obj: Any) -> bool:
    return not _LARGE.search(repr(obj))


def floats(value: Any) -> Any:
    """JSON with all numbers as floats, as in a Struct."""
    return json.loads(json.dumps(value), parse_int=float)


REQUESTS: dict[str, tuple[Operation, Any]] = {
    "SendMessageRequest": (SEND_MESSAGE, strategies.REQUESTS[t.SendMessageRequest]),
    "CancelTaskRequest": (CANCEL_TASK, strategies.REQUESTS[t.CancelTaskRequest]),
    "CreateTaskPushNotificationConfigRequest": (CREATE_PUSH_CONFIG, strategies.PUSH_CONFIGS),
}
RESULTS: dict[str, tuple[Operation, Any]] = {
    "SendMessageResponse": (SEND_MESSAGE, strategies.TASKS | strategies.MESSAGES),
    "StreamResponse": (SEND_STREAMING_MESSAGE, strategies.EVENTS),
    "TaskPushNotificationConfig": (CREATE_PUSH_CONFIG, strategies.PUSH_CONFIGS),
    "ListTaskPushNotificationConfigResponse": (
        LIST_PUSH_CONFIGS,
        strategies.RESULTS["ListTaskPushNotificationConfigs"],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_round_trip_through_the_proto(name: str) -> None:
    operation, requests = REQUESTS[name]

    @QUICK
    @given(requests.filter(small))
    def is_taken(request: Any) -> None:
        written = json.loads(dumps(PROTO.dump_request(operation, request)))
        # These members are part of the path.
        in_path = {member: written.pop(member) for member in ("id", "taskId") if member in written}
        theirs = MessageToDict(ParseDict(written, getattr(official, name)()))
        if name != "CreateTaskPushNotificationConfigRequest" or in_path["taskId"]:
            assert PROTO.load_request(operation, {**floats(theirs), **in_path}) == PROTO.load_request(
                operation, {**floats(written), **in_path}
            )

    is_taken()


@pytest.mark.parametrize("name", RESULTS)
def test_responses_round_trip_through_the_proto(name: str) -> None:
    operation, results = RESULTS[name]

    @QUICK
    @given(results.filter(small))
    def is_taken(result: Any) -> None:
        written = json.loads(dumps(PROTO.dump_result(operation, result)))
        message = ParseDict(written, getattr(official, name)())
        ours = PROTO.load_result(operation, floats(written))
        assert PROTO.load_result(operation, floats(MessageToDict(message))) == ours
        # Some implementations write the proto's field names.
        kept = MessageToDict(message, preserving_proto_field_name=True)
        assert PROTO.load_result(operation, floats(kept)) == ours

    is_taken()
