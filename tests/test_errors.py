import copy
import pickle
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import a2a_sync
from a2a_sync import errors
from a2a_sync.errors import (
    A2AError,
    AgentError,
    ConnectError,
    FieldViolation,
    HTTPStatusError,
    InternalError,
    InvalidCardError,
    InvalidParamsError,
    InvalidRequestError,
    RequestTooLargeError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TransportError,
    TransportTimeoutError,
    UnsafeURLError,
    error_from_wire,
)
from a2a_sync.stores.base import StoreConflict
from a2a_sync.webhooks import NotificationRefusedError
from tests.frameworks import without_framework

#: Spec 5.4 and 9.5: JSON-RPC code, HTTP status, gRPC status and reason.
TABLE = """
JSONParseError                       -32700 400 INVALID_ARGUMENT    PARSE_ERROR
InvalidRequestError                  -32600 400 INVALID_ARGUMENT    INVALID_REQUEST
MethodNotFoundError                  -32601 404 NOT_FOUND           METHOD_NOT_FOUND
InvalidParamsError                   -32602 400 INVALID_ARGUMENT    INVALID_PARAMS
InternalError                        -32603 500 INTERNAL            INTERNAL_ERROR
TaskNotFoundError                    -32001 404 NOT_FOUND           TASK_NOT_FOUND
TaskNotCancelableError               -32002 400 FAILED_PRECONDITION TASK_NOT_CANCELABLE
PushNotificationNotSupportedError    -32003 400 FAILED_PRECONDITION PUSH_NOTIFICATION_NOT_SUPPORTED
UnsupportedOperationError            -32004 400 FAILED_PRECONDITION UNSUPPORTED_OPERATION
ContentTypeNotSupportedError         -32005 400 INVALID_ARGUMENT    CONTENT_TYPE_NOT_SUPPORTED
InvalidAgentResponseError            -32006 500 INTERNAL            INVALID_AGENT_RESPONSE
ExtendedAgentCardNotConfiguredError  -32007 400 FAILED_PRECONDITION EXTENDED_AGENT_CARD_NOT_CONFIGURED
ExtensionSupportRequiredError        -32008 400 FAILED_PRECONDITION EXTENSION_SUPPORT_REQUIRED
VersionNotSupportedError             -32009 400 FAILED_PRECONDITION VERSION_NOT_SUPPORTED
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_the_text_of_a_peers_error_is_limited():
    text = error_from_wire(code=-32001, message="x" * 1_500_000).message
    assert text == "x" * 1_000_000 + "\n\n[500000 more characters were left out]"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_error_is_its_row_of_the_table(row):
    cls = getattr(errors, row[0])
    assert [cls.__name__, str(cls.jsonrpc_code), str(cls.http_status), cls.grpc_status, cls.reason] == row
    assert cls().message == cls.default_message


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_error_is_known_by_its_reason_and_by_its_code(row):
    cls = getattr(errors, row[0])
    assert type(error_from_wire(reason=cls.reason, code=1, message="m")) is cls
    assert type(error_from_wire(code=cls.jsonrpc_code)) is cls


def test_a_reason_outranks_a_code_and_the_narrower_class_is_known_too():
    assert type(error_from_wire(reason="TASK_NOT_FOUND", code=TaskNotCancelableError.jsonrpc_code)) is TaskNotFoundError
    assert type(error_from_wire(reason="REQUEST_TOO_LARGE", code=-32600)) is RequestTooLargeError
    assert type(error_from_wire(code=-32600)) is InvalidRequestError
    assert type(error_from_wire(reason="UNHEARD_OF", code=-32603)) is InternalError


def test_a_reason_is_no_longer_than_one_may_be():
    # A handler that lets it through repeats it to its own callers.
    assert error_from_wire(reason="R" * 1_000_000, code=-32050).reason == "R" * 63


def test_an_unknown_error_keeps_what_the_peer_said():
    error = error_from_wire(reason="UNHEARD_OF", code=-32050, message="no", metadata={"k": "v"}, retry_after=2.0)
    assert type(error) is AgentError
    assert (error.reason, error.jsonrpc_code, error.message) == ("UNHEARD_OF", -32050, "no")
    assert (error.metadata, error.retry_after) == ({"k": "v"}, 2.0)
    assert (AgentError.jsonrpc_code, AgentError.reason) == (-32603, "INTERNAL_ERROR")


def test_a_wrong_member_is_named_in_the_message_and_in_the_details():
    error = InvalidParamsError.at("message.parts", "at least one is required")
    assert str(error) == "message.parts: at least one is required"
    assert error.violations == (FieldViolation("message.parts", "at least one is required"),)


def test_a_transport_error_says_where_it_happened():
    assert str(ConnectError("refused", phase="connect", agent="http://a")) == "refused [connect http://a]"
    error = TransportTimeoutError("no event in 5 s", phase="stream", agent="http://a", task_id="t")
    assert str(error) == "no event in 5 s [stream http://a, task t]"
    assert isinstance(error, TimeoutError)


@pytest.mark.parametrize(
    "error",
    [
        InvalidParamsError.at("a", "b"),
        error_from_wire(code=-32050, reason="UNHEARD_OF", message="m", metadata={"k": "v"}),
        ConnectError("m", phase="connect", agent="http://a", task_id="t"),
        TransportTimeoutError("m", phase="send"),
        HTTPStatusError("m", status_code=503, phase="send", retry_after=1.5),
        InvalidCardError([FieldViolation("name", "required")]),
        UnsafeURLError("m", hint="h"),
        NotificationRefusedError(403, "m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_borders(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_answers_of_agents_and_failures_of_the_network_are_separate_branches():
    assert not issubclass(TransportError, AgentError)
    assert not issubclass(AgentError, TransportError)


#: Exceptions that are not below the root, each with the reason.
OUTSIDE = {
    "TaskCancelled": "a BaseException: `except Exception` in a handler must not catch it",
    "WaitsForAnswer": "a BaseException: `except Exception` in a handler must not catch it",
    "ClientClosedError": "caught by the client's stream, which ends",
    "CheckFailed": "caught by `a2a-sync check`, which reports it",
    "CheckSkipped": "caught by `a2a-sync check`, which reports it",
    "CutStream": "caught by the client, which raises StreamInterruptedError",
    "DecodeError": "caught by the client and the webhook receiver, which raise MalformedResponseError or refuse the notification",
    "Invalid": "caught by the codecs, which raise InvalidParamsError or DecodeError",
    "MalformedStream": "caught by the client, which raises MalformedResponseError",
    "NoResponseError": "caught by each caller of an outbound URL",
    "RpcError": "caught by the binding, which answers with the error in it",
    "TargetError": "caught by the command line, which prints it",
    "ValueTooLargeError": "a ValueError for the handler that sets the value; bridges end the task with a text",
}


def exceptions():
    """Every exception class of the package, by its module."""
    for module in pkgutil.walk_packages(a2a_sync.__path__, "a2a_sync."):
        # Modules for gevent patch the standard library when they are imported; they define no exceptions.
        if not module.name.endswith(("__main__", "gevent")) and module.name not in without_framework():
            import_module(module.name)
    classes, waiting = {}, [BaseException]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__.startswith("a2a_sync."):
                classes[cls] = cls.__module__
    return classes


def test_every_exception_class_is_below_the_root():
    outside = {cls.__name__ for cls in exceptions() if not issubclass(cls, A2AError)}
    assert {name for name in outside if not name.startswith("_")} == set(OUTSIDE)


def test_the_tree_in_the_docstring_and_the_reference_name_every_exception_class():
    reference = (Path(__file__).parent.parent / "docs/reference/errors.md").read_text()
    internal = {"CallerGone", "SubscriptionRefusedError", "WrongVerbError"}
    conflicts = {cls.__name__ for cls in StoreConflict.__subclasses__()}
    for cls in exceptions():
        if issubclass(cls, A2AError) and cls.__name__ not in internal | conflicts:
            for text in (errors.__doc__, reference):
                assert re.search(rf"\b{cls.__name__}\b", text), cls
