"""Extensions (spec 4.6): what an agent can do beyond the protocol, for the calls whose client asks for it.

What an extension is and which hooks it has, and one as an example. Who has asked for what is known to `activation`, which
calls the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from a2a_sync.card import AgentExtension
from a2a_sync.lazymodule import LazyModule
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import Call
from a2a_sync.types import (
    JSON,
    Artifact,
    Message,
    SendMessageRequest,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from a2a_sync.agent import executor
else:
    executor = LazyModule("a2a_sync.agent.executor")


class Extension:
    """One extension, declared by class attributes or by arguments; without hooks it is what handlers make of it.

    It is active for a call that asks for exactly its `uri`, and for no other. Handlers find those that are active in
    `RequestContext.extensions`, clients in the header of the answer.

    Parameters:
        uri: its identity; another version of it has another one. Printable ASCII, without commas and blanks.
        description: for the card.
        required: a message that does not ask for it is refused with `ExtensionSupportRequiredError`.
        params: for the card.

    The hooks may be called by several threads at a time, each for a call or run of its own.
    """

    uri: str = ""
    description: str = ""
    required: bool = False
    params: Mapping[str, JSON] = {}
    #: Request headers, in lower case, that ask for it as well as its URI does.
    headers: tuple[str, ...] = ()
    #: The card tells of it.
    listed: bool = True

    def __init__(
        self,
        uri: str = "",
        *,
        description: str = "",
        required: bool | None = None,
        params: Mapping[str, JSON] | None = None,
    ) -> None:
        self.uri = uri or self.uri
        self.description = description or self.description
        self.required = self.required if required is None else required
        self.params = self.params if params is None else params
        if not self.uri.isascii() or not self.uri.isprintable() or not self.uri or set(self.uri) & {",", " "}:
            raise ValueError(f"the URI of an extension is printable ASCII without commas and blanks, not {self.uri!r}")

    @classmethod
    def of(cls, declared: Extension | AgentExtension) -> Extension:
        """An extension as it is; what a card says of one, as an extension without hooks."""
        if isinstance(declared, Extension):
            return declared
        return Extension(
            declared.uri, description=declared.description, required=declared.required, params=declared.params
        )

    def declaration(self) -> AgentExtension:
        """What the card says of it."""
        return AgentExtension(
            uri=self.uri, description=self.description, required=self.required, params=dict(self.params)
        )

    # -- hooks --

    def activate(self, call: Call) -> JSON:
        """A call asks for this extension. On the thread of the request.

        What is returned becomes the value in `RequestContext.extensions`, and is kept with the run; None and False leave
        the extension inactive.

        Raises:
            AgentError: the call is refused.
        """
        return True

    def on_request(self, call: Call) -> Call:
        """The call, of whatever operation, as it goes on. On the thread of the request, before anything else is done.

        Raises:
            AgentError: the call is refused.
        """
        return call

    def on_event(self, event: LogEvent, context: executor.RequestContext) -> LogEvent:
        """The event as it goes on, of a run whose request had the extension active. On the thread of the run.

        Called for everything that the agent's code emits or yields, and for what its result becomes, before it is checked
        and stored. What is raised counts as raised by the agent.
        """
        return event


_Stamped = TypeVar("_Stamped", Message, Artifact)


class Timestamps(Extension):
    """Says in the metadata of messages and artifacts when they were made: the timestamp extension of the A2A samples.

    Messages of the client that tell no time get that of their arrival. `now` gives the time.
    """

    uri = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
    description = "Adds the time at which they were made to messages and artifacts"
    #: The member of the metadata; its value is a time in ISO 8601.
    member = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp"

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC), *, required: bool = False) -> None:
        super().__init__(required=required)
        self._now = now

    def on_request(self, call: Call) -> Call:
        request = call.request
        if not isinstance(request, SendMessageRequest):
            return call
        return replace(call, request=replace(request, message=self._stamped(request.message)))

    def on_event(self, event: LogEvent, context: executor.RequestContext) -> LogEvent:
        if isinstance(event, Message):
            return self._stamped(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            # What is added later leaves the time at which the artifact was begun.
            return event if event.append else replace(event, artifact=self._stamped(event.artifact))
        if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
            return replace(event, status=replace(event.status, message=self._stamped(event.status.message)))
        return event

    def _stamped(self, item: _Stamped) -> _Stamped:
        if self.member in item.metadata:
            return item
        time = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        extensions = item.extensions if self.uri in item.extensions else (*item.extensions, self.uri)
        return replace(item, metadata={**item.metadata, self.member: time}, extensions=extensions)
