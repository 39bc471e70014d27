"""The exceptions of the library: one root, and a branch for each side that can fail.

::

    A2AError
    ├── AgentError                              what an agent answered: the error table of the specification (5.4, 9.5)
    │   ├── JSONParseError, MethodNotFoundError, InvalidParamsError, InternalError
    │   ├── InvalidRequestError
    │   │   └── RequestTooLargeError
    │   ├── OverloadedError
    │   │   └── UnavailableError
    │   ├── UnauthenticatedError
    │   │   └── TokenRefusedError               (a2a_sync.auth)
    │   ├── PermissionDeniedError
    │   ├── TaskNotFoundError, TaskNotCancelableError
    │   ├── PushNotificationNotSupportedError, UnsupportedOperationError, ContentTypeNotSupportedError
    │   ├── InvalidAgentResponseError, ExtendedAgentCardNotConfiguredError
    │   └── ExtensionSupportRequiredError, VersionNotSupportedError
    ├── TransportError                          no usable answer arrived; raised by clients only
    │   ├── ConnectError, CertificateRefusedError, StreamInterruptedError
    │   ├── HTTPStatusError, MalformedResponseError
    │   ├── TransportTimeoutError               also a TimeoutError
    │   └── TokenError, CardNotFoundError, CardSignatureError, CardAuthError (also a ValueError)
    ├── NoTaskError                             the agent answered with a message; also an AttributeError
    ├── TaskFailedError                         the task of a tool call failed, was rejected or canceled
    ├── PublicError                             raised by handlers: its text is shown to the client
    │   ├── DialogueChanged                     (a2a_sync.agent.dialogue)
    │   └── Refused                             (a2a_sync.integrations.bridge)
    ├── AskError                                (a2a_sync.agent.dialogue) also a RuntimeError
    ├── IllegalTransition                       (a2a_sync.lifecycle) also a ValueError
    ├── AgentNotFoundError                      (a2a_sync.multiagent) also a LookupError
    ├── NotificationRefusedError                (a2a_sync.webhooks)
    ├── PushRefusedError                        (a2a_sync.push)
    ├── StoreError                              a store cannot do its work
    ├── StoreConflict, TooManyWebhooks          (a2a_sync.stores) a store refuses a write
    └── DataPartError, InvalidCardError, UnsafeURLError     also ValueErrors

`AgentError` classes are raised by request checks and handlers on the server, and raised again by the client that receives
the answer. Their codes, HTTP status, gRPC status and reason are class attributes, so there is no second table to keep in
step. ``ValueError`` and ``TypeError`` themselves are raised for arguments that can never work.

This module imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "A2AError",
    "AgentError",
    "CardAuthError",
    "CardNotFoundError",
    "CardSignatureError",
    "CertificateRefusedError",
    "ConnectError",
    "ContentTypeNotSupportedError",
    "DataPartError",
    "ExtendedAgentCardNotConfiguredError",
    "ExtensionSupportRequiredError",
    "FieldViolation",
    "HTTPStatusError",
    "InternalError",
    "InvalidAgentResponseError",
    "InvalidCardError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JSONParseError",
    "MalformedResponseError",
    "MethodNotFoundError",
    "NoTaskError",
    "OverloadedError",
    "PermissionDeniedError",
    "PublicError",
    "PushNotificationNotSupportedError",
    "RequestTooLargeError",
    "StoreError",
    "StreamInterruptedError",
    "TaskFailedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TokenError",
    "TransportError",
    "TransportTimeoutError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsafeURLError",
    "UnsupportedOperationError",
    "VersionNotSupportedError",
    "error_from_wire",
]

#: The longest reason of an error, in characters, as `google.rpc.ErrorInfo` has it.
_MAX_REASON = 63
#: More characters of what an agent says are neither in an error nor in the result of a tool: frameworks give both to models, and
#: copy and escape them several times.
MAX_TEXT = 1_000_000


def shortened(text: str) -> str:
    """`text`, or its first 1,000,000 characters and a note."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + left_out(len(text) - MAX_TEXT)


def left_out(characters: int) -> str:
    """The note at the end of a text that has so many more characters."""
    return f"\n\n[{characters} more characters were left out]"


class FieldViolation(NamedTuple):
    """An invalid member of a request: its path (``message.parts[0].text``) and a description of the fault."""

    field: str
    description: str


class A2AError(Exception):
    """The root of all errors that this library raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own way calls the class with `args`, which loses keyword arguments.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(cls: type[A2AError], args: tuple[str, ...]) -> A2AError:
    error = cls.__new__(cls)
    error.args = args
    return error


class AgentError(A2AError):
    """An error of the protocol: what the agent answered. Its message is public and is sent to the peer unchanged.

    Parameters:
        message: the text for the peer; `default_message` of the class if empty.
        metadata: strings by name, sent in the ``google.rpc.ErrorInfo`` detail.
        violations: the invalid members, sent in the ``google.rpc.BadRequest`` detail.
        retry_after: seconds after which a retry may succeed, sent as ``Retry-After``.
        challenges: values for ``WWW-Authenticate`` headers.

    `jsonrpc_code`, `http_status` (of an answer over HTTP+JSON), `grpc_status` and `reason` are attributes of the class.
    """

    jsonrpc_code = -32603
    http_status = 500
    grpc_status = "INTERNAL"
    reason = "INTERNAL_ERROR"
    default_message = "Internal error"
    #: HTTP status of a JSON-RPC answer that carries this error.
    rpc_http_status = 200

    def __init__(
        self,
        message: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
        challenges: Sequence[str] = (),
    ) -> None:
        self.message: str = message or self.default_message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations: tuple[FieldViolation, ...] = tuple(violations)
        self.retry_after = retry_after
        self.challenges: tuple[str, ...] = tuple(challenges)
        super().__init__(self.message)


class _InvalidArgument:
    """The status of errors in what a request holds."""

    http_status = 400
    grpc_status = "INVALID_ARGUMENT"


class _FailedPrecondition:
    """The status of requests that the agent does not take, or not now."""

    http_status = 400
    grpc_status = "FAILED_PRECONDITION"


class JSONParseError(_InvalidArgument, AgentError):
    """The body is not valid JSON (strict: UTF-8, no duplicate keys, no NaN)."""

    jsonrpc_code = -32700
    reason = "PARSE_ERROR"
    default_message = "Invalid JSON payload"


class InvalidRequestError(_InvalidArgument, AgentError):
    """The body is JSON but not a request object."""

    jsonrpc_code = -32600
    reason = "INVALID_REQUEST"
    default_message = "Request payload validation error"


class RequestTooLargeError(InvalidRequestError):
    """The body exceeds ``Limits.max_body_bytes`` and was not read, or the task would exceed ``Limits.max_task_bytes``."""

    http_status = 413
    rpc_http_status = 413
    grpc_status = "RESOURCE_EXHAUSTED"
    reason = "REQUEST_TOO_LARGE"
    default_message = "Request body too large"


class MethodNotFoundError(AgentError):
    """The method does not exist, or the path names no operation."""

    jsonrpc_code = -32601
    http_status = 404
    grpc_status = "NOT_FOUND"
    reason = "METHOD_NOT_FOUND"
    default_message = "Method not found"


class InvalidParamsError(_InvalidArgument, AgentError):
    """A member of the request is missing, empty, of the wrong type or out of range; ``violations`` names it."""

    jsonrpc_code = -32602
    reason = "INVALID_PARAMS"
    default_message = "Invalid parameters"

    @classmethod
    def at(cls, field: str, description: str) -> InvalidParamsError:
        """The error for one member, named in the message and in the details."""
        return cls(f"{field}: {description}", violations=(FieldViolation(field, description),))


class InternalError(AgentError):
    """A fault of the server. The message holds an id only; the server logs the cause under that id."""


class OverloadedError(AgentError):
    """A limit of the server on runs, streams or storage is reached; nothing was stored. ``retry_after`` is in seconds."""

    jsonrpc_code = -32000
    http_status = 429
    rpc_http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    reason = "RESOURCE_EXHAUSTED"
    default_message = "The agent is at capacity; retry later"


class UnavailableError(OverloadedError):
    """A service that the server depends on cannot be reached or is busy: the database, or the keys of an issuer.

    Nothing was stored, unless the connection to the database broke after a write: repeat a send with its idempotency key.
    """

    jsonrpc_code = -31503
    http_status = 503
    rpc_http_status = 503
    grpc_status = "UNAVAILABLE"
    reason = "UNAVAILABLE"
    default_message = "The agent is unavailable; retry later"


class UnauthenticatedError(AgentError):
    """The request has no credentials that the agent accepts (spec 3.3.2)."""

    jsonrpc_code = -31401
    http_status = 401
    rpc_http_status = 401
    grpc_status = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"
    default_message = "Credentials are required"


class PermissionDeniedError(AgentError):
    """The caller is authenticated but lacks a permission, such as a scope. Tasks of other owners are not found instead."""

    jsonrpc_code = -31403
    http_status = 403
    rpc_http_status = 403
    grpc_status = "PERMISSION_DENIED"
    reason = "UNAUTHORIZED"
    default_message = "Permission denied"


class TaskNotFoundError(AgentError):
    """No such task, or it belongs to another owner; the two cases are indistinguishable (spec 3.3.2, 13.1)."""

    jsonrpc_code = -32001
    http_status = 404
    grpc_status = "NOT_FOUND"
    reason = "TASK_NOT_FOUND"
    default_message = "Task not found"


class TaskNotCancelableError(_FailedPrecondition, AgentError):
    """The task is in a terminal state, or the agent refuses to cancel it."""

    jsonrpc_code = -32002
    reason = "TASK_NOT_CANCELABLE"
    default_message = "Task cannot be canceled"


class PushNotificationNotSupportedError(_FailedPrecondition, AgentError):
    """The agent does not send push notifications."""

    jsonrpc_code = -32003
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    default_message = "Push notifications are not supported"


class UnsupportedOperationError(_FailedPrecondition, AgentError):
    """The agent does not support the operation, or the state of the task does not allow it (terminal or busy)."""

    jsonrpc_code = -32004
    reason = "UNSUPPORTED_OPERATION"
    default_message = "This operation is not supported"


class ContentTypeNotSupportedError(_InvalidArgument, AgentError):
    """The agent does not accept the media type of the request or of a part."""

    jsonrpc_code = -32005
    reason = "CONTENT_TYPE_NOT_SUPPORTED"
    default_message = "Content type not supported"


class InvalidAgentResponseError(AgentError):
    """The code of the agent produced a result that the protocol does not allow."""

    jsonrpc_code = -32006
    reason = "INVALID_AGENT_RESPONSE"
    default_message = "Invalid agent response"


class ExtendedAgentCardNotConfiguredError(_FailedPrecondition, AgentError):
    """The card declares an extended card and none is configured."""

    jsonrpc_code = -32007
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    default_message = "No extended agent card is configured"


class ExtensionSupportRequiredError(_FailedPrecondition, AgentError):
    """The agent requires an extension that the request does not declare."""

    jsonrpc_code = -32008
    reason = "EXTENSION_SUPPORT_REQUIRED"
    default_message = "A required extension was not declared"


class VersionNotSupportedError(_FailedPrecondition, AgentError):
    """The agent does not serve the requested protocol version; the message lists the served ones and the header to send."""

    jsonrpc_code = -32009
    reason = "VERSION_NOT_SUPPORTED"
    default_message = "Protocol version not supported"


def _walk(cls: type[AgentError]) -> list[type[AgentError]]:
    return [cls, *(below for child in cls.__subclasses__() for below in _walk(child))]


def error_from_wire(
    *,
    reason: str = "",
    code: int | None = None,
    message: str = "",
    metadata: Mapping[str, str] | None = None,
    violations: Sequence[FieldViolation] = (),
    retry_after: float | None = None,
) -> AgentError:
    """The error of a peer's answer: the class is chosen by reason first, then by code.

    Releases of the protocol gave the same error different codes and statuses, never different reasons. An unknown error
    becomes a plain `AgentError` with the peer's code and reason.

    Parameters:
        reason: the reason in its details; ``""`` where it has none. No more of it is kept than a reason may have.
        code: the JSON-RPC code, if it has one.
        message: its text, of which 1,000,000 characters are kept.
        metadata: those of its details.
        violations: the members of the request that are wrong.
        retry_after: seconds until the call may be repeated.
    """
    library = [cls for cls in _walk(AgentError)[1:] if cls.__module__ == __name__]
    chosen = next((cls for cls in library if reason and cls.reason == reason), None)
    if chosen is None:
        chosen = next((cls for cls in library if code is not None and cls.jsonrpc_code == code), None)
    error = (chosen or AgentError)(
        shortened(message), metadata=metadata, violations=violations, retry_after=retry_after
    )
    if chosen is None and code is not None:
        error.jsonrpc_code = code
    if reason:
        error.reason = reason[:_MAX_REASON]
    return error


class PublicError(A2AError):
    """Raised by a handler: the task fails with this text, which the client can read. Texts of other exceptions stay private."""


class NoTaskError(A2AError, AttributeError):
    """Raised by `Reply.task`: the agent answered with a message instead of a task."""


class TaskFailedError(A2AError):
    """The task of a tool call failed, was rejected or canceled.

    ``task`` is the task; the text includes its answer, with at most 1,000,000 characters.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        text = shortened(task.text)
        super().__init__(f"the task is {task.state}: {text}" if text else f"the task is {task.state}")


class DataPartError(A2AError, ValueError):
    """A data part does not match a dataclass; the message names the class and the member."""


class InvalidCardError(A2AError, ValueError):
    """A card is incomplete or inconsistent; ``violations`` names the members (``skills[0].id``)."""

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        self.violations: tuple[FieldViolation, ...] = tuple(violations)
        super().__init__("the card is not valid: " + "; ".join(f"{one.field}: {one.description}" for one in violations))


class StoreError(A2AError):
    """The store failed (locked, full, unreadable). The server logs the cause and answers with an id.

    ``transient``: it cannot be reached now, or is busy; a later attempt may succeed. The server answers with `UnavailableError`.
    """

    transient: bool = False

    def __init__(self, message: str = "", *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class UnsafeURLError(A2AError, ValueError):
    """A URL named by a peer that `URLGuard` refuses to call; the message gives the reason and never contains the URL.

    ``hint`` is for the operator: the setting that would permit the URL, or ``""``.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class TransportError(A2AError):
    """No usable answer arrived: the network or the HTTP layer of the peer failed.

    ``phase`` is one of ``card``, ``connect``, ``send``, ``stream``, ``token``; ``agent`` is the URL that was called;
    ``task_id`` is the task, if its id is known, so that its state can be read later. ``last_event_id`` of errors of streams is
    the event after which `Client.subscribe` can resume; None if the agent does not number its events.
    """

    last_event_id: int | None = None
    #: The answer had begun, with a status of success, and was cut off.
    answered = False

    def __init__(self, message: str, *, phase: str, agent: str = "", task_id: str = "") -> None:
        self.message = message
        self.phase = phase
        self.agent = agent
        self.task_id = task_id
        where = f" [{phase} {agent}".rstrip() + (f", task {task_id}]" if task_id else "]")
        super().__init__(message + where)


class ConnectError(TransportError):
    """The agent could not be reached; the request was not sent."""


class CertificateRefusedError(TransportError):
    """The agent refused the client certificate, or requires one; the request had no effect."""


class TransportTimeoutError(TransportError, TimeoutError):
    """A timeout expired; ``phase`` names the step."""


class StreamInterruptedError(TransportError):
    """A stream was cut off before its task was interrupted or ended, and could not be resumed."""


class HTTPStatusError(TransportError):
    """An HTTP error without an A2A body. ``status_code`` is the HTTP status.

    Parameters:
        message: the text of the error.
        status_code: the HTTP status.
        phase: the step that failed, as in `TransportError`.
        agent: the URL that was called.
        task_id: the task, if its id is known.
        retry_after: seconds, from ``Retry-After``; None if the answer has none.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int,
        phase: str,
        agent: str = "",
        task_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, phase=phase, agent=agent, task_id=task_id)
        self.status_code = status_code
        self.retry_after = retry_after


class MalformedResponseError(TransportError):
    """The answer of the peer is not valid A2A."""


class TokenError(TransportError):
    """The token server issued no token; the message gives the reason, ``agent`` is its URL."""


class CardNotFoundError(TransportError):
    """No agent card could be read; the message lists each URL that was tried and its answer."""


class CardSignatureError(TransportError):
    """A card has no signature of a trusted key; the message gives the reason for each signature."""


class CardAuthError(TransportError, ValueError):
    """The card requires credentials that the client does not have, or requires them where they cannot be sent."""
