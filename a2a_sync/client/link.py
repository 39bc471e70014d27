"""What a card leads to: one agent's endpoint, and how each call to it is marked and followed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from a2a_sync.bindings.headers import VERSION
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.cards import FOR_EVER, Kept, Wanted, dialect, fetch_card, stand_ins, usable_interfaces
from a2a_sync.client.deadlines import NEVER, AlarmClock, Deadline
from a2a_sync.client.local import LocalEndpoint
from a2a_sync.client.repeating import again, persist
from a2a_sync.client.resume import Resumption
from a2a_sync.client.retry import Retry
from a2a_sync.client.stream import TaskStream
from a2a_sync.codec import Codec, by_version
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import AgentError, TransportError, UnsupportedOperationError
from a2a_sync.operations import (
    GET_TASK,
    IDEMPOTENCY_KEY,
    IDEMPOTENT_SEND,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Call,
    CallContext,
    Endpoint,
    EventStream,
    Operation,
)
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.telemetry.tracing import traced
from a2a_sync.types import GetTaskRequest, Message, SendMessageRequest, SubscribeToTaskRequest, Task

if TYPE_CHECKING:
    from a2a_sync.client.endpoint import WireEndpoint
    from a2a_sync.client.http import HttpTransport
    from a2a_sync.client.trust import CardTrust


logger = get_logger(__name__)

#: Seconds that the look at a task may take whose stream ended without an answer.
_STORED_TIMEOUT = 5.0
#: Where a stream that is refused just breaks.
BREAKING = ("0.3", "HTTP+JSON")


class CallOptions(TypedDict, total=False):
    """What every method that calls an agent takes, besides arguments of its own.

    Parameters:
        timeout: seconds for all of it, in place of the client's overall limit.
        headers: sent besides those of the client, over which they stand; only to the same origin as `auth`.
        extensions: URIs of extensions to activate besides those of the client.
        tenant: the tenant to call for, in place of the one that the card names. Protocol 0.3 has none.
    """

    timeout: float | None
    headers: Mapping[str, str]
    extensions: Sequence[str]
    tenant: str


def check_options(options: CallOptions) -> None:
    """Raises `TypeError` where one of `options` is none."""
    if unknown := options.keys() - CallOptions.__optional_keys__:
        raise TypeError(
            f"unexpected argument {min(unknown)!r}; all calls take {', '.join(CallOptions.__annotations__)}"
        )


def as_uris(extensions: Sequence[str]) -> tuple[str, ...]:
    """What a user gave for ``extensions``."""
    if isinstance(extensions, str):
        raise TypeError("extensions takes a list of URIs, not one string")
    return tuple(extensions)


#: The options that concern more than the time a call may take.
_MARKS = {"headers", "extensions", "tenant"}


class Surroundings:
    """What all calls of one client share: its patience, alarms and open streams, and whether it was closed."""

    def __init__(self, headers: Mapping[str, str], extensions: tuple[str, ...], retry: Retry) -> None:
        self.headers = headers
        self.extensions = extensions
        self.retry = retry
        self.alarms = AlarmClock()
        self.closed = threading.Event()
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: what streams and waits belongs to the parent."""
        was_closed = self.closed.is_set()
        self.closed = threading.Event()
        if was_closed:
            self.closed.set()
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[TaskStream] = weakref.WeakSet()

    def add(self, stream: TaskStream) -> None:
        """Close `stream` with the client, if it lives that long."""
        with self._lock:
            self._streams.add(stream)

    def close(self) -> None:
        """End what streams and what waits."""
        self.closed.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self.alarms.close()


@dataclass(frozen=True, slots=True)
class Link:
    """The way to one agent.

    ``streams_sends``: a blocking send goes as a stream there. ``repeats``: the agent knows a send again by its key.
    """

    card: AgentCard
    endpoint: Endpoint
    agent: str
    version: str
    surroundings: Surroundings
    streams_sends: bool
    repeats: bool
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extensions: tuple[str, ...] = ()
    kept: Kept = field(default=FOR_EVER, repr=False)

    def marked(self, options: CallOptions) -> Link:
        """This link for one call with `options`: the link itself where they say nothing of it.

        Raises:
            UnsupportedOperationError: a tenant, and the agent's version of the protocol has none.
        """
        if _MARKS.isdisjoint(options):
            return self
        tenant = options.get("tenant")
        if tenant and self.version == "0.3":
            raise UnsupportedOperationError("Protocol 0.3 has no tenants")
        lower = {name.lower(): value for name, value in options.get("headers", {}).items()}
        return replace(
            self,
            tenant=self.tenant if tenant is None else tenant,
            headers={**self.headers, **lower},
            extensions=tuple(dict.fromkeys((*self.extensions, *as_uris(options.get("extensions", ()))))),
        )

    @property
    def streaming(self) -> bool:
        """The agent says that it streams."""
        return bool(self.card.capabilities.streaming)

    @property
    def may_repeat(self) -> bool:
        """A send whose answer is lost may be made again, if it has a key."""
        return self.repeats and bool(self.surroundings.retry)

    def call(
        self,
        operation: Operation,
        request: Any,
        deadline: Deadline,
        last_event_id: int | None = None,
        *,
        opening: Deadline = NEVER,
        key: str = "",
    ) -> Any:
        """The result of one operation, for the tenant that the card names (spec 8.3.2: in every request).

        `opening` is the limit until the answer begins; `key` the one by which the agent knows a send again.
        """
        extensions = self.extensions
        if key and self.repeats and IDEMPOTENT_SEND not in extensions:
            extensions += (IDEMPOTENT_SEND,)
        context = CallContext(
            headers={**self.headers, IDEMPOTENCY_KEY: key} if key else self.headers,
            extensions=extensions,
            version=self.version,
            last_event_id=last_event_id,
            timeout=deadline.left,
            opening=opening.left,
        )
        with traced(f"A2A {operation.name}", {}, kind="client", agent=self.agent):
            return self.endpoint(
                Call(operation, replace(request, tenant=self.tenant) if self.tenant else request, context)
            )

    def send(self, request: SendMessageRequest, deadline: Deadline, key: str) -> Task | Message:
        """SendMessage. Where its answer is lost, it is made again if the agent knows it again by `key`."""
        attempt = self._sending(SEND_MESSAGE, request, deadline, key)
        result: Task | Message = (
            persist(self, deadline, attempt, stream=False) if key and self.may_repeat else attempt(NEVER)
        )
        return result

    def stream(self, request: SendMessageRequest, deadline: Deadline, key: str, *, complete: bool = True) -> TaskStream:
        """SendStreamingMessage, in the same way; unless `complete`, an answer that was not streamed is not asked for."""
        attempt = self._sending(SEND_STREAMING_MESSAGE, request, deadline, key)
        repeat = attempt if key and self.may_repeat else None
        source = attempt(NEVER) if repeat is None else persist(self, deadline, repeat, stream=True)
        resumption = Resumption(self, deadline, repeat=repeat, is_send=True)
        return self.listen(
            source, request.message.task_id, resumption, stored=self._stored(deadline) if complete else None
        )

    def _sending(
        self, operation: Operation, request: SendMessageRequest, deadline: Deadline, key: str
    ) -> Callable[[Deadline], Any]:
        return lambda opening: self.call(operation, request, deadline, opening=opening, key=key)

    def subscribe(self, task_id: str, deadline: Deadline, last_event_id: int | None = None) -> TaskStream:
        """SubscribeToTask."""
        source = self.call(SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), deadline, last_event_id)
        return self.listen(source, task_id, Resumption(self, deadline), last_event_id, self._stored(deadline))

    def _stored(self, deadline: Deadline) -> Callable[[str], Task | None]:
        """What gets the task that the agent has stored; None where it cannot be had."""

        def stored(task_id: str) -> Task | None:
            try:
                limit = min(deadline, Deadline.after(_STORED_TIMEOUT))
                task: Task = self.call(GET_TASK, GetTaskRequest(id=task_id), limit)
            except (AgentError, TransportError) as error:
                logger.info("the stream of a task ended without an answer, and GetTask failed: %s", error)
                return None
            return task

        return stored

    def listen(
        self,
        source: EventStream,
        task_id: str,
        resumption: Resumption | None = None,
        last_event_id: int | None = None,
        stored: Callable[[str], Task | None] | None = None,
    ) -> TaskStream:
        """`source` as the stream of a task, closed with the client; `stored` gets that task if `source` lacks its answer."""
        stream = TaskStream(
            source,
            agent=self.agent,
            alarms=self.surroundings.alarms,
            task_id=task_id,
            last_event_id=last_event_id,
            resumption=resumption if self.surroundings.retry else None,
            stored=stored,
        )
        self.surroundings.add(stream)
        return stream


class _Whom(NamedTuple):
    """Whose card is asked for."""

    agent: str
    surroundings: Surroundings


def http_link(
    http: HttpTransport,
    card: AgentCard | None,
    wanted: Wanted,
    surroundings: Surroundings,
    deadline: Deadline,
    trust: CardTrust | None = None,
    *,
    files_twice: bool = False,
    kept: Kept = FOR_EVER,
) -> Link:
    """The way to an agent over HTTP; where `card` is not given, it is read from the agent's address, and `trust` checks it.

    `kept` says how long a given card holds.

    Raises:
        CardNotFoundError, TransportError: the card cannot be read.
        CardSignatureError: it may not be trusted.
        CardAuthError: it asks for credentials that there are not.
        VersionNotSupportedError: it names no interface that this client speaks.
    """
    from a2a_sync.client.credentials import display
    from a2a_sync.client.http import Where

    if card is None:
        headers = {"Accept": "application/json", VERSION: wanted.version or "1.0"}
        where = Where("card", http.agent)
        # Once, unless an answer has begun: nothing has ever come from there, and it may be no agent at all.
        whom = _Whom(http.agent, surroundings)
        card, kept = fetch_card(
            lambda url: again(
                whom, deadline, lambda: http.get(url, headers=headers, where=where, deadline=deadline), once=True
            ),
            http.home,
            None if trust is None else lambda document: trust.check(document, deadline),
        )
    interface, *others = usable_interfaces(card, wanted)
    http.heed(card)
    spoken = dialect(interface.protocol_version)
    reached = [interface, *(() if http.has_secrets else stand_ins(interface, others))]
    codecs = [by_version(spoken, one.protocol_binding.upper(), files_twice=files_twice) for one in reached]
    endpoints = [_endpoint(http, one, codec, trust) for one, codec in zip(reached, codecs, strict=True)]
    return Link(
        card=card,
        endpoint=_reaching(endpoints),
        agent=display(interface.url),
        version=spoken,
        surroundings=surroundings,
        # A stream outlives idle limits on its way, and names the task before anything can go wrong. The official servers of
        # 0.3 have no way to refuse one over HTTP+JSON but to break it.
        streams_sends=bool(card.capabilities.streaming) and (spoken, interface.protocol_binding.upper()) != BREAKING,
        repeats=any(extension.uri == IDEMPOTENT_SEND for extension in card.capabilities.extensions),
        tenant=interface.tenant,
        extensions=surroundings.extensions,
        kept=kept,
    )


def _reaching(endpoints: list[Endpoint]) -> Endpoint:
    if len(endpoints) == 1:
        return endpoints[0]
    from a2a_sync.client.fallback import Fallback

    return Fallback(endpoints)


def _endpoint(http: HttpTransport, interface: AgentInterface, codec: Codec, trust: CardTrust | None) -> Endpoint:
    endpoint: WireEndpoint
    if interface.protocol_binding.upper() == "HTTP+JSON":
        from a2a_sync.client.http_json import HttpJsonEndpoint

        endpoint = HttpJsonEndpoint(http, interface.url, codec)
    else:
        from a2a_sync.client.jsonrpc import JsonRpcEndpoint

        endpoint = JsonRpcEndpoint(http, interface.url, codec)
    if trust is not None:
        endpoint.vet = trust.vet
    return endpoint


def local_link(target: Any, version: str | None, surroundings: Surroundings) -> Link:
    """The way to an app or agent of this process."""
    card: AgentCard = target.agent_card()
    return Link(
        card=card,
        endpoint=LocalEndpoint(target.endpoint(), card.name, surroundings.alarms, lambda: surroundings.closed.is_set()),
        agent=card.name,
        version=version or "1.0",
        surroundings=surroundings,
        # Nothing idles here, and a plain send made by a run can be served on that run's own thread.
        streams_sends=False,
        repeats=False,
        headers=surroundings.headers,
        extensions=surroundings.extensions,
    )
