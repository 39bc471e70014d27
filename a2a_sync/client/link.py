"""What a card leads to: one agent's endpoint, and how each call to it is marked and followed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from a2a_sync.bindings.headers import VERSION
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.cards import choose_interface, dialect, fetch_card
from a2a_sync.client.local import LocalEndpoint
from a2a_sync.client.stream import TaskStream
from a2a_sync.client.timeouts import AlarmClock, Deadline
from a2a_sync.codec import by_version
from a2a_sync.fork import renew_in_child
from a2a_sync.operations import Call, CallContext, Endpoint, EventStream, Operation

if TYPE_CHECKING:
    from a2a_sync.client.http import HttpTransport


class Surroundings:
    """What all calls of one client share: its alarms, its open streams, and whether it was closed."""

    def __init__(self, headers: Mapping[str, str], extensions: tuple[str, ...]) -> None:
        self.headers = headers
        self.extensions = extensions
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
    """The way to one agent. ``streams_sends``: a blocking send goes as a stream there."""

    card: AgentCard
    endpoint: Endpoint
    agent: str
    version: str
    surroundings: Surroundings
    streams_sends: bool
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def streaming(self) -> bool:
        """The agent says that it streams."""
        return bool(self.card.capabilities.streaming)

    def call(self, operation: Operation, request: Any, deadline: Deadline, last_event_id: int | None = None) -> Any:
        """The result of one operation, for the tenant that the card names (spec 8.3.2: in every request)."""
        context = CallContext(
            headers=self.headers,
            extensions=self.surroundings.extensions,
            version=self.version,
            last_event_id=last_event_id,
            timeout=deadline.left,
        )
        return self.endpoint(Call(operation, replace(request, tenant=self.tenant) if self.tenant else request, context))

    def open(
        self, operation: Operation, request: Any, deadline: Deadline, task_id: str, last_event_id: int | None = None
    ) -> TaskStream:
        """The stream of one streaming operation."""
        return self.listen(self.call(operation, request, deadline, last_event_id), task_id)

    def listen(self, source: EventStream, task_id: str) -> TaskStream:
        """`source` as the stream of a task, closed with the client."""
        stream = TaskStream(source, agent=self.agent, alarms=self.surroundings.alarms, task_id=task_id)
        self.surroundings.add(stream)
        return stream


def http_link(
    http: HttpTransport, card: AgentCard | None, version: str | None, surroundings: Surroundings, deadline: Deadline
) -> Link:
    """The way to an agent over HTTP; where `card` is not given, it is read from the agent's address.

    Raises:
        CardNotFoundError, TransportError: the card cannot be read.
        VersionNotSupportedError: it names no interface that this client speaks.
    """
    from a2a_sync.client.credentials import display
    from a2a_sync.client.http import Where
    from a2a_sync.client.rpc import JsonRpcEndpoint

    if card is None:
        headers = {"Accept": "application/json", VERSION: version or "1.0"}
        where = Where("card", http.agent)
        card = fetch_card(lambda url: http.get(url, headers=headers, where=where, deadline=deadline), http.home)
    interface: AgentInterface = choose_interface(card, version)
    spoken = dialect(interface.protocol_version)
    return Link(
        card=card,
        endpoint=JsonRpcEndpoint(http, interface.url, by_version(spoken)),
        agent=display(interface.url),
        version=spoken,
        surroundings=surroundings,
        # A stream outlives idle limits on its way, and names the task before anything can go wrong.
        streams_sends=bool(card.capabilities.streaming),
        tenant=interface.tenant,
    )


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
        headers=surroundings.headers,
    )
