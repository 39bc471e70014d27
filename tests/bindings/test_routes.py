import pytest

from a2a_sync.bindings.routes import Paths, WrongVerbError, routes_of, write_path
from a2a_sync.errors import InvalidParamsError
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

BOTH, NEW, OLD = Paths(("1.0", "0.3")), Paths(("1.0",)), Paths(("0.3",))
CONFIGS = "/tasks/t/pushNotificationConfigs"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_every_operation_has_one_row(version):
    assert sorted(route.operation.name for route in routes_of(version)) == sorted(OPERATIONS)


# -- finding ------------------------------------------------------------------------------------------------------


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
    for found in (BOTH, NEW):
        for prefix, tenant in (("", {}), ("/acme%20x", {"tenant": "acme x"})):
            place = found.find(prefix + path)
            assert (place.version, place.operation(verb)) == ("1.0", operation)
            assert place.members == {**tenant, **members}
    for found in (BOTH, OLD):
        place = found.find("/v1" + path.replace("extendedAgentCard", "card"))
        assert (place.version, place.operation(verb)) == ("0.3", operation)
        assert place.members == members


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
        "/message:send/v1",
    ],
)
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_other_paths_are_none_of_the_protocol(prefix, path):
    for paths in (BOTH, OLD):
        assert paths.find(prefix + path) is None
    assert NEW.find(path) is None


@pytest.mark.parametrize(
    "path",
    ["/v1/extendedAgentCard", "/v%31/tasks", "/v1/acme/tasks", "/acme/v1/tasks", "/v1", "/v1/", "/v1/v1/message:send"],
)
def test_a_tenant_cannot_have_the_name_that_paths_of_0_3_begin_with(path):
    assert BOTH.find(path) is None
    assert OLD.find(path) is None


def test_where_only_1_0_is_served_v1_is_a_tenant_like_others():
    assert NEW.find("/v1/tasks").members == {"tenant": "v1"}
    assert OLD.find("/tasks") is None


@pytest.mark.parametrize(
    ("path", "version"), [("/v1/nothing", "0.3"), ("/v1/tasks", "0.3"), ("/nothing", "1.0"), ("/v1x", "1.0")]
)
def test_a_path_is_of_a_version_even_if_nothing_is_there(path, version):
    assert BOTH.version(path) == version
    assert (NEW.version(path), OLD.version(path)) == ("1.0", "0.3")


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
def test_another_verb_gets_the_allowed_ones(path, verb, allowed):
    with pytest.raises(WrongVerbError) as caught:
        BOTH.find(path).operation(verb)
    assert (caught.value.http_status, caught.value.allowed) == (405, allowed)
    assert caught.value.grpc_status == "UNIMPLEMENTED"


def test_a_path_that_is_not_utf_8_names_its_member():
    with pytest.raises(InvalidParamsError) as caught:
        BOTH.find("/tasks/%ff")
    assert caught.value.violations[0].field == "id"


# -- writing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ["tasks", ".", "..", "v1"])
def test_a_tenant_that_cannot_stand_in_front_stays_among_the_params(tenant):
    params = {"id": "t", "tenant": tenant}
    _, path = write_path("1.0", GET_TASK, params)
    assert (path, params) == ("/tasks/t", {"tenant": tenant})


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_that_no_path_can_hold_is_refused(id, version):
    with pytest.raises(InvalidParamsError):
        write_path(version, GET_TASK, {"id": id})


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_what_is_written_is_found_again(operation, version):
    params = {"id": "a/b:cancel", "taskId": "é%", "tenant": "x/y"}
    route, path = write_path(version, operation, dict(params))
    place = BOTH.find(path)
    assert (place.version, place.operation(route.verb)) == (version, operation)
    assert place.members.items() <= params.items()
    assert ("tenant" in place.members) == (version == "1.0")
