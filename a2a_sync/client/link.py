"""A link to an agent: the endpoint that its card names, with the context of calls, their retries and their streams."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from a2a_sync import urls
from a2a_sync.bindings.headers import VERSION
from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.arguments import CallOptions, check_extensions
from a2a_sync.client.cards import (
    MAX_CARD_BYTES,
    NEVER_EXPIRES,
    CacheEntry,
    InterfaceFilter,
    fallback_interfaces,
    fetch_card,
    protocol_version_of,
    usable_interfaces,
)
from a2a_sync.client.deadlines import NEVER, Deadline
from a2a_sync.client.local import LocalAgent, LocalEndpoint
from a2a_sync.client.request import ErrorContext
from a2a_sync.client.retry import READ, READ_ONCE, RESUME, SEND, Policy, Retry, RetryLoop
from a2a_sync.client.stream import Resumption, TaskStream
from a2a_sync.codec import Codec, by_version
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.concurrency.fork import renew_per_process
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
    RequestT,
    ResultT,
)
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.telemetry.tracing import traced
from a2a_sync.types import GetTaskRequest, Message, SendMessageRequest, SubscribeToTaskRequest, Task

if TYPE_CHECKING:
    from a2a_sync.client.cards import CardTrust
    from a2a_sync.client.endpoint import WireEndpoint
    from a2a_sync.client.http import HttpTransport, Page

logger: Final = get_logger(__name__)

#: Seconds for GetTask after a stream that ended without an answer.
_STORED_TASK_TIMEOUT = 5.0
#: The protocol version and binding in which the official servers break a stream instead of refusing it.
_BREAKS_REFUSED_STREAMS = ("0.3", "HTTP+JSON")
#: The options of a call that change its link.
_LINK_OPTIONS = {"headers", "extensions", "tenant"}


class SharedResources:
    """What all calls of one client share: retry settings, alarms, open streams, and whether the client is closed."""

    def __init__(
        self, headers: Mapping[str, str], extensions: tuple[str, ...], retry: Retry, max_task_bytes: int
    ) -> None:
        self.headers = headers
        self.max_task_bytes = max_task_bytes
        self.extensions = extensions
        self.retry = retry
        self.alarms: AlarmClock = AlarmClock()
        self.closed: threading.Event = threading.Event()
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: streams and pauses belong to the parent."""
        was_closed = self.closed.is_set()
        self.closed = threading.Event()
        if was_closed:
            self.closed.set()
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[TaskStream] = weakref.WeakSet()

    def add(self, stream: TaskStream) -> None:
        """Close `stream` with the client, if it still exists then."""
        with self._lock:
            self._streams.add(stream)

    def close(self) -> None:
        """End all streams and pauses."""
        self.closed.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self.alarms.close()


@dataclass(frozen=True, slots=True)
class Link:
    """A link to one agent: what its card says, and the endpoint that is called.

    Parameters:
        card: the card of the agent.
        endpoint: sends calls to the agent.
        agent: the agent's address or name, for errors and logs.
        version: the protocol version that is spoken.
        shared: what all calls of the client share.
        streams_sends: a blocking send is sent as a stream.
        deduplicates_sends: the agent recognises a repeated send by its idempotency key.
        tenant: the tenant of every request.
        headers: HTTP headers of every request, with names in lower case.
        extensions: URIs of the extensions to activate.
        cache_entry: how long the card may be used.
    """

    card: AgentCard
    endpoint: Endpoint
    agent: str
    version: str
    shared: SharedResources
    streams_sends: bool
    deduplicates_sends: bool
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extensions: tuple[str, ...] = ()
    cache_entry: CacheEntry = field(default=NEVER_EXPIRES, repr=False)

    def with_options(self, options: CallOptions) -> Link:
        """This link with the options of one call applied; the link itself if they do not concern it.

        Raises:
            UnsupportedOperationError: a tenant, which protocol 0.3 does not have.
        """
        if _LINK_OPTIONS.isdisjoint(options):
            return self
        tenant = options.get("tenant")
        if tenant and self.version == "0.3":
            raise UnsupportedOperationError("Protocol 0.3 has no tenants")
        lower = {name.lower(): value for name, value in options.get("headers", {}).items()}
        return replace(
            self,
            tenant=self.tenant if tenant is None else tenant,
            headers={**self.headers, **lower},
            extensions=tuple(dict.fromkeys((*self.extensions, *check_extensions(options.get("extensions", ()))))),
        )

    @property
    def streaming(self) -> bool:
        """The card announces streaming."""
        return bool(self.card.capabilities.streaming)

    @property
    def retries_sends(self) -> bool:
        """A send with a key is retried when its answer is lost."""
        return self.deduplicates_sends and bool(self.shared.retry)

    def retrying(self, policy: Policy, deadline: Deadline, *, phase: str = "send", task_id: str = "") -> RetryLoop:
        """A loop for one call of this link, which retries the failures that `policy` names."""
        shared = self.shared
        return RetryLoop(policy, shared.retry, deadline, shared.closed, agent=self.agent, phase=phase, task_id=task_id)

    # -- calls --

    def call(
        self,
        operation: Operation[RequestT, ResultT],
        request: RequestT,
        deadline: Deadline,
        last_event_id: int | None = None,
        *,
        opening: Deadline = NEVER,
        key: str = "",
    ) -> ResultT:
        """The result of one operation, called once.

        Parameters:
            operation: the operation.
            request: its request; the link's tenant is added (spec 8.3.2).
            deadline: the limit of the whole call.
            last_event_id: the event after which a stream is resumed.
            opening: the limit until the answer begins.
            key: the idempotency key of a send.
        """
        extensions = self.extensions
        if key and self.deduplicates_sends and IDEMPOTENT_SEND not in extensions:
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
        """SendMessage, retried after a lost answer if the agent deduplicates by `key`."""

        def attempt(_: Deadline) -> Task | Message:
            return self.call(SEND_MESSAGE, request, deadline, key=key)

        if key and self.retries_sends:
            return self.retrying(SEND, deadline).run(attempt)
        return attempt(NEVER)

    def stream(self, request: SendMessageRequest, deadline: Deadline, key: str, *, complete: bool = True) -> TaskStream:
        """SendStreamingMessage, retried as `send`. With `complete`, an answer that was not streamed is read by GetTask."""

        def attempt(opening: Deadline) -> EventStream:
            return self.call(SEND_STREAMING_MESSAGE, request, deadline, opening=opening, key=key)

        repeat = attempt if key and self.retries_sends else None
        source = attempt(NEVER) if repeat is None else self.retrying(SEND, deadline, phase="stream").run(repeat)
        resumption = self._resumption(deadline, repeat=repeat, is_send=True)
        read_stored = self._stored_task_reader(deadline) if complete else None
        return self.task_stream(source, request.message.task_id, resumption, read_stored=read_stored)

    def get_task(self, task_id: str, deadline: Deadline, opening: Deadline = NEVER) -> Task:
        """GetTask, once."""
        return self.call(GET_TASK, GetTaskRequest(id=task_id), deadline, opening=opening)

    def open_subscription(
        self, task_id: str, deadline: Deadline, last_event_id: int | None = None, opening: Deadline = NEVER
    ) -> EventStream:
        """SubscribeToTask, once: the events as the agent sends them."""
        return self.call(
            SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), deadline, last_event_id, opening=opening
        )

    def subscribe(
        self, task_id: str, deadline: Deadline, last_event_id: int | None = None, *, policy: Policy = READ
    ) -> TaskStream:
        """SubscribeToTask, retried as `policy` says: a stream that is resumed when it is cut."""
        retries = self.retrying(policy, deadline, phase="stream", task_id=task_id)
        source = retries.run(lambda _: self.open_subscription(task_id, deadline, last_event_id))
        return self.task_stream(
            source, task_id, self._resumption(deadline), last_event_id, self._stored_task_reader(deadline)
        )

    # -- streams --

    def task_stream(
        self,
        source: EventStream,
        task_id: str,
        resumption: Resumption | None = None,
        last_event_id: int | None = None,
        read_stored: Callable[[str], Task | None] | None = None,
    ) -> TaskStream:
        """`source` as the stream of a task, which is closed with the client. `read_stored` reads an answer missing in it."""
        stream = TaskStream(
            source,
            agent=self.agent,
            alarms=self.shared.alarms,
            task_id=task_id,
            last_event_id=last_event_id,
            resumption=resumption if self.shared.retry else None,
            read_stored=read_stored,
            max_task_bytes=self.shared.max_task_bytes,
        )
        self.shared.add(stream)
        return stream

    def _resumption(
        self,
        deadline: Deadline,
        *,
        repeat: Callable[[Deadline], EventStream] | None = None,
        is_send: bool = False,
    ) -> Resumption:
        # The event belongs to the stream: closing the client closes its streams, which sets it.
        retries = RetryLoop(RESUME, self.shared.retry, deadline, threading.Event(), agent=self.agent, phase="stream")
        return Resumption(self, deadline, retries, repeat=repeat, is_send=is_send)

    def _stored_task_reader(self, deadline: Deadline) -> Callable[[str], Task | None]:
        """A function that returns the task as the agent has stored it; None if it cannot be read."""

        def read_stored(task_id: str) -> Task | None:
            try:
                return self.get_task(task_id, min(deadline, Deadline.after(_STORED_TASK_TIMEOUT)))
            except (AgentError, TransportError) as error:
                logger.info("the stream of a task ended without an answer, and GetTask failed: %s", error)
                return None

        return read_stored


def http_link(
    http: HttpTransport,
    card: AgentCard | None,
    interface_filter: InterfaceFilter,
    shared: SharedResources,
    deadline: Deadline,
    card_trust: CardTrust | None = None,
    *,
    double_base64_files: bool = False,
    cache_entry: CacheEntry = NEVER_EXPIRES,
) -> Link:
    """A link to an agent over HTTP.

    Parameters:
        http: the transport to the agent's address.
        card: the card of the agent; None reads it from the agent's address.
        interface_filter: which interfaces of the card may be called.
        shared: what all calls of the client share.
        deadline: the limit for reading the card.
        card_trust: verifies the card that is read, and extended cards.
        double_base64_files: the agent encodes files twice.
        cache_entry: how long the given card may be used.

    Raises:
        CardNotFoundError, TransportError: the card cannot be read.
        CardSignatureError: the card is not trusted.
        CardAuthError: the card requires credentials that the client does not have.
        VersionNotSupportedError: the card lists no interface that this client supports.
    """
    if card is None:
        headers = {"Accept": "application/json", VERSION: interface_filter.version or "1.0"}
        error_context = ErrorContext("card", http.agent)
        retry, closed = shared.retry, shared.closed

        def get(url: str) -> Page:
            retries = RetryLoop(READ_ONCE, retry, deadline, closed, agent=http.agent, phase="card")
            return retries.run(
                lambda _: http.get(
                    url, headers=headers, error_context=error_context, deadline=deadline, max_bytes=MAX_CARD_BYTES
                )
            )

        verify = None if card_trust is None else partial(card_trust.verify, deadline=deadline)
        card, cache_entry = fetch_card(get, http.home, verify)
    interface, *others = usable_interfaces(card, interface_filter)
    http.apply_card_security(card)
    version = protocol_version_of(interface)
    called = [interface, *(() if http.has_secrets else fallback_interfaces(interface, others))]
    codecs = [
        by_version(version, one.protocol_binding.upper(), double_base64_files=double_base64_files) for one in called
    ]
    endpoints = [_make_endpoint(http, one, codec, card_trust) for one, codec in zip(called, codecs, strict=True)]
    breaks_streams = (version, interface.protocol_binding.upper()) == _BREAKS_REFUSED_STREAMS
    return Link(
        card=card,
        endpoint=_with_failover(endpoints),
        agent=urls.parse(interface.url).without_query,
        version=version,
        shared=shared,
        # A stream survives idle limits of proxies, and names the task before anything can fail.
        streams_sends=bool(card.capabilities.streaming) and not breaks_streams,
        deduplicates_sends=any(extension.uri == IDEMPOTENT_SEND for extension in card.capabilities.extensions),
        tenant=interface.tenant,
        extensions=shared.extensions,
        cache_entry=cache_entry,
    )


def _with_failover(endpoints: list[Endpoint]) -> Endpoint:
    if len(endpoints) == 1:
        return endpoints[0]
    from a2a_sync.client.endpoint import FailoverEndpoint

    return FailoverEndpoint(endpoints)


def _make_endpoint(
    http: HttpTransport, interface: AgentInterface, codec: Codec, card_trust: CardTrust | None
) -> Endpoint:
    binding = BINDINGS[interface.protocol_binding.upper()]
    endpoint: WireEndpoint = binding.load_endpoint()(http, interface.url, codec)
    if card_trust is not None:
        endpoint.verify_result = card_trust.verify_result
    return endpoint


def local_link(target: LocalAgent, version: str | None, shared: SharedResources) -> Link:
    """A link to an app or agent of this process."""
    card = target.agent_card()
    return Link(
        card=card,
        endpoint=LocalEndpoint(target.endpoint(), card.name, shared.alarms, lambda: shared.closed.is_set()),
        agent=card.name,
        version=version or "1.0",
        shared=shared,
        # There are no idle limits here, and a plain send of a run can be served on the thread of that run.
        streams_sends=False,
        deduplicates_sends=False,
        headers=shared.headers,
        extensions=shared.extensions,
    )
