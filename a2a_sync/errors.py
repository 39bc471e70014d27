"""Every error a caller can meet: the protocol's own, and the network's.

Two branches that never mix::

    AgentError            the agent said no (one class per row of the specification's table, 5.4 and 9.5)
    TransportError      no usable answer came back (client side only)

The classes of the first branch are raised by request checks and by handlers on the server, and raised again by the
client when it reads the answer. Code, HTTP status, gRPC status name and reason are class attributes: an error is one
small class and there is no table to keep in step. This room imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class FieldViolation(NamedTuple):
    """One member of a request that is wrong: its path (``message.parts[0].text``) and what is wrong with it."""

    field: str
    description: str


class AgentError(Exception):
    """An error of the protocol. Its message is public: it is sent to the peer as it stands.

    ``metadata`` (string to string) goes into the ``google.rpc.ErrorInfo`` detail, ``violations`` into a
    ``google.rpc.BadRequest`` detail. ``retry_after`` is in seconds, each of ``challenges`` is one for ``WWW-Authenticate``.
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
        self.message = message or self.default_message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after
        self.challenges = tuple(challenges)
        super().__init__(self.message)


class JSONParseError(AgentError):
    """The body is not JSON that this library accepts (strict UTF-8, no duplicate keys, no NaN)."""

    jsonrpc_code = -32700
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    reason = "PARSE_ERROR"
    default_message = "Invalid JSON payload"


class InvalidRequestError(AgentError):
    """JSON, but not a request object."""

    jsonrpc_code = -32600
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    reason = "INVALID_REQUEST"
    default_message = "Request payload validation error"


class RequestTooLargeError(InvalidRequestError):
    """The body is larger than ``Limits.max_body_bytes`` bytes, and was not read; or its task would hold more than ``Limits.max_task_bytes``."""

    http_status = 413
    rpc_http_status = 413
    grpc_status = "RESOURCE_EXHAUSTED"
    reason = "REQUEST_TOO_LARGE"
    default_message = "Request body too large"


class MethodNotFoundError(AgentError):
    """There is no such method, or the path names no operation."""

    jsonrpc_code = -32601
    http_status = 404
    grpc_status = "NOT_FOUND"
    reason = "METHOD_NOT_FOUND"
    default_message = "Method not found"


class InvalidParamsError(AgentError):
    """A member of the request is missing, empty, of the wrong type or out of range; ``violations`` name it."""

    jsonrpc_code = -32602
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    reason = "INVALID_PARAMS"
    default_message = "Invalid parameters"

    @classmethod
    def at(cls, field: str, description: str) -> InvalidParamsError:
        """The error for one member, named in message and details alike."""
        return cls(f"{field}: {description}", violations=(FieldViolation(field, description),))


class InternalError(AgentError):
    """A fault of the server. Its message never tells what happened; the log does, under the id it names."""


class OverloadedError(AgentError):
    """The server runs or streams as much as its limits allow; nothing was stored. ``retry_after`` is in seconds."""

    jsonrpc_code = -32000
    http_status = 429
    rpc_http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    reason = "RESOURCE_EXHAUSTED"
    default_message = "The agent is at capacity; try again later"


class UnavailableError(OverloadedError):
    """Something that the server needs is out of reach just now, such as the keys of an issuer; nothing was stored."""

    jsonrpc_code = -31503
    http_status = 503
    rpc_http_status = 503
    grpc_status = "UNAVAILABLE"
    reason = "UNAVAILABLE"
    default_message = "The agent cannot answer now; try again later"


class UnauthenticatedError(AgentError):
    """The request has no credentials that the agent accepts (spec 3.3.2)."""

    jsonrpc_code = -31401
    http_status = 401
    rpc_http_status = 401
    grpc_status = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"
    default_message = "Credentials are required"


class PermissionDeniedError(AgentError):
    """The caller is known and may not do this: a scope is missing, for example. Never said of tasks: those are not found."""

    jsonrpc_code = -31403
    http_status = 403
    rpc_http_status = 403
    grpc_status = "PERMISSION_DENIED"
    reason = "UNAUTHORIZED"
    default_message = "Permission denied"


class TaskNotFoundError(AgentError):
    """No such task, or none that this caller may see: the two are not told apart (spec 3.3.2, 13.1)."""

    jsonrpc_code = -32001
    http_status = 404
    grpc_status = "NOT_FOUND"
    reason = "TASK_NOT_FOUND"
    default_message = "Task not found"


class TaskNotCancelableError(AgentError):
    """The task has ended, or its agent refuses to stop it now."""

    jsonrpc_code = -32002
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
    reason = "TASK_NOT_CANCELABLE"
    default_message = "Task cannot be canceled"


class PushNotificationNotSupportedError(AgentError):
    """The agent does not send push notifications."""

    jsonrpc_code = -32003
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    default_message = "Push notifications are not supported"


class UnsupportedOperationError(AgentError):
    """The agent does not offer this, or the task's state does not allow it (a finished or busy task)."""

    jsonrpc_code = -32004
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
    reason = "UNSUPPORTED_OPERATION"
    default_message = "This operation is not supported"


class ContentTypeNotSupportedError(AgentError):
    """A media type, of the request or of a part, that the agent does not take."""

    jsonrpc_code = -32005
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    reason = "CONTENT_TYPE_NOT_SUPPORTED"
    default_message = "Content type not supported"


class InvalidAgentResponseError(AgentError):
    """The agent's own code produced something the protocol does not allow."""

    jsonrpc_code = -32006
    http_status = 500
    grpc_status = "INTERNAL"
    reason = "INVALID_AGENT_RESPONSE"
    default_message = "Invalid agent response"


class ExtendedAgentCardNotConfiguredError(AgentError):
    """The card promises an extended card and none is configured."""

    jsonrpc_code = -32007
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    default_message = "No extended agent card is configured"


class ExtensionSupportRequiredError(AgentError):
    """The agent requires an extension that the request did not declare."""

    jsonrpc_code = -32008
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
    reason = "EXTENSION_SUPPORT_REQUIRED"
    default_message = "A required extension was not declared"


class VersionNotSupportedError(AgentError):
    """The requested protocol version is not served here; the message says which are, and which header to send."""

    jsonrpc_code = -32009
    http_status = 400
    grpc_status = "FAILED_PRECONDITION"
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
    """The error that a peer's answer stands for: chosen by reason first, then by code.

    Releases of the protocol gave the same error different codes and statuses, never different reasons. An error
    nobody knows becomes a plain `AgentError` that keeps the peer's code.
    """
    library = [cls for cls in _walk(AgentError)[1:] if cls.__module__ == __name__]
    chosen = next((cls for cls in library if reason and cls.reason == reason), None)
    if chosen is None:
        chosen = next((cls for cls in library if code is not None and cls.jsonrpc_code == code), None)
    error = (chosen or AgentError)(message, metadata=metadata, violations=violations, retry_after=retry_after)
    if chosen is None and code is not None:
        error.jsonrpc_code = code
    if reason:
        error.reason = reason
    return error


class PublicError(Exception):
    """Raised by a handler: the task fails, and this text is shown to the client (any other exception's is not)."""


class TaskFailedError(Exception):
    """A tool was called and its task failed, was rejected or canceled; ``task`` is how it ended, the text says why."""

    def __init__(self, task: Any) -> None:
        self.task = task
        super().__init__(f"the task is {task.state}: {task.text}" if task.text else f"the task is {task.state}")


class DataPartError(ValueError):
    """A data part and a dataclass do not fit; the message names the class and the member."""


class InvalidCardError(ValueError):
    """A card is not complete, or does not hold together; ``violations`` name the members (``skills[0].id``)."""

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        self.violations = tuple(violations)
        super().__init__("the card is not valid: " + "; ".join(f"{one.field}: {one.description}" for one in violations))


class StoreError(Exception):
    """The store could not do its work (locked, full, unreadable). The log has the cause; the caller sees an id."""


class UnsafeURLError(ValueError):
    """A URL that a peer names and this server does not call; the message says why, and never shows the URL.

    ``hint`` is for the operator: what would permit the URL, or ``""``.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class TransportError(Exception):
    """No usable answer: the network or the peer's HTTP failed.

    ``phase`` is one of ``card``, ``connect``, ``send``, ``stream``, ``token``; ``agent`` is the URL that was called; ``task_id``
    is the task as far as it is known, so that its fate can be asked for later. Errors of streams say in
    ``last_event_id`` after which event `Client.subscribe` can go on; None where the agent does not number its events.
    """

    last_event_id: int | None = None
    #: The answer had begun, with a status of success, and broke off.
    answered = False

    def __init__(self, message: str, *, phase: str, agent: str = "", task_id: str = "") -> None:
        self.message = message
        self.phase = phase
        self.agent = agent
        self.task_id = task_id
        where = f" [{phase} {agent}".rstrip() + (f", task {task_id}]" if task_id else "]")
        super().__init__(message + where)

    def __reduce__(self) -> tuple[object, ...]:
        # Calls are made in worker processes too, and Exception's own way loses keyword arguments.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(cls: type[TransportError], args: tuple[str, ...]) -> TransportError:
    error = cls.__new__(cls)
    error.args = args
    return error


class ConnectError(TransportError):
    """The agent could not be reached; the request was not sent."""


class TransportTimeoutError(TransportError, TimeoutError):
    """A time limit ran out; ``phase`` says in which step."""


class StreamInterruptedError(TransportError):
    """A stream was cut before its task paused or ended, and could not be taken up again."""


class HTTPStatusError(TransportError):
    """An HTTP error without an A2A body. ``status`` is the HTTP status; ``retry_after`` is in seconds."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        phase: str,
        agent: str = "",
        task_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, phase=phase, agent=agent, task_id=task_id)
        self.status_code = status
        self.retry_after = retry_after


class MalformedResponseError(TransportError):
    """The peer answered with something that is not A2A."""


class TokenError(TransportError):
    """The token server gave no token; the message says why, ``agent`` is its URL."""


class CardNotFoundError(TransportError):
    """No agent card could be read; the message lists each URL that was tried and what it answered."""


class CardSignatureError(TransportError):
    """A card is not signed by anybody who is trusted; the message says of each signature why it does not count."""


class CardAuthError(TransportError, ValueError):
    """The card asks for credentials that the client does not have, or wants them where they cannot be sent."""
