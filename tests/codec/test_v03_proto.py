import contextlib
import dataclasses

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec import DecodeError, by_method, by_version
from a2a_sync.codec.v03 import METHODS
from a2a_sync.codec.v03.http import KINDS
from a2a_sync.errors import InvalidParamsError, MethodNotFoundError
from a2a_sync.jsontext import dumps, loads
from a2a_sync.lifecycle import Entry, ends_run
from a2a_sync.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
    GET_PUSH_CONFIG,
    GET_TASK,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
    StreamItem,
)
from tests import strategies, wire_examples
from tests.strategies import EVENTS, EVERY_TYPE, REQUESTS, RESULTS
from tests.v03_loss import after_v03, has_compat_wrapper
from tests.wire_examples import canonical

PROTO = by_version("0.3", "HTTP+JSON")
KIND = by_version("0.3")
QUICK = settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
SPOKEN = [operation for operation in OPERATIONS.values() if operation in METHODS]
HELLO = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}


def part(value):
    return PROTO.load(t.Part, value)


def refused(cls, value):
    with pytest.raises(InvalidParamsError) as caught:
        PROTO.load(cls, value)
    return caught.value.message


def sent(**configuration):
    value = {"message": HELLO, **({"configuration": configuration["of"]} if configuration else {})}
    return PROTO.load_request(SEND_MESSAGE, value)


# -- the protocol's examples --------------------------------------------------------------------------------------------

BODIES = {
    "Message": t.Message,
    "Part": t.Part,
    "Task": t.Task,
    "SendMessageRequest": t.SendMessageRequest,
    "SendMessageResponse": t.SendMessageResponse,
    "TaskPushNotificationConfig": t.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigResponse": t.ListTaskPushNotificationConfigsResponse,
    "StreamResponse": t.StreamResponse,
}
EXAMPLES = [
    (entry["file"], BODIES[entry["type"]], value)
    for entry in wire_examples.entries("rest-proto", "rest-proto-list", version="0.3")
    if entry["type"] in BODIES
    for content in [wire_examples.content(entry)]
    for value in (content if isinstance(content, list) else [content])
]


@pytest.mark.parametrize(("file", "cls", "value"), EXAMPLES, ids=lambda one: str(one)[:60])
def test_an_example_goes_through_the_objects_and_back(file, cls, value):
    obj = PROTO.load(cls, value)
    expected = canonical(value)
    if cls is t.SendMessageRequest:
        expected.setdefault("configuration", {"blocking": True})
    if "snake" in file:
        expected = canonical(PROTO.dump(PROTO.load(cls, camelled(value))))
    wrapped = cls in (t.SendMessageResponse, t.StreamResponse)
    assert canonical(PROTO.dump_event(obj) if wrapped else PROTO.dump(obj)) == expected


def camelled(value):
    text = dumps(value).decode().replace("message_id", "messageId").replace("accepted_output", "acceptedOutput")
    return loads(text.replace("acceptedOutput_modes", "acceptedOutputModes"))


def test_there_are_examples_of_every_body():
    assert {cls for _, cls, _ in EXAMPLES} == set(BODIES.values())
    assert len(EXAMPLES) == 19


def test_an_example_s_card_is_read_in_the_words_of_this_dialect():
    (entry,) = [one for one in wire_examples.entries("rest-proto", version="0.3") if one["type"] == "AgentCard"]
    card = PROTO.load_result(GET_EXTENDED_CARD, wire_examples.content(entry))
    assert card.security_schemes == {"key": c.APIKeySecurityScheme(location="header", name="X-API-Key")}
    assert card.security_requirements == (c.SecurityRequirement(schemes={"key": ()}),)
    assert [one.protocol_binding for one in card.supported_interfaces] == ["JSONRPC", "HTTP+JSON"]


SCHEMES = [
    c.APIKeySecurityScheme(location="header", name="X-API-Key", description="a key"),
    c.HTTPAuthSecurityScheme(scheme="Bearer", bearer_format="JWT"),
    c.OAuth2SecurityScheme(flow=c.ClientCredentialsOAuthFlow(token_url="https://t.test/", scopes={"read": "reads"})),
    c.OpenIdConnectSecurityScheme(open_id_connect_url="https://id.test/"),
    c.MutualTlsSecurityScheme(),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
def test_a_card_s_schemes_are_written_in_the_words_of_both_dialects(scheme):
    interface = c.AgentInterface(url="https://a.test/", protocol_binding="HTTP+JSON", protocol_version="0.3")
    card = c.AgentCard(
        name="known",
        description="with schemes",
        version="1",
        supported_interfaces=(interface,),
        security_schemes={"it": scheme},
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(c.AgentSkill(id="a", name="A", description="does", tags=("b",)),),
    )
    written = PROTO.dump(card)["securitySchemes"]["it"]
    own = {name: value for name, value in written.items() if name.endswith("SecurityScheme")}
    other = {name: value for name, value in written.items() if name not in own}
    for words in (own, other, written):
        assert len(words) > 0
        assert PROTO.load(c.AgentCard, {**PROTO.dump(card), "securitySchemes": {"it": words}}) == card


# -- from the objects and back ------------------------------------------------------------------------------------------

SAYABLE = {
    cls: strategy
    for cls, strategy in EVERY_TYPE.items()
    if cls in KINDS and cls not in (c.AgentCard, c.SecurityScheme, c.OAuthFlow)
}


@pytest.mark.parametrize("cls", SAYABLE, ids=lambda cls: getattr(cls, "__name__", str(cls)))
def test_every_object_keeps_what_the_dialect_can_say(cls):
    @QUICK
    @given(SAYABLE[cls].filter(lambda obj: not has_compat_wrapper(obj)))
    def keeps(obj):
        text = dumps(PROTO.dump(obj))
        loaded = PROTO.load(cls, loads(text), strict=False)
        assert loaded == after_v03(obj, proto=True)
        assert PROTO.load(cls, loads(dumps(PROTO.dump(loaded))), strict=False) == loaded

    keeps()


@pytest.mark.parametrize("operation", SPOKEN, ids=lambda operation: operation.name)
def test_every_operation_s_request_and_result_survive(operation):
    requests = REQUESTS[operation.request].filter(lambda request: not has_compat_wrapper(request))
    results = RESULTS[operation.name].filter(lambda result: not has_compat_wrapper(result))
    if operation is GET_EXTENDED_CARD:
        results = st.none()

    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
    @given(requests, results)
    def survives(request, result):
        if operation is not CREATE_PUSH_CONFIG or request.task_id:
            written = loads(dumps(PROTO.dump_request(operation, request)))
            expected = after_v03(request, proto=True)
            if operation is CREATE_PUSH_CONFIG:
                expected = dataclasses.replace(expected, id=expected.id or expected.task_id)
            assert PROTO.load_request(operation, written) == expected
        if result is not None:
            written = loads(dumps(PROTO.dump_result(operation, result)))
            assert PROTO.load_result(operation, written) == after_v03(result, proto=True)

    survives()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS.filter(lambda one: not has_compat_wrapper(one)))
def test_every_event_survives_and_says_whether_it_is_the_last(sent):
    item = StreamItem(sent, 1)
    value = loads(PROTO.encode_item(item))
    assert len(value) == 1
    assert PROTO.load_event(value) == after_v03(sent, proto=True)
    assert PROTO.ends_stream(value) == ends_run(sent)


def test_an_event_is_encoded_once_for_each_dialect():
    entry = Entry(
        1, t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=t.TaskStatus(state=t.TaskState.CANCELED))
    )
    for codec in (PROTO, KIND, by_version("1.0"), by_version("1.0", "HTTP+JSON")):
        assert codec.encode_item(entry) is codec.encode_item(entry)
    assert len(set(entry.encoded.values())) == 3


# -- what is written ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in t.TaskState if state is not t.TaskState.UNSPECIFIED])
def test_a_state_has_the_proto_s_name(state):
    name = "TASK_STATE_" + state.value.upper().replace("-", "_").replace("CANCELED", "CANCELLED")
    assert PROTO.dump(t.TaskStatus(state=state)) == {"state": name}
    number = list(KINDS_IN_ORDER).index(name)
    for said in (name, number):
        assert PROTO.load(t.TaskStatus, {"state": said}).state is state


KINDS_IN_ORDER = (
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELLED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
)


def test_an_unspecified_state_is_left_out_and_an_unspecified_role_is_the_agent_s():
    assert PROTO.dump(t.TaskStatus(state=t.TaskState.UNSPECIFIED)) == {}
    assert PROTO.dump(t.Message(role=t.Role.UNSPECIFIED, parts=(), message_id="m"))["role"] == "ROLE_AGENT"


def test_canceled_is_read_with_one_l_too():
    assert PROTO.load(t.TaskStatus, {"state": "TASK_STATE_CANCELED"}).state is t.TaskState.CANCELED


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (t.TextPart("x"), {"text": "x"}),
        (t.TextPart("", metadata={"a": 1}), {"text": "", "metadata": {"a": 1}}),
        (
            t.FilePart(raw=b"\xfb\xff", filename="f", media_type="image/png"),
            {"file": {"fileWithBytes": "+/8=", "mimeType": "image/png", "name": "f"}},
        ),
        (t.FilePart(url="https://x.test"), {"file": {"fileWithUri": "https://x.test"}}),
        (t.DataPart({"a": 1}), {"data": {"data": {"a": 1}}}),
        (t.DataPart([1]), {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}}),
        (t.DataPart(None), {"data": {"data": {"value": None}}, "metadata": {"data_part_compat": True}}),
    ],
)
def test_a_part_is_known_by_its_one_content(part, value):
    assert PROTO.dump(part) == value
    assert PROTO.load(t.Part, value) == part


def test_what_is_false_or_unknown_to_the_proto_is_not_written():
    """Official readers refuse members that they do not know."""
    message = t.Message(role=t.Role.USER, parts=(t.TextPart("x"),), message_id="m", reference_task_ids=("t",))
    assert PROTO.dump(message) == {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}
    status = t.TaskStatus(state=t.TaskState.WORKING)
    update = PROTO.dump_event(t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=status))
    assert update == {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
    assert PROTO.dump_request(CANCEL_TASK, t.CancelTaskRequest(id="t", metadata={"why": 1})) == {
        "id": "t",
        "name": "tasks/t",
    }


def test_blocking_is_always_written():
    message = t.Message(role=t.Role.USER, parts=(t.TextPart("x"),), message_id="m")
    written = PROTO.dump_request(SEND_MESSAGE, t.SendMessageRequest(message=message))
    assert written["configuration"] == {"blocking": True}
    at_once = t.SendMessageRequest(message=message, configuration=t.SendMessageConfiguration(return_immediately=True))
    assert PROTO.dump_request(SEND_MESSAGE, at_once)["configuration"] == {"blocking": False}


@pytest.mark.parametrize(
    ("configuration", "at_once"),
    [({}, True), ({"blocking": None}, True), ({"blocking": False}, True), ({"blocking": True}, False)],
)
def test_a_configuration_that_does_not_say_does_not_block(configuration, at_once):
    """A proto leaves out what is false."""
    assert sent(of=configuration).configuration.return_immediately is at_once


def test_a_send_without_a_configuration_waits():
    assert sent().configuration is None


# -- webhooks -----------------------------------------------------------------------------------------------------------

HOOK = {"url": "https://x.test"}


@pytest.mark.parametrize(
    ("body", "id"),
    [
        ({"parent": "tasks/t", "configId": "c", "config": {"pushNotificationConfig": HOOK}}, "c"),
        ({"parent": "tasks/t", "config_id": "c", "config": {"push_notification_config": HOOK}}, "c"),
        ({"configId": "c", "config": {"pushNotificationConfig": {**HOOK, "id": "d"}}}, "c"),
        ({"config": {"pushNotificationConfig": {**HOOK, "id": "c"}}}, "c"),
        ({"config": {"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": HOOK}}, "c"),
        ({"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": HOOK}, "c"),
        ({"pushNotificationConfig": HOOK}, "t"),
        ({"taskId": "other", "pushNotificationConfig": HOOK}, "t"),
    ],
)
def test_a_webhook_is_set_in_each_of_the_forms_that_clients_use(body, id):
    config = PROTO.load_request(CREATE_PUSH_CONFIG, {**body, "taskId": "t"})
    assert config == t.TaskPushNotificationConfig(task_id="t", id=id, url="https://x.test")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "pushNotificationConfig: is required"),
        ({"config": {}}, "config.pushNotificationConfig: is required"),
        ({"config": {"pushNotificationConfig": {}}}, "config.pushNotificationConfig.url: is required"),
        ({"config": 5}, "config: expected an object, got a number"),
        ({"configId": 5, "pushNotificationConfig": HOOK}, "configId: expected a string, got a number"),
        ({"name": 5, "pushNotificationConfig": HOOK}, "name: expected a string, got a number"),
    ],
)
def test_a_webhook_that_is_none_names_its_member(body, message):
    with pytest.raises(InvalidParamsError) as caught:
        PROTO.load_request(CREATE_PUSH_CONFIG, {**body, "taskId": "t"})
    assert caught.value.message == message


def test_an_authentication_without_members_is_none():
    body = {"config": {"pushNotificationConfig": {"url": "u", "token": "", "authentication": {}}}, "taskId": "t"}
    assert PROTO.load_request(CREATE_PUSH_CONFIG, body).authentication is None


def test_a_webhook_is_written_with_its_name():
    config = t.TaskPushNotificationConfig(task_id="t", id="c", url="u")
    named = {"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"id": "c", "url": "u"}}
    assert PROTO.dump(config) == named
    assert PROTO.dump_request(CREATE_PUSH_CONFIG, config) == {
        "taskId": "t",
        "parent": "tasks/t",
        "configId": "c",
        "config": named,
    }
    assert PROTO.dump_request(GET_PUSH_CONFIG, t.GetTaskPushNotificationConfigRequest(task_id="t", id="c")) == {
        "taskId": "t",
        "id": "c",
    }


@pytest.mark.parametrize("ids", [("a/b", "c"), ("t", "a/b"), ("/pushNotificationConfigs/", "c"), ("t", "")])
def test_ids_of_any_letters_come_back_out_of_a_name(ids):
    config = t.TaskPushNotificationConfig(task_id=ids[0], id=ids[1], url="u")
    assert PROTO.load(t.TaskPushNotificationConfig, PROTO.dump(config), strict=False) == config


# -- what is read in the other dialect ----------------------------------------------------------------------------------


@QUICK
@given(strategies.REQUESTS[t.SendMessageRequest].filter(lambda request: not has_compat_wrapper(request)))
def test_a_send_in_the_other_dialect_is_understood(request):
    written = loads(dumps(KIND.dump_request(SEND_MESSAGE, request)))
    assert PROTO.load_request(SEND_MESSAGE, written) == after_v03(request)


@QUICK
@given(EVENTS.filter(lambda one: not has_compat_wrapper(one)))
def test_an_answer_in_the_other_dialect_is_understood(answer):
    written = loads(dumps(KIND.dump_event(answer)))
    assert PROTO.load_event(written) == after_v03(answer)
    assert PROTO.ends_stream(written) == ends_run(answer)
    if isinstance(answer, t.Task):
        assert PROTO.load_result(GET_TASK, written) == after_v03(answer)
    if isinstance(answer, (t.Task, t.Message)):
        assert PROTO.load_result(SEND_MESSAGE, written) == after_v03(answer)


def test_the_proto_s_own_names_are_read():
    """Some writers of a proto's JSON keep them."""
    assert PROTO.load_request(SEND_MESSAGE, {"request": HELLO}).message.text == "hi"
    assert PROTO.load_result(SEND_MESSAGE, {"msg": HELLO}).text == "hi"
    status = PROTO.load(t.TaskStatus, {"state": 6, "update": HELLO})
    assert (status.state, status.message.text) == (t.TaskState.INPUT_REQUIRED, "hi")
    file = {"file": {"file_with_bytes": "YQ==", "mime_type": "text/plain"}}
    assert part(file) == t.FilePart(raw=b"a", media_type="text/plain")


# -- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "message: is required"),
        ({"message": {"messageId": "m", "role": "ROLE_USER"}}, "message.content: at least one is required"),
        ({"message": {**HELLO, "role": "user"}}, "message.role: 'user' is none of ROLE_USER, ROLE_AGENT"),
        ({"message": {**HELLO, "content": [{}]}}, "message.content[0]: needs one of text, file, data"),
        ({"message": {**HELLO, "content": [{"file": {}}]}}, "message.content[0].file: needs one of fileWithBytes, "),
        (
            {"message": {**HELLO, "content": [{"file": {"fileWithBytes": "?"}}]}},
            "message.content[0].file.fileWithBytes",
        ),
        ({"message": {**HELLO, "content": [{"data": {}}]}}, "message.content[0].data.data: is required"),
        (
            {"message": {**HELLO, "content": [{"data": {"data": 5}}]}},
            "message.content[0].data.data: expected an object",
        ),
        ({"message": HELLO, "configuration": {"blocking": "yes"}}, "configuration.blocking: expected a boolean"),
        ({"message": HELLO, "configuration": []}, "configuration: expected an object"),
        ({"message": HELLO, "configuration": {"pushNotification": {}}}, "configuration.pushNotification.url"),
        ({"message": {"kind": "message", **HELLO}}, "message.role: 'ROLE_USER' is none of user, agent"),
    ],
)
def test_a_refusal_names_the_member_as_the_dialect_does(value, message):
    assert refused(t.SendMessageRequest, value).startswith(message)


def test_its_methods_are_those_of_0_3_and_listing_tasks_which_json_rpc_has_not():
    assert PROTO.method(LIST_TASKS) == "tasks/list"
    assert PROTO.version == "0.3"
    assert by_method("message/send") is KIND
    with pytest.raises(MethodNotFoundError):
        by_method("tasks/list")


SCALARS = st.none() | st.booleans() | st.integers(-3, 10) | st.sampled_from(["x", "ROLE_USER", "TASK_STATE_WORKING"])
KEYS = st.sampled_from(
    [
        *("message", "messageId", "role", "content", "parts", "text", "file", "data", "fileWithBytes", "fileWithUri"),
        *("kind", "configuration", "blocking", "id", "taskId", "config", "configId", "pushNotificationConfig", "name"),
        *("url", "task", "status", "state", "statusUpdate", "artifactUpdate", "artifact", "metadata", "msg", "request"),
    ]
)
PARAMS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=15
)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from(SPOKEN), PARAMS)
def test_no_params_cause_anything_but_invalid_params(operation, params):
    try:
        request = PROTO.load_request(operation, params)
    except InvalidParamsError:
        return
    event("accepted")
    again = PROTO.load_request(operation, loads(dumps(PROTO.dump_request(operation, request))))
    assert again == after_v03(request, proto=True)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from([t.StreamResponse, t.SendMessageResponse, t.Task, t.TaskPushNotificationConfig]), PARAMS)
def test_no_answer_causes_anything_but_an_invalid_answer(cls, value):
    with contextlib.suppress(DecodeError):
        loads(dumps(PROTO.dump(PROTO.load(cls, value, strict=False))))
