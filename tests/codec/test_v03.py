import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.bindings.jsonrpc import read_response, write_result
from a2a_sync.codec import DecodeError, by_method, by_version
from a2a_sync.codec.v03 import KINDS, METHODS
from a2a_sync.errors import (
    AgentError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.jsontext import dumps, loads
from a2a_sync.lifecycle import Entry, ends_run
from a2a_sync.operations import (
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
    GET_PUSH_CONFIG,
    GET_TASK,
    LIST_PUSH_CONFIGS,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
    SUBSCRIBE_TO_TASK,
    StreamItem,
)
from tests import strategies, wire_examples
from tests.strategies import EVENTS, EVERY_TYPE, REQUESTS, RESULTS, maybe, tuples
from tests.v03_loss import after_v03, has_compat_wrapper
from tests.wire_examples import canonical

V03 = by_version("0.3")
V10 = by_version("1.0")
QUICK = settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
HELLO = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
WORKING = {"state": "working"}
SPOKEN = [operation for operation in OPERATIONS.values() if operation in METHODS]
#: The types of operations that only later versions have, such as ListTasks.
LATER = {cls for one in OPERATIONS.values() if one not in METHODS for cls in (one.request, one.response)}


def refused(cls, value):
    with pytest.raises(InvalidParamsError) as caught:
        V03.load(cls, value)
    field, description = caught.value.violations[0]
    assert caught.value.message == f"{field}: {description}"
    return caught.value.message


# -- the protocol's examples --------------------------------------------------------------------------------------------


def without(value, *paths):
    """`value` without the members at some dotted paths."""
    value = loads(dumps(value))
    for path in paths:
        *way, last = path.split(".")
        place = value
        for step in way:
            place = place.get(step, {})
        place.pop(last, None)
    return value


#: What the objects cannot hold, by the file that says it.
LOST = {
    "v0_3-security-scheme-oauth2.json": ["flows.clientCredentials"],
    "v0_3-agent-card-full.json": ["securitySchemes.oauth2.flows.clientCredentials"],
    "v0_3-agent-card-extended.json": ["securitySchemes.oauth2.flows.clientCredentials"],
    "v0_3-agent-card-superset-v1.json": ["supportedInterfaces", "capabilities.extendedAgentCard"],
    "v0_3-jsonrpc-agent-get-authenticated-extended-card-response.json": [
        "securitySchemes.oauth2.flows.clientCredentials"
    ],
    "v0_3-task-query-params.json": ["metadata"],
    "v0_3-get-task-push-notification-config-params.json": ["metadata"],
    "v0_3-list-task-push-notification-config-params.json": ["metadata"],
    "v0_3-delete-task-push-notification-config-params.json": ["metadata"],
    "v0_3-jsonrpc-tasks-get-request.json": ["metadata"],
    "v0_3-jsonrpc-tasks-resubscribe-request.json": ["metadata"],
}


def kept(file, value):
    """The expected members of an example after a conversion to the model, which does not hold all of them."""
    value = without(value, *LOST.get(file, []))
    if "url" in value and "skills" in value:
        value.setdefault("additionalInterfaces", [{"url": value["url"], "transport": value["preferredTransport"]}])
    return canonical(value)


@pytest.mark.parametrize(("file", "cls", "value"), wire_examples.v03_objects(), ids=lambda one: str(one)[:70])
def test_an_example_goes_through_the_objects_and_back(file, cls, value):
    obj = V03.load(cls, value, strict="unknown" not in file)
    expected = kept(file, value)
    if cls is t.SendMessageRequest:
        expected.setdefault("configuration", {"blocking": True})
    if cls is t.SendMessageConfiguration:
        expected.setdefault("blocking", True)
    assert canonical(V03.dump(obj)) == expected
    if cls is t.SendMessageRequest:
        obj = dataclasses.replace(obj, configuration=obj.configuration or t.SendMessageConfiguration())
    assert V03.load(cls, V03.dump(obj), strict=False) == obj


@pytest.mark.parametrize(("file", "name", "value"), wire_examples.v03_calls("Request"), ids=lambda one: str(one)[:70])
def test_an_example_s_request_goes_through_its_operation(file, name, value):
    operation = V03.operations[value["method"]]
    assert operation.name == name
    assert by_method(value["method"]) is V03
    params = value.get("params", {})
    request = V03.load_request(operation, params)
    expected = kept(file, params)
    if name in ("SendMessage", "SendStreamingMessage"):
        expected.setdefault("configuration", {}).setdefault("blocking", True)
    assert canonical(V03.dump_request(operation, request)) == expected


@pytest.mark.parametrize(
    ("file", "name", "value"), wire_examples.v03_calls("SuccessResponse"), ids=lambda one: str(one)[:70]
)
def test_an_example_s_answer_goes_through_its_operation(file, name, value):
    operation = OPERATIONS[name]
    result = V03.load_result(operation, read_response(dumps(value), V03))
    written = V03.dump_result(operation, result)
    assert canonical(written) == (kept(file, value["result"]) if value["result"] is not None else None)


@pytest.mark.parametrize(
    "entry", wire_examples.entries("schema-error", version="0.3"), ids=lambda entry: entry["errorType"]
)
def test_an_example_s_error_is_the_one_of_its_name(entry):
    value = wire_examples.content(entry)["error"]
    error = V03.load_error(value)
    names = {
        "AuthenticatedExtendedCardNotConfiguredError": "ExtendedAgentCardNotConfiguredError",
        "InternalError": "InternalError",
    }
    assert type(error).__name__ == names.get(entry["errorType"], entry["errorType"])
    assert (error.jsonrpc_code, error.message) == (value["code"], value["message"])
    written = V03.dump_error(error)
    assert (written["code"], written["message"]) == (value["code"], value["message"])


def test_all_the_examples_are_there():
    assert len(wire_examples.v03_objects()) == 57
    assert {name for _, name, _ in wire_examples.v03_calls("Request")} == {one.name for one in SPOKEN}
    assert len(wire_examples.entries("schema-error", version="0.3")) == 12


# -- from 0.3 through the objects to 0.3 --------------------------------------------------------------------------------

TEXT = st.text(max_size=8)
ID = st.text(min_size=1, max_size=8)
FREE = st.dictionaries(TEXT, strategies.JSON, max_size=2)
SOME = st.dictionaries(TEXT, strategies.JSON, min_size=1, max_size=2)
MOMENT = strategies.MILLISECONDS.map(lambda moment: moment.isoformat(timespec="milliseconds")[:-6] + "Z")


def objects(required, optional):
    """JSON objects with members that are there, and members that may be there and should not be empty then."""
    return st.fixed_dictionaries(required, optional=optional)


def kind(word):
    return {"kind": st.just(word)}


ABOUT = {"metadata": SOME}
NAMED = {"name": ID, "mimeType": ID}
BYTES = st.binary(max_size=8).map(lambda data: V10.dump(t.FilePart(raw=data))["raw"])
FILES = objects({"bytes": BYTES}, NAMED) | objects({"uri": TEXT}, NAMED)
WRAPPED = strategies.JSON.filter(lambda value: not isinstance(value, dict)).map(lambda value: {"value": value})
PARTS = (
    objects({**kind("text"), "text": TEXT}, ABOUT)
    | objects({**kind("file"), "file": FILES}, ABOUT)
    | objects({**kind("data"), "data": FREE}, ABOUT)
    | objects({**kind("data"), "data": WRAPPED, "metadata": FREE.map(lambda m: {**m, "data_part_compat": True})}, {})
)
LISTS = st.lists(TEXT, min_size=1, max_size=2)
MESSAGES = objects(
    {
        **kind("message"),
        "messageId": ID,
        "role": st.sampled_from(["user", "agent"]),
        "parts": st.lists(PARTS, min_size=1, max_size=3),
    },
    {"contextId": ID, "taskId": ID, "extensions": LISTS, "referenceTaskIds": LISTS, **ABOUT},
)
STATES = st.sampled_from([*(state.value for state in t.TaskState if state is not t.TaskState.UNSPECIFIED), "unknown"])
STATUSES = objects({"state": STATES}, {"message": MESSAGES, "timestamp": MOMENT})
ARTIFACTS = objects(
    {"artifactId": ID, "parts": st.lists(PARTS, min_size=1, max_size=2)},
    {"name": ID, "description": ID, "extensions": LISTS, **ABOUT},
)
TASKS = objects(
    {**kind("task"), "id": ID, "contextId": ID, "status": STATUSES},
    {
        "history": st.lists(MESSAGES, min_size=1, max_size=2),
        "artifacts": st.lists(ARTIFACTS, min_size=1, max_size=2),
        **ABOUT,
    },
)


def with_final(update):
    state = update["status"]["state"]
    return {**update, "final": state in ("completed", "canceled", "failed", "rejected", "input-required")}


STATUS_UPDATES = objects({**kind("status-update"), "taskId": ID, "contextId": ID, "status": STATUSES}, ABOUT).map(
    with_final
)
ARTIFACT_UPDATES = objects(
    {**kind("artifact-update"), "taskId": ID, "contextId": ID, "artifact": ARTIFACTS},
    {"append": st.just(True), "lastChunk": st.just(True), **ABOUT},
)


@settings(max_examples=2 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(TASKS | MESSAGES | STATUS_UPDATES | ARTIFACT_UPDATES)
def test_what_streams_in_0_3_comes_back_exactly(value):
    loaded = V03.load_event(value)
    event(type(loaded).__name__)
    assert V03.dump_event(loaded) == value
    assert loads(V03.encode_item(StreamItem(loaded))) == value
    assert V03.ends_stream(value) == ends_run(loaded)


@QUICK
@given(
    objects(
        {"message": MESSAGES, "configuration": objects({"blocking": st.booleans()}, {"acceptedOutputModes": LISTS})},
        ABOUT,
    )
)
def test_a_send_in_0_3_comes_back_exactly(value):
    assert V03.dump_request(SEND_MESSAGE, V03.load_request(SEND_MESSAGE, value)) == value


# -- from the objects through 0.3 to the objects ------------------------------------------------------------------------


SAYABLE = {cls: strategy for cls, strategy in EVERY_TYPE.items() if cls not in LATER}
CARD_PARTS = (c.AgentCard, c.SecurityScheme, c.OAuthFlow)


@pytest.mark.parametrize(
    "cls", [cls for cls in SAYABLE if cls not in CARD_PARTS], ids=lambda cls: getattr(cls, "__name__", str(cls))
)
def test_every_object_keeps_what_0_3_can_say(cls):
    @QUICK
    @given(SAYABLE[cls].filter(lambda obj: not has_compat_wrapper(obj)))
    def keeps(obj):
        text = dumps(V03.dump(obj))
        assert V03.load(cls, loads(text), strict=False) == after_v03(obj)
        if b'"historyLength":0' not in text:  # in 0.3, 0 means no limit
            assert dumps(V03.dump(V03.load(cls, loads(text), strict=False))) == text

    keeps()


FLOWS = strategies.FLOWS.filter(lambda flow: not isinstance(flow, c.DeviceCodeOAuthFlow))
SCHEMES = strategies.SCHEMES.filter(lambda scheme: not isinstance(getattr(scheme, "flow", None), c.DeviceCodeOAuthFlow))
#: A strict reader requires the URLs of the deprecated flows too, which 1.0 does not.
VALID_SCHEMES = SCHEMES.filter(
    lambda scheme: all(
        getattr(getattr(scheme, "flow", None), url, "absent") for url in ("authorization_url", "token_url")
    )
)
V03_INTERFACES = st.builds(
    c.AgentInterface, url=ID, protocol_binding=ID, protocol_version=st.sampled_from(["0.3", "0.3.0", ""]), tenant=TEXT
)


@QUICK
@given(
    strategies.CARDS,
    tuples(V03_INTERFACES, min_size=1),
    st.dictionaries(TEXT, VALID_SCHEMES, max_size=2),
    maybe(st.just(True)),
)
def test_a_card_keeps_what_0_3_can_say(card, interfaces, schemes, extended):
    card = dataclasses.replace(
        card,
        supported_interfaces=(*card.supported_interfaces, *interfaces),
        security_schemes=schemes,
        capabilities=dataclasses.replace(card.capabilities, extended_agent_card=extended),
    )
    text = dumps(V03.dump(card))
    loaded = V03.load(c.AgentCard, loads(text))
    old = [one for one in card.supported_interfaces if not one.protocol_version or one.protocol_version[:2] == "0."]
    expected = dataclasses.replace(
        after_v03(card),
        supported_interfaces=tuple(dict.fromkeys(map(after_v03, old))),
        security_schemes={name: after_v03(scheme) for name, scheme in schemes.items()},
        capabilities=dataclasses.replace(after_v03(card.capabilities), extended_agent_card=extended),
    )
    assert loaded == expected
    assert V03.load(c.AgentCard, V03.dump(loaded)) == loaded


@QUICK
@given(SCHEMES)
def test_a_security_scheme_keeps_what_0_3_can_say(scheme):
    assert V03.load(c.SecurityScheme, loads(dumps(V03.dump(scheme))), strict=False) == after_v03(scheme)


@QUICK
@given(FLOWS)
def test_a_flow_keeps_what_0_3_can_say(flow):
    assert V03.load(c.OAuthFlow, V03.dump(flow), strict=False) == after_v03(flow)


@pytest.mark.parametrize("operation", SPOKEN, ids=lambda operation: operation.name)
def test_every_operation_s_request_and_result_survive(operation):
    requests = REQUESTS[operation.request].filter(lambda request: not has_compat_wrapper(request))
    results = RESULTS[operation.name].filter(lambda result: not has_compat_wrapper(result))
    if operation is GET_EXTENDED_CARD:
        results = st.none()

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
    @given(requests, results)
    def survives(request, result):
        if operation is not CREATE_PUSH_CONFIG:
            written = loads(dumps(V03.dump_request(operation, request)))
            assert V03.load_request(operation, written) == after_v03(request)
        if result is not None:
            written = loads(dumps(V03.dump_result(operation, result)))
            assert V03.load_result(operation, written) == after_v03(result)
        assert V03.operations[V03.method(operation)] is operation

    survives()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS.filter(lambda one: not has_compat_wrapper(one)))
def test_every_event_survives(sent):
    assert V03.load_event(loads(V03.encode_item(StreamItem(sent, 1)))) == after_v03(sent)


def test_every_type_but_the_list_s_can_be_said():
    known = {cls for cls in KINDS if isinstance(cls, type)}
    for module in (t, c):
        public = [cls for name, cls in vars(module).items() if not name.startswith("_")]
        model = {cls for cls in public if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__}
        assert model - known <= LATER


# -- what is written ----------------------------------------------------------------------------------------------------


def status_update(state):
    return t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=t.TaskStatus(state=state))


@pytest.mark.parametrize(
    ("state", "word", "final"),
    [
        (t.TaskState.SUBMITTED, "submitted", False),
        (t.TaskState.WORKING, "working", False),
        (t.TaskState.INPUT_REQUIRED, "input-required", True),
        (t.TaskState.AUTH_REQUIRED, "auth-required", False),
        (t.TaskState.COMPLETED, "completed", True),
        (t.TaskState.FAILED, "failed", True),
        (t.TaskState.CANCELED, "canceled", True),
        (t.TaskState.REJECTED, "rejected", True),
        (t.TaskState.UNSPECIFIED, "unknown", False),
    ],
)
def test_an_update_says_whether_it_ends_its_run(state, word, final):
    assert V03.dump_event(status_update(state)) == {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": word},
        "final": final,
    }


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (t.TextPart(""), {"kind": "text", "text": ""}),
        (t.TextPart("x", media_type="text/html", filename="x"), {"kind": "text", "text": "x"}),
        (t.DataPart({"a": 1}), {"kind": "data", "data": {"a": 1}}),
        (t.DataPart({}), {"kind": "data", "data": {}}),
        (t.DataPart(None), {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}}),
        (
            t.DataPart([1], metadata={"a": 1}),
            {"kind": "data", "data": {"value": [1]}, "metadata": {"a": 1, "data_part_compat": True}},
        ),
        (t.FilePart(raw=b""), {"kind": "file", "file": {"bytes": ""}}),
        (
            t.FilePart(raw=b"\xfb\xff", media_type="image/png", filename="a"),
            {"kind": "file", "file": {"bytes": "+/8=", "mimeType": "image/png", "name": "a"}},
        ),
        (t.FilePart(url="u", metadata={"a": 1}), {"kind": "file", "file": {"uri": "u"}, "metadata": {"a": 1}}),
    ],
)
def test_a_part_is_written_as_its_kind(part, value):
    assert V03.dump(part) == value
    assert V03.load(t.Part, value) == after_v03(part)


def test_blocking_is_always_written():
    def configuration(request):
        return V03.dump_request(SEND_MESSAGE, request)["configuration"]

    message = t.Message(role=t.Role.USER, parts=(t.TextPart("x"),))
    at_once = t.SendMessageConfiguration(return_immediately=True)
    assert configuration(t.SendMessageRequest(message=message)) == {"blocking": True}
    assert configuration(t.SendMessageRequest(message=message, configuration=at_once)) == {"blocking": False}


@pytest.mark.parametrize(
    ("configuration", "at_once"),
    [({}, False), ({"blocking": None}, False), ({"blocking": True}, False), ({"blocking": False}, True)],
)
def test_a_sender_that_does_not_say_waits(configuration, at_once):
    request = V03.load_request(SEND_MESSAGE, {"message": HELLO, "configuration": configuration})
    assert request.configuration.return_immediately is at_once


def test_an_unspecified_role_is_written_as_that_of_the_agent():
    assert V03.dump(t.Message(role=t.Role.UNSPECIFIED, parts=()))["role"] == "agent"


def test_a_history_of_0_is_all_of_it():
    assert V03.load_request(GET_TASK, {"id": "t", "historyLength": 0}).history_length is None
    assert V03.load_request(GET_TASK, {"id": "t", "historyLength": 3}).history_length == 3


def test_streams_that_encode_an_event_at_the_same_time_encode_it_once(monkeypatch):
    entry, encoded, both = Entry(3, status_update(t.TaskState.WORKING)), [], threading.Barrier(2)
    overlap = threading.Event()

    def encode(event):
        encoded.append(event)
        if len(encoded) > 1:
            overlap.set()
        # Time for the other stream, which must not come.
        overlap.wait(0.1)
        return b"{}"

    def stream():
        both.wait(30)
        return V03.encode_item(StreamItem.of(entry))

    monkeypatch.setattr(V03, "_encode_event", encode)
    with ThreadPoolExecutor(2) as pool:
        found = [one.result(30) for one in [pool.submit(stream) for _ in range(2)]]
    assert found == [b"{}"] * 2
    assert encoded == [entry.event]


def test_an_event_is_encoded_once_per_version():
    entry = Entry(3, status_update(t.TaskState.WORKING))
    first = V03.encode_item(entry)
    assert loads(first)["kind"] == "status-update"
    assert V03.encode_item(StreamItem(entry.event, 3, entry.encoded)) is first
    assert "statusUpdate" in loads(V10.encode_item(entry))
    assert V03.encode_item(entry) is first
    assert set(entry.encoded) == {"1.0", "0.3"}


def test_whatever_an_event_of_1_0_can_hold_fits_into_an_event_and_an_answer_of_0_3():
    data = []
    for _ in range(105):
        data = [data]
    message = t.Message(role=t.Role.AGENT, parts=(t.DataPart(data),))
    status = t.TaskStatus(state=t.TaskState.FAILED, message=message)
    update = t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=status)
    artifact = t.TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=t.Artifact(parts=message.parts))
    for one in (message, update, artifact):
        V10.encode_item(StreamItem(one))
        assert V03.encode_item(StreamItem(one))
    task = t.Task(
        id="t", context_id="c", status=status, history=(message,), artifacts=(t.Artifact(parts=message.parts),)
    )
    answer = write_result(1, V03.dump_result(GET_TASK, task))
    assert V03.load_result(GET_TASK, read_response(answer, V03)) == task


# -- cards --------------------------------------------------------------------------------------------------------------

CARD = {
    "protocolVersion": "0.3.0",
    "name": "n",
    "description": "d",
    "url": "http://a.test/",
    "version": "1",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "n", "description": "d", "tags": ["t"]}],
}


def interfaces(**members):
    card = V03.load(c.AgentCard, {**CARD, **members}, strict=False)
    return [(one.url, one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]


def test_a_card_s_addresses_are_its_main_one_and_then_the_others_each_once():
    main = ("http://a.test/", "JSONRPC", "0.3")
    assert interfaces() == [main]
    others = [
        {"url": "http://a.test/", "transport": "JSONRPC"},
        {"url": "http://a.test/", "transport": "HTTP+JSON"},
        {"url": "http://a.test/x", "transport": "JSONRPC"},
    ]
    assert interfaces(additionalInterfaces=others) == [
        main,
        ("http://a.test/", "HTTP+JSON", "0.3"),
        ("http://a.test/x", "JSONRPC", "0.3"),
    ]
    assert interfaces(preferredTransport="GRPC") == [("http://a.test/", "GRPC", "0.3")]


@pytest.mark.parametrize(("said", "meant"), [("0.3.0", "0.3"), ("0.3", "0.3"), ("0.2.6", "0.2"), (None, "0.3")])
def test_a_card_s_version_is_read_without_its_patch(said, meant):
    assert interfaces(protocolVersion=said)[0][2] == meant


def test_a_card_without_an_interface_of_0_3_cannot_be_said():
    card = c.AgentCard(
        name="n",
        description="",
        version="1",
        supported_interfaces=(c.AgentInterface(url="u", protocol_binding="JSONRPC", protocol_version="1.0"),),
    )
    with pytest.raises(ValueError, match=r"no interface of protocol 0\.3"):
        V03.dump(card)


def test_of_several_flows_the_first_in_the_protocol_s_order_is_kept():
    flows = {
        "password": {"tokenUrl": "p", "scopes": {}},
        "clientCredentials": {"tokenUrl": "c", "scopes": {}},
        "implicit": {"authorizationUrl": "i", "scopes": {}},
    }
    scheme = V03.load(c.SecurityScheme, {"type": "oauth2", "flows": flows})
    assert scheme.flow == c.ClientCredentialsOAuthFlow(token_url="c")


def test_a_device_flow_leaves_a_scheme_without_flows_that_cannot_be_read():
    flow = c.DeviceCodeOAuthFlow(device_authorization_url="d", token_url="t")
    scheme = c.OAuth2SecurityScheme(flow=flow)
    assert V03.dump(scheme) == {"type": "oauth2", "flows": {}}
    document = {**CARD, "securitySchemes": {"x": V03.dump(scheme), "y": {"type": "mutualTLS"}, "z": {"type": "new"}}}
    assert set(V03.load(c.AgentCard, document, strict=False).security_schemes) == {"y"}


# -- what is read -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (t.SendMessageRequest, {}, "message: is required"),
        (t.SendMessageRequest, {"message": 5}, "message: expected an object, got a number"),
        (t.SendMessageRequest, {"message": {**HELLO, "kind": "task"}}, "message.kind: must be message"),
        (t.SendMessageRequest, {"message": {**HELLO, "messageId": ""}}, "message.messageId: is required"),
        (t.SendMessageRequest, {"message": {**HELLO, "role": "ROLE_USER"}}, "message.role: 'ROLE_USER' is none of"),
        (t.SendMessageRequest, {"message": {**HELLO, "role": 1}}, "message.role: this number is none of user, agent"),
        (t.SendMessageRequest, {"message": {**HELLO, "parts": []}}, "message.parts: at least one is required"),
        (t.SendMessageRequest, {"message": {**HELLO, "parts": [5]}}, "message.parts[0]: expected an object, got a num"),
        (t.SendMessageRequest, {"message": {**HELLO, "parts": [{}]}}, "message.parts[0]: needs one of text, file, dat"),
        (
            t.SendMessageRequest,
            {"message": {**HELLO, "parts": [{"kind": "video"}]}},
            "message.parts[0].kind: 'video' is none of text, file, data",
        ),
        (t.Part, {"type": "video", "text": "x"}, "type: 'video' is none of text, file, data"),
        (t.Part, {"kind": "text"}, "text: is required"),
        (t.Part, {"kind": "text", "text": None}, "text: is required"),
        (t.Part, {"kind": "text", "text": 5}, "text: expected a string, got a number"),
        (t.Part, {"kind": "data", "data": 1}, "data: expected an object, got a number"),
        (t.Part, {"kind": "data", "text": "x"}, "data: is required"),
        (t.Part, {"kind": "file", "file": "x"}, "file: expected an object, got a string"),
        (t.Part, {"kind": "file", "file": {}}, "file: needs one of bytes, uri"),
        (t.Part, {"kind": "file", "file": {"bytes": "YQ==", "uri": "u"}}, "file: has both bytes and uri"),
        (t.Part, {"kind": "file", "file": {"bytes": "!"}}, "file.bytes: is not base64"),
        (t.Part, {"kind": "text", "text": "x", "metadata": 5}, "metadata: expected an object, got a number"),
        (t.GetTaskRequest, {"": 5}, "id: is required"),
        (t.GetTaskRequest, {"id": "t", "historyLength": "x"}, "historyLength: expected an integer, got 'x'"),
        (t.SendMessageConfiguration, {"blocking": "yes"}, "blocking: expected a boolean, got a string"),
        (t.SendMessageConfiguration, {"pushNotificationConfig": {}}, "pushNotificationConfig.url: is required"),
        (t.TaskPushNotificationConfig, {"pushNotificationConfig": {"url": "u"}}, "taskId: is required"),
        (t.TaskPushNotificationConfig, {"taskId": "t"}, "pushNotificationConfig: is required"),
        (
            t.TaskPushNotificationConfig,
            {"taskId": "t", "pushNotificationConfig": {"url": "u", "authentication": {"schemes": []}}},
            "pushNotificationConfig.authentication.schemes: is required",
        ),
        (t.DeleteTaskPushNotificationConfigRequest, {"id": "t"}, "pushNotificationConfigId: is required"),
        (t.GetTaskPushNotificationConfigRequest, {"pushNotificationConfigId": "x"}, "id: is required"),
        (c.SecurityScheme, {}, "type: is required"),
        (
            c.SecurityScheme,
            {"type": "telepathy"},
            "type: 'telepathy' is none of apiKey, http, oauth2, openIdConnect, m",
        ),
        (c.SecurityScheme, {"type": "oauth2", "flows": {}}, "flows: needs one of authorizationCode, clientCredentials"),
        (c.SecurityScheme, {"type": "oauth2", "flows": {"implicit": {}}}, "flows.implicit.authorizationUrl: is requir"),
        (c.AgentCard, {**CARD, "url": 5}, "url: expected a string, got a number"),
        (c.AgentCard, {**CARD, "additionalInterfaces": [{"url": "x"}]}, "additionalInterfaces[0].transport: is requir"),
    ],
)
def test_a_refusal_names_the_member_as_0_3_does(cls, value, message):
    assert refused(cls, value).startswith(message)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"text": "x"}, t.TextPart("x")),
        ({"file": {"uri": "u"}}, t.FilePart(url="u")),
        ({"data": {"a": 1}, "kind": None}, t.DataPart({"a": 1})),
        ({"type": "text", "text": "x"}, t.TextPart("x")),
        ({"kind": "data", "data": [1, {"a": None}]}, t.DataPart([1, {"a": None}])),
        ({"kind": "text", "text": "x", "colour": "red", "metadata": None}, t.TextPart("x")),
        ({"kind": "file", "file": {"bytes": "YQ", "uri": None, "mimeType": None}}, t.FilePart(raw=b"a")),
    ],
)
def test_a_part_without_its_kind_or_with_more_is_understood(value, part):
    assert V03.load(t.Part, value) == part


@pytest.mark.parametrize(
    ("value", "data", "metadata"),
    [
        ({"value": 5}, 5, {}),
        ({"value": None}, None, {}),
        ({"value": 5, "more": 1}, {"value": 5, "more": 1}, {"data_part_compat": True}),
        ({"value": {"a": 1}}, {"value": {"a": 1}}, {"data_part_compat": True}),
        ({}, {}, {"data_part_compat": True}),
    ],
)
def test_only_what_was_wrapped_is_unwrapped(value, data, metadata):
    loaded = V03.load(t.Part, {"kind": "data", "data": value, "metadata": {"data_part_compat": True}})
    assert loaded == t.DataPart(data, metadata=metadata)
    untouched = V03.load(t.Part, {"kind": "data", "data": value, "metadata": {"data_part_compat": "yes"}})
    assert untouched.data == value


@pytest.mark.parametrize(
    ("value", "cls"),
    [
        ({"id": "t", "status": WORKING}, t.Task),
        ({"messageId": "m", "role": "agent", "parts": [], "taskId": "t"}, t.Message),
        ({"taskId": "t", "contextId": "c", "status": WORKING, "final": False}, t.TaskStatusUpdateEvent),
        ({"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}, t.TaskArtifactUpdateEvent),
    ],
)
def test_an_event_without_its_kind_is_known_by_its_members(value, cls):
    assert type(V03.load_event(value)) is cls


@pytest.mark.parametrize("value", [None, [], "x", {}, {"kind": "news"}, {"kind": ["task"]}, {"kind": "task", "id": 5}])
def test_an_event_that_cannot_be_read_is_an_invalid_answer(value):
    with pytest.raises(DecodeError):
        V03.load_event(value)


def test_a_send_is_answered_with_a_task_or_a_message_and_nothing_else():
    assert type(V03.load_result(SEND_MESSAGE, HELLO)) is t.Message
    with pytest.raises(DecodeError):
        V03.load_result(SEND_MESSAGE, {"kind": "status-update", "taskId": "t", "status": WORKING})


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-09T10:30:00Z", datetime(2025, 11, 9, 10, 30, tzinfo=UTC)),
        ("2025-11-09T10:30:00.123456+00:00", datetime(2025, 11, 9, 10, 30, 0, 123456, tzinfo=UTC)),
        ("2025-11-09T10:30:00+02:00", datetime(2025, 11, 9, 8, 30, tzinfo=UTC)),
        ("2025-11-09T10:30:00", None),
        ("yesterday", None),
        (5, None),
    ],
)
def test_a_moment_of_any_offset_is_read_and_one_that_is_none_is_left_out(text, moment):
    task = V03.load_result(GET_TASK, {"id": "t", "status": {"state": "working", "timestamp": text}})
    assert (task.state, task.status.timestamp) == (t.TaskState.WORKING, moment)


@pytest.mark.parametrize(
    ("word", "state"), [("unknown", "unspecified"), ("dreaming", "unspecified"), ("", "unspecified")]
)
def test_an_unknown_state_of_a_peer_is_unspecified(word, state):
    assert V03.load_result(GET_TASK, {"id": "t", "status": {"state": word}}).state == state


def test_a_careless_peer_s_answers_are_read_with_defaults():
    assert V03.load_result(GET_TASK, {"id": "t"}) == t.Task(id="t", status=t.TaskStatus(state=t.TaskState.UNSPECIFIED))
    message = V03.load_event(
        {"kind": "message", "parts": [{"kind": "video"}, {"kind": "file", "file": {}}, {"text": "x"}]}
    )
    assert message == t.Message(role=t.Role.UNSPECIFIED, parts=(t.TextPart("x"),), message_id="")
    both = V03.load(t.Part, {"kind": "file", "file": {"bytes": "YQ==", "uri": "u"}}, strict=False)
    assert both == t.FilePart(raw=b"a")
    assert V03.load_result(LIST_PUSH_CONFIGS, []) == t.ListTaskPushNotificationConfigsResponse()
    assert V03.load_result(DELETE_PUSH_CONFIG, None) is None


def test_a_webhook_without_an_id_replaces_the_one_before():
    params = {"taskId": "t", "pushNotificationConfig": {"url": "u"}}
    assert V03.load_request(CREATE_PUSH_CONFIG, params) == t.TaskPushNotificationConfig(url="u", id="t", task_id="t")
    assert V03.load_result(CREATE_PUSH_CONFIG, params).id == ""
    assert V03.load_request(GET_PUSH_CONFIG, {"id": "t"}) == t.GetTaskPushNotificationConfigRequest(task_id="t")


def test_an_element_that_says_it_is_the_last_is_the_last():
    assert V03.ends_stream({"kind": "status-update", "final": True})
    for value in ({"final": False}, {"final": "true"}, {"kind": "task"}, [], None):
        assert not V03.ends_stream(value)
    assert not V10.ends_stream({"final": True})


# -- methods and errors -------------------------------------------------------------------------------------------------


def test_methods_have_the_old_names():
    assert V03.method(SEND_MESSAGE) == "message/send"
    assert V03.method(SUBSCRIBE_TO_TASK) == "tasks/resubscribe"
    assert V03.version == "0.3"


def test_tasks_cannot_be_listed():
    with pytest.raises(UnsupportedOperationError, match=r"Protocol 0\.3 has no ListTasks"):
        V03.method(LIST_TASKS)
    for name in ("tasks/list", "ListTasks", "message/Send", ""):
        assert name not in V03.operations


def test_no_method_is_of_two_versions():
    names = {codec: {codec.method(operation) for operation in SPOKEN} for codec in (V10, V03)}
    assert not names[V10] & names[V03]
    for codec, methods in names.items():
        assert {by_method(method) for method in methods} == {codec}
    with pytest.raises(MethodNotFoundError, match="There is no method 'x/y'"):
        by_method("x/y")


def test_an_error_without_a_code_in_0_3_goes_as_unsupported_and_still_says_what_it_is():
    written = V03.dump_error(ExtensionSupportRequiredError("urn:x is required"))
    assert written["code"] == -32004
    assert type(V03.load_error(written)) is ExtensionSupportRequiredError
    assert type(V03.load_error({"code": -32001, "message": "x", "data": None})) is TaskNotFoundError


@given(st.sampled_from(AgentError.__subclasses__()), st.text())
def test_every_error_survives_the_wire(cls, message):
    loaded = V03.load_error(loads(dumps(V03.dump_error(cls(message, metadata={"taskId": "t"})))))
    assert type(loaded) is cls
    assert (loaded.message, loaded.metadata) == (message or cls.default_message, {"taskId": "t"})


# -- junk ---------------------------------------------------------------------------------------------------------------

KEYS = sorted({name for one in KINDS.values() for member in getattr(one, "members", ()) for name in member.names})
WORDS = ["", "x", "user", "working", "text", "file", "data", "message", "task", "oauth2", "YQ==", "5"]
PARAMS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from([*KEYS, "kind", "type", "text", "file", "data", "bytes", "uri", "x"]), inner, max_size=5
        )
        | st.fixed_dictionaries({"message": st.just(HELLO)}, optional={"configuration": inner, "metadata": inner})
        | st.fixed_dictionaries({"message": st.builds(lambda part: {**HELLO, "parts": [part]}, inner)})
        | st.fixed_dictionaries({"id": st.just("t")}, optional={"historyLength": inner, "metadata": inner})
        | st.fixed_dictionaries({"taskId": st.just("t"), "pushNotificationConfig": inner})
    ),
    max_leaves=15,
)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from(SPOKEN), PARAMS)
def test_no_params_cause_anything_but_invalid_params(operation, params):
    try:
        request = V03.load_request(operation, params)
    except InvalidParamsError as invalid:
        event(f"refused: {invalid.message.split(':')[0][:20]}")
        return
    event("accepted")
    again = V03.load_request(operation, loads(dumps(V03.dump_request(operation, request))))
    assert again == after_v03(request)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from([t.StreamResponse, t.SendMessageResponse, c.AgentCard, c.SecurityScheme]), PARAMS)
def test_no_answer_causes_anything_but_an_invalid_answer(cls, value):
    with contextlib.suppress(DecodeError):
        loaded = V03.load(cls, value, strict=False)
        loads(dumps(V03.dump(loaded)))


def test_no_value_of_a_wrong_type_gets_into_a_member_and_breaks_what_is_written():
    junk = [5, 1.5, True, "x", [], [1], {}, {"a": 1}]
    for cls in SAYABLE:
        for member in getattr(KINDS[cls], "members", ()):
            for value in junk:
                with contextlib.suppress(DecodeError):
                    loaded = V03.load(cls, {member.name: value}, strict=False)
                    loads(dumps(V03.dump(loaded)))


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (t.Part, {"text": "x"}),
        (t.Message, {"messageId": "m", "role": "agent", "parts": [{"kind": "", "text": "x"}]}),
        (t.StreamResponse, {"id": "t", "contextId": "c", "status": WORKING}),
        (t.StreamResponse, {"taskId": "t", "contextId": "c", "status": WORKING}),
        (t.SendMessageResponse, {"messageId": "m", "role": "agent", "parts": []}),
    ],
)
def test_an_empty_kind_of_an_answer_is_read_as_an_absent_one(cls, value):
    found = V03.load(cls, {**value, "kind": ""}, strict=False)
    assert found is not None
    assert found == V03.load(cls, value, strict=False)


def test_a_part_of_a_request_may_not_have_an_empty_kind():
    with pytest.raises(InvalidParamsError, match="kind"):
        V03.load(t.Part, {"kind": "", "text": "x"})


@pytest.mark.parametrize("codec", [V03, by_version("0.3", "HTTP+JSON")], ids=["JSON-RPC", "HTTP+JSON"])
def test_all_schemes_of_a_webhook_are_kept(codec):
    info = t.AuthenticationInfo(scheme="Bearer", credentials="c", other_schemes=("Basic", "Digest"))
    config = t.TaskPushNotificationConfig(url="https://x.example/", id="w", task_id="t", authentication=info)
    written = codec.dump(config)
    assert written["pushNotificationConfig"]["authentication"]["schemes"] == ["Bearer", "Basic", "Digest"]
    assert codec.load(t.TaskPushNotificationConfig, written, strict=False).authentication == info


@pytest.mark.parametrize(
    ("said", "read"), [({"final": True}, True), ({"final": False}, False), ({}, None), ({"final": "yes"}, None)]
)
def test_what_a_peer_says_of_the_last_event_is_readable_and_never_repeated(said, read):
    event = {"taskId": "t", "contextId": "c", "status": WORKING}
    found = V03.load_event({**event, **said})
    assert found.final is read
    assert found == V03.load_event(event)
    assert V03.dump_event(found)["final"] is False
    proto = by_version("0.3", "HTTP+JSON")
    found = proto.load_event({"statusUpdate": {**event, "status": {"state": "TASK_STATE_WORKING"}, **said}})
    assert found.final is read
    assert "final" not in proto.dump_event(found)["statusUpdate"]
    assert "final" not in by_version("1.0").dump_event(found)["statusUpdate"]


@pytest.mark.parametrize("said", [True, False, None])
def test_a_card_s_state_transition_history_is_readable(said):
    capabilities = {"streaming": True} if said is None else {"streaming": True, "stateTransitionHistory": said}
    found = V03.load(c.AgentCapabilities, capabilities, strict=False)
    assert found.state_transition_history is said
    assert V03.dump(found) == capabilities
    assert by_version("1.0").dump(found) == {"streaming": True}
