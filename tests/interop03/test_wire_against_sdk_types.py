"""The official types of 0.3 parse the codec's output, and the codec parses theirs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import a2a.types as official
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2a_sync import A2AApp
from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec import by_version
from a2a_sync.jsontext import dumps
from a2a_sync.operations import OPERATIONS, StreamItem
from tests import strategies
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import CARD, OLD_CARD, Peer

V03 = by_version("0.3")
QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)

TYPES: dict[str, Any] = {
    "Message": strategies.MESSAGES,
    "Task": strategies.TASKS,
    "TaskStatusUpdateEvent": strategies.STATUS_UPDATES,
    "TaskArtifactUpdateEvent": strategies.ARTIFACT_UPDATES,
    "Artifact": strategies.ARTIFACTS,
    "MessageSendParams": strategies.REQUESTS[t.SendMessageRequest],
    "TaskQueryParams": strategies.REQUESTS[t.GetTaskRequest],
    "TaskIdParams": strategies.REQUESTS[t.CancelTaskRequest],
    "TaskPushNotificationConfig": strategies.PUSH_CONFIGS,
    "GetTaskPushNotificationConfigParams": strategies.REQUESTS[t.GetTaskPushNotificationConfigRequest],
    "DeleteTaskPushNotificationConfigParams": strategies.REQUESTS[t.DeleteTaskPushNotificationConfigRequest],
    "ListTaskPushNotificationConfigParams": strategies.REQUESTS[t.ListTaskPushNotificationConfigsRequest],
}


def printed(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_round_trips_through_the_official_type(name: str) -> None:
    @QUICK
    @given(TYPES[name])
    def round_trips(obj: Any) -> None:
        written = json.loads(dumps(V03.dump(obj)))
        theirs = printed(getattr(official, name).model_validate(written))
        assert V03.load(type(obj), theirs, strict=False) == V03.load(type(obj), written, strict=False)

    round_trips()


@QUICK
@given(strategies.EVENTS)
def test_every_event_is_an_official_streaming_response(event: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "result": json.loads(V03.encode_item(StreamItem(event, 1)))}
    answer = official.SendStreamingMessageResponse.model_validate(body)
    assert type(answer.root.result).__name__ == type(event).__name__


@pytest.mark.parametrize("operation", [one for one in OPERATIONS.values() if one.name != "ListTasks"], ids=str)
def test_every_request_is_an_official_request(operation: Any) -> None:
    @settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategies.REQUESTS[operation.request])
    def is_taken(request: Any) -> None:
        params = json.loads(dumps(V03.dump_request(operation, request)))
        method = V03.method(operation)
        taken = official.A2ARequest.model_validate({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        assert taken.root.method == method

    is_taken()


KEYS = st.builds(
    c.APIKeySecurityScheme, location=st.sampled_from(["header", "query", "cookie"]), name=strategies.NAME
) | strategies.SCHEMES.filter(lambda scheme: not isinstance(scheme, c.APIKeySecurityScheme))
INTERFACES = st.builds(
    c.AgentInterface, url=strategies.NAME, protocol_binding=strategies.NAME, protocol_version=st.just("0.3")
)


@QUICK
@given(strategies.CARDS, INTERFACES, st.dictionaries(strategies.NAME, KEYS, max_size=2))
def test_a_card_round_trips_through_the_official_type(card: Any, interface: Any, schemes: Any) -> None:
    card = dataclasses.replace(card, supported_interfaces=(interface,), security_schemes=schemes)
    written = json.loads(dumps(V03.dump(card)))
    theirs = printed(official.AgentCard.model_validate(written))
    assert V03.load(c.AgentCard, theirs, strict=False) == V03.load(c.AgentCard, written, strict=False)


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize("version", ["", "0.3"])
def test_the_served_card_is_an_official_card(version: str, path: str) -> None:
    with A2AApp(ScenarioAgent(), url="https://agent.test/x") as app:
        document = Peer(app).request("GET", path, headers={"A2A-Version": version}).json
    card = official.AgentCard.model_validate(document)
    assert (card.url, card.preferred_transport, card.protocol_version) == ("https://agent.test/x/", "JSONRPC", "0.3.0")
    offered = [(one.url, one.transport) for one in card.additional_interfaces or ()]
    assert offered == [(card.url, "JSONRPC"), (card.url.rstrip("/"), "HTTP+JSON")]
    assert card.capabilities.streaming
    assert card.skills[0].tags == ["test"]
