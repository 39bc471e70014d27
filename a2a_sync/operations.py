"""The operations of the protocol, and a call of one: the data that clients, transports and the server pass on.

An **endpoint** is a callable that takes a `Call` and returns the result of its operation; for a streaming operation that is an
`EventStream`. The server's `RequestHandler` and the transports of the client are endpoints, so a client can call either. An
**interceptor** wraps an endpoint in another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import isgeneratorfunction
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from a2a_sync import types as t
from a2a_sync.card import AgentCard
from a2a_sync.lifecycle import Entry, Undecoded

__all__ = [
    "AnyCall",
    "AnyOperation",
    "AnyRequest",
    "AnyResult",
    "CANCEL_TASK",
    "CREATE_PUSH_CONFIG",
    "Call",
    "CallContext",
    "DELETE_PUSH_CONFIG",
    "Endpoint",
    "EventStream",
    "GET_EXTENDED_CARD",
    "GET_PUSH_CONFIG",
    "GET_TASK",
    "GeneratorInterceptor",
    "Interceptor",
    "LIST_PUSH_CONFIGS",
    "LIST_TASKS",
    "OPERATIONS",
    "Operation",
    "Principal",
    "RequestT",
    "ResultT",
    "SEND_MESSAGE",
    "SEND_STREAMING_MESSAGE",
    "SUBSCRIBE_TO_TASK",
    "StreamItem",
    "interceptor",
]

#: The request and the result of an operation, in functions that take any call.
RequestT = TypeVar("RequestT", bound="AnyRequest")
ResultT = TypeVar("ResultT", bound="AnyResult")
_RequestT_co = TypeVar("_RequestT_co", bound="AnyRequest", covariant=True)
_ResultT_co = TypeVar("_ResultT_co", bound="AnyResult", covariant=True)


@dataclass(frozen=True, slots=True)
class Operation(Generic[_RequestT_co, _ResultT_co]):
    """One row of the table of operations (spec 3.1, 5.3), typed by its request and its result.

    Parameters:
        name: the name of the operation, which is also its method name in 1.0.
        request: the dataclass of its parameters.
        response: the type that is written on the wire: of the result, or of the elements of a stream; None for no result.
        streaming: the result is an `EventStream`.
        reads: the operation changes nothing and can be repeated.
        addressed: the result contains the address of the server.
    """

    name: str
    request: type[_RequestT_co]
    response: object
    streaming: bool = False
    reads: bool = False
    addressed: bool = False


SEND_MESSAGE: Operation[t.SendMessageRequest, t.SendMessageResponse] = Operation(
    "SendMessage", t.SendMessageRequest, t.SendMessageResponse
)
SEND_STREAMING_MESSAGE: Operation[t.SendMessageRequest, EventStream] = Operation(
    "SendStreamingMessage", t.SendMessageRequest, t.StreamResponse, streaming=True
)
GET_TASK: Operation[t.GetTaskRequest, t.Task] = Operation("GetTask", t.GetTaskRequest, t.Task, reads=True)
LIST_TASKS: Operation[t.ListTasksRequest, t.ListTasksResponse] = Operation(
    "ListTasks", t.ListTasksRequest, t.ListTasksResponse, reads=True
)
CANCEL_TASK: Operation[t.CancelTaskRequest, t.Task] = Operation("CancelTask", t.CancelTaskRequest, t.Task)
SUBSCRIBE_TO_TASK: Operation[t.SubscribeToTaskRequest, EventStream] = Operation(
    "SubscribeToTask", t.SubscribeToTaskRequest, t.StreamResponse, streaming=True, reads=True
)
CREATE_PUSH_CONFIG: Operation[t.TaskPushNotificationConfig, t.TaskPushNotificationConfig] = Operation(
    "CreateTaskPushNotificationConfig", t.TaskPushNotificationConfig, t.TaskPushNotificationConfig
)
GET_PUSH_CONFIG: Operation[t.GetTaskPushNotificationConfigRequest, t.TaskPushNotificationConfig] = Operation(
    "GetTaskPushNotificationConfig", t.GetTaskPushNotificationConfigRequest, t.TaskPushNotificationConfig, reads=True
)
LIST_PUSH_CONFIGS: Operation[t.ListTaskPushNotificationConfigsRequest, t.ListTaskPushNotificationConfigsResponse] = (
    Operation(
        "ListTaskPushNotificationConfigs",
        t.ListTaskPushNotificationConfigsRequest,
        t.ListTaskPushNotificationConfigsResponse,
        reads=True,
    )
)
DELETE_PUSH_CONFIG: Operation[t.DeleteTaskPushNotificationConfigRequest, None] = Operation(
    "DeleteTaskPushNotificationConfig", t.DeleteTaskPushNotificationConfigRequest, None
)
GET_EXTENDED_CARD: Operation[t.GetExtendedAgentCardRequest, AgentCard] = Operation(
    "GetExtendedAgentCard", t.GetExtendedAgentCardRequest, AgentCard, reads=True, addressed=True
)

#: The request of any operation.
AnyRequest: TypeAlias = (
    t.SendMessageRequest
    | t.GetTaskRequest
    | t.ListTasksRequest
    | t.CancelTaskRequest
    | t.SubscribeToTaskRequest
    | t.TaskPushNotificationConfig
    | t.GetTaskPushNotificationConfigRequest
    | t.ListTaskPushNotificationConfigsRequest
    | t.DeleteTaskPushNotificationConfigRequest
    | t.GetExtendedAgentCardRequest
)
#: Every operation by its name.
OPERATIONS: dict[str, AnyOperation] = {
    operation.name: operation
    for operation in (
        SEND_MESSAGE,
        SEND_STREAMING_MESSAGE,
        GET_TASK,
        LIST_TASKS,
        CANCEL_TASK,
        SUBSCRIBE_TO_TASK,
        CREATE_PUSH_CONFIG,
        GET_PUSH_CONFIG,
        LIST_PUSH_CONFIGS,
        DELETE_PUSH_CONFIG,
        GET_EXTENDED_CARD,
    )
}


#: The header that makes a send idempotent (the same key means the same send), in lower case.
IDEMPOTENCY_KEY = "idempotency-key"
#: The extension by which a card declares support for that header.
IDEMPOTENT_SEND = "urn:a2a-sync:idempotent-send:1"


def is_idempotency_key(text: str) -> bool:
    """1 to 255 printable ASCII characters."""
    return 1 <= len(text) <= 255 and text.isascii() and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller: the id that owns its tasks, and the scopes and claims of its credentials."""

    id: str = ""
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, t.JSON] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The context of a call: all that is not part of its request.

    Parameters:
        headers: request headers, names in lower case.
        principal: the authenticated caller, or None.
        extensions: URIs of the requested extensions.
        activated: the extensions that the server has activated: their URIs, each with a value of its own.
        key: identifies an idempotent send.
        answer_headers: headers that the server adds to its answer; a client finds the headers of the answer here, in lower
            case. None if they are not needed.
        version: the protocol version of the call.
        last_event_id: the event after which a stream resumes.
        timeout: the client's limit for the whole call, in seconds.
        opening: the client's limit until the answer begins, in seconds.
        deadline: the monotonic time at which a caller of this process stops waiting.
        gone: returns True once no reader is left for the answer.
        address: the URL at which the server was called, for operations whose result contains it.
        owner: the owner of the tasks, if that is not the principal.
        owner_found: called with the owner that quotas count for, where ``owner=`` of the app is asked for it. May raise an error.
        peer: the network address of the caller, or ``""``.
        threaded: the call holds a thread of the server while it waits: its stream, or a blocking send.
        deferred_after: seconds after which a call that waits may return a stream of its result, so that no thread waits for it.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    principal: Principal | None = None
    extensions: tuple[str, ...] = ()
    activated: Mapping[str, t.JSON] = field(default_factory=dict)
    key: SendKey | None = None
    answer_headers: dict[str, str] | None = field(default=None, repr=False)
    version: str = "1.0"
    last_event_id: int | None = None
    timeout: float | None = None
    opening: float | None = None
    deadline: float | None = None
    gone: Callable[[], bool] | None = None
    address: str = ""
    owner: str | None = None
    owner_found: Callable[[str], None] | None = None
    peer: str = ""
    threaded: bool = True
    deferred_after: float = math.inf


@dataclass(frozen=True, slots=True)
class Call(Generic[_RequestT_co, _ResultT_co]):
    """One operation with its request and its context."""

    operation: Operation[_RequestT_co, _ResultT_co]
    request: _RequestT_co
    context: CallContext = field(default_factory=CallContext)

    @property
    def task_id(self) -> str:
        """The id of the task that the request names; ``""`` if it names none."""
        if isinstance(self.request, t.SendMessageRequest):
            return self.request.message.task_id
        task_id: str | None = getattr(self.request, "task_id", None)
        return task_id if task_id is not None else getattr(self.request, "id", "")


@dataclass(slots=True)
class StreamItem(Undecoded):
    """One element of a stream.

    Parameters:
        event: the event.
        number: the version of the task after the event (the SSE id); None if it has none.
        encoded: the bytes of the event by protocol version, shared with its log entry.
        last: the peer marked the event as the last one. Only some versions of the protocol do so.
        size: the bytes of the event on the wire; 0 inside a process.
    """

    event: t.StreamResponse
    number: int | None = None
    encoded: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    last: bool = False
    size: int = 0

    @classmethod
    def of(cls, entry: Entry) -> StreamItem:
        """The item of an entry of a log; it decodes the event when that is first used, as the entry does."""
        item = cls.__new__(cls)
        item.number, item.encoded, item.last, item.size = entry.number, entry.encoded, False, 0
        item._decode = lambda: entry.event
        return item


@runtime_checkable
class EventStream(Protocol):
    """The result of a streaming operation. Iterating blocks; ``close`` may be called from any thread and ends it."""

    def __iter__(self) -> Iterator[StreamItem]: ...

    def close(self) -> None:
        """End the stream. The task continues."""


#: The result of any operation.
AnyResult: TypeAlias = (
    t.Task
    | t.Message
    | EventStream
    | t.ListTasksResponse
    | t.TaskPushNotificationConfig
    | t.ListTaskPushNotificationConfigsResponse
    | AgentCard
    | None
)
AnyOperation: TypeAlias = Operation[AnyRequest, AnyResult]
AnyCall: TypeAlias = Call[AnyRequest, AnyResult]


class Endpoint(Protocol):
    """Executes calls: `Call[Request, Result]` in, `Result` out. May be called from any thread.

    Raises:
        AgentError: the agent answered with an error.
        TransportError: no usable answer arrived (endpoints of a client).
    """

    def __call__(self, call: Call[RequestT, ResultT], /) -> ResultT: ...


#: Wraps an endpoint in another one.
Interceptor: TypeAlias = Callable[[Endpoint], Endpoint]


def interceptor(steps: Callable[[AnyCall], Generator[AnyCall, Any, Any]]) -> GeneratorInterceptor:
    """Make an interceptor of a generator function of a call. It yields a call, gets the result or exception, and returns a result.

    A call over gRPC that waits holds no thread, so these interceptors may end on another one; other functions are refused there::

        @interceptor
        def timed(call: AnyCall) -> Generator[AnyCall, Any, Any]:
            began = time.monotonic()
            try:
                return (yield call)
            finally:
                print(call.operation.name, time.monotonic() - began)

    Raises:
        TypeError: `steps` is no generator function.
    """
    if not isgeneratorfunction(steps):
        raise TypeError(
            f"interceptor takes a generator function, not {steps!r}; pass a function of an endpoint as it is"
        )
    return GeneratorInterceptor(steps)


def check_interceptors(given: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """The interceptors of an app or a client.

    Raises:
        TypeError: `given` is no list, or one of them is no function.
    """
    if not isinstance(given, Iterable):
        raise TypeError(f"interceptors takes a list, such as [RateLimit(120)]; not a {type(given).__name__}")
    listed = tuple(given)
    for index, one in enumerate(listed):
        if isinstance(one, type) and issubclass(one, GeneratorInterceptor):
            raise TypeError(f"interceptors[{index}] is a class: give an instance, {one.__name__}(…)")
        if not callable(one):
            raise TypeError(f"interceptors[{index}] takes a function of an endpoint, not {type(one).__name__}")
    return listed


class GeneratorInterceptor:
    """An `Interceptor` of a generator function: see `interceptor`."""

    def __init__(self, steps: Callable[[AnyCall], Generator[AnyCall, Any, Any]]) -> None:
        self._steps = steps

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """The interceptor."""

        def intercepted(call: Call[Any, Any]) -> Any:
            steps = self._steps(call)
            try:
                call = next(steps)
            except StopIteration as ended:
                return ended.value
            return _resume(steps, partial(endpoint, call))

        return intercepted


@runtime_checkable
class _Deferred(Protocol):
    def then(self, make: Callable[[Callable[[], Any]], Any]) -> None: ...


def _resume(steps: Generator[AnyCall, Any, Any], outcome: Callable[[], Any]) -> Any:
    """The result of an interceptor that waits for `outcome`. A stream that the interceptor gets and does not return is closed."""
    result = None
    try:
        try:
            result = outcome()
        except BaseException as error:
            steps.throw(error)
        else:
            if isinstance(result, _Deferred):
                result.then(partial(_resume, steps))
                return result
            steps.send(result)
    except StopIteration as ended:
        if ended.value is not result and not isinstance(ended.value, Iterable):
            _close(result)
        return ended.value
    except BaseException:
        _close(result)
        raise
    steps.close()
    _close(result)
    raise RuntimeError("an interceptor yields one call, and this one has yielded another")


def _close(result: Any) -> None:
    if isinstance(result, EventStream):
        result.close()


class SendKey(NamedTuple):
    """Identifies an idempotent send: the key of its caller, and a fingerprint of its content."""

    key: str
    fingerprint: str


class Webhook(NamedTuple):
    """A push configuration to store, with its ids, and the protocol version of its notifications."""

    config: t.TaskPushNotificationConfig
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The request of a run, as the store keeps it for any worker.

    It can be serialised and never holds credentials: headers are those on an allow list. ``attempt`` counts the workers
    that have begun to run it. ``key`` and ``webhook`` are stored beside the request and not in it. ``task_id`` and
    ``context_id`` are those of the message, which has both before a run starts.
    """

    message: t.Message
    configuration: t.SendMessageConfiguration | None = None
    metadata: Mapping[str, t.JSON] = field(default_factory=dict)
    principal: Principal | None = None
    tenant: str = ""
    extensions: Mapping[str, t.JSON] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    attempt: int = 1
    key: SendKey | None = None
    webhook: Webhook | None = None
    # Attributes and not properties: a run reads them at each of its steps.
    task_id: str = field(init=False, repr=False, compare=False)
    context_id: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task_id", self.message.task_id)
        object.__setattr__(self, "context_id", self.message.context_id)


#: Separates the name of a mounted agent from its caller in the owner of a task; no id contains it.
OWNER_MARK = "\x1f"
#: The first character of an owner that ``owner=`` names; no id of a caller begins with it, so the two never coincide.
NAMED_MARK = "\x1e"


def mount_name(owner: str) -> str:
    """The name of the mounted agent whose tasks `owner` has; ``""`` where the agent has no name."""
    return owner.partition(OWNER_MARK)[0] if OWNER_MARK in owner else ""


def quota_owner(owner: str) -> str:
    """The owner that quotas count for: all agents of one host count together."""
    return owner.partition(OWNER_MARK)[2] if OWNER_MARK in owner else owner


def owner_of(context: CallContext) -> str:
    """The owner of the tasks of a call: the one that ``owner=`` named, else the caller; ``""`` without either."""
    if context.owner is not None:
        return context.owner
    return context.principal.id if context.principal is not None else ""
