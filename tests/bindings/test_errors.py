"""Every error of the protocol over every binding in every version: what the server says of it, and what the client makes of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, AgentError, Client, errors
from a2a_sync.bindings import http_json, jsonrpc
from a2a_sync.codec import by_version
from a2a_sync.errors import ExtensionSupportRequiredError, FieldViolation, UnsupportedOperationError
from a2a_sync.testing import wsgi_session
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import Answer, Peer, rpc

pytestmark = pytest.mark.timeout(60)

CLASSES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type)
    and issubclass(cls, AgentError)
    and cls is not AgentError
    and cls.__module__ == errors.__name__
]
WAYS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
GET_TASK = {"1.0": "GetTask", "0.3": "tasks/get"}
TYPE = "type.googleapis.com/google.rpc."

every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
every_way = pytest.mark.parametrize(("binding", "version"), WAYS, ids=lambda one: one)


class Raised:
    """An app whose every call ends with the error in `error`, before a stream or in its middle."""

    def __init__(self) -> None:
        self.error = AgentError()
        self.in_streams = False
        self.app = A2AApp(ScenarioAgent(), interceptors=[self.around])
        self.peer = Peer(self.app)

    def around(self, endpoint: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(call: Any) -> Any:
            if call.operation.streaming and self.in_streams:
                return Breaking(self.error)
            raise self.error

        return call

    def asked(self, binding: str, version: str) -> Answer:
        headers = {"A2A-Version": version, "Content-Type": "application/json"}
        if binding == "JSONRPC":
            return self.peer.request("POST", "/", rpc(GET_TASK[version], {"id": "t"}), headers)
        return self.peer.request("GET", "/v1/tasks/t" if version == "0.3" else "/tasks/t", headers=headers)

    def client(self, binding: str, version: str) -> Client:
        session = wsgi_session(self.app)
        return Client(
            "http://agent.test", session=session, protocol_binding=binding, protocol_version=version, retry=None
        )


class Breaking:
    """A stream whose only event is an error."""

    def __init__(self, error: AgentError) -> None:
        self._error = error

    def poll(self, timeout: float) -> Any:
        raise self._error

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def raised() -> Iterator[Raised]:
    raised = Raised()
    yield raised
    raised.app.close(0)


def made(cls: type[AgentError]) -> AgentError:
    violations = (FieldViolation("message.parts[0]", "is odd"), FieldViolation("id", "is even"))
    return cls("what happened, é", metadata={"taskId": "t"}, violations=violations, retry_after=7.0)


def details(cls: type[AgentError]) -> list[dict[str, Any]]:
    info = {"reason": cls.reason, "domain": "a2a-protocol.org", "metadata": {"taskId": "t"}}
    violations = [
        {"field": "message.parts[0]", "description": "is odd"},
        {"field": "id", "description": "is even"},
    ]
    return [
        {"@type": TYPE + "ErrorInfo", **info},
        {"@type": TYPE + "BadRequest", "fieldViolations": violations},
        {"@type": TYPE + "RetryInfo", "retryDelay": "7s"},
    ]


def code(cls: type[AgentError], version: str) -> int:
    """That of JSON-RPC. 0.3 has none for required extensions."""
    return (
        UnsupportedOperationError.jsonrpc_code
        if (cls, version) == (ExtensionSupportRequiredError, "0.3")
        else cls.jsonrpc_code
    )


def test_no_class_is_left_out() -> None:
    assert len(CLASSES) >= 18
    assert len({cls.reason for cls in CLASSES}) == len(CLASSES)


# -- what the server says -----------------------------------------------------------------------------------------------


@every_way
@every_class
def test_the_server_says_all_of_it(cls: type[AgentError], binding: str, version: str, raised: Raised) -> None:
    raised.error = made(cls)
    answer = raised.asked(binding, version)

    said = {"message": "what happened, é", "details": details(cls)}
    if binding == "JSONRPC":
        error = {"code": code(cls, version), "message": said["message"], "data": said["details"]}
        assert answer.json == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert answer.status == cls.rpc_http_status
    else:
        expected: dict[str, Any] = {"error": {"code": cls.http_status, "status": cls.grpc_status, **said}}
        if version == "0.3":
            expected |= {"type": cls.__name__, "code": code(cls, version), "message": said["message"]}
        assert answer.json == expected
        assert answer.status == cls.http_status
    assert answer.headers["Retry-After"] == "7"
    assert answer.headers["Content-Type"] == "application/json"


# -- what the client makes of it ----------------------------------------------------------------------------------------


@every_way
@every_class
def test_the_client_raises_the_same(cls: type[AgentError], binding: str, version: str, raised: Raised) -> None:
    raised.error = made(cls)
    with raised.client(binding, version) as client:
        for call in (
            lambda: client.get_task("t"),
            lambda: client.cancel_task("t"),
            lambda: client.send("hi", return_immediately=True),
            lambda: client.subscribe("t"),
        ):
            with pytest.raises(cls) as caught:
                call()
            check(caught.value, cls)


@every_way
@every_class
def test_the_client_raises_what_comes_in_a_stream(
    cls: type[AgentError], binding: str, version: str, raised: Raised
) -> None:
    raised.error, raised.in_streams = made(cls), True
    try:
        with raised.client(binding, version) as client, client.stream("hi") as stream, pytest.raises(cls) as caught:
            next(stream)
    finally:
        raised.in_streams = False
    check(caught.value, cls)


def check(error: AgentError, cls: type[AgentError]) -> None:
    wanted = made(cls)
    assert type(error) is cls
    assert (error.message, error.metadata, error.violations) == (wanted.message, wanted.metadata, wanted.violations)
    assert (error.retry_after, error.reason, error.http_status) == (7.0, cls.reason, cls.http_status)


# -- what others say ----------------------------------------------------------------------------------------------------


def understood(binding: str, version: str, body: dict[str, Any], status: int) -> AgentError:
    """The error that the client sees in a foreign answer."""
    codec = by_version(version, binding)
    written = json.dumps(body).encode()
    try:
        if binding == "JSONRPC":
            jsonrpc.read_response(written, codec)
        else:
            http_json.read_answer(written, status, codec)
    except AgentError as error:
        return error
    raise AssertionError("no error was seen")


def foreign(binding: str, version: str, code: int, status: int, details: list[Any]) -> dict[str, Any]:
    if binding == "JSONRPC":
        return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "m", "data": details}}
    body = {"error": {"code": status, "status": "UNKNOWN", "message": "m", "details": details}}
    return {**body, "code": code, "message": "m"} if version == "0.3" else body


@every_way
@every_class
def test_a_reason_outranks_code_and_status(cls: type[AgentError], binding: str, version: str) -> None:
    """Releases of the protocol gave the same error other codes and statuses, never another reason."""
    info = {"@type": TYPE + "ErrorInfo", "reason": cls.reason, "domain": "a2a-protocol.org"}
    for other in (errors.TaskNotCancelableError, errors.InvalidAgentResponseError):
        body = foreign(binding, version, other.jsonrpc_code, 409, [{"@type": TYPE + "Help"}, info])
        assert type(understood(binding, version, body, 409)) is cls


@pytest.mark.parametrize(("binding", "version"), [way for way in WAYS if way != ("HTTP+JSON", "1.0")])
@every_class
def test_without_a_reason_the_code_decides_if_there_is_one(cls: type[AgentError], binding: str, version: str) -> None:
    error = understood(binding, version, foreign(binding, version, cls.jsonrpc_code, 500, []), 500)
    assert error.jsonrpc_code == cls.jsonrpc_code
    assert isinstance(error, errors.InvalidRequestError if cls.jsonrpc_code == -32600 else cls)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, errors.InvalidParamsError),
        (401, errors.UnauthenticatedError),
        (403, errors.PermissionDeniedError),
        (404, errors.TaskNotFoundError),
        (409, errors.TaskNotCancelableError),
        (413, errors.RequestTooLargeError),
        (415, errors.ContentTypeNotSupportedError),
        (429, errors.OverloadedError),
        (500, errors.InternalError),
        (501, errors.UnsupportedOperationError),
        (502, errors.InvalidAgentResponseError),
    ],
)
def test_without_either_the_status_decides(status: int, cls: type[AgentError], version: str) -> None:
    body = {"error": {"code": status, "status": "UNKNOWN", "message": "m"}}
    assert type(understood("HTTP+JSON", version, body, status)) is cls


@every_way
def test_an_unknown_error_keeps_the_text_of_the_peer(binding: str, version: str) -> None:
    info = {"@type": TYPE + "ErrorInfo", "reason": "NEWS", "domain": "x.test", "metadata": {"k": ["v"]}}
    error = understood(binding, version, foreign(binding, version, -32050, 418, [info, 5, {}]), 418)
    assert type(error) is AgentError
    assert (error.reason, error.message, error.metadata) == ("NEWS", "m", {"k": '["v"]'})
