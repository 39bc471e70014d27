"""A call is data: the operations of the protocol, and what carries one from a client to a handler.

An **endpoint** is any callable that takes a `Call` and gives its result (for a streaming operation: an `EventStream`).
The server's `RequestHandler` is one and a client's transport is one, so a client can be put in front of either. Nothing
here executes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from a2a_sync import types as t
from a2a_sync.card import AgentCard


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the protocol's table of operations (spec 3.1, 5.3).

    ``request`` is the dataclass of its parameters, ``response`` that of its result (None: nothing). ``streaming`` says
    that the result is a stream of `StreamResponse`; ``reads`` that it changes nothing and may be repeated freely;
    ``addressed`` that its result names the server's own address.
    """

    name: str
    request: type
    response: Any
    streaming: bool = False
    reads: bool = False
    addressed: bool = False


SEND_MESSAGE = Operation("SendMessage", t.SendMessageRequest, t.SendMessageResponse)
SEND_STREAMING_MESSAGE = Operation("SendStreamingMessage", t.SendMessageRequest, t.StreamResponse, streaming=True)
GET_TASK = Operation("GetTask", t.GetTaskRequest, t.Task, reads=True)
LIST_TASKS = Operation("ListTasks", t.ListTasksRequest, t.ListTasksResponse, reads=True)
CANCEL_TASK = Operation("CancelTask", t.CancelTaskRequest, t.Task)
SUBSCRIBE_TO_TASK = Operation("SubscribeToTask", t.SubscribeToTaskRequest, t.StreamResponse, streaming=True, reads=True)
CREATE_PUSH_CONFIG = Operation(
    "CreateTaskPushNotificationConfig", t.TaskPushNotificationConfig, t.TaskPushNotificationConfig
)
GET_PUSH_CONFIG = Operation(
    "GetTaskPushNotificationConfig", t.GetTaskPushNotificationConfigRequest, t.TaskPushNotificationConfig, reads=True
)
LIST_PUSH_CONFIGS = Operation(
    "ListTaskPushNotificationConfigs",
    t.ListTaskPushNotificationConfigsRequest,
    t.ListTaskPushNotificationConfigsResponse,
    reads=True,
)
DELETE_PUSH_CONFIG = Operation("DeleteTaskPushNotificationConfig", t.DeleteTaskPushNotificationConfigRequest, None)
GET_EXTENDED_CARD = Operation(
    "GetExtendedAgentCard", t.GetExtendedAgentCardRequest, AgentCard, reads=True, addressed=True
)

#: Every operation by its name.
OPERATIONS: dict[str, Operation] = {
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


#: The header that makes a send repeatable (the same key means the same send), in lower case.
IDEMPOTENCY_KEY = "idempotency-key"
#: The extension by which a card says that the agent understands that header.
IDEMPOTENT_SEND = "urn:a2a-sync:idempotent-send:1"


def is_idempotency_key(text: str) -> bool:
    """1 to 255 printable ASCII characters."""
    return 1 <= len(text) <= 255 and text.isascii() and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls: an id that owns tasks, and what an authenticator knows besides."""

    id: str = ""
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, t.JSON] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What surrounds a call and is not part of its request.

    ``headers`` have lower-case names. ``extensions`` are the URIs that are asked for; ``activated`` holds those of them that
    the server has activated, each with a value of its own. ``key`` is by what a send is known again. What a server puts
    into ``answer_headers`` goes out with its answer, if that goes over a wire; a client finds there, in lower case, what came
    with it. ``last_event_id`` is the number after which
    a stream resumes. ``timeout`` is the client's limit for the whole call, in seconds, ``opening`` the one until the answer
    begins. ``deadline`` is the monotonic time at which a caller of this process stops waiting. ``gone`` tells a server that nobody waits for the answer any more. ``address`` is the URL by which the server
    was reached, for operations whose result names it. ``owner`` is whose tasks are meant, where that is not the principal.
    ``peer`` is the network address that the call came from, as far as a server is told.
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
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation with its request and its surroundings."""

    operation: Operation
    request: Any
    context: CallContext = field(default_factory=CallContext)

    @property
    def task_id(self) -> str:
        """The task that is meant; ``""`` where none is named."""
        if isinstance(self.request, t.SendMessageRequest):
            return self.request.message.task_id
        task_id: str | None = getattr(self.request, "task_id", None)
        return task_id if task_id is not None else getattr(self.request, "id", "")


@dataclass(slots=True)
class StreamItem:
    """One element of a stream. ``number`` is the version of the task it stands for (the SSE id), None where there is none.

    ``last``: the peer says that nothing follows (only some versions of the protocol say so; a stream may just end).
    ``encoded`` keeps the event's bytes per protocol version and is shared with the log entry it came from. ``size`` is that of
    the event as it came over a wire, in bytes; 0 inside a process.
    """

    event: t.StreamResponse
    number: int | None = None
    encoded: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    last: bool = False
    size: int = 0


@runtime_checkable
class EventStream(Protocol):
    """The result of a streaming operation. Iterating blocks; ``close`` may be called from any thread and ends it."""

    def __iter__(self) -> Iterator[StreamItem]: ...

    def close(self) -> None:
        """Stop listening. The task goes on."""


Endpoint: TypeAlias = Callable[[Call], Any]
Interceptor: TypeAlias = Callable[[Endpoint], Endpoint]


class SendKey(NamedTuple):
    """By what a send is known again: its caller's key, and a fingerprint of its content. Other content is another send."""

    key: str
    fingerprint: str


class Webhook(NamedTuple):
    """A push configuration to be kept, with its ids, and the protocol version that it is told in."""

    config: t.TaskPushNotificationConfig
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run needs to know of the request that started it, on whatever worker it runs.

    It can be serialised and never holds credentials: headers are those on an allow list. ``attempt`` counts the workers
    that have begun to run it. ``key`` and ``webhook`` are kept by the store beside the request and not in it.
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

    @property
    def task_id(self) -> str:
        """The task the run belongs to; the message is stamped with it before a run starts."""
        return self.message.task_id

    @property
    def context_id(self) -> str:
        """The context the run belongs to."""
        return self.message.context_id


#: Stands between an agent of several and its caller in the owner of a task, and in nobody's id.
OWNER_MARK = "\x1f"
#: Begins the owner of tasks that ``owner=`` names, and nobody's id: an owner and a caller of one name are two.
NAMED_MARK = "\x1e"


def quota_owner(owner: str) -> str:
    """By what the places and the tasks of an owner are counted: the agents of one host count together."""
    return owner.partition(OWNER_MARK)[2] if OWNER_MARK in owner else owner


def owner_of(context: CallContext) -> str:
    """Whose tasks a call means: of whom the author named, else of its caller; ``""`` where there is nobody."""
    if context.owner is not None:
        return context.owner
    return context.principal.id if context.principal is not None else ""
